package relay

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// work is a job with messages to claim.
type work struct {
	outbox.Candidate
	after     outbox.Position
	rescanned time.Time     // when the walk began at the beginning last
	took      time.Duration // what beginning there has cost
	empty     int           // claims in a row that found nothing
	ready     time.Time     // not claimed from before

	mark  time.Time     // when to ask next whether nothing is left
	pause time.Duration // after that
	quiet int           // the feed's epoch when that was asked last, with nothing in hand

	mu       sync.Mutex
	underway int           // claimed, and not in a line yet
	line     *line         // that most of the last claim went to; nil: none
	patch    time.Duration // how long only that line counts
	patchy   time.Time     // when the job is claimed from whatever the line says
	flows    bool          // of the last claim nothing was put off
	stuck    bool          // of the last claim everything was
}

// feed claims messages, activities first, then bulk by turns of the lanes, within the
// room there is, and sends them on to be composed. It ends with ctx, or in a drain when
// nothing is due.
type feed struct {
	relay      *Relay
	jobs       map[int64]*work
	order      []*work // most urgent first
	lanes      []string
	turn       int // index into lanes of the next one
	refreshed  time.Time
	idle       bool            // a drain had nothing to wait for when the present round began
	more       bool            // the present round did not get to all jobs
	epoch      int             // grows with every claim that finds something
	probed     map[string]bool // lanes whose last turn went to a job that had run out
	lull       lull
	capped     time.Time // when what this drain has put off under a cap is due; zero: nothing is
	activities struct {
		since     time.Time // claims go on from here
		rescanned time.Time
		took      time.Duration
		next      time.Time // not claimed before
		full      bool      // as many may be due again
	}
}

// claims are messages on their way to be composed; from is nil for activities.
type claims struct {
	messages []outbox.Claimed
	from     *work
	main     *line // that expects them; nil: none
}

func (f *feed) run(ctx, hard context.Context, out chan<- claims) {
	r := f.relay
	f.jobs, f.probed, f.epoch = make(map[int64]*work), make(map[string]bool), 1
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for ctx.Err() == nil {
		f.idle = r.idle()
		began := time.Now()
		batch, err := f.claim(ctx, hard)
		spoken := ctx.Err() == nil && r.outage.Tried(began, err)
		pause := r.settings().PollInterval / 2
		switch {
		case ctx.Err() != nil && len(batch.messages) == 0:
			return
		case err != nil:
			if failures++; failures == 1 && !spoken {
				r.log.WithLevel(levelOf(err)).Err(err).Str("worker_id", r.name).Str("transport", transport).Msg("messages are not claimed")
			}
			pause = min(50*time.Millisecond<<min(failures, 5), time.Second)
		case len(batch.messages) > 0:
			failures = 0
			f.epoch++
			f.busy()
			r.composer.Expect(batch.messages)
			out <- batch // a composer takes it: they end after the feed
			continue
		case r.waits():
			if r.draining.Load() {
				return
			}
			failures, f.lull, pause = 0, lull{}, r.rest
			r.resting.Store(true) // hints wake the heartbeat, which looks again
		case f.more:
			failures = 0
			continue
		case r.draining.Load() && f.drained(hard):
			return
		default:
			failures = 0
			pause = f.calm(hard, pause)
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.hand.freed:
			f.lull.woken = true
		}
		f.stir(hard)
	}
}

// claim makes one claim that finds something, if any does. A stop does not cut it short:
// whether it was committed would not be known.
func (f *feed) claim(ctx, hard context.Context) (claims, error) {
	if f.relay.waits() {
		return claims{}, nil
	}
	if err := f.relay.at(hard, pointClaim); err != nil {
		return claims{}, err
	}
	if f.activities.full { // bulk has a claim in between, however many there are
		f.activities.full = false
		if c, err := f.claimBulk(ctx, hard); err != nil || len(c.messages) > 0 {
			return c, err
		}
	}
	found, err := f.claimActivities(hard)
	if err != nil || len(found) > 0 {
		return claims{messages: found}, err
	}
	return f.claimBulk(ctx, hard)
}

// claimBulk makes one claim that finds something, if any does in the time that
// activities can wait.
func (f *feed) claimBulk(ctx, hard context.Context) (claims, error) {
	f.more = false
	if err := f.refresh(hard); err != nil {
		return claims{}, err
	}
	for began := time.Now(); ctx.Err() == nil; {
		w, limit := f.next(time.Now())
		if w == nil {
			break
		}
		if f.more = time.Since(began) > f.relay.settings().PollInterval/4; f.more {
			break // activities do not wait for thousands of jobs without a due message
		}
		found, err := f.claimJob(hard, w, limit)
		if err != nil || len(found) > 0 {
			return claims{messages: found, from: w, main: w.expect(len(found))}, err
		}
	}
	return claims{}, nil
}

