package redisstream_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// nothing is a sender that does nothing.
type nothing struct{}

func (nothing) MaxBatch() int { return 1 }

func (nothing) Send(_ context.Context, batch []sender.Delivery) []sender.Result {
	results := make([]sender.Result, len(batch))
	for i := range results {
		results[i].Class = sender.Accepted
	}
	return results
}

// What a relay and PostgreSQL do for a message, with a sender that does nothing, by the
// PostgreSQL transport and by this carrier. One op is one message: -benchtime 200000x.
func BenchmarkRelay_NothingSent(b *testing.B) {
	for _, transport := range []string{"postgres", "redisstream"} {
		b.Run(transport, func(b *testing.B) {
			db := dbtest.New(b)
			d := outboxtest.NewDatabase(b, db, b.N)
			d.Job(b, "default", 1, b.N, 0)
			d.Exec(b, `VACUUM ANALYZE belfry.message_rows`)
			d.Exec(b, `CHECKPOINT`)
			var options []relay.Option
			if transport == "redisstream" {
				options = append(options, relay.WithBroker(open(b, dbtest.StartRedis(b).URL, "bench", many), outbox.RequeueAfter))
			}
			who, err := channels.New(channels.DefaultConfig())
			require.NoError(b, err)
			composer, err := compose.New(db.Pool, who, compose.DefaultConfig(), nil)
			require.NoError(b, err)
			c, s := relay.DefaultConfig(), relay.DefaultSenderConfig()
			c.Listen = false
			s.Name, s.Medium, s.Concurrency = "nothing", "push", 1000
			r, err := relay.New(db.Pool, composer, c, []relay.Sender{{SenderConfig: s, Client: nothing{}}}, options...)
			require.NoError(b, err)
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			ended := make(chan error, 1)
			b.ResetTimer()
			go func() { ended <- r.Run(ctx) }()
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for r.Stats().Sent < int64(b.N) {
				<-tick.C
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			stop()
			require.NoError(b, <-ended)
		})
	}
}
