package delivery_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// lead makes a relay the one that pushes, and returns its ledger and the queue of jobs.
func (b *bundle) lead(t require.TestingT) (*outbox.Ledger, outbox.PushQueue) {
	l := outbox.NewLedger(b.DB.Pool, "r1", time.Minute)
	queues, err := l.Lead(bg, "memory", time.Minute)
	require.NoError(t, err)
	require.Len(t, queues, 2)
	return l, queues[1]
}

// queued makes a push of n due messages of a job.
func queued(t require.TestingT, l *outbox.Ledger, q outbox.PushQueue, id int64, n int) []outbox.Key {
	keys, _, _, err := l.QueueJob(bg, q, id, outbox.Position{}, n, outbox.AnyTry)
	require.NoError(t, err)
	return keys
}

// What is queued is counted by queue, with who pushes and since when.
func TestQueueStates_TellWhatIsQueued(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	states, err := delivery.QueueStates(bg, b.DB.Pool)
	require.NoError(t, err)
	require.Equal(t, []delivery.QueueState{{Name: "activities"}, {Name: "bulk"}}, states, "there has been no carrier")

	l, bulk := b.lead(t)
	id := b.Rest(t, outbox.TypePush, 10, job.Processed)
	queued(t, l, bulk, id, 4)
	b.Exec(t, `UPDATE belfry.pushes SET made_at = made_at - interval '1 hour'`)
	queued(t, l, bulk, id, 3)
	states, err = delivery.QueueStates(bg, b.DB.Pool)
	require.NoError(t, err)
	require.Zero(t, states[0].Queued)
	require.Nil(t, states[0].Oldest)
	require.EqualValues(t, 7, states[1].Queued)
	require.GreaterOrEqual(t, *states[1].Oldest, time.Hour)
	require.EqualValues(t, 2, states[1].LastPush)
	require.Equal(t, []string{"memory", "r1", bulk.Epoch}, []string{states[1].Transport, states[1].Dispatcher, states[1].Epoch})
	require.NotNil(t, states[1].LeadsUntil)
	require.NotNil(t, states[1].EpochAt)
	require.NoError(t, l.StopLeading(bg))
	states, err = delivery.QueueStates(bg, b.DB.Pool)
	require.NoError(t, err)
	require.Nil(t, states[1].LeadsUntil)
}

