package governor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
)

// everything are health checks that look at all there is.
func everything() HealthConfig { return DefaultConfig().Health }

// probed1 is probe, again where a busy machine took longer than a probe may.
func probed1(t *testing.T, pool *pgxpool.Pool, h HealthConfig) Vitals {
	t.Helper()
	for began := time.Now(); ; {
		v, err := Probe(t.Context(), pool, h)
		if err == nil {
			return v
		}
		require.Less(t, time.Since(began), time.Minute, err)
	}
}

// tooSlow tells what a busy machine makes of a query.
func tooSlow(err error) bool {
	class := db.ClassOf(err)
	return class == db.TooSlow || class == db.NoAnswer
}

// until1 probes until what it finds is so.
func until1(t *testing.T, pool *pgxpool.Pool, h HealthConfig, so func(Vitals) bool) Vitals {
	t.Helper()
	for began := time.Now(); ; {
		v := probed1(t, pool, h)
		if so(v) {
			return v
		}
		require.Less(t, time.Since(began), time.Minute, "%+v", v)
	}
}

// busy runs a statement on a connection of its own until the test ends.
func busy(t *testing.T, db *dbtest.DB, application, sql string) {
	t.Helper()
	config, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	config.RuntimeParams["application_name"] = application
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = conn.Exec(ctx, sql) // ends with an error: cancelled
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = conn.Close(context.WithoutCancel(ctx)) // broken by the cancelling
	})
	require.Eventually(t, func() bool {
		var active bool
		err := db.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND query = $2)`,
			conn.PgConn().PID(), sql).Scan(&active)
		return err == nil && active
	}, time.Minute, 5*time.Millisecond)
}

// The probe reads what is enabled and nothing else. Other tests share the server, so
// counts are at least what this one causes.
func TestProbe_ReadsWhatIsEnabled(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	require.Equal(t, Vitals{}, probed1(t, db.Pool, HealthConfig{Enabled: true}))

	busy(t, db, "somebody", `SELECT pg_sleep(600)`)
	v := probed1(t, db.Pool, everything())
	require.GreaterOrEqual(t, *v.RecentBackends, 1)
	require.Positive(t, *v.Transactions)
	require.Zero(t, *v.ReplicaLag, "no standby, no lag")
	require.NotNil(t, v.Checkpoints)
	require.Positive(t, *v.WALBytes)
	require.Empty(t, v.Hidden)
	require.Nil(t, v.Query)
	require.NoError(t, v.QueryError)
}

// belfry's own connections are not others at work.
func TestProbe_DoesNotCountItsOwn(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	own := func(sql string) (n int) {
		require.NoError(t, db.Pool.QueryRow(t.Context(), sql).Scan(&n))
		return n
	}
	busy(t, db, "belfry job 7 fence 3", `SELECT pg_sleep(600)`)
	until1(t, db.Pool, everything(), func(v Vitals) bool { // other tests come and go
		return *v.RecentBackends <= own(`SELECT count(*) FROM pg_stat_activity WHERE (state = 'active' OR state_change > clock_timestamp() - interval '1 second') AND backend_type = 'client backend' AND application_name NOT LIKE 'belfry%' AND pid <> pg_backend_pid()`)
	})
}

// A CHECKPOINT that somebody asks for is counted, on every supported version.
func TestProbe_CountsRequestedCheckpoints(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	before := *probed1(t, db.Pool, everything()).Checkpoints
	_, err := db.Pool.Exec(t.Context(), `CHECKPOINT`)
	require.NoError(t, err)
	until1(t, db.Pool, everything(), func(v Vitals) bool { return *v.Checkpoints > before })
	require.Contains(t, probeStatement(16), `SELECT "checkpoints_req" FROM "pg_stat_bgwriter"`)
	require.Contains(t, probeStatement(17), `SELECT "num_requested" FROM "pg_stat_checkpointer"`)
}

// Without pg_monitor other roles' backends show nothing; transactions are counted all the same.
func TestProbe_WithoutPermissionCountsTransactions(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	busy(t, db, "somebody", `SELECT pg_sleep(600)`)
	runs := db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT ON belfry.relays TO :role`)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.relays (name, transactions, heartbeat_at) VALUES ('a', 40, now() + interval '50 seconds'), ('b', 2, now() + interval '50 seconds')`)
	require.NoError(t, err)
	v := probed1(t, runs.Pool, everything())
	require.EqualValues(t, 42, v.OfRelays)
	require.Zero(t, *v.RecentBackends)
	require.Empty(t, v.Hidden, "there is no standby")
	require.Positive(t, *v.Transactions, "everybody may see these")

	_, err = db.Pool.Exec(t.Context(), `INSERT INTO belfry.relays (name, transactions) SELECT g, 1000000000000000 FROM generate_series(1, 1500) g`)
	require.NoError(t, err)
	require.Equal(t, int64(1_000_000_000_000_000_000), probed1(t, runs.Pool, everything()).OfRelays, "the sum is more than a bigint holds")
}

// The user's query returns one number, of any type; whatever else it does is the
// check's error and not the probe's.
func TestProbe_Query(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ask := func(sql string) Vitals {
		return until1(t, db.Pool, HealthConfig{Enabled: true, Query: sql}, func(v Vitals) bool {
			return !tooSlow(v.QueryError)
		})
	}
	for sql, want := range map[string]float64{
		`SELECT 7::smallint`: 7, `SELECT -7`: -7, `SELECT count(*) FROM pg_class WHERE false`: 0,
		`SELECT 0.25::real`: 0.25, `SELECT 1.5::float8`: 1.5, `SELECT 12345.678`: 12345.678, `SELECT 1;`: 1,
	} {
		v := ask(sql)
		require.NoError(t, v.QueryError, sql)
		require.InDelta(t, want, *v.Query, 1e-9, sql)
	}
	for sql, want := range map[string]string{
		`SELECT 1 WHERE false`: "not none", `SELECT NULL::int`: "not NULL", `SELECT 'x'`: "not a string", `SELECT 1, 2`: "not 2 columns",
		`SELECT generate_series(1, 2)`: "not several rows", `SELECT 'NaN'::numeric`: "not NaN", `SELECT nothing`: "42703",
		`DELETE FROM belfry.jobs`: "25006",
	} {
		v := ask(sql)
		require.ErrorContains(t, v.QueryError, want, sql)
		require.ErrorContains(t, v.QueryError, "health query", sql)
		require.Nil(t, v.Query, sql)
	}
}

// A query that takes too long ends, and does not hold up the walk.
func TestProbe_QueryIsBounded(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	began := time.Now()
	var pg *pgconn.PgError // not the caller's deadline, which comes a second later
	until1(t, db.Pool, HealthConfig{Enabled: true, Query: `SELECT 1 FROM pg_sleep(600)`}, func(v Vitals) bool { return errors.As(v.QueryError, &pg) })
	require.Equal(t, "57014", pg.Code)
	require.Less(t, time.Since(began), time.Minute)
}

// The functions that the user's query reaches leave nothing in a session of the run.
func TestProbe_LeavesNothingOfTheQuery(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	c := base.Pool.Config()
	c.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	const mine = `SELECT 1 + 0 * $1::integer`
	count := func(sql string, args ...any) (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), sql, args...).Scan(&n))
		return n
	}
	_, err = base.Pool.Exec(t.Context(), `CREATE FUNCTION public.replace() RETURNS integer LANGUAGE plpgsql AS $$
	DECLARE r record; n integer := 0;
	BEGIN
		FOR r IN SELECT name FROM pg_prepared_statements WHERE statement LIKE 'SELECT 1 + 0 *%' LOOP
			EXECUTE format('DEALLOCATE %I', r.name);
			EXECUTE format('PREPARE %I (integer) AS SELECT 666 + 0 * $1', r.name);
			n := n + 1;
		END LOOP;
		PERFORM pg_advisory_lock(7);
		RETURN n;
	END $$`)
	require.NoError(t, err)
	for range 2 {
		require.Equal(t, 1, count(mine, 1))
		v := probed1(t, pool, HealthConfig{Enabled: true, Query: "SELECT public.replace()", QueryMax: 1})
		require.NoError(t, v.QueryError)
		require.InDelta(t, 1, *v.Query, 0, "it was replaced")
		require.Equal(t, 1, count(mine, 1))
	}
}
