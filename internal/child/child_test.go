package child_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/internal/child"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait; the tests expect to wait far less.
const patience = 30 * time.Second

// shell starts a script that ends when the test closes its standard input, or with the test.
func shell(t *testing.T, script string) (*child.Process, io.Closer) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	p, err := child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop(child.Step{Signal: syscall.SIGKILL, Wait: patience})) })
	return p, in
}

func TestChild_TellsHowItEnded(t *testing.T) {
	t.Parallel()
	p, in := shell(t, "read line; exit 7")
	require.False(t, p.Over())
	require.NoError(t, p.Err())
	require.NoError(t, in.Close())
	<-p.Ended()
	require.ErrorIs(t, p.Err(), child.ErrEnded)
	require.ErrorContains(t, p.Err(), "exit status 7")
	require.False(t, p.EndedBy(syscall.SIGKILL))
	require.NoError(t, p.Stop(child.Step{Signal: syscall.SIGINT, Wait: patience}), "what has ended is stopped")
}

func TestChild_StopTakesTheNextStep(t *testing.T) {
	t.Parallel()
	p, _ := shell(t, "trap '' INT; echo; read line")
	require.NoError(t, p.Freeze(true)) // the first signal comes to nothing, trap or not
	require.NoError(t, p.Stop(child.Step{Signal: syscall.SIGINT, Wait: time.Millisecond},
		child.Step{Signal: syscall.SIGKILL, Wait: patience}))
	require.True(t, p.EndedBy(syscall.SIGKILL))

	stubborn, _ := shell(t, "read line")
	require.NoError(t, stubborn.Freeze(true))
	require.ErrorContains(t, stubborn.Stop(child.Step{Signal: syscall.SIGINT, Wait: time.Millisecond}), "does not end")
	require.NoError(t, stubborn.Freeze(false))
	<-stubborn.Ended()
	require.True(t, stubborn.EndedBy(syscall.SIGINT))
}

func TestAwait_TellsAnEndFromSilence(t *testing.T) {
	t.Parallel()
	silent := errors.New("silence")
	ask := func(context.Context) error { return silent }
	p, in := shell(t, "read line")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := child.Await(ctx, p, ask)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, silent)
	require.NoError(t, child.Await(t.Context(), p, func(context.Context) error { return nil }))
	require.NoError(t, in.Close())
	require.ErrorIs(t, child.Await(t.Context(), p, ask), child.ErrEnded)
	// Somebody answers in its place.
	require.ErrorIs(t, child.Await(t.Context(), p, func(context.Context) error { return nil }), child.ErrEnded)
	require.NoError(t, child.Await(t.Context(), nil, func(context.Context) error { return nil }), "not ours")
}

func TestStart_OfNothing(t *testing.T) {
	t.Parallel()
	_, err := child.Start(exec.Command("/no/such/program"), syscall.SIGKILL)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestEnv_KeepsNoSecrets(t *testing.T) {
	t.Parallel()
	env := child.Env([]string{"PATH=/bin", "PGDATA=/x", "BELFRY_DATABASE_URL=secret", "LD_LIBRARY_PATH=/l", "DYLD_X=1", "LANG=ko_KR"})
	require.Equal(t, []string{"LC_ALL=C", "HOME=/", "PATH=/bin", "LD_LIBRARY_PATH=/l", "DYLD_X=1"}, env)
}

func TestTail_IsOfThisStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte("before\nduring\nafter\n"), 0o600))
	require.Equal(t, "during\nafter", child.Tail(path, 7))
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("line\n", 10_000)), 0o600))
	require.Equal(t, 20, strings.Count(child.Tail(path, 0), "line"))
	require.Contains(t, child.Tail(path+"-none", 0), "no such file")
}
