package relay_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// I6: an abort that has returned stops every message that was not handed to a provider:
// those in flight become PENDING as they were, and go on with the job.
func TestRelay_AbortBetweenClaimAndCallSendsNothing(t *testing.T) {
	t.Parallel()
	for _, point := range []string{relay.PointHandOver, relay.PointRecheck} {
		b := setup(t, 50)
		id := b.running(t, "default", 1, 50)
		provider, g := &script{}, newGate(t, point)
		run := b.start(t, config("r"), []relay.Sender{push(provider)}, relay.WithFailpoint(g.at))
		g.await(t)
		b.exec(t, `UPDATE belfry.jobs SET abort_requested = true WHERE id = $1`, id)
		g.open()
		b.eventually(t, `SELECT count(*) = 0 FROM belfry.messages WHERE status = 'PROCESSING'`)
		require.Empty(t, provider.all())
		require.Equal(t, map[string]int{"PENDING": 50}, b.statuses(t))
		require.True(t, one[bool](t, b, `SELECT bool_and(attempts = 0 AND crashes = 0 AND next_attempt_at <= now()) FROM belfry.messages`))
		b.exec(t, `UPDATE belfry.jobs SET abort_requested = false WHERE id = $1`, id)
		b.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'r', heartbeat_at = now() WHERE id = $1`, id)
		b.eventually(t, `SELECT count(*) = 50 FROM belfry.messages WHERE status = 'SENT'`)
		run.end(t)
		require.Len(t, provider.all(), 50)
		require.Empty(t, b.record(t, id))
	}
}

// A recall while messages are in flight: they are CANCELLED and not sent.
func TestRelay_RecallBetweenClaimAndCallCancels(t *testing.T) {
	t.Parallel()
	b := setup(t, 50)
	id := b.job(t, "default", 1, 50)
	provider, g := &script{}, newGate(t, relay.PointRecheck)
	run := b.start(t, config("r"), []relay.Sender{push(provider)}, relay.WithFailpoint(g.at))
	g.await(t)
	_, err := delivery.Recall(t.Context(), b.DB.Pool, id, job.Act{Actor: "somebody"}, nil)
	require.NoError(t, err)
	g.open()
	b.eventually(t, `SELECT count(*) = 50 FROM belfry.messages WHERE status = 'CANCELLED' AND reason = 'recalled'`)
	run.end(t)
	require.Empty(t, provider.all())
	require.EqualValues(t, 50, run.Stats().Cancelled+one[int64](t, b, `SELECT recalled FROM belfry.jobs WHERE id = $1`, id))
}

// A recall while a call is in flight: its failure is the last, its success stands.
func TestRelay_RecallDuringTheCall(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	id := b.job(t, "default", 1, 2)
	calling, answer := make(chan struct{}, 2), make(chan struct{})
	provider := &script{answer: func(_ context.Context, d sender.Delivery) sender.Result {
		calling <- struct{}{}
		<-answer
		if d.ChannelID == 1 {
			return sender.Result{Class: sender.Retryable, Code: "503"}
		}
		return sender.Result{Class: sender.Accepted}
	}}
	run := b.start(t, config("r"), []relay.Sender{push(provider)})
	receive(t, calling)
	receive(t, calling)
	_, err := delivery.Recall(t.Context(), b.DB.Pool, id, job.Act{Actor: "somebody"}, nil)
	require.NoError(t, err)
	close(answer)
	b.eventually(t, `SELECT count(*) = 0 FROM belfry.messages WHERE status = 'PROCESSING'`)
	run.end(t)
	require.Equal(t, map[string]int{"CANCELLED recalled": 1, "SENT": 1}, b.statuses(t))
	require.Len(t, provider.all(), 2)
}

// I8: a relay that is stopped with messages in flight, and goes on after its lease
// has run out and another relay has sent them, sends nothing.
func TestRelay_LostLeaseSendsNothing(t *testing.T) {
	t.Parallel()
	for point, crashed := range map[string]bool{relay.PointHandOver: false, relay.PointRecheck: true} {
		b := setup(t, 20)
		id := b.job(t, "default", 1, 20)
		first, second, g := &script{}, &script{}, newGate(t, point)
		slow := b.start(t, config("slow"), []relay.Sender{push(first)}, relay.WithFailpoint(g.stop))
		g.await(t)
		handed := one[int](t, b, `SELECT coalesce(sum(cardinality(channel_ids)), 0)::int FROM belfry.handovers`)
		c := config("other")
		c.Retry.Initial, c.Retry.Max = time.Millisecond, time.Millisecond
		other := b.start(t, c, []relay.Sender{push(second)})
		// The slow one's last statement may renew its leases, or claim messages again.
		b.eventually(t, `WITH expired AS (UPDATE belfry.leases SET expires_at = now() - interval '1 second' WHERE relay = 'slow')
			SELECT count(*) = 20 FROM belfry.messages WHERE status = 'SENT'`)
		g.open()
		slow.end(t)
		other.end(t)
		require.Empty(t, first.all(), point)
		require.Len(t, second.all(), 20, point)
		require.GreaterOrEqual(t, slow.Stats().Lost, int64(20), point)
		require.EqualValues(t, 20, other.Stats().Sent, point)
		require.Len(t, b.record(t, id), handed, point)
		require.Equal(t, crashed, handed > 0, point)
		require.Equal(t, handed, one[int](t, b, `SELECT sum(crashes)::int FROM belfry.messages`), point)
	}
}

// A relay that finds out that its messages are another's has the carrier drop its copies: it lives,
// so that nobody else would.
func TestCarrier_LostLeaseLeavesNoCopies(t *testing.T) {
	t.Parallel()
	b, memory := setup(t, 20), outboxtest.NewMemory(capacity)
	b.job(t, "default", 1, 20)
	taken := func() int64 {
		queues, err := memory.Queues(t.Context())
		require.NoError(t, err)
		return queues[0].Taken + queues[1].Taken
	}
	s, g := &script{}, newGate(t, relay.PointHandOver)
	run := b.start(t, carrying("slow"), []relay.Sender{push(s)}, on(memory, time.Hour), relay.WithFailpoint(g.stop))
	g.await(t)
	require.EqualValues(t, 20, taken())
	b.exec(t, `INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (8, 'other', now() + interval '1 hour', '{1}', '{1}')`)
	b.exec(t, `UPDATE belfry.message_rows SET status = 'PROCESSING', lease_id = 8`)
	g.open()
	require.Eventually(t, func() bool { return taken() == 0 }, patience, 5*time.Millisecond)
	run.end(t)
	require.EqualValues(t, 20, run.Stats().Lost)
	require.Empty(t, s.all())
}

// I8: a relay that is stopped between its look and its calls looks again: what another
// relay has sent meanwhile is not sent twice.
func TestRelay_StoppedAfterTheRecheckChecksAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 20)
	b.job(t, "default", 1, 20)
	first, second, g := &script{}, &script{}, newGate(t, relay.PointRechecked)
	c := config("slow")
	c.Lease, c.StatementTimeout, c.MaxCrashes = 3*time.Second, time.Second, 100 // a busy machine costs it the lease before the gate
	slow := b.start(t, c, []relay.Sender{push(first)}, relay.WithFailpoint(g.stop))
	g.await(t)
	stopped := time.Now()
	c = config("other") // its leases outlast a busy machine
	c.MaxCrashes = 100
	c.Retry.Initial, c.Retry.Max = time.Millisecond, time.Millisecond
	other := b.start(t, c, []relay.Sender{push(second)})
	b.eventually(t, `WITH expired AS (UPDATE belfry.leases SET expires_at = now() - interval '1 second' WHERE relay = 'slow')
		SELECT count(*) = 20 FROM belfry.messages WHERE status = 'SENT'`)
	require.Eventually(t, func() bool { return time.Since(stopped) > time.Second }, patience, time.Millisecond) // a third of the lease: the look is old
	g.open()
	slow.end(t)
	other.end(t)
	require.Empty(t, first.all())
	require.Len(t, second.all(), 20)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// I8: a call is recorded before it is made, also when a renewal commits between the record, which
// found the lease expired, and the recheck, which finds it alive.
func TestRelay_CallsOnlyWhatWasRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, 5)
	id := b.job(t, "default", 1, 5)
	var unrecorded atomic.Int64
	provider := &script{answer: func(ctx context.Context, d sender.Delivery) sender.Result {
		var recorded bool
		err := b.DB.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM belfry.messages m JOIN belfry.handovers h USING (lease_id)
			WHERE m.job_id = $1 AND m.channel_id = $2 AND m.channel_id = ANY (h.channel_ids))`, d.JobID, d.ChannelID).Scan(&recorded)
		if err != nil || !recorded {
			unrecorded.Add(1)
		}
		return sender.Result{Class: sender.Accepted}
	}}
	var mu sync.Mutex
	var renewal pgx.Tx
	crossed := make(chan struct{})
	cross := func(ctx context.Context) (err error) { // as a renewal that began in time, of a lease that has run out since
		if _, err = b.DB.Pool.Exec(ctx, `UPDATE belfry.leases SET expires_at = clock_timestamp()`); err != nil {
			return err
		}
		if renewal, err = b.DB.Pool.Begin(t.Context()); err != nil {
			return err
		}
		_, err = renewal.Exec(ctx, `UPDATE belfry.leases SET expires_at = clock_timestamp() + interval '1 minute'`)
		return err
	}
	run := b.start(t, config("r"), []relay.Sender{push(provider)}, relay.WithFailpoint(func(ctx context.Context, point string) (err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case point == relay.PointHandOver && renewal == nil:
			err = cross(ctx)
		case point == relay.PointRecheck && !isClosed(crossed):
			err = renewal.Commit(ctx)
			close(crossed)
		}
		return err
	}))
	receive(t, crossed)
	b.eventually(t, `SELECT count(*) = 5 FROM belfry.messages WHERE status = 'SENT' AND crashes = 0`)
	run.end(t)
	require.Len(t, provider.all(), 5)
	require.Zero(t, unrecorded.Load())
	require.Empty(t, b.record(t, id))
}

