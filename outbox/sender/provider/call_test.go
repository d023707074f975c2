package provider

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/belfryhq/belfry/outbox/sender"
)

// Invariant 2, I9: a connection that was kept open breaks under a request that bears an
// idempotency key. net/http by itself would send it again.
func TestHTTP_NeverSendsTwiceByItself(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		method string
		body   string
	}{
		{"POST with a key", http.MethodPost, `{}`},
		{"GET as a send", http.MethodGet, ``},
		{"POST without a body", http.MethodPost, ``},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if calls.Add(1) == 1 {
					return
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err == nil {
					httpReset(conn)
				}
			})
			c := httpOpen(t, HTTPConfig{}, httpOptions{})
			call := func() (httpAnswer, error) {
				req, err := http.NewRequestWithContext(httpWithin(t, long), test.method, server.URL, strings.NewReader(test.body))
				require.NoError(t, err)
				req.Header.Set("Idempotency-Key", "k1")
				return c.do(req)
			}
			_, err := call()
			require.NoError(t, err)
			_, err = call()
			require.Equal(t, sender.Unknown, failureOf(err).Class)
			require.EqualValues(t, 2, calls.Load())
		})
	}
}

func TestHTTP_SendsHeadersAndBody(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	})
	req := httpPost(t, httpWithin(t, long), server.URL)
	req.Header.Set("Idempotency-Key", "k1")
	req.Header.Set("X-Idempotency-Key", "k2")
	_, err := httpOpen(t, HTTPConfig{}, httpOptions{}).do(req)
	require.NoError(t, err)
	require.Equal(t, "k1", got.Header.Get("Idempotency-Key"))
	require.Equal(t, "k2", got.Header.Get("X-Idempotency-Key"))
	require.Equal(t, "belfry", got.UserAgent())
	require.JSONEq(t, `{"hello":"world"}`, string(body))
	require.EqualValues(t, len(body), got.ContentLength)
	require.Equal(t, "k1", req.Header.Get("Idempotency-Key"), "the caller's request is as it was")
}

func TestHTTP_Redirects(t *testing.T) {
	t.Parallel()
	var server *httptest.Server
	server = serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var status, left int
		if n, _ := fmt.Sscanf(r.URL.Path, "/%d/%d", &status, &left); n == 2 && left > 0 {
			http.Redirect(w, r, fmt.Sprintf("/%d/%d#part", status, left-1), status)
			return
		}
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, strings.Replace(server.URL, "127.0.0.1", "localhost", 1)+"/end", http.StatusTemporaryRedirect)
		case "/nowhere":
			w.WriteHeader(http.StatusTemporaryRedirect)
		case "/bad":
			w.Header().Set("Location", "http://[::1")
			w.WriteHeader(http.StatusPermanentRedirect)
		case "/named":
			w.Header().Set("Location", "https://u:p@example.com/")
			w.WriteHeader(http.StatusPermanentRedirect)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusPermanentRedirect)
		default:
			_, _ = fmt.Fprintf(w, "%s %s %s%s", r.Method, body, r.Header.Get("Authorization"), r.Header.Get("Referer")+r.Header.Get("Cookie"))
		}
	})
	for _, test := range []struct {
		path   string
		limit  int
		status int
		body   string
	}{
		{"/307/0", 3, 200, `POST {"hello":"world"} secret; a=b`},
		{"/307/3", 3, 200, `POST {"hello":"world"} secret; a=b`},
		{"/308/3", 3, 200, `POST {"hello":"world"} secret; a=b`},
		{"/307/4", 3, 307, ""},
		{"/307/1", 0, 307, ""},
		{"/301/1", 3, 301, ""},
		{"/302/1", 3, 302, ""},
		{"/303/1", 3, 303, ""},
		{"/away", 3, 200, `POST {"hello":"world"} `}, // another host gets no credentials
		{"/nowhere", 3, 307, ""},
		{"/bad", 3, 308, ""},
		{"/named", 3, 308, ""},
		{"/file", 3, 308, ""},
	} {
		t.Run(fmt.Sprintf("%s limit %d", test.path, test.limit), func(t *testing.T) {
			t.Parallel()
			req := httpPost(t, httpWithin(t, long), server.URL+test.path)
			req.Header.Set("Authorization", "secret")
			req.Header.Set("Cookie", "; a=b")
			answer, err := httpOpen(t, HTTPConfig{}, httpOptions{redirects: test.limit}).do(req)
			require.NoError(t, err)
			require.Equal(t, test.status, answer.status)
			if test.status == 200 {
				require.Equal(t, test.body, string(answer.body))
			} else {
				require.Equal(t, sender.Permanent, answer.result().Class)
			}
		})
	}
}

