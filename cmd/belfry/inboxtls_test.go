package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// secured is a process that serves readers with TLS.
type secured struct {
	*process

	at, token, certificate string
}

// client trusts the certificate of the file alone.
func (s *secured) client(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	text, err := os.ReadFile(s.certificate)
	require.NoError(t, err)
	trusted := x509.NewCertPool()
	require.True(t, trusted.AppendCertsFromPEM(text))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: http2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// get returns the body of an answer, which is closed when the test ends.
func (s *secured) get(t *testing.T, path string, version int) io.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.at+"/v1"+path, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+s.token)
	res, err := s.client(t, version == 2).Do(req)
	require.NoError(t, err, s.stderr.String())
	t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, version, res.ProtoMajor)
	return res.Body
}

// serial is the number of the certificate of new connections.
func (s *secured) serial(t *testing.T) int64 {
	t.Helper()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", s.at)
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // only the certificate is read
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// Readers of other machines are served with TLS: the list, events, also over HTTP/2 as browsers read them, and
// WebSockets. The certificate is read again at SIGHUP, without the end of streams.
func TestProcess_ServesReadersWithTLS(t *testing.T) {
	t.Parallel()
	db, dir := readable(t), t.TempDir()
	file := filepath.Join(dir, "cert.pem")
	environ, tokenOf := centre(t, db.DSN, "BELFRY_INBOX_TLS_CERT_FILE="+file, "BELFRY_INBOX_TLS_KEY_FILE="+filepath.Join(dir, "key.pem"),
		"BELFRY_INBOX_LISTEN=0.0.0.0:0")
	r := command(t, environ, "serve")
	require.Equal(t, codeConfiguration, r.code)
	require.Contains(t, r.stderr, "inbox.tls: open "+file)
	require.NotContains(t, r.stderr, "HOST:PORT")

	for _, name := range []string{"serve", "daemon"} {
		certificate(t, dir, 1)
		s := &secured{process: start(t, environ, name), token: tokenOf(4711), certificate: file}
		url := s.centre(t)
		require.True(t, strings.HasPrefix(url, "https://"), url)
		_, port, err := net.SplitHostPort(strings.TrimSuffix(url[len("https://"):], "/v1"))
		require.NoError(t, err)
		s.at = "127.0.0.1:" + port
		for _, path := range []string{"/inbox", "/stream", "/ws"} {
			require.Equal(t, http.StatusBadRequest, answered(t, "GET", "http://"+s.at+"/v1"+path, s.token), "without TLS")
		}
		list, err := io.ReadAll(s.get(t, "/inbox", 1))
		require.NoError(t, err)
		require.Contains(t, string(list), "Maintenance tonight")
		first, second := lines(t, s.get(t, "/stream", 1)), lines(t, s.get(t, "/stream", 2))
		socket, _, err := websocket.Dial(t.Context(), "wss://"+s.at+"/v1/ws?access_token="+s.token, //nolint:bodyclose // a WebSocket has none
			&websocket.DialOptions{HTTPClient: s.client(t, false)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = socket.CloseNow() })
		streamed := func(want string) {
			t.Helper()
			first(want)
			second(want)
			_, data, err := socket.Read(t.Context())
			require.NoError(t, err)
			require.Contains(t, string(data), want)
		}
		streamed(`"type":"reload"`)

		require.EqualValues(t, 1, s.serial(t))
		certificate(t, dir, 2)
		require.NoError(t, s.Process.Signal(syscall.SIGHUP))
		require.Eventually(t, func() bool { return s.serial(t) == 2 }, patience, 20*time.Millisecond)
		s.get(t, "/inbox", 1)
		require.NoError(t, os.WriteFile(file, []byte("nothing"), 0o600))
		require.NoError(t, s.Process.Signal(syscall.SIGHUP))
		s.says(t, "certificate refused; the one before stays")
		require.EqualValues(t, 2, s.serial(t))
		require.NoError(t, execEach(db, `SELECT belfry.notify(4711, 'activity', 'Ann likes your post', route => '{}')`))
		streamed(`"title":"Ann likes your post"`)
		s.terminate(t)
		require.Equal(t, codeDone, s.exit(t), s.stderr.String())
		require.NotContains(t, s.stderr.String(), s.token)
	}
}

// Without TLS or a proxy, readers are served on this machine only.
func TestServe_RefusesReadersBeyondThisMachineWithoutTLS(t *testing.T) {
	t.Parallel()
	environ, _ := centre(t, "postgres://127.0.0.1:1/none")
	for _, listen := range []string{":0", "[::]:0", "192.0.2.1:8471", "inbox.example:8471"} {
		for _, name := range []string{"serve", "daemon"} {
			r := command(t, append(environ, "BELFRY_INBOX_LISTEN="+listen), name)
			require.EqualValues(t, 78, r.code, listen)
			require.Contains(t, r.stderr, "inbox.tls.cert_file: is empty, and inbox.listen "+listen+" is beyond this machine")
		}
	}
	r := command(t, append(environ, "BELFRY_INBOX_LISTEN=:0", "BELFRY_INBOX_PROXIES=10.0.0.7"), "serve")
	require.Equal(t, codeUnavailable, r.code, "behind a proxy; the database is away")
}
