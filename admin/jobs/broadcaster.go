package jobs

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

const (
	// watchMost is the number of jobs that one poll reads because they run, or because of new events.
	watchMost = 100
	// eventsKept is the number of events that are stored for streams that are slower than the polls.
	eventsKept = 1_000
	// pollsKept is the number of polls after which a job that no poll reads any more is forgotten. A stream
	// that does not read for so long has failed its write deadline.
	pollsKept = 100
	// watchDeadline bounds one poll, and the time that a stream outlives an unavailable database.
	watchDeadline = 30 * time.Second
	// minInterval is the shortest interval between two polls while acts follow each other.
	minInterval = 100 * time.Millisecond
)

// Broadcaster polls jobs and events for all streams of a process. At most once per interval, and at once after
// an act through this process (Changed), one of the waiting streams polls for all of them, so that many
// streams load the database no more than one. Without streams there are no polls. It is safe for concurrent
// use and starts no goroutine.
type Broadcaster struct {
	interval time.Duration
	read     func(ctx context.Context, env *operation.Env, ids []int64) (reading, error)
	events   func(ctx context.Context, env *operation.Env) ([]newEvent, error)

	turn     chan struct{} // its holder polls and uses the fields below
	polledAt time.Time
	seq      int64             // the number of successful polls
	asked    []int64           // the ids that the last poll was to read
	active   []int64           // at the last poll
	jobs     map[int64]seenJob // read by the last polls
	recent   []seenEvent       // the newest events, the oldest first
	pending  []newEvent        // events of a poll that failed afterwards
	speeds   map[int64]*paces

	mu        sync.Mutex
	named     map[int64]int // the number of streams that name each job
	changedAt time.Time
	changed   chan struct{} // closed by the next call of Changed
}

// reading is what one poll reads of jobs.
type reading struct {
	states []JobState
	why    map[int64]delivery.Standstill
	active []int64
}

// seenJob is a job with the number of the last poll that read it.
type seenJob struct {
	WatchedJob

	seq    int64
	news   int64 // the last poll that read it because it runs, ran, or has a new event; zero if none did
	radius bool  // its audience is a radius
}

// seenEvent is an event with the number of the poll that found it.
type seenEvent struct {
	newEvent

	seq int64
}

// paces are the speeds of one job.
type paces struct{ walk, delivery lifecycle.Meter }

// NewBroadcaster returns a Broadcaster that polls at most once per interval.
func NewBroadcaster(interval time.Duration) *Broadcaster {
	var events newEvents
	return &Broadcaster{
		interval: interval, read: readWatched, turn: make(chan struct{}, 1), jobs: make(map[int64]seenJob),
		named: make(map[int64]int), changed: make(chan struct{}),
		events: func(ctx context.Context, env *operation.Env) ([]newEvent, error) {
			return events.poll(ctx, env.DB)
		},
	}
}

// Changed has the streams poll soon, because this process has changed something.
func (b *Broadcaster) Changed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changedAt = time.Now()
	close(b.changed)
	b.changed = make(chan struct{})
}

// due returns the time until the next poll. The caller holds the turn.
func (b *Broadcaster) due() (wait time.Duration, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	interval := b.interval
	if b.changedAt.After(b.polledAt) {
		interval = min(interval, minInterval)
	}
	return interval - time.Since(b.polledAt), b.changed
}

// name has each poll read the jobs, by = 1, or not any more, by = -1.
func (b *Broadcaster) name(ids []int64, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if b.named[id] += by; b.named[id] == 0 {
			delete(b.named, id)
		}
	}
}

