package samples_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/samples"
	"github.com/belfryhq/belfry/outbox/sender"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(childEnv); dsn != "" {
		childMain(dsn)
	}
	dbtest.Main(m)
}

type bundle struct {
	*outboxtest.Database

	who *channels.Store
}

// setup returns a database with n channels.
func setup(t *testing.T, n int) *bundle {
	t.Helper()
	return &bundle{outboxtest.NewDatabase(t, dbtest.New(t), n), store(t)}
}

func store(t require.TestingT) *channels.Store {
	who, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	return who
}

// recorder returns a Recorder whose minutes are short.
func (b *bundle) recorder(every time.Duration) *samples.Recorder {
	return samples.Every(samples.New(b.DB.Pool, nil, zerolog.Nop()), every)
}

// one reads a single value.
func one[T any](t require.TestingT, b *bundle, sql string, args ...any) T {
	return outboxtest.One[T](t, b.Database, sql, args...)
}

// enqueue makes a push job to everyone.
func (b *bundle) enqueue(t *testing.T, lane string) int64 {
	t.Helper()
	id, err := job.NewStore(b.DB.Pool).Enqueue(t.Context(), job.Spec{Type: outbox.TypePush, Category: "operator_notice", Lane: lane, Title: "hello"})
	require.NoError(t, err)
	return id
}

// walk runs the due jobs.
func (b *bundle) walk(t *testing.T, r *samples.Recorder) {
	t.Helper()
	c := job.DefaultConfig()
	c.Chunk.InitialRows, c.Chunk.MinRows, c.Chunk.MaxRows = 50, 50, 50
	c.Load.Health.Enabled = false
	runner, err := job.NewRunner(b.DB.Pool, c, outbox.Types(b.who), job.WithObserver(r.Walk()))
	require.NoError(t, err)
	_, err = runner.RunDue(t.Context())
	require.NoError(t, err)
}

// newRelay returns a relay with one sender, fcm.
func newRelay(t require.TestingT, pool *pgxpool.Pool, name string, r *samples.Recorder, client sender.Sender) *relay.Relay {
	composer, err := compose.New(pool, store(t), compose.DefaultConfig(), nil)
	require.NoError(t, err)
	c := relay.DefaultConfig()
	c.Name, c.Batch, c.Listen = name, 20, false
	s := relay.DefaultSenderConfig()
	s.Name, s.Medium, s.AbortAfter = "fcm", "push", 0
	s.Retry = relay.RetryConfig{Attempts: 2, Policy: relay.Exponential, Initial: time.Millisecond, Max: 2 * time.Millisecond}
	s.Breaker.Failures = 0
	to, err := relay.New(pool, composer, c, []relay.Sender{{SenderConfig: s, Client: client}},
		relay.WithObserver(r.Relay(map[string]string{s.Name: s.Medium})))
	require.NoError(t, err)
	return to
}

// provider rejects the channels that are divisible by 10 and fails the first attempt for the channels that are
// divisible by 7.
type provider struct{}

func (provider) MaxBatch() int { return 1 }

func (provider) Send(_ context.Context, batch []sender.Delivery) []sender.Result {
	results := make([]sender.Result, len(batch))
	for i, d := range batch {
		switch {
		case d.ChannelID%10 == 0:
			results[i].Class = sender.Permanent
		case d.ChannelID%7 == 0 && d.Attempt == 1:
			results[i].Class = sender.Retryable
		default:
			results[i].Class = sender.Accepted
		}
	}
	return results
}

// slow is a provider of a few hundred calls a second.
type slow struct{}

func (slow) MaxBatch() int { return 1 }

func (slow) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	_ = lifecycle.Pause(ctx, 20*time.Millisecond)
	return provider{}.Send(ctx, batch)
}
