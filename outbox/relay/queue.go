package relay

import (
	"context"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay/judge"
	"github.com/belfryhq/belfry/outbox/relay/limit"
	"github.com/belfryhq/belfry/outbox/sender"
)

// item is a composed message in a sender's queue.
type item struct {
	*outbox.Composed
	since time.Time // when it was enqueued
}

// queue holds the waiting messages of one sender in memory, bounded, activities before bulk. Messages
// that do not fit, or wait for too long, are deferred: PENDING again and due in turn.
type queue struct {
	relay  *Relay
	client sender.Sender
	limits *limit.Limits

	answers, confirmations judge.Streaks // to calls, and in receipts
	probes                 probes

	mu         sync.Mutex
	config     SenderConfig
	activities []item
	bulk       []item
	calling    int // calls that are allowed and not ended
	handing    int // groups that are being handed over

	sent, failed         int64 // results of calls
	sentRate, failedRate lifecycle.Meter

	woken chan struct{} // size 1: something was enqueued, a call ended, a limit changed
}

func newQueue(r *Relay, s Sender, reserve float64) *queue {
	return &queue{
		relay: r, client: s.Client, config: s.SenderConfig, woken: make(chan struct{}, 1),
		limits: limit.New(s.SenderConfig.limits(), s.Client.MaxBatch(), reserve, r.log),
	}
}

func (q *queue) settings() SenderConfig {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.config
}

func (q *queue) reload(c SenderConfig, reserve float64) {
	q.mu.Lock()
	q.config = c
	q.mu.Unlock()
	q.limits.Configure(c.limits(), reserve, time.Now())
	q.wake()
}

// wake makes the queue check its messages again.
func (q *queue) wake() {
	select {
	case q.woken <- struct{}{}:
	default:
	}
}

// waiting returns the number of queued messages.
func (q *queue) waiting() (activities, bulk int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.activities), len(q.bulk)
}

// grants returns the number of further bulk messages that the queue takes, of which it may hold share.
func (q *queue) grants(share int, now time.Time) int {
	if reason, _ := q.limits.Blocked(now); reason != "" {
		return 0
	}
	_, bulk := q.waiting()
	return q.limits.Depth(share) - bulk
}

// enqueue adds messages and defers messages beyond the queue's bound or the relay's bound on texts. In a
// drain a queue has no bound: no other message waits to be claimed instead.
func (q *queue) enqueue(messages []*outbox.Composed, share int, now time.Time) {
	if reason, after := q.limits.Blocked(now); reason != "" {
		q.deferAll(messages, reason, after, now)
		return
	}
	depth, excess := q.limits.Depth(share), []*outbox.Composed(nil)
	if q.relay.draining.Load() {
		depth = q.relay.settings().MaxInFlight
	}
	reserve := q.relay.settings().ActivityShare
	var waits []*outbox.Composed // for a sample of their job
	q.mu.Lock()
	for _, c := range messages {
		p, activity := q.probes.of(c.Claimed.JobID), c.Claimed.JobID < 0
		to := &q.bulk
		if activity {
			to = &q.activities
		}
		switch {
		case p != nil && !p.Has(c.Claimed.Key):
			waits = append(waits, c)
		case len(*to) >= depth || q.relay.content.full(activity, reserve):
			excess = append(excess, c)
		default:
			q.relay.content.add(c)
			*to = append(*to, item{c, now})
		}
	}
	q.mu.Unlock()
	q.wake()
	for _, c := range waits {
		withoutText(c)
		q.relay.outcomes.add(outbox.Release(c.Claimed))
	}
	q.later(excess, now)
}

// later defers messages for which there is no room or no time. A drain returns them instead, so that
// they are claimed and composed again.
func (q *queue) later(messages []*outbox.Composed, now time.Time) {
	if !q.relay.draining.Load() {
		q.deferAll(messages, outbox.ReasonSenderBusy, 0, now)
		return
	}
	for _, c := range messages {
		withoutText(c)
		q.relay.outcomes.add(outbox.Release(c.Claimed))
	}
}

// deferAll records messages PENDING, due in turn at the sender's pace. Activities and bulk have
// separate turns.
func (q *queue) deferAll(messages []*outbox.Composed, reason outbox.Reason, after time.Duration, now time.Time) {
	var kinds [2][]*outbox.Composed // activities, bulk
	for _, c := range messages {
		withoutText(c)
		kind := 0
		if c.Claimed.JobID > 0 {
			kind = 1
		}
		kinds[kind] = append(kinds[kind], c)
	}
	settlements, name := make([]outbox.Settlement, 0, len(messages)), q.settings().Name
	for kind, list := range kinds {
		if len(list) == 0 {
			continue
		}
		start, span := q.limits.NextTurns(len(list), kind == 1, after, now)
		for _, c := range list {
			s := deferred(c.Claimed, reason, start+time.Duration(q.relay.random()*float64(span)))
			s.Sender = name
			settlements = append(settlements, s)
		}
	}
	q.relay.outcomes.add(settlements...)
}

