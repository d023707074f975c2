package outbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

// A chunk counts its messages when it commits, and not when it does not.
func TestProgress_CountsWhatChunksCommit(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.rest(t, outbox.TypePush, 0, job.Processed)
	chunk := func(err error, ids ...int64) {
		got := pgx.BeginFunc(bg, b.db.Pool, func(tx pgx.Tx) error {
			if _, err := (outbox.Push{}).Write(bg, tx, job.Job{ID: id}, ids); err != nil {
				return err
			}
			return err
		})
		require.ErrorIs(t, got, err)
	}
	chunk(nil, 1, 2, 3)
	chunk(context.Canceled, 4, 5)
	chunk(nil, 4)
	chunk(nil)
	got, err := outbox.ProgressOf(bg, b.db.Pool, []int64{id, 1 << 40})
	require.NoError(t, err)
	require.Equal(t, map[int64]outbox.Progress{id: {JobID: id, Messages: 4, Waiting: 4}}, got)
	require.Empty(t, dbtest.Miscounted(t, b.db.Pool))
}

// The sums are those of a count whatever operators do, over several jobs and activities.
func TestProgress_AgreesWithACountAfterOperatorsActs(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	rapid.Check(t, func(t *rapid.T) {
		var ids []int64
		for range 3 {
			ids = append(ids, b.rest(t, outbox.TypePush, 12, job.Processed))
		}
		b.activity(t, 1)
		for range rapid.IntRange(1, 6).Draw(t, "acts") {
			id := rapid.SampledFrom(ids).Draw(t, "job")
			filter := outbox.DeadFilter{JobID: rapid.SampledFrom([]int64{id, 0}).Draw(t, "filter")}
			var err error
			switch rapid.IntRange(0, 3).Draw(t, "act") {
			case 0:
				b.states(t, id, "DEAD", "PENDING", "SENT", "DEAD", "PROCESSING", "QUEUED")
			case 1:
				_, err = outbox.Redrive(bg, b.db.Pool, filter, outbox.DeadOptions{Act: ann})
			case 2:
				_, err = outbox.Discard(bg, b.db.Pool, filter, outbox.DeadOptions{Act: ann})
			default:
				_, err = outbox.Recall(bg, b.db.Pool, id, ann, nil)
			}
			require.NoError(t, err)
			require.Empty(t, dbtest.Miscounted(t, b.db.Pool))
		}
	})
}

// Two transactions of one relay that settle the same jobs in opposite orders do not wait
// for each other in a circle.
func TestProgress_SettlementsOfOneRelayDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	first, second := b.rest(t, outbox.TypePush, 400, job.Processed), b.rest(t, outbox.TypePush, 400, job.Processed)
	l := b.ledger("r1")
	errs := make(chan error, 2)
	for _, order := range [][2]int64{{first, second}, {second, first}} {
		var batches [][]outbox.Settlement
		for range 20 {
			batch := each(handed(t, l, order[0], 10), sent)
			for _, c := range handed(t, l, order[1], 10) {
				batch = append(batch, outbox.Settlement{Claimed: c, To: outbox.Dead, Reason: outbox.ReasonPermanent, Record: []outbox.Attempt{{Attempt: 1, Medium: "push", Outcome: outbox.OutcomePermanent}}})
			}
			batches = append(batches, batch)
		}
		go func() {
			var err error
			for _, batch := range batches {
				_, problem := l.Settle(bg, batch, nil)
				err = errors.Join(err, problem)
			}
			errs <- err
		}()
	}
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	require.Empty(t, dbtest.Miscounted(t, b.db.Pool))
	got, err := outbox.ProgressOf(bg, b.db.Pool, []int64{first, second})
	require.NoError(t, err)
	require.Equal(t, outbox.Progress{JobID: first, Messages: 400, Sent: 200, Dead: 200}, got[first])
	require.Equal(t, outbox.Progress{JobID: second, Messages: 400, Sent: 200, Dead: 200}, got[second])
}

// What retention deletes stays counted, and the counts go with the job.
func TestProgress_OutlivesTheMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.rest(t, outbox.TypePush, 6, job.Processed)
	b.states(t, id, "SENT", "SENT", "CANCELLED")
	b.old(t, "31 days", id)
	rows := month()
	rows.Jobs = 0
	_, err := outbox.Prune(bg, b.db.Pool, rows, outbox.PruneOptions{Act: ann})
	require.NoError(t, err)
	require.Zero(t, b.rows(t, id))
	require.True(t, b.exists(t, id))
	got, err := outbox.ProgressOf(bg, b.db.Pool, []int64{id})
	require.NoError(t, err)
	require.Equal(t, outbox.Progress{JobID: id, Messages: 6, Sent: 4, Cancelled: 2}, got[id])
	_, err = outbox.Prune(bg, b.db.Pool, month(), outbox.PruneOptions{Act: ann})
	require.NoError(t, err)
	require.False(t, b.exists(t, id))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_deliveries`))
}
