package delivery_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// What is not sent is listed with what it waits for, the most urgent first.
func TestUnsentJobs_SayWhatTheyWaitFor(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	held, due := b.Rest(t, outbox.TypePush, 2, job.Aborted), b.Rest(t, outbox.TypePush, 2, job.Processed)
	b.Exec(t, `UPDATE belfry.jobs SET priority = 5 WHERE id = $1`, due)
	list, err := delivery.UnsentJobs(t.Context(), b.DB.Pool, nil, 10)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, due, list[0].JobID)
	require.False(t, list[0].Held)
	require.EqualValues(t, 2, list[0].Waiting)
	require.NotNil(t, list[0].DueIn)
	require.True(t, list[1].Held)
	list, err = delivery.UnsentJobs(t.Context(), b.DB.Pool, []int64{held}, 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, held, list[0].JobID)
	list, err = delivery.UnsentJobs(t.Context(), b.DB.Pool, nil, 1)
	require.NoError(t, err)
	require.Len(t, list, 1)
}
