package live

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
)

// A notification reaches every client of its channel, on every node, with its content.
func TestLive_ReachesEveryClientOfTheChannel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two := b.serve(t), b.serve(t)
	clients := []*client{one.stream(t, "7", ""), one.socket(t, "7", ""), two.stream(t, "7", ""), two.socket(t, "7", "")}
	other := one.stream(t, "8", "")
	for _, c := range append(clients, other) {
		c.reloads(t)
	}
	id := b.notify(t, 7)
	for _, c := range clients {
		e := c.next(t)
		require.Equal(t, "new", e.Type)
		require.Equal(t, id, e.ID)
		require.Equal(t, "hello", e.Notification.Title)
		require.Equal(t, 1, e.Notification.Count)
		require.NotEmpty(t, e.Position)
	}
	require.Equal(t, []int64{b.notify(t, 8)}, other.ids(t, 1), "nothing of another channel")
	one.Marked(7)
	require.Equal(t, "read", clients[0].next(t).Type)
	require.Equal(t, "read", clients[1].next(t).Type)
}

// A batch of notifications that is not read in time delays no other one: its clients get the ids.
func TestLive_PassesABatchThatIsSlow(t *testing.T) {
	t.Parallel()
	b := &bundle{&outboxtest.Database{DB: dbtest.New(t)}}
	b.OldChannels(t, 10)
	b.Exec(t, `ALTER FUNCTION belfry.inbox_page RENAME TO inbox_page_of`)
	b.Exec(t, `CREATE FUNCTION belfry.inbox_page(channel_id bigint, before bigint, max_rows integer, after bigint)
		RETURNS TABLE (id bigint, at timestamptz, category text, title text, body text, data jsonb, seen boolean, read boolean, count integer)
		LANGUAGE sql SECURITY DEFINER AS $$
			SELECT pg_sleep(CASE channel_id WHEN 5 THEN 60 ELSE 0 END);
			SELECT * FROM belfry.inbox_page_of(channel_id, before, max_rows, after => after) $$`)
	n := b.serve(t)
	slow, other := n.stream(t, "5", ""), n.stream(t, "7", "")
	slow.reloads(t)
	other.reloads(t)
	b.Exec(t, `SELECT belfry.notify(CASE WHEN g > $1 THEN 7 ELSE 5 END, 'activity', 'hello', route => '{}') FROM generate_series(1, $1 + 1) g`, entryBatch)
	require.Equal(t, "hello", other.next(t).Notification.Title)
	require.Len(t, slow.ids(t, entryBatch), entryBatch)
	require.Equal(t, b.notify(t, 7), other.next(t).ID, "the feed goes on")
}

// Numbers are committed out of order. Each arrives when it is committed, and one that is rolled back delays nothing.
func TestLive_FindsNumbersThatCommitLate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.serve(t)
	c := n.stream(t, "7", "")
	c.reloads(t)
	late, first := b.begin(t, 7)
	never, _ := b.begin(t, 7)
	last := b.notify(t, 7)
	require.Equal(t, []int64{last}, c.ids(t, 1))
	p, ok := parsePosition(c.at)
	require.True(t, ok)
	require.Less(t, p.arrival, first, "the position is below the number that is awaited")
	require.NoError(t, never.Rollback(t.Context()))
	require.NoError(t, late.Commit(t.Context()))
	require.Equal(t, []int64{first}, c.ids(t, 1))
	require.Eventually(t, func() bool { return n.hub.at().arrival >= last }, patience, 5*time.Millisecond,
		"the number that was rolled back is not awaited any more")
}

// A transaction whose id is above those of all finished ones is awaited, too: the xmax of a snapshot does not count it.
func TestLive_AwaitsTheNewestTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old, _ := b.begin(t, 0)
	_, err := old.Exec(t.Context(), `SELECT pg_current_xact_id()`)
	require.NoError(t, err)
	n := b.serve(t)
	c := n.stream(t, "7", "")
	c.reloads(t)
	late, first := b.begin(t, 7)
	var last int64
	require.NoError(t, old.QueryRow(t.Context(), `SELECT -belfry.notify(7, 'activity', 'hello', route => '{}')`).Scan(&last))
	require.Greater(t, last, first)
	require.NoError(t, old.Commit(t.Context()))
	require.Equal(t, []int64{last}, c.ids(t, 1))
	for range 2 { // more than one poll
		require.Equal(t, []int64{b.notify(t, 7)}, c.ids(t, 1))
	}
	require.NoError(t, late.Commit(t.Context()))
	require.Equal(t, []int64{first}, c.ids(t, 1))
}

