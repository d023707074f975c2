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

// watchMost is how many jobs one watch shows.
const watchMost = 100

// newsKept is how many events are kept for those that did not see the look that found them.
const newsKept = 1_000

// watchDeadline bounds one look, and how long the database may not answer.
const watchDeadline = 30 * time.Second

// soonest is between looks while acts follow each other.
const soonest = 100 * time.Millisecond

// Watches is what every watch of a process shares: one looks for all of them, no sooner than a
// span after the look before, so that many cost the database no more than one; after an act at
// once (Acted). It is safe for concurrent use, and starts nothing: who wants to know looks.
type Watches struct {
	every time.Duration
	read  func(ctx context.Context, env *operation.Env, ids []int64, underWay bool) (watchReading, error)
	news  func(ctx context.Context, env *operation.Env) ([]job.NewEvent, error)

	turn  chan struct{}  // whose it is looks, and has what follows
	begun time.Time      // the last look
	last  *looked        // nil: none yet
	fresh []job.NewEvent // that no look has told of yet
	paces map[int64]*paces

	mu     sync.Mutex
	ids    map[int64]int // that are watched, and by how many
	others int           // how many watch whatever is under way
	follow int           // how many are told of what is new
	actAt  time.Time     // the last act
	acted  chan struct{} // is closed by the next act
}

// watchReading is what a look reads.
type watchReading struct {
	states   []JobState
	why      map[int64]delivery.Standstill
	underWay []int64
}

// looked is what a look found. It is not changed any more.
type looked struct {
	number   int64
	ids      map[int64]bool // that were looked for
	others   bool           // what is under way was looked for
	follows  bool           // what is new was looked for
	underWay []int64
	jobs     map[int64]WatchedJob
	toRadius map[int64]bool // of jobs
	news     []numbered     // of this look and of those before, as far as they are kept
}

// numbered is an event, and the look that found it.
type numbered struct {
	job.NewEvent

	number int64
}

// wanted is what a look is to be of.
type wanted struct {
	ids      []int64
	underWay bool // whatever is under way
	news     bool // whatever is new
}

// paces are those of one job.
type paces struct{ walk, delivery, chunks rate.Meter }

// NewWatches returns Watches whose looks are so long apart, at least.
func NewWatches(every time.Duration) *Watches {
	var news job.NewEvents
	return &Watches{
		every: every, read: readWatched, turn: make(chan struct{}, 1),
		ids: make(map[int64]int), paces: make(map[int64]*paces), acted: make(chan struct{}),
		news: func(ctx context.Context, env *operation.Env) ([]job.NewEvent, error) { return news.Poll(ctx, env.Jobs) },
	}
}

// Acted tells that something was changed: whoever watches is to see it at once. On nil it does
// nothing.
func (w *Watches) Acted() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actAt = time.Now()
	close(w.acted)
	w.acted = make(chan struct{})
}

// due is in how long the next look may be. It is the caller's turn.
func (w *Watches) due() (wait time.Duration, act <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	every := w.every
	if w.actAt.After(w.begun) {
		every = min(every, soonest)
	}
	return every - time.Since(w.begun), w.acted
}

// watch counts a watch in, or out.
func (w *Watches) watch(what wanted, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if what.underWay {
		w.others += by
	}
	if what.news {
		w.follow += by
	}
	for _, id := range what.ids {
		if w.ids[id] += by; w.ids[id] == 0 {
			delete(w.ids, id)
		}
	}
}

// watched is what is watched by anybody.
func (w *Watches) watched() wanted {
	w.mu.Lock()
	defer w.mu.Unlock()
	return wanted{slices.Sorted(maps.Keys(w.ids)), w.others > 0, w.follow > 0}
}

// look returns a look after the one of a number, which is of what is wanted.
func (w *Watches) look(ctx context.Context, env *operation.Env, told int64, what wanted) (*looked, error) {
	for {
		select {
		case w.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		wait, act := w.due()
		var err error
		switch {
		case w.last == nil || wait <= 0:
			err, wait = w.lookAgain(ctx, env), 0
		case w.last.number > told && w.last.covers(what):
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
		case <-act:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// lookAgain looks. It is the caller's turn.
func (w *Watches) lookAgain(ctx context.Context, env *operation.Env) error {
	w.begun = time.Now()
	what := w.watched()
	if what.news {
		news, err := w.news(ctx, env)
		if err != nil {
			return err
		}
		w.fresh = append(w.fresh, news...) // a look that fails now leaves them to the next
		w.fresh = w.fresh[max(0, len(w.fresh)-newsKept):]
	}
	news := w.fresh
	var concerned []int64
	if what.underWay {
		concerned = jobsOf(news)
	}
	read, err := w.read(ctx, env, slices.Concat(what.ids, concerned), what.underWay)
	if err != nil {
		return err
	}
	w.fresh = nil
	next := &looked{
		number: 1, ids: make(map[int64]bool), others: what.underWay, follows: what.news,
		underWay: read.underWay, jobs: make(map[int64]WatchedJob), toRadius: make(map[int64]bool),
	}
	if w.last != nil {
		next.number = w.last.number + 1
		next.news = w.last.news
	}
	next.news = slices.Clip(next.news[max(0, len(next.news)+len(news)-newsKept):])
	for _, e := range news {
		next.news = append(next.news, numbered{e, next.number})
	}
	for _, id := range what.ids {
		next.ids[id] = true
	}
	before, now := w.paces, env.Time()
	w.paces = make(map[int64]*paces, len(read.states))
	for _, s := range read.states {
		p := before[s.ID]
		if p == nil {
			p = new(paces)
		}
		w.paces[s.ID] = p
		next.toRadius[s.ID] = s.Audience.Kind == channels.KindRadius
		next.jobs[s.ID] = WatchJob(s, read.why[s.ID], p, now)
	}
	w.last = next
	return nil
}

// jobsOf are the jobs that events tell of, no more than one watch shows: the last ones.
func jobsOf(news []job.NewEvent) (ids []int64) {
	for _, e := range slices.Backward(news) {
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

// covers reports whether it is of what is wanted.
func (l *looked) covers(what wanted) bool {
	for _, id := range what.ids {
		if _, found := l.jobs[id]; !found && !l.ids[id] {
			return false
		}
	}
	return (l.others || !what.underWay) && (l.follows || !what.news)
}

// since are the events of the looks after the one of a number; of none, those after a place, and
// without one none.
func (l *looked) since(told int64, place *actPosition) (news []job.NewEvent) {
	for _, e := range l.news {
		if told > 0 && e.number > told || told == 0 && place != nil && e.After(place.ActPosition) {
			news = append(news, e.NewEvent)
		}
	}
	return news
}

// readWatched reads jobs and what keeps their messages, and which are under way. What a job
// says and who gets it is not of interest.
func readWatched(ctx context.Context, env *operation.Env, ids []int64, underWay bool) (r watchReading, err error) {
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
	}
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