// deferred puts a message back without an attempt.
func deferred(c outbox.Claimed, reason outbox.Reason, pause time.Duration) outbox.Settlement {
	return outbox.Settlement{Claimed: c, To: outbox.Pending, Reason: reason, NextStep: c.Step, NextAttempts: c.Attempts, Wait: pause}
}

// longestQueued is the longest wait in a queue: a message's content and its recipient's preferences and
// address were read when it was enqueued.
const longestQueued = 15 * time.Second

// expire defers the messages of a blocked sender, and messages that have waited for too long (later).
func (q *queue) expire(now time.Time) {
	blocked, after := q.limits.Blocked(now)
	limit := longestQueued
	if blocked != "" {
		limit = 0
	}
	var out []*outbox.Composed
	old := func(items []item) []item {
		n := 0
		for n < len(items) && now.Sub(items[n].since) >= limit {
			out = append(out, items[n].Composed)
			n++
		}
		return shift(items, n)
	}
	q.mu.Lock()
	q.activities, q.bulk = old(q.activities), old(q.bulk)
	q.mu.Unlock()
	for _, c := range out {
		q.relay.content.drop(c)
	}
	if blocked != "" {
		q.deferAll(out, blocked, after, now)
		return
	}
	q.later(out, now)
}

// shift removes the first n items and their pointers.
func shift(items []item, n int) []item {
	clear(items[:n])
	if n == len(items) {
		return items[:0]
	}
	return items[n:]
}

// call is an allowed call of the sender that has not been made.
type call struct {
	limit.Permit
	items   []item
	checked time.Time // when the verdicts of the items were read
}

// dequeue removes messages that may be sent now, at most limit.
func (q *queue) dequeue(limit int, now time.Time) (calls []call, pause time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ready := min(len(q.activities)+len(q.bulk), q.limits.Free())
	if ready == 0 || q.handing > 0 && ready < minConcurrentGroup {
		return nil, time.Second
	}
	permits, pause := q.limits.Admit(len(q.activities), len(q.bulk), limit, now)
	for _, p := range permits {
		from := &q.activities
		if p.Bulk {
			from = &q.bulk
		}
		calls = append(calls, call{Permit: p, items: append(make([]item, 0, p.N), (*from)[:p.N]...)})
		*from = shift(*from, p.N)
	}
	if len(calls) > 0 {
		q.calling += len(calls)
		q.handing++
	}
	return calls, pause
}

// minConcurrentGroup is the minimum size of a second concurrent hand-over. A hand-over takes two round
// trips and a COMMIT, in which the next group accumulates.
const minConcurrentGroup = 64

// run hands over messages within the limits until ctx is cancelled and enqueued is closed, and returns
// the remaining messages. Its calls outlive it: the relay waits for them.
func (q *queue) run(ctx, hard context.Context, enqueued <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			<-enqueued
			q.giveBack()
			return
		case <-q.woken:
		case <-timer.C:
		}
		timer.Reset(q.serve(ctx, hard))
	}
}

// serve hands over groups until the queue is empty or a limit is reached, and returns the pause before
// the next call.
func (q *queue) serve(ctx, hard context.Context) time.Duration {
	for ctx.Err() == nil {
		q.expire(time.Now())
		if a, b := q.waiting(); a+b == 0 {
			return time.Second
		}
		// The hand-over's turn comes first: while other queues use it, more messages become allowed.
		select {
		case q.relay.handing <- struct{}{}:
		case <-ctx.Done():
			return 0
		}
		calls, pause := q.dequeue(q.relay.settings().Batch, time.Now())
		if len(calls) == 0 {
			<-q.relay.handing
			return pause
		}
		q.relay.groups.Go(func() { q.handOver(hard, calls) })
	}
	return 0
}

// giveBack returns the messages that were not handed over.
func (q *queue) giveBack() {
	q.mu.Lock()
	items := append(q.activities, q.bulk...) //nolint:gocritic // both are dropped
	q.activities, q.bulk = nil, nil
	q.mu.Unlock()
	for _, it := range items {
		q.relay.content.drop(it.Composed)
		q.relay.outcomes.add(outbox.Release(it.Claimed))
	}
}
