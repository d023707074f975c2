package redislist_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/internal/child"
	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/redislist"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// calls counts those of each message.
type calls struct {
	mu   sync.Mutex
	made map[outbox.Key]int
	n    int
}

func newCalls() *calls { return &calls{made: make(map[outbox.Key]int)} }

func (*calls) MaxBatch() int { return 100 }

func (c *calls) Send(_ context.Context, batch []sender.Delivery) []sender.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	results := make([]sender.Result, len(batch))
	for i, d := range batch {
		c.made[outbox.Key{JobID: d.JobID, ChannelID: d.ChannelID}]++
		c.n++
		results[i].Class = sender.Accepted
	}
	return results
}

func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// once requires that n messages were called for, each once.
func (c *calls) once(t testing.TB, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Len(t, c.made, n)
	require.Equal(t, n, c.n, "calls: a message was sent twice")
}

// run runs a relay on the carrier until stop.
func run(t testing.TB, d *outboxtest.Database, name string, s sender.Sender, b outbox.Broker, change func(*relay.Config)) (stop func()) {
	t.Helper()
	r := relayOf(t, d, name, s, change, relay.WithBroker(b, time.Hour))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

func many(o *redislist.Options) { o.MaxQueued = 1 << 20 }

func queued(t testing.TB, d *outboxtest.Database, n int) func() bool {
	t.Helper()
	return func() bool {
		return outboxtest.One[int](t, d, `SELECT count(*) FROM belfry.messages WHERE status = 'QUEUED'`) >= n
	}
}

// I10: Redis is killed and starts empty, and is emptied once more, in the middle of 100,000 queued
// messages. Each is called for once.
func TestFault_RedisForgetsInTheMiddle(t *testing.T) {
	t.Parallel()
	const n = 100_000
	s, d := start(t), outboxtest.NewDatabase(t, dbtest.New(t), n)
	b := s.broker(t, "", many)
	d.Job(t, "a", 1, n/2, 0)
	d.Job(t, "b", n/2+1, n, 0)
	stop := d.Dispatch("r0", b.Carrier("r0", nil), 1000, time.Hour)
	require.Eventually(t, queued(t, d, n), 2*patience, 100*time.Millisecond)
	stop()

	sent := newCalls()
	defer run(t, d, "r1", sent, b, nil)()
	defer run(t, d, "r2", sent, s.broker(t, "", many), nil)()
	require.Eventually(t, func() bool { return sent.count() > n/4 }, 2*patience, time.Millisecond)
	require.NoError(t, s.Stop())
	began, before := time.Now(), sent.count()
	require.NoError(t, s.Start(t.Context()))
	require.Eventually(t, func() bool { return sent.count() > n/2 }, 2*patience, time.Millisecond)
	t.Logf("rebuilt and delivered: %d messages in %s", sent.count()-before, time.Since(began))
	require.NoError(t, s.client.FlushAll(t.Context()).Err())
	d.Delivered(t)
	sent.once(t, n)
	require.Eventually(t, func() bool { return s.copies(t)+s.processing(t, "r1")+s.processing(t, "r2") == 0 }, patience, 10*time.Millisecond)
}

// Sentence 1: a replica is promoted that misses the last 1,000 pushes, acknowledged all of them,
// and knows the same epoch. What is missing is pushed again, and each message called for once.
func TestFault_ReplicaWithoutTheLastPushes(t *testing.T) {
	t.Parallel()
	const n, batch, missing = 6000, 1, 1000 // so many pushes that there are enough after any delay of the replica
	master := start(t, "--repl-diskless-sync-delay", "0")
	replica := dbtest.StartRedis(t)
	proxy := dbtest.StartProxy(t, master.Addr)
	follow := func(of ...string) {
		require.Equal(t, "+OK", replica.Do(t, append([]string{"REPLICAOF"}, of...)...))
	}
	host, port, _ := strings.Cut(master.Addr, ":")
	follow(host, port)
	master.Do(t, "SET", "x", "1")
	require.Eventually(t, func() bool { return replica.Do(t, "EXISTS", "x") == ":1" }, patience, 10*time.Millisecond)
	d := outboxtest.NewDatabase(t, dbtest.New(t), n)
	b := master.broker(t, "redis://"+proxy.Addr, many)
	d.Job(t, "a", 1, n, 0)
	stop := d.Dispatch("r0", b.Carrier("r0", nil), batch, time.Hour)
	last := func(s *server) int64 {
		at, err := s.client.HGet(t.Context(), bulk+"state", "last").Int64()
		if err != nil {
			return 0
		}
		return at
	}
	promoted := serverOf(t, replica)
	require.Eventually(t, func() bool { return last(promoted) >= 50 }, 2*patience, time.Millisecond)
	follow("NO", "ONE")
	kept := last(promoted)
	require.Eventually(t, func() bool { return last(master) >= kept+missing }, 2*patience, time.Millisecond)
	stop()
	require.NoError(t, master.Stop())
	proxy.To(replica.Addr)

	sent := newCalls()
	defer run(t, d, "r1", sent, b, nil)()
	d.Delivered(t)
	sent.once(t, n)
	require.GreaterOrEqual(t, last(promoted), kept+missing)
	require.Zero(t, promoted.copies(t))
}

// Sentence 20: the append-only file lacks the last two seconds.
func TestFault_AppendOnlyFileIsCut(t *testing.T) {
	t.Parallel()
	const n, batch = 20_000, 5
	s := start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	d := outboxtest.NewDatabase(t, dbtest.New(t), n)
	b := s.broker(t, "", many)
	d.Job(t, "a", 1, n, 0)
	sent := newCalls()
	stop := run(t, d, "r1", sent, b, func(c *relay.Config) { c.Batch = batch })
	defer func() { stop() }()
	file := s.AppendOnlyFile(t)
	require.Eventually(t, func() bool { return sent.count() > n/10 }, 2*patience, time.Millisecond)
	at, err := os.Stat(file)
	require.NoError(t, err)
	cutAt := time.Now()
	require.Eventually(t, func() bool { return time.Since(cutAt) > 2*time.Second }, patience, 10*time.Millisecond)
	require.NoError(t, s.Stop())
	require.NoError(t, os.Truncate(file, at.Size()))
	require.NoError(t, s.Start(t.Context()))
	d.Delivered(t)
	sent.once(t, n)
	require.Eventually(t, func() bool { return s.copies(t)+s.processing(t, "r1") == 0 }, patience, 10*time.Millisecond)
}

// equip gives a worker the carrier, with signs of life that hold for less than its lease.
func equip(w outboxtest.Worker, d *outboxtest.Dying) ([]relay.Option, error) {
	config := redisdb.DefaultConfig()
	config.URL = w.Server
	b, err := redislist.New(config, redislist.Options{MaxQueued: 1 << 20, Log: zerolog.Nop()})
	if err != nil {
		return nil, err
	}
	b.Pace(100*time.Millisecond, outboxtest.WorkerLease*2/3, time.Hour)
	d.Broker = b
	return []relay.Option{relay.WithBroker(d, 5*time.Second)}, nil
}

// place is a server of its own: all that a worker leaves is there.
func place(t testing.TB, _ string) (outboxtest.Worker, outbox.Broker) {
	t.Helper()
	s := start(t)
	return outboxtest.Worker{Server: s.URL}, s.broker(t, "", many)
}

func TestFault_WorkerDiesBetweenSteps(t *testing.T) {
	t.Parallel()
	outboxtest.Dies(t, outboxtest.Points(), place)
}

func TestFault_WorkerStopsPastItsHeartbeat(t *testing.T) {
	t.Parallel()
	outboxtest.Stops(t, place)
}

// I8, I10, sentence 15: processes are killed with -9, and stopped past their heartbeat and their
// lease, again and again. Every message is sent, and no copy is left.
func TestFault_ProcessesAreKilledAndStopped(t *testing.T) {
	t.Parallel()
	const n = 30_000
	s, d := start(t), outboxtest.NewDatabase(t, dbtest.New(t), n)
	d.Called(t)
	d.Job(t, "a", 1, n, 0)
	alive := func(name string) *child.Process {
		return d.StartWorker(t, outboxtest.Worker{Name: name, Server: s.URL, Takes: 50 * time.Millisecond})
	}
	alive("r0")
	sent := func() int {
		return outboxtest.One[int](t, d, `SELECT count(*) FROM belfry.messages WHERE status = 'SENT'`)
	}
	// It leads, and is not killed: whoever leads next does after half a minute.
	d.Eventually(t, `SELECT count(*) = 2 FROM belfry.queues WHERE dispatcher = 'r0'`)
	for round := range 6 {
		before := sent()
		victim := alive(fmt.Sprintf("v%d", round))
		require.Eventually(t, func() bool { return s.processing(t, fmt.Sprintf("v%d", round)) > 0 || sent() == n }, patience, time.Millisecond)
		if round%2 == 1 { // past its heartbeat and its lease; it goes on then
			require.NoError(t, victim.Freeze(true))
			frozen := time.Now()
			require.Eventually(t, func() bool { return time.Since(frozen) > outboxtest.WorkerLease+time.Second }, patience, 50*time.Millisecond)
			require.NoError(t, victim.Freeze(false))
			require.Eventually(t, func() bool { return sent() > before || sent() == n }, patience, 10*time.Millisecond)
		}
		require.NoError(t, victim.Stop(child.Step{Signal: syscall.SIGKILL, Wait: patience}))
	}
	d.Delivered(t)
	d.Accounted(t, n)
	require.Eventually(t, func() bool {
		queues, err := s.broker(t, "", many).Queues(t.Context())
		return err == nil && queues[1].Oldest == queues[1].Last+1 && s.copies(t) == 0
	}, patience, 100*time.Millisecond)
}
