package redislist_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/redislist"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// counter is a sender that does nothing, until it has done it often enough.
type counter struct {
	left atomic.Int64
	done chan struct{}
}

func (*counter) MaxBatch() int { return 1 }

func (c *counter) Send(_ context.Context, batch []sender.Delivery) []sender.Result {
	if c.left.Add(-int64(len(batch))) == 0 {
		close(c.done)
	}
	results := make([]sender.Result, len(batch))
	for i := range results {
		results[i].Class = sender.Accepted
	}
	return results
}

// relayOf is a relay of a name, with the defaults but for what change does.
func relayOf(t testing.TB, d *outboxtest.Database, name string, s sender.Sender, change func(*relay.Config), options ...relay.Option) *relay.Relay {
	t.Helper()
	r, err := newRelay(d.DB.Pool, name, s, change, options...)
	require.NoError(t, err)
	return r
}

func newRelay(pool *pgxpool.Pool, name string, s sender.Sender, change func(*relay.Config), options ...relay.Option) (*relay.Relay, error) {
	catalog, err := channels.New(channels.DefaultConfig())
	if err != nil {
		return nil, err
	}
	composer, err := compose.New(pool, catalog, compose.DefaultConfig(), nil)
	if err != nil {
		return nil, err
	}
	c, sc := relay.DefaultConfig(), relay.DefaultSenderConfig()
	c.Name = name
	if change != nil {
		change(&c)
	}
	sc.Name, sc.Medium, sc.Concurrency = "nothing", "push", 1000
	return relay.New(pool, composer, c, []relay.Sender{{SenderConfig: sc, Client: s}}, options...)
}

// What a relay, PostgreSQL and the carrier do for a message, with a sender that does nothing.
// One op is one message: -benchtime 100000x.
func BenchmarkRelay(b *testing.B) {
	for _, on := range []string{"postgres", "redislist"} {
		b.Run(on, func(b *testing.B) {
			d := outboxtest.NewDatabase(b, dbtest.New(b), b.N)
			d.Job(b, "default", 1, b.N, 0)
			d.Exec(b, `VACUUM ANALYZE belfry.message_rows`)
			d.Exec(b, `CHECKPOINT`)
			var options []relay.Option
			if on == "redislist" {
				s := start(b)
				options = append(options, relay.WithBroker(s.broker(b, "", func(o *redislist.Options) { o.MaxQueued = 50_000 }), time.Hour))
			}
			s := &counter{done: make(chan struct{})}
			s.left.Store(int64(b.N))
			r := relayOf(b, d, "r1", s, nil, options...)
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			b.ResetTimer()
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			<-s.done
			d.Eventually(b, `SELECT NOT EXISTS (SELECT FROM belfry.messages WHERE status <> 'SENT')`)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			stop()
			require.NoError(b, <-ended)
		})
	}
}
