package job_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
)

// With Held, an act skips the jobs that other sessions lock, and is no error if it changes none. An abort
// leaves the flags of those jobs in the cache.
func TestAct_HeldJobsAreSkipped(t *testing.T) {
	t.Parallel()
	_, cache := cached(t)
	b := setup(t, 0)
	ids := []int64{b.enqueue(t, job.Spec{}), b.enqueue(t, job.Spec{}), b.enqueue(t, job.Spec{})}
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.jobs WHERE id = $1 FOR UPDATE`, ids[1])
	require.NoError(t, err)
	store := b.jobs.WithAbortCache(cache)
	var held []int64
	for _, changed := range []int{2, 0} {
		list, err := store.Abort(t.Context(), job.Selection{IDs: ids, Held: &held}, job.Act{Actor: "ann"})
		require.NoError(t, err)
		require.Len(t, list, changed)
		require.Equal(t, ids[1:2], held)
		flag, err := cache.Get(t.Context(), ids[1])
		require.NoError(t, err)
		require.Equal(t, "ann", flag.Actor)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	list, err := store.Abort(t.Context(), job.Selection{IDs: ids, Held: &held}, job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, ids[1], list[0].ID)
	require.Empty(t, held)
	for _, id := range ids {
		flag, err := cache.Get(t.Context(), id)
		require.NoError(t, err)
		require.Nil(t, flag)
	}
	list, err = store.Resume(t.Context(), job.Selection{IDs: ids, Held: &held}, job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Len(t, list, 3)
}
