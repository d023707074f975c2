package dbtest

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Serve is the address, "127.0.0.1:12345", of a server that does with each connection what talk
// does, and closes it then. It ends with the test, when its clients have closed theirs.
func Serve(t testing.TB, talk func(net.Conn)) (addr string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var talks sync.WaitGroup
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		talks.Wait()
	})
	talks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			talks.Go(func() {
				defer func() { _ = conn.Close() }() // the client may have
				talk(conn)
			})
		}
	})
	return listener.Addr().String()
}
