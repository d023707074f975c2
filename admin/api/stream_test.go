package api_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

type talk struct {
	Words []string `flag:"word" help:"said"`
	Fail  string   `flag:"fail" help:"how it ends"`
}

type sum struct {
	Said int `json:"said"`
}

// talking is an operation that says words, one an item.
func talking(run func(context.Context, *operation.Env, talk, func([]string) error) (sum, error)) operation.Operation {
	return operation.DefineStream(operation.Operation{Name: "people talk", Short: "Talk", Role: operation.Viewer}, run,
		func(talk) func(*text.Doc, []string) { return func(*text.Doc, []string) {} }, func(*text.Doc, talk, sum) {})
}

func sayWords(_ context.Context, _ *operation.Env, in talk, each func([]string) error) (sum, error) {
	for _, word := range in.Words {
		if err := each([]string{word, "!"}); err != nil {
			return sum{}, err
		}
	}
	switch in.Fail {
	case "missing":
		return sum{}, job.ErrNotFound
	case "panic":
		panic("on purpose")
	}
	return sum{len(in.Words)}, nil
}

// forever says a word again and again, and closes ended.
func forever(word string, ended chan<- struct{}) operation.Operation {
	return talking(func(ctx context.Context, _ *operation.Env, _ talk, each func([]string) error) (sum, error) {
		defer close(ended)
		for ctx.Err() == nil {
			if err := each([]string{word}); err != nil {
				return sum{}, err
			}
			if len(word) < 100 {
				<-ctx.Done()
			}
		}
		return sum{}, nil
	})
}

// streaming serves one operation without a database.
type streaming struct {
	server  *httptest.Server
	client  *http.Client
	handler *api.Handler
	revoked atomic.Bool
}

func serveStream(t *testing.T, o operation.Operation, http2 bool, change func(*api.Handler, *http.Server)) *streaming {
	t.Helper()
	s := new(streaming)
	s.handler = api.New(api.Options{
		Operations: []operation.Operation{o}, Log: zerolog.Nop(),
		Authenticate: func(ctx context.Context, token string) (access.Identity, error) {
			if s.revoked.Load() {
				return access.Identity{}, access.ErrToken
			}
			name, proxied := strings.CutPrefix(token, "proxy:")
			who, err := tokens(ctx, name)
			who.Proxy = proxied
			return who, err
		},
	})
	s.handler.HoldBeats()
	s.server = httptest.NewUnstartedServer(s.handler)
	if change != nil {
		change(s.handler, s.server.Config)
	}
	if s.server.EnableHTTP2 = http2; http2 {
		s.server.StartTLS()
	} else {
		s.server.Start()
	}
	s.client = s.server.Client()
	t.Cleanup(s.server.Close)
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// opened is a stream.
type opened struct {
	status      int
	proto, kind string
	header      http.Header
	body        *bufio.Reader
}

func (s *streaming) get(t *testing.T, ctx context.Context, query string, headers ...string) opened {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+api.Prefix+"/people/talk"+query, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer viewer")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.client.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return opened{res.StatusCode, res.Proto, res.Header.Get("Content-Type"), res.Header, bufio.NewReader(res.Body)}
}

func TestStream_IsEventsOrLines(t *testing.T) {
	t.Parallel()
	s := serveStream(t, talking(sayWords), false, nil)
	for _, test := range []struct {
		query, accept, last string
		status              int
		kind, text          string
	}{
		{"?word=a&word=b", "text/event-stream", "", 200, "text/event-stream", "retry: 5000\n\nid: 1\ndata: [\"a\",\"!\"]\n\nid: 2\ndata: [\"b\",\"!\"]\n\nid: 3\nevent: end\ndata: {\"said\":2}\n\n"},
		{"?word=a", "text/event-stream", "41", 200, "text/event-stream", "retry: 5000\n\nid: 42\ndata: [\"a\",\"!\"]\n\nid: 43\nevent: end\ndata: {\"said\":1}\n\n"},
		{"?word=a&word=b", "", "", 200, "application/x-ndjson", "\"a\"\n\"!\"\n\"b\"\n\"!\"\n{\"said\":2}\n"},
		{"?word=a", "text/event-stream;q=0.5, */*", "", 200, "application/x-ndjson", "\"a\"\n\"!\"\n{\"said\":1}\n"},
		{"?word=a", "text/html", "", 406, "application/problem+json", ""},
		{"?word=a", "application/x-ndjson;q=0", "", 406, "application/problem+json", ""},
		{"?fail=missing", "text/event-stream", "", 404, "application/problem+json", ""},
		{"?fail=panic", "", "", 500, "application/problem+json", ""},
		{"?wrod=a", "text/event-stream", "", 422, "application/problem+json", ""},
		{"?word=a&fail=missing", "text/event-stream", "", 200, "text/event-stream", ""},
		{"?word=a&fail=panic", "text/event-stream", "", 200, "text/event-stream", ""},
	} {
		res := s.get(t, t.Context(), test.query, "Accept", test.accept, "Last-Event-ID", test.last)
		require.Equal(t, test.status, res.status, test)
		require.Equal(t, test.kind, res.kind, test)
		text, err := io.ReadAll(res.body)
		require.NoError(t, err)
		if test.text != "" {
			require.Equal(t, test.text, string(text), test)
		} else if test.status == 200 {
			require.Contains(t, string(text), "\nevent: problem\ndata: {\"title\"")
		}
	}
	for _, fail := range []string{"missing", "panic"} {
		res := s.get(t, t.Context(), "?word=a&fail="+fail)
		text, err := io.ReadAll(res.body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "an early end of lines does not pass for the whole")
		require.Equal(t, "\"a\"\n\"!\"\n", string(text))
	}
}

// What is behind a stream ends with its client, with a reader that stalls, with the token and
// with the server; nothing is left running.
func TestStream_Ends(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wait := func(ended <-chan struct{}, why string) {
				t.Helper()
				select {
				case <-ended:
				case <-time.After(time.Minute):
					t.Fatal("still running: " + why)
				}
			}
			fast := func(h *api.Handler, _ *http.Server) { h.SetStreams(8, 8, 10*time.Millisecond, 500*time.Millisecond) }
			often := func(h *api.Handler, _ *http.Server) { h.SetStreams(8, 8, 10*time.Millisecond, time.Minute) }

			ended := make(chan struct{})
			s := serveStream(t, forever("hi", ended), http2, nil)
			ctx, leave := context.WithCancel(t.Context())
			res := s.get(t, ctx, "")
			require.Equal(t, map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2], res.proto)
			line, err := res.body.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "\"hi\"\n", line)
			leave()
			wait(ended, "its client has gone")

			ended = make(chan struct{})
			s = serveStream(t, forever(strings.Repeat("x", 1<<16), ended), http2, fast)
			res = s.get(t, t.Context(), "")
			require.Equal(t, http.StatusOK, res.status)
			wait(ended, "its client does not read")

			ended = make(chan struct{})
			s = serveStream(t, forever("hi", ended), http2, often)
			res = s.get(t, t.Context(), "", "Accept", "text/event-stream")
			r := res.body
			for beats := 0; beats < 3; {
				line, err := r.ReadString('\n')
				require.NoError(t, err)
				if line == ": still here\n" {
					beats++
				}
			}
			s.revoked.Store(true)
			rest, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Contains(t, string(rest), "event: problem\ndata: {\"title\":\"Unauthorized\",\"status\":401")
			wait(ended, "its token is revoked")

			ended = make(chan struct{})
			s = serveStream(t, forever("hi", ended), http2, nil)
			res = s.get(t, t.Context(), "", "Accept", "text/event-stream")
			s.handler.EndStreams()
			s.handler.EndStreams()
			rest, err = io.ReadAll(res.body)
			require.NoError(t, err)
			require.Contains(t, string(rest), "event: problem\ndata: {\"title\":\"Service Unavailable\",\"status\":503")
			wait(ended, "the server stops")
		})
	}
}

