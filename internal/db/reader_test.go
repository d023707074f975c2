package db_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
)

// What is read goes through one connection, which each statement gives back, however it ended, and
// nothing is written.
func TestReader_ReadsAndGivesBack(t *testing.T) {
	t.Parallel()
	c := dbtest.New(t).Pool.Config()
	c.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a connection that is kept is waited for
	defer cancel()
	r := db.NewReader(pool, time.Hour)

	for range 3 {
		rows, err := r.Query(ctx, "SELECT generate_series(1, 3)")
		require.NoError(t, err)
		list, err := pgx.CollectRows(rows, pgx.RowTo[int])
		require.NoError(t, err)
		require.Equal(t, []int{1, 2, 3}, list)
		rows, err = r.Query(ctx, "SELECT generate_series(1, 3)")
		require.NoError(t, err)
		require.True(t, rows.Next())
		rows.Close()
		rows.Close()
		var one int
		require.NoError(t, r.QueryRow(ctx, "SELECT @one::int", pgx.StrictNamedArgs{"one": 1}).Scan(&one))
		require.Equal(t, 1, one)
		require.ErrorIs(t, r.QueryRow(ctx, "SELECT 1 WHERE false").Scan(&one), pgx.ErrNoRows)
		require.ErrorContains(t, r.QueryRow(ctx, "SELECT 1 / 0").Scan(&one), "division by zero")
		require.ErrorContains(t, r.QueryRow(ctx, "SELECT FROM nowhere").Scan(&one), "nowhere")
		require.ErrorContains(t, r.QueryRow(ctx, "SELECT 'x'::text").Scan(&one), "cannot scan")
		require.Equal(t, "25006", db.Code(r.QueryRow(ctx, "CREATE TABLE t ()").Scan(&one)), "read only")
	}
	var limit string
	require.NoError(t, r.QueryRow(ctx, "SELECT current_setting('statement_timeout')").Scan(&limit))
	require.Regexp(t, `^[1-5]\d(\d{3}m)?s$`, limit, "what the context leaves")
	require.NoError(t, r.QueryRow(t.Context(), "SELECT current_setting('statement_timeout')").Scan(&limit))
	require.Equal(t, "1h", limit)
	require.NoError(t, pool.QueryRow(ctx, "SELECT current_setting('statement_timeout')").Scan(&limit))
	require.Equal(t, "0", limit, "the session is as it was")
}

// A statement that takes longer than it may is ended by the server.
func TestReader_IsEndedByTheServer(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t).Pool
	r := db.NewReader(pool, 100*time.Millisecond)
	rows, err := r.Query(t.Context(), "SELECT pg_sleep(600)")
	if err == nil {
		_, err = pgx.CollectRows(rows, pgx.RowTo[any])
	}
	require.Error(t, err)
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	require.Equal(t, time.Millisecond, db.Left(over, time.Hour), "0 would be without end")
	require.Error(t, r.QueryRow(over, "SELECT 1").Scan(new(int)))
}
