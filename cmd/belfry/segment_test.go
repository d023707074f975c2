package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file of keys has any size at the command line.
func TestLong_SegmentTakesFilesOfAnySize(t *testing.T) {
	t.Parallel()
	db := stage(t)
	environ := []string{"BELFRY_DATABASE_URL=" + db.DSN}
	name := filepath.Join(t.TempDir(), "keys.txt")
	require.NoError(t, os.WriteFile(name, []byte(strings.Repeat("nobody\n", 200_000)+"u1\n"), 0o600))
	r := command(t, environ, "channels", "segment", "create", "beta")
	require.Equal(t, codeDone, r.code, r.stderr)
	r = command(t, environ, "channels", "segment", "add", "beta", name)
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Contains(t, r.stdout, "200,001 keys given: 1 added, 0 removed")
}
