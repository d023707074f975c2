package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// withoutPrepared is what the log says of a pooler, once in each process.
const withoutPrepared = "a pooler in transaction mode loses prepared statements; they are not used any more"

func requireSaidOnce(t *testing.T, name, stderr string) {
	t.Helper()
	require.Equal(t, 1, strings.Count(stderr, withoutPrepared), "%s: %s", name, stderr)
	require.Contains(t, stderr, "default_query_exec_mode=cache_describe", name)
	require.NotContains(t, stderr, "42P05", name)
	require.NotContains(t, stderr, "26000", name)
}

// Processes whose prepared statements have the same names share a few server connections:
// none of them meets another's, nothing ends, and each says once what would spare the look.
func TestProcess_NothingEndsBecauseAPoolerLosesPreparedStatements(t *testing.T) {
	t.Parallel()
	d := deliverable(t, dbtest.New(t), 300)
	pooler := dbtest.StartPgBouncer(t, d.db.DSN, map[string]string{"default_pool_size": "4"})
	environ := d.environ("BELFRY_DATABASE_URL="+pooler.DSN(d.db.Name), "BELFRY_RUNNER_LOAD_HEALTH_ENABLED=true", "BELFRY_RUNNER_POLL_INTERVAL=50ms")
	processes := map[string]*process{
		"daemon":  start(t, environ, "daemon"),
		"another": start(t, environ, "daemon", "--no-deliver"),
		"relay":   start(t, environ, "relay"),
	}
	for range 2 {
		r := command(t, environ, "enqueue", "--type", "inbox,push", "--category", "operator_notice", "--title", "Hello", "--everyone")
		require.Equal(t, codeDone, r.code, r.stderr)
		require.NotContains(t, r.stderr, withoutPrepared, "a command of a moment says nothing about it")
		r = command(t, environ, "run", "--deliver", "--quiet")
		require.Contains(t, []code{codeDone, codeHeld}, r.code, r.stderr)
		requireSaidOnce(t, "run", r.stderr)
		r = command(t, environ, "jobs", "list", "--json")
		require.Equal(t, codeDone, r.code, r.stderr)
		require.Empty(t, r.stderr)
	}
	waitUntil(t, d.db.Pool, "SELECT count(*) = 5 AND bool_and(status = 'PROCESSED') FROM belfry.jobs")
	waitUntil(t, d.db.Pool, "SELECT count(*) = 0 FROM "+left)
	require.Equal(t, map[string]int64{"SENT": 3 * 300}, d.statuses())
	require.EqualValues(t, 2*300, count(t, d.db, "belfry.notifications"))
	for name, p := range processes {
		p.terminate(t)
		require.Equal(t, codeDone, p.exit(t), "%s: %s", name, p.stderr.String())
		requireSaidOnce(t, name, p.stderr.String())
	}
}

// A pooler that comes to lose prepared statements while belfry runs costs a try and ends
// nothing.
func TestProcess_APoolerMayChangeItsModeWhileBelfryRuns(t *testing.T) {
	t.Parallel()
	d := deliverable(t, dbtest.New(t), 300)
	settings := map[string]string{"pool_mode": "session", "default_pool_size": "40"}
	pooler := dbtest.StartPgBouncer(t, d.db.DSN, settings)
	environ := d.environ("BELFRY_DATABASE_URL="+pooler.DSN(d.db.Name), "BELFRY_RUNNER_POLL_INTERVAL=50ms")
	daemon := start(t, environ, "daemon")
	waitUntil(t, d.db.Pool, "SELECT count(*) = 0 FROM "+left)
	require.NotContains(t, daemon.stderr.String(), "they are not used any more")

	require.NoError(t, pooler.Stop())
	pooler.Configure(t, map[string]string{"pool_mode": "transaction", "default_pool_size": "3"})
	require.NoError(t, pooler.Start(t.Context()))
	r := command(t, environ, "enqueue", "--type", "inbox,push", "--category", "operator_notice", "--title", "Hello", "--everyone")
	require.Equal(t, codeDone, r.code, r.stderr)
	waitUntil(t, d.db.Pool, "SELECT count(*) = 3 AND bool_and(status = 'PROCESSED') FROM belfry.jobs")
	waitUntil(t, d.db.Pool, "SELECT count(*) = 0 FROM "+left)
	require.Equal(t, map[string]int64{"SENT": 2 * 300}, d.statuses())
	require.EqualValues(t, 300, count(t, d.db, "belfry.notifications"))
	require.Zero(t, count(t, d.db, "belfry.job_skips"))
	daemon.terminate(t)
	require.Equal(t, codeDone, daemon.exit(t), daemon.stderr.String())
	require.Equal(t, 1, strings.Count(daemon.stderr.String(), "they are not used any more"), daemon.stderr.String())
}

