package live

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox/redishints"
)

// sharing has a server exchange hints on a Redis server.
func sharing(t *testing.T, server *dbtest.Redis) func(*Server) {
	t.Helper()
	return func(s *Server) {
		c := redisdb.DefaultConfig()
		c.URL = server.URL
		hints, err := redishints.New(c, "delivery.redis", zerolog.New(zerolog.NewTestWriter(t)))
		require.NoError(t, err)
		s.Share(hints)
	}
}

// following waits until n nodes read hints.
func following(t *testing.T, server *dbtest.Redis, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		const script = "return tonumber(string.match(redis.call('info', 'clients'), 'blocked_clients:(%d+)'))"
		return server.Do(t, "EVAL", script, "0") == fmt.Sprint(":", n)
	}, patience, time.Millisecond)
}

// deafened connects a server through a pooler in transaction mode, on which no notification arrives.
func (b *bundle) deafened(t *testing.T) func(*Server) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dbtest.StartPgBouncer(t, b.DB.DSN, nil).DSN(b.DB.Name)+"&default_query_exec_mode=exec")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return func(s *Server) { s.pool = pool }
}

// asks has a node that hears nothing ask, and waits until another one knows.
func (n *node) asks(t *testing.T, other *node) {
	t.Helper()
	before := time.Now()
	n.nodes.hints.Send(deaf, 0)
	require.Eventually(t, func() bool {
		other.nodes.mu.Lock()
		defer other.nodes.mu.Unlock()
		return other.nodes.asked.After(before)
	}, patience, time.Millisecond)
}

// forgets lets a node pass the next wake on.
func (n *node) forgets() {
	n.nodes.mu.Lock()
	defer n.nodes.mu.Unlock()
	n.nodes.passed = time.Time{}
}

// A mark through one node reaches the person's clients on all nodes, and nobody else.
func TestNodes_MarksReachEveryNode(t *testing.T) {
	t.Parallel()
	b, server := setup(t), dbtest.StartRedis(t)
	one, two := b.serve(t, sharing(t, server)), b.serve(t, sharing(t, server))
	here, there, socket, other := one.stream(t, "7", ""), two.stream(t, "7", ""), two.socket(t, "7", ""), two.stream(t, "8", "")
	for _, c := range []*client{here, there, socket, other} {
		c.reloads(t)
	}
	following(t, server, 2)
	one.Marked(7)
	for _, c := range []*client{here, there, socket} {
		require.Equal(t, "read", c.next(t).Type)
	}
	two.Marked(8)
	require.Equal(t, "read", other.next(t).Type)
	id := b.notify(t, 7)
	for _, c := range []*client{here, there, socket} {
		require.Equal(t, []int64{id}, c.ids(t, 1), "one read event only")
	}
}

// A node behind a pooler in transaction mode, which would poll an hour later, gets each notification by the wakes of
// a node that listens. That node passes none on unless it is asked.
func TestNodes_WakeADeafNode(t *testing.T) {
	t.Parallel()
	b, server := setup(t), dbtest.StartRedis(t)
	one := b.serve(t, sharing(t, server))
	two := b.serve(t, b.deafened(t), sharing(t, server), func(s *Server) { s.quiet = time.Hour })
	following(t, server, 2)
	c := one.stream(t, "7", "")
	c.reloads(t)
	require.Equal(t, []int64{b.notify(t, 7)}, c.ids(t, 1))
	const wakes = `local n = 0
		for _, e in ipairs(redis.call('xrange', KEYS[1], '-', '+')) do n = n + (string.find(e[2][4], 'wake') and 1 or 0) end
		return n`
	require.Equal(t, ":0", server.Do(t, "EVAL", wakes, "1", "{belfry:live}:hints"), "no node asked")
	c = two.stream(t, "7", "")
	c.reloads(t)
	require.Eventually(t, func() bool {
		one.nodes.mu.Lock()
		defer one.nodes.mu.Unlock()
		return !one.nodes.asked.IsZero()
	}, patience, time.Millisecond, "the deaf node asks by itself")
	for range 3 {
		lull(t)
		two.asks(t, one)
		one.forgets()
		require.Equal(t, []int64{b.notify(t, 7)}, c.ids(t, 1))
	}
	require.NotEqual(t, ":0", server.Do(t, "EVAL", wakes, "1", "{belfry:live}:hints"))
}

// lull waits for the end of short polls. belfry.notify notifies at most once in 20 ms, because listeners poll after it.
func lull(t *testing.T) {
	t.Helper()
	time.Sleep(2 * hotFor) //nolint:forbidigo // no state
}

// Wakes have a limit, and a node that listens polls after none of another.
func TestNodes_LimitWakes(t *testing.T) {
	t.Parallel()
	s := New(nil, 1, nil, nil, zerologNop)
	sent := new(recorder)
	s.Share(sent)
	listens := true
	s.nodes.listens = func() bool { return listens }
	s.nodes.pass()
	s.nodes.ask()
	require.Empty(t, *sent, "nobody asks")
	s.hinted(deaf, 0)
	s.nodes.pass()
	s.nodes.pass()
	require.Equal(t, recorder{wake}, *sent)
	s.nodes.passed = time.Now().Add(-passEvery)
	s.hinted(wake, 0)
	s.nodes.pass()
	require.Equal(t, recorder{wake}, *sent, "another node did")
	s.nodes.passed = time.Now().Add(-passEvery)
	s.nodes.pass()
	require.Equal(t, recorder{wake, wake}, *sent)
	s.nodes.passed, s.nodes.asked = time.Time{}, time.Now().Add(-deafFor)
	s.nodes.pass()
	require.Len(t, *sent, 2, "asked long ago")
	require.Empty(t, s.wake)
	listens = false
	s.hinted("later", 0)
	require.Empty(t, s.wake)
	s.hinted(wake, 0)
	require.Len(t, s.wake, 1)
	s.nodes.ask()
	s.nodes.ask()
	require.Equal(t, recorder{wake, wake, deaf}, *sent)
}

