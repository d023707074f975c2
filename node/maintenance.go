package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/outbox/retention"
)

// maintenance fires schedules and deletes expired rows in a process that runs jobs. gocron triggers both.
type maintenance struct {
	*reloader

	pool   *pgxpool.Pool
	firer  *schedule.Firer
	behind atomic.Bool // the configured schedules are not in the database yet
	pruned time.Time   // the last deletion of expired rows
	unable bool        // the role may not delete samples, which was logged
	hints  <-chan struct{}
	outage *job.Outage
}

// newMaintenance returns the maintenance of a process whose runner forwards hints.
func newMaintenance(r *reloader, pool *pgxpool.Pool, hints <-chan struct{}, outage *job.Outage) *maintenance {
	return &maintenance{
		reloader: r, pool: pool, hints: hints, outage: outage,
		firer: schedule.NewFirer(pool, schedule.WithLogger(r.log), schedule.WithName(r.runner.Name()), schedule.WithOutage(outage)),
	}
}

// start runs the maintenance until ctx is cancelled. The returned function waits for the end. Each
// periodic task is a job of gocron that never overlaps itself: a task that takes longer than the interval
// does not delay the others.
func (t *maintenance) start(ctx context.Context) (wait func() error, err error) {
	clock, err := gocron.NewScheduler()
	if err != nil {
		return nil, fmt.Errorf("start maintenance: %w", err)
	}
	fire := make(chan struct{}, 1)
	c, _ := t.config()
	for _, act := range []any{func() { ask(fire) }, t.catchUp, t.prune} {
		_, err = clock.NewJob(gocron.DurationJob(c.Runner.PollInterval), gocron.NewTask(act),
			gocron.WithContext(ctx), gocron.WithStartAt(gocron.WithStartImmediately()), gocron.WithSingletonMode(gocron.LimitModeReschedule))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start maintenance: %w", err), clock.Shutdown())
		}
	}
	t.sync(ctx)
	clock.Start()
	var loops sync.WaitGroup
	loops.Go(func() { t.firer.Run(ctx, fire, t.hints, t.runner.Listening) })
	return func() error {
		loops.Wait()
		return clock.Shutdown()
	}, nil
}

// ask wakes the receiver of c. Two calls before it receives count as one.
func ask(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// catchUp stores the configured schedules in a database that was down before.
func (t *maintenance) catchUp(ctx context.Context) {
	if t.behind.Load() {
		t.sync(ctx)
	}
}

// prune deletes expired rows, immediately at first and then every retention.interval.
func (t *maintenance) prune(ctx context.Context) {
	c, _ := t.config()
	if c.Retention.Off() && c.Retention.Samples == 0 || !t.pruned.IsZero() && time.Since(t.pruned) < c.Retention.Interval {
		return
	}
	t.pruned = time.Now()
	act := job.Act{Actor: t.runner.Name(), Reason: "retention"}
	pruned, err := retention.Prune(ctx, t.pool, c.Retention, retention.Options{Act: act})
	if c.Retention.Off() && db.ClassOf(err) == db.Forbidden { // a role without the profile operate
		if !t.unable {
			t.unable = true
			t.log.Info().Msg("belfry.samples is not pruned: the role may not DELETE from it; " +
				"let `belfry prune` do it, or set retention.samples to 0")
		}
		return
	}
	if ctx.Err() == nil && !t.outage.Observe(time.Time{}, err) {
		t.log.Warn().Err(err).Msg("pruning was interrupted; the next prune continues")
	}
	if n := pruned.Rows(); n > 0 {
		t.log.Info().Int64("rows", n).Msg("maintenance deleted expired rows")
	}
}

// sync stores the configured schedules in the database. It is repeated at the next tick if the database is
// down.
func (t *maintenance) sync(ctx context.Context) {
	c, _ := t.config()
	synced, err := SyncSchedules(ctx, t.pool, c.Schedules, t.runner.Name())
	behind := false
	for _, one := range keys.Flatten(err) {
		switch {
		case ctx.Err() != nil:
		case Unreachable(one):
			behind = true
			if t.outage.Observe(time.Time{}, one) {
				continue
			}
			t.log.Warn().Err(one).Msg("schedules of the configuration not taken over; will try again")
		default:
			t.log.Error().Err(one).Msg("schedule of the configuration not taken over")
		}
	}
	t.behind.Store(behind)
	if changed := slices.Concat(synced.Created, synced.Changed); len(changed) > 0 {
		t.log.Info().Strs("schedules", changed).Msg("schedules of the configuration taken over")
	}
}

// SyncSchedules stores configured schedules in the database.
func SyncSchedules(ctx context.Context, pool *pgxpool.Pool, list []schedule.Definition, actor string) (schedule.Synced, error) {
	if len(list) == 0 {
		return schedule.Synced{}, nil
	}
	return schedule.NewStore(pool).SyncConfig(ctx, list, job.Act{Actor: actor, Reason: "configuration"})
}
