package pgserver

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
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
