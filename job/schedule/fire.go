package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
)

const (
	// fireTimeout is the timeout of the firing of one schedule without its query.
	fireTimeout = 30 * time.Second
	// fireBudget is the time after which a firing starts no further occurrence, because it locks the row and delays
	// operators who pause the schedule.
	fireBudget = time.Second
	// maxRetryPause is the longest pause between attempts at a failing occurrence.
	maxRetryPause = time.Minute
)

// Firer fires due schedules. Any number of Firers may work on one database. A Firer is safe for concurrent
// use.
type Firer struct {
	pool *pgxpool.Pool
	name string
	log  zerolog.Logger
	away *job.Outage
	crew *crew
	now  func() *time.Time                             // nil means the database's clock
	at   func(ctx context.Context, point string) error // failpoint of tests

	locked rate.Sometimes                      // logs who keeps a due schedule from firing
	age    func(began time.Time) time.Duration // of a transaction; tests set it
}

// Option sets a collaborator of a Firer.
type Option func(*Firer)

// WithLogger sets the logger. Without it a Firer logs nothing.
func WithLogger(log zerolog.Logger) Option { return func(f *Firer) { f.log = log } }

// WithName sets the actor of the events of firings, such as a runner's name. The default is belfry.
func WithName(name string) Option { return func(f *Firer) { f.name = name } }

// WithOutage shares an Outage with other loops of the process.
func WithOutage(o *job.Outage) Option { return func(f *Firer) { f.away = o } }

// WithClock replaces the database's clock, for tests and rehearsals.
func WithClock(now func() time.Time) Option {
	return func(f *Firer) { f.now = func() *time.Time { t := now(); return &t } }
}

// NewFirer returns a Firer over pool, which the caller closes. It uses one connection, and one for each running query. It
// runs queries on a quarter of the pool's connections, at most four.
func NewFirer(pool *pgxpool.Pool, options ...Option) *Firer {
	f := &Firer{
		pool: pool, name: "belfry", log: zerolog.Nop(), crew: newCrew(int(pool.Config().MaxConns)),
		now: func() *time.Time { return nil }, locked: rate.Sometimes{Interval: time.Minute}, age: time.Since,
		at: func(context.Context, string) error { return nil },
	}
	for _, option := range options {
		option(f)
	}
	if f.away == nil {
		f.away = job.NewOutage(f.log)
	}
	return f
}

// Fired is the result of FireDue.
type Fired struct {
	Occurrences []Occurrence // in the order in which they fired
	Skipped     int          // occurrences that were dropped
	Failed      []Failure    // schedules that could not fire now
}

// Occurrence is an occurrence that has fired.
type Occurrence struct {
	Schedule string
	At       time.Time // due time in UTC
	Jobs     []int64   // enqueued jobs; none if the query has no rows
}

// Failure is the reason for which a schedule does not fire. It is also in last_error.
type Failure struct {
	Schedule string
	Err      error
}

// FireDue fires all due schedules, each in its own transaction and schedules with a query concurrently, and
// returns the results. A schedule that fails is in Fired.Failed and is not an error. After an error of the
// database the earlier firings remain, and the next call continues. If no schedule is due it costs one
// statement. Cancelling ctx rolls back the firings in progress.
func (f *Firer) FireDue(ctx context.Context) (Fired, error) {
	var out Fired
	list, err := f.due(ctx, nil)
	if err != nil {
		return out, fmt.Errorf("due schedules: %w", err)
	}
	if err := f.at(ctx, "due"); err != nil {
		return out, err
	}
	done, problems := make([]Fired, len(list)), make([]error, len(list))
	var asking sync.WaitGroup
	stop := false
	for i, d := range list {
		if d.Asks && f.crew.join(ctx, d) {
			asking.Go(func() {
				defer f.crew.leave(d)
				done[i], problems[i] = f.fireOnce(ctx, d)
			})
			continue
		}
		if stop = stop || ctx.Err() != nil; !stop {
			done[i], problems[i] = f.fireOnce(ctx, d)
			stop = errors.Is(problems[i], job.ErrUnreachable)
		}
	}
	asking.Wait()
	for _, one := range done {
		out.Occurrences = append(out.Occurrences, one.Occurrences...)
		out.Failed = append(out.Failed, one.Failed...)
		out.Skipped += one.Skipped
	}
	return out, errors.Join(problems...)
}

