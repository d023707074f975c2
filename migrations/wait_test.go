package migrations_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/migrations"
)

// foreground is a session that executes a statement again and again. PostgreSQL cancels a statement that waits for a
// lock for a second.
type foreground struct {
	waits atomic.Int64 // statements that took longer than 0.2 s
	most  atomic.Int64 // the longest, in nanoseconds
	ended atomic.Bool  // a statement failed
	end   func() error
}

// runForeground starts a foreground. end ends it and returns the error of a statement.
func runForeground(t *testing.T, pool *pgxpool.Pool, statement string, args func(n int) []any) *foreground {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	require.NoError(t, err)
	_, err = conn.Exec(ctx, `SET lock_timeout = '1s'`)
	require.NoError(t, err)
	f, ended := new(foreground), make(chan error, 1)
	go func() {
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for n := 0; ; n++ {
			began := time.Now()
			if _, err := conn.Exec(ctx, statement, args(n)...); err != nil {
				f.ended.Store(true)
				if ctx.Err() != nil {
					err = nil
				}
				ended <- errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
				return
			}
			took := time.Since(began)
			f.most.Store(max(f.most.Load(), int64(took)))
			if took > 200*time.Millisecond {
				f.waits.Add(1)
			}
			<-pace.C
		}
	}()
	f.end = func() error {
		cancel()
		return <-ended
	}
	return f
}

// hold opens a transaction that executes a statement, and returns its end.
func hold(t *testing.T, db *dbtest.DB, statement string) (end func()) {
	t.Helper()
	tx, err := db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), statement)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }
}

func none(int) []any { return nil }

// A migration waits for a long reader of a table in short attempts, so that no other statement waits for the table
// for a second. It ends when the reader has ended.
func TestMigrations_ForegroundDoesNotWaitBehindAMigration(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	c := with(t, migrations.Latest(), map[string][2]string{"0901_note": expanding["0901_note"]})
	release := hold(t, db, `SELECT count(*) FROM belfry.jobs`)
	f := runForeground(t, db.Pool, `SELECT count(*) FROM belfry.jobs`, none)
	migrated := make(chan error, 1)
	go func() {
		_, err := c.Up(t.Context(), db.DSN)
		migrated <- err
	}()
	require.Eventually(t, func() bool { return f.waits.Load() >= 2 || f.ended.Load() }, time.Minute, 10*time.Millisecond, "the migration does not wait")
	release()
	require.NoError(t, <-migrated)
	require.NoError(t, f.end(), "a statement waited for a second")
	_, err := db.Pool.Exec(t.Context(), `SELECT note FROM belfry.jobs`)
	require.NoError(t, err)
	t.Logf("the longest statement took %s", time.Duration(f.most.Load()).Round(time.Millisecond))
}

// A migration that locks several tables waits for all of them as long as another one for its only table.
func TestLong_SeveralLocksShareOneAttempt(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	tables := []string{"belfry.jobs", "belfry.lanes", "belfry.samples", "belfry.attempts", "belfry.events"}
	up := ""
	for _, table := range tables {
		up = "-- Locks: " + table + " ACCESS EXCLUSIVE (instant)\n" + up + "ALTER TABLE " + table + " ADD COLUMN note text;\n"
	}
	c := with(t, migrations.Latest(), map[string][2]string{"0901_notes": {up, "-- Nothing.\n"}})
	f := runForeground(t, db.Pool, `SELECT count(*) FROM belfry.jobs`, none)
	var ends []func()
	for _, table := range tables[1:] {
		ends = append(ends, hold(t, db, `SELECT count(*) FROM `+table))
	}
	migrated := make(chan error, 1)
	go func() {
		_, err := c.Up(t.Context(), db.DSN)
		migrated <- err
	}()
	// Each reader ends while the migration waits for its table.
	for i, end := range ends {
		waiting := `SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' AND relation = to_regclass('` + tables[i+1] + `')`
		require.Eventually(t, func() bool {
			var yes bool
			require.NoError(t, db.Pool.QueryRow(t.Context(), waiting).Scan(&yes))
			return yes
		}, time.Minute, time.Millisecond, "the migration does not wait")
		wait := time.NewTimer(400 * time.Millisecond)
		<-wait.C
		end()
	}
	require.NoError(t, <-migrated)
	require.NoError(t, f.end(), "a statement waited for a second")
}

