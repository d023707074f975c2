package outboxtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Subject is a transport under test on a truth of its own, which is empty at first.
type Subject struct {
	// Transport is the one under test; Other is that of another relay on the same truth.
	Transport, Other relay.Transport
	// Bulk writes a job of a lane with n messages, due in a while.
	Bulk func(t testing.TB, lane string, n int, in time.Duration) []outbox.Key
	// Activities writes n messages of activities in the same way.
	Activities func(t testing.TB, n int, in time.Duration) []outbox.Key
	// Strand hides messages that are due from Receive, which passes them. free lets it find
	// them, but not where it would look first.
	Strand func(t testing.TB, keys []outbox.Key) (free func())
	// Settle records outcomes as a relay does, and returns what there is to say of them.
	Settle func(t testing.TB, settlements []outbox.Settlement) []relay.Settled
	// Processing counts the messages that are claimed and not settled.
	Processing func(t testing.TB) int

	// Hold holds the messages of a job, by an abort or otherwise, until release.
	Hold func(t testing.TB, job int64) (release func())
	// Recall takes messages back that are not claimed.
	Recall func(t testing.TB, keys []outbox.Key)

	// Carrier is what only carriers have; nil: the transport is none.
	Carrier *CarrierSubject

	// Patience is how long to wait for what must come; 0: a minute.
	Patience time.Duration
}

// CarrierSubject is what a carrier is tested by.
type CarrierSubject struct {
	// Dispatch hands messages over to a carrier as a relay does, with a short RequeueAfter,
	// until stop, after which the next may at once. Two at a time are of different relays.
	// What one push takes fits into an empty queue twice.
	Dispatch func(t testing.TB, to relay.Carrier) (stop func())
	// Queued writes a job with n messages that are QUEUED by the next push of the bulk queue,
	// and returns that push, which nobody has made. Requeued queues the messages of a push
	// anew, by the next one.
	Queued   func(t testing.TB, n int) relay.Push
	Requeued func(t testing.TB, p relay.Push) relay.Push
	// Unclaim has the server forget that messages are claimed: they are QUEUED as they were.
	Unclaim func(t testing.TB, keys []outbox.Key)
	// Copies is how many copies wait in the carrier, Capacity how many a queue of it holds.
	Copies   func(t testing.TB) int
	Capacity int
	// Forget has the carrier lose its memory, as a server that starts empty. Lose has it lose
	// some copies unnoticed.
	Forget func(t testing.TB)
	Lose   func(t testing.TB, keys []outbox.Key)
}

func (s *Subject) patience() time.Duration {
	if s.Patience == 0 {
		return time.Minute
	}
	return s.Patience
}

// credits are what a test grants.
type credits struct {
	changed chan struct{}
	asked   func() // is called when the transport asks; nil: nothing is

	mu         sync.Mutex
	activities int
	bulk       int
	jobs       map[int64]int // less than bulk
}

func grant(activities, bulk int) *credits {
	return &credits{changed: make(chan struct{}, 1), activities: activities, bulk: bulk, jobs: make(map[int64]int)}
}

// plenty is more than any check has messages.
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

// Activities implements relay.Credits.
func (c *credits) Activities() int {
	if c.asked != nil {
		c.asked()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.activities
}

// Bulk implements relay.Credits.
func (c *credits) Bulk() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bulk
}

// Job implements relay.Credits.
func (c *credits) Job(id int64, _ string, _ int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, less := c.jobs[id]; less {
		return min(n, c.bulk)
	}
	return c.bulk
}

// Idle implements relay.Credits.
func (*credits) Idle() bool { return true }

// Changed implements relay.Credits.
func (c *credits) Changed() <-chan struct{} { return c.changed }

// receipt is what was received of one message.
type receipt struct {
	outbox.Claimed
	at time.Time
}

// receive receives until it has n messages, each for the first time.
func (s *Subject) receive(t testing.TB, from relay.Transport, c relay.Credits, n int) map[outbox.Key]receipt {
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

// nothing receives for a moment, and nothing comes.
func (s *Subject) nothing(t testing.TB, c relay.Credits) {
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

// settle records one outcome of each message and tells the transport.
func (s *Subject) settle(t testing.TB, got map[outbox.Key]receipt, outcome func(outbox.Claimed) outbox.Settlement) {
	t.Helper()
	settlements := make([]outbox.Settlement, 0, len(got))
	for _, m := range got {
		settlements = append(settlements, outcome(m.Claimed))
	}
	outcomes := s.Settle(t, settlements)
	for range 2 { // a relay may say it twice
		require.NoError(t, s.Transport.Settled(t.Context(), outcomes))
	}
}

func sent(c outbox.Claimed) outbox.Settlement {
	return outbox.Settlement{Claimed: c, To: outbox.Sent, NextAttempts: c.Attempts + 1, Sender: "fcm"}
}
