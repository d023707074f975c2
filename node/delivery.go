package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/channels/unsubscribe"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Delivery is a relay and the clients of its senders.
type Delivery struct {
	*relay.Relay

	// Close closes the clients and the carrier, after the relay's end.
	Close func() error

	broker relay.Broker       // nil: none
	links  *unsubscribe.Links // that mail leads to; nil: none
}

// newDelivery wires a relay with the senders and the carrier of the settings, and with own
// senders.
func newDelivery(ctx context.Context, s settings.Settings, pool *pgxpool.Pool, own []relay.Sender, log zerolog.Logger, options ...relay.Option) (*Delivery, error) {
	broker, err := onCarrier(ctx, s, log)
	if err != nil {
		return nil, err
	}
	closeBroker := func() error { return nil }
	if broker != nil {
		closeBroker = broker.Close
		options = append(options, relay.WithBroker(broker, s.Delivery.Carrier.RequeueAfter))
	}
	d, err := NewDrain(s, pool, own, log, options...)
	if err != nil {
		return nil, errors.Join(err, closeBroker())
	}
	closeSenders := d.Close
	d.broker, d.Close = broker, func() error { return errors.Join(closeSenders(), closeBroker()) }
	return d, nil
}

// NewDrain wires a relay with senders alone, for a drain, which needs no carrier.
func NewDrain(s settings.Settings, pool *pgxpool.Pool, own []relay.Sender, log zerolog.Logger, options ...relay.Option) (*Delivery, error) {
	who, err := channels.New(s.Channels)
	if err != nil {
		return nil, err
	}
	composing := s.Delivery.Compose
	composing.NoAddress = slices.Concat(composing.NoAddress, s.Senders.Targeted())
	composer, err := compose.New(pool, who, composing, nil)
	if err != nil {
		return nil, err
	}
	links, err := s.OpenLinks()
	if err != nil {
		return nil, err
	}
	senders, done, err := s.OpenSenders(links)
	if err != nil {
		return nil, err
	}
	r, err := relay.New(pool, composer, s.Delivery.Relay, append(senders, own...), append(options, relay.WithLogger(log))...)
	if err != nil {
		return nil, errors.Join(err, done())
	}
	return &Delivery{Relay: r, Close: done, links: links}, nil
}

// onCarrier opens the carrier of the settings for a relay to work on; nil: there is none. A
// server that is unfit is an error; one that is away is waited for. It is to be closed after
// the relay's end.
func onCarrier(ctx context.Context, s settings.Settings, log zerolog.Logger) (relay.Broker, error) {
	c := s.Delivery.Carrier
	b, err := c.Open(s.Delivery.Relay, log)
	if b == nil {
		return nil, err
	}
	warnings, err := b.Check(ctx)
	for _, w := range warnings {
		log.Warn().Str("transport", c.Transport).Str("detail", w).Msg("the carrier's server may be unfit")
	}
	switch {
	case errors.Is(err, relay.ErrAway):
		log.Warn().Str("transport", c.Transport).Err(err).Msg("the carrier's server is waited for")
	case err != nil:
		return nil, errors.Join(&settings.UnfitError{Err: fmt.Errorf("the carrier's server is unfit: %w", err)}, b.Close())
	}
	return b, nil
}