// A session that locks the bookkeeping table is waited for as long as one that locks a table of a migration.
func TestMigrations_WaitForTheBookkeepingTable(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	defer hold(t, db, "LOCK TABLE belfry.schema_migrations IN ACCESS EXCLUSIVE MODE")()
	c := migrations.DefaultConfig()
	c.LockTimeout = 300 * time.Millisecond
	for _, migrate := range []func() error{
		func() error { _, err := c.Up(t.Context(), db.DSN); return err },
		func() error { _, err := c.List(t.Context(), db.DSN); return err },
	} {
		var held *migrations.HeldError
		require.ErrorAs(t, migrate(), &held)
	}
}

// An index is built while other sessions write. An interrupted build is repeated.
func TestMigrations_ConcurrentIndexIsRepeatable(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	c := with(t, migrations.Latest(), map[string][2]string{"0902_index": expanding["0902_index"]})
	const insert = `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES (1, $1, now())`
	release := hold(t, db, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES (2, 1, now())`)
	f := runForeground(t, db.Pool, insert, func(n int) []any { return []any{n} })
	invalid := func(want bool) {
		require.Eventually(t, func() bool {
			var is bool
			require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_index WHERE indexrelid = to_regclass('belfry.test_idx') AND NOT indisvalid`).Scan(&is))
			return is == want
		}, time.Minute, 10*time.Millisecond)
	}
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		migrated := make(chan error, 1)
		go func() {
			_, err := c.Up(ctx, db.DSN)
			migrated <- err
		}()
		invalid(true) // it waits for the writer
		cancel()
		require.Error(t, <-migrated)
		invalid(true)
	}
	release()
	applied, err := c.Up(t.Context(), db.DSN)
	require.NoError(t, err)
	require.Equal(t, []int64{902}, applied)
	invalid(false)
	_, err = db.Pool.Exec(t.Context(), `SELECT 'belfry.test_idx'::regclass`)
	require.NoError(t, err)
	require.NoError(t, f.end(), "a statement waited for a second")
}