// httpAuthority writes the certificate of a test server to a file.
func httpAuthority(t *testing.T, server *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, block, 0o600))
	return file
}

func TestHTTP_ARedirectNeverGoesDownToHTTP(t *testing.T) {
	t.Parallel()
	plain := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusTemporaryRedirect))
	t.Cleanup(secure.Close)
	answer, err := httpOpen(t, HTTPConfig{CAFile: httpAuthority(t, secure)}, httpOptions{redirects: 3}).do(httpPost(t, httpWithin(t, long), secure.URL))
	require.NoError(t, err)
	require.Equal(t, 307, answer.status)
}

func TestHTTP_Protocols(t *testing.T) {
	t.Parallel()
	protocol := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/reset" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, r.Proto+r.Header.Get("Idempotency-Key"))
	})
	secure := httptest.NewUnstartedServer(protocol)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	unencrypted := httptest.NewUnstartedServer(protocol)
	unencrypted.Config.Protocols = new(http.Protocols)
	unencrypted.Config.Protocols.SetUnencryptedHTTP2(true)
	unencrypted.Config.Protocols.SetHTTP1(true)
	unencrypted.Start()
	t.Cleanup(unencrypted.Close)
	for _, test := range []struct {
		name, url, want string
		o               httpOptions
	}{
		{"TLS", secure.URL, "HTTP/2.0", httpOptions{}},
		{"TLS, URLs from users", secure.URL, "HTTP/1.1", httpOptions{guard: true}},
		{"TLS, HTTP/2 only", secure.URL, "HTTP/2.0", httpOptions{http2: true}},
		{"clear", unencrypted.URL, "HTTP/1.1", httpOptions{}},
		{"clear, HTTP/2 only", unencrypted.URL, "HTTP/2.0", httpOptions{http2: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := httpOpen(t, HTTPConfig{CAFile: httpAuthority(t, secure), AllowAddresses: httpLoopback().AllowAddresses}, test.o)
			req := httpPost(t, httpWithin(t, long), test.url)
			req.Header.Set("Idempotency-Key", "-k1")
			answer, err := c.do(req)
			require.NoError(t, err)
			require.Equal(t, test.want+"-k1", string(answer.body))
			if !test.o.http2 { // invariant 2: HTTP/2 repeats a reset stream without a body
				req.Body, req.GetBody, req.ContentLength = http.NoBody, nil, 0
				answer, err = c.do(req)
				require.NoError(t, err)
				require.Equal(t, "HTTP/1.1-k1", string(answer.body))
			}

			_, err = c.do(httpPost(t, httpWithin(t, long), test.url+"/reset"))
			require.Equal(t, sender.Unknown, failureOf(err).Class)
		})
	}
}

// Invariants 1, 2: net/http repeats a request whose HTTP/2 stream the server resets with PROTOCOL_ERROR, although
// the server may have processed it.
func TestHTTP_AResetStreamIsUnknown(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(certified.Close)
	for _, test := range []struct {
		code   http2.ErrCode
		scheme string
	}{
		{http2.ErrCodeProtocol, "http://"},
		{http2.ErrCodeProtocol, "https://"},
		{http2.ErrCodeRefusedStream, "https://"},
		{http2.ErrCodeInternal, "https://"},
	} {
		t.Run(test.scheme+test.code.String(), func(t *testing.T) {
			t.Parallel()
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			o := httpOptions{http2: true}
			if test.scheme == "https://" {
				listener, o = tls.NewListener(listener, &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}}), httpOptions{}
			}
			t.Cleanup(func() { require.NoError(t, listener.Close()) })
			var requests atomic.Int64
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go resetStreams(conn, test.code, &requests)
				}
			}()
			c := httpOpen(t, HTTPConfig{CAFile: httpAuthority(t, certified)}, o)
			_, err = c.do(httpPost(t, httpWithin(t, long), test.scheme+listener.Addr().String()))
			require.Equal(t, sender.Unknown, failureOf(err).Class)
			require.EqualValues(t, 1, requests.Load())
		})
	}
}

