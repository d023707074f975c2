package relay

import (
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

const (
	// calmPasses is the number of passes without a result before a transport rests.
	calmPasses = 5
	// restAtMost is the longest rest of a transport that receives hints (Relay.rest), and blindAtMost
	// of a transport that does not: it finds messages that were committed without a hint at its end.
	restAtMost  = 10 * time.Second
	blindAtMost = time.Second
)

// idleness is the state of a transport between its first pass without a result and its rest.
//
//	passes find nothing, calmPasses of them
//	  │ read when the next message is due, then make one more pass, over everything
//	  ▼
//	sleeping until then, a hint or restAtMost ──► one pass over everything ──► …
//
// That pass finds claimable messages that are due by the returned time. Messages that are due later end
// the sleep. Messages that are committed later come with a hint: their own, or the hint of an activity
// that was being committed at the same time, after which the calm passes follow.
//
// With many jobs a pass over everything takes long, and is made more rarely (cost). The other passes read activities,
// and the jobs whose messages became due (search).
type idleness struct {
	calm     int           // consecutive passes that found nothing
	next     time.Time     // when the next message is due, if asked
	asked    bool          // next was read
	blind    time.Duration // duration of the last sleep without hints
	sleeping bool
	woken    bool // by a hint or a change, not by time
	pending  bool // a wake-up that no pass and read of next has followed
}

// calm is called after a pass that found nothing, idle when it began, and returns the pause before the
// next. No event signals that a sender has credits again for a waiting job.
func (p *postgres) calm(credits outbox.Credits, idle bool) time.Duration {
	pause := p.config().PollInterval / 2
	if !p.again.IsZero() {
		pause = max(min(pause, time.Until(p.again)), time.Millisecond)
	}
	if !idle || !credits.Idle() || p.starved || p.long() {
		p.idleness = idleness{blind: p.idleness.blind, pending: p.idleness.pending}
		return pause
	}
	if p.idleness.calm++; p.idleness.calm < calmPasses {
		return p.soon(pause)
	}
	if !p.idleness.asked {
		if err := p.planSleep(); err != nil {
			p.idleness = idleness{}
			return time.Second
		}
		p.look()
		return 0
	}
	sleep := p.rest
	if !p.hears() {
		p.idleness.blind = min(max(2*p.idleness.blind, pause), blindAtMost)
		sleep = p.idleness.blind
	}
	if !p.idleness.next.IsZero() {
		sleep = min(sleep, time.Until(p.idleness.next))
	}
	cost := p.cost()
	if len(p.order) >= manyJobs { // only a search may follow
		cost = min(cost, 20*p.searched.took)
	}
	sleep = max(sleep, cost, time.Millisecond)
	p.idleness.sleeping = true
	p.resting(true)
	return sleep
}

// long reports whether more due messages that this relay cannot take are left than one claim examines. It
// does not rest then, because the pass over everything that precedes a rest would take long.
func (p *postgres) long() bool {
	return p.activities.sweep.long || slices.ContainsFunc(p.order, func(w *work) bool { return w.long }) ||
		p.later != nil && p.later.long()
}

// soon shortens a pause before a calm pass, so that an activity announced by a hint is found when it is
// due and not up to a pause later. It costs one more read and pass for each pass that follows a hint,
// or that follows the previous due time, and finds nothing. At most twenty passes per PollInterval
// follow hints.
func (p *postgres) soon(pause time.Duration) time.Duration {
	a := &p.activities
	if p.idleness.pending && !a.looked {
		a.next = a.last.Add(p.config().PollInterval / 20)
		return max(min(pause, time.Until(a.next)), time.Millisecond)
	}
	passed := !p.idleness.next.IsZero() && time.Until(p.idleness.next) <= 0
	if p.idleness.pending || passed {
		if p.idleness.pending = p.readNext() != nil; p.idleness.pending {
			return min(pause, time.Second)
		}
		a.next = time.Time{} // messages that became due since the pass, up to the returned time
		return time.Millisecond
	}
	if p.idleness.next.IsZero() || time.Until(p.idleness.next) >= pause {
		return pause
	}
	if p.idleness.next.Before(a.next) {
		a.next = p.idleness.next
	}
	return max(time.Until(p.idleness.next), time.Millisecond)
}

// planSleep reads when the next message is due, before a rest.
func (p *postgres) planSleep() error {
	p.idleness.asked = true
	began := time.Now()
	defer func() { p.searched.took = time.Since(began) }()
	return p.readNext()
}

func (p *postgres) readNext() error {
	p.idleness.next = time.Time{}
	return p.act(func(ctx context.Context) error {
		wait, ok, err := p.ledger.Next(ctx)
		if ok { // counted from the reply: a pass must not come before that time
			p.idleness.next = time.Now().Add(min(wait, time.Hour) + 2*time.Millisecond)
		}
		return err
	})
}

// cost is the minimum interval of sweeps over everything: they skip over dead index entries.
func (p *postgres) cost() time.Duration {
	sum := p.atLeast()
	for _, w := range p.order {
		sum += min(20*w.took, longestRest)
	}
	if p.later != nil {
		sum += p.later.cost()
	}
	return sum
}

// busy ends idleness. An earlier hint may have been about more messages than were found.
func (p *postgres) busy() {
	p.idleness = idleness{pending: true}
	p.resting(false)
}

// stir ends a sleep. A sleep that time has ended continues after a pass that finds nothing.
func (p *postgres) stir() {
	slept, woken := p.idleness.sleeping, p.idleness.woken
	p.idleness.sleeping, p.idleness.woken = false, false
	if !slept {
		return
	}
	if woken || p.planSleep() != nil {
		p.busy()
	}
	p.look()
}
