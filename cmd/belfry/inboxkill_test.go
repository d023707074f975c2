package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// readersOfANode is the number of clients: one for each channel, every other one a WebSocket.
const readersOfANode = 48

// reader is a client of the notification centre that reconnects with its position.
type reader struct {
	channel int64
	token   string

	mu       sync.Mutex
	on       string // the node of the last event
	at       string // the position
	ids      map[int64]int
	reloads  int
	replayed int // notifications without content that are not of the job
}

func (r *reader) sees(f func() bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return f()
}

// follow reads on the first node, and after each loss on the next one, until ctx ends.
func (r *reader) follow(ctx context.Context, urls []string) {
	for n := 0; ctx.Err() == nil; n++ {
		url := urls[n%len(urls)]
		if r.channel%2 == 0 {
			r.readEvents(ctx, url)
		} else {
			r.readSocket(ctx, url)
		}
		select {
		case <-ctx.Done():
		case <-time.After(500*time.Millisecond + rand.N(500*time.Millisecond)):
		}
	}
}

func (r *reader) readEvents(ctx context.Context, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/stream", nil)
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	if r.at != "" {
		req.Header.Set("Last-Event-ID", r.at)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return
	}
	defer res.Body.Close() //nolint:errcheck // read only
	id := ""
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
		case "id":
			id = value
		case "data":
			r.got(url, id, []byte(value))
			id = ""
		}
	}
}

func (r *reader) readSocket(ctx context.Context, url string) {
	conn, _, err := websocket.Dial(ctx, fmt.Sprintf("%s/ws?access_token=%s&after=%s", strings.Replace(url, "http", "ws", 1), r.token, r.at), nil) //nolint:bodyclose // a WebSocket has none
	if err != nil {
		return
	}
	defer conn.CloseNow() //nolint:errcheck // read only
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		r.got(url, "", data)
	}
}

// got records an event of a node. A WebSocket has the position in the data.
func (r *reader) got(url, at string, data []byte) {
	var e struct {
		Type, Position string
		ID             int64
		Notification   *struct{}
	}
	if json.Unmarshal(data, &e) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = url
	if at += e.Position; at != "" {
		r.at = at
	}
	switch e.Type {
	case "reload":
		r.reloads++
	case "new":
		r.ids[e.ID]++
		if e.Notification == nil {
			r.replayed++
		}
	}
}

// sent is the committed notifications of each channel.
type sent struct {
	db  *dbtest.DB
	mu  sync.Mutex
	ids map[int64][]int64
}

func (s *sent) add(channel, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[channel] = append(s.ids[channel], id)
}

const notifyOne = `SELECT -belfry.notify($1, 'activity', 'hello', route => '{}')`

// send notifies a channel.
func (s *sent) send(ctx context.Context, channel int64) error {
	var id int64
	err := s.db.Pool.QueryRow(context.WithoutCancel(ctx), notifyOne, channel).Scan(&id)
	if err == nil {
		s.add(channel, id)
	}
	return err
}

// sendLate notifies channels in a transaction that the returned function commits.
func (s *sent) sendLate(t *testing.T, channels ...int64) (commit func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.db.DSN)
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	ids := make([]int64, len(channels))
	for i, channel := range channels {
		require.NoError(t, tx.QueryRow(t.Context(), notifyOne, channel).Scan(&ids[i]))
	}
	return func() {
		require.NoError(t, tx.Commit(t.Context()))
		for i, channel := range channels {
			s.add(channel, ids[i])
		}
	}
}

// missing returns the first channel with a notification that its reader has not.
func (s *sent) missing(readers []*reader) (text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range readers {
		r.sees(func() bool {
			for _, id := range s.ids[r.channel] {
				if r.ids[id] == 0 {
					text = fmt.Sprintf("channel %d misses %d; its position is %s", r.channel, id, r.at)
				}
			}
			return true
		})
		if text != "" {
			return text
		}
	}
	return ""
}

