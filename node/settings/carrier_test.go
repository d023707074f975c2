package settings_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/node/settings"
)

// What is wrong about a carrier is named with its key; of a server that is not used nothing is.
func TestCarrier_BadConfigurationIsNamed(t *testing.T) {
	t.Parallel()
	load := func(environ ...string) error {
		_, err := settings.Load(config.Input{Environ: environ}, nil)
		return err
	}
	require.ErrorContains(t, load("BELFRY_DELIVERY_TRANSPORT=kafka"), `delivery.transport: "kafka" is not allowed; allowed values: postgres, redislist, redisstream, jetstream`)
	require.ErrorContains(t, load("BELFRY_DELIVERY_MAX_QUEUED=499"), "delivery.max_queued: 499 is not allowed; allowed values: delivery.batch (500) to 100000000")
	require.ErrorContains(t, load("BELFRY_DELIVERY_REQUEUE_AFTER=1s"), "delivery.requeue_after: 1s is not allowed; allowed values: 10s to 24h0m0s")

	wrong := "BELFRY_DELIVERY_REDIS_URL=redis://:sec%zzret@a.example"
	require.NoError(t, load(wrong))
	err := load(wrong, "BELFRY_DELIVERY_TRANSPORT=redisstream")
	require.ErrorContains(t, err, "delivery.redis.url: not a usable URL")
	require.NotContains(t, err.Error(), "ret@")
	few := "BELFRY_DELIVERY_NATS_MAX_ACK_PENDING=9999"
	require.NoError(t, load(few), "of what is not used nothing is said")
	require.ErrorContains(t, load(few, "BELFRY_DELIVERY_TRANSPORT=jetstream"), "delivery.nats.max_ack_pending: 9999 is not allowed; allowed are twice delivery.max_in_flight (10000) for each relay, and more")
	require.NoError(t, load(few, "BELFRY_DELIVERY_TRANSPORT=jetstream", "BELFRY_DELIVERY_MAX_IN_FLIGHT=4000"))
	require.ErrorContains(t, load("BELFRY_DELIVERY_REDIS_KEY_PREFIX={a}", "BELFRY_DELIVERY_TRANSPORT=redislist"), `delivery.redis.key_prefix: "{a}" is not allowed`)
}

// What a carrier takes back by the clock it takes back by the lease of the relays it is opened for.
func TestCarrier_GoesByTheLeaseOfItsRelays(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"redisstream", "jetstream"} {
		s, err := settings.Load(config.Input{Environ: []string{"BELFRY_DELIVERY_TRANSPORT=" + transport}}, nil)
		require.NoError(t, err)
		b, err := s.Delivery.Carrier.Open(s.Delivery.Relay, zerolog.Nop())
		require.NoError(t, err)
		require.NoError(t, b.Close())
		s.Delivery.Relay.Lease = 0
		_, err = s.Delivery.Carrier.Open(s.Delivery.Relay, zerolog.Nop())
		require.ErrorContains(t, err, "lease: 0s is not allowed", transport)
	}
}

// Nodes exchange hints where there is a Redis, and nowhere else.
func TestCarrier_HasHintsInRedis(t *testing.T) {
	t.Parallel()
	for _, transport := range settings.Transports() {
		s, err := settings.Load(config.Input{Environ: []string{"BELFRY_DELIVERY_TRANSPORT=" + transport}}, nil)
		require.NoError(t, err)
		hints, err := s.Delivery.Carrier.Hints(zerolog.Nop())
		require.NoError(t, err)
		require.Equal(t, strings.HasPrefix(transport, "redis"), hints != nil, transport)
		if hints != nil {
			require.NoError(t, hints.Close())
		}
	}
}