// Every number is drawn by a transaction that has its id: a hole could otherwise be dropped before it is filled.
func TestLive_NumbersAreDrawnAfterTransactionIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(t, `CREATE FUNCTION public.drawn() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF pg_current_xact_id_if_assigned() IS NULL THEN RAISE 'no transaction id'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER activities_zz BEFORE INSERT ON belfry.activities FOR EACH ROW EXECUTE FUNCTION public.drawn();
		CREATE TRIGGER jobs_zz BEFORE UPDATE ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION public.drawn()`)
	t.Cleanup(func() {
		b.Exec(t, `DROP TRIGGER activities_zz ON belfry.activities; DROP TRIGGER jobs_zz ON belfry.jobs; DROP FUNCTION public.drawn`)
	})
	for _, sql := range []string{
		`INSERT INTO belfry.activities (channel_id, title) VALUES (7, 'x')`,
		`INSERT INTO belfry.activities (channel_id, title, route) VALUES (7, 'x', '{push}')`,
	} {
		for range 3 { // nextval itself draws one for every 32 numbers
			b.Exec(t, sql)
		}
	}
	b.claim(t, "inbox")
}

// The notifications of a job arrive chunk by chunk, also those of a job that is over before the next poll, of a job that
// is resumed, and of one that walks other keys.
func TestLive_FollowsJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	resumed, early := b.claim(t, "inbox")
	b.chunk(t, resumed, 0, 50)
	b.finish(t, resumed, "ABORTED")
	n := b.serve(t)
	low, high := n.stream(t, "7", ""), n.socket(t, "207", "")
	low.reloads(t)
	high.reloads(t)

	slow, first := b.claim(t, "inbox")
	b.chunk(t, slow, 0, 100)
	require.Equal(t, []int64{first}, low.ids(t, 1))
	quick, second := b.claim(t, "inbox")
	b.chunk(t, quick, 0, 300)
	b.finish(t, quick, "PROCESSED")
	require.Equal(t, []int64{second}, low.ids(t, 1))
	require.Equal(t, []int64{second}, high.ids(t, 1))
	b.chunk(t, slow, 100, 300)
	require.Equal(t, []int64{first}, high.ids(t, 1))
	b.finish(t, slow, "PROCESSED")

	b.Exec(t, `SELECT belfry.resume($1)`, resumed)
	b.run(t, resumed)
	b.chunk(t, resumed, 50, 300)
	b.finish(t, resumed, "PROCESSED")
	require.Equal(t, []int64{early}, high.ids(t, 1))

	b.Exec(t, `INSERT INTO belfry.job_types (name) VALUES ('own')`)
	own, third := b.claim(t, "own")
	b.Exec(t, `INSERT INTO belfry.notifications (arrival, channel_id) VALUES ($1, 7), ($1, 207)`, third)
	b.Exec(t, `UPDATE belfry.jobs SET bound = 'z', "cursor" = 'f' WHERE id = $1`, own)
	require.Equal(t, []int64{third}, high.ids(t, 1))
	require.Equal(t, []int64{third}, low.ids(t, 1))
}

