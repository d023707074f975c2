package demo

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// patience bounds what a test waits for.
const patience = 3 * time.Minute

// built is the real binary, shared by the tests that run at the same time.
type built struct {
	mu    sync.Mutex
	users int
	dir   string
}

var theBinary built

// binary returns the real belfry, built from this tree. The last test that uses it
// removes it.
func binary(t *testing.T) string {
	t.Helper()
	b := &theBinary
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users == 0 {
		dir, err := os.MkdirTemp("", "belfry-demo-test-")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // all of it, beside whatever else compiles
		defer cancel()
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", dir, "../../cmd/belfry")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build, for the build cache
		text, err := build.CombinedOutput()
		require.NoError(t, err, "%s", text)
		b.dir = dir
	}
	b.users++
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.users--; b.users == 0 {
			require.NoError(t, os.RemoveAll(b.dir))
		}
	})
	return filepath.Join(b.dir, "belfry")
}