// A rebuild begins an epoch in which nothing may be pushed under the one before, and is recorded.
func TestRebuildQueues_BeginsAnEpoch(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	n, err := delivery.RebuildQueues(bg, b.DB.Pool, job.Act{Actor: "ann", Reason: "new server"}, nil)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.events WHERE subject = 'transport'`), "there was no carrier")

	l, before := b.lead(t)
	id := b.Rest(t, outbox.TypePush, 10, job.Processed)
	queued(t, l, before, id, 4)
	n, err = delivery.RebuildQueues(bg, b.DB.Pool, job.Act{Actor: "ann", Reason: "new server"}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 4, n)
	require.Empty(t, queued(t, l, before, id, 3))
	_, after := b.lead(t)
	require.NotEqual(t, before.Epoch, after.Epoch)
	require.Equal(t, before.Last+1, after.Last, "numbers go on")
	require.Equal(t, "rebuilt 4 by ann: new server", one[string](t, b, `SELECT format('%s %s by %s: %s', kind, detail ->> 'messages', actor, reason) FROM belfry.events WHERE subject = 'transport'`))
}

// What is taken back is PENDING as it was, by one event, and nothing is while a relay pushes.
func TestTakeBackQueued_TakesAllThatNobodyPushes(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l, bulk := b.lead(t)
	const n = outbox.MaxBatch*2 + 5
	id := b.Rest(t, outbox.TypePush, n+3, job.Processed)
	b.Exec(t, `UPDATE belfry.message_rows SET lease_id = 0`)
	other := b.Rest(t, outbox.TypePush, 6, job.Processed) // never changed
	for range 6 {
		queued(t, l, bulk, other, 1)
	}
	for left := n; left > 0; left -= outbox.MaxBatch {
		queued(t, l, bulk, id, min(left, outbox.MaxBatch))
	}
	taken, err := delivery.TakeBackQueued(bg, b.DB.Pool, job.Act{Actor: "ann"}, nil)
	require.NoError(t, err)
	require.Zero(t, taken)
	require.Equal(t, map[string]int{"QUEUED": n, "PENDING": 3}, b.Statuses(t, id))

	states, err := delivery.CountQueues(bg, b.DB.Pool)
	require.NoError(t, err)
	require.EqualValues(t, n+6, states[1].Queued)
	b.Exec(t, `UPDATE belfry.pushes SET made_at = made_at - interval '1 hour' WHERE number = 1`) // with a key
	states, err = delivery.QueueStates(bg, b.DB.Pool)
	require.NoError(t, err)
	require.Greater(t, *states[1].Oldest, time.Hour)
	require.NoError(t, l.StopLeading(bg))
	var seen []int64
	taken, err = delivery.TakeBackQueued(bg, b.DB.Pool, job.Act{Actor: "ann", Reason: "to another"}, func(taken int64) { seen = append(seen, taken) })
	require.NoError(t, err)
	require.EqualValues(t, n+6, taken)
	require.Equal(t, []int64{outbox.MaxBatch + 4, 2*outbox.MaxBatch + 6, n + 6}, seen)
	require.Equal(t, map[string]int{"PENDING": n + 3}, b.Statuses(t, id))
	require.Equal(t, map[string]int{"PENDING": 6}, b.Statuses(t, other))
	require.Equal(t, "drained "+one[string](t, b, `SELECT $1::int::text`, n+6)+" by ann: to another",
		one[string](t, b, `SELECT string_agg(format('%s %s by %s: %s', kind, detail ->> 'messages', actor, reason), ', ') FROM belfry.events WHERE subject = 'transport'`))
}

// What operators ask about a carrier does not read what is not QUEUED, and counts what is to
// 10,000, from the index; who asks for all gets all.
func TestQueueStates_CountTo10000(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 30_000, job.Processed)
	b.Past(t, `UPDATE belfry.message_rows SET status = 'QUEUED', push = 1 WHERE job_id = $1 AND channel_id <= $2`, id, delivery.QueueCounts)
	queued := func(read func(context.Context, *pgxpool.Pool) ([]delivery.QueueState, error)) int64 {
		states, err := read(bg, b.DB.Pool)
		require.NoError(t, err)
		require.Zero(t, states[0].Queued)
		return states[1].Queued
	}
	require.EqualValues(t, delivery.QueueCounts, queued(delivery.QueueStates), "exact as far as that")
	b.Past(t, `UPDATE belfry.message_rows SET status = 'QUEUED', push = 2 WHERE job_id = $1 AND channel_id <= $2`, id, 15_000)
	require.EqualValues(t, delivery.QueueCounts+1, queued(delivery.QueueStates))
	require.EqualValues(t, 15_000, queued(delivery.CountQueues))

	dbtest.Vacuum(t, b.DB.Pool, "belfry.message_rows")
	for most, counted := range map[any]float64{delivery.QueueCounts + 1: delivery.QueueCounts + 1, nil: 15_000} {
		tx, err := b.DB.Pool.Begin(bg)
		require.NoError(t, err)
		read := func() (entries float64, scans int) {
			require.NoError(t, tx.QueryRow(bg, `SELECT pg_stat_get_xact_tuples_returned('belfry.messages_queued_idx'::regclass),
				pg_stat_get_xact_numscans('belfry.message_rows'::regclass)`).Scan(&entries, &scans))
			return entries, scans
		}
		earlier, whole := read()
		_, err = tx.Exec(bg, delivery.Statement("QueueStates"), pgx.StrictNamedArgs{"most": most})
		require.NoError(t, err)
		entries, scans := read()
		require.InDelta(t, counted, entries-earlier, 5, "no more is looked at than is counted")
		require.Equal(t, whole, scans, "no scan of the table")
		require.NoError(t, tx.Rollback(bg))
	}
}