type recorder []string

func (r *recorder) Send(kind string, _ int64)                    { *r = append(*r, kind) }
func (*recorder) Run(ctx context.Context, _ func(string, int64)) { <-ctx.Done() }

// While Redis is away notifications arrive, and marks when it is back.
func TestNodes_ContinueWithoutRedis(t *testing.T) {
	t.Parallel()
	b, server := setup(t), dbtest.StartRedis(t)
	one, two := b.serve(t, sharing(t, server)), b.serve(t, sharing(t, server))
	here, there := one.stream(t, "7", ""), two.stream(t, "7", "")
	here.reloads(t)
	there.reloads(t)
	following(t, server, 2)
	require.NoError(t, server.Stop())
	for range 3 {
		one.Marked(7)
		require.Equal(t, "read", here.next(t).Type)
		id := b.notify(t, 7)
		require.Equal(t, []int64{id}, here.ids(t, 1))
		require.Equal(t, []int64{id}, there.ids(t, 1))
	}
	require.NoError(t, server.Start(t.Context()))
	following(t, server, 2)
	one.Marked(7)
	require.Equal(t, "read", there.next(t).Type)
}

// A flood of entries does not end a stream, and leaves room for notifications.
func TestNodes_SurviveAFlood(t *testing.T) {
	t.Parallel()
	b, server := setup(t), dbtest.StartRedis(t)
	n := b.serve(t, sharing(t, server))
	c, socket := n.stream(t, "7", ""), n.socket(t, "7", "")
	c.reloads(t)
	socket.reloads(t)
	following(t, server, 1)
	flood := strings.Repeat("mark 7,wake 0,deaf 0,mark 9000000,x,", 200)
	for range 200 {
		for range 5 {
			server.Do(t, "XADD", "{belfry:live}:hints", "*", "node", "x", "hints", flood)
		}
		server.Do(t, "XADD", "{belfry:live}:hints", "*", "a", "b")
	}
	b.notify(t, 7)
	for _, c := range []*client{c, socket} {
		reads := 0
		for e := c.next(t); e.Type != "new"; e = c.next(t) {
			require.Equal(t, "read", e.Type)
			reads++
		}
		require.Less(t, reads, 1000)
		t.Log(reads, "read events of 200,000 marks")
	}
}

// Of read events that a slow client has not taken one is queued, in its place among the others.
func TestConn_QueuesOneReadInARow(t *testing.T) {
	t.Parallel()
	c := &conn{wake: make(chan struct{}, 1)}
	for range 2 * maxQueued {
		c.add(event{kind: isRead})
	}
	c.add(event{kind: isNew})
	c.add(event{kind: isRead})
	list, reason := c.take()
	require.Equal(t, open, reason)
	var kinds []kind
	for _, e := range list {
		kinds = append(kinds, e.kind)
	}
	require.Equal(t, []kind{isRead, isNew, isRead}, kinds)
	for range maxQueued {
		c.add(event{kind: isNew})
	}
	c.add(event{kind: isRead})
	_, reason = c.take()
	require.Equal(t, tooSlow, reason)
}

// Measures the way of a mark to another node, and of a notification to a node that hears nothing, with hints and without.
func TestLong_LiveHints(t *testing.T) { //nolint:paralleltest // a measurement
	b, server := setup(t), dbtest.StartRedis(t)
	one, two := b.serve(t, sharing(t, server)), b.serve(t, sharing(t, server))
	hinted, alone := b.serve(t, b.deafened(t), sharing(t, server)), b.serve(t, b.deafened(t))
	c := two.stream(t, "7", "")
	c.reloads(t)
	following(t, server, 3)
	report := func(what string, delays []time.Duration) {
		slices.Sort(delays)
		q := func(p int) time.Duration { return delays[len(delays)*p/100].Round(100 * time.Microsecond) }
		t.Logf("%s of %d: p50 %v, p99 %v, most %v", what, len(delays), q(50), q(99), delays[len(delays)-1].Round(100*time.Microsecond))
	}
	var delays []time.Duration
	for i := range 500 {
		time.Sleep(time.Duration(i*37%50) * time.Millisecond) //nolint:forbidigo // readers mark now and then
		began := time.Now()
		one.Marked(7)
		require.Equal(t, "read", c.next(t).Type)
		delays = append(delays, time.Since(began))
	}
	report("mark to the client of another node", delays)
	for name, n := range map[string]*node{"with hints": hinted, "without": alone, "that listens": two} {
		c := n.stream(t, "8", "")
		c.reloads(t)
		time.Sleep(time.Second) //nolint:forbidigo // the node asks
		delays = nil
		for i := range 60 {
			began := time.Now()
			id := b.notify(t, 8)
			require.Equal(t, id, c.next(t).ID)
			delays = append(delays, time.Since(began))
			time.Sleep(hotFor + 100*time.Millisecond + time.Duration(i*37%900)*time.Millisecond) //nolint:forbidigo // no short polls
		}
		report("call of belfry.notify to the client of a node "+name, delays)
	}
}
