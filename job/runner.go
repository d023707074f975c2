package job

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job/governor"
)

// Runner claims due jobs and runs them, one at a time. Any number of runners may
// work on one database. A Runner is used by one caller at a time, but for StopNow.
type Runner struct {
	pool      *pgxpool.Pool
	config    Config
	types     map[string]Type
	names     []string
	log       zerolog.Logger
	outage    *Outage
	observers []func(Progress)
	at        func(ctx context.Context, point string) error // failpoint of tests
	cache     AbortCache                                    // nil: none

	hint      func()                             // called at every hint
	ears      atomic.Pointer[lifecycle.Listener] // of Run; nil: none
	reloaded  atomic.Pointer[Config]
	baselines map[string]*governor.Baseline // by job type
	halted    bool                          // everything was, when it looked last
	unclaimed rate.Sometimes                // logs that due jobs are locked

	stop *lifecycle.Stop
}

// Option carries a collaborator of a Runner.
type Option func(*Runner)

// WithLogger sets the logger. Without it a Runner logs nothing.
func WithLogger(log zerolog.Logger) Option { return func(r *Runner) { r.log = log } }

// WithObserver has f called, in addition to other observers, from the goroutine that runs the job, at
// every transition and after every committed chunk. It must return quickly.
func WithObserver(f func(Progress)) Option {
	return func(r *Runner) { r.observers = append(r.observers, f) }
}

// WithHint calls f at every notification that Run receives, and when it starts or stops receiving them.
// Changes of schedules notify too. f must return at once.
func WithHint(f func()) Option { return func(r *Runner) { r.hint = f } }

// WithAbortCache makes runs check cache before each chunk (see AbortCache).
func WithAbortCache(cache AbortCache) Option { return func(r *Runner) { r.cache = cache } }

// NewRunner returns a Runner for the given types over pool, which stays the
// caller's to close. A run holds one connection of it and needs a second one now and
// then; listening takes another.
func NewRunner(pool *pgxpool.Pool, config Config, types []Type, options ...Option) (*Runner, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.Name = cmp.Or(config.Name, uniqueName())
	r := &Runner{
		pool: pool, config: config, types: make(map[string]Type, len(types)), log: zerolog.Nop(),
		hint: func() {}, unclaimed: rate.Sometimes{Interval: time.Minute},
		at:   func(context.Context, string) error { return nil },
		stop: lifecycle.NewStop(), baselines: make(map[string]*governor.Baseline),
	}
	r.reloaded.Store(&config)
	for _, t := range types {
		if _, twice := r.types[t.name]; twice {
			return nil, fmt.Errorf("job type %s is given twice", t.name)
		}
		r.types[t.name] = t
		r.names = append(r.names, t.name)
	}
	if len(r.names) == 0 {
		return nil, errors.New("a runner needs at least one job type")
	}
	for _, option := range options {
		option(r)
	}
	if r.outage == nil {
		r.outage = NewOutage(r.log)
	}
	return r, nil
}

func uniqueName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var suffix [4]byte
	_, _ = rand.Read(suffix[:]) // documented never to fail
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), hex.EncodeToString(suffix[:]))
}

// Name returns the runner's name in jobs.runner and in events.
func (r *Runner) Name() string { return r.config.Name }

// Outcome is the result of RunDue. Its jobs are summaries (Store.Summaries), because there may be thousands.
type Outcome struct {
	Jobs        []Job   // the jobs it ran, in order, as they were when their run ended
	Held        []Job   // RUNNING under other runners when it looked last
	Expired     []int64 // PENDING jobs that it found too late to start, whatever their type and lane
	GivenUp     []int64 // RUNNING jobs that it made FAILED: they lost every run they got
	Halt        Halt    // whether everything was halted when it looked last
	Interrupted bool    // a soft or hard stop ended it; there may be more to do
}

// RunDue resumes and claims what is stale or due, one job after the other, until
// nothing is, and returns what it did. Cancelling ctx stops softly: the chunk in
// progress is finished, within Config.GracePeriod, and its job handed back PENDING;
// that is no error. An error means the database did not answer or the schema is
// missing; a job that was in progress then stays RUNNING and becomes stale.
func (r *Runner) RunDue(ctx context.Context) (Outcome, error) {
	out, _, err := r.runDue(ctx)
	return out, err
}

// runDue is RunDue and also returns the last snapshot.
func (r *Runner) runDue(ctx context.Context) (out Outcome, seen snapshot, err error) {
	hard, release := r.stop.After(ctx, func() time.Duration { return r.config.GracePeriod })
	defer release()
	seen, err = r.drain(ctx, hard, &out)
	if hard.Err() != nil || err == nil && ctx.Err() != nil {
		out.Interrupted = true
		return out, seen, nil // what a hard stop cuts short fails because of it
	}
	return out, seen, err
}

func (r *Runner) drain(ctx, hard context.Context, out *Outcome) (seen snapshot, err error) {
	sure := false
	for ctx.Err() == nil && hard.Err() == nil {
		var t claimed
		t, seen, err = r.claim(hard, out)
		if err != nil {
			return seen, err
		}
		if t.id == 0 {
			if out.Held = nil; seen.running || seen.due {
				out.Held, err = r.held(hard)
			}
			if err != nil || len(out.Held) > 0 || !seen.running && !seen.due {
				return seen, err
			}
			if sure {
				r.unclaimed.Do(func() {
					if by := NewStore(r.pool).WaitingHolders(hard); by != "" {
						r.log.Warn().Str("detail", by).Msg("due jobs are not claimed: their rows are locked; SELECT pg_terminate_backend(number) ends a session")
					}
				})
				return seen, nil
			}
			sure = true // who held a lane a moment ago may just have left it
			continue
		}
		sure = false
		ended, err := r.run(ctx, hard, t, out)
		if err != nil {
			return seen, err
		}
		out.Jobs = append(out.Jobs, ended.summary())
	}
	return seen, nil
}

// StopNow is the hard stop: it cancels the chunk in progress, which rolls back;
// its job is handed back PENDING. The Runner runs nothing after it. It may be
// called from any goroutine; only the first call's cause counts.
func (r *Runner) StopNow(cause error) { r.stop.Now(cause) }

// held reads the jobs that other runners hold in this runner's lanes.
func (r *Runner) held(ctx context.Context) (list []Job, err error) {
	err = NewStore(r.pool).inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		ids, err := db.Column[int64](ctx, tx, queries.jobsHeld, pgx.StrictNamedArgs{"lanes": r.lanes()})
		if err != nil {
			return fmt.Errorf("read held lanes: %w", err)
		}
		list, err = getAll(ctx, tx, ids, true)
		return err
	})
	return list, err
}

// lanes is the lanes parameter of the claiming statements: nil for all.
func (r *Runner) lanes() []string {
	if len(r.config.Lanes) == 0 {
		return nil
	}
	return r.config.Lanes
}
