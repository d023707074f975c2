package main

import (
	"context"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox/relay"
)

// reloader reads the configuration again at SIGHUP and has what may change live take
// effect.
type reloader struct {
	load   func() (settings.Settings, error)
	runner *job.Runner // nil: none here
	relay  *relay.Relay
	log    zerolog.Logger
	level  *liveLevel

	mu      sync.Mutex
	current settings.Settings // of the keys that take effect live
	inForce map[string]any    // by key
}

// newReloader takes the runner and the delivery of this process; either may be nil.
func newReloader(s settings.Settings, load func() (settings.Settings, error), runner *job.Runner, c *delivery, log zerolog.Logger, level *liveLevel) *reloader {
	r := &reloader{load: load, runner: runner, log: log, level: level, current: s, inForce: make(map[string]any)}
	if c != nil {
		r.relay = c.Relay
	}
	for _, k := range config.Keys(s.Config) {
		r.inForce[k.Name] = k.Value
	}
	return r
}

// watch reloads at SIGHUP until ctx is cancelled. Signals count from the moment watch
// returns. The returned function waits for the end.
func (r *reloader) watch(ctx context.Context) (wait func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var loop sync.WaitGroup
	loop.Go(func() { on(ctx, hangups, func(context.Context) { r.reload() }) })
	return func() {
		loop.Wait()
		signal.Stop(hangups)
	}
}

// settings returns those in force.
func (r *reloader) settings() settings.Settings {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// reload reads the configuration again and returns the keys that changed. A bad one
// changes nothing, and every problem of it is logged.
func (r *reloader) reload() []string {
	next, err := r.load()
	if err == nil && r.relay != nil {
		err = r.relay.Reload(r.forRelay(next))
	}
	var needRestart []string
	if err == nil && r.runner != nil {
		needRestart, err = r.runner.Reload(next.Runner)
	}
	if err != nil {
		for _, line := range problemLines(err) {
			r.log.Error().Str("error", line).Msg("configuration refused; nothing changed")
		}
		return nil
	}
	changed, waiting := r.take(next, needRestart)
	r.level.set(logLevel(next, false))
	r.log.Info().Strs("keys", changed).Msg("configuration reloaded")
	if len(waiting) > 0 {
		r.log.Warn().Strs("keys", waiting).Msg("changed, and takes effect at the next start")
	}
	return changed
}

// forRelay returns of the next settings what a relay takes while it runs, and the rest
// as it is.
func (r *reloader) forRelay(next settings.Settings) (relay.Config, []relay.SenderConfig) {
	now := r.settings()
	c, senders := next.Delivery.Relay, now.Senders
	c.Name, c.Lease = now.Delivery.Relay.Name, now.Delivery.Relay.Lease
	if sameSenders(now.Senders, next.Senders) {
		senders = next.Senders
	}
	return c, senders.Configs()
}

// sameSenders reports whether two lists differ in limits and policies only.
func sameSenders(a, b settings.Senders) bool {
	return slices.EqualFunc(a, b, func(a, b settings.Sender) bool {
		return a.Name == b.Name && a.Kind == b.Kind && a.Medium == b.Medium &&
			slices.Equal(a.Platforms, b.Platforms) && reflect.DeepEqual(a.Settings, b.Settings)
	})
}

// take puts the keys that take effect live into force. It returns those that changed, and
// those that differ from what is in force until a restart.
func (r *reloader) take(next settings.Settings, needRestart []string) (changed, waiting []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := sameSenders(r.current.Senders, next.Senders)
	for _, k := range config.Keys(next.Config) {
		if reflect.DeepEqual(r.inForce[k.Name], k.Value) {
			continue
		}
		if !r.live(k.Name, needRestart, same) {
			waiting = append(waiting, k.Name)
			continue
		}
		changed = append(changed, k.Name)
		r.inForce[k.Name] = k.Value
	}
	r.current.Retention, r.current.Schedules = next.Retention, next.Schedules
	if same {
		r.current.Senders = next.Senders
	}
	return changed, waiting
}

// live reports whether a key counts without a restart. Of the runner's keys the runner
// says which do not. Senders do when only limits and policies of theirs changed.
func (r *reloader) live(key string, needRestart []string, sameSenders bool) bool {
	switch section, _, _ := strings.Cut(key, "."); section {
	case "runner":
		return r.runner != nil && !slices.ContainsFunc(needRestart, func(n string) bool { return key == n || strings.HasPrefix(key, n+".") })
	case "schedules", "retention":
		return r.runner != nil
	case "senders":
		return r.relay != nil && sameSenders
	case "delivery":
		return r.relay != nil && !slices.Contains(restartDelivery, key) && !strings.HasPrefix(key, "delivery.redis.") && !strings.HasPrefix(key, "delivery.nats.")
	}
	return key == "log.level"
}

// restartDelivery are the keys of delivery that take effect at the next start.
var restartDelivery = []string{"delivery.enabled", "delivery.name", "delivery.lease", "delivery.listen", "delivery.time_zone", "delivery.quiet_hours_jitter",
	"delivery.transport", "delivery.max_queued", "delivery.requeue_after"}
