package relay

import (
	"context"
	"time"
)

const (
	// channel is what the database notifies when there may be messages to send, now or later.
	channel = "belfry_messages"
	// calmPasses is how many looks find nothing before a relay rests.
	calmPasses = 5
	// restAtMost is how long a relay that hears hints rests (Relay.rest), and blindAtMost one
	// that does not: what committed without a hint waits for the end.
	restAtMost  = 10 * time.Second
	blindAtMost = time.Second
)

// lull is how far a feed that finds nothing has come to ask for nothing.
//
//	passes find nothing, calmPasses of them
//	  │ ask when the next message is due, then make one pass more, over everything
//	  ▼
//	sleeping until then, a hint or restAtMost ──► one pass over everything ──► …
//
// What is due by the answer's time and can be claimed is found by that pass, what falls due
// later ends the sleep, and what commits later comes with a hint.
type lull struct {
	calm     int           // passes in a row that found nothing
	next     time.Time     // when the next message is due, once it was asked for
	asked    bool          // next is set
	blind    time.Duration // how long the last sleep without hints was
	sleeping bool
	woken    bool // by something else than time
}

// calm is called after a pass that found nothing and says how long to wait for the next.
func (f *feed) calm(ctx context.Context, pause time.Duration) time.Duration {
	r, now := f.relay, time.Now()
	if r.draining.Load() || !f.idle || !r.idle() || f.held(now) {
		f.lull = lull{blind: f.lull.blind}
		return pause
	}
	if f.lull.calm++; f.lull.calm < calmPasses {
		return pause
	}
	if !f.lull.asked {
		if err := f.askNext(ctx); err != nil {
			f.lull = lull{}
			return time.Second
		}
		f.fresh()
		return 0
	}
	sleep := r.rest
	if !r.ears.Load().Listening() {
		f.lull.blind = min(max(2*f.lull.blind, pause), blindAtMost)
		sleep = f.lull.blind
	}
	if !f.lull.next.IsZero() {
		sleep = min(sleep, f.lull.next.Sub(now))
	}
	sleep = max(sleep, f.cost(), time.Millisecond)
	f.lull.sleeping = true
	r.resting.Store(true)
	return sleep
}

// askNext reads when the next message is due.
func (f *feed) askNext(ctx context.Context) error {
	f.lull.asked, f.lull.next = true, time.Time{}
	return f.relay.within(ctx, func(ctx context.Context) error {
		began := time.Now()
		wait, ok, err := f.relay.ledger.Next(ctx)
		if ok {
			f.lull.next = began.Add(min(wait, time.Hour) + 2*time.Millisecond)
		}
		return err
	})
}

// held reports that a job waits for a sender that takes nothing now: nobody says when it
// does again.
func (f *feed) held(now time.Time) bool {
	for _, w := range f.order {
		w.mu.Lock()
		full := w.line != nil && !w.line.roomy(now)
		w.mu.Unlock()
		if full {
			return true
		}
	}
	return false
}

// fresh has the next pass look at everything from the beginning.
func (f *feed) fresh() {
	now := time.Now()
	f.refreshed, f.activities.next, f.activities.rescanned = time.Time{}, time.Time{}, time.Time{}
	for _, w := range f.order {
		f.rescan(w, now)
		w.ready = time.Time{}
	}
}

// cost is how long a pass over everything must not be repeated: it steps over what is dead.
func (f *feed) cost() time.Duration {
	sum := f.atLeast()
	for _, w := range f.order {
		sum += 20 * w.took
	}
	return sum
}

// busy ends a lull.
func (f *feed) busy() {
	f.lull = lull{}
	if f.relay.resting.Swap(false) {
		f.relay.beatNow()
	}
}

// stir ends a sleep. One that time has ended goes on after a pass that finds nothing.
func (f *feed) stir(ctx context.Context) {
	slept, woken := f.lull.sleeping, f.lull.woken
	f.lull.sleeping, f.lull.woken = false, false
	if !slept {
		return
	}
	if woken || f.askNext(ctx) != nil {
		f.busy()
	}
	f.fresh()
}

// wake is called at hints: there may be messages, or something about senders has changed.
// One that is at work looks at both soon enough.
func (r *Relay) wake() {
	if r.resting.Load() {
		r.beatNow()
	}
	r.hand.rouse()
}

// beatNow has the heartbeat not wait.
func (r *Relay) beatNow() {
	select {
	case r.roused <- struct{}{}:
	default:
	}
}

// betweenBeats is the pace of the heartbeat: a relay at rest counts as living by two beats
// in the time after which others believe it dead, a third of the lease.
func (r *Relay) betweenBeats() time.Duration {
	lease := r.settings().Lease
	if r.resting.Load() && r.ears.Load().Listening() {
		return lease / 7
	}
	return min(time.Second, lease/9)
}

// expectReceipts has receipts looked for often for a while.
func (r *Relay) expectReceipts() {
	now := time.Now()
	if r.awaited.Swap(now.Add(2*r.settings().Receipts.Interval+time.Second).UnixNano()) < now.UnixNano() {
		select {
		case r.expecting <- struct{}{}:
		default:
		}
	}
}

// betweenReceipts is the pace of the search for receipts.
func (r *Relay) betweenReceipts() time.Duration {
	interval := r.settings().Receipts.Interval
	if r.resting.Load() && time.Now().UnixNano() > r.awaited.Load() {
		return max(min(time.Second, interval/4), min(interval, r.rest))
	}
	return min(time.Second, interval/4)
}