// While a call lasts the relay renews the lease, beyond its first end, and nobody else takes
// the message meanwhile.
func TestRelay_RenewsWhileItWorks(t *testing.T) {
	t.Parallel()
	b := setup(t, 5)
	id := b.job(t, "default", 1, 5)
	calling, answer := make(chan struct{}, 5), make(chan struct{})
	provider := &script{answer: func(context.Context, sender.Delivery) sender.Result {
		calling <- struct{}{}
		<-answer
		return sender.Result{Class: sender.Accepted}
	}}
	c := config("r")
	c.Lease, c.StatementTimeout = 12*time.Second, 4*time.Second // a renewal each three seconds
	run := b.start(t, c, []relay.Sender{push(provider)})
	for range 5 {
		receive(t, calling)
	}
	c.Name = "other"
	other := b.start(t, c, []relay.Sender{push(&script{})})
	b.eventually(t, `SELECT bool_and(expires_at > claimed_at + interval '13 seconds') FROM belfry.leases`)
	close(answer)
	b.eventually(t, `SELECT count(*) = 5 FROM belfry.messages WHERE status = 'SENT' AND crashes = 0`)
	run.end(t)
	other.end(t)
	require.Len(t, provider.all(), 5)
	require.Empty(t, b.record(t, id))
}

