package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/jetstream"
	"github.com/belfryhq/belfry/outbox/redislist"
	"github.com/belfryhq/belfry/outbox/redisstream"
	"github.com/belfryhq/belfry/outbox/relay"
)

// carrierConfig is about where relays get their ids from.
type carrierConfig struct {
	Transport string `mapstructure:"transport"`
	// MaxQueued bounds each queue of a carrier, in ids.
	MaxQueued int `mapstructure:"max_queued"`
	// RequeueAfter is how old a push is before what the carrier has lost of it is pushed again.
	RequeueAfter time.Duration    `mapstructure:"requeue_after"`
	Redis        redisdb.Config   `mapstructure:"redis"`
	NATS         jetstream.Config `mapstructure:"nats"`
}

func defaultCarrierConfig() carrierConfig {
	return carrierConfig{Transport: outbox.NoCarrier, MaxQueued: 50_000, RequeueAfter: relay.RequeueAfter, Redis: redisdb.DefaultConfig(), NATS: jetstream.DefaultConfig()}
}

// carrierKind is a value of delivery.transport.
type carrierKind struct {
	name     string
	validate func(carrierConfig) error
	open     func(carrierConfig, relay.Config, zerolog.Logger) (relay.Broker, error)
	at       func(carrierConfig) string // where its server is, as it may be shown
}

// carrierKinds are all of them but PostgreSQL.
func carrierKinds() []carrierKind {
	redis := carrierKind{
		validate: func(c carrierConfig) error { return c.Redis.Validate("delivery.redis") },
		at:       func(c carrierConfig) string { return withoutUser(c.Redis.URL) },
	}
	list, stream := redis, redis
	list.name = "redislist"
	list.open = func(c carrierConfig, _ relay.Config, log zerolog.Logger) (relay.Broker, error) {
		return redislist.New(c.Redis, redislist.Options{MaxQueued: c.MaxQueued, Log: log})
	}
	stream.name = "redisstream"
	stream.open = func(c carrierConfig, r relay.Config, log zerolog.Logger) (relay.Broker, error) {
		return redisstream.New(c.Redis, redisstream.Options{MaxQueued: c.MaxQueued, Lease: r.Lease, Log: log})
	}
	return []carrierKind{list, stream, {
		name:     "jetstream",
		validate: func(c carrierConfig) error { return c.NATS.Validate("delivery.nats") },
		open: func(c carrierConfig, r relay.Config, log zerolog.Logger) (relay.Broker, error) {
			return jetstream.New(c.NATS, jetstream.Options{MaxQueued: c.MaxQueued, Lease: r.Lease, Log: log})
		},
		at: func(c carrierConfig) string { return strings.Join(c.NATS.URLs, ", ") },
	}}
}

// transportNames are the values of delivery.transport.
func transportNames() []string {
	names := []string{outbox.NoCarrier}
	for _, k := range carrierKinds() {
		names = append(names, k.name)
	}
	return names
}

// kind is the configured one; false: PostgreSQL.
func (c carrierConfig) kind() (carrierKind, bool) {
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
func (c carrierConfig) validate(r relay.Config) error {
	var problems []error
	kind, carried := c.kind()
	if !carried && c.Transport != outbox.NoCarrier {
		problems = append(problems, fmt.Errorf("delivery.transport: %q is not allowed; allowed values: %s", c.Transport, strings.Join(transportNames(), ", ")))
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
	return errors.Join(problems...)
}

// openBroker opens the configured carrier; nil: there is none. It is the caller's to close.
func (s settings) openBroker(log zerolog.Logger) (relay.Broker, error) {
	c := s.Delivery.Carrier
	kind, carried := c.kind()
	if !carried {
		return nil, nil //nolint:nilnil // PostgreSQL has no broker
	}
	b, err := kind.open(c, s.Delivery.Relay, log)
	if err != nil {
		return nil, &exitError{codeConfiguration, err}
	}
	return b, nil
}

// operated is the configured carrier as operations know it.
func (a *app) operated(s settings) admin.Carrier {
	c := s.Delivery.Carrier
	kind, carried := c.kind()
	if !carried {
		return admin.Carrier{Transport: c.Transport}
	}
	return admin.Carrier{Transport: c.Transport, Server: kind.at(c), Open: func() (relay.Broker, error) { return s.openBroker(a.briefLogger(s)) }}
}

// onCarrier opens the configured carrier for a relay to work on; nil: there is none. A server
// that is unfit is an error; one that is away is waited for. It is to be closed after the
// relay's end.
func (s settings) onCarrier(ctx context.Context, log zerolog.Logger) (relay.Broker, error) {
	b, err := s.openBroker(log)
	if b == nil {
		return nil, err
	}
	warnings, err := b.Check(ctx)
	for _, w := range warnings {
		log.Warn().Str("transport", s.Delivery.Carrier.Transport).Str("detail", w).Msg("the carrier's server may be unfit")
	}
	switch {
	case errors.Is(err, relay.ErrAway):
		log.Warn().Str("transport", s.Delivery.Carrier.Transport).Err(err).Msg("the carrier's server is waited for")
	case err != nil:
		return nil, errors.Join(&exitError{codeConfiguration, fmt.Errorf("the carrier's server is unfit: %w", err)}, b.Close())
	}
	return b, nil
}
