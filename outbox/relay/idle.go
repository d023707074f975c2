package relay

import (
	"context"
	"time"
)

const (
	// calmPasses is how many passes find nothing before a transport rests.
	calmPasses = 5
	// restAtMost is how long one that hears hints rests (Relay.rest), and blindAtMost one
	// that does not: what committed without a hint waits for the end.
	restAtMost  = 10 * time.Second
	blindAtMost = time.Second
)

// lull is how far a transport that finds nothing has come to ask for nothing.
//
//	passes find nothing, calmPasses of them
//	  │ ask when the next message is due, then make one pass more, over everything
//	  ▼
//	sleeping until then, a hint or restAtMost ──► one pass over everything ──► …
//
// What is due by the answer's time and can be claimed is found by that pass, what falls due
// later ends the sleep, and what commits later comes with a hint: its own, or that of an
// activity that was being committed at the same time, after which there are the calm passes.
type lull struct {
	calm     int           // passes in a row that found nothing
	next     time.Time     // when the next message is due, once it was asked for
	asked    bool          // next is set
	blind    time.Duration // how long the last sleep without hints was
	sleeping bool
	woken    bool // by something else than time
	heard    bool // something else than time, after which nobody has looked and asked for next
}

// calm is called after a pass that found nothing, idle when it began, and says how long to
// wait for the next. Nobody says when a sender has credits again that a job waits for.
func (p *postgres) calm(credits Credits, idle bool) time.Duration {
	pause := p.config().PollInterval / 2
	if !idle || !credits.Idle() || p.starved {
		p.lull = lull{blind: p.lull.blind, heard: p.lull.heard}
		return pause
	}
	if p.lull.calm++; p.lull.calm < calmPasses {
		return p.soon(pause)
	}
	if !p.lull.asked {
		if err := p.askNext(); err != nil {
			p.lull = lull{}
			return time.Second
		}
		p.fresh()
		return 0
	}
	sleep := p.rest
	if !p.hears() {
		p.lull.blind = min(max(2*p.lull.blind, pause), blindAtMost)
		sleep = p.lull.blind
	}
	if !p.lull.next.IsZero() {
		sleep = min(sleep, time.Until(p.lull.next))
	}
	sleep = max(sleep, p.cost(), time.Millisecond)
	p.lull.sleeping = true
	p.resting(true)
	return sleep
}

// soon shortens a pause before a calm pass: an activity that a hint was about is found when it
// falls due, and not up to a pause later. That takes a question and a pass more for each pass
// that follows a hint, or the time that was told before, and finds nothing. Those that follow
// hints are twenty in a PollInterval at most.
func (p *postgres) soon(pause time.Duration) time.Duration {
	a := &p.activities
	if p.lull.heard && !a.looked {
		a.next = a.last.Add(p.config().PollInterval / 20)
		return max(min(pause, time.Until(a.next)), time.Millisecond)
	}
	passed := !p.lull.next.IsZero() && time.Until(p.lull.next) <= 0
	if p.lull.heard || passed {
		if p.lull.heard = p.readNext() != nil; p.lull.heard {
			return min(pause, time.Second)
		}
		a.next = time.Time{} // what fell due since the pass, and is not later than the answer
		return time.Millisecond
	}
	if p.lull.next.IsZero() || time.Until(p.lull.next) >= pause {
		return pause
	}
	if p.lull.next.Before(a.next) {
		a.next = p.lull.next
	}
	return max(time.Until(p.lull.next), time.Millisecond)
}

// askNext reads when the next message is due, before a rest.
func (p *postgres) askNext() error {
	p.lull.asked = true
	return p.readNext()
}

func (p *postgres) readNext() error {
	p.lull.next = time.Time{}
	return p.act(func(ctx context.Context) error {
		wait, ok, err := p.ledger.Next(ctx)
		if ok { // counted from the answer: a pass must not come before the time is reached
			p.lull.next = time.Now().Add(min(wait, time.Hour) + 2*time.Millisecond)
		}
		return err
	})
}

// cost is how long a pass over everything must not be repeated: it steps over what is dead.
func (p *postgres) cost() time.Duration {
	sum := p.atLeast()
	for _, w := range p.order {
		sum += 20 * w.took
	}
	if p.later != nil {
		sum += p.later.cost()
	}
	return sum
}

// busy ends a lull. What was heard before may have been about more than what was found.
func (p *postgres) busy() {
	p.lull = lull{heard: true}
	p.resting(false)
}

// stir ends a sleep. One that time has ended goes on after a pass that finds nothing.
func (p *postgres) stir() {
	slept, woken := p.lull.sleeping, p.lull.woken
	p.lull.sleeping, p.lull.woken = false, false
	if !slept {
		return
	}
	if woken || p.askNext() != nil {
		p.busy()
	}
	p.fresh()
}
