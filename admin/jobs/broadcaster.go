package jobs

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/rate"
	"github.com/belfryhq/belfry/job"
)

const (
	// watchMost is the maximum number of jobs of a watch.
	watchMost = 100
	// retainedEvents is the number of events that a snapshot retains for watches that missed earlier ones.
	retainedEvents = 1_000
	// watchDeadline bounds one snapshot, and the outage of the database that a watch survives.
	watchDeadline = 30 * time.Second
	// minInterval is the interval between snapshots while operations follow each other.
	minInterval = 100 * time.Millisecond
)

// Broadcaster shares snapshots of jobs and events among the watches of a process, so that many watches
// cost the database no more than one. A snapshot follows the previous one after an interval, or earlier
// after an operation (Changed). A Broadcaster is safe for concurrent use. It starts no goroutine: a
// watch that waits for the next snapshot reads it.
type Broadcaster struct {
	every  time.Duration
	read   func(ctx context.Context, env *operation.Env, ids []int64, active bool) (reading, error)
	events func(ctx context.Context, env *operation.Env) ([]job.NewEvent, error)

	turn  chan struct{}  // full while a watch uses the fields up to paces
	begun time.Time      // start of the last snapshot
	last  *snapshot      // nil before the first one
	fresh []job.NewEvent // not in a snapshot yet
	paces map[int64]*paces

	mu        sync.Mutex
	ids       map[int64]int // the number of watches by job
	active    int           // the number of watches of active jobs
	followers int           // the number of watches of events
	changedAt time.Time     // the end of the last operation that changed something
	changed   chan struct{} // closed by the next one
}

// reading is the data of a snapshot.
type reading struct {
	states []JobState
	why    map[int64]delivery.Standstill
	active []int64
}

// snapshot is the state of jobs at one time, with recent events. It is immutable.
type snapshot struct {
	seq      int64
	query    query
	active   []int64
	jobs     map[int64]WatchedJob
	toRadius map[int64]bool // jobs with an audience in a radius
	events   []numberedEvent
}

// numberedEvent is an event with the number of the first snapshot that contains it.
type numberedEvent struct {
	job.NewEvent

	seq int64
}

// query selects the content of a snapshot.
type query struct {
	ids    []int64
	active bool // jobs that are running or being delivered
	events bool // new events, with active also their jobs
}

// paces are the rates of one job.
type paces struct{ walk, delivery, chunks rate.Meter }

// NewBroadcaster returns a Broadcaster with a minimum interval between snapshots.
func NewBroadcaster(every time.Duration) *Broadcaster {
	var events job.NewEvents
	return &Broadcaster{
		every: every, read: readSnapshot, turn: make(chan struct{}, 1),
		ids: make(map[int64]int), paces: make(map[int64]*paces), changed: make(chan struct{}),
		events: func(ctx context.Context, env *operation.Env) ([]job.NewEvent, error) {
			return events.Poll(ctx, env.Jobs)
		},
	}
}

// Changed implements operation.Notifier.
func (b *Broadcaster) Changed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changedAt = time.Now()
	close(b.changed)
	b.changed = make(chan struct{})
}

// due returns the time until the next snapshot may begin, and a channel that the next change closes.
// The caller holds the turn.
func (b *Broadcaster) due() (wait time.Duration, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	every := b.every
	if b.changedAt.After(b.begun) {
		every = min(every, minInterval)
	}
	return every - time.Since(b.begun), b.changed
}

// register adds a watch of q (by is 1), or removes it (by is -1).
func (b *Broadcaster) register(q query, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q.active {
		b.active += by
	}
	if q.events {
		b.followers += by
	}
	for _, id := range q.ids {
		if b.ids[id] += by; b.ids[id] == 0 {
			delete(b.ids, id)
		}
	}
}

// registered returns the union of the queries of all watches.
func (b *Broadcaster) registered() query {
	b.mu.Lock()
	defer b.mu.Unlock()
	return query{slices.Sorted(maps.Keys(b.ids)), b.active > 0, b.followers > 0}
}