// fireOnce fires one due schedule and logs the result.
func (f *Firer) fireOnce(ctx context.Context, d due) (Fired, error) {
	one, err := f.fire(ctx, d)
	if err != nil {
		return one, fmt.Errorf("fire schedule %s: %w", d.Name, err)
	}
	f.tell(d.Name, one)
	return one, nil
}

func (f *Firer) tell(name string, one Fired) {
	for _, o := range one.Occurrences {
		f.log.Info().Str("schedule", name).Time("occurrence", o.At).Int("jobs", len(o.Jobs)).Msg("schedule fired")
	}
	if one.Skipped > 0 {
		f.log.Warn().Str("schedule", name).Int("occurrences", one.Skipped).Msg("occurrences skipped")
	}
	for _, failure := range one.Failed {
		f.log.Error().Str("schedule", name).Err(failure.Err).Msg("schedule failed")
	}
}

// due is a schedule that is due.
type due struct {
	Name         string `db:"name"`
	Asks         bool   `db:"asks"`          // it has a query
	Failing      bool   `db:"failing"`       // it failed since it fired last
	QueryTimeout int64  `db:"query_timeout"` // in seconds
}

// limit returns the timeout of the firing including its query.
func (d due) limit() time.Duration {
	return fireTimeout + time.Duration(d.QueryTimeout)*time.Second
}

func (f *Firer) due(ctx context.Context, busy []string) (list []due, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	list, err = db.All[due](ctx, f.pool, queries.schedulesDue, pgx.StrictNamedArgs{"now": f.now(), "busy": named(busy)})
	return list, mapError(err)
}

// named returns names, never nil.
func named(names []string) []string { return append([]string{}, names...) }

// restAtMost is the longest time between two polls of Run while no schedule is due.
const restAtMost = 5 * time.Second

// Run fires due schedules until ctx is cancelled, and logs failures. It polls at ticks, unless it knows that
// no schedule is due, and when a notification reports that a schedule may have changed. While listening
// returns false, it polls at every tick. A slow query does not delay other schedules. Run returns when all
// firings have ended.
func (f *Firer) Run(ctx context.Context, ticks, hints <-chan struct{}, listening func() bool) {
	var asking sync.WaitGroup
	defer asking.Wait()
	var until time.Time // no schedule is due before
	for {
		select {
		case <-ctx.Done():
			return
		case <-hints:
		case <-f.crew.left:
		case <-ticks:
			if listening() && time.Now().Before(until) {
				continue
			}
		}
		began := time.Now()
		var err error
		until, err = f.fireUntil(ctx, &asking)
		f.complain(ctx, began, err)
	}
}

// complain logs the result of an attempt, unless a stop cancelled it.
func (f *Firer) complain(ctx context.Context, began time.Time, err error) {
	if ctx.Err() == nil && !f.away.Observe(began, err) {
		f.log.Warn().Err(err).Msg("schedules not fired; will try again")
	}
}

// fireUntil fires due schedules, those with a query concurrently, and returns the time until which no other schedule is
// due. If no schedule is due it costs one statement.
func (f *Firer) fireUntil(ctx context.Context, asking *sync.WaitGroup) (until time.Time, err error) {
	for fired := false; ; fired = true {
		began := time.Now()
		wait, ok, err := f.wait(ctx, f.crew.busy())
		if err != nil {
			return time.Time{}, err
		}
		if !ok {
			wait = restAtMost
		}
		if wait > 0 || fired {
			return began.Add(min(wait, restAtMost)), nil
		}
		list, err := f.due(ctx, f.crew.busy())
		if err != nil {
			return time.Time{}, fmt.Errorf("due schedules: %w", err)
		}
		for _, d := range list {
			var err error
			switch {
			case !d.Asks:
				_, err = f.fireOnce(ctx, d)
			case f.crew.enter(d):
				asking.Go(func() {
					defer f.crew.leave(d)
					if _, err := f.fireOnce(ctx, d); err != nil {
						f.complain(ctx, time.Time{}, err)
						_ = lifecycle.Pause(ctx, time.Second) // it is due still
					}
				})
			}
			if err != nil && (ctx.Err() != nil || errors.Is(err, job.ErrUnreachable)) {
				return time.Time{}, err
			}
			if err != nil {
				f.complain(ctx, time.Time{}, err)
			}
		}
	}
}

