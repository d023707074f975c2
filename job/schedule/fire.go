package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/job"
)

const (
	// fireTimeout bounds the firing of one schedule.
	fireTimeout = 30 * time.Second
	// fireBudget is how long a firing goes on to further occurrences: its row is locked,
	// and whoever wants to pause the schedule waits.
	fireBudget = time.Second
	// maxRetryPause is the longest pause between attempts at a failing occurrence.
	maxRetryPause = time.Minute
)

// Firer fires what is due. Any number of Firers may work on one database; one is safe
// for concurrent use.
type Firer struct {
	pool *pgxpool.Pool
	name string
	log  zerolog.Logger
	now  func() *time.Time                             // nil: the database's clock
	at   func(ctx context.Context, point string) error // failpoint of tests
}

// Option carries a collaborator of a Firer.
type Option func(*Firer)

// WithLogger sets the logger. Without it a Firer logs nothing.
func WithLogger(log zerolog.Logger) Option { return func(f *Firer) { f.log = log } }

// WithName sets the actor of the events of firings, a runner's name for instance.
// Without it, it is belfry.
func WithName(name string) Option { return func(f *Firer) { f.name = name } }

// WithClock replaces the database's clock, for tests and rehearsals.
func WithClock(now func() time.Time) Option {
	return func(f *Firer) { f.now = func() *time.Time { t := now(); return &t } }
}

// NewFirer returns a Firer over pool, which stays the caller's to close. A firing takes
// one connection of it.
func NewFirer(pool *pgxpool.Pool, options ...Option) *Firer {
	f := &Firer{
		pool: pool, name: "belfry", log: zerolog.Nop(),
		now: func() *time.Time { return nil },
		at:  func(context.Context, string) error { return nil },
	}
	for _, option := range options {
		option(f)
	}
	return f
}

// Fired is what FireDue did.
type Fired struct {
	Occurrences []Occurrence // in the order in which they fired
	Skipped     int          // occurrences that were dropped
	Failed      []Failure    // schedules that could not fire now
}

// Occurrence is one that fired.
type Occurrence struct {
	Schedule string
	At       time.Time // when it was due, in UTC
	Jobs     []int64   // what it enqueued; none when the query has no rows
}

// Failure is what keeps a schedule from firing; it is in last_error too.
type Failure struct {
	Schedule string
	Err      error
}

// FireDue fires every schedule that is due, each in a transaction of its own, and says
// what it did. A schedule that fails is in Fired.Failed and no error; an error is the
// database's, what fired before it stays, and the next call goes on. When nothing is
// due it costs one statement. Cancelling ctx rolls back the firing in progress.
func (f *Firer) FireDue(ctx context.Context) (Fired, error) {
	var out Fired
	names, err := f.due(ctx)
	if err != nil {
		return out, fmt.Errorf("due schedules: %w", err)
	}
	if err := f.at(ctx, "due"); err != nil {
		return out, err
	}
	var problems []error
	for _, name := range names {
		one, err := f.fire(ctx, name)
		out.Occurrences = append(out.Occurrences, one.Occurrences...)
		out.Failed = append(out.Failed, one.Failed...)
		out.Skipped += one.Skipped
		if err == nil {
			f.tell(name, one)
			continue
		}
		problems = append(problems, fmt.Errorf("fire schedule %s: %w", name, err))
		if ctx.Err() != nil || errors.Is(err, job.ErrUnreachable) {
			break
		}
	}
	return out, errors.Join(problems...)
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

func (f *Firer) due(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	rows, err := f.pool.Query(ctx, queries.SQL("SchedulesDue"), pgx.StrictNamedArgs{"now": f.now()})
	if err == nil {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	return names, mapError(err)
}

// restAtMost is how long Run does not look at the schedules while none is due.
const restAtMost = 5 * time.Second

// Run fires what is due until ctx is cancelled, and logs what does not succeed: at ticks,
// unless it is known that nothing is due, and at hints that a schedule may have changed.
// While listening says that no such hints are heard, every tick is a look.
func (f *Firer) Run(ctx context.Context, ticks, hints <-chan struct{}, listening func() bool) {
	var until time.Time // nothing is due before
	for {
		select {
		case <-ctx.Done():
			return
		case <-hints:
		case <-ticks:
			if listening() && time.Now().Before(until) {
				continue
			}
		}
		var err error
		if until, err = f.fireUntil(ctx); err != nil && ctx.Err() == nil {
			f.log.Warn().Err(err).Msg("schedules not fired; will try again")
		}
	}
}

// fireUntil fires what is due and sees until when nothing is. Where nothing is due that is
// one statement.
func (f *Firer) fireUntil(ctx context.Context) (until time.Time, err error) {
	for fired := false; ; fired = true {
		began := time.Now()
		wait, ok, err := f.Wait(ctx)
		if err != nil {
			return time.Time{}, err
		}
		if !ok {
			wait = restAtMost
		}
		if wait > 0 || fired {
			return began.Add(min(wait, restAtMost)), nil
		}
		if _, err := f.FireDue(ctx); err != nil {
			return time.Time{}, err
		}
	}
}

// Wait says in how long the next schedule is due, as the database has them now: 0: one is;
// false: none ever. It is one statement.
func (f *Firer) Wait(ctx context.Context) (wait time.Duration, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var seconds float64
	err = f.pool.QueryRow(ctx, queries.SQL("SchedulesNext"), pgx.StrictNamedArgs{"now": f.now()}).Scan(&seconds)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("next schedule: %w", mapError(err))
	}
	return time.Duration(seconds * float64(time.Second)), true, nil
}

// fire fires one schedule, if nobody else does. With an error nothing of it counts:
// the transaction was rolled back, or the outcome of its COMMIT is unknown and the next
// look at the row tells.
func (f *Firer) fire(ctx context.Context, name string) (Fired, error) {
	fr := firing{Firer: f, began: time.Now()}
	err := inTx(ctx, f.pool, fireTimeout, func(ctx context.Context, tx pgx.Tx) error {
		l, err := lock(ctx, tx, "ScheduleLock", pgx.StrictNamedArgs{"name": name, "now": f.now()})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		fr.locked, fr.tx = l, tx
		if err := f.at(ctx, "locked"); err != nil {
			return err
		}
		if err := fr.goThrough(ctx); err != nil {
			return err
		}
		return f.at(ctx, "commit")
	})
	if err == nil {
		err = f.at(ctx, "committed")
	}
	if err != nil {
		return Fired{}, err
	}
	return fr.done, nil
}