// Relays that die with a message: each time one unknown attempt, and a dead letter at
// max_crashes. Its neighbours, which were not handed over, lose nothing.
func TestRelay_MessageThatKillsItsRelaysBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	id := b.job(t, "default", 1, 3)
	for crash := 1; crash <= 3; crash++ {
		dying := outbox.NewLedger(b.DB.Pool, "dying", time.Hour)
		claimed, _, err := dying.ClaimJob(t.Context(), id, outbox.Position{}, 10, outbox.AnyTry)
		require.NoError(t, err)
		require.Len(t, claimed, 3)
		for _, c := range claimed {
			if c.ChannelID == 2 {
				handOver(t, dying, []outbox.Claimed{c})
			}
		}
		b.expire(t)
		run := b.start(t, config("r"), nil) // without a sender: it recovers and defers
		b.eventually(t, `SELECT count(*) = 0 FROM belfry.leases`)
		b.eventually(t, `SELECT crashes = $1 FROM belfry.messages WHERE channel_id = 2`, crash)
		run.end(t)
		b.exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() WHERE status = 'PENDING'`)
	}
	stats := b.drain(t, config("r"), push(&script{}))
	require.EqualValues(t, 2, stats.Sent)
	require.Equal(t, map[string]int{"SENT": 2, "DEAD crashed": 1}, b.statuses(t))
	require.Equal(t, []string{"2 push 0/1 crashed", "2 push 0/2 crashed", "2 push 0/3 crashed"}, b.record(t, id))
}

// I9: a call that is cut short by a hard stop has an unknown outcome and is repeated with
// the same key.
func TestRelay_HardStopLeavesUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t, 4)
	id := b.job(t, "default", 1, 4)
	calling := make(chan struct{}, 4)
	provider := &script{answer: func(ctx context.Context, d sender.Delivery) sender.Result {
		calling <- struct{}{}
		return hang(ctx, d)
	}}
	run := b.start(t, config("r"), []relay.Sender{push(provider)})
	for range 4 {
		receive(t, calling)
	}
	run.StopNow(context.Canceled)
	require.NoError(t, receive(t, run.ended))
	require.Equal(t, map[string]int{"PENDING retry": 4}, b.statuses(t))
	require.EqualValues(t, 4, run.Stats().Ambiguous)
	b.eventually(t, `SELECT bool_and(next_attempt_at <= now()) FROM belfry.messages`)
	again := &script{}
	b.drain(t, config("r2"), push(again))
	require.Equal(t, map[string]int{"SENT": 4}, b.statuses(t))
	for channel := range int64(4) {
		require.Equal(t, provider.of(id, channel+1)[0].Key, again.of(id, channel+1)[0].Key)
		require.Equal(t, 2, again.of(id, channel+1)[0].Attempt)
	}
}

// A soft stop takes nothing new, lets calls in flight end and records them, and returns
// the rest as it was: nothing stays PROCESSING.
func TestRelay_SoftStopFinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t, 2000)
	b.job(t, "default", 1, 2000)
	calling, answer := make(chan struct{}, 2000), make(chan struct{})
	provider := &script{answer: func(context.Context, sender.Delivery) sender.Result {
		calling <- struct{}{}
		<-answer
		return sender.Result{Class: sender.Accepted}
	}}
	run := b.start(t, config("r"), []relay.Sender{push(provider)})
	for range 12 { // of 16 calls, 4 are kept for activities
		receive(t, calling)
	}
	b.eventually(t, `SELECT count(*) >= 500 FROM belfry.messages WHERE status = 'PROCESSING'`)
	run.stop()
	close(answer)
	run.end(t)
	require.Equal(t, map[string]int{"PENDING": 1988, "SENT": 12}, b.statuses(t))
	require.Len(t, provider.all(), 12)
	require.True(t, one[bool](t, b, `SELECT bool_and(attempts = 0 AND next_attempt_at <= now()) FROM belfry.messages WHERE status = 'PENDING'`))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.relays`))
	require.Zero(t, run.Stats().InFlight)
}

