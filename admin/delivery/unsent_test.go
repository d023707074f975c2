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
	counts, err := delivery.WaitingFor(t.Context(), b.DB.Pool)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"push": 2}, counts, "those of the job that may be sent")
	b.Exec(t, `INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('default', now(), 'ann')`)
	list, err = delivery.UnsentJobs(t.Context(), b.DB.Pool, []int64{due}, 1)
	require.NoError(t, err)
	require.Equal(t, []any{true, "ann"}, []any{list[0].Held, list[0].PausedBy})
	counts, err = delivery.WaitingFor(t.Context(), b.DB.Pool)
	require.NoError(t, err)
	require.Empty(t, counts)
}

// A job's messages wait behind those of its lane that are more urgent, or as urgent and older.
func TestAhead_NamesTheJobsOfTheLaneAndCountsTheirMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	first, aborted, own, urgent, elsewhere := b.Rest(t, outbox.TypePush, 3, job.Processed), b.Rest(t, outbox.TypePush, 3, job.Aborted),
		b.Rest(t, outbox.TypePush, 3, job.Processed), b.Rest(t, outbox.TypePush, 3, job.Processed), b.Rest(t, outbox.TypePush, 3, job.Processed)
	b.Exec(t, `UPDATE belfry.jobs SET priority = 5 WHERE id = $1`, urgent)
	b.Exec(t, `UPDATE belfry.jobs SET lane = 'night', priority = 9 WHERE id = $1`, elsewhere)
	jobs, messages, err := delivery.Ahead(t.Context(), b.DB.Pool, own)
	require.NoError(t, err)
	require.Equal(t, []int64{urgent, first}, jobs, "not %d, which is ABORTED", aborted)
	require.EqualValues(t, 6, messages)
	jobs, messages, err = delivery.Ahead(t.Context(), b.DB.Pool, urgent)
	require.NoError(t, err)
	require.Empty(t, jobs)
	require.Zero(t, messages)
}
