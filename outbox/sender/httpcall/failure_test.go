package httpcall_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// readRequest takes one request off the connection.
func readRequest(conn net.Conn) {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err == nil {
		_, _ = io.Copy(io.Discard, req.Body)
	}
}

// reset closes the connection so that the peer sees RST.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// hang waits until the peer goes away.
func hang(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// I9, invariants 1 and 5: retryable only when the request surely never began; and no
// text of a failure has an address in it.
func TestDo_WithoutAnAnswer(t *testing.T) {
	t.Parallel()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	closed := listen(t, func(net.Conn) {})
	const short = 2 * time.Second // enough to connect and be heard on a busy machine
	for _, test := range []struct {
		name, url string
		timeout   time.Duration
		class     sender.Class
		code      string
	}{
		{"refused", "http://127.0.0.1:1", 5 * time.Second, sender.Retryable, "dial"},
		{"no such host", "http://nobody.invalid", 5 * time.Second, sender.Retryable, "dns"},
		{"certificate of nobody", secure.URL, 5 * time.Second, sender.Retryable, "tls"},
		{"handshake with no TLS", "https://" + listen(t, func(c net.Conn) { _, _ = c.Write([]byte("220 smtp ready\r\n")); hang(c) }), 5 * time.Second, sender.Retryable, "tls"},
		{"handshake hangs", "https://" + listen(t, hang), 150 * time.Millisecond, sender.Retryable, "timeout"},
		{"handshake closed", "https://" + closed, 5 * time.Second, sender.Retryable, "connection"},
		{"hangs", "http://" + listen(t, hang), short, sender.Unknown, "timeout"},
		{"reset after the request", "http://" + listen(t, func(c net.Conn) { readRequest(c); reset(c) }), 5 * time.Second, sender.Unknown, "connection"},
		{"closed after the request", "http://" + listen(t, readRequest), 5 * time.Second, sender.Unknown, "connection"},
		{"half an answer", "http://" + listen(t, func(c net.Conn) { readRequest(c); _, _ = c.Write([]byte("HTTP/1.1 20")) }), 5 * time.Second, sender.Unknown, "connection"},
		{"no HTTP", "http://" + listen(t, func(c net.Conn) { readRequest(c); _, _ = c.Write([]byte("SSH-2.0-x\r\n")) }), 5 * time.Second, sender.Unknown, "connection"},
		{"headers of 128 KiB", "http://" + listen(t, func(c net.Conn) { // invariant 4
			readRequest(c)
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Long: "+strings.Repeat("x", 1014)+"\r\n", 128) + "Content-Length: 0\r\n\r\n"))
		}), 5 * time.Second, sender.Unknown, "connection"},
		{"no URL of HTTP", "gopher://127.0.0.1", 5 * time.Second, sender.Permanent, "request"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := client(t, httpcall.Config{}, httpcall.Options{}).Do(post(t, within(t, test.timeout), test.url))
			require.Error(t, err)
			result := httpcall.Failure(err)
			require.Equal(t, test.class, result.Class, "%+v", result)
			require.Equal(t, test.code, result.Code, "%+v", result)
			require.NotEmpty(t, result.Detail)
			require.NotRegexp(t, `127|:\d|invalid\b.*nobody|nobody`, result.Detail+err.Error())
		})
	}
}

func TestDo_GivenUp(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	url := "http://" + listen(t, func(c net.Conn) { readRequest(c); close(begun); hang(c) })
	c := client(t, httpcall.Config{}, httpcall.Options{})

	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	_, err := c.Do(post(t, ctx, url))
	require.Equal(t, sender.Result{Class: sender.Unknown, Code: "canceled", Detail: "the call was given up"}, httpcall.Failure(err))

	// A context that has ended beforehand: nothing goes out.
	_, err = c.Do(post(t, ctx, url))
	require.Equal(t, sender.Result{Class: sender.Retryable, Code: "canceled", Detail: "the call was given up"}, httpcall.Failure(err))
}

// A send without a body began when it got its connection.
func TestDo_WithoutABodyIsUnknownOnceConnected(t *testing.T) {
	t.Parallel()
	url := "http://" + listen(t, func(c net.Conn) { readRequest(c); reset(c) })
	req, err := http.NewRequestWithContext(within(t, 5*time.Second), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	_, err = client(t, httpcall.Config{}, httpcall.Options{Fresh: true}).Do(req)
	require.Equal(t, sender.Unknown, httpcall.Failure(err).Class)
}

func TestDo_BodyThatCannotBeReadAgain(t *testing.T) {
	t.Parallel()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:1", io.NopCloser(strings.NewReader("x")))
	require.NoError(t, err)
	_, err = client(t, httpcall.Config{}, httpcall.Options{}).Do(req)
	require.Equal(t, sender.Permanent, httpcall.Failure(err).Class)
}

func TestFailure_OfAnyOtherErrorIsUnknown(t *testing.T) {
	t.Parallel()
	require.Equal(t, sender.Unknown, httpcall.Failure(errors.New("whatever")).Class)
}

// Invariant 4 and the status stands: a body without end is cut, a slow one is given up.
func TestDo_Bodies(t *testing.T) {
	t.Parallel()
	huge := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				return
			}
		}
	})
	slow := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("he"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	cut := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("ten  bytes"))
	})
	whole := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(make([]byte, httpcall.BodyLimit))
	})
	c := client(t, httpcall.Config{}, httpcall.Options{})
	for _, test := range []struct {
		name   string
		server *httptest.Server
		status int
		bytes  int
		whole  bool
	}{
		{"huge", huge, 200, httpcall.BodyLimit, false},
		{"slow", slow, 200, 2, false},
		{"cut", cut, 200, 10, false},
		{"as much as is read", whole, 418, httpcall.BodyLimit, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			timeout := 10 * time.Second
			if test.name == "slow" {
				timeout = 2 * time.Second
			}
			ctx := within(t, timeout)
			answer, err := c.Do(post(t, ctx, test.server.URL))
			require.NoError(t, err)
			require.Equal(t, test.name == "slow", ctx.Err() != nil, "no more is read than is kept")
			require.Equal(t, test.status, answer.Status)
			require.Len(t, answer.Body, test.bytes)
			require.Equal(t, test.whole, answer.Whole)
		})
	}
}