// The answer to a COMMIT of outcomes is lost, again and again: it is repeated, and nothing
// is recorded twice or called unknown.
func TestLong_RelaySettlesAgainAfterAnUnknownCommit(t *testing.T) {
	t.Parallel()
	for _, point := range []string{relay.PointSettle, relay.PointSettled} {
		b := setup(t, 300)
		id := b.job(t, "default", 1, 300)
		var failures atomic.Int64
		provider := &script{answer: func(_ context.Context, d sender.Delivery) sender.Result {
			return sender.Result{Class: map[bool]sender.Class{true: sender.Permanent, false: sender.Accepted}[d.ChannelID == 5]}
		}}
		run := b.start(t, config("r"), []relay.Sender{push(provider)}, relay.WithFailpoint(func(_ context.Context, at string) error {
			if at == point && failures.Add(1)%4 != 0 {
				return context.DeadlineExceeded
			}
			return nil
		}))
		b.eventually(t, `SELECT count(*) = 300 FROM belfry.messages WHERE status IN ('SENT', 'DEAD')`)
		run.end(t)
		require.Equal(t, []string{"5 push 0/1 permanent"}, b.record(t, id))
		require.Len(t, provider.all(), 300)
		require.EqualValues(t, 299, run.Stats().Sent)
		require.Zero(t, run.Stats().Lost)
	}
}