// A node is killed while it streams. Its clients resume at another one and get each of their notifications: those that
// were committed meanwhile, those of transactions that were open at the kill, and those of a job that is being walked.
func TestFault_ReadersOfAKilledNodeMissNothing(t *testing.T) { //nolint:funlen // one story
	t.Parallel()
	db := dbtest.New(t)
	require.NoError(t, execEach(db, fmt.Sprintf(
		`INSERT INTO belfry.channels (id, external_id, platform) OVERRIDING SYSTEM VALUE SELECT g, 'u' || g, 'ios' FROM generate_series(1, %d) g`, readersOfANode)))
	environ, tokenOf := centre(t, db.DSN)
	victim, other := start(t, environ, "serve"), start(t, append(environ, "BELFRY_RUNNER_POLL_INTERVAL=50ms", regardless,
		"BELFRY_RUNNER_CHUNK_MIN_ROWS=1", "BELFRY_RUNNER_CHUNK_INITIAL_ROWS=4", "BELFRY_RUNNER_CHUNK_MAX_ROWS=4", "BELFRY_RUNNER_LOAD_MAX_ROWS_PER_SECOND=6"), "daemon")
	urls := []string{victim.centre(t), other.centre(t)}

	ctx, stop := context.WithCancel(t.Context())
	var following, writing sync.WaitGroup
	defer following.Wait()
	defer stop()
	readers := make([]*reader, readersOfANode)
	for i := range readers {
		readers[i] = &reader{channel: int64(i + 1), token: tokenOf(int64(i + 1)), ids: make(map[int64]int)}
		following.Go(func() { readers[i].follow(ctx, urls) })
	}
	all := func(what string, f func(*reader) bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			return !slices.ContainsFunc(readers, func(r *reader) bool { return !r.sees(func() bool { return f(r) }) })
		}, patience, 10*time.Millisecond, what)
	}
	all("connected", func(r *reader) bool { return r.at != "" })

	s := &sent{db: db, ids: make(map[int64][]int64)}
	writes, enough := context.WithCancel(ctx)
	defer enough()
	errs := make(chan error, 3)
	for range cap(errs) {
		writing.Go(func() {
			for tick := time.NewTicker(15 * time.Millisecond); writes.Err() == nil; <-tick.C {
				if err := s.send(writes, 1+rand.Int64N(readersOfANode)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	require.NoError(t, execEach(db, `INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'bulk')`))
	waitUntil(t, db.Pool, `SELECT chunks >= 2 FROM belfry.jobs`)
	var half [2][]int64
	for _, r := range readers {
		half[r.channel/2%2] = append(half[r.channel/2%2], r.channel)
	}
	during, after := s.sendLate(t, half[0]...), s.sendLate(t, half[1]...)
	for _, r := range readers { // positions of later notifications
		require.NoError(t, s.send(t.Context(), r.channel))
	}
	require.Eventually(t, func() bool { return s.missing(readers) == "" || len(errs) > 0 }, patience, time.Millisecond)
	require.NoError(t, victim.Process.Signal(syscall.SIGKILL))
	<-victim.ended
	during() // before the first client resumes
	require.Equal(t, "RUNNING", textOf(t, db, `SELECT status FROM belfry.jobs`))
	all("resumed", func(r *reader) bool { return r.on == urls[1] })
	after()
	waitUntil(t, db.Pool, `SELECT status = 'PROCESSED' FROM belfry.jobs`)
	enough()
	writing.Wait()
	close(errs)
	require.NoError(t, errors.Join(<-errs))

	var bulk int64
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT arrival FROM belfry.jobs`).Scan(&bulk))
	for _, r := range readers {
		s.add(r.channel, bulk)
	}
	complete := time.NewTicker(10 * time.Millisecond)
	defer complete.Stop()
	for began := time.Now(); s.missing(readers) != ""; <-complete.C {
		require.Less(t, time.Since(began), patience, s.missing(readers))
	}
	stop()
	following.Wait()
	events, twice, replayed := 0, 0, 0
	for _, r := range readers {
		require.Equal(t, 1, r.reloads, "channel %d: only the first event", r.channel)
		for id, n := range r.ids {
			require.Contains(t, s.ids[r.channel], id, "channel %d", r.channel)
			events, twice = events+1, twice+n-1
		}
		replayed += r.replayed
	}
	require.Greater(t, replayed, len(half[0])+readersOfANode/2, "clients missed notifications between the nodes")
	t.Logf("%d notifications, %d without content, %d came again", events, replayed, twice)
	other.terminate(t)
	require.Equal(t, codeDone, other.exit(t), other.stderr.String())
}