// A client that reconnects with its last position, on another node, gets what it missed. A position that is too old,
// missing or of too many notifications is a reload.
func TestLive_Resumes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	walks, bulk := b.claim(t, "inbox")
	resumed, early := b.claim(t, "inbox")
	b.chunk(t, resumed, 0, 50)
	b.finish(t, resumed, "ABORTED")
	one := b.serve(t, func(s *Server) { s.beat = 100 * time.Millisecond })
	c := one.stream(t, "207", "")
	c.reloads(t)
	late, hole := b.begin(t, 207)
	seen := b.notify(t, 207)
	require.Equal(t, []int64{seen}, c.ids(t, 1))
	require.Eventually(t, func() bool {
		e, ok := c.maybe(t)
		return ok && e.Type == "" // a heartbeat
	}, patience, time.Millisecond)
	at := c.at
	c.close()
	one.stop()

	require.NoError(t, late.Commit(t.Context()))
	b.chunk(t, walks, 0, 300)
	b.finish(t, walks, "PROCESSED")
	b.Exec(t, `SELECT belfry.resume($1)`, resumed)
	b.run(t, resumed)
	b.chunk(t, resumed, 50, 300)
	b.finish(t, resumed, "PROCESSED")
	missed := b.notify(t, 207)
	two := b.serve(t)
	for name, open := range map[string]func(testing.TB, string, string) *client{"stream": two.stream, "socket": two.socket} {
		list := map[int64]bool{}
		c := open(t, "207", at)
		for len(list) < 4 {
			if id := c.ids(t, 1)[0]; id != seen { // which may come again
				list[id] = true
			}
		}
		require.Equal(t, map[int64]bool{hole: true, bulk: true, early: true, missed: true}, list, name)
		c.close()
	}
}

func TestLive_ReloadsWhatCannotBeResumed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.serve(t)
	c := n.stream(t, "7", "")
	c.reloads(t)
	at := c.at
	p, _ := parsePosition(at)
	for _, bad := range []string{"", "x", "1", "-1--1", position{p.arrival, p.at - 3700}.String(), position{p.arrival, p.at + 3600}.String()} {
		for _, open := range []func(testing.TB, string, string) *client{n.stream, n.socket} {
			c := open(t, "7", bad)
			c.reloads(t)
			c.close()
		}
	}
	b.Exec(t, `SELECT belfry.notify(8, 'activity', 'hello', route => '{}') FROM generate_series(1, 100)`)
	missing := n.stream(t, "8", at)
	missing.ids(t, 100)
	b.notify(t, 8)
	n.stream(t, "8", at).reloads(t)
}

// A client that does not read is disconnected, and resumes from what it has read.
func TestLive_DisconnectsASlowClient(t *testing.T) {
	t.Parallel()
	n := &hub{most: 10, conns: make(map[int64][]*conn), ready: make(chan struct{})}
	c, _, err := n.join(7)
	require.NoError(t, err)
	for i := range int64(maxQueued) {
		n.publish(map[int64][][]byte{7: {newEvent(i)}}, position{i, 1})
	}
	list, reason := c.take()
	require.Len(t, list, maxQueued)
	require.Equal(t, open, reason)
	for i := range int64(maxQueued + 1) {
		n.publish(map[int64][][]byte{7: {newEvent(i)}}, position{i, 1})
	}
	list, reason = c.take()
	require.Empty(t, list)
	require.Equal(t, tooSlow, reason)
	n.leave(c)

	b := setup(t)
	served := b.serve(t)
	slow, events := served.socket(t, "7", ""), served.stream(t, "7", "")
	slow.reloads(t)
	events.reloads(t)
	served.hub.mu.Lock()
	for _, c := range served.hub.conns[7] {
		for range maxQueued + 1 { // before its goroutine takes one
			c.mu.Lock()
			c.queue = append(c.queue, event{data: reload})
			c.mu.Unlock()
		}
		c.add(event{data: reload})
	}
	served.hub.mu.Unlock()
	slow.ends(t)
	require.Equal(t, websocket.StatusTryAgainLater, slow.code)
	events.ends(t)
	id := b.notify(t, 7)
	again := served.stream(t, "7", events.at)
	require.Equal(t, []int64{id}, again.ids(t, 1))
	served.Marked(7)
	e := again.next(t)
	for e.Type == "new" { // the feed may have found it, too
		require.Equal(t, id, e.ID)
		e = again.next(t)
	}
	require.Equal(t, "read", e.Type)
	again.close()
	require.Eventually(t, func() bool { return served.Stats().Ended["gone"] == 1 }, patience, time.Millisecond)
	stats := served.Stats()
	require.Positive(t, stats.Sent["new"])
	stats.Sent["new"] = 1
	require.Equal(t, Stats{
		Sent:  map[string]int64{"new": 1, "read": 1, "reload": 2},
		Ended: map[string]int64{"too_slow": 2, "stopping": 0, "expired": 0, "gone": 1},
	}, stats)
}

