package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations"
	"github.com/belfryhq/belfry/outbox"
)

// restored dumps a database and restores it into another, as users do.
func restored(t *testing.T, db *dbtest.DB) *dbtest.DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	to, file := dbtest.NewEmpty(t), filepath.Join(t.TempDir(), "dump.sql")
	for _, c := range []*exec.Cmd{
		exec.CommandContext(ctx, dbtest.Program(t, "pg_dump"), "--file", file, db.DSN),
		exec.CommandContext(ctx, dbtest.Program(t, "psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file", file, to.DSN),
	} {
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return to
}

// text reads one.
func textOf(t *testing.T, db *dbtest.DB, sql string) (s string) {
	t.Helper()
	require.NoError(t, db.Pool.QueryRow(t.Context(), sql).Scan(&s))
	return s
}

// Nothing leaves a copy of a database, by whatever command, and everybody says why, until
// it is adopted; then relays that wait go on by themselves. Jobs are run all the same.
func TestLong_AdoptNothingLeavesACopyBefore(t *testing.T) {
	t.Parallel()
	requireNothingLeaves(t, func(db *dbtest.DB) *dbtest.DB { return dbtest.CopyOf(t, db) })
}

// The same of a copy that was dumped and restored.
func TestProcess_NothingLeavesARestoredDumpBeforeItIsAdopted(t *testing.T) {
	t.Parallel()
	requireNothingLeaves(t, func(db *dbtest.DB) *dbtest.DB { return restored(t, db) })
}

func requireNothingLeaves(t *testing.T, copied func(*dbtest.DB) *dbtest.DB) {
	t.Helper()
	d := deliverable(t, dbtest.New(t), 20)
	made := textOf(t, d.db, "SELECT oid::text FROM pg_database WHERE datname = current_database()")
	d.db = copied(d.db)
	d.db.DSN = kept(t, d.db.DSN)
	d.enqueue() // walks
	relay := start(t, d.environ(), "relay")
	daemon := start(t, d.environ(), "daemon")
	for _, p := range []*process{relay, daemon} {
		p.says(t, "delivery waits until the database is adopted")
	}

	r := command(t, d.environ(), "run", "--deliver")
	require.Equal(t, codeConfiguration, r.code, r.stderr)
	require.Contains(t, r.stderr, "belfry: this database is a copy or was moved: it is not where belfry was made or adopted, and nothing leaves it: made on database "+made+" of server ")
	require.NotContains(t, r.stderr, "no message is due")
	require.Contains(t, r.stderr, "20 messages of job 1 not sent: the database is a copy or was moved, and relays wait\n  -> show the waiting messages and adopt the database: `belfry adopt`")
	r = command(t, d.environ(), "doctor")
	require.Equal(t, codeFailure, r.code)
	require.Regexp(t, `(?m)^failed   installation   this database is a copy or was moved: .*: made on database \d+ of server \d+, now on database \d+ of server \d+\n +-> show the waiting messages and adopt the database: `+"`belfry adopt`", r.stdout)
	r = command(t, d.environ(), "jobs", "show", "1")
	require.Contains(t, r.stdout, "the database is a copy or was moved, and relays wait")

	r = command(t, d.environ(), "adopt")
	require.Equal(t, codeUsage, r.code)
	require.Regexp(t, `^made on  database `+made+` of server \d+\nnow on   database \d+ of server \d+\nadopted, relays send:\n  40 messages of 2 jobs enqueued in the last hour\n$`, r.stdout)
	require.Contains(t, r.stderr, "nothing was changed; say --yes")
	r = command(t, d.environ(), "adopt", "--json")
	require.Equal(t, codeUsage, r.code)
	var report delivery.Adoption
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	require.False(t, report.Adopted)
	require.EqualValues(t, 40, report.Backlog.Ages[0].Messages)
	require.Zero(t, d.fakes.Summary().Total().Calls, "nobody was called")
	require.Equal(t, map[string]int64{"PENDING": 40}, d.statuses())

	r = command(t, d.environ(), "adopt", "--yes", "--actor", "ann", "--reason", "moved")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "adopted: relays deliver from database ")
	waitUntil(t, d.db.Pool, "SELECT count(*) = 40 FROM belfry.messages WHERE status = 'SENT'")
	for _, p := range []*process{relay, daemon} {
		p.says(t, "the database was adopted: the relay continues")
		p.terminate(t)
		require.Equal(t, codeDone, p.exit(t))
	}
	require.EqualValues(t, 40, d.fakes.Summary().Total().Accepted)
	r = command(t, d.environ(), "adopt")
	require.Equal(t, codeDone, r.code)
	require.Regexp(t, `^nothing to adopt: belfry was made or adopted here, in database \d+ of server \d+\n$`, r.stdout)
	require.Equal(t, "ann: moved", textOf(t, d.db, "SELECT actor || ': ' || reason FROM belfry.events WHERE subject = 'installation'"))
	require.Contains(t, command(t, d.environ(), "doctor").stdout, "installation   made or adopted here, in database ")
}

// Where the server does not tell the schema's owner its identifier, the database's oid
// decides alone; a server that tells it, after a GRANT or elsewhere, is another place to
// each session that begins then.
func TestInstallation_OnAServerThatDoesNotTell(t *testing.T) {
	t.Parallel()
	super := dbtest.NewEmpty(t)
	_, err := super.Pool.Exec(t.Context(), `REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC`) // of this database
	require.NoError(t, err)
	owner := super.Role(t, "DO $$BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO :role', current_database()); END$$")
	_, err = migrations.Up(t.Context(), owner.DSN)
	require.NoError(t, err)
	read := func(pool *pgxpool.Pool) outbox.Installation {
		t.Helper()
		pool.Reset() // a session keeps what it was told
		i, err := outbox.ReadInstallation(t.Context(), pool)
		require.NoError(t, err)
		return i
	}
	for _, pool := range []*pgxpool.Pool{owner.Pool, super.Pool} { // who asks does not matter
		i := read(pool)
		require.True(t, i.Adopted)
		require.Nil(t, i.Made.SystemIdentifier)
		require.Contains(t, i.Made.String(), " of a server that does not tell its identifier")
	}
	_, err = super.Pool.Exec(t.Context(), `GRANT EXECUTE ON FUNCTION pg_control_system() TO "`+owner.User+`"`)
	require.NoError(t, err)
	require.ErrorIs(t, read(owner.Pool).Err(), outbox.ErrNotAdopted)
	i, err := delivery.Adopt(t.Context(), owner.Pool, "", job.Act{})
	require.NoError(t, err)
	require.NotNil(t, i.Made.SystemIdentifier)
	require.NoError(t, read(super.Pool).Err())
	_, err = super.Pool.Exec(t.Context(), `REVOKE EXECUTE ON FUNCTION pg_control_system() FROM "`+owner.User+`"`)
	require.NoError(t, err)
	require.ErrorIs(t, read(owner.Pool).Err(), outbox.ErrNotAdopted)
}