// Invariant 1: a call gets a new HTTP/2 connection that another call has requested, of which net/http informs it in
// another way, and the connection breaks.
func TestHTTP_ABrokenConnectionOfAnotherCallIsUnknown(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(certified.Close)
	for range 10 {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, listener.Close()) })
		accepted, canceled, ready := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var requests atomic.Int64
		go func() {
			for first := true; ; first = false {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				conn = tls.Server(conn, &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}})
				if first {
					close(accepted)
					<-canceled
				}
				go serveFrames(readyConn{conn, sync.OnceFunc(func() {
					if first {
						close(ready)
					}
				})}, func(*http2.Framer, uint32) error {
					requests.Add(1)
					return io.EOF
				})
			}
		}()
		c, url := httpOpen(t, HTTPConfig{CAFile: httpAuthority(t, certified)}, httpOptions{}), "https://"+listener.Addr().String()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-accepted; cancel() }()
		_, err = c.do(httpPost(t, ctx, url))
		require.Equal(t, "canceled", failureOf(err).Code)
		close(canceled)
		<-ready
		_, err = c.do(httpPost(t, httpWithin(t, long), url))
		require.Equal(t, sender.Unknown, failureOf(err).Class, "%+v", failureOf(err))
		require.EqualValues(t, 1, requests.Load())
	}
}

// readyConn reports that the client has sent something.
type readyConn struct {
	net.Conn
	read func()
}

func (c readyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read()
	return n, err
}

// Invariant 4: a server that overflows the window of a stream, which is a deadlock in net/http, delays no other call.
func TestHTTP_AStuckConnectionIsAbandoned(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	conns := make(chan net.Conn, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns <- conn
			go serveFrames(conn, func(framer *http2.Framer, stream uint32) error { return framer.WriteWindowUpdate(stream, 1<<31-1) })
		}
	}()
	healthy := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	healthy.Config.Protocols = new(http.Protocols)
	healthy.Config.Protocols.SetUnencryptedHTTP2(true)
	healthy.Start()
	t.Cleanup(healthy.Close)
	c := httpOpen(t, HTTPConfig{}, httpOptions{http2: true})
	for range 3 {
		_, err := c.do(httpPost(t, httpWithin(t, short), "http://"+listener.Addr().String()))
		require.Equal(t, sender.Result{Class: sender.Unknown, Code: "timeout", Detail: "no answer in time"}, failureOf(err))
		select {
		case conn := <-conns:
			require.NoError(t, conn.Close())
		default:
			require.Fail(t, "no connection of its own")
		}
	}
	_, err = c.do(httpPost(t, httpWithin(t, long), healthy.URL))
	require.NoError(t, err)
}

// resetStreams reads each request of an HTTP/2 connection and resets its stream.
func resetStreams(conn net.Conn, code http2.ErrCode, requests *atomic.Int64) {
	serveFrames(conn, func(framer *http2.Framer, stream uint32) error {
		requests.Add(1)
		return framer.WriteRSTStream(stream, code)
	})
}

// serveFrames answers each request of an HTTP/2 connection, when it is read whole.
func serveFrames(conn net.Conn, answer func(framer *http2.Framer, stream uint32) error) {
	defer func() { _ = conn.Close() }() // the client has ended it
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	err := framer.WriteSettings()
	for err == nil {
		var frame http2.Frame
		if frame, err = framer.ReadFrame(); err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				err = answer(framer, f.StreamID)
			}
		}
	}
}

func TestHTTP_HTTP2HangIsUnknown(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c := httpOpen(t, HTTPConfig{CAFile: httpAuthority(t, server)}, httpOptions{http2: true})
	_, err := c.do(httpPost(t, httpWithin(t, short), server.URL))
	require.Equal(t, sender.Unknown, failureOf(err).Class)
	require.Equal(t, "timeout", failureOf(err).Code)
}