// A client is slow that takes no data until the deadline of a write, and one that has too many events then.
func TestLive_CountsSlowClientsWhoseWritesFail(t *testing.T) {
	t.Parallel()
	s := New(nil, 1, readers{}, nil, zerologNop)
	for _, lost := range []struct {
		had closing
		err error
	}{{open, net.ErrClosed}, {tooSlow, net.ErrClosed}, {open, fmt.Errorf("write: %w", os.ErrDeadlineExceeded)}} {
		c := &conn{reason: lost.had}
		reason := s.pump(t.Context(), c, time.Now().Add(time.Hour), []event{{kind: isNew}}, func([]event) error { return lost.err })
		require.Equal(t, gone, reason)
	}
	require.Equal(t, map[string]int64{"too_slow": 2, "stopping": 0, "expired": 0, "gone": 1}, s.Stats().Ended)
	require.Zero(t, s.Stats().Sent["new"])
}

// All events of a poll but the last have the position before it: a client that has lost the last one gets it again.
func TestLive_PositionsAreBelowWhatIsNotSent(t *testing.T) {
	t.Parallel()
	h := &hub{most: 10, conns: make(map[int64][]*conn), ready: make(chan struct{})}
	c, _, err := h.join(7)
	require.NoError(t, err)
	h.begin(position{10, 1})
	h.publish(map[int64][][]byte{7: {newEvent(11), newEvent(12)}}, position{12, 2})
	list, _ := c.take()
	require.Equal(t, []position{{10, 1}, {12, 2}}, []position{list[0].at, list[1].at})
	require.Equal(t, position{12, 2}, h.at())
	h.leave(c)
}

func TestLive_LimitsStreams(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.serve(t, func(s *Server) { s.hub.most = maxPerChannel + 1 })
	var list []*client
	for range maxPerChannel {
		list = append(list, n.stream(t, "7", ""))
	}
	require.Equal(t, http.StatusTooManyRequests, n.try(t, "7", "").status)
	list = append(list, n.stream(t, "8", ""))
	require.Equal(t, http.StatusServiceUnavailable, n.try(t, "9", "").status)
	require.Equal(t, maxPerChannel+1, n.Streams())
	list[0].close()
	require.Eventually(t, func() bool { return n.Streams() == maxPerChannel }, patience, time.Millisecond)
	n.stream(t, "7", "").reloads(t)
	require.Equal(t, http.StatusUnauthorized, n.try(t, "x", "").status)
}

// A stream ends with its token, and with the server.
func TestLive_EndsStreams(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.serve(t, func(s *Server) { s.beat = 20 * time.Millisecond })
	short := []*client{n.stream(t, "7@300", ""), n.socket(t, "7@300", "")}
	long := []*client{n.stream(t, "7", ""), n.socket(t, "7", "")}
	for _, c := range append(slices.Clone(short), long...) {
		c.reloads(t)
	}
	e, _ := long[0].maybe(t)
	require.Empty(t, e.Type)
	require.NotEmpty(t, e.Position, "a heartbeat has the position")
	e, _ = long[1].maybe(t)
	require.Equal(t, "position", e.Type)
	require.NotEmpty(t, e.Position)
	short[0].ends(t)
	short[1].ends(t)
	require.Equal(t, unauthorized, short[1].code)
	n.stop()
	long[0].ends(t)
	long[1].ends(t)
	require.Equal(t, websocket.StatusServiceRestart, long[1].code)
}

// A client that sends many pings, or pongs, is disconnected.
func TestLive_LimitsThePingsOfAWebSocket(t *testing.T) {
	t.Parallel()
	n := setup(t).serve(t)
	for _, opcode := range []byte{0x9, 0xa} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = fmt.Fprintf(conn, "GET /v1/ws?token=7 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
		require.NoError(t, err)
		in := bufio.NewReader(conn)
		for line := ""; line != "\r\n"; {
			line, err = in.ReadString('\n')
			require.NoError(t, err)
		}
		frame := []byte{0x80 | opcode, 0x80, 0, 0, 0, 0}
		_, err = conn.Write(bytes.Repeat(frame, 20))
		require.NoError(t, err)
		require.Never(t, func() bool { return n.Streams() == 0 }, 100*time.Millisecond, 10*time.Millisecond, "a few are allowed")
		_, _ = conn.Write(bytes.Repeat(frame, 10))
		require.Eventually(t, func() bool { return n.Streams() == 0 }, patience, time.Millisecond, opcode)
		_, err = io.Copy(io.Discard, in)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it is closed")
	}
}

