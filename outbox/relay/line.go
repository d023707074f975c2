package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/sender"
)

// item is a composed message in a sender's line.
type item struct {
	*compose.Composed
	since time.Time // when it joined
}

// line is what waits for one sender, activities before bulk, in memory and bounded. What
// it cannot take, and what has waited too long, is put off: PENDING again, due in turn.
type line struct {
	relay  *Relay
	client sender.Sender
	limits *limits

	mu         sync.Mutex
	config     SenderConfig
	activities []item
	bulk       []item
	calling    int // calls that are allowed and not ended
	handing    int // groups that are being handed over

	coming atomic.Int64  // messages that are claimed and expected to join
	wake   chan struct{} // size 1: something joined, a call ended, a limit changed
}

func newLine(r *Relay, s Sender, reserve float64) *line {
	return &line{
		relay: r, client: s.Client, config: s.SenderConfig, wake: make(chan struct{}, 1),
		limits: newLimits(s.SenderConfig, s.Client.MaxBatch(), reserve, r.log),
	}
}

func (l *line) settings() SenderConfig {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.config
}

func (l *line) reload(c SenderConfig, reserve float64) {
	l.mu.Lock()
	l.config = c
	l.mu.Unlock()
	l.limits.configure(c, reserve, time.Now())
	l.rouse()
}

// rouse has the line look again.
func (l *line) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// waiting counts what is in the line.
func (l *line) waiting() (activities, bulk int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.activities), len(l.bulk)
}

// wants is how many more bulk messages the line would take now.
func (l *line) wants(now time.Time) int {
	if reason, _ := l.limits.blocked(now); reason != "" {
		return 0
	}
	_, bulk := l.waiting()
	return max(0, l.depth()-bulk-int(l.coming.Load()))
}

// depth is how many bulk messages may wait in the line.
func (l *line) depth() int { return l.limits.deepest(l.relay.hand.portion(l.relay.settings())) }

// roomy reports whether the line has run half empty.
func (l *line) roomy(now time.Time) bool {
	return l.wants(now) >= min(l.relay.settings().Batch, (l.depth()+1)/2)
}

// join adds messages, or puts off those that the line cannot take, and returns how many.
// In a drain all join: nothing else is waiting to be claimed instead of them.
func (l *line) join(items []*compose.Composed, now time.Time) (putOff int) {
	if reason, after := l.limits.blocked(now); reason != "" {
		l.putOff(items, reason, after, now)
		return len(items)
	}
	depth, excess := l.depth(), []*compose.Composed(nil)
	if l.relay.draining.Load() {
		depth = l.relay.settings().MaxInHand
	}
	l.mu.Lock()
	for _, c := range items {
		switch {
		case c.Claimed.JobID < 0 && len(l.activities) < depth:
			l.activities = append(l.activities, item{c, now})
		case c.Claimed.JobID > 0 && len(l.bulk) < depth:
			l.bulk = append(l.bulk, item{c, now})
		default:
			excess = append(excess, c)
		}
	}
	l.mu.Unlock()
	l.rouse()
	if len(excess) > 0 {
		l.putOff(excess, outbox.ReasonSenderBusy, 0, now)
	}
	return len(excess)
}

// putOff settles messages PENDING as they were, due in turn at the sender's pace:
// activities in turns of their own.
func (l *line) putOff(items []*compose.Composed, reason outbox.Reason, after time.Duration, now time.Time) {
	var kinds [2][]*compose.Composed // activities, bulk
	for _, c := range items {
		kind := 0
		if c.Claimed.JobID > 0 {
			kind = 1
		}
		kinds[kind] = append(kinds[kind], c)
	}
	settlements := make([]outbox.Settlement, 0, len(items))
	for kind, list := range kinds {
		if len(list) == 0 {
			continue
		}
		start, span := l.limits.queueUp(len(list), kind == 1, after, now)
		for _, c := range list {
			settlements = append(settlements, deferred(c.Claimed, reason, start+time.Duration(l.relay.random()*float64(span))))
		}
	}
	l.relay.books.add(settlements...)
}

// deferred puts a message back without an attempt.
func deferred(c outbox.Claimed, reason outbox.Reason, pause time.Duration) outbox.Settlement {
	return outbox.Settlement{Claimed: c, To: outbox.Pending, Reason: reason, NextStep: c.Step, NextAttempts: c.Attempts, Wait: pause}
}

