package redisstream_test

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/internal/redisdb"
)

// Sentence 19: on a cluster, with each queue on another node, it is the carrier that it is on one
// server.
func TestLong_BrokerIsACarrierOnACluster(t *testing.T) {
	t.Parallel()
	c := redisdb.DefaultConfig()
	c.URL, _ = dbtest.StartCluster(t)
	c.Cluster = true
	var n atomic.Int64
	outboxtest.Exercise(t, func(t testing.TB) *outboxtest.Subject {
		t.Helper()
		own := c
		own.KeyPrefix = fmt.Sprint("test", n.Add(1))
		return subject(t, openAt(t, own))
	})
}

// Sentences 1 and 20: Sentinels promote the replica; what went on goes on there.
func TestFault_SentinelPromotesTheReplica(t *testing.T) {
	t.Parallel()
	const n = 5000
	master := dbtest.StartRedis(t, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(master.Addr)
	require.NoError(t, err)
	replica := dbtest.StartRedis(t, "--replicaof", host, port)
	sentinel := dbtest.StartSentinel(t, "belfry", master)
	require.Eventually(t, func() bool { return sentinel.Do(t, "SENTINEL", "REPLICAS", "belfry") == "*1" }, patience, 100*time.Millisecond)
	c := redisdb.DefaultConfig()
	c.URL, c.Sentinel = sentinel.URL, "belfry"
	b := openAt(t, c, many)
	d := outboxtest.NewDatabase(t, dbtest.New(t), n)
	d.Job(t, "a", 1, n, 0)
	s := &counting{calls: make(map[string]int)}
	start(t, d.DB.Pool, b, "r1", s)
	eventually(t, "some are sent", func() bool { messages, _ := s.count(); return messages > n/5 })
	require.NoError(t, master.Stop())
	d.Delivered(t)
	messages, calls := s.count()
	require.Equal(t, n, messages)
	require.Equal(t, n, calls, "the claim decides, whatever the replica lacks")
	require.True(t, strings.HasPrefix(replica.Do(t, "HGET", b.Keys().State, "last"), "$"), "it goes on at the replica")
}
