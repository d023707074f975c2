package jetstream_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/jetstream"
)

// impatient is what tests change that lose servers: what is lost with a connection comes again
// after a lease, and a call has not long to wait.
func impatient(c *jetstream.Config, o *jetstream.Options) {
	c.Timeout, o.Lease, o.MaxQueued = 2*time.Second, 3*time.Second, 400
}

// leader is the server that leads a stream, followers are the others.
func (b *bundle) leader(t testing.TB, cluster []*dbtest.NATS) (leader *dbtest.NATS, followers []*dbtest.NATS) {
	t.Helper()
	b.until(t, "the stream has a leader", func(ctx context.Context) bool {
		s, err := b.js.Stream(ctx, b.Stream(outbox.Bulk))
		if err != nil {
			return false
		}
		for _, n := range cluster {
			if n.Name == s.CachedInfo().Cluster.Leader {
				leader = n
			} else {
				followers = append(followers, n)
			}
		}
		return leader != nil
	})
	return leader, followers
}

// A leader that refuses pushes for five seconds loses its office, and the push that it refused is done.
func TestLong_BrokerReplacesALeaderThatRefusesPushes(t *testing.T) {
	t.Parallel()
	cluster := dbtest.StartNATS(t, 3)
	b := setup(t, cluster)
	c := b.worker(t, "r1", all)
	push(t, c, nth(1, keys(10)))
	var before *dbtest.NATS
	began := time.Now()
	b.until(t, "the leader is asked to step down", func(ctx context.Context) bool {
		before, _ = b.leader(t, cluster)
		_ = b.Refuse(ctx, outbox.Bulk)
		return strings.Contains(b.log.String(), "refuses all pushes")
	})
	require.Greater(t, time.Since(began), 5*time.Second)
	require.Regexp(t, `\{"level":"warn","transport":"jetstream","detail":"\w+_bulk","message":"the leader of the stream refuses`, b.log.String())
	b.until(t, "another server leads", func(context.Context) bool {
		now, _ := b.leader(t, cluster)
		return now != before
	})
	b.until(t, "the next push is done", func(ctx context.Context) bool {
		answer, err := c.Push(ctx, nth(2, keys(10)))
		return err == nil && answer == outbox.PushDone
	})
	require.Len(t, receive(t, c, 20), 20)
}

// CARRIERS.md 7, I8, I10: whatever servers of a cluster are killed while relays deliver, each
// message is called for once.
func TestFault_ServersKilledWhileRelaysDeliver(t *testing.T) {
	t.Parallel()
	const n = 2000
	for how, fault := range map[string]func(t *testing.T, b *bundle, cluster []*dbtest.NATS){
		"one": func(t *testing.T, b *bundle, cluster []*dbtest.NATS) {
			t.Helper()
			leader, _ := b.leader(t, cluster)
			require.NoError(t, leader.Stop())
		},
		"one stands still": func(t *testing.T, b *bundle, cluster []*dbtest.NATS) {
			t.Helper()
			leader, _ := b.leader(t, cluster)
			require.NoError(t, leader.Pause())
			t.Cleanup(func() { require.NoError(t, leader.Continue()) })
		},
		"two": func(t *testing.T, b *bundle, cluster []*dbtest.NATS) {
			t.Helper()
			leader, followers := b.leader(t, cluster)
			require.NoError(t, leader.Stop())
			require.NoError(t, followers[0].Stop())
			c := b.worker(t, "r3", all)
			b.until(t, "nothing is pushed", func(ctx context.Context) bool {
				_, err := c.Push(ctx, nth(1, nil))
				return err != nil
			})
			require.NoError(t, leader.Start(t.Context()))
			require.NoError(t, followers[0].Start(t.Context()))
		},
		"all": func(t *testing.T, _ *bundle, cluster []*dbtest.NATS) {
			t.Helper()
			for _, s := range cluster {
				require.NoError(t, s.Stop()) // kill -9, sync_interval is two minutes
			}
			for _, s := range cluster {
				require.NoError(t, s.Start(t.Context()))
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cluster := dbtest.StartNATS(t, 3)
			b := setup(t, cluster, impatient)
			d, s := b.delivering(t, n)
			fault(t, b, cluster)
			d.Delivered(t)
			s.once(t, n)
		})
	}
}
