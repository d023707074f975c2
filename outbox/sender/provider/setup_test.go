package provider

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/outbox/sender"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16") // they wait more than they work
	goleak.VerifyTestMain(m,            // but for the goroutines of TestHTTP_AStuckConnectionIsAbandoned, which stand in net/http permanently
		goleak.IgnoreAnyFunction("net/http.(*http2clientStream).abortStream"),
		goleak.IgnoreAnyFunction("net/http.(*http2clientStream).cleanupWriteRequest"),
		goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).healthCheck"))
}

// httpLoopback lets a guarded client reach this machine.
func httpLoopback() HTTPConfig {
	return HTTPConfig{AllowAddresses: []string{"127.0.0.0/8", "::1"}}
}

func httpOpen(t *testing.T, cfg HTTPConfig, o httpOptions) *httpClient {
	t.Helper()
	c, err := newHTTPClient(cfg, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// httpListen serves raw connections: behave has each, and the connection is closed when
// it returns.
func httpListen(t *testing.T, behave func(net.Conn)) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			behave(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

func httpPost(t *testing.T, ctx context.Context, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(`{"hello":"world"}`)))
	require.NoError(t, err)
	return req
}

func httpWithin(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// open makes a client, which is closed at the end of the test.
func open(t *testing.T, cfg Config, now func() time.Time) Client {
	t.Helper()
	c, err := New(cfg, now)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// refuses checks that each change of valid settings is a problem with its key, to Validate
// and to New, and that the error keeps secrets.
func refuses[C any, P interface {
	*C
	Config
}](t *testing.T, valid P, changes map[string]func(P),
) {
	t.Helper()
	require.NoError(t, Validate("x", valid))
	for key, change := range changes {
		if !strings.Contains(key, ": ") {
			key += ": "
		}
		changed := *valid
		change(&changed)
		err := Validate("x", P(&changed))
		require.ErrorContains(t, err, "x."+key)
		require.Regexp(t, `allowed values|; set |; the maximum is `, err.Error())
		require.NotContains(t, err.Error(), "topsecret")
		_, err = New(P(&changed), time.Now)
		require.Error(t, err)
	}
}

const (
	short = 5 * time.Second // enough to connect and be heard on a busy machine
	long  = time.Minute     // what only a hang reaches
)

// send gives the client so long for one delivery.
func send(t *testing.T, c Client, d sender.Delivery, timeout time.Duration) sender.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	results := c.Send(ctx, []sender.Delivery{d})
	require.Len(t, results, 1)
	return results[0]
}

// deliver sends one delivery.
func deliver(t *testing.T, c Client, d sender.Delivery) sender.Result {
	t.Helper()
	return send(t, c, d, long)
}

// reset ends the call so that its client sees RST.
func reset(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		httpReset(conn)
	}
}

// clock is moved by the test.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}
