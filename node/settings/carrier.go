package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/jetstream"
	"github.com/belfryhq/belfry/outbox/redislist"
	"github.com/belfryhq/belfry/outbox/redisstream"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Carrier is about where relays get their ids from.
type Carrier struct {
	// Transport is one of Transports.
	Transport string `mapstructure:"transport"`
	// MaxQueued bounds each queue of a carrier, in ids.
	MaxQueued int `mapstructure:"max_queued"`
	// RequeueAfter is how old a push is before what the carrier has lost of it is pushed again.
	RequeueAfter time.Duration    `mapstructure:"requeue_after"`
	Redis        redisdb.Config   `mapstructure:"redis"`
	NATS         jetstream.Config `mapstructure:"nats"`
}

func defaultCarrier() Carrier {
	return Carrier{Transport: outbox.NoCarrier, MaxQueued: 50_000, RequeueAfter: relay.RequeueAfter, Redis: redisdb.DefaultConfig(), NATS: jetstream.DefaultConfig()}
}

// carrierKind is a value of delivery.transport.
type carrierKind struct {
	name     string
	validate func(Carrier) error
	open     func(Carrier, relay.Config, zerolog.Logger) (relay.Broker, error)
	at       func(Carrier) string // where its server is, as it may be shown
	// takenMost is how many ids are out at once at most, and by which key; nil: there is no bound.
	takenMost func(Carrier) (key string, most int)
}

// carrierKinds are all of them but PostgreSQL.
func carrierKinds() []carrierKind {
	redis := carrierKind{
		validate: func(c Carrier) error { return c.Redis.Validate("delivery.redis") },
		at:       func(c Carrier) string { return WithoutUser(c.Redis.URL) },
	}
	list, stream := redis, redis
	list.name = "redislist"
	list.open = func(c Carrier, _ relay.Config, log zerolog.Logger) (relay.Broker, error) {
		return redislist.New(c.Redis, redislist.Options{MaxQueued: c.MaxQueued, Log: log})
	}
	stream.name = "redisstream"
	stream.open = func(c Carrier, r relay.Config, log zerolog.Logger) (relay.Broker, error) {
		return redisstream.New(c.Redis, redisstream.Options{MaxQueued: c.MaxQueued, Lease: r.Lease, Log: log})
	}
	return []carrierKind{list, stream, {
		name:     "jetstream",
		validate: func(c Carrier) error { return c.NATS.Validate("delivery.nats") },
		open: func(c Carrier, r relay.Config, log zerolog.Logger) (relay.Broker, error) {
			return jetstream.New(c.NATS, jetstream.Options{MaxQueued: c.MaxQueued, Lease: r.Lease, Log: log})
		},
		at:        func(c Carrier) string { return strings.Join(c.NATS.URLs, ", ") },
		takenMost: func(c Carrier) (string, int) { return "delivery.nats.max_ack_pending", c.NATS.MaxAckPending },
	}}
}

// Transports are the values of delivery.transport.
func Transports() []string {
	names := []string{outbox.NoCarrier}
	for _, k := range carrierKinds() {
		names = append(names, k.name)
	}
	return names
}

// kind is the configured one; false: PostgreSQL.
func (c Carrier) kind() (carrierKind, bool) {
	kinds := carrierKinds()
	if i := slices.IndexFunc(kinds, func(k carrierKind) bool { return k.name == c.Transport }); i >= 0 {
		return kinds[i], true
	}
	return carrierKind{}, false
}

const (
	maxQueued                        = 100_000_000
	minRequeueAfter, maxRequeueAfter = 10 * time.Second, 24 * time.Hour
)

// validate returns every problem. What a carrier's server is asked for matters with that
// carrier alone.
func (c Carrier) validate(r relay.Config) error {
	var problems []error
	kind, carried := c.kind()
	if !carried && c.Transport != outbox.NoCarrier {
		problems = append(problems, fmt.Errorf("delivery.transport: %q is not allowed; allowed values: %s", c.Transport, strings.Join(Transports(), ", ")))
	}
	if c.MaxQueued < r.Batch || c.MaxQueued > maxQueued {
		problems = append(problems, fmt.Errorf("delivery.max_queued: %d is not allowed; allowed values: delivery.batch (%d) to %d", c.MaxQueued, r.Batch, maxQueued))
	}
	if c.RequeueAfter < minRequeueAfter || c.RequeueAfter > maxRequeueAfter {
		problems = append(problems, fmt.Errorf("delivery.requeue_after: %s is not allowed; allowed values: %s to %s", c.RequeueAfter, minRequeueAfter, maxRequeueAfter))
	}
	if carried {
		problems = append(problems, kind.validate(c))
	}
	if key, most := c.TakenMost(); most > 0 && most < 2*r.MaxInFlight {
		problems = append(problems, fmt.Errorf("%s: %d is not allowed; allowed are twice delivery.max_in_flight (%d) for each relay, and more", key, most, 2*r.MaxInFlight))
	}
	return errors.Join(problems...)
}

// Open opens the carrier for relays of r; nil: there is none, PostgreSQL has no broker. It is
// the caller's to close. The error is an *UnfitError.
func (c Carrier) Open(r relay.Config, log zerolog.Logger) (relay.Broker, error) {
	kind, carried := c.kind()
	if !carried {
		return nil, nil //nolint:nilnil // PostgreSQL has no broker
	}
	b, err := kind.open(c, r, log)
	if err != nil {
		return nil, &UnfitError{err}
	}
	return b, nil
}

// TakenMost is how many ids of a queue the carrier has out at once at most, and the key that says
// so; 0: as many as there are.
func (c Carrier) TakenMost() (key string, most int) {
	if kind, carried := c.kind(); carried && kind.takenMost != nil {
		return kind.takenMost(c)
	}
	return "", 0
}

// At is where the carrier's server is, as it may be shown; false: PostgreSQL has none.
func (c Carrier) At() (string, bool) {
	kind, carried := c.kind()
	if !carried {
		return "", false
	}
	return kind.at(c), true
}