// A message that another session had locked when its turn came is found by a claim from
// the beginning.
func TestRelay_FindsWhatWasLocked(t *testing.T) {
	t.Parallel()
	b := setup(t, 100)
	b.job(t, "default", 1, 100)
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.messages WHERE channel_id = 3 FOR UPDATE`)
	require.NoError(t, err)
	run := b.start(t, config("r"), []relay.Sender{push(&script{})})
	b.eventually(t, `SELECT count(*) = 99 FROM belfry.messages WHERE status = 'SENT'`)
	require.NoError(t, tx.Rollback(t.Context()))
	b.eventually(t, `SELECT count(*) = 100 FROM belfry.messages WHERE status = 'SENT'`)
	run.end(t)
}

// I13: what is in flight is bounded, each lane by its part, and activities have theirs.
func TestInflight_Room(t *testing.T) {
	t.Parallel()
	c := config("r")
	c.MaxInFlight, c.ActivityShare = 1000, 0.2 // and batches of 500
	f := relay.NewInflight()
	claims := func(job, lease int64, lane string, n int) []outbox.Claimed {
		list := make([]outbox.Claimed, n)
		for i := range list {
			list[i] = outbox.Claimed{Key: outbox.Key{JobID: job, ChannelID: int64(i)}, LeaseID: lease, Lane: lane}
		}
		return list
	}
	room := func(lane string, lanes int) int { return relay.Room(f, c, lane, lanes, false) }
	activities := func() int { return relay.Room(f, c, "", 0, true) }
	require.Equal(t, 400, room("a", 1), "half of 800: the other half for a lane that comes")
	require.Equal(t, 200, room("a", 3))
	require.Equal(t, c.Batch/10, room("a", 100_000), "no number of lanes stops a lane")
	first := claims(1, 1, "a", 400)
	relay.Take(f, first)
	require.Zero(t, room("a", 1))
	require.Equal(t, 266, room("b", 2))
	relay.Take(f, claims(2, 2, "b", 266))
	require.Equal(t, 134, room("c", 3), "all of bulk's 800")
	relay.Take(f, append(claims(3, 3, "c", 134), claims(-1, 3, "", 200)...)) // one lease of both
	require.Zero(t, room("d", 4))
	require.Zero(t, activities())
	require.Empty(t, relay.Drop(f, append(first[:100:100], claims(9, 99, "a", 3)...)))
	require.Equal(t, 100, activities(), "activities may have what bulk does not use")
	require.Equal(t, []int64{1}, relay.Drop(f, first[100:]))
	require.Equal(t, 400, room("a", 1))
}

// untilLate waits until a call may no longer send its messages, or ctx ends.
func untilLate(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil && !errors.Is(sender.Check(ctx), sender.ErrLate) {
		<-tick.C
	}
}

// A call that waits for its provider learns that its lease could not be renewed before it sends. That is no call: neither
// an attempt nor a failure of the provider.
func TestRelay_CallsLearnThatTheirLeaseIsNotRenewed(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	id := b.job(t, "default", 1, 1)
	waits, late, again := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	var called atomic.Int64
	s := &script{answer: func(ctx context.Context, _ sender.Delivery) sender.Result {
		if called.Add(1) > 1 {
			return sender.Result{Class: sender.Accepted}
		}
		waits <- struct{}{}
		untilLate(ctx)
		close(late)
		<-again
		return sender.Result{Class: sender.Retryable, Untried: true}
	}}
	c, fcm := config("r"), push(s)
	c.Lease, c.StatementTimeout, fcm.Retry.Attempts = 6*time.Second, 2*time.Second, 1
	run := b.start(t, c, []relay.Sender{fcm})
	<-waits
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	tag, err := tx.Exec(t.Context(), `SELECT FROM belfry.leases FOR UPDATE`)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
	<-late
	_, err = tx.Exec(t.Context(), `UPDATE belfry.leases SET expires_at = clock_timestamp() + interval '30 minutes'`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	close(again)
	b.eventually(t, `SELECT status = 'SENT' FROM belfry.messages WHERE job_id = $1`, id)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.attempts`))
	run.end(t)
}

