package relay

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/outbox"
)

// postgres is the Transport that reads belfry.message_rows itself: one statement selects and claims
// messages. Activities come first, then jobs by turns of their lanes. Each claim continues at the end
// of the previous one; occasional claims from the beginning find messages that became due behind that
// position. A claim examines a bounded number of messages, so that messages that this relay cannot take
// delay the others by few claims, however many they are. Dispatchers use it to find messages to push.
//
// With Config.Retries last, retries are a second walk over the same jobs with its own positions, which
// claims when the first walk finds nothing to claim.
type postgres struct {
	postgresOptions
	tries     outbox.Tries
	later     *postgres // the walk of retries; nil if this is that walk
	jobs      map[int64]*work
	order     []*work // most urgent first
	lanes     []laneWork
	turn      int // index into lanes of the next one
	refreshed time.Time
	began     time.Time // of the last sweep over all jobs from the beginning
	searched  struct {  // for messages that became due, if there are many jobs
		at, next time.Time     // of the last search; not searched before
		took     time.Duration // to read the time of the next message
	}
	more       bool            // this pass did not reach all jobs
	starved    bool            // this pass skipped a job without credits
	probed     map[string]bool // lanes whose last turn went to a job that had run out
	again      time.Time       // when this pass continues with messages that it has not examined; zero: not
	idleness   idleness
	activities struct {
		sweep  sweep
		swept  bool            // by the last claim
		recent outbox.Position // of the next claim of messages that became due lately
		next   time.Time       // these are not claimed before
		last   time.Time       // time of the last claim or search, or the end of the pause after a failure
		hints  int64           // before the last claim
		looked bool            // by the last pass
		full   bool            // more may be due
	}

	mu       sync.Mutex
	progress bool           // outcomes since a drain's last pass may make more messages due
	settled  map[int64]bool // jobs with recorded outcomes
}

// postgresOptions are the parts of the relay that the transport uses.
type postgresOptions struct {
	ledger  *outbox.Ledger
	claims  claims
	config  func() Config
	drain   bool
	rest    time.Duration // at most, where hints are heard
	hears   func() bool   // hints
	hints   *atomic.Int64 // that arrived
	resting func(bool)    // called when polling pauses or resumes
	// act executes a statement with a timeout. A soft stop does not interrupt it, because the result of
	// its COMMIT would be unknown.
	act       func(func(context.Context) error) error
	pass      func() error // at the beginning of each pass, for tests
	name      string       // of the relay, for the log
	transport string       // for the log, too: itself, or the carrier whose dispatcher it is of
	log       zerolog.Logger
}

// A claims interface claims due messages: a Ledger's claims send them, a dispatcher's push their ids.
type claims interface {
	ClaimJob(ctx context.Context, jobID int64, after outbox.Position, limit int, tries outbox.Tries) ([]outbox.Claimed, outbox.Position, error)
	ClaimActivities(ctx context.Context, after outbox.Position, within time.Duration, limit int,
		tries outbox.Tries) ([]outbox.Claimed, outbox.Position, error)
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
		progress: true, settled: make(map[int64]bool), idleness: idleness{pending: true},
	}
}

// String implements Transport.
func (p *postgres) String() string { return p.transport }

// Settled implements Transport: a job with a recorded outcome may be delivered, and a drain makes
// another pass, unless no sender took the recorded messages.
func (p *postgres) Settled(_ context.Context, outcomes []outbox.Settled) error {
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
		case s.Reason == outbox.ReasonNoSender, s.Reason == outbox.ReasonSenderBusy, s.Reason == outbox.ReasonSenderPaused,
			s.Reason == outbox.ReasonBreakerOpen:
		default:
			p.progress = true
		}
	}
	return nil
}

// forgetSettled drops settled jobs for which another relay is responsible.
func (p *postgres) forgetSettled() {
	p.mu.Lock()
	clear(p.settled)
	p.mu.Unlock()
}

