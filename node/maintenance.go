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

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

// maintenance is what a process does besides running jobs: it fires schedules, and deletes what
// retention lets go.
type maintenance struct {
	*reloader

	pool   *pgxpool.Pool
	firer  *schedule.Firer
	behind atomic.Bool // the database did not take the schedules over yet
	pruned time.Time   // when it last deleted what is over its retention
	hints  <-chan struct{}
	outage *job.Outage
}

// newMaintenance returns that of a process whose runner passes hints on.
func newMaintenance(r *reloader, pool *pgxpool.Pool, hints <-chan struct{}, outage *job.Outage) *maintenance {
	return &maintenance{
		reloader: r, pool: pool, hints: hints, outage: outage,
		firer: schedule.NewFirer(pool, schedule.WithLogger(r.log), schedule.WithName(r.runner.Name()), schedule.WithOutage(outage)),
	}
}

// start begins, until ctx is cancelled. The returned function waits for the end. Each periodic
// act is a job of gocron's that never runs beside itself: one that takes longer than the
// interval holds up no other.
func (t *maintenance) start(ctx context.Context) (wait func() error, err error) {
	clock, err := gocron.NewScheduler()
	if err != nil {
		return nil, fmt.Errorf("start maintenance: %w", err)
	}
	fire := make(chan struct{}, 1)
	for _, act := range []any{func() { ask(fire) }, t.catchUp, t.prune} {
		_, err = clock.NewJob(gocron.DurationJob(t.settings().Runner.PollInterval), gocron.NewTask(act),
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

// ask wakes who waits for c; asking twice before anybody looks is asking once.
func ask(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// catchUp brings the schedules of the configuration into a database that did not take them
// before.
func (t *maintenance) catchUp(ctx context.Context) {
	if t.behind.Load() {
		t.sync(ctx)
	}
}

// prune deletes what is over its retention, at once for the first time and then every
// retention.interval.
func (t *maintenance) prune(ctx context.Context) {
	retention := t.settings().Retention
	if retention.Off() || !t.pruned.IsZero() && time.Since(t.pruned) < retention.Interval {
		return
	}
	t.pruned = time.Now()
	act := job.Act{Actor: t.runner.Name(), Reason: "retention"}
	pruned, err := delivery.Prune(ctx, t.pool, retention, delivery.PruneOptions{Act: act})
	if ctx.Err() == nil && !t.outage.Observe(time.Time{}, err) {
		t.log.Warn().Err(err).Msg("maintenance cut short; the next one goes on")
	}
	if n := pruned.Notifications + pruned.Messages + pruned.Jobs + pruned.Events; n > 0 {
		t.log.Info().Int64("rows", n).Msg("maintenance deleted what is over its retention")
	}
}

// sync brings the schedules of the configuration into the database; at the next tick
// again when the database does not answer.
func (t *maintenance) sync(ctx context.Context) {
	synced, err := SyncSchedules(ctx, t.pool, t.settings().Schedules, t.runner.Name())
	behind := false
	for _, one := range config.Flatten(err) {
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

// SyncSchedules brings the schedules of the settings into the database.
func SyncSchedules(ctx context.Context, pool *pgxpool.Pool, list []schedule.Definition, actor string) (schedule.Synced, error) {
	if len(list) == 0 {
		return schedule.Synced{}, nil
	}
	return schedule.NewStore(pool).SyncConfig(ctx, list, job.Act{Actor: actor, Reason: "configuration"})
}
