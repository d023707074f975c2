package jobs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// An act or a read that waits for another session's lock of a table names the session, to those who may end it.
func TestLocks_AreNamed(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	tx, err := d.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.jobs`)
	require.NoError(t, err)
	by := fmt.Sprintf("belfry.jobs by session %d of ", tx.Conn().PgConn().PID())
	for _, command := range []string{"status", "lanes pause"} {
		began := time.Now()
		err := d.Run(command, map[string][]string{"lanes pause": {"lane", "default"}}[command]...)
		require.ErrorContains(t, err, by, command)
		require.ErrorContains(t, err, "SELECT pg_terminate_backend(number) ends a session", command)
		require.Less(t, time.Since(began), 15*time.Second, command)
	}
	d.Env.Role = operation.Viewer
	err = d.Run("jobs list")
	require.ErrorIs(t, err, job.ErrLocked)
	require.NotContains(t, err.Error(), by)
}

// A list that could not be read is not shown as an empty one.
func TestLocks_AnErrorIsNoEmptyList(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Enqueue("push")
	d.Enqueue("push")
	tx, err := d.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.job_deliveries, belfry.message_rows`)
	require.NoError(t, err)
	for _, command := range []string{"jobs list", "dead-letters errors", "dead-letters list"} {
		require.Error(t, d.Run(command, map[string][]string{"jobs list": {"limit", "1"}}[command]...), command)
		require.Empty(t, d.Out+d.Notes+d.JSON, command)
	}
}

// A lock of a row is named by the sessions whose transactions are open.
func TestLocks_OfRowsAreNamed(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	tx, err := d.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.lanes, pg_sleep(1.1) FOR UPDATE OF lanes`)
	require.NoError(t, err)
	d.Exec(`INSERT INTO belfry.lanes (name) VALUES ('night')`)
	err = db.NameHolders(t.Context(), d.DB.Pool, &pgconn.PgError{Code: "55P03", Message: "canceling statement due to lock timeout"})
	require.ErrorContains(t, err, fmt.Sprintf("open transactions hold rows of belfry.lanes by session %d of ", tx.Conn().PgConn().PID()))
	require.Equal(t, err, db.NameHolders(t.Context(), d.DB.Pool, err), "named once")
	require.NoError(t, tx.Rollback(t.Context()))
}
