package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/job"
)

// sameOn is a test's database on another server.
func sameOn(t *testing.T, db *dbtest.DB, server *pgserver.Server) *dbtest.DB {
	t.Helper()
	other := &dbtest.DB{DSN: server.DSN(db.Name), Name: db.Name}
	var err error
	other.Pool, err = pgxpool.New(t.Context(), other.DSN)
	require.NoError(t, err)
	t.Cleanup(other.Pool.Close)
	return other
}

// A standby that was promoted is where belfry was made: a daemon that knows both servers
// goes on without a word from anybody, with the walk that it was in and with what is to be
// sent. Before the promotion the standby is to it a server that does not answer.
func TestFault_AFailoverNeedsNoAdoption(t *testing.T) {
	t.Parallel()
	primary := dbtest.NewServer(t, true)
	d := deliverable(t, dbtest.NewOn(t, primary), 1000)
	standby := dbtest.NewBackup(t, primary, true)
	first, second := d.db, sameOn(t, d.db, standby)
	r := command(t, append(d.environ(), "BELFRY_DATABASE_URL="+second.DSN), "run", "--deliver")
	require.Equal(t, codeUnavailable, r.code, r.stderr)
	require.Contains(t, r.stderr, "is a standby and accepts no writes before it is promoted\npoint BELFRY_DATABASE_URL at the primary, or name both hosts")
	r = command(t, []string{"BELFRY_DATABASE_URL=" + second.DSN}, "doctor")
	require.Contains(t, r.stdout, "installation   made or adopted here, in database ")

	readsOnAStandby(t, second)
	writesNothingToAStandby(t, second)

	sockets := func(db *dbtest.DB) string { return textOf(t, db, "SELECT current_setting('unix_socket_directories')") }
	both := &dbtest.DB{DSN: fmt.Sprintf("postgres://postgres@/%s?host=%s,%s&port=5432,5432", first.Name, sockets(first), sockets(second))}
	reversed := fmt.Sprintf("postgres://postgres@/%s?host=%s,%s&port=5432,5432", first.Name, sockets(second), sockets(first))
	d.exec("CREATE DATABASE unmigrated")
	waitUntil(t, second.Pool, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'unmigrated')")
	for _, c := range []struct{ url, args string }{ // which go past the standby
		{reversed, "lanes pause other"}, {strings.Replace(reversed, first.Name, "unmigrated", 1), "migrate up"},
	} {
		r = command(t, []string{"BELFRY_DATABASE_URL=" + c.url}, strings.Fields(c.args)...)
		require.Equal(t, codeDone, r.code, r.stderr)
	}
	daemon := start(t, d.environ(append(small(both), "BELFRY_LOG_LEVEL=debug", "BELFRY_RUNNER_POLL_INTERVAL=50ms", "BELFRY_DELIVERY_LEASE=2m", "BELFRY_DELIVERY_STATEMENT_TIMEOUT=1s")...), "daemon")
	d.exec("INSERT INTO belfry.jobs (type, category, title, route) VALUES ('push', 'operator_notice', 'Again', '{push}')")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	waitUntil(t, second.Pool, "SELECT chunks >= 3 FROM belfry.jobs WHERE id = 2")
	require.NoError(t, primary.Stop(ctx, pgserver.Immediate))
	daemon.says(t, "server is in standby mode")
	_, err := second.Pool.Exec(ctx, "SELECT pg_promote()")
	require.NoError(t, err)
	waitUntil(t, second.Pool, "SELECT count(*) = 2000 FROM belfry.messages WHERE status = 'SENT'")
	require.NotContains(t, daemon.stderr.String(), "belfry adopt")
	require.NotContains(t, daemon.stderr.String(), "0A000")
	r = command(t, []string{"BELFRY_DATABASE_URL=" + second.DSN}, "doctor")
	require.Contains(t, r.stdout, "installation   made or adopted here, in database ")
	daemon.terminate(t)
	require.Equal(t, codeDone, daemon.exit(t), daemon.stderr.String())
}

