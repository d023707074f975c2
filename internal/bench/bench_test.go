package bench_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/bench"
	"github.com/belfryhq/belfry/internal/sqlfile"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

func TestQueries_AreUsedAndNothingElseIs(t *testing.T) {
	t.Parallel()
	sqlfile.CheckUse(t, ".")
}

// tiny runs everything at sizes that prove no more than that it works.
func tiny() bench.Config {
	c := bench.QuickConfig()
	c.Channels, c.Enqueues, c.Kills = 4000, 3, 1
	return c
}

// figures are the report's figures by benchmark/figure.
func figures(t *testing.T, report bench.Report) map[string]float64 {
	t.Helper()
	all := make(map[string]float64)
	for _, result := range report.Results {
		for _, f := range result.Figures {
			key := result.Name + "/" + f.Name
			require.NotContains(t, all, key)
			all[key] = f.Value
		}
	}
	return all
}

// Every benchmark runs, counts its rows, and reports what it says it does. Speeds
// are not asserted: they are the machine's.
func TestBench_EveryBenchmarkMeasures(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	config := tiny()
	config.DatabaseURL = db.DSN
	var progress bytes.Buffer
	config.Progress = &progress
	report, err := bench.Run(t.Context(), config)
	require.NoError(t, err, progress.String())

	names := bench.Names()
	names = names[:len(names)-1] // load takes minutes and runs only when it is named
	require.Len(t, report.Results, len(names))
	for i, name := range names {
		require.Equal(t, name, report.Results[i].Name)
		require.NotEmpty(t, report.Results[i].Figures)
	}
	all := figures(t, report)
	for _, name := range []string{
		"walk/inbox_ratio", "walk/push_ratio", "walk/inbox_chunk_p99", "alternatives/insert_per_row_ratio",
		"alternatives/offset_ratio", "level/last_to_first", "memory/large_to_middle", "memory/large_peak",
		"latency/first_chunk_p99", "idle/statements", "idle/named_statements", "takeover/takeover_p50", "radius/everyone",
	} {
		require.Positive(t, all[name], name)
	}
	require.InDelta(t, 3, all["latency/enqueues"], 0)
	require.InDelta(t, 1, all["takeover/kills"], 0)
	require.LessOrEqual(t, all["radius/sparse_most_keys"], 50_000.0)
	// A runner is a Go program with a connection: less than 4 MiB is some other figure.
	require.Greater(t, all["memory/small_peak"], 4.0)

	series := report.Results[len(report.Results)-1].Table
	require.NotNil(t, series)
	everyone := series.Rows[len(series.Rows)-1]
	require.Equal(t, "everyone", everyone[0])
	require.Equal(t, int64(4000), everyone[2], "every key is examined")
	require.InDelta(t, 3960, everyone[1], 40, "about one in a hundred is inactive")
	require.NoError(t, report.WriteTable(&bytes.Buffer{}))
	require.Contains(t, progress.String(), "takeover")

	// The database it was pointed at is as it was.
	var rows int64
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM belfry.channels) + (SELECT count(*) FROM belfry.jobs)`).Scan(&rows))
	require.Zero(t, rows)
}

// Without a URL the server is private, durable, and leaves nothing behind.
func TestBench_PrivateServerIsDurableAndLeavesNothing(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "belfry-bench-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	if os.Geteuid() == 0 { // the server's account has to pass through
		require.NoError(t, os.Chmod(root, 0o755)) //nolint:gosec // see above
	}
	config := tiny()
	config.Dir = root
	config.Only = []string{"latency"}
	report, err := bench.Run(t.Context(), config)
	require.NoError(t, err)
	require.Len(t, report.Results, 1)
	require.True(t, report.Postgres.Private)
	require.Equal(t, "on", report.Postgres.Fsync)
	left, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestRun_InterruptedEndsWithTheCause(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	config := tiny()
	config.DatabaseURL = db.DSN
	config.Progress = writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "walk:") {
			cancel()
		}
		return len(p), nil
	})
	_, err := bench.Run(ctx, config)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "walk: ")
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestRun_UnreachableServerIsAnError(t *testing.T) {
	t.Parallel()
	config := tiny()
	config.DatabaseURL = "host=" + t.TempDir() + " connect_timeout=2"
	_, err := bench.Run(t.Context(), config)
	require.ErrorContains(t, err, "make a database of its own")
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	require.NoError(t, bench.DefaultConfig().Validate())
	require.NoError(t, bench.QuickConfig().Validate())
	c := bench.Config{Only: []string{"walk", "fly"}, Channels: 7, Rounds: 0, Enqueues: -1, Kills: 10_001}
	require.EqualError(t, c.Validate(), strings.Join([]string{
		`only: there is no benchmark "fly"; allowed values: walk, alternatives, level, memory, latency, idle, takeover, radius, load`,
		"channels: 7 is not allowed; allowed values: 2000 to 100000000",
		"rounds: 0 is not allowed; allowed values: 1 to 10000",
		"enqueues: -1 is not allowed; allowed values: 1 to 10000",
		"kills: 10001 is not allowed; allowed values: 1 to 10000",
	}, "\n"))
	_, err := bench.Run(t.Context(), c)
	require.Error(t, err)
}

// Linux passes the peak memory of a process on to those it starts; a runner must
// not be charged with what the bench, or the make above it, once used.
func TestBench_PeakIsTheRunnersOwn(t *testing.T) {
	t.Parallel()
	ballast := bytes.Repeat([]byte{1}, 150<<20)
	db := dbtest.New(t)
	config := tiny()
	config.Only, config.DatabaseURL = []string{"memory"}, db.DSN
	report, err := bench.Run(t.Context(), config)
	require.NoError(t, err)
	runtime.KeepAlive(ballast)
	require.Less(t, figures(t, report)["memory/large_peak"], 100.0)
}

// A runner process that fails says why and exits 1.
func TestChild_FailsWithItsReason(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	for spec, want := range map[string]string{
		"{":  "BELFRY_BENCH_CHILD",
		"{}": "channels.relation",
	} {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), "BELFRY_BENCH_CHILD="+spec)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, string(out))
		require.Equal(t, 1, exit.ExitCode())
		require.Contains(t, string(out), want)
	}
}
