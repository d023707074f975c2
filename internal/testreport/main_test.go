package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outcome runs testreport and sets down all that a caller could see.
func outcome(ctx context.Context, args []string, ci bool, stream string) string {
	var stdout, stderr bytes.Buffer
	status := run(ctx, args, ci, strings.NewReader(stream), &stdout, &stderr)
	return fmt.Sprintf("%s-- stderr --\n%s-- exit status %d --\n", stdout.String(), stderr.String(), status)
}

// TestRun_Golden reads streams recorded from `go test -json`, cut to what
// matters, except those that no go command would end with.
func TestRun_Golden(t *testing.T) {
	t.Parallel()
	streams, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, streams)
	for _, stream := range streams {
		t.Run(strings.TrimSuffix(filepath.Base(stream), ".json"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(stream)
			require.NoError(t, err)
			requireGolden(t, strings.TrimSuffix(stream, ".json")+".golden", outcome(t.Context(), nil, false, string(text)))
		})
	}
}

func requireGolden(t *testing.T, path, got string) {
	t.Helper()
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -rewrite")
	require.Equal(t, string(want), got)
}

func TestRun_SkipFailsInCI(t *testing.T) {
	t.Parallel()
	stream, err := os.ReadFile("testdata/passing.json")
	require.NoError(t, err)

	require.Contains(t, outcome(t.Context(), nil, false, string(stream)), "-- exit status 0 --")
	require.Contains(t, outcome(t.Context(), nil, true, string(stream)),
		"testreport: 2 skipped, and CI=true: CI runs everything\n-- exit status 1 --")
}

func TestRun_NamesWhatTheCallerLeftOut(t *testing.T) {
	t.Parallel()
	stream, err := os.ReadFile("testdata/coverage.json")
	require.NoError(t, err)
	args := []string{"-skip", "race detector: no C compiler"}

	got := outcome(t.Context(), args, false, string(stream))
	require.Contains(t, got, "skipped: race detector: no C compiler\n1 passed, 0 failed, 1 skipped\n")
	require.Contains(t, got, "-- exit status 0 --")
	require.Contains(t, outcome(t.Context(), args, true, string(stream)), "-- exit status 1 --")
}

func TestRun_RefusesWrongUsage(t *testing.T) {
	t.Parallel()
	require.Contains(t, outcome(t.Context(), []string{"-skip", ""}, false, ""), "is empty: name the part")
	require.Contains(t, outcome(t.Context(), []string{"-fast"}, false, ""), "-- exit status 2 --")
}

func TestRun_Command(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		want   string
	}{
		"its events are read": {
			script: `cat testdata/coverage.json`,
			want:   "\n1 passed, 0 failed, 0 skipped\n-- stderr --\n-- exit status 0 --\n",
		},
		"its failure is explained by its tests": {
			script: `cat testdata/failing_package.json; exit 1`,
			want:   "\n1 passed, 1 failed, 0 skipped\n-- stderr --\n-- exit status 1 --\n",
		},
		"its failure counts although every test passed": {
			script: `cat testdata/coverage.json; echo cannot write the profile >&2; exit 3`,
			want: "\nfailed: run sh: exit status 3\n1 passed, 1 failed, 0 skipped\n-- stderr --\n" +
				"cannot write the profile\n-- exit status 1 --\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, outcome(t.Context(), []string{"sh", "-c", test.script}, false, ""), test.want)
		})
	}
}

func TestRun_CommandThatDoesNotExist(t *testing.T) {
	t.Parallel()
	got := outcome(t.Context(), []string{"/nonexistent/go", "test"}, false, "")
	require.Contains(t, got, "no such file or directory")
	require.Contains(t, got, "-- exit status 1 --")
}

// An interrupted command ends its tests by itself and is reported on to its end.
func TestRun_InterruptReachesTheCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	// The shell waits in open(2) of a pipe that nobody writes to until the signal comes.
	script := fmt.Sprintf(`trap 'cat testdata/truncated_stream.json; exit 1' INT; mkfifo %[1]s.never; : >%[1]s; read x <%[1]s.never`, ready)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	got := make(chan string, 1)
	go func() { got <- outcome(ctx, []string{"sh", "-c", script}, false, "") }()
	require.Eventually(t, func() bool { _, err := os.Stat(ready); return err == nil }, stopDelay, stopDelay/1000)
	interrupt()
	require.Contains(t, <-got, "failed: example.com/sample/bad.TestWrong (did not end)\n")
}

func TestRun_BrokenPipes(t *testing.T) {
	t.Parallel()
	broken := errors.New("the pipe is gone")

	var stdout, stderr bytes.Buffer
	require.Equal(t, 1, run(t.Context(), nil, false, iotest.ErrReader(broken), &stdout, &stderr))
	require.Contains(t, stdout.String(), "1 failed")
	require.Contains(t, stderr.String(), "read the test events: the pipe is gone")

	stderr.Reset()
	passing, err := os.Open("testdata/coverage.json")
	require.NoError(t, err)
	defer func() { require.NoError(t, passing.Close()) }()
	require.Equal(t, 1, run(t.Context(), nil, false, passing, brokenWriter{broken}, &stderr))
	require.Contains(t, stderr.String(), "print the report: the pipe is gone")
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }
