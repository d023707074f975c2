package dbtest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rewrite is the flag -rewrite, which writes golden files instead of comparing them.
var Rewrite = flag.Bool("rewrite", false, "write golden files, scripts and generated pages anew") //nolint:gochecknoglobals // a flag of tests

// Golden requires that text equals the file at path, relative to the directory of the package. With
// -rewrite it writes the file.
func Golden(t testing.TB, path, text string) {
	t.Helper()
	if *Rewrite {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -rewrite to make it")
	require.Equal(t, strings.ReplaceAll(string(want), "\r\n", "\n"), text, "%s: refresh it by running %s with -rewrite", path, t.Name())
}