// wait returns the time until the next schedule that is not busy is due, by the database; 0 means now. It returns false if
// there is none. It costs one statement.
func (f *Firer) wait(ctx context.Context, busy []string) (wait time.Duration, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var seconds float64
	err = f.pool.QueryRow(ctx, queries.schedulesNext, pgx.StrictNamedArgs{"now": f.now(), "busy": named(busy)}).Scan(&seconds)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("next schedule: %w", mapError(err))
	}
	return time.Duration(seconds * float64(time.Second)), true, nil
}

// fire fires one schedule unless another node does. After an error its result is not valid: the transaction was rolled
// back, or the outcome of its COMMIT is unknown until the row is read again.
func (f *Firer) fire(ctx context.Context, d due) (Fired, error) {
	fr, skipped := firing{Firer: f, began: time.Now()}, false
	err := inTx(ctx, f.pool, d.limit(), func(ctx context.Context, tx pgx.Tx) error {
		l, err := lock(ctx, tx, queries.scheduleLock, pgx.StrictNamedArgs{"name": d.Name, "now": f.now()})
		if errors.Is(err, pgx.ErrNoRows) {
			skipped = true
			return nil
		}
		if err != nil {
			return err
		}
		fr.locked, fr.tx = l, tx
		if err := f.at(ctx, "locked"); err != nil {
			return err
		}
		if err := fr.process(ctx); err != nil {
			return err
		}
		return f.at(ctx, "commit")
	})
	if err == nil {
		err = f.at(ctx, "committed")
	}
	if fr.lost != nil && ctx.Err() == nil {
		return f.record(ctx, d, fr.lost)
	}
	if err != nil {
		return Fired{}, db.NameHolders(ctx, f.pool, err)
	}
	if skipped {
		f.logLocked(ctx, d)
	}
	return fr.done, nil
}

// logLocked logs the session that has kept a due schedule locked for longer than a firing takes.
func (f *Firer) logLocked(ctx context.Context, d due) {
	for _, h := range db.LockHolders(ctx, f.pool, "schedules", d.Name) {
		if h.Since == nil || f.age(*h.Since) > d.limit() {
			f.locked.Do(func() {
				f.log.Warn().Str("schedule", d.Name).Msgf("a due schedule does not fire: its row is locked by %s; %s", h, h.Remedy())
			})
		}
	}
}

// recordTries is how often the row of a schedule is looked for whose query's connection has ended. Its server process
// releases the lock at its end.
const recordTries = 30

// record records the fault of a query whose connection has ended.
func (f *Firer) record(ctx context.Context, d due, fault error) (Fired, error) {
	for try := 1; ; try++ {
		fr := firing{Firer: f, began: time.Now()}
		err := inTx(ctx, f.pool, storeTimeout, func(ctx context.Context, tx pgx.Tx) (err error) {
			fr.tx = tx
			if fr.locked, err = lock(ctx, tx, queries.scheduleLock, pgx.StrictNamedArgs{"name": d.Name, "now": f.now()}); err != nil {
				return err
			}
			return fr.failed(ctx, fault)
		})
		switch {
		case !errors.Is(err, pgx.ErrNoRows):
			return fr.done, err
		case try == recordTries: // another node has it, or it was changed
			return Fired{}, nil
		}
		if err := lifecycle.Pause(ctx, 100*time.Millisecond); err != nil {
			return Fired{}, err
		}
	}
}
