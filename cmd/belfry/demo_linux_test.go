package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/migrations/dbtest"
)

// On Linux even a daemon that waits goes at once with a demo that is itself killed:
// the job it waits for is never claimed.
func TestDemoProcess_KilledTakesItsRunnersAlong(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	p := startDemo(t, db)
	p.until(t, db, `SELECT EXISTS (SELECT FROM belfry.jobs WHERE title = 'Evening digest' AND status = 'PENDING')
		AND EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%')`)
	require.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	p.until(t, db, noDemoSession)
	var status string
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT status FROM belfry.jobs WHERE title = 'Evening digest'`).Scan(&status))
	require.Equal(t, "PENDING", status)
}
