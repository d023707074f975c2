package dbtest

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/belfryhq/belfry/internal/pgserver"
)

// Program is the path of one of PostgreSQL's own programs, such as pg_dump, of the
// installation that private servers come from. A test is skipped where that has none:
// some packages hold the server alone.
func Program(t testing.TB, name string) string {
	t.Helper()
	config, err := serverConfig(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	install := config.Install
	if install == nil {
		found, err := pgserver.Find(t.Context())
		if err != nil {
			t.Skipf("no %s: %s", name, err)
		}
		install = &found
	}
	path, err := exec.LookPath(filepath.Join(install.BinDir, name))
	if err != nil {
		t.Skipf("no %s: %s", name, err)
	}
	return path
}