// next returns the first snapshot newer than seq that covers q.
func (b *Broadcaster) next(ctx context.Context, env *operation.Env, seq int64, q query) (*snapshot, error) {
	for {
		select {
		case b.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		wait, changed := b.due()
		var err error
		switch {
		case b.last == nil || wait <= 0:
			err, wait = b.snap(ctx, env), 0
		case b.last.seq > seq && b.last.covers(q):
			wait = 0
		}
		found := b.last
		<-b.turn
		switch {
		case err != nil:
			return nil, err
		case wait <= 0:
			return found, nil
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

// snap reads the next snapshot. The caller holds the turn.
func (b *Broadcaster) snap(ctx context.Context, env *operation.Env) error {
	b.begun = time.Now()
	q := b.registered()
	if q.events {
		events, err := b.events(ctx, env)
		if err != nil {
			return err
		}
		b.fresh = append(b.fresh, events...) // the next snapshot has them if this one fails
		b.fresh = b.fresh[max(0, len(b.fresh)-retainedEvents):]
	}
	ids := q.ids
	if q.active {
		ids = slices.Concat(ids, jobsOf(b.fresh))
	}
	read, err := b.read(ctx, env, ids, q.active)
	if err != nil {
		return err
	}
	next := &snapshot{seq: 1, query: q, active: read.active, jobs: make(map[int64]WatchedJob), toRadius: make(map[int64]bool)}
	if b.last != nil {
		next.seq, next.events = b.last.seq+1, b.last.events
	}
	next.events = slices.Clip(next.events[max(0, len(next.events)+len(b.fresh)-retainedEvents):])
	for _, e := range b.fresh {
		next.events = append(next.events, numberedEvent{e, next.seq})
	}
	b.fresh = nil
	before, now := b.paces, env.Time()
	b.paces = make(map[int64]*paces, len(read.states))
	for _, s := range read.states {
		p := before[s.ID]
		if p == nil {
			p = new(paces)
		}
		b.paces[s.ID] = p
		next.toRadius[s.ID] = s.Audience.Kind == channels.KindRadius
		next.jobs[s.ID] = watched(s, read.why[s.ID], p, now)
	}
	b.last = next
	return nil
}

// jobsOf returns the ids of the jobs of events, the newest first, at most as many as a watch shows.
func jobsOf(events []job.NewEvent) (ids []int64) {
	for _, e := range slices.Backward(events) {
		id, err := strconv.ParseInt(e.Name, 10, 64)
		if e.Subject != job.SubjectJob || err != nil || slices.Contains(ids, id) {
			continue
		}
		if ids = append(ids, id); len(ids) == watchMost {
			break
		}
	}
	return ids
}

// covers reports whether the snapshot contains the result of q.
func (s *snapshot) covers(q query) bool {
	for _, id := range q.ids {
		if _, found := s.jobs[id]; !found && !slices.Contains(s.query.ids, id) {
			return false
		}
	}
	return (s.query.active || !q.active) && (s.query.events || !q.events)
}

// since returns the events of the snapshots after number seq. With seq 0, it returns the events after
// the position, or none without a position.
func (s *snapshot) since(seq int64, position *eventPosition) (events []job.NewEvent) {
	for _, e := range s.events {
		if seq > 0 && e.seq > seq || seq == 0 && position != nil && e.After(position.ActPosition) {
			events = append(events, e.NewEvent)
		}
	}
	return events
}

// readSnapshot reads jobs with the reasons why their messages wait, and if active is set the active jobs.
// It omits the content and the audience of jobs.
func readSnapshot(ctx context.Context, env *operation.Env, ids []int64, active bool) (r reading, err error) {
	ctx, cancel := context.WithTimeout(ctx, watchDeadline)
	defer cancel()
	if active {
		err = db.InTx(ctx, env.DB, db.Options{Limit: watchDeadline, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, queries.activeJobs, pgx.StrictNamedArgs{"limit": watchMost})
			if err != nil {
				return err
			}
			r.active, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
		if err != nil {
			return r, err
		}
	}
	ids = slices.Concat(ids, r.active)
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) == 0 {
		return r, nil
	}
	jobs, err := env.Jobs.GetAll(ctx, ids)
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
	unsent, err := delivery.UnsentJobs(ctx, env.DB, ids, len(ids))
	if err != nil {
		return r, err
	}
	r.why = make(map[int64]delivery.Standstill, len(unsent))
	for _, u := range unsent {
		r.why[u.JobID] = c.Standstill(u, env.Time())
	}
	return r, nil
}
