package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/sqlfile"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

var rewrite = flag.Bool("rewrite", false, "rewrite golden files and scripts")

// mainVariable makes the test binary belfry. Processes that belfry starts inherit
// it.
const mainVariable = "BELFRY_TEST_MAIN"

// TestMain runs belfry itself when it is asked to: the scripts and the process
// tests run the real command in processes of its own.
func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
	}
	dbtest.Main(m)
}

// binary returns a path at which this test binary is belfry.
func binary(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "belfry")
	require.NoError(t, os.Symlink(self, link))
	return link
}

// result is what a command in this process did.
type result struct {
	stdout, stderr string
	code           code
}

// command runs a command line in this process, with only the given environment.
func command(t *testing.T, environ []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	a := &app{stdout: &stdout, stderr: &stderr, environ: environ, now: time.Now}
	exit := a.execute(ctx, args)
	return result{stdout.String(), stderr.String(), exit}
}

// golden compares text with a file, or rewrites the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *rewrite {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -rewrite")
	require.Equal(t, string(want), got, "golden file %s; refresh it with -rewrite", path)
}

func TestQueries_AreUsedAndNamed(t *testing.T) {
	t.Parallel()
	sqlfile.CheckUse(t, ".")
}

func TestBuild_IsNamed(t *testing.T) {
	t.Parallel()
	r := command(t, nil, "version")
	require.Equal(t, codeDone, r.code)
	require.True(t, strings.HasPrefix(r.stdout, "belfry "), r.stdout)
}
