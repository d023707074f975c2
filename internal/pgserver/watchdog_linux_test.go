package pgserver

import (
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// On Linux a server goes with its watchdog at once, without the help of a next
// Open: nothing stays after "pkill -9" of everything that is called belfry.
func TestFault_ServerGoesWithItsWatchdog(t *testing.T) {
	t.Parallel()
	forEachPerson(t, func(t *testing.T, p person) {
		u := startUser(t, p, madeDir(t, p))
		require.NoError(t, syscall.Kill(parent(t, u.pid), syscall.SIGKILL))
		u.kill()
		awaitGone(t, u.pid)
	})
}

// A file that is collected is closed, which releases its lock: the next client would stop the server of
// all others, because it seems to have no watchdog.
func TestWatchdog_LocksOutliveAGarbageCollection(t *testing.T) {
	t.Parallel()
	w := &watchdog{cluster: &cluster{Home: t.TempDir()}}
	client, err := os.Open(w.Home)
	require.NoError(t, err)
	locked, err := tryLock(client, unix.LOCK_SH)
	require.NoError(t, err)
	require.True(t, locked)
	require.NoError(t, w.watchClients())
	joined, err := w.lockCluster()
	require.NoError(t, err)
	require.False(t, joined)
	collect := func() {
		for range 3 {
			runtime.GC()
			collected := make(chan struct{})
			runtime.AddCleanup(new([64]byte), func(done chan struct{}) { close(done) }, collected)
			runtime.GC()
			<-collected
		}
	}
	collect()
	require.True(t, w.watched())

	require.NoError(t, client.Close())
	<-w.clients.Done()
	collect()
	next, err := os.Open(w.Home)
	require.NoError(t, err)
	locked, err = tryLock(next, unix.LOCK_SH)
	require.NoError(t, err)
	require.False(t, locked, "the server is being stopped")
	require.NoError(t, next.Close())
	runtime.KeepAlive(w)
}