// A server that stops does not wait for streams, and ends what is behind them.
func TestStream_EndsWithItsServer(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	handler := api.New(api.Options{Operations: []operation.Operation{forever("hi", ended)}, Log: zerolog.Nop(), Authenticate: tokens})
	server, err := api.Listen(t.Context(), api.Config{Listen: "127.0.0.1:0"}, handler)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(ctx) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL()+"/people/talk", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer viewer")
	client := &http.Client{Transport: new(http.Transport)}
	t.Cleanup(client.CloseIdleConnections)
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close() //nolint:errcheck // it was only read
	stop()
	select {
	case err := <-stopped:
		require.NoError(t, err)
	case <-time.After(30 * time.Second): // less than the server waits for requests
		t.Fatal("the server waits for a stream")
	}
	<-ended
	_, err = io.ReadAll(res.Body)
	require.Error(t, err)
}

// The time that a request has to be read does not end the answer.
func TestStream_OutlivesTheTimeToRead(t *testing.T) {
	t.Parallel()
	const read = time.Second
	ended := make(chan struct{})
	s := serveStream(t, forever("hi", ended), false, func(h *api.Handler, c *http.Server) {
		h.SetStreams(8, 8, 10*time.Millisecond, time.Minute)
		c.ReadTimeout, c.WriteTimeout = read, read
	})
	ctx, leave := context.WithCancel(t.Context())
	res := s.get(t, ctx, "", "Accept", "text/event-stream")
	began, r := time.Now(), res.body
	for time.Since(began) < 3*read/2 {
		_, err := r.ReadString('\n')
		require.NoError(t, err)
	}
	leave()
	<-ended
}

// An operation that takes longer than its request may take to be read goes to its end.
func TestAPI_OutlivesTheTimeToRead(t *testing.T) {
	t.Parallel()
	const read = time.Second
	slow := operation.Define(operation.Operation{Name: "people talk", Short: "Talk", Role: operation.Viewer}, func(ctx context.Context, _ *operation.Env, _ operation.None) (sum, error) {
		select {
		case <-ctx.Done():
			return sum{}, ctx.Err()
		case <-time.After(3 * read / 2):
			return sum{3}, nil
		}
	}, func(*text.Doc, operation.None, sum) {})
	s := serveStream(t, slow, false, func(_ *api.Handler, c *http.Server) { c.ReadTimeout, c.WriteTimeout = read, read })
	res := s.get(t, t.Context(), "")
	text, err := io.ReadAll(res.body)
	require.NoError(t, err)
	require.JSONEq(t, `{"said": 3}`, string(text))
}