// late is how long after its due time an activity may be committed and still be found
// by the next claim. A rescan finds what is later.
const late = 3 * time.Second

func (f *feed) claimActivities(ctx context.Context) (found []outbox.Claimed, err error) {
	r, a, config := f.relay, &f.activities, f.relay.settings()
	began := time.Now()
	limit := min(config.Batch, r.hand.room(config, "", 0, true))
	if began.Before(a.next) && !r.draining.Load() || limit <= 0 {
		return nil, nil
	}
	since := a.since.Add(-late)
	if a.since.IsZero() || f.relay.draining.Load() || began.Sub(a.rescanned) >= max(time.Second, 20*a.took) {
		since, a.rescanned = time.Time{}, began
	}
	var next time.Time
	err = r.within(ctx, func(ctx context.Context) error {
		found, next, err = r.ledger.ClaimActivities(ctx, since, limit)
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
		r.took(found, "", began)
	}
	if a.full = len(found) == limit; !a.full {
		a.next = time.Now().Add(config.PollInterval / 4)
	}
	return found, nil
}

// refresh reads which jobs have messages to send.
func (f *feed) refresh(ctx context.Context) error {
	r := f.relay
	if now := time.Now(); now.Sub(f.refreshed) < max(r.settings().PollInterval, f.atLeast()/50) {
		return nil
	}
	var list []outbox.Candidate
	if err := r.within(ctx, func(ctx context.Context) (err error) {
		list, err = r.ledger.Candidates(ctx)
		return err
	}); err != nil {
		return err
	}
	f.refreshed = time.Now()
	known := f.jobs
	f.jobs, f.order, f.lanes = make(map[int64]*work, len(list)), f.order[:0], f.lanes[:0]
	for _, c := range list {
		w := known[c.JobID]
		if w == nil {
			w = &work{rescanned: f.refreshed}
		}
		w.Candidate = c
		f.jobs[c.JobID] = w
		f.order = append(f.order, w)
		f.lanes = append(f.lanes, c.Lane)
	}
	slices.Sort(f.lanes)
	f.lanes = slices.Compact(f.lanes)
	return nil
}

// atLeast is how long a job without a due message is left alone: two hundred claims a
// second find nothing, however many jobs there are.
func (f *feed) atLeast() time.Duration { return time.Duration(len(f.order)) * 5 * time.Millisecond }

// next is the job to claim from, and how much, in the next lane that has a ready one.
// Zero rows of a claim move on to the next lane, too. In a lane, the most urgent of the
// jobs that have more to claim and the one that has waited longest of those that had run
// out take turns: neither kind starves the other, however many there are.
func (f *feed) next(now time.Time) (*work, int) {
	config := f.relay.settings()
	for range f.lanes {
		lane := f.lanes[f.turn%len(f.lanes)]
		f.turn = (f.turn + 1) % len(f.lanes)
		room := f.relay.hand.room(config, lane, len(f.lanes), false)
		if room < min(config.Batch, max(1, config.MaxInHand/4/(len(f.lanes)+1))) {
			continue // claims in crumbs would cost as much each as whole ones
		}
		if w, n := f.inLane(lane, now, min(room, f.relay.hand.portion(config)), config.Batch); w != nil {
			return w, n
		}
	}
	return nil, 0
}

func (f *feed) inLane(lane string, now time.Time, room, batch int) (*work, int) {
	var flowing, waiting *work
	var most, some int
	for _, w := range f.order {
		switch {
		case w.Lane != lane || now.Before(w.ready):
			continue
		case w.empty == 0 && flowing != nil, w.empty > 0 && waiting != nil && !w.ready.Before(waiting.ready):
			continue
		}
		n := w.limit(now, room, batch)
		switch {
		case n <= 0:
		case w.empty == 0:
			flowing, most = w, n
		default:
			waiting, some = w, n
		}
	}
	if waiting != nil && (flowing == nil || !f.probed[lane]) {
		f.probed[lane] = true
		return waiting, some
	}
	f.probed[lane] = false
	return flowing, most
}

// limit is how many messages of the job to claim: none while the line that the last ones
// went to is full, but now and then, since the next ones may be for another.
func (w *work) limit(now time.Time, room, batch int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.line != nil && !now.After(w.patchy):
		if !w.line.roomy(now) {
			return 0
		}
		return min(room, w.line.wants(now))
	case w.underway == 0 || w.flows && w.underway < 2*batch:
		return room
	}
	return 0
}

