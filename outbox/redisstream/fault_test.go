package redisstream_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/redisstream"
	"github.com/belfryhq/belfry/outbox/sender"
)

// start runs a relay until the test ends.
func start(t testing.TB, pool *pgxpool.Pool, b outbox.Broker, name string, client sender.Sender) (stop func()) {
	t.Helper()
	r := newRelay(t, pool, b, name, client)
	ctx, cancel := context.WithCancel(background(t))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// counting is a sender that counts its calls for each message.
type counting struct {
	mu    sync.Mutex
	calls map[string]int
}

func (*counting) MaxBatch() int { return 1 }

func (c *counting) Send(_ context.Context, batch []sender.Delivery) []sender.Result {
	results := make([]sender.Result, len(batch))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, d := range batch {
		c.calls[fmt.Sprint(d.JobID, "/", d.ChannelID)]++
		results[i].Class = sender.Accepted
	}
	return results
}

// count is how many messages were called for, and how many calls there were.
func (c *counting) count() (messages, calls int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.calls {
		calls += n
	}
	return len(c.calls), calls
}

// queued has n messages of one job QUEUED and pushed to b, all of them.
func queued(t testing.TB, d *outboxtest.Database, b *redisstream.Broker, n int) {
	t.Helper()
	d.Job(t, "default", 1, n, 0)
	c := d.Carrier(t, b, "pusher")
	stop := d.Dispatch("pusher", c, 1000, time.Hour)
	eventually(t, "all are in the carrier", func() bool { return copies(t, b) == n })
	stop()
}

// I10: the server is killed in the middle of 100,000 queued messages, and starts empty.
func TestFault_ServerKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	forgets(t, func(server *dbtest.Redis) {
		require.NoError(t, server.Stop())
		require.NoError(t, server.Start(t.Context()))
	})
}

// I10: somebody empties it.
func TestFault_ServerFlushedInTheMiddle(t *testing.T) {
	t.Parallel()
	forgets(t, func(server *dbtest.Redis) { require.Equal(t, "+OK", server.Do(t, "FLUSHALL")) })
}

// I10: it starts from a log that lacks the last third of what it did.
func TestFault_ServersLogCutInTheMiddle(t *testing.T) {
	t.Parallel()
	forgets(t, func(server *dbtest.Redis) {
		require.NoError(t, server.Stop())
		file := server.AppendOnlyFile(t)
		is, err := os.Stat(file)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(file, is.Size()*2/3))
		require.NoError(t, server.Start(t.Context()))
	}, "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")
}

// forgets requires that each of 100,000 queued messages is called for once, or its second call is
// on record, whatever the server forgets while two relays work.
func forgets(t *testing.T, forget func(server *dbtest.Redis), settings ...string) {
	t.Helper()
	const n = 100_000
	server, d := dbtest.StartRedis(t, settings...), outboxtest.NewDatabase(t, dbtest.New(t), n)
	b := open(t, server.URL, "forgets", many)
	queued(t, d, b, n)
	s := &counting{calls: make(map[string]int)}
	for _, name := range []string{"r1", "r2"} {
		start(t, d.DB.Pool, b, name, s)
	}
	eventually(t, "some are delivered", func() bool { sent, _ := s.count(); return sent > n/5 })
	began := time.Now()
	forget(server)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for sent := 0; sent < n; sent, _ = s.count() {
		require.Less(t, time.Since(began), 5*patience, "%d of %d are called for", sent, n)
		<-tick.C
	}
	d.Delivered(t)
	_, calls := s.count()
	unknown := outboxtest.One[int](t, d, `SELECT count(*) FROM belfry.attempts WHERE outcome IN ('unknown', 'crashed')`)
	t.Logf("%d calls for %d messages, %d of unknown outcome; delivered %s after", calls, n, unknown, time.Since(began).Round(time.Millisecond))
	require.LessOrEqual(t, calls, n+unknown)
}

// A replica is promoted that lacks the last three hundred pushes: Inside shows it, and they are made
// again (sentence 1).
func TestFault_PromotedReplicaLacksPushes(t *testing.T) {
	t.Parallel()
	const n, lost = 900, 300
	master, replica, d := dbtest.StartRedis(t), dbtest.StartRedis(t), outboxtest.NewDatabase(t, dbtest.New(t), n)
	link := dbtest.StartProxy(t, master.Addr)
	host, port, err := net.SplitHostPort(link.Addr)
	require.NoError(t, err)
	replica.Do(t, "REPLICAOF", host, port)
	first, second := open(t, master.URL, "replica", many), open(t, replica.URL, "replica", many)
	d.Job(t, "default", 1, n-lost, 0)
	c := d.Carrier(t, first, "pusher")
	stop := d.Dispatch("pusher", c, 1, time.Hour)
	eventually(t, "the replica has all", func() bool { return copies(t, first) == n-lost && len(entries(t, second)) == n-lost })
	link.Down(true)
	d.Job(t, "default", n-lost+1, n, 0)
	eventually(t, "the master has the rest", func() bool { return copies(t, first) == n })
	stop()
	require.NoError(t, master.Stop())
	replica.Do(t, "REPLICAOF", "NO", "ONE")
	in := inside(t, d.Carrier(t, second, "looks"))
	require.EqualValues(t, n-lost, in.Last)
	s := &counting{calls: make(map[string]int)}
	start(t, d.DB.Pool, second, "r1", s)
	d.Delivered(t)
	_, calls := s.count()
	require.Equal(t, n, calls)
	require.Equal(t, in.Epoch, inside(t, d.Carrier(t, second, "looks again")).Epoch, "nothing else was pushed again")
}

// A read that is not answered for ten seconds longer than its block is no outage: it is not known
// what it has taken, which is looked for (sentence 14).
func TestFault_ReadThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	server, log := dbtest.StartRedis(t), &dbtest.Buffer{}
	b, w := open(t, server.URL, "unanswered", many, func(o *redisstream.Options) { o.Log = zerolog.New(log) }), newTruth()
	b.Block(200 * time.Millisecond)
	c := b.Carrier("r1", w.as("r1")) // without Keep, whose commands are answered sooner or not at all
	p := &pusher{to: c}
	p.push(t, 1)
	require.NoError(t, c.Settled(t.Context(), sent(receive(t, c, 1))))
	stop := receiveAll(t, c, &room{10})
	eventually(t, "it waits", func() bool { return blocked(t, b) == 2 })
	require.NoError(t, server.Pause())
	began := time.Now()
	eventually(t, "a read is given up", func() bool { return time.Since(began) > 12*time.Second })
	require.NoError(t, server.Continue())
	p.push(t, 10)
	eventually(t, "what is pushed comes", func() bool { return w.by()["r1"] == 11 })
	require.Empty(t, log.String())
	stop()
}
