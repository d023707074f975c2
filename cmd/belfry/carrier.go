package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/settings"
	"github.com/belfryhq/belfry/outbox/relay"
)

// operated is the configured carrier as operations know it.
func (a *app) operated(s settings.Settings) admin.Carrier {
	c := s.Delivery.Carrier
	at, carried := c.At()
	if !carried {
		return admin.Carrier{Transport: c.Transport}
	}
	return admin.Carrier{Transport: c.Transport, Server: at, Open: func() (relay.Broker, error) { return c.Open(s.Delivery.Relay, a.briefLogger(s)) }}
}

// onCarrier opens the configured carrier for a relay to work on; nil: there is none. A server
// that is unfit is an error; one that is away is waited for. It is to be closed after the
// relay's end.
func onCarrier(ctx context.Context, s settings.Settings, log zerolog.Logger) (relay.Broker, error) {
	b, err := s.Delivery.Carrier.Open(s.Delivery.Relay, log)
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
		return nil, errors.Join(&settings.UnfitError{Err: fmt.Errorf("the carrier's server is unfit: %w", err)}, b.Close())
	}
	return b, nil
}
