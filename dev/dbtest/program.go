package dbtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/belfryhq/belfry/internal/pgserver"
)

// Program returns the path of a PostgreSQL program, such as pg_dump, from the installation of private servers. It
// skips the test if the program is absent, because some packages contain only the server.
func Program(t testing.TB, name string) string {
	t.Helper()
	binDir := os.Getenv(binDirEnv)
	if binDir == "" {
		found, err := pgserver.Find(t.Context())
		if err != nil {
			t.Skipf("no %s: %s", name, err)
		}
		binDir = found.BinDir
	}
	path, err := exec.LookPath(filepath.Join(binDir, name))
	if err != nil {
		t.Skipf("no %s: %s", name, err)
	}
	return path
}
