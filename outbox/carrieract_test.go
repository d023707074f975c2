package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

// What is queued is counted by queue, with who pushes and since when.
func TestQueueStates_TellWhatIsQueued(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	states, err := outbox.QueueStates(bg, b.db.Pool)
	require.NoError(t, err)
	require.Equal(t, []outbox.QueueState{{Name: "activities"}, {Name: "bulk"}}, states, "there has been no carrier")

	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.rest(t, outbox.TypePush, 10, job.Processed)
	queued(t, l, bulk, id, 4)
	b.exec(t, `UPDATE belfry.pushes SET made_at = made_at - interval '1 hour'`)
	queued(t, l, bulk, id, 3)
	states, err = outbox.QueueStates(bg, b.db.Pool)
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
	states, err = outbox.QueueStates(bg, b.db.Pool)
	require.NoError(t, err)
	require.Nil(t, states[1].LeadsUntil)
}

// A rebuild begins an epoch in which nothing may be pushed under the one before, and is recorded.
func TestRebuildQueues_BeginsAnEpoch(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	n, err := outbox.RebuildQueues(bg, b.db.Pool, job.Act{Actor: "ann", Reason: "new server"}, nil)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.events WHERE subject = 'transport'`), "there was no carrier")

	l := b.ledger("r1")
	_, before := lead(t, l)
	id := b.rest(t, outbox.TypePush, 10, job.Processed)
	queued(t, l, before, id, 4)
	n, err = outbox.RebuildQueues(bg, b.db.Pool, job.Act{Actor: "ann", Reason: "new server"}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 4, n)
	none, _ := queued(t, l, before, id, 3)
	require.Empty(t, none)
	_, after := lead(t, l)
	require.NotEqual(t, before.Epoch, after.Epoch)
	require.Equal(t, before.Last+1, after.Last, "numbers go on")
	require.Equal(t, "rebuilt 4 by ann: new server", one[string](t, b, `SELECT format('%s %s by %s: %s', kind, detail ->> 'messages', actor, reason) FROM belfry.events WHERE subject = 'transport'`))
}

// What is taken back is PENDING as it was, by one event, and nothing is while a relay pushes.
func TestTakeBackQueued_TakesAllThatNobodyPushes(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	const n = outbox.MaxBatch*2 + 5
	id := b.rest(t, outbox.TypePush, n+3, job.Processed)
	for left := n; left > 0; left -= outbox.MaxBatch {
		queued(t, l, bulk, id, min(left, outbox.MaxBatch))
	}
	taken, err := outbox.TakeBackQueued(bg, b.db.Pool, job.Act{Actor: "ann"}, nil)
	require.NoError(t, err)
	require.Zero(t, taken)
	require.Equal(t, map[string]int{"QUEUED": n, "PENDING": 3}, b.statuses(t, id))

	require.NoError(t, l.StopLeading(bg))
	var seen []int64
	taken, err = outbox.TakeBackQueued(bg, b.db.Pool, job.Act{Actor: "ann", Reason: "to another"}, func(taken int64) { seen = append(seen, taken) })
	require.NoError(t, err)
	require.EqualValues(t, n, taken)
	require.Equal(t, []int64{outbox.MaxBatch, 2 * outbox.MaxBatch, n}, seen)
	require.Equal(t, map[string]int{"PENDING": n + 3}, b.statuses(t, id))
	require.Equal(t, "drained "+one[string](t, b, `SELECT $1::int::text`, n)+" by ann: to another",
		one[string](t, b, `SELECT string_agg(format('%s %s by %s: %s', kind, detail ->> 'messages', actor, reason), ', ') FROM belfry.events WHERE subject = 'transport'`))
}

// What operators ask about a carrier does not read what is not QUEUED.
func TestQueueStates_KeepTheirPlan(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.rest(t, outbox.TypePush, 20_000, job.Processed)
	dbtest.Vacuum(t, b.db.Pool, "belfry.messages")
	plan := b.db.Pool
	rows, err := plan.Query(bg, "EXPLAIN "+outbox.Statement("QueueStates"))
	require.NoError(t, err)
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		require.NotContains(t, line, "Seq Scan on messages")
	}
	require.NoError(t, rows.Err())
}