func TestStream_AreNotMoreThanSoMany(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	s := serveStream(t, talking(func(ctx context.Context, _ *operation.Env, _ talk, each func([]string) error) (sum, error) {
		if err := each([]string{"hi"}); err != nil {
			return sum{}, err
		}
		<-ctx.Done()
		ended <- struct{}{}
		return sum{}, nil
	}), false, func(h *api.Handler, _ *http.Server) { h.SetStreams(3, 2, time.Hour, time.Minute) })
	ctx, leave := context.WithCancel(t.Context())
	for range 2 {
		require.Equal(t, http.StatusOK, s.get(t, ctx, "").status)
	}
	res := s.get(t, t.Context(), "")
	require.Equal(t, http.StatusServiceUnavailable, res.status, "of one identity")
	require.NotEmpty(t, res.header.Get("Retry-After"))
	require.Equal(t, http.StatusOK, s.get(t, ctx, "", "Authorization", "Bearer proxy:viewer").status, "a user of the proxy by the token's name")
	require.Equal(t, http.StatusServiceUnavailable, s.get(t, t.Context(), "", "Authorization", "Bearer admin").status, "in all")
	leave()
	for range 3 {
		<-ended
	}
	require.Eventually(t, func() bool {
		ctx, leave := context.WithCancel(t.Context())
		res := s.get(t, ctx, "")
		leave()
		if res.status == http.StatusOK {
			<-ended
		}
		return res.status == http.StatusOK
	}, time.Minute, 10*time.Millisecond, "who leaves makes room")
}

// Whenever they were opened, all streams look at one moment whether those that they are for still may.
func TestStream_AllBeatAtOneMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // whose clock begins at midnight
		require.Equal(t, 15*time.Second, api.NextBeat())
		<-time.After(4 * time.Second)
		require.Equal(t, 11*time.Second, api.NextBeat())
		<-time.After(11 * time.Second)
		require.Equal(t, 15*time.Second, api.NextBeat())
	})
}

// As the documents have it: 32 of one identity, and 512 in all.
func TestStream_LimitsAreThoseOfTheDocuments(t *testing.T) {
	t.Parallel()
	watch := talking(func(ctx context.Context, _ *operation.Env, _ talk, each func([]string) error) (sum, error) {
		if err := each([]string{"hi"}); err != nil {
			return sum{}, err
		}
		<-ctx.Done()
		return sum{}, nil
	})
	watch.Shared = true
	s := serveStream(t, watch, false, nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	as := func(n int) string { return "Bearer viewer-" + strconv.Itoa(n) }
	for open := range 512 {
		require.Equal(t, http.StatusOK, s.get(t, ctx, "", "Authorization", as(open/32)).status, open)
		if open == 31 {
			require.Equal(t, http.StatusServiceUnavailable, s.get(t, ctx, "", "Authorization", as(0)).status, "the 33rd of one identity")
		}
	}
	require.Equal(t, http.StatusServiceUnavailable, s.get(t, ctx, "", "Authorization", as(16)).status, "the 513th in all")
	require.Equal(t, 512, s.handler.Streams())
}

// Jobs are watched until all is at rest, each look an event.
func TestAPI_WatchesJobs(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Options) { c.Env.Broadcaster = jobs.NewBroadcaster(10 * time.Millisecond) })
	store := job.NewStore(b.db.Pool)
	id, err := store.Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: "Hello"})
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, b.call(t, "viewer", "GET", "/jobs/watch?id=99", "").status)
	require.Regexp(t, `^retry: 5000\n\nid: 1\ndata: \{"at":"[^"]+","jobs":\[\],"events":\[\]\}\n\nid: 2\nevent: end\ndata: \{\}$`, b.call(t, "viewer", "GET", "/jobs/watch", "", "Accept", "text/event-stream").text)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/jobs/watch?id="+text.Int(id), nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer viewer")
	req.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close() //nolint:errcheck // it was only read
	lines := bufio.NewScanner(res.Body)
	for pending := false; !pending; pending = strings.Contains(lines.Text(), `"status":"PENDING"`) {
		require.True(t, lines.Scan())
	}
	require.NoError(t, lines.Err())
	_, err = store.Abort(t.Context(), job.One(id), job.Act{Actor: "ann"})
	require.NoError(t, err)
	var rest []string
	for lines.Scan() {
		rest = append(rest, lines.Text())
	}
	require.NoError(t, lines.Err())
	text := strings.Join(rest, "\n")
	require.Contains(t, text, `"status":"ABORTED"`)
	require.Contains(t, text, `"name":"1","kind":"aborted","actor":"ann"`)
	require.True(t, strings.HasSuffix(text, "event: end\ndata: {}\n"), text)
}
