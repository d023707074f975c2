package provider

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
)

// httpReadRequest takes one request off the connection.
func httpReadRequest(conn net.Conn) {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err == nil {
		_, _ = io.Copy(io.Discard, req.Body)
	}
}

// httpReset closes the connection so that the peer sees RST.
func httpReset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// httpHang waits until the peer goes away.
func httpHang(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// I9, invariants 1 and 5: retryable only when the request surely never began; and no
// text of a failure has an address in it.
func TestHTTP_WithoutAnAnswer(t *testing.T) {
	t.Parallel()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	closed := httpListen(t, func(net.Conn) {})
	for _, test := range []struct {
		name, url string
		timeout   time.Duration
		class     sender.Class
		code      string
	}{
		{"refused", "http://127.0.0.1:1", long, sender.Retryable, "dial"},
		{"no such host", "http://nobody.invalid", long, sender.Retryable, "dns"},
		{"certificate of nobody", secure.URL, long, sender.Retryable, "tls"},
		{"handshake with no TLS", "https://" + httpListen(t, func(c net.Conn) { _, _ = c.Write([]byte("220 smtp ready\r\n")); httpHang(c) }), long, sender.Retryable, "tls"},
		{"handshake hangs", "https://" + httpListen(t, httpHang), 150 * time.Millisecond, sender.Retryable, "timeout"},
		{"handshake closed", "https://" + closed, long, sender.Retryable, "connection"},
		{"hangs", "http://" + httpListen(t, httpHang), short, sender.Unknown, "timeout"},
		{"reset after the request", "http://" + httpListen(t, func(c net.Conn) { httpReadRequest(c); httpReset(c) }), long, sender.Unknown, "connection"},
		{"closed after the request", "http://" + httpListen(t, httpReadRequest), long, sender.Unknown, "connection"},
		{"half an answer", "http://" + httpListen(t, func(c net.Conn) { httpReadRequest(c); _, _ = c.Write([]byte("HTTP/1.1 20")) }), long, sender.Unknown, "connection"},
		{"no HTTP", "http://" + httpListen(t, func(c net.Conn) { httpReadRequest(c); _, _ = c.Write([]byte("SSH-2.0-x\r\n")) }), long, sender.Unknown, "connection"},
		{"headers of 128 KiB", "http://" + httpListen(t, func(c net.Conn) { // invariant 4
			httpReadRequest(c)
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Long: "+strings.Repeat("x", 1014)+"\r\n", 128) + "Content-Length: 0\r\n\r\n"))
		}), long, sender.Unknown, "connection"},
		{"no URL of HTTP", "gopher://127.0.0.1", long, sender.Permanent, "request"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := httpOpen(t, HTTPConfig{}, httpOptions{}).do(httpPost(t, httpWithin(t, test.timeout), test.url))
			require.Error(t, err)
			result := failureOf(err)
			require.Equal(t, test.class, result.Class, "%+v", result)
			require.Equal(t, test.code, result.Code, "%+v", result)
			require.NotEmpty(t, result.Detail)
			require.NotRegexp(t, `127|:\d|invalid\b.*nobody|nobody`, result.Detail+err.Error())
		})
	}
}

func TestHTTP_GivenUp(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	url := "http://" + httpListen(t, func(c net.Conn) { httpReadRequest(c); close(begun); httpHang(c) })
	c := httpOpen(t, HTTPConfig{}, httpOptions{})

	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	_, err := c.do(httpPost(t, ctx, url))
	require.Equal(t, sender.Result{Class: sender.Unknown, Code: "canceled", Detail: "the call was canceled"}, failureOf(err))

	// A context that has ended beforehand: nothing goes out.
	_, err = c.do(httpPost(t, ctx, url))
	require.Equal(t, sender.Result{Class: sender.Retryable, Code: "canceled", Detail: "the call was canceled"}, failureOf(err))
}

// A send without a body began when it got its connection.
func TestHTTP_WithoutABodyIsUnknownOnceConnected(t *testing.T) {
	t.Parallel()
	url := "http://" + httpListen(t, func(c net.Conn) { httpReadRequest(c); httpReset(c) })
	req, err := http.NewRequestWithContext(httpWithin(t, long), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	_, err = httpOpen(t, HTTPConfig{}, httpOptions{}).do(req)
	require.Equal(t, sender.Unknown, failureOf(err).Class)
}

func TestHTTP_BodyThatCannotBeReadAgain(t *testing.T) {
	t.Parallel()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:1", io.NopCloser(strings.NewReader("x")))
	require.NoError(t, err)
	_, err = httpOpen(t, HTTPConfig{}, httpOptions{}).do(req)
	require.Equal(t, sender.Permanent, failureOf(err).Class)
}

func TestFailure_OfAnyOtherErrorIsUnknown(t *testing.T) {
	t.Parallel()
	require.Equal(t, sender.Unknown, failureOf(errors.New("whatever")).Class)
}

// Invariant 4 and the status stands: a body without end is cut, a slow one is given up.
func TestHTTP_Bodies(t *testing.T) {
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
		_, _ = w.Write(make([]byte, answerLimit))
	})
	c := httpOpen(t, HTTPConfig{}, httpOptions{})
	for _, test := range []struct {
		name   string
		server *httptest.Server
		status int
		bytes  int
		whole  bool
	}{
		{"huge", huge, 200, answerLimit, false},
		{"slow", slow, 200, 2, false},
		{"cut", cut, 200, 10, false},
		{"as much as is read", whole, 418, answerLimit, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			timeout := long
			if test.name == "slow" {
				timeout = short
			}
			ctx := httpWithin(t, timeout)
			answer, err := c.do(httpPost(t, ctx, test.server.URL))
			require.NoError(t, err)
			require.Equal(t, test.name == "slow", ctx.Err() != nil, "no more is read than is kept")
			require.Equal(t, test.status, answer.status)
			require.Len(t, answer.body, test.bytes)
			require.Equal(t, test.whole, answer.whole)
		})
	}
}