// PostgreSQL cancels an autovacuum that holds the table, for a superuser and for a role that may not change
// deadlock_timeout.
func TestLong_MigrationsCancelAutovacuum(t *testing.T) { //nolint:tparallel // the databases share a server
	t.Parallel()
	server := dbtest.NewServer(t, true)
	for name, statements := range map[string][]string{
		"superuser": {`SELECT 'superuser'`},
		"owner":     {`GRANT CREATE ON DATABASE "DATABASE" TO :role`},
	} {
		t.Run(name, func(t *testing.T) {
			db := dbtest.NewOn(t, server)
			dsn := db.DSN
			if name == "owner" {
				_, err := migrations.Down(t.Context(), db.DSN, 0)
				require.NoError(t, err)
				_, err = db.Pool.Exec(t.Context(), `DROP SCHEMA belfry CASCADE`)
				require.NoError(t, err)
				for i := range statements {
					statements[i] = strings.ReplaceAll(statements[i], "DATABASE\"", db.Name+`"`)
				}
				dsn = db.Role(t, statements...).DSN
				_, err = migrations.Up(t.Context(), dsn)
				require.NoError(t, err)
			}
			for _, statement := range []string{
				`ALTER SYSTEM SET autovacuum_naptime = '1s'`, `SELECT pg_reload_conf()`,
				`ALTER TABLE belfry.samples SET (autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1)`,
				`SET session_replication_role = replica; INSERT INTO belfry.samples (kind, name, at) SELECT 'lane', '*', date_trunc('minute', now()) - n * interval '1 minute' FROM generate_series(1, 100000) n; DELETE FROM belfry.samples WHERE extract(minute FROM at)::int % 2 = 0`,
			} {
				_, err := db.Pool.Exec(t.Context(), statement)
				require.NoError(t, err, statement)
			}
			vacuums := func() (n int) {
				require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
					WHERE a.backend_type = 'autovacuum worker' AND l.relation = 'belfry.samples'::regclass AND l.mode = 'ShareUpdateExclusiveLock' AND l.granted`).Scan(&n))
				return n
			}
			require.Eventually(t, func() bool { return vacuums() > 0 }, time.Minute, 20*time.Millisecond, "no autovacuum")
			_, err := with(t, migrations.Latest(), map[string][2]string{
				"0901_note": {"-- Locks: belfry.samples ACCESS EXCLUSIVE (instant)\nALTER TABLE belfry.samples ADD COLUMN note text;\n", "-- Nothing.\n"},
			}).Up(t.Context(), dsn)
			require.NoError(t, err)
		})
	}
}

// firstRelease is the newest migration of the first release. Later ones run on tables with rows.
const firstRelease = 7

// Each migration after the first release, and one of each kind, runs on large tables while sessions read and write
// them, and no statement waits for a lock for a second. BELFRY_TEST_ROWS is the number of rows, by default a million.
func TestLong_MigrationsBesideAForeground(t *testing.T) {
	t.Parallel()
	rows := 1_000_000
	if text := os.Getenv("BELFRY_TEST_ROWS"); text != "" {
		var err error
		rows, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	db := dbtest.NewEmpty(t)
	_, err := with(t, firstRelease, nil).Up(t.Context(), db.DSN)
	require.NoError(t, err)
	began := time.Now()
	for _, statement := range []string{
		`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, sent_at, sender)
			SELECT 1 + n / 1000, n % 1000, now(), 'SENT', now(), 'fcm' FROM generate_series(0, $1::int - 1) n`,
		`INSERT INTO belfry.jobs (id, type, category, title, route, lane, schedule_at, created_at)
			SELECT 1000000000 + n, 'push', 'operator_notice', 'Job ' || n, '{push}', 'lane-' || n % 10, now(), now() FROM generate_series(1, $1::int / 10) n`,
	} {
		tx, err := db.Pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica`) // without triggers
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), statement, rows)
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
	}
	_, err = db.Pool.Exec(t.Context(), `ANALYZE belfry.message_rows, belfry.jobs`)
	require.NoError(t, err)
	t.Logf("%d messages and %d jobs in %s", rows, rows/10, time.Since(began).Round(time.Millisecond))

	c := with(t, migrations.Latest(), map[string][2]string{
		"0901_note": expanding["0901_note"], "0902_index": expanding["0902_index"], "0903_table": expanding["0903_table"],
		"0904_check": expanding["0904_check"], "0905_valid": expanding["0905_valid"],
		"0906_column": {"-- Locks: belfry.message_rows ACCESS EXCLUSIVE (instant)\nALTER TABLE belfry.message_rows ADD COLUMN note text;\n", "-- Nothing.\n"},
		"0907_jobs":   {"-- Locks: belfry.jobs SHARE UPDATE EXCLUSIVE (scan)\nCREATE INDEX CONCURRENTLY test_jobs_idx ON belfry.jobs (title);\n", "-- Nothing.\n"},
	})
	plan, err := c.Plan(t.Context(), db.DSN)
	require.NoError(t, err)
	for _, p := range plan {
		t.Logf("%d %s: %s %s, %s, %s", p.Version, p.Title, p.Table, p.Lock, p.Effort(), p.Expected())
		if p.Work != migrations.Instant && p.Work != "" {
			require.Equal(t, "vacuum and migrations", p.Blocks, "version %d blocks statements for the size of a table", p.Version)
		}
	}
	key := func(n int) []any { return []any{1 + (n*7919)%(rows/1000), n % 1000} }
	sessions := []*foreground{
		runForeground(t, db.Pool, `UPDATE belfry.message_rows SET sender = 'text' WHERE job_id = $1 AND channel_id = $2 AND sender <> 'text'`, key),
		runForeground(t, db.Pool, `SELECT status FROM belfry.messages WHERE job_id = $1 AND channel_id = $2`, key),
		runForeground(t, db.Pool, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES (2000000000, $1, now())`, func(n int) []any { return []any{n} }),
		runForeground(t, db.Pool, `SELECT belfry.enqueue('push', 'operator_notice', 'Hello')`, none),
	}
	began = time.Now()
	_, err = c.Up(t.Context(), db.DSN)
	require.NoError(t, err)
	t.Logf("migrated in %s", time.Since(began).Round(time.Millisecond))
	for _, f := range sessions {
		t.Logf("the longest statement took %s", time.Duration(f.most.Load()).Round(time.Millisecond))
		require.NoError(t, f.end(), "a statement waited for a second")
	}
}
