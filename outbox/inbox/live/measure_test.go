package live

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// reader is a client that reconnects with its position.
type reader struct {
	channel int64
	socket  bool

	mu      sync.Mutex
	ids     map[int64]int // how often each came
	at      string
	reloads int
	resumed time.Time
}

// fleet is the clients of all nodes and what they must get.
type fleet struct {
	urls  []string
	mu    sync.Mutex
	sent  map[int64]time.Time // after the commit, by id
	of    map[int64]int64     // channel by id
	delay []time.Duration
	dead  sync.Map // URL
}

// got records an event.
func (f *fleet) got(r *reader, e got) {
	now := time.Now()
	r.mu.Lock()
	if e.Position != "" {
		r.at = e.Position
	}
	first := false
	switch e.Type {
	case "reload":
		r.reloads++
	case "new":
		r.ids[e.ID]++
		first = r.ids[e.ID] == 1
	}
	replayed := !r.resumed.IsZero() && now.Sub(r.resumed) < 5*time.Second
	r.mu.Unlock()
	if !first || e.Notification == nil || replayed {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, known := f.sent[e.ID]; known {
		f.delay = append(f.delay, max(0, now.Sub(at)))
	} else {
		f.delay = append(f.delay, 0) // before the sender knows of the commit
	}
}

// follow reads until ctx ends, on the node at first, and on any living node after it.
func (f *fleet) follow(ctx context.Context, r *reader, first string) {
	for url := first; ctx.Err() == nil; {
		if r.socket {
			f.readSocket(ctx, r, url)
		} else {
			f.readEvents(ctx, r, url)
		}
		r.mu.Lock()
		r.resumed = time.Now()
		r.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(2 * time.Second)):
		}
		for url = f.urls[rand.IntN(len(f.urls))]; ; url = f.urls[rand.IntN(len(f.urls))] {
			if _, dead := f.dead.Load(url); !dead {
				break
			}
		}
	}
}

func (f *fleet) readEvents(ctx context.Context, r *reader, url string) {
	conn, err := dialEvents(ctx, url, r.channel, r.at)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close() //nolint:errcheck // read only
	lines := bufio.NewScanner(conn)
	e := got{}
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			e.Position = value
		case "data":
			_ = json.Unmarshal([]byte(value), &e)
		case "":
			if e.Position != "" || e.Type != "" {
				f.got(r, e)
			}
			e = got{}
		}
	}
}

// dialEvents opens an event stream without the buffers of an HTTP client.
func dialEvents(ctx context.Context, url string, channel int64, after string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return nil, err
	}
	header := ""
	if after != "" {
		header = "Last-Event-ID: " + after + "\r\n"
	}
	_, err = fmt.Fprintf(conn, "GET /v1/stream?token=%d HTTP/1.1\r\nHost: x\r\n%s\r\n", channel, header)
	return conn, err
}

func (f *fleet) readSocket(ctx context.Context, r *reader, url string) {
	conn, _, err := websocket.Dial(ctx, //nolint:bodyclose // a WebSocket has none
		fmt.Sprintf("%s/v1/ws?token=%d&after=%s", strings.Replace(url, "http", "ws", 1), r.channel, r.at), nil)
	if err != nil {
		return
	}
	defer conn.CloseNow() //nolint:errcheck // read only
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		e := got{}
		_ = json.Unmarshal(data, &e)
		f.got(r, e)
	}
}

// number returns a number of the environment.
func number(name string, usual int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return usual
}

