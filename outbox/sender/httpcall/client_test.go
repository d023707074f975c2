package httpcall_test

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// Invariant 2, I9: a connection that was kept open breaks under a request that bears an
// idempotency key. net/http by itself would send it again.
func TestDo_NeverSendsTwiceByItself(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		method string
		body   string
		o      httpcall.Options
	}{
		{"POST with a key", http.MethodPost, `{}`, httpcall.Options{}},
		{"GET as a send", http.MethodGet, ``, httpcall.Options{Fresh: true}},
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
					reset(conn)
				}
			})
			c := client(t, httpcall.Config{}, test.o)
			call := func() (httpcall.Answer, error) {
				req, err := http.NewRequestWithContext(within(t, 5*time.Second), test.method, server.URL, strings.NewReader(test.body))
				require.NoError(t, err)
				if test.body == "" {
					req.Body, req.GetBody = http.NoBody, nil
				}
				req.Header.Set("Idempotency-Key", "k1")
				return c.Do(req)
			}
			_, err := call()
			require.NoError(t, err)
			_, err = call()
			require.Equal(t, sender.Unknown, httpcall.Failure(err).Class)
			require.EqualValues(t, 2, calls.Load())
		})
	}
}

func TestDo_SendsHeadersAndBody(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	})
	req := post(t, within(t, 5*time.Second), server.URL)
	req.Header.Set("Idempotency-Key", "k1")
	req.Header.Set("X-Idempotency-Key", "k2")
	_, err := client(t, httpcall.Config{}, httpcall.Options{}).Do(req)
	require.NoError(t, err)
	require.Equal(t, "k1", got.Header.Get("Idempotency-Key"))
	require.Equal(t, "k2", got.Header.Get("X-Idempotency-Key"))
	require.Equal(t, "belfry", got.UserAgent())
	require.JSONEq(t, `{"hello":"world"}`, string(body))
	require.EqualValues(t, len(body), got.ContentLength)
	require.Equal(t, "k1", req.Header.Get("Idempotency-Key"), "the caller's request is as it was")
}

func TestDo_Redirects(t *testing.T) {
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
			req := post(t, within(t, 5*time.Second), server.URL+test.path)
			req.Header.Set("Authorization", "secret")
			req.Header.Set("Cookie", "; a=b")
			answer, err := client(t, httpcall.Config{}, httpcall.Options{Redirects: test.limit}).Do(req)
			require.NoError(t, err)
			require.Equal(t, test.status, answer.Status)
			if test.status == 200 {
				require.Equal(t, test.body, string(answer.Body))
			} else {
				require.Equal(t, sender.Permanent, answer.Result().Class)
			}
		})
	}
}

// authority writes the certificate of a test server to a file.
func authority(t *testing.T, server *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, block, 0o600))
	return file
}

func TestDo_ARedirectNeverGoesDownToHTTP(t *testing.T) {
	t.Parallel()
	plain := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusTemporaryRedirect))
	t.Cleanup(secure.Close)
	answer, err := client(t, httpcall.Config{CAFile: authority(t, secure)}, httpcall.Options{Redirects: 3}).Do(post(t, within(t, 5*time.Second), secure.URL))
	require.NoError(t, err)
	require.Equal(t, 307, answer.Status)
}

func TestDo_Protocols(t *testing.T) {
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
		o               httpcall.Options
	}{
		{"TLS", secure.URL, "HTTP/2.0", httpcall.Options{}},
		{"TLS, HTTP/2 only", secure.URL, "HTTP/2.0", httpcall.Options{HTTP2: true}},
		{"clear", unencrypted.URL, "HTTP/1.1", httpcall.Options{}},
		{"clear, HTTP/2 only", unencrypted.URL, "HTTP/2.0", httpcall.Options{HTTP2: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := client(t, httpcall.Config{CAFile: authority(t, secure)}, test.o)
			req := post(t, within(t, 5*time.Second), test.url)
			req.Header.Set("Idempotency-Key", "-k1")
			answer, err := c.Do(req)
			require.NoError(t, err)
			require.Equal(t, test.want+"-k1", string(answer.Body))

			_, err = c.Do(post(t, within(t, 5*time.Second), test.url+"/reset"))
			require.Equal(t, sender.Unknown, httpcall.Failure(err).Class)
		})
	}
}

func TestDo_HTTP2HangIsUnknown(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c := client(t, httpcall.Config{CAFile: authority(t, server)}, httpcall.Options{HTTP2: true})
	_, err := c.Do(post(t, within(t, 2*time.Second), server.URL))
	require.Equal(t, sender.Unknown, httpcall.Failure(err).Class)
	require.Equal(t, "timeout", httpcall.Failure(err).Code)
}

// Invariant 3: at the first dial, by name, and at a redirect.
func TestDo_Guard(t *testing.T) {
	t.Parallel()
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Error("called", r.URL.Path) })
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1", "0x7f.1", "2130706433"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			c := client(t, httpcall.Config{}, httpcall.Options{Guard: true})
			_, err := c.Do(post(t, within(t, 5*time.Second), "http://"+host+":"+port))
			if result := httpcall.Failure(err); result.Code != "dns" { // 127.1 is an address to some resolvers only
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
		c := client(t, httpcall.Config{AllowAddresses: []string{"127.0.0.9"}}, httpcall.Options{Guard: true, Redirects: 3})
		_, err = c.Do(post(t, within(t, 5*time.Second), allowed.URL))
		require.Equal(t, "blocked_address", httpcall.Failure(err).Code)
	})
}

func TestDo_GuardLetsThroughWhatIsAllowed(t *testing.T) {
	t.Parallel()
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	answer, err := client(t, loopback(), httpcall.Options{Guard: true}).Do(post(t, within(t, 5*time.Second), server.URL))
	require.NoError(t, err)
	require.Equal(t, 200, answer.Status)
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	require.NoError(t, loopback().Validate("senders[0].webhook"))
	err := httpcall.Config{AllowAddresses: []string{"10.0.0.0/8", "10.0.0.0/99", "localhost"}}.Validate("senders[0].webhook")
	require.EqualError(t, err, `senders[0].webhook.allow_addresses[1]: "10.0.0.0/99" is not allowed; allowed are prefixes such as 10.0.0.0/8 and addresses
senders[0].webhook.allow_addresses[2]: "localhost" is not allowed; allowed are prefixes such as 10.0.0.0/8 and addresses`)
	_, err = httpcall.New(httpcall.Config{CAFile: filepath.Join(t.TempDir(), "none.pem")}, httpcall.Options{})
	require.ErrorContains(t, err, "ca_file: ")
	file := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("x"), 10), 0o600))
	_, err = httpcall.New(httpcall.Config{CAFile: file}, httpcall.Options{})
	require.EqualError(t, err, "ca_file: has no PEM certificate")
}
