package node

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels/unsubscribe"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Update is the next configuration of a running process.
type Update struct {
	Config
	// Senders are the next limits and policies, in the order of Options.Senders. Nil leaves them.
	Senders []relay.SenderConfig
	// Keys is the struct whose keys are compared, of the type of Options.Keys. Nil means Config.
	Keys any
}

// reloader applies settings that may change while a process runs.
type reloader struct {
	runner *job.Runner        // may be nil
	relay  *relay.Relay       // may be nil
	links  *unsubscribe.Links // may be nil
	log    zerolog.Logger

	mu      sync.Mutex
	current Config // of the keys that take effect live
	senders []relay.SenderConfig
	inForce map[string]any // values by key
}

func newReloader(o Options, runner *job.Runner, r *relay.Relay) *reloader {
	x := &reloader{runner: runner, relay: r, log: o.Log, current: o.Config, senders: o.senderConfigs(), inForce: make(map[string]any)}
	if r != nil {
		x.links = o.Links
	}
	for _, k := range keysOf(o.Config, o.Keys) {
		x.inForce[k.Name] = k.Value
	}
	return x
}

func keysOf(c Config, all any) []keys.Key {
	if all == nil {
		all = c
	}
	return keys.Of(all)
}

// config returns the configuration in force.
func (r *reloader) config() (Config, []relay.SenderConfig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current, r.senders
}

// linkKeys is the key that names the file with the keys of links. A change of the file's content takes
// effect live, a change of its name at the next start.
const linkKeys = "api.unsubscribe_keys_file"

// reload returns the changed keys, and the keys that wait for the next start.
func (r *reloader) reload(next Update) (changed, waiting []string, err error) {
	otherKeys := false
	if r.links != nil {
		if otherKeys, err = r.links.Reload(); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", linkKeys, err)
		}
	}
	now, senders := r.config()
	if next.Senders != nil {
		senders = next.Senders
	}
	if r.relay != nil {
		c := next.Delivery.Relay
		c.Name, c.Lease = now.Delivery.Relay.Name, now.Delivery.Relay.Lease
		if err := r.relay.Reload(c, senders); err != nil {
			return nil, nil, err
		}
	}
	var needRestart []string
	if r.runner != nil {
		if needRestart, err = r.runner.Reload(next.Runner); err != nil {
			return nil, nil, err
		}
	}
	changed, waiting = r.apply(next, senders, needRestart)
	if otherKeys && !slices.Contains(waiting, linkKeys) {
		changed = append(changed, linkKeys)
	}
	return changed, waiting, nil
}

// apply stores the keys that take effect live. It returns the changed keys, and those that differ from the
// values in force until a restart.
func (r *reloader) apply(next Update, senders []relay.SenderConfig, needRestart []string) (changed, waiting []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keysOf(next.Config, next.Keys) {
		if reflect.DeepEqual(r.inForce[k.Name], k.Value) {
			continue
		}
		if !r.live(k.Name, needRestart, next.Senders != nil) {
			waiting = append(waiting, k.Name)
			continue
		}
		changed = append(changed, k.Name)
		r.inForce[k.Name] = k.Value
	}
	r.current.Retention, r.current.Schedules, r.senders = next.Retention, next.Schedules, senders
	return changed, waiting
}

// live reports whether a key takes effect without a restart. senders reports whether only limits and
// policies of the senders changed.
func (r *reloader) live(key string, needRestart []string, senders bool) bool {
	switch section, _, _ := strings.Cut(key, "."); section {
	case "runner":
		return r.runner != nil && !slices.ContainsFunc(needRestart, func(n string) bool { return key == n || strings.HasPrefix(key, n+".") })
	case "schedules", "retention":
		return r.runner != nil
	case "senders":
		return r.relay != nil && senders
	case "delivery":
		return r.relay != nil && !slices.Contains(restartDelivery, key) && !strings.HasPrefix(key, "delivery.redis.") &&
			!strings.HasPrefix(key, "delivery.nats.")
	}
	return key == "log.level"
}

// restartDelivery are the keys of delivery that take effect at the next start.
var restartDelivery = []string{"delivery.enabled", "delivery.name", "delivery.lease", "delivery.listen", "delivery.time_zone",
	"delivery.quiet_hours_jitter",
	"delivery.transport", "delivery.max_queued", "delivery.requeue_after"}
