package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
)

// NewRelay makes a relay with the senders of o and without its carrier, as a drain needs it.
func NewRelay(o Options, options ...relay.Option) (*relay.Relay, error) {
	who, err := channels.New(o.Config.Channels)
	if err != nil {
		return nil, err
	}
	composer, err := compose.New(o.Pool, who, o.Config.Delivery.Compose, nil)
	if err != nil {
		return nil, err
	}
	if o.Samples != nil {
		media := make(map[string]string, len(o.Senders))
		for _, s := range o.Senders {
			media[s.Name] = s.Medium
		}
		options = append(options, relay.WithObserver(o.Samples.Relay(media)))
	}
	return relay.New(o.Pool, composer, o.Config.Delivery.Relay, o.Senders, append(options, relay.WithLogger(o.Log))...)
}

// newRelay makes a relay with the senders and the carrier of o.
func newRelay(ctx context.Context, o Options, options ...relay.Option) (*relay.Relay, error) {
	if o.Broker != nil {
		if err := checkBroker(ctx, o); err != nil {
			return nil, err
		}
		options = append(options, relay.WithBroker(o.Broker, o.Config.Delivery.RequeueAfter))
	}
	return NewRelay(o, options...)
}

// checkBroker returns a *ConfigError if the carrier's server cannot be used. The relay waits for a server
// that is down.
func checkBroker(ctx context.Context, o Options) error {
	warnings, err := o.Broker.Check(ctx)
	for _, w := range warnings {
		o.Log.Warn().Str("detail", w).Msg("the carrier's server may be unfit")
	}
	switch {
	case errors.Is(err, outbox.ErrAway):
		o.Log.Warn().Err(err).Msg("the carrier's server is waited for")
	case err != nil:
		return &ConfigError{fmt.Errorf("the carrier's server is unfit: %w", err)}
	}
	return nil
}
