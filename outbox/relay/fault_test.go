package relay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// requireHonest is I9 and I10 for one medium: every message ended, and was called no more
// often than its recorded attempts that did not end it, and once.
func (b *bundle) requireHonest(t *testing.T, job int64, n int, calls []called) {
	t.Helper()
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status NOT IN ('SENT', 'DEAD')`))
	recorded := make(map[int64]int)
	for _, line := range b.record(t, job) {
		var channel int64
		_, err := fmt.Sscan(line, &channel)
		require.NoError(t, err)
		recorded[channel]++
	}
	made := make(map[int64]int)
	for _, c := range calls {
		made[c.ChannelID]++
	}
	require.Len(t, made, n, "everybody was called")
	duplicates := 0
	for channel, count := range made {
		require.LessOrEqual(t, count, 1+recorded[channel], "channel %d", channel)
		duplicates += count - 1
	}
	t.Logf("%d calls again, %d attempts recorded", duplicates, len(b.record(t, job)))
}

// I9, I10: PostgreSQL stops like by a crash in the middle, and comes back: the relay goes
// on by itself, and what it could not record is recovered when its leases have run out.
func TestFault_RelayOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	const n = 1500
	server := dbtest.NewServer(t, true)
	b := setupOn(t, dbtest.NewOn(t, server), n)
	id := b.job(t, "default", 1, n)
	provider := &script{}
	c := config("r")
	c.Lease, c.StatementTimeout, c.MaxCrashes = 3*time.Second, time.Second, 100
	c.PollInterval = 100 * time.Millisecond // each try while the server starts is a connection
	s := settings("fcm", "push")
	s.RatePerSecond, s.Retry.Attempts = 3000, 100
	run := b.start(t, c, []relay.Sender{{SenderConfig: s, Client: provider}})
	for _, at := range []int{300, 900} {
		provider.reached(t, at)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		require.NoError(t, server.Stop(ctx, pgserver.Immediate))
		require.NoError(t, server.Start(ctx))
		cancel()
	}
	b.DB.Pool.Reset()
	b.eventually(t, `SELECT count(*) = $1 FROM belfry.messages WHERE status = 'SENT'`, n)
	run.end(t)
	b.requireHonest(t, id, n, provider.all())
}

// I8, I9, I10: three relays on one database, senders that answer at random, leases that
// run out at random, a relay that is stopped hard and another that comes: every message
// ends, and no call is made that is not accounted for.
func TestLong_RelayRandomFaultsAreAccountedFor(t *testing.T) {
	t.Parallel()
	randomFaults(t, 250)
}

// The same for longer, with more in flight at a time.
func TestFault_RandomFaultsAreAccountedFor(t *testing.T) {
	t.Parallel()
	randomFaults(t, 1500)
}

func randomFaults(t *testing.T, n int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	b := setupOn(t, dbtest.New(t), n)
	id := b.job(t, "default", 1, n)
	provider := &script{answer: func(context.Context, sender.Delivery) sender.Result {
		switch draw(20) {
		case 0:
			return sender.Result{Class: sender.Retryable, Code: "503"}
		case 1:
			return sender.Result{Class: sender.Unknown, Code: "502"}
		case 2:
			return sender.Result{Class: sender.Retryable, Code: "429", RetryAfter: 5 * time.Millisecond}
		}
		return sender.Result{Class: sender.Accepted}
	}}
	c := config("")
	c.Batch, c.MaxInFlight, c.MaxCrashes = n/30, n/4, 100
	s := settings("fcm", "push")
	s.Retry.Attempts = 100
	start := func() *running {
		return b.start(t, c, []relay.Sender{{SenderConfig: s, Client: provider}}, relay.WithFailpoint(func(context.Context, string) error {
			if draw(400) == 0 {
				return context.DeadlineExceeded
			}
			return nil
		}))
	}
	runs := []*running{start(), start(), start()}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for round := 0; one[bool](t, b, `SELECT EXISTS (SELECT FROM belfry.messages WHERE status IN ('PENDING', 'PROCESSING'))`); round++ {
		<-tick.C
		if round%5 == 0 && round < 60 {
			b.exec(t, `UPDATE belfry.leases SET expires_at = now() WHERE id % 3 = $1`, draw(3))
		}
		if round%50 == 0 { // those that no relay knows: of a claim whose answer was lost, of a relay that has stopped
			b.exec(t, `UPDATE belfry.leases SET expires_at = now() WHERE claimed_at < clock_timestamp() - interval '5 seconds'`)
		}
		if round%10 == 0 && round < 60 {
			runs[0].StopNow(context.Canceled)
			require.NoError(t, receive(t, runs[0].ended))
			runs = append(runs[1:], start())
		}
		require.Less(t, time.Since(began), 4*patience, "%v", b.statuses(t))
	}
	for _, run := range runs {
		run.end(t)
	}
	b.requireHonest(t, id, n, provider.all())
	// A relay that was stopped hard between its last outcome and the end of that lease has
	// left an empty one, which the next relay takes away once it has run out.
	b.exec(t, `UPDATE belfry.leases SET expires_at = now()`)
	next := start()
	b.eventually(t, `SELECT count(*) = 0 FROM belfry.leases`)
	next.end(t)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.handovers`))
}
