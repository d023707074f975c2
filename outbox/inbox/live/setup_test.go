package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
)

// patience is how long a test waits for an event.
const patience = time.Minute

func TestMain(m *testing.M) { dbtest.Main(m) }

// readers takes CHANNEL or CHANNEL@MILLISECONDS, the lifetime, as a token.
type readers struct{}

var errNoToken = errors.New("no token")

func (readers) Reader(r *http.Request) (int64, time.Time, error) {
	token, life, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "@")
	expires := time.Now().Add(time.Hour)
	if ms, err := strconv.Atoi(life); err == nil {
		expires = time.Now().Add(time.Duration(ms) * time.Millisecond)
	}
	id, err := strconv.ParseInt(token, 10, 64)
	if err != nil || strings.Contains(r.RequestURI+r.URL.String(), "token") {
		return 0, expires, errNoToken
	}
	return id, expires, nil
}

func (readers) Refuse(w http.ResponseWriter, err error) {
	http.Error(w, err.Error(), http.StatusUnauthorized)
}

func (readers) AllowsOrigin(origin string) bool { return origin == "https://app.example.com" }

// bundle is one test's database, with the channels 1 to 300.
type bundle struct {
	*outboxtest.Database
}

func setup(t testing.TB) *bundle {
	t.Helper()
	b := &bundle{&outboxtest.Database{DB: dbtest.Reused(t, 6)}}
	b.OldChannels(t, 300)
	return b
}

// node is a server node.
type node struct {
	*Server
	url  string
	stop func()
}

// rights are those of the profile inbox.
const rights = `GRANT EXECUTE ON FUNCTION belfry.inbox_page, belfry.inbox_arrivals, belfry.inbox_walks, belfry.inbox_reached,
	belfry.inbox_since TO :role`

// serve starts a node.
func (b *bundle) serve(t testing.TB, change ...func(*Server)) *node {
	t.Helper()
	s := New(b.DB.Role(t, "GRANT USAGE ON SCHEMA belfry TO :role", rights).Pool, 10_000, readers{}, nil, zerolog.New(zerolog.NewTestWriter(t)))
	for _, f := range change {
		f(s)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/stream", s.ServeEvents)
	mux.HandleFunc("GET /v1/ws", s.ServeWebSocket)
	served := httptest.NewServer(mux)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	n := &node{Server: s, url: served.URL}
	n.stop = func() {
		if cancel == nil {
			return
		}
		cancel()
		cancel = nil
		require.NoError(t, <-ended)
		served.Close()
	}
	t.Cleanup(n.stop)
	return n
}

// got is an event of a client.
type got struct {
	Type         string
	ID           int64
	Notification *struct {
		Title string
		Count int
	}
	Position string // the id, or the JSON object's
	raw      string
}

// client is an open stream.
type client struct {
	events chan got
	close  func()
	at     string // the last position
	code   websocket.StatusCode
	status int
	body   *bufio.Reader
}

// stream opens an event stream.
func (n *node) stream(t testing.TB, token, after string) *client {
	t.Helper()
	c := n.try(t, token, after)
	require.Equal(t, http.StatusOK, c.status)
	go func() {
		defer close(c.events)
		e := got{}
		for {
			line, err := c.body.ReadString('\n')
			if err != nil {
				return
			}
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch name {
			case "id":
				e.Position = value
			case "data":
				if json.Unmarshal([]byte(value), &e) != nil {
					return
				}
				e.raw = value
			case "":
				if e.Position != "" || e.Type != "" {
					c.events <- e
				}
				e = got{}
			}
		}
	}()
	return c
}

// try makes a request for an event stream.
func (n *node) try(t testing.TB, token, after string) *client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/v1/stream?access_token="+token, nil)
	require.NoError(t, err)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	transport := &http.Transport{}
	res, err := transport.RoundTrip(req) //nolint:bodyclose // the caller closes it
	require.NoError(t, err)
	c := &client{events: make(chan got, 4096), status: res.StatusCode, body: bufio.NewReader(res.Body)}
	c.close = func() {
		cancel()
		_ = res.Body.Close()
		transport.CloseIdleConnections()
	}
	t.Cleanup(c.close)
	return c
}