// Receive implements Transport.
func (p *postgres) Receive(ctx context.Context, credits outbox.Credits) ([]outbox.Claimed, error) {
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
			return nil, outbox.ErrNothingDue
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
			p.idleness.woken, p.idleness.pending = true, true
		}
		p.stir()
	}
	return nil, ctx.Err()
}

// claim makes one claim that finds messages, if any does. If retries come last, it claims retries when
// all other checked messages are not due.
func (p *postgres) claim(ctx context.Context, credits outbox.Credits) ([]outbox.Claimed, error) {
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
	p.more, p.starved, p.again = p.later.more, p.starved || p.later.starved, earlier(p.again, p.later.again)
	return found, err
}

// walk claims activities, or else messages of the jobs in turn.
func (p *postgres) walk(ctx context.Context, credits outbox.Credits) ([]outbox.Claimed, error) {
	p.again = time.Time{}
	if p.activities.full { // bulk has a claim in between, however many there are
		p.activities.full = false
		if found, err := p.claimBulk(ctx, credits); err != nil || len(found) > 0 {
			return found, err
		}
	}
	found, failed := p.claimActivities(credits)
	if len(found) > 0 {
		return found, failed
	}
	found, err := p.claimBulk(ctx, credits) // also after a failure: a slow claim of activities does not stop bulk
	p.more = p.more || p.drain && !p.again.IsZero()
	return found, errors.Join(failed, err)
}

// late is how long after its due time an activity can be committed and still be found by the next
// claim. A sweep finds later ones.
const late = 3 * time.Second

// longestRest is the longest pause between two sweeps. An activity that is not found while it is recent, such
// as one that became due during a halt, waits for a whole sweep and this pause at most.
const longestRest = 30 * time.Second

// sweep is a pass over all due activities, from the first one, in as many claims as that takes. Claims of
// recent activities alternate with these claims: a new activity does not wait for the end of a sweep.
type sweep struct {
	at    outbox.Position
	began time.Time
	next  time.Time     // not claimed before
	took  time.Duration // by its claims, except those that reached their limit
	long  bool          // it contains more messages that this relay cannot take than one claim examines
}

// step records a claim of n messages, limit at most, that began at a time and reached a position.
func (s *sweep) step(began time.Time, next outbox.Position, n, limit int) {
	now := time.Now()
	if s.at == (outbox.Position{}) {
		s.began, s.took, s.long = began, 0, false
	}
	s.at, s.next = next, now
	if n < limit {
		s.took += now.Sub(began)
	}
	switch {
	case next.More && n < limit:
		s.next, s.long = now.Add(now.Sub(began)), true
	case !next.More:
		s.at, s.next = outbox.Position{}, now.Add(min(max(time.Second, 20*s.took)-now.Sub(s.began), longestRest))
	}
}

func (p *postgres) claimActivities(credits outbox.Credits) (found []outbox.Claimed, err error) {
	a, config := &p.activities, p.config()
	began := time.Now()
	limit := min(config.Batch, credits.Activities())
	hints := p.hints.Load()
	if soon := a.last.Add(config.PollInterval / 20); hints != a.hints && soon.Before(a.next) {
		a.next = soon // bulk keeps a relay busy, and does not delay an activity that has just been announced
		p.again = earlier(p.again, a.next)
	}
	recent := !began.Before(a.next) && !p.drain
	a.looked = recent || p.drain || !began.Before(a.sweep.next)
	if !a.looked || limit <= 0 {
		return nil, nil
	}
	a.last, a.hints, a.swept = began, hints, !recent || !began.Before(a.sweep.next) && !a.swept
	from, within := a.recent, late
	if a.swept {
		from, within = a.sweep.at, 0
	}
	var next outbox.Position
	err = p.act(func(ctx context.Context) error {
		found, next, err = p.claims.ClaimActivities(ctx, from, within, limit, p.tries)
		return err
	})
	if err != nil { // bulk is to have its turn
		a.next = time.Now().Add(max(time.Second, time.Since(began)))
		a.last = a.next // no hint shortens this pause
		if a.swept {
			a.sweep.next = a.next.Add(3 * time.Since(began))
		}
		return nil, err
	}
	a.full = len(found) == limit
	if a.swept {
		a.sweep.step(began, next, len(found), limit)
	}
	switch {
	case a.swept && next.More:
		p.again = a.sweep.next
	case !next.More:
		a.recent, a.next = outbox.Position{}, time.Now().Add(config.PollInterval/4)
	default:
		a.recent, a.next = next, time.Now()
		if !a.full {
			a.next = a.next.Add(time.Since(began))
		}
		p.again = a.next
	}
	if a.sweep.at.More {
		p.again = earlier(p.again, a.sweep.next)
	}
	return found, nil
}

