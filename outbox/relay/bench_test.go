package relay_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// nothing is a sender that does nothing.
type nothing struct{ max int }

func (n nothing) MaxBatch() int { return max(1, n.max) }

func (nothing) Send(_ context.Context, batch []sender.Delivery) []sender.Result {
	results := make([]sender.Result, len(batch))
	for i := range results {
		results[i].Class = sender.Accepted
	}
	return results
}

// What the relay and PostgreSQL do for a message, with a sender that does
// nothing: claim, compose, hand over, look, call, settle.
// One op is one message: -benchtime 200000x.
func BenchmarkDrain_NothingSent(b *testing.B) {
	bundle := setup(b, b.N)
	bundle.job(b, "default", 1, b.N)
	bundle.exec(b, `VACUUM ANALYZE belfry.message_rows`)
	bundle.exec(b, `CHECKPOINT`)
	c := relay.DefaultConfig()
	s := relay.DefaultSenderConfig()
	s.Name, s.Medium, s.Concurrency = "nothing", "push", 1000
	r := bundle.relay(b, c, []relay.Sender{{SenderConfig: s, Client: nothing{}}})
	b.ReportAllocs()
	b.ResetTimer()
	stats, err := r.Drain(b.Context())
	b.StopTimer()
	require.NoError(b, err)
	require.EqualValues(b, b.N, stats.Sent)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
