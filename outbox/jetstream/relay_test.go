package jetstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// plain is a composer that says the same to everybody.
type plain struct{}

func (plain) Expect([]outbox.Claimed) {}

func (plain) Transactions() int64 { return 0 }

func (plain) Compose(_ context.Context, claimed []outbox.Claimed) ([]outbox.Composed, error) {
	list := make([]outbox.Composed, len(claimed))
	for i, c := range claimed {
		list[i] = outbox.Composed{
			Claimed: c, Action: outbox.ActionSend, Category: "operator_notice", Route: []string{"push"}, Step: c.Step, Attempts: c.Attempts,
			Delivery: sender.Delivery{
				Key:   uuid.NewSHA1(uuid.Nil, fmt.Append(nil, c.Key)).String(),
				JobID: c.JobID, ChannelID: c.ChannelID, Medium: "push", Platform: "ios", Address: "token", Title: "told", Data: json.RawMessage(`{}`), Attempt: c.Attempts + 1,
			},
		}
	}
	return list, nil
}

// calls is a sender that counts its calls, each of which takes a moment.
type calls struct {
	moment time.Duration

	mu   sync.Mutex
	made map[outbox.Key]int
}

func (*calls) MaxBatch() int { return 1 }

func (s *calls) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	if s.moment > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(s.moment):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made == nil {
		s.made = make(map[outbox.Key]int)
	}
	results := make([]sender.Result, len(batch))
	for i, d := range batch {
		s.made[outbox.Key{JobID: d.JobID, ChannelID: d.ChannelID}]++
		results[i].Class = sender.Accepted
	}
	return results
}

// count is how many messages were called for.
func (s *calls) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.made)
}

// once checks that each of n messages was called for once.
func (s *calls) once(t testing.TB, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.made, n)
	for k, n := range s.made {
		require.Equal(t, 1, n, "calls for %v", k)
	}
}

// start runs a relay on the carrier until the test ends.
func (b *bundle) start(t testing.TB, d *outboxtest.Database, worker string, s *calls) {
	t.Helper()
	c := relay.DefaultConfig()
	c.Name, c.PollInterval, c.Listen, c.Batch, c.MaxInFlight = worker, 20*time.Millisecond, false, 100, 400
	c.Lease, c.StatementTimeout, c.GracePeriod = 3*patience, patience, patience
	of := relay.DefaultSenderConfig()
	of.Name, of.Medium, of.Timeout = "fcm", "push", patience
	r, err := relay.New(d.DB.Pool, plain{}, c, []relay.Sender{{SenderConfig: of, Client: s}}, relay.WithBroker(b, 10*time.Second))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
}

// delivering has two relays deliver n messages, activities among them, and returns when a few
// are called for.
func (b *bundle) delivering(t testing.TB, n int) (d *outboxtest.Database, s *calls) {
	t.Helper()
	d, s = outboxtest.NewDatabase(t, dbtest.Reused(t, 4), n), &calls{moment: 2 * time.Millisecond}
	d.Job(t, "a", 1, n/2, 0)
	d.Job(t, "b", n/2+1, n-20, 0)
	for i := range 20 {
		d.Activity(t, i+1, 0)
	}
	for _, worker := range []string{"r1", "r2"} {
		b.start(t, d, worker, s)
	}
	b.called(t, s, n/10)
	return d, s
}

// called waits until so many messages were called for.
func (b *bundle) called(t testing.TB, s *calls, n int) {
	t.Helper()
	b.until(t, fmt.Sprintf("%d calls", n), func(context.Context) bool { return s.count() >= n })
}
