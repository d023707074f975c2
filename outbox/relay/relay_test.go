package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

func TestDrain_DeliversWhatIsDue(t *testing.T) {
	t.Parallel()
	b := setup(t, 1200)
	job := b.job(t, "default", 1, 1200)
	b.activity(t, 7)
	provider := &script{}
	stats := b.drain(t, config("r"), push(provider))
	require.Equal(t, map[string]int{"SENT": 1201}, b.statuses(t))
	require.Len(t, provider.all(), 1201)
	require.EqualValues(t, 1201, stats.Sent)
	require.EqualValues(t, 1201, stats.Claimed)
	require.Zero(t, stats.InFlight)
	require.Empty(t, b.record(t, job), "a plain success is not recorded")
	require.True(t, one[bool](t, b, `SELECT delivered_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, job))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.handovers`))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.relays`))
}

// Two COMMITs at once settle a lease's messages, so that neither deletes the lease: the
// drain waits for the third, which does, and then marks the job.
func TestDrain_LeavesNoDeliveredJobUnmarked(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	job := b.job(t, "default", 1, 2)
	var commits, claims atomic.Int64
	first, second := make(chan struct{}), make(chan struct{})
	await := func(ctx context.Context, signal <-chan struct{}) error {
		select {
		case <-signal:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	provider := &script{answer: func(ctx context.Context, d sender.Delivery) sender.Result {
		if d.ChannelID == 2 {
			_ = await(ctx, first)
		}
		return sender.Result{Class: sender.Accepted}
	}}
	var settled atomic.Bool
	r := b.relay(t, config("r"), []relay.Sender{push(provider)}, relay.WithFailpoint(func(ctx context.Context, point string) error {
		switch point {
		case relay.PointClaim:
			claims.Add(1)
		case relay.PointSettled:
			if settled.CompareAndSwap(false, true) {
				close(second)
			}
		case relay.PointSettle:
			switch commits.Add(1) {
			case 1:
				close(first)
				return await(ctx, second)
			case 3: // the feed finds nothing in flight meanwhile; one that ends then claims no more
				before, tick := claims.Load(), time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for began := time.Now(); claims.Load() < before+4 && time.Since(began) < time.Second; {
					<-tick.C
				}
			}
		}
		return nil
	}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stats, err := r.Drain(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, stats.Sent)
	require.EqualValues(t, 3, commits.Load())
	require.True(t, one[bool](t, b, `SELECT delivered_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, job))
}

// A call that a provider does not answer ends with the sender's timeout: unknown, made
// again with the same key, and only after the last one comes the next medium (I12).
func TestRelay_SilentProviderHoldsAMessageForItsTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	id := b.job(t, "default", 1, 2, "push", "sms")
	silent, other := push(&script{answer: hang}), &script{}
	silent.Timeout, silent.Retry.Attempts = 20*time.Millisecond, 2
	run := b.start(t, config("r"), []relay.Sender{silent, sms(other)})
	b.eventually(t, `SELECT count(*) = 2 FROM belfry.messages WHERE status = 'SENT'`)
	run.end(t)
	require.Equal(t, []string{"1 push 0/1 unknown", "1 push 0/2 unknown", "2 push 0/1 unknown", "2 push 0/2 unknown"}, b.record(t, id))
	require.Len(t, other.all(), 2)
}

// I10: a message that its sender does not come to leaves the queue after 15 seconds, and
// not before: deferred, or in a drain as it was.
func TestQueue_LetsGoOfWhatHasWaitedTooLong(t *testing.T) {
	t.Parallel()
	r, err := relay.New(nil, nil, config("r"), []relay.Sender{push(&script{})})
	require.NoError(t, err)
	for _, draining := range []bool{false, true} {
		require.Empty(t, relay.Waited(r, 3, 15*time.Second-1, draining))
		gone := relay.Waited(r, 3, 15*time.Second, draining)
		require.Len(t, gone, 3)
		for _, s := range gone {
			if draining {
				require.Equal(t, outbox.Release(s.Claimed), s)
				continue
			}
			require.Equal(t, outbox.Pending, s.To)
			require.Equal(t, outbox.ReasonSenderBusy, s.Reason)
		}
	}
}