// A call that has waited for its provider, although its lease is long, rechecks its messages before it sends: an abort that returned in the
// meantime is obeyed.
func TestRelay_LateCallsObeyAnAbort(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	id := b.job(t, "default", 1, 1)
	waits, aborted := make(chan struct{}, 1), make(chan struct{})
	s := &script{answer: func(ctx context.Context, _ sender.Delivery) sender.Result {
		waits <- struct{}{}
		<-aborted
		untilLate(ctx)
		if !errors.Is(sender.Check(ctx), sender.ErrLate) { // again
			return sender.Result{Class: sender.Unknown}
		}
		return sender.Result{Class: sender.Retryable, Untried: true}
	}}
	c := config("r")
	c.Lease, c.StatementTimeout = 10*time.Minute, 2*time.Second
	run := b.start(t, c, []relay.Sender{push(s)})
	<-waits
	b.exec(t, `SELECT belfry.abort($1, 'kim', 'a typing error')`, id)
	close(aborted)
	b.eventually(t, `SELECT status = 'PENDING' FROM belfry.messages WHERE job_id = $1`, id)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.attempts`))
	run.end(t)
}

// A call that still waits for its provider when the relay stops is not made: its message returns without an attempt.
func TestRelay_LateCallsObeyAStop(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.job(t, "default", 1, 1)
	waits := make(chan struct{}, 1)
	s := &script{answer: func(ctx context.Context, _ sender.Delivery) sender.Result {
		waits <- struct{}{}
		untilLate(ctx)
		if ctx.Err() != nil {
			return sender.Result{Class: sender.Unknown}
		}
		return sender.Result{Class: sender.Retryable, Untried: true}
	}}
	c := config("r")
	c.Lease, c.StatementTimeout, c.GracePeriod = 10*time.Minute, 2*time.Second, 10*time.Second
	run := b.start(t, c, []relay.Sender{push(s)})
	<-waits
	run.end(t)
	require.Equal(t, map[string]int{"PENDING": 1}, b.statuses(t))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.attempts`))
}

// Of one call, a message that the client had no time to try is sent again, and has no attempt.
func TestRelay_UntriedMessagesAreSentAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.job(t, "default", 1, 10)
	var mu sync.Mutex
	tried := make(map[int64]bool)
	s := &script{max: 10, answer: func(_ context.Context, d sender.Delivery) sender.Result {
		mu.Lock()
		defer mu.Unlock()
		if d.ChannelID > 5 && !tried[d.ChannelID] {
			tried[d.ChannelID] = true
			return sender.Result{Class: sender.Retryable, Untried: true}
		}
		return sender.Result{Class: sender.Accepted}
	}}
	fcm := push(s)
	fcm.Retry.Attempts = 1
	b.drain(t, config("r"), fcm)
	require.Equal(t, map[string]int{"SENT": 10}, b.statuses(t))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.attempts`))
	require.Len(t, s.all(), 15)
}
