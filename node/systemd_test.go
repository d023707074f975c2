package node_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/node"
)

// listenNotify listens as a service manager does. The channel has the states in their order.
func listenNotify(t *testing.T) (path string, states <-chan string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	path = filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	list, ended := make(chan string, 10_000), make(chan struct{})
	go func() {
		defer close(ended)
		defer close(list)
		buffer := make([]byte, 100)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			list <- string(buffer[:n])
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		<-ended
	})
	return path, list
}

// The manager's watchdog gets a keep-alive for each check that found the process live, and none else.
func TestServiceManager_KeepsAliveWhileTheProcessIsLive(t *testing.T) {
	t.Parallel()
	socket, states := listenNotify(t)
	variables := map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "10000", "WATCHDOG_PID": strconv.Itoa(os.Getpid())}
	var hangs atomic.Bool
	var live, silent atomic.Int64
	found := make(chan struct{}, 10_000)
	var log bytes.Buffer
	m := node.ServiceManager{
		Variable: func(name string) string { return variables[name] },
		Live: func(time.Time) []string {
			if hangs.Load() {
				silent.Add(1)
				found <- struct{}{}
				return []string{"the process hangs"}
			}
			live.Add(1)
			return nil
		},
		Log: zerolog.New(zerolog.SyncWriter(&log)),
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served, release := make(chan error, 1), make(chan struct{})
	go func() {
		served <- m.Serve(ctx, "stopping", func(ctx context.Context) error {
			<-ctx.Done()
			<-release
			return nil
		})
	}()
	require.Equal(t, "READY=1", <-states)
	require.Equal(t, "WATCHDOG=1", <-states)
	require.Equal(t, "WATCHDOG=1", <-states)
	hangs.Store(true)
	<-found
	<-found
	hangs.Store(false) // a process that stops may take long, and is kept alive
	stop()
	watchdogs := int64(2)
	state := <-states
	for ; state == "WATCHDOG=1"; state = <-states {
		watchdogs++
	}
	require.Equal(t, "STOPPING=1", state)
	require.Equal(t, "WATCHDOG=1", <-states)
	close(release)
	require.NoError(t, <-served)
	for watchdogs++; watchdogs < live.Load(); watchdogs++ {
		require.Equal(t, "WATCHDOG=1", <-states)
	}
	require.Equal(t, live.Load(), watchdogs)
	select {
	case state := <-states:
		t.Fatalf("%s for a process that hangs, or after its end", state)
	case <-time.After(50 * time.Millisecond):
	}
	require.GreaterOrEqual(t, silent.Load(), int64(2))
	require.Contains(t, log.String(), `"reason":"the process hangs"`)
	require.Contains(t, log.String(), `"message":"stopping"`)
}

// A process whose manager has no watchdog, or watches another process, sends no keep-alive.
func TestServiceManager_WatchdogOfAnotherProcess(t *testing.T) {
	t.Parallel()
	for name, variables := range map[string]map[string]string{
		"none":             {},
		"another process":  {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
		"not a number":     {"WATCHDOG_USEC": "soon"},
		"of no duration":   {"WATCHDOG_USEC": "0"},
		"a negative value": {"WATCHDOG_USEC": "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket, states := listenNotify(t)
			m := node.ServiceManager{Log: zerolog.Nop(), Variable: func(name string) string {
				if name == "NOTIFY_SOCKET" {
					return socket
				}
				return variables[name]
			}}
			require.NoError(t, m.Serve(t.Context(), "stopping", func(context.Context) error {
				<-time.After(50 * time.Millisecond)
				return nil
			}))
			require.Equal(t, "READY=1", <-states)
			require.Empty(t, states)
		})
	}
}

// A process starts without its manager.
func TestServiceManager_NobodyListens(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	m := node.ServiceManager{Log: zerolog.New(&log), Variable: func(name string) string {
		return map[string]string{"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "none")}[name]
	}}
	require.NoError(t, m.Serve(t.Context(), "stopping", func(context.Context) error { return nil }))
	require.Contains(t, log.String(), "cannot notify the service manager")
}
