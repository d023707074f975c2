package redisstream_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/redisstream"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

func TestMain(m *testing.M) { outboxtest.Main(m, equip) }

// broker is one whose workers are taken for dead soon.
func broker(url, prefix string) (*redisstream.Broker, error) {
	c := redisdb.DefaultConfig()
	c.URL, c.KeyPrefix = url, prefix
	b, err := redisstream.New(c, redisstream.Options{MaxQueued: 1 << 20, Lease: outboxtest.WorkerLease, Log: zerolog.Nop()})
	if err == nil {
		b.Hurry(200*time.Millisecond, time.Second, outboxtest.WorkerLease+500*time.Millisecond)
	}
	return b, err
}

// equip gives a worker the carrier.
func equip(w outboxtest.Worker, d *outboxtest.Dying) ([]relay.Option, error) {
	b, err := broker(w.Server, w.Prefix)
	if err != nil {
		return nil, err
	}
	d.Broker = b
	return []relay.Option{relay.WithBroker(d, 2*time.Second)}, nil
}

// placeOn has carriers on a server, each with keys of its own.
func placeOn(server *dbtest.Redis) outboxtest.Place {
	return func(t testing.TB, name string) (outboxtest.Worker, outbox.Broker) {
		t.Helper()
		b, err := broker(server.URL, name)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		return outboxtest.Worker{Server: server.URL, Prefix: name}, b
	}
}

func TestFault_WorkerDiesBetweenSteps(t *testing.T) {
	t.Parallel()
	outboxtest.Dies(t, outboxtest.Points(), placeOn(dbtest.StartRedis(t)))
}

func TestFault_WorkerStopsPastItsHeartbeat(t *testing.T) {
	t.Parallel()
	outboxtest.Stops(t, placeOn(dbtest.StartRedis(t)))
}

// newRelay is a relay on a broker that sends by client.
func newRelay(t testing.TB, pool *pgxpool.Pool, b outbox.Broker, name string, client sender.Sender) *relay.Relay {
	t.Helper()
	who, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	composer, err := compose.New(pool, who, compose.DefaultConfig(), nil)
	require.NoError(t, err)
	c, s := relay.DefaultConfig(), relay.DefaultSenderConfig()
	c.Name, c.Listen, c.PollInterval = name, false, 20*time.Millisecond
	s.Name, s.Medium, s.Concurrency = "nothing", "push", 1000
	r, err := relay.New(pool, composer, c, []relay.Sender{{SenderConfig: s, Client: client}}, relay.WithBroker(b, 2*time.Second))
	require.NoError(t, err)
	return r
}