// longestQueued is how long a message may wait in a line: its content, its recipient's
// wishes and address were read when it joined.
const longestQueued = 15 * time.Second

// clear puts off what a blocked sender's line holds, and what has waited too long. A
// drain gives the latter back instead, to claim and compose it anew.
func (l *line) clear(now time.Time) {
	blocked, after := l.limits.blocked(now)
	limit := longestQueued
	if blocked != "" {
		limit = 0
	}
	var out []*compose.Composed
	old := func(queue []item) []item {
		n := 0
		for n < len(queue) && now.Sub(queue[n].since) >= limit {
			out = append(out, queue[n].Composed)
			n++
		}
		return shift(queue, n)
	}
	l.mu.Lock()
	l.activities, l.bulk = old(l.activities), old(l.bulk)
	l.mu.Unlock()
	switch {
	case len(out) == 0:
	case blocked != "":
		l.putOff(out, blocked, after, now)
	case l.relay.draining.Load():
		for _, c := range out {
			l.relay.books.add(outbox.Release(c.Claimed))
		}
	default:
		l.putOff(out, outbox.ReasonSenderBusy, 0, now)
	}
}

// shift drops the first n of a queue without keeping what they point to.
func shift(queue []item, n int) []item {
	clear(queue[:n])
	if n == len(queue) {
		return queue[:0]
	}
	return queue[n:]
}

// call is one call of the sender, allowed and not yet made.
type call struct {
	permit
	items []item
}

// take takes what may be sent now out of the line, at most limit messages.
func (l *line) take(limit int, now time.Time) (calls []call, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ready := min(len(l.activities)+len(l.bulk), l.limits.free())
	if ready == 0 || l.handing > 0 && ready < fewest {
		return nil, time.Second
	}
	permits, pause := l.limits.admit(len(l.activities), len(l.bulk), limit, now)
	for _, p := range permits {
		queue := &l.activities
		if p.bulk {
			queue = &l.bulk
		}
		calls = append(calls, call{p, append(make([]item, 0, p.n), (*queue)[:p.n]...)})
		*queue = shift(*queue, p.n)
	}
	if len(calls) > 0 {
		l.calling += len(calls)
		l.handing++
	}
	return calls, pause
}

// fewest is how many messages are worth a second hand-over at the same time: it takes
// two round trips and a COMMIT, in which the next group gathers.
const fewest = 64

// handed ends a hand-over.
func (l *line) handed() {
	<-l.relay.handing
	l.mu.Lock()
	l.handing--
	l.mu.Unlock()
	l.rouse()
}

// end returns the permit of a call that began then. No results: it was not made.
func (l *line) end(c call, results []sender.Result, began time.Time) {
	now := time.Now()
	l.limits.end(c.permit, results, now.Sub(began), now)
	l.mu.Lock()
	l.calling--
	wanted := len(l.activities)+len(l.bulk) > 0
	l.mu.Unlock()
	if wanted {
		l.rouse()
	}
}

// run hands over what the limits allow until ctx is cancelled and nothing joins any
// more, and gives back what is left. Its calls outlive it: the relay waits for them.
func (l *line) run(ctx, hard context.Context, joined <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			<-joined
			l.giveBack()
			return
		case <-l.wake:
		case <-timer.C:
		}
		pause := l.serve(ctx, hard)
		timer.Reset(pause)
	}
}

// serve hands over groups until the line is empty or a limit is reached, and says when
// to look again.
func (l *line) serve(ctx, hard context.Context) time.Duration {
	for ctx.Err() == nil {
		l.clear(time.Now())
		if a, b := l.waiting(); a+b == 0 {
			return time.Second
		}
		// The hand-over's turn comes first: while others have it, what is allowed grows.
		select {
		case l.relay.handing <- struct{}{}:
		case <-ctx.Done():
			return 0
		}
		calls, pause := l.take(l.relay.settings().Batch, time.Now())
		if len(calls) == 0 {
			<-l.relay.handing
			return pause
		}
		l.relay.inFlight.Go(func() { l.deliver(hard, calls) })
	}
	return 0
}

// giveBack settles what was not handed over as it was.
func (l *line) giveBack() {
	l.mu.Lock()
	queue := append(l.activities, l.bulk...) //nolint:gocritic // both are dropped
	l.activities, l.bulk = nil, nil
	l.mu.Unlock()
	for _, it := range queue {
		l.relay.books.add(outbox.Release(it.Claimed))
	}
}