// Commands that only read work on a standby; the doctor says what it is, and nothing else of it.
func readsOnAStandby(t *testing.T, standby *dbtest.DB) {
	t.Helper()
	environ := []string{"BELFRY_DATABASE_URL=" + standby.DSN}
	for path := range readOnlyCommands {
		args := strings.Fields(path)[1:]
		switch path {
		case "belfry channels count":
			args = append(args, "--everyone")
		case "belfry channels opt-outs":
			args = append(args, "--channel", "1")
		case "belfry dead-letters show":
			args = append(args, "--job", "1", "--channel", "1")
		case "belfry schedules show", "belfry schedules next":
			continue // as list; there is none
		default:
			if strings.HasPrefix(path, "belfry jobs ") && path != "belfry jobs list" {
				args = append(args, "1")
			}
		}
		r := command(t, environ, args...)
		require.Equal(t, codeDone, r.code, "%s: %s%s", path, r.stdout, r.stderr)
	}
	r := command(t, environ, "doctor", "--json")
	require.Equal(t, codeFailure, r.code, r.stdout)
	require.Equal(t, 1, strings.Count(r.stdout, `"status":"failed"`)+strings.Count(r.stdout, `"status": "failed"`), r.stdout)
	require.Contains(t, r.stdout, "read-only: a replica")
}

// Commands that write say which host is a standby and what to do.
func writesNothingToAStandby(t *testing.T, standby *dbtest.DB) {
	t.Helper()
	for _, args := range [][]string{
		{"abort", "1"}, {"lanes", "pause", "default"}, {"schedules", "pause", "daily"}, {"migrate", "up"}, {"prune"},
		{"enqueue", "--type", "inbox", "--category", "operator_notice", "--title", "Hello", "--everyone"},
	} {
		for _, attrs := range []string{"", "&target_session_attrs=any"} {
			r := command(t, []string{"BELFRY_DATABASE_URL=" + standby.DSN + attrs}, args...)
			require.Equal(t, codeUnavailable, r.code, "%v: %s", args, r.stderr)
			require.Regexp(t, `PostgreSQL at \S+ \(database \S+, user postgres\) is a standby and accepts no writes before it is promoted\npoint BELFRY_DATABASE_URL at the primary`, r.stderr)
		}
	}
	// Behind a pooler nothing tells a standby before a statement is refused.
	_, err := job.NewStore(standby.Pool).Abort(t.Context(), job.One(1), job.Act{})
	require.ErrorIs(t, err, db.ErrStandby)
	require.Equal(t, codeUnavailable, codeOf(err))
	require.Contains(t, explain(t.Context(), err), "point database.url at the primary")
}

// A base backup that is started elsewhere cannot be told from the server that it is of:
// what waits leaves both, with the same keys. What docs/operations.md says to do first
// keeps it back.
func TestFault_ABackupThatIsStartedElsewhereIsDisownedFirst(t *testing.T) {
	t.Parallel()
	original := dbtest.NewServer(t, true)
	d := deliverable(t, dbtest.NewOn(t, original), 20)
	production := d.db
	d.db = sameOn(t, production, dbtest.NewBackup(t, original, false))
	require.Contains(t, command(t, d.environ(), "doctor").stdout, "installation   made or adopted here, in database ")
	const here = "SELECT belfry.here()::text"
	require.Equal(t, textOf(t, production, here), textOf(t, d.db, here))

	d.exec("UPDATE belfry.installation SET database_oid = NULL")
	r := command(t, d.environ(), "run", "--deliver")
	require.Equal(t, codeConfiguration, r.code, r.stderr)
	require.Contains(t, r.stderr, "made on nowhere")
	require.Zero(t, d.fakes.Summary().Total().Calls)
	d.db = production
	r = command(t, d.environ(), "run", "--deliver")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.EqualValues(t, 20, d.fakes.Summary().Total().Accepted)
}

// A commit that waits for a synchronous standby that is gone is committed all the same: abort says
// so, and doctor names the wait.
func TestLong_AbortWhileTheSynchronousStandbyIsGone(t *testing.T) {
	t.Parallel()
	db := dbtest.NewOn(t, dbtest.NewServer(t, true))
	for _, sql := range []string{
		"INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'x')",
		"ALTER SYSTEM SET synchronous_standby_names = 'nosuch'", "SELECT pg_reload_conf()",
	} {
		_, err := db.Pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	waitUntil(t, db.Pool, "SELECT current_setting('synchronous_standby_names') = 'nosuch'")
	environ := []string{"BELFRY_DATABASE_URL=" + db.DSN}
	abort := start(t, environ, "abort", "1", "--reason", "wrong")
	waitUntil(t, db.Pool, "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	r := command(t, environ, "doctor")
	require.Equal(t, codeFailure, r.code)
	require.Contains(t, r.stdout, "waiting for a synchronous standby (synchronous_standby_names is nosuch)")
	require.Equal(t, codeUnavailable, abort.exit(t), abort.stderr.String())
	require.Contains(t, abort.stderr.String(), "the job may be aborted nevertheless, see `belfry jobs show 1`; repeating is safe")
	require.EqualValues(t, 1, count(t, db, "belfry.jobs WHERE status = 'ABORTED'"))
}
