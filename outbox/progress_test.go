package outbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// A chunk counts its messages when it commits, and not when it does not.
func TestProgress_CountsWhatChunksCommit(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 0, job.Processed)
	chunk := func(err error, ids ...int64) {
		got := pgx.BeginFunc(bg, b.DB.Pool, func(tx pgx.Tx) error {
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
	got, err := outbox.ProgressOf(bg, b.DB.Pool, []int64{id, 1 << 40})
	require.NoError(t, err)
	require.Equal(t, map[int64]outbox.Progress{id: {JobID: id, Messages: 4, Waiting: 4}}, got)
	require.Empty(t, dbtest.Miscounted(t, b.DB.Pool))
}

// Two transactions of one relay that settle the same jobs in opposite orders do not wait
// for each other in a circle.
func TestProgress_SettlementsOfOneRelayDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	first, second := b.Rest(t, outbox.TypePush, 400, job.Processed), b.Rest(t, outbox.TypePush, 400, job.Processed)
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
	require.Empty(t, dbtest.Miscounted(t, b.DB.Pool))
	got, err := outbox.ProgressOf(bg, b.DB.Pool, []int64{first, second})
	require.NoError(t, err)
	require.Equal(t, outbox.Progress{JobID: first, Messages: 400, Sent: 200, Dead: 200}, got[first])
	require.Equal(t, outbox.Progress{JobID: second, Messages: 400, Sent: 200, Dead: 200}, got[second])
}
