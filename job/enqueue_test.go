package job_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
)

// A limit of the rate is the job's and each job's of a group. Other numbers than the allowed ones are refused.
func TestEnqueue_LimitsTheRate(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	rate := 250
	spec := job.Spec{Type: "push", Category: "operator_notice", Title: "x", MaxRowsPerSecond: &rate}
	_, err := b.jobs.Enqueue(t.Context(), spec)
	require.NoError(t, err)
	_, err = b.jobs.EnqueueGroup(t.Context(), []string{"inbox", "push"}, spec)
	require.NoError(t, err)
	require.Equal(t, 3, one[int](t, b, `SELECT count(*) FROM belfry.jobs WHERE max_rows_per_second = 250`))
	for _, rate = range []int{-1, 10_000_001, 1 << 40} {
		_, err = b.jobs.Enqueue(t.Context(), spec)
		require.ErrorContains(t, err, "belfry.jobs.max_rows_per_second: ")
		require.ErrorContains(t, err, "allowed values: null (the runner's setting), 0 (no limit) to 10000000")
	}
}

// An idempotency key makes one job of many requests, however they race; the other
// type's key is another key.
func TestEnqueue_SameKeyManyTimesIsOneJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	spec := job.Spec{Type: "push", Category: "operator_notice", Title: "x", IdempotencyKey: "2026-11-20/breakfast"}
	ids := make([]int64, 20)
	var g errgroup.Group
	for i := range ids {
		g.Go(func() (err error) {
			ids[i], err = b.jobs.Enqueue(t.Context(), spec)
			return err
		})
	}
	require.NoError(t, g.Wait())
	slices.Sort(ids)
	require.Len(t, slices.Compact(ids), 1)
	require.EqualValues(t, 1, one[int64](t, b, `SELECT count(*) FROM belfry.jobs`))
	require.Equal(t, []string{"enqueued"}, b.kinds(t, ids[0]))

	b.runDue(t, b.runner(t, "r"))
	again, err := b.jobs.Enqueue(t.Context(), spec)
	require.NoError(t, err)
	require.Equal(t, ids[0], again, "also when the first is done")
	spec.Type = "inbox"
	other, err := b.jobs.Enqueue(t.Context(), spec)
	require.NoError(t, err)
	require.NotEqual(t, again, other)
}

// The job is the caller's transaction's: invisible before its COMMIT, gone with its
// ROLLBACK, and its idempotency key with it.
func TestEnqueueTx_BelongsToTheCallersTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	spec := job.Spec{Type: "push", Category: "operator_notice", Title: "x", IdempotencyKey: "k"}
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	id, err := job.EnqueueTx(t.Context(), tx, spec)
	require.NoError(t, err)
	require.Empty(t, b.runDue(t, b.runner(t, "r")).Jobs)
	require.NoError(t, tx.Rollback(t.Context()))
	_, err = b.jobs.Get(t.Context(), id)
	require.ErrorIs(t, err, job.ErrNotFound)
	require.Zero(t, one[int64](t, b, `SELECT count(*) FROM belfry.job_events`))

	tx, err = b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	id, err = job.EnqueueTx(t.Context(), tx, spec)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.Len(t, b.runDue(t, b.runner(t, "r")).Jobs, 1)
	b.requireDone(t, id, everyone(10))
}

// Bad input leaves nothing: a group with one bad member has none.
func TestEnqueueGroup_IsAllOrNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	_, err := b.jobs.EnqueueGroup(t.Context(), []string{"inbox", "fax"}, job.Spec{Category: "operator_notice", Title: "x"})
	var invalid *job.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "type", invalid.Column)
	require.Zero(t, one[int64](t, b, `SELECT count(*) FROM belfry.jobs`))

	ids, err := b.jobs.EnqueueGroup(t.Context(), []string{"push", "inbox"}, job.Spec{Category: "operator_notice", Title: "x", IdempotencyKey: "k"})
	require.NoError(t, err)
	again, err := b.jobs.EnqueueGroup(t.Context(), []string{"push", "inbox"}, job.Spec{Category: "operator_notice", Title: "x", IdempotencyKey: "k"})
	require.NoError(t, err)
	require.Equal(t, ids, again, "in the order of the types")
	j, err := b.jobs.Get(t.Context(), ids[0])
	require.NoError(t, err)
	require.Equal(t, "push", j.Type)
	members, err := b.jobs.List(t.Context(), job.Filter{GroupID: j.GroupID})
	require.NoError(t, err)
	require.Len(t, members, 2)
}

// What is asked for is what is stored, and what is delivered.
func TestEnqueue_StoresWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	at := time.Now().UTC().Add(-time.Minute).Truncate(time.Microsecond)
	deliver := at.Add(time.Hour)
	id := b.enqueue(t, job.Spec{
		Type: "push", Category: "question_content", Title: "Ein Titel", Body: "본문", Data: json.RawMessage(`{"question": 7}`),
		Audience: channels.WithIDs(10, 30), Lane: "fast", Priority: -3, ScheduleAt: &at, DeliverAt: &deliver,
		IdempotencyKey: "k", RequestedBy: "ann",
	})
	j, err := b.jobs.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "question_content", j.Category)
	require.Equal(t, "Ein Titel", j.Title)
	require.Equal(t, "본문", j.Body)
	require.JSONEq(t, `{"question": 7}`, string(j.Data))
	require.Equal(t, channels.WithIDs(10, 30), j.Audience)
	require.Equal(t, "fast", j.Lane)
	require.Equal(t, -3, j.Priority)
	require.True(t, at.Equal(j.ScheduleAt))
	require.True(t, deliver.Equal(*j.DeliverAt))
	require.Equal(t, "k", *j.IdempotencyKey)
	require.Equal(t, "ann", j.RequestedBy)

	b.runDue(t, b.runner(t, "r"))
	b.requireDone(t, id, []int64{10, 30})
	require.Equal(t, []time.Time{deliver, deliver}, utc(one[[]time.Time](t, b, `SELECT array_agg(next_attempt_at) FROM belfry.messages WHERE job_id = $1`, id)))
}

func utc(list []time.Time) []time.Time {
	for i := range list {
		list[i] = list[i].UTC()
	}
	return list
}

// A database that does not answer is ErrUnreachable.
func TestStore_FaultOfTheDatabaseIsUnreachable(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	nowhere, err := pgxpool.New(t.Context(), "host="+t.TempDir()+" user=nobody dbname=none")
	require.NoError(t, err)
	t.Cleanup(nowhere.Close)
	_, err = job.NewStore(nowhere).Get(t.Context(), 1)
	require.ErrorIs(t, err, job.ErrUnreachable)
	_, err = job.NewStore(nowhere).Now(t.Context())
	require.ErrorIs(t, err, job.ErrUnreachable)
	_, err = job.NewStore(nowhere).HasCeiling(t.Context(), "question", 10)
	require.ErrorIs(t, err, job.ErrUnreachable)
	r := b.runnerWith(t, nowhere, config("r"), []job.Type{b.noting(nil)})
	_, err = r.RunDue(t.Context())
	require.ErrorIs(t, err, job.ErrUnreachable)
}
