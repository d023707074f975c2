package outboxtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
)

// Subject is a transport under test on its own database, which is empty at first.
type Subject struct {
	// Transport is the transport under test; Other belongs to another relay on the same database.
	Transport, Other outbox.Transport
	// Bulk writes a job of a lane with n messages, due after a delay.
	Bulk func(t testing.TB, lane string, n int, in time.Duration) []outbox.Key
	// Activities writes n messages of activities in the same way.
	Activities func(t testing.TB, n int, in time.Duration) []outbox.Key
	// Strand hides due messages from Receive. free makes them visible again behind its current position.
	Strand func(t testing.TB, keys []outbox.Key) (free func())
	// Settle records outcomes like a relay, and returns them for Settled.
	Settle func(t testing.TB, settlements []outbox.Settlement) []outbox.Settled
	// Processing counts the messages that are claimed and not settled.
	Processing func(t testing.TB) int

	// Hold holds the messages of a job, by an abort or otherwise, until release.
	Hold func(t testing.TB, job int64) (release func())
	// Recall takes messages back that are not claimed.
	Recall func(t testing.TB, keys []outbox.Key)

	// Carrier has the functions for carriers. It is nil for other transports.
	Carrier *CarrierSubject

	// Patience is the timeout of waits. Zero means a minute.
	Patience time.Duration
}

// CarrierSubject contains the functions for tests of carriers.
type CarrierSubject struct {
	// Dispatch pushes messages to a carrier like a relay, with a short RequeueAfter, until stop, after which the next
	// Dispatch can start at once. Two concurrent ones belong to different relays. An empty queue has room for two pushes.
	Dispatch func(t testing.TB, to outbox.Carrier) (stop func())
	// Queued writes a job with n messages that are QUEUED by the next push of the bulk queue, and returns the push without
	// making it. Requeued queues the messages of a push again by the next push.
	Queued   func(t testing.TB, n int) outbox.PushGroup
	Requeued func(t testing.TB, p outbox.PushGroup) outbox.PushGroup
	// Unclaim reverts the claims of messages to QUEUED, like a crash of the server.
	Unclaim func(t testing.TB, keys []outbox.Key)
	// Copies returns the number of waiting copies in the carrier; Capacity is the capacity of a queue.
	Copies   func(t testing.TB) int
	Capacity int
	// Forget removes all contents of the carrier, like a restart without persistence. Lose removes some copies without a
	// trace.
	Forget func(t testing.TB)
	Lose   func(t testing.TB, keys []outbox.Key)
}

func (s *Subject) patience() time.Duration {
	if s.Patience == 0 {
		return time.Minute
	}
	return s.Patience
}

// credits are the credits of a test.
type credits struct {
	changed chan struct{}
	asked   func() // called when the transport reads credits, or nil

	mu         sync.Mutex
	activities int
	bulk       int
	jobs       map[int64]int // less than bulk
}

func grant(activities, bulk int) *credits {
	return &credits{changed: make(chan struct{}, 1), activities: activities, bulk: bulk, jobs: make(map[int64]int)}
}

// plenty returns more credits than any check has messages.
func plenty() *credits { return grant(1000, 1000) }

func (c *credits) set(activities, bulk int) {
	c.mu.Lock()
	c.activities, c.bulk = activities, bulk
	c.mu.Unlock()
	c.wake()
}

func (c *credits) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Activities implements outbox.Credits.
func (c *credits) Activities() int {
	if c.asked != nil {
		c.asked()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.activities
}

// Bulk implements outbox.Credits.
func (c *credits) Bulk() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bulk
}

// Job implements outbox.Credits.
func (c *credits) Job(id int64, _ string, _ int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, less := c.jobs[id]; less {
		return min(n, c.bulk)
	}
	return c.bulk
}

// Idle implements outbox.Credits.
func (*credits) Idle() bool { return true }

// Changed implements outbox.Credits.
func (c *credits) Changed() <-chan struct{} { return c.changed }

// receipt is a received message.
type receipt struct {
	outbox.Claimed
	at time.Time
}

// receive receives until it has n messages, each for the first time.
func (s *Subject) receive(t testing.TB, from outbox.Transport, c outbox.Credits, n int) map[outbox.Key]receipt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), s.patience())
	defer cancel()
	got := make(map[outbox.Key]receipt, n)
	for len(got) < n {
		claimed, err := from.Receive(ctx, c)
		for _, m := range claimed {
			require.NotContains(t, got, m.Key, "received twice")
			require.NotZero(t, m.LeaseID)
			got[m.Key] = receipt{m, time.Now()}
		}
		require.NoError(t, ctx.Err(), "%d messages of %d came", len(got), n)
		require.NoError(t, err)
	}
	return got
}

// nothing requires that no message is received for a moment.
func (s *Subject) nothing(t testing.TB, c outbox.Credits) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), min(300*time.Millisecond, s.patience()))
	defer cancel()
	for ctx.Err() == nil {
		claimed, err := s.Transport.Receive(ctx, c)
		require.Empty(t, claimed)
		if ctx.Err() == nil {
			require.NoError(t, err)
		}
	}
}

// settle records one outcome of each message and calls the transport's Settled.
func (s *Subject) settle(t testing.TB, got map[outbox.Key]receipt, outcome func(outbox.Claimed) outbox.Settlement) {
	t.Helper()
	settlements := make([]outbox.Settlement, 0, len(got))
	for _, m := range got {
		settlements = append(settlements, outcome(m.Claimed))
	}
	outcomes := s.Settle(t, settlements)
	for range 2 { // a relay may repeat the call
		require.NoError(t, s.Transport.Settled(t.Context(), outcomes))
	}
}

func sent(c outbox.Claimed) outbox.Settlement {
	return outbox.Settlement{Claimed: c, To: outbox.Sent, NextAttempts: c.Attempts + 1, Sender: "fcm"}
}
