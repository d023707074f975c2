package dbtest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFind_TakesTheFirstProgramThatCanRun(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	empty, closed, good := filepath.Join(root, "empty"), filepath.Join(root, "closed"), filepath.Join(root, "good")
	for dir, mode := range map[string]os.FileMode{closed: 0o600, good: 0o700} {
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "server"), nil, mode))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(empty, "server"), 0o700)) // a directory of that name

	path, ok := lookup([]string{"", ".", empty, closed, good}, []string{"other", "server"})
	require.True(t, ok)
	require.Equal(t, filepath.Join(good, "server"), path)
	_, ok = lookup([]string{empty, closed}, []string{"server"})
	require.False(t, ok)
}

// skipped stands in for a test and remembers why it was skipped.
type skipped struct {
	testing.TB
	reason string
}

func (s *skipped) Skipf(format string, args ...any) {
	s.reason = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestFind_NothingInstalledSkipsByName(t *testing.T) {
	t.Parallel()
	s := &skipped{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		findService(s, "redis", "no-such-server")
	}()
	<-done
	require.Contains(t, s.reason, "redis: not installed (none of [no-such-server])")
}
