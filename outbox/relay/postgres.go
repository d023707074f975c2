package relay

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/outbox"
)

// postgres is the Transport that reads belfry.messages itself: taking an id and claiming it
// are one statement. Activities come first, then jobs by turns of their lanes. Each claim
// goes on where the one before it ended; what became due behind that is found by claims from
// the beginning, far between. It is also how a dispatcher finds what is to be pushed.
//
// With Config.Retries last, retries are a second walk over the same jobs, with positions of its
// own, which claims when the first one has found nothing that it may take.
type postgres struct {
	postgresOptions
	tries      outbox.Tries
	later      *postgres // the walk of retries; nil: it is that
	jobs       map[int64]*work
	order      []*work // most urgent first
	lanes      []string
	turn       int // index into lanes of the next one
	refreshed  time.Time
	more       bool            // the present pass did not get to all jobs
	starved    bool            // the present pass left out a job for want of credits
	probed     map[string]bool // lanes whose last turn went to a job that had run out
	lull       lull
	activities struct {
		since     time.Time // claims go on from here
		rescanned time.Time
		took      time.Duration
		next      time.Time // not claimed before
		last      time.Time // when they were claimed, or looked for
		looked    bool      // by the last pass
		full      bool      // as many may be due again
	}

	mu       sync.Mutex
	progress bool           // something was recorded since a drain looked last that may be followed by more
	settled  map[int64]bool // jobs of which something was recorded
}

// postgresOptions are what the transport has from its relay.
type postgresOptions struct {
	ledger  *outbox.Ledger
	claims  claims
	config  func() Config
	drain   bool
	rest    time.Duration // at most, where hints are heard
	hears   func() bool   // hints
	resting func(bool)    // is told when it asks for nothing for a while
	// act makes a statement, with its deadline. A soft stop does not cut it short: whether it
	// was committed would not be known.
	act       func(func(context.Context) error) error
	pass      func() error // at the beginning of each pass, for tests
	name      string       // of the relay, for the log
	transport string       // for the log, too: itself, or the carrier whose dispatcher it is of
	log       zerolog.Logger
}

// claims take due messages: a Ledger's, to send them, or a dispatcher's, to push their ids.
type claims interface {
	ClaimJob(ctx context.Context, jobID int64, after outbox.Position, limit int, tries outbox.Tries) ([]outbox.Claimed, outbox.Position, error)
	ClaimActivities(ctx context.Context, since time.Time, limit int, tries outbox.Tries) ([]outbox.Claimed, time.Time, error)
}

func newPostgres(options postgresOptions) *postgres {
	p := newWalk(options)
	p.later = newWalk(options)
	p.later.tries = outbox.LaterTry
	return p
}

func newWalk(options postgresOptions) *postgres {
	return &postgres{
		postgresOptions: options, jobs: make(map[int64]*work), probed: make(map[string]bool),
		progress: true, settled: make(map[int64]bool), lull: lull{heard: true},
	}
}

// String implements Transport.
func (p *postgres) String() string { return p.transport }

// Settled implements Transport: a job of which something was recorded may be delivered, and
// a drain looks once more, unless no sender took what was recorded.
func (p *postgres) Settled(_ context.Context, outcomes []Settled) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range outcomes {
		s := &outcomes[i]
		if s.JobID > 0 {
			p.settled[s.JobID] = true
		}
		switch {
		case s.Status != outbox.Pending:
			p.progress = true
		case s.Reason == outbox.ReasonNoSender, s.Reason == outbox.ReasonSenderBusy, s.Reason == outbox.ReasonSenderPaused, s.Reason == outbox.ReasonBreakerOpen:
		default:
			p.progress = true
		}
	}
	return nil
}

// forgetSettled drops what was heard by Settled of jobs that another relay looks after.
func (p *postgres) forgetSettled() {
	p.mu.Lock()
	clear(p.settled)
	p.mu.Unlock()
}

// Receive implements Transport.
func (p *postgres) Receive(ctx context.Context, credits Credits) ([]outbox.Claimed, error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		idle := credits.Idle()
		found, err := p.claim(ctx, credits)
		if len(found) > 0 {
			p.busy()
		}
		if len(found) > 0 || err != nil {
			return found, err
		}
		var pause time.Duration
		switch {
		case p.more:
			continue
		case !p.drain:
			pause = p.calm(credits, idle)
		case idle && p.drained():
			return nil, ErrNothingDue
		case idle:
			continue
		default:
			pause = p.config().PollInterval / 2
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-credits.Changed():
			p.lull.woken, p.lull.heard = true, true
		}
		p.stir()
	}
	return nil, ctx.Err()
}

