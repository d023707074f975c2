package admin

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/outbox"
)

// watchMost is how many jobs one watch shows.
const watchMost = 100

// watchDeadline bounds one look, and how long the database may not answer.
const watchDeadline = 30 * time.Second

// Watches is what every watch of a process shares: one looks for all of them, no sooner than a
// span after the look before, so that many cost the database no more than one. It is safe for
// concurrent use, and starts nothing: who wants to know looks.
type Watches struct {
	every time.Duration
	read  func(ctx context.Context, env *Env, ids []int64, underWay bool) (watchReading, error)

	turn  chan struct{} // whose it is looks, and has what follows
	begun time.Time     // the last look
	last  *looked       // nil: none yet
	paces map[int64]*paces

	mu     sync.Mutex
	ids    map[int64]int // that are watched, and by how many
	others int           // how many watch whatever is under way
}

// watchReading is what a look reads.
type watchReading struct {
	states   []JobState
	why      map[int64]Standstill
	underWay []int64
}

// looked is what a look found. It is not changed any more.
type looked struct {
	number   int64
	ids      map[int64]bool // that were looked for
	others   bool           // what is under way was looked for
	underWay []int64
	jobs     map[int64]WatchedJob
}

// paces are those of one job.
type paces struct{ walk, delivery printer.Pace }

// NewWatches returns Watches whose looks are so long apart, at least.
func NewWatches(every time.Duration) *Watches {
	return &Watches{
		every: every, read: readWatched, turn: make(chan struct{}, 1),
		ids: make(map[int64]int), paces: make(map[int64]*paces),
	}
}

// watch counts a watch of ids in, or out; of no ids: of whatever is under way.
func (w *Watches) watch(ids []int64, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(ids) == 0 {
		w.others += by
	}
	for _, id := range ids {
		if w.ids[id] += by; w.ids[id] == 0 {
			delete(w.ids, id)
		}
	}
}

// watched is what is watched by anybody.
func (w *Watches) watched() (ids []int64, others bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.ids)), w.others > 0
}

// look returns a look after the one of a number, which knows these ids, and what is under way
// if that is asked for.
func (w *Watches) look(ctx context.Context, env *Env, told int64, ids []int64, others bool) (*looked, error) {
	for {
		select {
		case w.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		wait := w.every - time.Since(w.begun)
		var err error
		switch {
		case w.last == nil || wait <= 0:
			err, wait = w.lookAgain(ctx, env), 0
		case w.last.number > told && w.last.covers(ids, others):
			wait = 0
		}
		found := w.last
		<-w.turn
		switch {
		case err != nil:
			return nil, err
		case wait <= 0:
			return found, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// lookAgain looks. It is the caller's turn.
func (w *Watches) lookAgain(ctx context.Context, env *Env) error {
	w.begun = time.Now()
	ids, others := w.watched()
	read, err := w.read(ctx, env, ids, others)
	if err != nil {
		return err
	}
	next := &looked{number: 1, ids: make(map[int64]bool), others: others, underWay: read.underWay, jobs: make(map[int64]WatchedJob)}
	if w.last != nil {
		next.number = w.last.number + 1
	}
	for _, id := range ids {
		next.ids[id] = true
	}
	before, now := w.paces, env.now()
	w.paces = make(map[int64]*paces, len(read.states))
	for _, s := range read.states {
		p := before[s.ID]
		if p == nil {
			p = new(paces)
		}
		w.paces[s.ID] = p
		next.jobs[s.ID] = watchedJob(s, read.why[s.ID], p, now)
	}
	w.last = next
	return nil
}

// covers reports whether it tells of ids, and of what is under way if that is asked for.
func (l *looked) covers(ids []int64, others bool) bool {
	for _, id := range ids {
		if _, found := l.jobs[id]; !found && !l.ids[id] {
			return false
		}
	}
	return l.others || !others
}

// readWatched reads jobs and what keeps their messages, and which are under way. What a job
// says and who gets it is not of interest.
func readWatched(ctx context.Context, env *Env, ids []int64, underWay bool) (r watchReading, err error) {
	ctx, cancel := context.WithTimeout(ctx, watchDeadline)
	defer cancel()
	if underWay {
		err = db.InTx(ctx, env.DB, db.Options{Limit: watchDeadline, Reads: true}, func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, queries.jobsUnderWay, pgx.StrictNamedArgs{"limit": watchMost})
			if err != nil {
				return err
			}
			r.underWay, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
		if err != nil {
			return r, err
		}
		ids = append(ids, r.underWay...)
		slices.Sort(ids)
		ids = slices.Compact(ids)
	}
	jobs, err := env.Jobs.GetAll(ctx, ids)
	if err != nil {
		return r, err
	}
	if r.states, err = JobStates(ctx, env.DB, jobs); err != nil {
		return r, err
	}
	c, err := CarriersOf(ctx, env)
	if err != nil {
		return r, err
	}
	unsent, err := outbox.UnsentJobs(ctx, env.DB, ids, max(len(ids), 1))
	if err != nil {
		return r, err
	}
	r.why = make(map[int64]Standstill, len(unsent))
	for _, u := range unsent {
		r.why[u.JobID] = c.Standstill(u, env.now())
	}
	return r, nil
}
