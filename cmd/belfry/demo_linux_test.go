package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/migrations/dbtest"
)

// On Linux the runners go with a demo that is itself killed: its job is left in the
// middle, with nobody to finish it.
func TestDemoProcess_KilledTakesItsRunnersAlong(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	p := startDemo(t, db)
	p.until(t, db, demoRunnerWorks)
	require.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	p.until(t, db, noDemoSession)
	var unfinished int
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.jobs WHERE status <> 'PROCESSED'`).Scan(&unfinished))
	require.Positive(t, unfinished)
}