// Two nodes serve clients while a bulk job walks 100,000 channels and notifications are sent. One node is lost in between.
// Each client gets each of its notifications. BELFRY_LIVE_CLIENTS is the number of clients of each node.
func TestLong_LiveNodesMissNothing(t *testing.T) { //nolint:funlen,paralleltest // a measurement
	const recipients, perSecond = 100_000, 50
	clients, seconds := number("BELFRY_LIVE_CLIENTS", 300), number("BELFRY_LIVE_SECONDS", 20)
	b := setup(t)
	b.Exec(t, `INSERT INTO belfry.channels (id, external_id, platform)
		SELECT g, 'u-' || g, 'ios' FROM generate_series(301, $1::bigint) g`, recipients)
	b.Exec(t, `VACUUM ANALYZE belfry.channels`)
	quiet := func(s *Server) { s.log = zerologNop }
	nodes := []*node{b.serve(t, quiet), b.serve(t, quiet)}
	f := &fleet{urls: []string{nodes[0].url, nodes[1].url}, sent: make(map[int64]time.Time), of: make(map[int64]int64)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var list []*reader
	step := recipients / (2 * clients)
	for i := range 2 * clients {
		r := &reader{channel: int64(1 + i*step), socket: i%4 > 1, ids: make(map[int64]int)}
		list = append(list, r)
		running.Go(func() { f.follow(ctx, r, f.urls[i%2]) })
	}
	ready := func() bool {
		return !slices.ContainsFunc(list, func(r *reader) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.at == ""
		})
	}
	require.Eventually(t, ready, 5*time.Minute, 50*time.Millisecond)

	who, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	config := job.DefaultConfig()
	config.Listen = false
	runner, err := job.NewRunner(b.DB.Pool, config, outbox.Types(who))
	require.NoError(t, err)
	id := outboxtest.One[int64](t, b.Database, `INSERT INTO belfry.jobs (type, category, title, max_rows_per_second)
		VALUES ('inbox', 'operator_notice', 'bulk', $1) RETURNING id`,
		recipients/seconds)
	walk := make(chan error, 1)
	go func() {
		_, err := runner.RunDue(ctx)
		walk <- err
	}()

	var senders sync.WaitGroup
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for i := range seconds * perSecond {
		<-tick.C
		r := list[rand.IntN(len(list))]
		senders.Go(func() {
			tx, err := b.DB.Pool.Begin(ctx)
			if err != nil {
				return
			}
			var id int64
			err = tx.QueryRow(ctx, `SELECT -belfry.notify($1, 'activity', 'hello', route => '{}')`, r.channel).Scan(&id)
			if err == nil && i%20 == 0 { // commits late, or never
				time.Sleep(300 * time.Millisecond) //nolint:forbidigo // a slow application
			}
			if err != nil || i%40 == 0 || tx.Commit(ctx) != nil {
				_ = tx.Rollback(ctx)
				return
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.sent[id], f.of[id] = time.Now(), r.channel
		})
		if i == seconds*perSecond/2 {
			f.dead.Store(nodes[0].url, true)
			go nodes[0].stop()
		}
	}
	senders.Wait()
	require.NoError(t, <-walk)
	require.Equal(t, int64(recipients), outboxtest.One[int64](t, b.Database, `SELECT rows_written FROM belfry.jobs WHERE id = $1`, id))
	bulk := outboxtest.One[int64](t, b.Database, `SELECT arrival FROM belfry.jobs WHERE id = $1`, id)

	missed := func() (n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		by := make(map[int64]*reader, len(list))
		for _, r := range list {
			by[r.channel] = r
			r.mu.Lock()
			if r.ids[bulk] == 0 {
				n++
			}
			r.mu.Unlock()
		}
		for id, channel := range f.of {
			r := by[channel]
			r.mu.Lock()
			if r.ids[id] == 0 {
				n++
			}
			r.mu.Unlock()
		}
		return n
	}
	for end := time.Now().Add(15 * time.Second); missed() > 0 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // what was sent arrives
	}
	delivered, twice, reloads := 0, 0, 0
	for _, r := range list {
		r.mu.Lock()
		for _, n := range r.ids {
			delivered++
			twice += n - 1
		}
		reloads += r.reloads
		r.mu.Unlock()
	}
	slices.Sort(f.delay)
	q := func(p int) time.Duration { return f.delay[len(f.delay)*p/100].Round(time.Millisecond) }
	t.Logf("2 nodes, %d clients each: %d notifications delivered, %d missed, %d repeated after reconnects, %d reloads beyond the first; "+
		"commit to client of %d: p50 %v, p95 %v, p99 %v, most %v", clients, delivered, missed(), twice, reloads-len(list),
		len(f.delay), q(50), q(95), q(99), f.delay[len(f.delay)-1])
	require.Zero(t, missed())
	cancel()
	running.Wait()
	nodes[1].stop()
}

// Idle clients cost little memory. The client's side is in the same process: half of a bare pair of connections.
func TestLong_LiveClientsAreSmall(t *testing.T) { //nolint:paralleltest // a measurement
	clients := number("BELFRY_LIVE_CLIENTS", 300)
	b := setup(t)
	n := b.serve(t)
	measure := func() uint64 {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	client := func() uint64 {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close() //nolint:errcheck // nothing was written
		plain, pairs := measure(), make([]net.Conn, 0, 2*clients)
		for range clients {
			to, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
			require.NoError(t, err)
			from, err := l.Accept()
			require.NoError(t, err)
			pairs = append(pairs, to, from)
		}
		half := (measure() - plain) / uint64(2*clients)
		for _, c := range pairs {
			require.NoError(t, c.Close())
		}
		return half
	}()
	for name, dial := range map[string]func(channel int64) net.Conn{
		"SSE": func(channel int64) net.Conn {
			conn, err := dialEvents(t.Context(), n.url, channel, "")
			require.NoError(t, err)
			return conn
		},
		"WebSocket": func(channel int64) net.Conn {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(n.url, "http://"))
			require.NoError(t, err)
			_, err = fmt.Fprintf(conn, "GET /v1/ws?token=%d HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", channel)
			require.NoError(t, err)
			return conn
		},
	} {
		first := dial(1) // the feed and its connections begin with it
		_, err := first.Read(make([]byte, 1024))
		require.NoError(t, err)
		base := n.Streams()
		before, plain := measure(), heap()
		conns := make([]net.Conn, clients)
		for i := range conns {
			conns[i] = dial(int64(i + 2))
		}
		require.Eventually(t, func() bool { return n.Streams() == base+clients }, patience, time.Millisecond)
		buffer := make([]byte, 1024)
		for _, c := range conns {
			_, err := c.Read(buffer)
			require.NoError(t, err)
		}
		all, after := measure(), heap()
		per := func(n uint64) uint64 { return n/uint64(clients) - client }
		t.Logf("%s: %d bytes of heap and %d of heap and stacks per idle client, without %d of the client", name, per(after-plain), per(all-before), client)
		limit := uint64(16 << 10)
		if name == "WebSocket" {
			limit = 32 << 10
		}
		require.LessOrEqual(t, per(after-plain), limit, name)
		for _, c := range conns {
			require.NoError(t, c.Close())
		}
		require.Eventually(t, func() bool { return n.Streams() == base }, patience, time.Millisecond)
		require.NoError(t, first.Close())
	}
}