// The doctor tries prepared statements where a pooler stands, and says what it found.
func TestLong_DoctorTriesPreparedStatementsBehindAPooler(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	transaction := dbtest.StartPgBouncer(t, db.DSN, nil).DSN(db.Name)
	session := dbtest.StartPgBouncer(t, db.DSN, map[string]string{"pool_mode": "session"}).DSN(db.Name)
	full := dbtest.StartPgBouncer(t, db.DSN, map[string]string{"pool_mode": "session", "default_pool_size": "1"}).DSN(db.Name)
	const (
		loses   = "warning  statements     the pooler loses prepared statements, in a trial over several transactions on two connections; belfry detects this at each start and does not use them\n"
		remedy  = "-> add default_query_exec_mode=cache_describe to the database's URL, or have the pooler carry prepared statements (PgBouncer 1.21 and later: max_prepared_statements)\n"
		without = "ok       statements     prepared statements are not used (default_query_exec_mode)\n"
	)
	for _, c := range []struct {
		dsn  string
		says []string
	}{
		{transaction, []string{loses, remedy}},
		{transaction + "&default_query_exec_mode=describe_exec", []string{loses, remedy}},
		{transaction + "&default_query_exec_mode=cache_describe", []string{without}},
		{transaction + "&default_query_exec_mode=exec", []string{without}},
		{session, []string{"ok       statements     the pooler keeps prepared statements, in a trial over several transactions on two connections\n"}},
		{full, []string{"warning  statements     the check for prepared statements failed, and belfry does not use them: detect a pooler: ", remedy}},
	} {
		r := command(t, []string{"BELFRY_DATABASE_URL=" + c.dsn}, "doctor")
		require.Equal(t, codeDone, r.code, r.stdout)
		for _, text := range c.says {
			require.Contains(t, r.stdout, text)
		}
	}
	r := command(t, []string{"BELFRY_DATABASE_URL=" + db.DSN}, "doctor")
	require.NotContains(t, r.stdout, " statements ", "nobody stands in between")
}

// Migrations prepare nothing under a name, so a pooler has nothing to lose. Jobs run all the
// same, and the process says once what would spare it the look.
func TestLong_PoolerMigrationsAndJobsGoThroughOneThatLosesPreparedStatements(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	pooler := dbtest.StartPgBouncer(t, db.DSN, map[string]string{"default_pool_size": "3"})
	try := func(args ...string) result {
		t.Helper()
		r := command(t, []string{"BELFRY_DATABASE_URL=" + pooler.DSN(db.Name), regardless}, args...)
		require.Equal(t, codeDone, r.code, r.stderr)
		return r
	}
	for range 3 {
		try("migrate", "up")
		try("migrate", "status")
	}
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (external_id, platform) VALUES ('u1', 'ios')`)
	require.NoError(t, err)
	r := try("enqueue", "--type", "inbox,push", "--category", "operator_notice", "--title", "Hello", "--everyone")
	require.NotContains(t, r.stderr, withoutPrepared, "a command of a moment says nothing about it")
	requireSaidOnce(t, "run", try("run", "--quiet").stderr)
	require.EqualValues(t, 2, count(t, db, "belfry.jobs WHERE status = 'PROCESSED'"))
}
