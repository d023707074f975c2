package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/pgserver"
)

// mainVariable makes the test binary belfry. Processes that belfry starts inherit
// it.
const mainVariable = "BELFRY_TEST_MAIN"

// TestMain runs belfry itself when it is asked to: the scripts and the process
// tests run the real command in processes of its own.
func TestMain(m *testing.M) {
	pgserver.Watchdog() // which has an environment and a command line of its own
	if os.Getenv(mainVariable) != "" {
		main()
	}
	// Started with a command line of belfry's but without the variable, the whole
	// suite would run again, and again in its children.
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprintf(os.Stderr, "%s: set %s=1 to run belfry in the test binary\n", os.Args[0], mainVariable)
		os.Exit(int(codeUsage))
	}
	// People in Seoul read the times of day, on whatever machine.
	seoul, err := time.LoadLocation("Asia/Seoul")
	if err != nil {
		panic(err)
	}
	time.Local = seoul //nolint:reassign // before any test runs
	dbtest.Main(m)
}

// TestMain_RefusesToRunTheSuiteAsACommand proves that a belfry started without the
// variable cannot breed.
func TestMain_RefusesToRunTheSuiteAsACommand(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), binary(t), "version")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	text, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, int(codeUsage), cmd.ProcessState.ExitCode(), "%s", text)
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
	a := newApp(&stdout, &stderr, environ)
	exit := a.execute(ctx, args)
	return result{stdout.String(), stderr.String(), exit}
}

func TestBuild_IsNamed(t *testing.T) {
	t.Parallel()
	r := command(t, nil, "version")
	require.Equal(t, codeDone, r.code)
	require.True(t, strings.HasPrefix(r.stdout, "belfry "), r.stdout)
	for _, flag := range []string{"--version", "-V"} { // as other programs have it
		require.Equal(t, r, command(t, nil, flag), flag)
	}
}
