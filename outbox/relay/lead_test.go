package relay_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

// severed is one relay's way to a carrier that others reach.
type severed struct {
	*outboxtest.Memory
	all, pushes, gap atomic.Bool // what fails
}

// severedCarrier is the carrier at its end.
type severedCarrier struct {
	outbox.Carrier
	way *severed
}

func (s *severed) Carrier(name string, claim outbox.Claim) outbox.Carrier {
	return &severedCarrier{s.Memory.Carrier(name, claim), s}
}

func (c *severedCarrier) Push(ctx context.Context, p outbox.PushGroup) (outbox.PushAnswer, error) {
	if c.way.all.Load() || c.way.pushes.Load() {
		return "", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if c.way.gap.Load() {
		return outbox.PushGap, nil
	}
	return c.Carrier.Push(ctx, p)
}

func (c *severedCarrier) Inside(ctx context.Context, queue outbox.Queue) (outbox.Inside, error) {
	if c.way.all.Load() {
		return outbox.Inside{}, io.EOF
	}
	return c.Carrier.Inside(ctx, queue)
}

func (c *severedCarrier) Receive(ctx context.Context, credits outbox.Credits) ([]outbox.Claimed, error) {
	if c.way.all.Load() {
		return nil, io.EOF
	}
	return c.Carrier.Receive(ctx, credits)
}

// briefly leads for fifteen seconds at a time.
func briefly(name string) relay.Config {
	c := carrying(name)
	c.Lease, c.StatementTimeout = 15*time.Second, 5*time.Second
	return c
}

// A relay that does not reach the carrier, or may not push to it, gives the lead to one that may
// and does, and it blames no database.
func TestCarrier_LeadGoesToARelayThatReachesTheCarrier(t *testing.T) {
	t.Parallel()
	for name, sever := range map[string]func(*severed){
		"reaches nothing": func(s *severed) { s.all.Store(true) },
		"may not push":    func(s *severed) { s.pushes.Store(true) },
		"pushes nothing":  func(s *severed) { s.gap.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, way, log := setup(t, 50), &severed{Memory: outboxtest.NewMemory(capacity)}, new(dbtest.Buffer)
			b.start(t, briefly("r1"), []relay.Sender{push(&script{})}, relay.WithBroker(way, time.Hour), relay.WithLogger(zerolog.New(log)))
			b.eventually(t, `SELECT count(*) = 2 FROM belfry.queues WHERE dispatcher = 'r1' AND leads_until > clock_timestamp()`)
			sever(way)
			b.start(t, briefly("r2"), []relay.Sender{push(&script{})}, on(way.Memory, time.Hour))
			b.job(t, "default", 1, 50)
			b.Delivered(t)
			require.Equal(t, 2, one[int](t, b, `SELECT count(*) FROM belfry.queues WHERE dispatcher = 'r2'`))
			require.NotContains(t, log.String(), "the database")
			require.Equal(t, 1, strings.Count(log.String(), "the carrier fails for this relay"), log.String())
		})
	}
}

// A relay that is alone pushes again as soon as it reaches the carrier.
func TestCarrier_LeadIsTakenAgain(t *testing.T) {
	t.Parallel()
	b, way, log := setup(t, 50), &severed{Memory: outboxtest.NewMemory(capacity)}, new(dbtest.Buffer)
	way.all.Store(true)
	b.start(t, briefly("r1"), []relay.Sender{push(&script{})}, relay.WithBroker(way, time.Hour), relay.WithLogger(zerolog.New(log)))
	b.job(t, "default", 1, 50)
	b.eventually(t, `SELECT count(*) = 2 FROM belfry.queues WHERE leads_until < clock_timestamp()`)
	way.all.Store(false)
	b.Delivered(t)
}

// A relay that ends while its carrier fails lets another one lead at once.
func TestCarrier_LeadEndsWithTheRelay(t *testing.T) {
	t.Parallel()
	b, way, log := setup(t, 50), &severed{Memory: outboxtest.NewMemory(capacity)}, new(dbtest.Buffer)
	run := b.start(t, carrying("r1"), []relay.Sender{push(&script{})}, relay.WithBroker(way, time.Hour), relay.WithLogger(zerolog.New(log)))
	b.eventually(t, `SELECT count(*) = 2 FROM belfry.queues WHERE leads_until > clock_timestamp()`)
	way.pushes.Store(true)
	b.job(t, "default", 1, 50)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "messages are not handed to the carrier") }, patience, time.Millisecond)
	run.end(t)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.queues WHERE leads_until > clock_timestamp()`))
}
