package samples_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/samples"
	"github.com/belfryhq/belfry/outbox/sender"
)

// accepting is a provider that accepts all messages at once.
type accepting struct{}

func (accepting) MaxBatch() int { return 1 }

func (accepting) Send(_ context.Context, batch []sender.Delivery) []sender.Result {
	return slices.Repeat([]sender.Result{{Class: sender.Accepted}}, len(batch))
}

// Push jobs of 50,000 messages, from the claim to the last message, with samples once a second and without, in turns.
// Compare the two rates: -benchtime 5x.
func BenchmarkSamples(b *testing.B) {
	const n = 50_000
	d := outboxtest.NewDatabase(b, dbtest.New(b), n)
	var walking, delivering [2]time.Duration // without and with
	for i := 0; b.Loop(); i++ {
		for k := range 2 {
			with := (i + k) % 2
			id, err := job.NewStore(d.DB.Pool).Enqueue(b.Context(), job.Spec{
				Type: outbox.TypePush, Category: "operator_notice", Title: "bench", Audience: channels.Everyone(),
			})
			require.NoError(b, err)
			walk, deliver := measure(b, d, with == 1)
			walking[with], delivering[with] = walking[with]+walk, delivering[with]+deliver
			require.EqualValues(b, n, outboxtest.One[int64](b, d, `SELECT sent FROM belfry.job_progress WHERE job_id = $1`, id))
		}
	}
	b.ReportMetric(walking[0].Seconds()/walking[1].Seconds(), "walk-ratio")
	b.ReportMetric(delivering[0].Seconds()/delivering[1].Seconds(), "delivery-ratio")
	b.ReportMetric(float64(n*b.N)/walking[1].Seconds(), "rows/s")
	b.ReportMetric(float64(n*b.N)/delivering[1].Seconds(), "messages/s")
}

// measure runs the due job and delivers its messages.
func measure(b *testing.B, d *outboxtest.Database, counts bool) (walking, delivering time.Duration) {
	b.Helper()
	who := store(b)
	c := job.DefaultConfig()
	c.Load.Health.Enabled = false
	s := relay.DefaultSenderConfig()
	s.Name, s.Medium, s.Concurrency = "fcm", "push", 1000
	var walk []job.Option
	var deliver []relay.Option
	if counts {
		r := samples.Every(samples.New(d.DB.Pool, nil, zerolog.Nop()), time.Second)
		defer r.Start()()
		walk = append(walk, job.WithObserver(r.Walk()))
		deliver = append(deliver, relay.WithObserver(r.Relay(map[string]string{s.Name: s.Medium})))
	}
	runner, err := job.NewRunner(d.DB.Pool, c, outbox.Types(who), walk...)
	require.NoError(b, err)
	began := time.Now()
	_, err = runner.RunDue(b.Context())
	walking = time.Since(began)
	require.NoError(b, err)
	composer, err := compose.New(d.DB.Pool, who, compose.DefaultConfig(), nil)
	require.NoError(b, err)
	to, err := relay.New(d.DB.Pool, composer, relay.DefaultConfig(), []relay.Sender{{SenderConfig: s, Client: accepting{}}}, deliver...)
	require.NoError(b, err)
	began = time.Now()
	_, err = to.Drain(b.Context())
	require.NoError(b, err)
	return walking, time.Since(began)
}

// The cost of one event.
func BenchmarkRecorder_Called(b *testing.B) {
	r, _ := samples.NewFake(accepts)
	observer := r.Relay(map[string]string{"fcm": "push"})
	results := []sender.Result{{Class: sender.Accepted}}
	for b.Loop() {
		observer.Called("fcm", results, 20*time.Millisecond)
	}
}