// socket opens a WebSocket.
func (n *node) socket(t testing.TB, token, after string) *client {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), strings.Replace(n.url, "http", "ws", 1)+"/v1/ws?token="+token+"&after="+after, nil) //nolint:bodyclose // a WebSocket has none
	require.NoError(t, err)
	c := &client{events: make(chan got, 4096), close: func() { _ = conn.CloseNow() }}
	t.Cleanup(c.close)
	go func() {
		defer close(c.events)
		for {
			_, data, err := conn.Read(context.WithoutCancel(t.Context()))
			if err != nil {
				c.code = websocket.CloseStatus(err)
				return
			}
			e := got{raw: string(data)}
			if json.Unmarshal(data, &e) != nil {
				return
			}
			c.events <- e
		}
	}()
	return c
}

// next returns the next event that is no heartbeat.
func (c *client) next(t testing.TB) got {
	t.Helper()
	for began := time.Now(); ; {
		require.Less(t, time.Since(began), patience, "only heartbeats")
		e, ok := c.maybe(t)
		require.True(t, ok, "the stream ended")
		if e.Type != "" && e.Type != "position" {
			return e
		}
	}
}

// maybe returns the next event, or false at the end of the stream.
func (c *client) maybe(t testing.TB) (got, bool) {
	t.Helper()
	select {
	case e, ok := <-c.events:
		if e.Position != "" {
			c.at = e.Position
		}
		return e, ok
	case <-time.After(patience):
		require.Fail(t, "no event")
		return got{}, false
	}
}

// ends waits for the end of the stream.
func (c *client) ends(t testing.TB) {
	t.Helper()
	for began := time.Now(); ; {
		require.Less(t, time.Since(began), patience, "the stream has not ended")
		if _, ok := c.maybe(t); !ok {
			return
		}
	}
}

// ids returns the ids of the next n events.
func (c *client) ids(t testing.TB, n int) (list []int64) {
	t.Helper()
	for range n {
		e := c.next(t)
		require.Equal(t, "new", e.Type)
		list = append(list, e.ID)
	}
	return list
}

// reloads waits for the event reload.
func (c *client) reloads(t testing.TB) {
	t.Helper()
	require.Equal(t, "reload", c.next(t).Type)
}

// notify sends a notification to a channel and returns its id in the list.
func (b *bundle) notify(t testing.TB, channel int64) int64 {
	t.Helper()
	return -outboxtest.One[int64](t, b.Database, `SELECT belfry.notify($1, 'activity', 'hello', route => '{}')`, channel)
}

// begin begins a transaction that has notified a channel.
func (b *bundle) begin(t testing.TB, channel int64) (tx pgx.Tx, id int64) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.DB.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	tx, err = conn.Begin(t.Context())
	require.NoError(t, err)
	if channel != 0 {
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT -belfry.notify($1, 'activity', 'hello', route => '{}')`, channel).Scan(&id))
	}
	return tx, id
}

// claim enqueues a job of a type and claims it.
func (b *bundle) claim(t testing.TB, kind string) (job, arrival int64) {
	t.Helper()
	job = outboxtest.One[int64](t, b.Database, `INSERT INTO belfry.jobs (type, category, title, lane)
		VALUES ($1, 'operator_notice', 'x', 'lane-' || gen_random_uuid()) RETURNING id`, kind)
	return job, b.run(t, job)
}

// run claims a job.
func (b *bundle) run(t testing.TB, job int64) (arrival int64) {
	t.Helper()
	return outboxtest.One[int64](t, b.Database,
		`UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'r', heartbeat_at = now(), started_at = now()
		  WHERE id = $1 RETURNING arrival`, job)
}

// chunk writes notifications to the channels above from, up to to.
func (b *bundle) chunk(t testing.TB, job, from, to int64) {
	t.Helper()
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `INSERT INTO belfry.notifications (arrival, channel_id)
		SELECT j.arrival, n FROM belfry.jobs j, generate_series($2::bigint + 1, $3) n WHERE j.id = $1`, job, from, to)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `UPDATE belfry.jobs SET bound = '300', "cursor" = $2, chunks = chunks + 1, channels_read = $3,
		channels_matched = $3, rows_written = $3 WHERE id = $1`,
		job, fmt.Sprint(to), to)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
}

func (b *bundle) finish(t testing.TB, job int64, status string) {
	t.Helper()
	b.Exec(t, `UPDATE belfry.jobs SET status = $2, abort_requested = ($2 = 'ABORTED') WHERE id = $1`, job, status)
}
