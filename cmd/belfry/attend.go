package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/outbox"
)

// attendant does what a daemon does besides running jobs: it fires schedules, deletes
// what retention lets go, and reads the configuration again at SIGHUP.
type attendant struct {
	load   func() (settings, error)
	db     *database
	runner *job.Runner
	firer  *schedule.Firer
	log    zerolog.Logger
	level  *liveLevel

	mu      sync.Mutex
	current settings       // of the keys that count live
	inForce map[string]any // by key
	behind  bool           // the database did not take the schedules over yet
}

func newAttendant(s settings, load func() (settings, error), db *database, runner *job.Runner, log zerolog.Logger, level *liveLevel) *attendant {
	return &attendant{
		load: load, db: db, runner: runner, log: log, level: level,
		firer:   schedule.NewFirer(db.Pool, schedule.WithLogger(log), schedule.WithName(runner.Name())),
		current: s, inForce: s.values,
	}
}

// start begins to attend until ctx is cancelled. The returned function waits for the
// end. Signals count from the moment start returns.
func (t *attendant) start(ctx context.Context) (wait func() error, err error) {
	fire, maintain := make(chan struct{}, 1), make(chan struct{}, 1)
	ticks, err := gocron.NewScheduler()
	if err != nil {
		return nil, fmt.Errorf("start ticks: %w", err)
	}
	ring := t.ring(fire, maintain)
	_, err = ticks.NewJob(gocron.DurationJob(t.current.Runner.PollInterval), gocron.NewTask(ring),
		gocron.WithContext(ctx), gocron.WithStartAt(gocron.WithStartImmediately()), gocron.WithSingletonMode(gocron.LimitModeReschedule))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start ticks: %w", err), ticks.Shutdown())
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.sync(ctx)
	ticks.Start()
	var loops sync.WaitGroup
	loops.Go(func() { on(ctx, fire, t.fire) })
	loops.Go(func() { on(ctx, maintain, t.maintain) })
	loops.Go(func() { on(ctx, hangups, t.reload) })
	return func() error {
		loops.Wait()
		signal.Stop(hangups)
		return ticks.Shutdown()
	}, nil
}

// on calls do for each value of c until ctx is cancelled.
func on[T any](ctx context.Context, c <-chan T, do func(context.Context)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c:
			do(ctx)
		}
	}
}

// ring returns what a tick does: it asks for a look at the schedules, and every
// retention.interval, at once for the first time, for maintenance.
func (t *attendant) ring(fire, maintain chan<- struct{}) func() {
	var last time.Time
	return func() {
		ask(fire)
		if interval := t.settings().Retention.Interval; last.IsZero() || time.Since(last) >= interval {
			last = time.Now()
			ask(maintain)
		}
	}
}

// ask rings; asking twice before anybody looks is asking once.
func ask(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// settings returns those in force.
func (t *attendant) settings() settings {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}

// fire fires the schedules that are due.
func (t *attendant) fire(ctx context.Context) {
	t.mu.Lock()
	behind := t.behind
	t.mu.Unlock()
	if behind {
		t.sync(ctx)
	}
	if _, err := t.firer.FireDue(ctx); err != nil && ctx.Err() == nil {
		t.log.Warn().Err(err).Msg("schedules not fired; will try again")
	}
}

// maintain deletes what retention lets go.
func (t *attendant) maintain(ctx context.Context) {
	retention := t.settings().Retention
	if retention.Off() {
		return
	}
	act := job.Act{Actor: t.runner.Name(), Reason: "retention"}
	pruned, err := outbox.Prune(ctx, t.db.Pool, retention, outbox.PruneOptions{Act: act})
	if err != nil && ctx.Err() == nil {
		t.log.Warn().Err(err).Msg("maintenance cut short; the next one goes on")
	}
	if n := pruned.Notifications + pruned.Messages + pruned.Jobs + pruned.Events; n > 0 {
		t.log.Info().Int64("rows", n).Msg("maintenance deleted what is over its retention")
	}
}

// sync brings the schedules of the configuration into the database; at the next tick
// again when the database does not answer.
func (t *attendant) sync(ctx context.Context) {
	synced, err := syncSchedules(ctx, t.db, t.settings().Schedules, t.runner.Name())
	behind := false
	for _, one := range flatten(err) {
		switch {
		case ctx.Err() != nil:
		case unreachable(one):
			behind = true
			t.log.Warn().Err(one).Msg("schedules of the configuration not taken over; will try again")
		default:
			t.log.Error().Err(one).Msg("schedule of the configuration not taken over")
		}
	}
	t.mu.Lock()
	t.behind = behind
	t.mu.Unlock()
	if changed := slices.Concat(synced.Created, synced.Changed); len(changed) > 0 {
		t.log.Info().Strs("schedules", changed).Msg("schedules of the configuration taken over")
	}
}

// syncSchedules brings a configuration's schedules into the database.
func syncSchedules(ctx context.Context, db *database, list []schedule.Definition, actor string) (schedule.Synced, error) {
	if len(list) == 0 {
		return schedule.Synced{}, nil
	}
	return schedule.NewStore(db.Pool).SyncConfig(ctx, list, job.Act{Actor: actor, Reason: "configuration"})
}

// reload reads the configuration again. A bad one changes nothing, and every problem
// of it is logged.
func (t *attendant) reload(ctx context.Context) {
	next, err := t.load()
	var needRestart []string
	if err == nil {
		needRestart, err = t.runner.Reload(next.Runner)
	}
	if err != nil {
		for _, line := range problemLines(err) {
			t.log.Error().Str("error", line).Msg("configuration refused; nothing changed")
		}
		return
	}
	changed, waiting := t.take(next, needRestart)
	t.level.set(logLevel(next, false))
	if slices.Contains(changed, "schedules") {
		t.sync(ctx)
	}
	t.log.Info().Strs("keys", changed).Msg("configuration reloaded")
	if len(waiting) > 0 {
		t.log.Warn().Strs("keys", waiting).Msg("changed, and counts from the next start on")
	}
}

// take puts the keys that count live into force. It returns those that changed, and
// those that differ from what is in force until a restart.
func (t *attendant) take(next settings, needRestart []string) (changed, waiting []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range configKeys() {
		if reflect.DeepEqual(t.inForce[k.Name], next.values[k.Name]) {
			continue
		}
		if !live(k.Name, needRestart) {
			waiting = append(waiting, k.Name)
			continue
		}
		changed = append(changed, k.Name)
		t.inForce[k.Name] = next.values[k.Name]
	}
	t.current.Retention, t.current.Schedules = next.Retention, next.Schedules
	return changed, waiting
}

// live reports whether a key counts without a restart. Of the runner's keys the
// runner says which do not.
func live(key string, needRestart []string) bool {
	if strings.HasPrefix(key, "runner.") {
		return !slices.ContainsFunc(needRestart, func(r string) bool { return key == r || strings.HasPrefix(key, r+".") })
	}
	return key == "log.level" || key == "schedules" || strings.HasPrefix(key, "retention.")
}