// expect notes a claim that is on its way to be composed.
func (w *work) expect(n int) *line {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.underway += n
	if w.line != nil {
		w.line.coming.Add(int64(n))
	}
	return w.line
}

// told is what the composer says about a claim: the line that most of it went to, and
// how many messages were put off at once.
func (c claims) told(main *line, most, putOff int, now time.Time) {
	total := len(c.messages)
	if c.main != nil {
		c.main.coming.Add(-int64(total))
	}
	w := c.from
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.underway -= total
	w.flows, w.stuck = putOff == 0, putOff == total
	switch {
	case 10*most < 9*total:
		w.line, w.patch = nil, 0
	case w.line != main:
		w.line, w.patch, w.patchy = main, time.Second, now.Add(time.Second)
	case now.After(w.patchy):
		w.patch = min(2*w.patch, 30*time.Second)
		w.patchy = now.Add(w.patch)
	}
}

func (f *feed) claimJob(ctx context.Context, w *work, limit int) (found []outbox.Claimed, err error) {
	r := f.relay
	began := time.Now()
	if w.empty > 0 && (began.Sub(w.rescanned) >= max(time.Second, 20*w.took)) {
		f.rescan(w, began)
	}
	whole := w.after == outbox.Position{}
	next := w.after
	err = r.within(ctx, func(ctx context.Context) error {
		found, next, err = r.ledger.ClaimJob(ctx, w.JobID, w.after, limit)
		return err
	})
	if whole {
		w.took += time.Since(began) // it has stepped over what is dead
	}
	if err != nil {
		w.ready = time.Now().Add(time.Second) // the others are to have their turn
		return nil, err
	}
	w.after = next
	if len(found) > 0 {
		w.mark, w.pause = time.Time{}, 0
		r.took(found, w.Lane, began)
	}
	if len(found) == limit {
		w.empty, w.ready = 0, time.Time{}
		return found, nil
	}
	w.empty++
	poll := r.settings().PollInterval
	w.ready = time.Now().Add(max(f.atLeast(), min(poll<<min(w.empty-1, 4), 10*poll, max(poll, time.Second))))
	if len(found) == 0 && whole {
		if !began.Before(w.mark) {
			if f.idle {
				w.quiet = f.epoch
			}
			err = f.delivered(ctx, w, began)
		}
		w.ready = time.Now().Add(max(time.Second, 20*w.took, f.atLeast()))
	}
	return found, err
}

// rescan has the job's next claim begin at the beginning: behind the position are
// messages that were locked, or came back as they were. It costs as much as there are
// dead entries, so its turns are far between.
func (f *feed) rescan(w *work, now time.Time) {
	w.after, w.rescanned, w.took = outbox.Position{}, now, 0
}

// delivered marks a job of which nothing is left, so that nobody looks at it any more.
func (f *feed) delivered(ctx context.Context, w *work, began time.Time) error {
	done := false
	err := f.relay.within(ctx, func(ctx context.Context) (err error) {
		done, err = f.relay.ledger.MarkDelivered(ctx, w.JobID)
		return err
	})
	w.took += time.Since(began)
	w.pause = min(max(2*w.pause, time.Second), time.Minute)
	w.mark = time.Now().Add(w.pause)
	if done {
		f.relay.log.Info().Int64("job_id", w.JobID).Str("worker_id", f.relay.name).Str("transport", transport).Msg("job delivered")
		delete(f.jobs, w.JobID)
		f.order = slices.DeleteFunc(f.order, func(o *work) bool { return o == w })
	}
	return err
}

// drained reports whether a drain is over: nothing is in hand, and nothing is due but
// what no sender takes now.
func (f *feed) drained(ctx context.Context) bool {
	if !f.idle {
		return false
	}
	now := time.Now()
	if wait := f.relay.capped.Swap(0); wait > 0 { // all of it is recorded by now
		if due := now.Add(time.Duration(wait)); due.After(f.capped) {
			f.capped = due
		}
	}
	again := !f.capped.IsZero()
	if now.Before(f.capped) {
		return false
	}
	f.capped, f.refreshed = time.Time{}, time.Time{}
	if f.refresh(ctx) != nil {
		return false
	}
	over := !again
	for _, w := range f.order {
		w.mu.Lock()
		stuck := w.stuck
		w.line = nil
		w.mu.Unlock()
		if !again && (stuck || w.quiet == f.epoch) {
			continue
		}
		f.rescan(w, time.Now())
		w.empty, w.ready, w.mark, over = 0, time.Time{}, time.Time{}, false
	}
	return over
}