func TestLive_ChecksTheOriginOfAWebSocket(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.serve(t)
	for origin, status := range map[string]int{"https://app.example.com": 101, n.url: 101, "https://evil.example.com": 403, "null": 403} {
		conn, res, err := websocket.Dial(t.Context(), strings.Replace(n.url, "http", "ws", 1)+"/v1/ws?token=7",
			&websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
		require.Equal(t, status, res.StatusCode, origin)
		require.Equal(t, status == 101, err == nil)
		if res.Body != nil {
			_ = res.Body.Close()
		}
		if conn != nil {
			require.NoError(t, conn.CloseNow())
		}
	}
}

// After the database server was replaced, clients read their lists: its last transactions may be lost.
func TestLive_ReloadsAfterAnotherServerTookOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := New(b.DB.Pool, 10_000, readers{}, nil, zerologNop)
	c, _, err := s.hub.join(7)
	require.NoError(t, err)
	require.NoError(t, s.cycle(t.Context()))
	s.feed.server--
	s.feed.arrivals.highest += 100 // lost
	for range 2 {
		require.NoError(t, s.cycle(t.Context()))
	}
	list, _ := c.take()
	require.Equal(t, string(reload), string(list[0].data))
	b.notify(t, 7)
	require.NoError(t, s.cycle(t.Context()))
	list, _ = c.take()
	require.Len(t, list, 1)
	s.hub.leave(c)
}

// A node without clients polls nothing.
func TestLive_RestsWithoutClients(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.serve(t, func(s *Server) { s.idle = 10 * time.Millisecond })
	resting := func() bool {
		n.hub.mu.Lock()
		defer n.hub.mu.Unlock()
		select {
		case <-n.hub.ready:
			return false
		default:
			return true
		}
	}
	for range 2 {
		c := n.stream(t, "7", "")
		c.reloads(t)
		require.Equal(t, []int64{b.notify(t, 7)}, c.ids(t, 1))
		require.False(t, resting())
		c.close()
		require.Eventually(t, resting, patience, time.Millisecond)
		b.notify(t, 7)
	}
}

// A mark of the same reader does not refuse a stream that waits for the feed, and its event is not lost.
func TestLive_AMarkDoesNotEndAStreamThatWaitsForTheFeed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := New(b.DB.Pool, 10_000, readers{}, nil, zerologNop)
	type started struct {
		c   *conn
		err error
	}
	start := func() <-chan started {
		before := s.hub.count()
		done := make(chan started, 1)
		go func() {
			c, _, err := s.start(t.Context(), 7, "")
			done <- started{c, err}
		}()
		require.Eventually(t, func() bool { return s.hub.count() > before }, patience, time.Millisecond)
		return done
	}
	first := start()
	for range 3 {
		s.hub.marked(7)
		require.Eventually(t, func() bool {
			s.hub.mu.Lock()
			defer s.hub.mu.Unlock()
			return s.hub.open == 0 || len(s.hub.conns[7][0].wake) == 0
		}, patience, time.Millisecond, "the stream takes the wake")
		require.Equal(t, 1, s.hub.count())
	}
	require.NoError(t, s.cycle(t.Context()))
	got := <-first
	require.NoError(t, got.err)
	<-got.c.wake
	list, reason := got.c.take()
	require.Equal(t, open, reason)
	require.Len(t, list, 1)
	require.Equal(t, isRead, list[0].kind)
	s.hub.leave(got.c)

	require.True(t, s.hub.rest())
	second := start()
	s.hub.marked(7)
	s.hub.all(stopping)
	require.ErrorIs(t, (<-second).err, errStopping)
}