// Invariant 4: a server that switches protocols keeps the connection, and no call.
func TestHTTP_SwitchOfProtocolsEndsTheCall(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Upgrade", "x")
		w.Header().Set("Connection", "upgrade")
		w.WriteHeader(http.StatusSwitchingProtocols) // and the connection stays open
	})
	c := httpOpen(t, HTTPConfig{}, httpOptions{})
	answered, req := make(chan sender.Result, 1), httpPost(t, httpWithin(t, short), server.URL)
	go func() {
		answer, _ := c.do(req) // an error has no answer
		answered <- answer.result()
	}()
	select {
	case r := <-answered:
		require.Equal(t, sender.Result{Class: sender.Permanent, Code: "101", Detail: "Switching Protocols"}, r)
	case <-time.After(long):
		server.CloseClientConnections()
		t.Error("the call outlasts its deadline")
		<-answered
	}
}

// Invariant 3: at the first dial, by name, and at a redirect.
func TestHTTP_Guard(t *testing.T) {
	t.Parallel()
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Error("called", r.URL.Path) })
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1", "0x7f.1", "2130706433"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			c := httpOpen(t, HTTPConfig{}, httpOptions{guard: true})
			_, err := c.do(httpPost(t, httpWithin(t, long), "http://"+host+":"+port))
			if result := failureOf(err); result.Code != "dns" { // 127.1 is an address to some resolvers only
				require.Equal(t, sender.Permanent, result.Class, "%+v", result)
				require.Equal(t, "blocked_address", result.Code)
			}
		})
	}
	t.Run("redirect", func(t *testing.T) {
		t.Parallel()
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.9:0")
		require.NoError(t, err)
		allowed := httptest.NewUnstartedServer(http.RedirectHandler(server.URL, http.StatusTemporaryRedirect))
		require.NoError(t, allowed.Listener.Close())
		allowed.Listener = l
		allowed.Start()
		t.Cleanup(allowed.Close)
		c := httpOpen(t, HTTPConfig{AllowAddresses: []string{"127.0.0.9"}}, httpOptions{guard: true, redirects: 3})
		_, err = c.do(httpPost(t, httpWithin(t, long), allowed.URL))
		require.Equal(t, "blocked_address", failureOf(err).Code)
	})
}

func TestHTTP_GuardLetsThroughWhatIsAllowed(t *testing.T) {
	t.Parallel()
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	answer, err := httpOpen(t, httpLoopback(), httpOptions{guard: true}).do(httpPost(t, httpWithin(t, long), server.URL))
	require.NoError(t, err)
	require.Equal(t, 200, answer.status)
}

func TestHTTP_Validate(t *testing.T) {
	t.Parallel()
	cfg := webhookConfig()
	cfg.HTTP = httpLoopback()
	require.NoError(t, Validate("senders[0].webhook", cfg))
	cfg.HTTP.AllowAddresses = []string{"10.0.0.0/8", "10.0.0.0/99", "localhost"}
	err := Validate("senders[0].webhook", cfg)
	require.EqualError(t, err, `senders[0].webhook.allow_addresses[1]: "10.0.0.0/99" is not allowed; allowed values: prefixes such as 10.0.0.0/8 and addresses
senders[0].webhook.allow_addresses[2]: "localhost" is not allowed; allowed values: prefixes such as 10.0.0.0/8 and addresses`)
	_, err = newHTTPClient(HTTPConfig{CAFile: filepath.Join(t.TempDir(), "none.pem")}, httpOptions{})
	require.ErrorContains(t, err, "ca_file: ")
	file := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("x"), 10), 0o600))
	_, err = newHTTPClient(HTTPConfig{CAFile: file}, httpOptions{})
	require.EqualError(t, err, "ca_file: has no PEM certificate")
}

// What may no longer be sent when there is a connection at last is not sent, over HTTP/1 and HTTP/2.
func TestHTTP_ChecksBeforeItSends(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		for checks := range 2 {
			var bodies atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); err == nil && len(body) > 0 {
					bodies.Add(1)
				}
			}))
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetHTTP1(true)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Start()
			t.Cleanup(server.Close)
			c := httpOpen(t, HTTPConfig{}, httpOptions{http2: http2})
			asked := 0
			ctx := sender.WithCheck(httpWithin(t, long), func() error {
				if asked++; asked > checks {
					return sender.ErrLate
				}
				return nil
			})
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(`{"x": 1}`))
			require.NoError(t, err)
			_, err = c.do(req)
			require.Equal(t, sender.Result{Class: sender.Retryable, Code: "late", Detail: "not sent: the claim to the message may have ended", Untried: true}, failureOf(err))
			server.Close()
			require.Zero(t, bodies.Load())
			require.Equal(t, checks+1, asked)
		}
	}
}
