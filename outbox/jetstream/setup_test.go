package jetstream_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/jetstream"
)

func TestMain(m *testing.M) { outboxtest.Main(m, equip) }

// patience is how long a test waits for what must happen.
const patience = time.Minute

// capacity is what a queue of a test's carrier holds.
const capacity = 100

var prefixes atomic.Int64

// bundle is one test's carrier, on servers that other tests use as well.
type bundle struct {
	*jetstream.Broker
	config jetstream.Config
	log    *dbtest.Buffer
	js     natsjs.JetStream // beside belfry
}

// setup makes a broker with streams of its own, which its test may still change.
func setup(t testing.TB, servers []*dbtest.NATS, change ...func(c *jetstream.Config, o *jetstream.Options)) *bundle {
	t.Helper()
	b := &bundle{config: jetstream.DefaultConfig(), log: &dbtest.Buffer{}}
	b.config.URLs = nil
	for _, s := range servers {
		b.config.URLs = append(b.config.URLs, s.URL)
	}
	b.config.Prefix, b.config.Replicas, b.config.MaxAckPending = fmt.Sprintf("test%d", prefixes.Add(1)), len(servers), 1000
	o := jetstream.Options{MaxQueued: capacity, Lease: 30 * time.Second, Log: zerolog.New(b.log)}
	for _, f := range change {
		f(&b.config, &o)
	}
	var err error
	b.Broker, err = jetstream.New(b.config, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	conn, err := nats.Connect(strings.Join(b.config.URLs, ","), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	b.js, err = natsjs.New(conn)
	require.NoError(t, err)
	if len(servers) > 1 {
		b.until(t, "the cluster has a leader", func(ctx context.Context) bool {
			_, err := b.Check(ctx)
			return err == nil
		})
	}
	return b
}

// until waits for a condition.
func (*bundle) until(t testing.TB, what string, is func(ctx context.Context) bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !is(t.Context()); <-tick.C {
		require.Less(t, time.Since(began), patience, "never: %s", what)
	}
}

func (b *bundle) ready(t testing.TB) int {
	t.Helper()
	n, err := b.Ready(t.Context())
	require.NoError(t, err)
	return n
}

func (b *bundle) stream(t testing.TB, q outbox.Queue) natsjs.Stream {
	t.Helper()
	s, err := b.js.Stream(t.Context(), b.Stream(q))
	require.NoError(t, err)
	return s
}

// consumer is the name of the one that bulk has.
func (b *bundle) consumer(t testing.TB) string {
	t.Helper()
	var names []string
	list := b.stream(t, outbox.Bulk).ConsumerNames(t.Context())
	for n := range list.Name() {
		names = append(names, n)
	}
	require.NoError(t, list.Err())
	require.Len(t, names, 1)
	return names[0]
}

// forget deletes both streams behind belfry's back.
func (b *bundle) forget(t testing.TB) {
	t.Helper()
	for _, q := range []outbox.Queue{outbox.Activities, outbox.Bulk} {
		require.NoError(t, b.js.DeleteStream(t.Context(), b.Stream(q)))
	}
}

// lose deletes copies behind belfry's back.
func (b *bundle) lose(t testing.TB, keys []outbox.Key) {
	t.Helper()
	s := b.stream(t, outbox.Bulk)
	for _, k := range keys {
		begins := fmt.Sprintf("%d %d ", k.JobID, k.ChannelID)
		for seq := uint64(1); ; seq++ {
			m, err := s.GetMsg(t.Context(), seq, natsjs.WithGetMsgSubject(b.config.Prefix+".bulk.ids"))
			require.NoError(t, err)
			if seq = m.Sequence; strings.HasPrefix(string(m.Data), begins) {
				require.NoError(t, s.DeleteMsg(t.Context(), seq))
				break
			}
		}
	}
}
