package jetstream_test

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/jetstream"
	"github.com/belfryhq/belfry/outbox/relay"
)

// soon has copies come again soon that a worker has left.
func soon(c *jetstream.Config, o *jetstream.Options) {
	c.Replicas, o.MaxQueued, o.Lease = 1, 1<<20, outboxtest.WorkerLease
}

// equip gives a worker the carrier.
func equip(w outboxtest.Worker, d *outboxtest.Dying) ([]relay.Option, error) {
	c, o := jetstream.DefaultConfig(), jetstream.Options{Log: zerolog.Nop()}
	soon(&c, &o)
	c.URLs, c.Prefix, c.MaxAckPending = []string{w.Server}, w.Prefix, 1000
	b, err := jetstream.New(c, o)
	if err != nil {
		return nil, err
	}
	d.Broker = b
	return []relay.Option{relay.WithBroker(d, 5*time.Second)}, nil
}

// placeOn has carriers on a server, each with streams of its own.
func placeOn(servers []*dbtest.NATS) outboxtest.Place {
	return func(t testing.TB, _ string) (outboxtest.Worker, outbox.Broker) {
		t.Helper()
		b := setup(t, servers, soon)
		return outboxtest.Worker{Server: servers[0].URL, Prefix: b.config.Prefix}, b
	}
}

func TestFault_WorkerDiesBetweenSteps(t *testing.T) {
	t.Parallel()
	outboxtest.Dies(t, outboxtest.Points(), placeOn(dbtest.StartNATS(t, 1)))
}

func TestFault_WorkerStopsPastItsHeartbeat(t *testing.T) {
	t.Parallel()
	outboxtest.Stops(t, placeOn(dbtest.StartNATS(t, 1)))
}
