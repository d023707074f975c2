package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// On Linux the runners go at once with a demo that is itself killed: nobody finishes its
// job.
func TestDemoProcess_KilledTakesItsRunnersAlong(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	p := startDemo(t, db)
	p.until(t, db, demoRunnerWorks)
	require.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	p.until(t, db, noDemoSession)
	var status string
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT status FROM belfry.jobs`).Scan(&status))
	require.Equal(t, "RUNNING", status)
}
