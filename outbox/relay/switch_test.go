package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox/relay"
)

// left makes n messages of a job that are in a carrier whose relays have stopped.
func (b *bundle) left(t *testing.T, memory *outboxtest.Memory, n int) {
	t.Helper()
	b.job(t, "default", 1, n)
	stop := b.Dispatch("r0", b.Carrier(t, memory, "r0"), capacity/4, time.Hour)
	b.eventually(t, `SELECT count(*) = $1 FROM belfry.messages WHERE status = 'QUEUED'`, n)
	stop()
}

// I10: what is in a carrier when it is given up is delivered by relays without one, or with
// another one, each message once; also when the old one comes back with its copies.
func TestLong_SwitchLosesNothing(t *testing.T) {
	t.Parallel()
	for to, options := range map[string][]relay.Option{
		"postgres":        nil,
		"another carrier": {on(outboxtest.NewMemory(capacity), time.Hour)},
	} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			b, old, s := setup(t, 100), outboxtest.NewMemory(capacity), &script{}
			b.left(t, old, 60)
			run := b.start(t, carrying("r1"), []relay.Sender{push(s)}, options...)
			b.Delivered(t)
			run.end(t)
			require.Len(t, s.all(), 60)

			b.job(t, "default", 1, 40)
			b.start(t, carrying("r2"), []relay.Sender{push(s)}, on(old, time.Hour))
			b.Delivered(t)
			require.Len(t, s.all(), 100)
		})
	}
}

// A relay without a carrier leaves alone what others with one look after.
func TestSwitch_TakesFromLiveDispatchers(t *testing.T) {
	t.Parallel()
	b, memory, s := setup(t, 60), outboxtest.NewMemory(capacity), &script{}
	b.left(t, memory, 60)
	b.exec(t, `UPDATE belfry.queues SET leads_until = now() + interval '1 hour'`)
	stats := b.drain(t, carrying("r1"), push(s))
	require.Zero(t, stats.Sent)
	require.Equal(t, map[string]int{"QUEUED": 60}, b.statuses(t))
}

// A drain delivers what is due by itself, whatever has become of the carrier.
func TestSwitch_DrainGoesWithoutTheCarrier(t *testing.T) {
	t.Parallel()
	b, memory, s := setup(t, 100), outboxtest.NewMemory(capacity), &script{}
	b.left(t, memory, 60)
	b.job(t, "default", 61, 100)
	memory.Fail(errAway)
	stats, err := b.relay(t, carrying("r1"), []relay.Sender{push(s)}, on(memory, time.Hour)).Drain(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 100, stats.Sent)
	require.Len(t, s.all(), 100)
}

// A drain beside relays on the carrier ends, and each message is called for once.
func TestLong_SwitchDrainBesideRelaysOnTheCarrier(t *testing.T) {
	t.Parallel()
	b, memory, s := setup(t, 300), outboxtest.NewMemory(capacity), &script{}
	b.start(t, carrying("r1"), []relay.Sender{push(s)}, on(memory, time.Hour))
	for range 3 {
		b.job(t, "default", 1, 300)
		b.drain(t, carrying("r2"), push(s))
	}
	b.Delivered(t)
	require.Len(t, s.all(), 900)
}

// Operators see which relays work on a carrier, from their first heartbeat on; a drain does not.
func TestSwitch_RelaysTellTheirTransport(t *testing.T) {
	t.Parallel()
	b, memory := setup(t, 10), outboxtest.NewMemory(capacity)
	transport := func(name string) string {
		return one[string](t, b, `SELECT coalesce(min(transport), '') FROM belfry.relays WHERE name = $1`, name)
	}
	run := b.start(t, carrying("r1"), []relay.Sender{push(&script{})}, on(memory, time.Hour))
	b.eventually(t, `SELECT count(*) = 1 FROM belfry.relays WHERE name = 'r1'`)
	require.Equal(t, "memory", transport("r1"))
	b.start(t, carrying("r2"), []relay.Sender{push(&script{})})
	b.eventually(t, `SELECT count(*) = 1 FROM belfry.relays WHERE name = 'r2'`)
	require.Equal(t, "postgres", transport("r2"))
	run.end(t)
}
