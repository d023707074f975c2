package settings

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/jetstream"
	"github.com/belfryhq/belfry/outbox/redishints"
	"github.com/belfryhq/belfry/outbox/redislist"
	"github.com/belfryhq/belfry/outbox/redisstream"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Carrier configures the carrier of message ids.
type Carrier struct {
	// Transport is one of Transports.
	Transport string `mapstructure:"transport"`
	// MaxQueued bounds each queue of a carrier, in ids.
	MaxQueued int `mapstructure:"max_queued"`
	// RequeueAfter is the age at which a push that the carrier has lost is pushed again.
	RequeueAfter time.Duration    `mapstructure:"requeue_after"`
	Redis        redisdb.Config   `mapstructure:"redis"`
	NATS         jetstream.Config `mapstructure:"nats"`
}

func defaultCarrier() Carrier {
	return Carrier{Transport: outbox.NoCarrier, MaxQueued: 50_000, RequeueAfter: outbox.RequeueAfter, Redis: redisdb.DefaultConfig(),
		NATS: jetstream.DefaultConfig()}
}

// carrierKind is a value of delivery.transport.
type carrierKind struct {
	name     string
	redis    bool
	validate func(Carrier) error
	open     func(Carrier, relay.Config, zerolog.Logger) (outbox.Broker, error)
	at       func(Carrier) string // the address of its server, without secrets
	// takenMost returns the maximum number of ids taken at once, and its key. Nil means no bound.
	takenMost func(Carrier) (key string, most int)
}

// carrierKinds returns all values except postgres.
func carrierKinds() []carrierKind {
	redis := carrierKind{
		redis:    true,
		validate: func(c Carrier) error { return c.Redis.Validate("delivery.redis") },
		at:       func(c Carrier) string { return WithoutUser(c.Redis.URL) },
	}
	list, stream := redis, redis
	list.name = "redislist"
	list.open = func(c Carrier, _ relay.Config, log zerolog.Logger) (outbox.Broker, error) {
		return redislist.New(c.Redis, redislist.Options{MaxQueued: c.MaxQueued, Log: log})
	}
	stream.name = "redisstream"
	stream.open = func(c Carrier, r relay.Config, log zerolog.Logger) (outbox.Broker, error) {
		return redisstream.New(c.Redis, redisstream.Options{MaxQueued: c.MaxQueued, Lease: r.Lease, Log: log})
	}
	return []carrierKind{list, stream, {
		name:     "jetstream",
		validate: func(c Carrier) error { return c.NATS.Validate("delivery.nats") },
		open: func(c Carrier, r relay.Config, log zerolog.Logger) (outbox.Broker, error) {
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

// kind returns the configured kind, or false for PostgreSQL.
func (c Carrier) kind() (carrierKind, bool) {
	kinds := carrierKinds()
	if i := slices.IndexFunc(kinds, func(k carrierKind) bool { return k.name == c.Transport }); i >= 0 {
		return kinds[i], true
	}
	return carrierKind{}, false
}

const maxQueued = 100_000_000

// validate returns every problem. The settings of a server are checked only for the configured carrier.
func (c Carrier) validate(r relay.Config) error {
	var problems []error
	kind, carried := c.kind()
	if !carried && c.Transport != outbox.NoCarrier {
		problems = append(problems,
			fmt.Errorf("delivery.transport: %q is not allowed; allowed values: %s", c.Transport, strings.Join(Transports(), ", ")))
	}
	if c.MaxQueued < r.Batch || c.MaxQueued > maxQueued {
		problems = append(problems,
			fmt.Errorf("delivery.max_queued: %d is not allowed; allowed values: delivery.batch (%d) to %d", c.MaxQueued, r.Batch, maxQueued))
	}
	if carried {
		problems = append(problems, kind.validate(c))
	}
	if key, most := c.TakenMost(); most > 0 && most < 2*r.MaxInFlight {
		problems = append(problems,
			fmt.Errorf("%s: %d is not allowed; allowed are twice delivery.max_in_flight (%d) for each relay, and more", key, most, 2*r.MaxInFlight))
	}
	return errors.Join(problems...)
}

// Open opens the carrier for relays of r, or returns nil for PostgreSQL. The caller closes it. The error is
// a *node.ConfigError.
func (c Carrier) Open(r relay.Config, log zerolog.Logger) (outbox.Broker, error) {
	kind, carried := c.kind()
	if !carried {
		return nil, nil //nolint:nilnil // PostgreSQL has no broker
	}
	b, err := kind.open(c, r, log)
	if err != nil {
		return nil, &node.ConfigError{Err: err}
	}
	return b, nil
}

// Hints opens the stream of hints between nodes (package redishints), or returns nil unless the carrier is in Redis.
// The error is a *node.ConfigError.
func (c Carrier) Hints(log zerolog.Logger) (*redishints.Stream, error) {
	if kind, carried := c.kind(); !carried || !kind.redis {
		return nil, nil //nolint:nilnil // nodes exchange no hints
	}
	s, err := redishints.New(c.Redis, "delivery.redis", log)
	if err != nil {
		return nil, &node.ConfigError{Err: err}
	}
	return s, nil
}

// CheckHints tries the rights on the stream of hints, if there is one.
func (c Carrier) CheckHints(ctx context.Context, log zerolog.Logger) error {
	hints, err := c.Hints(log)
	if hints == nil {
		return err
	}
	return errors.Join(hints.Check(ctx), hints.Close())
}

// TakenMost returns the maximum number of ids of a queue that are taken at once, and its key; 0 means no
// bound.
func (c Carrier) TakenMost() (key string, most int) {
	if kind, carried := c.kind(); carried && kind.takenMost != nil {
		return kind.takenMost(c)
	}
	return "", 0
}

// At returns the address of the carrier's server without secrets, or false for PostgreSQL.
func (c Carrier) At() (string, bool) {
	kind, carried := c.kind()
	if !carried {
		return "", false
	}
	return kind.at(c), true
}