// earlier returns the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// drained is called when a drain has found nothing with nothing in flight. The drain ends, or a pass
// over everything follows.
func (p *postgres) drained() bool {
	p.mu.Lock()
	over := !p.progress
	p.progress = false
	p.mu.Unlock()
	p.fresh()
	return over
}

// fresh makes the next pass read everything from the beginning.
func (p *postgres) fresh() {
	now := time.Now()
	p.began, p.refreshed, p.activities.next, p.activities.sweep, p.activities.swept = now, time.Time{}, time.Time{}, sweep{}, false
	for _, w := range p.order {
		w.rescan(now)
		w.ready = time.Time{}
	}
	if p.later != nil {
		p.later.fresh()
	}
}

// manyJobs is the number of jobs from which on sweeps are so rare that the relay searches in between for messages
// that became due.
const manyJobs = 50

// look makes the next pass find what became due: by a sweep or, if there are many jobs and the last sweep was
// lately, by a search.
func (p *postgres) look() {
	if len(p.order) < manyJobs || time.Since(p.began) >= p.cost() {
		p.fresh()
		return
	}
	p.refreshed, p.activities.next, p.searched.next = time.Time{}, time.Time{}, time.Time{}
}

// search makes those of many jobs ready whose messages became due since the last search.
func (p *postgres) search() {
	began := time.Now()
	if p.later == nil || len(p.order) < manyJobs || began.Before(p.searched.next) {
		return
	}
	var due []int64
	err := p.act(func(ctx context.Context) (err error) {
		due, err = p.ledger.Due(ctx, min(began.Sub(p.searched.at), time.Minute)+late)
		return err
	})
	p.searched.next = time.Now().Add(max(time.Second, 20*time.Since(began)))
	if err != nil { // claims go on, and the next search covers the time of this one, too
		p.log.Warn().Err(err).Msg("jobs with due messages are not searched")
		return
	}
	p.searched.at = began
	for _, id := range due {
		for _, w := range []*work{p.jobs[id], p.later.jobs[id]} {
			if w != nil && w.empty > 0 && !w.after.More && !w.held {
				w.rescan(began)
				w.ready, w.dry = time.Time{}, false
			}
		}
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
	p.setJobs(list)
	p.later.setJobs(list)
	p.mu.Lock()
	maps.DeleteFunc(p.settled, func(id int64, _ bool) bool { return p.jobs[id] == nil })
	p.mu.Unlock()
	return nil
}

// setJobs sets the jobs of the walk and retains the positions of known jobs.
func (p *postgres) setJobs(list []outbox.Candidate) {
	known := p.jobs
	p.refreshed = time.Now()
	p.jobs, p.order = make(map[int64]*work, len(list)), p.order[:0]
	for _, c := range list {
		w := known[c.JobID]
		if w == nil {
			w = &work{rescanned: p.refreshed}
		}
		w.Candidate = c
		p.jobs[c.JobID] = w
		p.order = append(p.order, w)
	}
	p.lanes = byLane(p.order)
}
