package redislist_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/redislist"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Sentence 19: each queue lives on one node of a Cluster, and the two on different ones.
func TestLong_BrokerOnACluster(t *testing.T) {
	t.Parallel()
	config := redisdb.DefaultConfig()
	config.URL, _ = dbtest.StartCluster(t)
	config.Cluster = true
	b, err := redislist.New(config, redislist.Options{MaxQueued: capacity})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	_, err = b.Check(t.Context())
	require.NoError(t, err)
	c := b.Carrier("r1", claimer(outbox.CopyClaimed))
	stop := keep(t, c)
	pushed(t, c, 1, 7, 10)
	answer, err := c.Push(t.Context(), outbox.PushGroup{Queue: outbox.Activities, Epoch: "e", First: 1, Number: 1, Keys: []outbox.Key{{JobID: -1, ChannelID: 1}}})
	require.NoError(t, err)
	require.Equal(t, outbox.PushDone, answer)
	var outcomes []outbox.Settled
	for _, m := range receive(t, c, &credits{}, 11) {
		outcomes = append(outcomes, outbox.Settled{Key: m.Key, Status: outbox.Pending, Wait: 10 * time.Millisecond})
	}
	require.NoError(t, c.Settled(t.Context(), outcomes))
	require.Len(t, receive(t, c, &credits{}, 11), 11)
	stop()
	queues, err := b.Queues(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), queues[0].Ready)
	require.Equal(t, int64(10), queues[1].Ready)
	require.NoError(t, b.Empty(t.Context()))
	queues, err = b.Queues(t.Context())
	require.NoError(t, err)
	require.Zero(t, queues[0].Ready+queues[1].Ready)
}

// Sentences 1 and 20: Sentinels promote the replica; what went on goes on there.
func TestFault_SentinelPromotesTheReplica(t *testing.T) {
	t.Parallel()
	const n = 5000
	master := start(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(master.Addr, ":")
	replica := dbtest.StartRedis(t, "--replicaof", host, port)
	sentinel := dbtest.StartSentinel(t, "belfry", master.Redis)
	require.Eventually(t, func() bool { return sentinel.Do(t, "SENTINEL", "REPLICAS", "belfry") == "*1" }, patience, 100*time.Millisecond)
	config := redisdb.DefaultConfig()
	config.URL, config.Sentinel = sentinel.URL, "belfry"
	b, err := redislist.New(config, redislist.Options{MaxQueued: 1000})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	d := setup(t, n)
	d.Job(t, "a", 1, n, 0)
	sent := newCalls()
	defer run(t, d, "r1", sent, b, func(c *relay.Config) { c.Batch = 20 })()
	require.Eventually(t, func() bool { return sent.count() > n/5 }, 2*patience, time.Millisecond)
	require.NoError(t, master.Stop())
	d.Delivered(t)
	sent.once(t, n)
	require.NotErrorIs(t, serverOf(t, replica).client.HGet(t.Context(), bulk+"state", "last").Err(), redis.Nil)
}
