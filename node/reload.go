package node

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels/unsubscribe"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox/relay"
)

// reloader knows the settings in force, and has those of others take effect that may change
// live.
type reloader struct {
	runner *job.Runner // nil: none here
	relay  *relay.Relay
	links  *unsubscribe.Links   // of mail; nil: none
	own    []relay.SenderConfig // senders that no settings have
	log    zerolog.Logger

	mu      sync.Mutex
	current settings.Config // of the keys that take effect live
	inForce map[string]any  // by key
}

// newReloader takes the runner and the delivery of a process; either may be nil.
func newReloader(o Options, runner *job.Runner, d *Delivery) *reloader {
	r := &reloader{runner: runner, own: o.senders(nil), log: o.Log, current: o.Settings.Config, inForce: make(map[string]any)}
	if d != nil {
		r.relay, r.links = d.Relay, d.links
	}
	for _, k := range config.Keys(r.current) {
		r.inForce[k.Name] = k.Value
	}
	return r
}

// settings returns those in force.
func (r *reloader) settings() settings.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// linkKeys is the key that names the file with the keys of links: what is in the file takes effect
// live, another file at the next start.
const linkKeys = "api.unsubscribe_keys_file"

// reload returns the keys that changed, and those that wait for the next start.
func (r *reloader) reload(next settings.Config) (changed, waiting []string, err error) {
	otherKeys := false
	if r.links != nil {
		if otherKeys, err = r.links.Reload(); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", linkKeys, err)
		}
	}
	if r.relay != nil {
		if err := r.relay.Reload(r.forRelay(next)); err != nil {
			return nil, nil, err
		}
	}
	var needRestart []string
	if r.runner != nil {
		if needRestart, err = r.runner.Reload(next.Runner); err != nil {
			return nil, nil, err
		}
	}
	changed, waiting = r.take(next, needRestart)
	if otherKeys && !slices.Contains(waiting, linkKeys) {
		changed = append(changed, linkKeys)
	}
	return changed, waiting, nil
}

// forRelay returns of the next settings what a relay takes while it runs, and the rest
// as it is.
func (r *reloader) forRelay(next settings.Config) (relay.Config, []relay.SenderConfig) {
	now := r.settings()
	c, senders := next.Delivery.Relay, now.Senders
	c.Name, c.Lease = now.Delivery.Relay.Name, now.Delivery.Relay.Lease
	if sameSenders(now.Senders, next.Senders) {
		senders = next.Senders
	}
	return c, slices.Concat(senders.Configs(), r.own)
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
func (r *reloader) take(next settings.Config, needRestart []string) (changed, waiting []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := sameSenders(r.current.Senders, next.Senders)
	for _, k := range config.Keys(next) {
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