// next waits until a poll that is newer than s.seq has read the jobs of s, and returns the update of s.
func (b *Broadcaster) next(ctx context.Context, env *operation.Env, s *subscription) (u Update, err error) {
	for {
		select {
		case b.turn <- struct{}{}:
		case <-ctx.Done():
			return u, ctx.Err()
		}
		wait, changed := b.due()
		if wait <= 0 {
			err = b.poll(ctx, env)
		}
		fresh := err == nil && (wait <= 0 || b.seq > s.seq && b.covers(s.ids))
		if fresh {
			u, err = b.update(env, s)
		}
		<-b.turn
		if fresh || err != nil {
			return u, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// covers reports whether the last poll was to read the jobs. The caller holds the turn.
func (b *Broadcaster) covers(ids []int64) bool {
	return !slices.ContainsFunc(ids, func(id int64) bool { return b.jobs[id].seq != b.seq && !slices.Contains(b.asked, id) })
}

// poll reads new events and the jobs that streams name, that run or did at the last poll, or that the events
// are about. The caller holds the turn.
func (b *Broadcaster) poll(ctx context.Context, env *operation.Env) error {
	b.polledAt = time.Now()
	b.mu.Lock()
	named := slices.Collect(maps.Keys(b.named))
	b.mu.Unlock()
	events, err := b.events(ctx, env)
	if err != nil {
		return err
	}
	b.pending = newest(append(b.pending, events...))
	news := slices.Concat(b.active, jobsOf(b.pending))
	read, err := b.read(ctx, env, slices.Concat(named, news))
	if err != nil {
		return err
	}
	news = append(news, read.active...)
	b.seq++
	b.asked, b.active = named, read.active
	for _, e := range b.pending {
		b.recent = append(b.recent, seenEvent{e, b.seq})
	}
	b.recent, b.pending = newest(b.recent), nil
	before, now := b.speeds, env.Time()
	b.speeds = make(map[int64]*paces, len(read.states))
	for _, s := range read.states {
		b.speeds[s.ID] = cmp.Or(before[s.ID], new(paces))
		j := seenJob{watched(s, read.why[s.ID], b.speeds[s.ID], now), b.seq, b.jobs[s.ID].news, s.Audience.Kind == channels.KindRadius}
		if slices.Contains(news, s.ID) {
			j.news = b.seq
		}
		b.jobs[s.ID] = j
	}
	maps.DeleteFunc(b.jobs, func(id int64, j seenJob) bool {
		return j.seq < b.seq-pollsKept || j.seq < b.seq && slices.Contains(named, id) // no longer in the database
	})
	return nil
}

// newest returns the last eventsKept events.
func newest[E any](events []E) []E { return events[max(0, len(events)-eventsKept):] }

// jobsOf returns the jobs of the newest events, watchMost at most.
func jobsOf(events []newEvent) (ids []int64) {
	for _, e := range slices.Backward(events) {
		if id := e.JobID(); id != 0 && len(ids) < watchMost && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// readWatched reads the jobs, those that run or are being delivered, and why their messages wait.
func readWatched(ctx context.Context, env *operation.Env, ids []int64) (r reading, err error) {
	ctx, cancel := context.WithTimeout(ctx, watchDeadline)
	defer cancel()
	err = db.InTx(ctx, env.DB, db.Options{Limit: watchDeadline, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
		r.active, err = db.Column[int64](ctx, tx, queries.activeJobs, pgx.StrictNamedArgs{"limit": watchMost})
		return err
	})
	if err != nil {
		return r, err
	}
	ids = append(ids, r.active...)
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) == 0 {
		return r, nil
	}
	jobs, err := env.Jobs.Summaries(ctx, ids)
	if err != nil {
		return r, err
	}
	if r.states, err = JobStates(ctx, env.DB, jobs); err != nil {
		return r, err
	}
	c, err := delivery.CarriersOf(ctx, env)
	if err != nil {
		return r, err
	}
	unsent, err := delivery.UnsentJobs(ctx, env.DB, ids, max(len(ids), 1))
	if err != nil {
		return r, err
	}
	r.why = make(map[int64]delivery.Standstill, len(unsent))
	for _, u := range unsent {
		r.why[u.JobID] = c.Standstill(u, env.Time())
	}
	return r, nil
}
