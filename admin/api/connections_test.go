package api_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
)

// limited serves with limits of connections. dial opens a connection from an address; begun gets the requests for
// /wait, which last as long as their connection.
func limited(t *testing.T, most, own int, change func(*api.Config)) (dial func(from string) net.Conn, begun chan struct{}) {
	t.Helper()
	_, dial, begun = limitedServer(t, most, own, change)
	return dial, begun
}

func limitedServer(t *testing.T, most, own int, change func(*api.Config)) (server *api.Server, dial func(from string) net.Conn, begun chan struct{}) {
	t.Helper()
	begun = make(chan struct{}, 10)
	config := api.DefaultConfig()
	config.Listen = "127.0.0.1:0"
	if change != nil {
		change(&config)
	}
	server, err := api.Listen(t.Context(), config, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/wait" {
			begun <- struct{}{}
			<-req.Context().Done()
		}
		if req.URL.Path == "/hijack" {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				begun <- struct{}{}
				_, _ = conn.Read(make([]byte, 1))
				_ = conn.Close()
			}
		}
	}))
	require.NoError(t, err)
	server.LimitConnections(most, own)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	var conns []net.Conn
	t.Cleanup(func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
		cancel()
		require.NoError(t, <-ended)
	})
	at, err := url.Parse(server.URL())
	require.NoError(t, err)
	return server, func(from string) net.Conn {
		t.Helper()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := dialer.DialContext(t.Context(), "tcp", at.Host)
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		conns = append(conns, conn)
		return conn
	}, begun
}

// answered200 reports whether the server answers a request on a connection.
func answered200(t *testing.T, conn net.Conn) bool {
	t.Helper()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: belfry\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode == http.StatusOK
}

// closed waits until the server has closed a connection.
func closed(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	var late net.Error
	require.False(t, errors.As(err, &late) && late.Timeout(), "the connection is open")
}

// A new connection of an address that has all its connections replaces the longest idle one of this address.
func TestConnections_ReplaceIdleOnesOfAnAddress(t *testing.T) {
	t.Parallel()
	server, dial, _ := limitedServer(t, 100, 3, nil)
	first, second, third := dial("127.0.0.1"), dial("127.0.0.1"), dial("127.0.0.1")
	for _, conn := range []net.Conn{first, second, third, first} { // after a request the server waits longer for the next one
		require.True(t, answered200(t, conn))
		require.Eventually(t, func() bool { return server.IdleConnections() == 3 }, patience, time.Millisecond, "idle after its answer")
	}
	require.True(t, answered200(t, dial("127.0.0.1")), "the first is not the longest idle one any more")
	closed(t, second)
	require.True(t, answered200(t, first))
	require.True(t, answered200(t, third))
}

// A new connection of an address is closed while all its connections have requests in progress.
func TestConnections_KeepActiveOnes(t *testing.T) {
	t.Parallel()
	dial, begun := limited(t, 100, 2, nil)
	active := []net.Conn{dial("127.0.0.1"), dial("127.0.0.1")}
	for _, conn := range active {
		_, err := io.WriteString(conn, "GET /wait HTTP/1.1\r\nHost: belfry\r\n\r\n")
		require.NoError(t, err)
	}
	<-begun
	<-begun
	closed(t, dial("127.0.0.1"))
	require.NoError(t, active[0].Close())
	require.Eventually(t, func() bool { return answered200(t, dial("127.0.0.1")) }, patience, time.Millisecond)
}

// A WebSocket counts until it is closed, and no new connection replaces it.
func TestConnections_CountWebSockets(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]int{"own": 2, "all": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dial, begun := limited(t, 2, own, nil)
			sockets := []net.Conn{dial("127.0.0.1"), dial("127.0.0.1")}
			for _, conn := range sockets {
				_, err := io.WriteString(conn, "GET /hijack HTTP/1.1\r\nHost: belfry\r\n\r\n")
				require.NoError(t, err)
				<-begun
			}
			require.False(t, answered200(t, dial("127.0.0.1")))
			_, err := sockets[0].Write([]byte("x")) // the server closes it
			require.NoError(t, err)
			require.Eventually(t, func() bool { return answered200(t, dial("127.0.0.1")) }, patience, time.Millisecond)
			require.NoError(t, sockets[1].SetReadDeadline(time.Now().Add(10*time.Millisecond)))
			_, err = sockets[1].Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is open")
		})
	}
}

// The API and the notification centre leave descriptors to the rest of their process.
func TestConnections_LeaveDescriptors(t *testing.T) {
	t.Parallel()
	for _, files := range []uint64{256, 512, 1024, 65536, 1 << 62} {
		operators, readers := api.Share(files, 4096, false), api.Share(files, 4096+10_000, true)
		require.LessOrEqual(t, uint64(operators+readers), files-files/4)
		require.GreaterOrEqual(t, operators, 64)
	}
}

// A new connection over the limit of all addresses replaces the longest idle one, of whatever address.
func TestConnections_ReplaceIdleOnesOfAll(t *testing.T) {
	t.Parallel()
	dial, _ := limited(t, 2, 2, nil)
	first := dial("127.0.0.1") // without a request
	require.True(t, answered200(t, dial("127.0.0.1")))
	require.True(t, answered200(t, dial("127.0.0.2")))
	closed(t, first)
}

// Connections of the proxy have no limit by address.
func TestConnections_OfTheProxyAreOfManyClients(t *testing.T) {
	t.Parallel()
	dial, _ := limited(t, 100, 1, func(c *api.Config) { c.Proxy.Addresses = []string{"127.0.0.3"} })
	first, second := dial("127.0.0.3"), dial("127.0.0.3")
	require.True(t, answered200(t, first))
	require.True(t, answered200(t, second))
	require.True(t, answered200(t, first))
}

// A connection has few requests at once, so that the memory of an address's connections is bounded.
func TestServer_LimitsRequestsOfAnHTTP2Connection(t *testing.T) {
	t.Parallel()
	made := httptest.NewUnstartedServer(nil)
	made.StartTLS()
	pair := made.TLS.Certificates[0]
	made.Close()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	config := api.TLS{CertFile: filepath.Join(t.TempDir(), "tls.crt"), KeyFile: filepath.Join(t.TempDir(), "tls.key")}
	require.NoError(t, os.WriteFile(config.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(config.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	dial, _ := limited(t, 10, 10, func(c *api.Config) { c.TLS = config })
	conn := tls.Client(dial("127.0.0.1"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	_, err = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	require.NoError(t, err)
	head := make([]byte, 9)
	_, err = io.ReadFull(conn, head)
	require.NoError(t, err)
	require.EqualValues(t, 4, head[3], "SETTINGS")
	settings := make([]byte, int(head[1])<<8|int(head[2]))
	_, err = io.ReadFull(conn, settings)
	require.NoError(t, err)
	most := -1
	for ; len(settings) >= 6; settings = settings[6:] {
		if binary.BigEndian.Uint16(settings) == 3 { // MAX_CONCURRENT_STREAMS
			most = int(binary.BigEndian.Uint32(settings[2:]))
		}
	}
	require.Equal(t, 40, most)
}
