package db_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
)

// mine is a statement that pgx prepares and executes by its name.
const mine = `SELECT 'mine' || left($1::text, 0)`

// replace has a function replace the session's prepared statements, and take a lock.
const replace = `DO $do$ DECLARE r record;
BEGIN
	PERFORM pg_advisory_lock(7);
	FOR r IN SELECT name FROM pg_prepared_statements LOOP
		EXECUTE format('DEALLOCATE %I', r.name);
		EXECUTE format('PREPARE %I (text) AS SELECT ''theirs'' || left($1, 0)', r.name);
	END LOOP;
	PREPARE theirs AS SELECT 1;
END $do$`

// single returns a pool of one connection.
func single(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, _ := open(t, dsn, 1)
	return pool
}

func query[T any](t *testing.T, on interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, sql string, args ...any,
) (v T) {
	t.Helper()
	require.NoError(t, on.QueryRow(t.Context(), sql, args...).Scan(&v))
	return v
}

var errFault = errors.New("fault")

// A function that an operator's statement calls cannot replace what the transaction executes after it, nor what the
// next one does.
func TestForeign_LeavesNoPreparedStatement(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	for name, fails := range map[string]error{"succeeds": nil, "fails": errFault} {
		pool := single(t, base.DSN)
		require.Equal(t, "mine", query[string](t, pool, mine, "x"))
		pid := query[int](t, pool, `SELECT pg_backend_pid()`)
		require.NoError(t, db.InTx(t.Context(), pool, db.Options{Limit: time.Minute}, func(ctx context.Context, tx pgx.Tx) error {
			require.Equal(t, pid, query[int](t, tx, `SELECT pg_backend_pid()`), "the connection that has prepared it")
			err := db.Foreign(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, replace)
				require.NoError(t, err)
				_, err = tx.Exec(ctx, `CREATE TEMP TABLE kept ()`)
				require.NoError(t, err)
				return fails
			})
			require.ErrorIs(t, err, fails)
			require.Equal(t, "mine", query[string](t, tx, mine, "x"), name)
			require.Zero(t, query[int](t, tx, `SELECT count(*) FROM pg_prepared_statements WHERE name = 'theirs'`), name)
			require.Zero(t, query[int](t, tx, `SELECT count(*) FROM pg_class WHERE relname = 'kept'`), name)
			return nil
		}))
		require.Equal(t, "mine", query[string](t, pool, mine, "x"), name)
	}
}

// A function can go on after a cancellation. Its server process is ended, with the locks of the transaction.
func TestForeign_EndsAProcessThatGoesOn(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	pool := single(t, base.DSN)
	query[string](t, pool, `SELECT set_config('application_name', 'goes on', false)`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := db.InTx(ctx, pool, db.Options{Limit: time.Minute}, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(8)`)
		require.NoError(t, err)
		return db.Foreign(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `DO $$ BEGIN LOOP BEGIN LOOP BEGIN LOOP BEGIN LOOP PERFORM pg_sleep(100); END LOOP;
				EXCEPTION WHEN query_canceled THEN END; END LOOP;
				EXCEPTION WHEN query_canceled THEN END; END LOOP;
				EXCEPTION WHEN query_canceled THEN END; END LOOP; END $$`)
			return err
		})
	})
	require.Error(t, err)
	require.Eventually(t, func() bool {
		return query[int](t, pool, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'goes on' AND pid <> pg_backend_pid()`) == 0
	}, 20*time.Second, 10*time.Millisecond)
	require.True(t, query[bool](t, pool, `SELECT pg_try_advisory_lock(8)`))
}

// What else a session can remember ends with the connection, whatever the outcome is. Other connections stay.
func TestForeign_EndsTheConnection(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	pool := single(t, base.DSN)
	for name, do := range map[string]func(context.Context, context.CancelFunc, pgx.Tx) error{
		"commit":   func(context.Context, context.CancelFunc, pgx.Tx) error { return nil },
		"rollback": func(context.Context, context.CancelFunc, pgx.Tx) error { return errFault },
		"an error of the server": func(ctx context.Context, _ context.CancelFunc, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT 1/0`)
			return err
		},
		"the end of the context": func(_ context.Context, cancel context.CancelFunc, _ pgx.Tx) error { cancel(); return nil },
		"rows that are not read": func(ctx context.Context, _ context.CancelFunc, tx pgx.Tx) error {
			_, err := tx.Query(ctx, `SELECT 1`) //nolint:rowserrcheck,sqlclosecheck // that is the fault
			return err
		},
		"a panic": func(context.Context, context.CancelFunc, pgx.Tx) error { panic("fault") },
	} {
		pid := query[int](t, pool, `SELECT pg_backend_pid()`)
		run := func(foreign bool, do func(context.Context, context.CancelFunc, pgx.Tx) error) (err error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			defer func() {
				if recover() != nil {
					err = errFault
				}
			}()
			return db.InTx(ctx, pool, db.Options{Limit: time.Minute}, func(ctx context.Context, tx pgx.Tx) error {
				if !foreign {
					return do(ctx, cancel, tx)
				}
				return db.Foreign(ctx, tx, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, replace)
					require.NoError(t, err)
					return do(ctx, cancel, tx)
				})
			})
		}
		if name == "commit" || name == "rollback" {
			_ = run(false, do)
			require.Equal(t, pid, query[int](t, pool, `SELECT pg_backend_pid()`), name)
		}
		_ = run(true, do)
		require.NotEqual(t, pid, query[int](t, pool, `SELECT pg_backend_pid()`), name)
		require.Equal(t, "mine", query[string](t, pool, mine, "x"), name)
		require.Eventually(t, func() bool {
			return query[int](t, pool, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database =
				(SELECT oid FROM pg_database WHERE datname = current_database())`) == 0
		}, time.Minute, 5*time.Millisecond, name)
	}
}

// A transaction does not continue on a connection that could not be cleaned up.
func TestForeign_ClosesAConnectionThatItCannotCleanUp(t *testing.T) {
	t.Parallel()
	pool := single(t, dbtest.New(t).DSN)
	err := db.InTx(t.Context(), pool, db.Options{Limit: time.Minute}, func(ctx context.Context, tx pgx.Tx) error {
		require.Equal(t, "mine", query[string](t, tx, mine, "x"))
		ends, cancel := context.WithCancel(ctx)
		err := db.Foreign(ends, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, replace)
			cancel()
			return err
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Error(t, tx.QueryRow(ctx, mine, "x").Scan(new(string)))
		require.True(t, tx.Conn().IsClosed())
		return nil
	})
	require.Error(t, err)
	require.Equal(t, "mine", query[string](t, pool, mine, "x"))
}

// A pooler keeps the server's connection, and gives it to the next client.
func TestForeign_LeavesNothingInThePoolersConnection(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	pooler := dbtest.StartPgBouncer(t, base.DSN, map[string]string{"default_pool_size": "1"})
	pool := single(t, pooler.DSN(base.Name))
	pid := query[int](t, pool, `SELECT pg_backend_pid()`)
	for _, fails := range []error{nil, errFault} {
		err := db.InTx(t.Context(), pool, db.Options{Limit: time.Minute}, func(ctx context.Context, tx pgx.Tx) error {
			return db.Foreign(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, replace)
				require.NoError(t, err)
				return fails
			})
		})
		require.ErrorIs(t, err, fails)
		require.Equal(t, pid, query[int](t, pool, `SELECT pg_backend_pid()`), "the same session")
		require.Zero(t, query[int](t, pool, `SELECT count(*) FROM pg_prepared_statements`))
		require.Zero(t, query[int](t, pool, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`))
	}
}