// claim makes one claim that finds something, if any does: of retries, where they come last,
// if all others that it looked at are not due.
func (p *postgres) claim(ctx context.Context, credits Credits) ([]outbox.Claimed, error) {
	if err := p.pass(); err != nil {
		return nil, err
	}
	last := p.config().Retries == RetriesLast
	p.tries = outbox.AnyTry
	if last {
		p.tries = outbox.FirstTry
	}
	found, err := p.walk(ctx, credits)
	if !last || p.more || len(found) > 0 || err != nil {
		return found, err
	}
	found, err = p.later.walk(ctx, credits)
	p.more, p.starved = p.later.more, p.starved || p.later.starved
	return found, err
}

// walk claims activities, or else of the jobs in turn.
func (p *postgres) walk(ctx context.Context, credits Credits) ([]outbox.Claimed, error) {
	if p.activities.full { // bulk has a claim in between, however many there are
		p.activities.full = false
		if found, err := p.claimBulk(ctx, credits); err != nil || len(found) > 0 {
			return found, err
		}
	}
	found, err := p.claimActivities(credits)
	if err != nil || len(found) > 0 {
		return found, err
	}
	return p.claimBulk(ctx, credits)
}

// late is how long after its due time an activity may be committed and still be found
// by the next claim. A rescan finds what is later.
const late = 3 * time.Second

func (p *postgres) claimActivities(credits Credits) (found []outbox.Claimed, err error) {
	a, config := &p.activities, p.config()
	began := time.Now()
	limit := min(config.Batch, credits.Activities())
	if a.looked = !began.Before(a.next) || p.drain; !a.looked || limit <= 0 {
		return nil, nil
	}
	a.last = began
	since := a.since.Add(-late)
	if a.since.IsZero() || p.drain || began.Sub(a.rescanned) >= max(time.Second, 20*a.took) {
		since, a.rescanned = time.Time{}, began
	}
	var next time.Time
	err = p.act(func(ctx context.Context) error {
		found, next, err = p.claims.ClaimActivities(ctx, since, limit, p.tries)
		return err
	})
	if since.IsZero() {
		a.took = time.Since(began)
	}
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		a.since = next
	}
	if a.full = len(found) == limit; !a.full {
		a.next = time.Now().Add(config.PollInterval / 4)
	}
	return found, nil
}

// drained is called when a drain has found nothing with nothing in flight: it is over, or one
// pass over everything follows.
func (p *postgres) drained() bool {
	p.mu.Lock()
	over := !p.progress
	p.progress = false
	p.mu.Unlock()
	p.fresh()
	return over
}

// fresh has the next pass look at everything from the beginning.
func (p *postgres) fresh() {
	now := time.Now()
	p.refreshed, p.activities.next, p.activities.rescanned = time.Time{}, time.Time{}, time.Time{}
	for _, w := range p.order {
		w.rescan(now)
		w.ready = time.Time{}
	}
	if p.later != nil {
		p.later.fresh()
	}
}

// refresh reads which jobs have messages to send.
func (p *postgres) refresh() error {
	if p.later == nil {
		return nil // the first walk has just read it
	}
	if now := time.Now(); now.Sub(p.refreshed) < max(p.config().PollInterval, p.atLeast()/50) {
		return nil
	}
	var list []outbox.Candidate
	if err := p.act(func(ctx context.Context) (err error) {
		list, err = p.ledger.Candidates(ctx)
		return err
	}); err != nil {
		return err
	}
	p.over(list)
	p.later.over(list)
	p.mu.Lock()
	maps.DeleteFunc(p.settled, func(id int64, _ bool) bool { return p.jobs[id] == nil })
	p.mu.Unlock()
	return nil
}

// over has the walk go over these jobs, on from where it was in those that it knows.
func (p *postgres) over(list []outbox.Candidate) {
	known := p.jobs
	p.refreshed = time.Now()
	p.jobs, p.order, p.lanes = make(map[int64]*work, len(list)), p.order[:0], p.lanes[:0]
	for _, c := range list {
		w := known[c.JobID]
		if w == nil {
			w = &work{rescanned: p.refreshed}
		}
		w.Candidate = c
		p.jobs[c.JobID] = w
		p.order = append(p.order, w)
		p.lanes = append(p.lanes, c.Lane)
	}
	slices.Sort(p.lanes)
	p.lanes = slices.Compact(p.lanes)
}
