package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

func TestMain(m *testing.M) {
	runAsChild() // does not return in a runner process
	dbtest.Main(m)
}

// bench runs the command at sizes that prove no more than that it works, and reads its data.
func bench(t *testing.T, args ...string) (r report, progress string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args = append([]string{"--quick", "--json", "--channels=4000", "--enqueues=3", "--messages=2000", "--orders=100"}, args...)
	require.Zero(t, run(args, &stdout, &stderr), stderr.String())
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &r))
	return r, stderr.String()
}

// figures are the report's figures by benchmark/figure.
func figures(t *testing.T, r report) map[string]float64 {
	t.Helper()
	all := make(map[string]float64)
	for _, one := range r.Results {
		for _, f := range one.Figures {
			require.NotContains(t, all, one.Name+"/"+f.Name)
			all[one.Name+"/"+f.Name] = f.Value
		}
	}
	return all
}

// requireContract finds in a report the figures of testdata/figures.txt, each with its unit
// and goal, which scripts and docs know by name, and no others.
func requireContract(t *testing.T, r report, absent func(name string) bool) {
	t.Helper()
	text, err := os.ReadFile("testdata/figures.txt")
	require.NoError(t, err)
	contract := strings.Split(strings.TrimSpace(string(text)), "\n")
	var have []string
	for _, one := range r.Results {
		for _, f := range one.Figures {
			line := one.Name + "/" + f.Name + " " + f.Unit
			if f.Goal != nil {
				line += fmt.Sprintf(" %s %v", f.Goal.Compare, f.Goal.Value)
			}
			require.Contains(t, contract, line)
			have = append(have, line)
		}
	}
	for _, line := range contract {
		if name, _, _ := strings.Cut(line, " "); !absent(name) {
			require.Contains(t, have, line)
		}
	}
}

// Every benchmark runs, counts its rows, and reports what it says it does. Speeds are not
// asserted: they are the machine's.
func TestBench_EveryBenchmarkMeasures(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	r, progress := bench(t, "--database-url", db.DSN, "--only", strings.Join(names(), ","))
	require.Len(t, r.Results, len(names()))
	for i, name := range names() {
		require.Equal(t, name, r.Results[i].Name)
	}
	all := figures(t, r)
	said := r.Results[slices.Index(names(), "carriers")].Notes[0]
	noRedis, noNATS := strings.HasPrefix(said, "Skipped"), strings.HasPrefix(said, "Without jetstream")
	requireContract(t, r, func(name string) bool {
		return strings.HasPrefix(name, "stock/") || // needs servers of its own
			noRedis && (strings.HasPrefix(name, "carriers/") || strings.HasPrefix(name, "due/") || strings.HasPrefix(name, "loss/")) ||
			noNATS && strings.Contains(name, "/jetstream") ||
			strings.HasPrefix(name, "load/") && strings.Contains(progress, "Skipped") ||
			name == "idle/cpu" || name == "idle/named_cpu" || // of a server that may be anywhere
			name == "radius/match_to_everyone" // needs more channels
	})
	for name, value := range all {
		if !strings.HasPrefix(name, "takeover/excess") {
			require.GreaterOrEqual(t, value, 0.0, name)
		}
	}
	require.InDelta(t, 3, all["latency/enqueues"], 0)
	require.InDelta(t, 1, all["takeover/kills"], 0)
	// A runner is a Go program with a connection: less than 4 MiB is some other figure.
	require.Greater(t, all["memory/small_peak"], 4.0)
	for _, one := range r.Results {
		switch one.Name {
		case "radius":
			everyone := one.Table.Rows[len(one.Table.Rows)-1]
			require.Equal(t, "everyone", everyone[0])
			require.InDelta(t, 4000, everyone[2], 0, "every key is examined")
			require.InDelta(t, 3960, everyone[1], 40, "about one in a hundred is inactive")
		case "load":
			require.Len(t, one.Table.Rows, len(scenarios()))
		case "stock":
			require.Contains(t, one.Notes[0], "Skipped: it compares two private servers")
		}
	}
	// The server it was pointed at is as it was.
	var left int64
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM belfry.channels) + (SELECT count(*) FROM belfry.jobs)`).Scan(&left))
	require.Zero(t, left)
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_database WHERE datname LIKE 'belfry\_bench\_%'`).Scan(&left))
	require.Zero(t, left)
}

// A database is filled once, kept, and has what the command line lists. One with belfry in it is
// left alone.
func TestSeed_FillsAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	d := dbtest.NewEmpty(t)
	args := []string{"seed", "--quick", "--channels=3000", "--jobs=1000", "--history=2000", "--database-url", d.DSN}
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(args, &stdout, &stderr), stderr.String())
	require.Empty(t, stdout.String())
	require.Contains(t, stderr.String(), "belfry jobs list")
	count := func() (jobs, messages int64) {
		require.NoError(t, d.Pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM belfry.jobs), (SELECT count(*) FROM belfry.messages)").Scan(&jobs, &messages))
		return jobs, messages
	}
	jobs, messages := count()
	require.EqualValues(t, 1000, jobs)
	require.EqualValues(t, 2000, messages)
	list, err := job.NewStore(d.Pool).List(t.Context(), job.Filter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 10)
	require.Equal(t, 1, run(args, &stdout, &stderr))
	require.Contains(t, stderr.String(), "has a schema belfry")
	again, _ := count()
	require.Equal(t, jobs, again)
}

// Without a URL the servers are private, durable, and leave nothing behind.
func TestBench_PrivateServerIsDurableAndLeavesNothing(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "belfry-bench-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	if os.Geteuid() == 0 { // the server's account has to pass through
		require.NoError(t, os.Chmod(root, 0o755))
	}
	r, _ := bench(t, "--database-url=", "--dir", root, "--only=stock")
	require.True(t, r.Postgres.Private)
	require.Equal(t, "on", r.Postgres.Fsync)
	require.Positive(t, figures(t, r)["stock/ratio"])
	left, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Empty(t, left)
}

// Linux passes the peak memory of a process on to those it starts; a runner must not be
// charged with what the bench, or the make above it, once used.
func TestBench_PeakIsTheRunnersOwn(t *testing.T) {
	t.Parallel()
	ballast := bytes.Repeat([]byte{1}, 150<<20)
	r, _ := bench(t, "--database-url", dbtest.New(t).DSN, "--only=memory")
	runtime.KeepAlive(ballast)
	require.Less(t, figures(t, r)["memory/large_peak"], 100.0)
}

func TestRun_InterruptedEndsWithTheCause(t *testing.T) {
	t.Parallel()
	c, err := parse([]string{"--quick", "--channels=2000", "--only=walk", "--database-url", dbtest.New(t).DSN}, os.Stderr)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	c.progress = writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "walk:") {
			cancel()
		}
		return len(p), nil
	})
	_, err = measure(ctx, c)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "walk: ")
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Rows that are not there are an error, not a figure.
func TestEnv_CountsRows(t *testing.T) {
	t.Parallel()
	c, err := parse([]string{"--database-url", dbtest.New(t).DSN}, &bytes.Buffer{})
	require.NoError(t, err)
	e := &env{config: c, failure: &failure{}, size: 2000}
	t.Cleanup(func() { require.NoError(t, e.attempt(e.close)) })
	require.NoError(t, e.attempt(func() { e.open(t.Context(), true) }))
	var got jobRun
	require.NoError(t, e.attempt(func() { got = e.runEveryone(t.Context(), "push", constant(ungoverned(), 500)) }))
	require.Equal(t, e.active, got.job.RowsWritten)
	require.Len(t, got.whole(500), 2000/500)
	require.ErrorContains(t, e.attempt(func() { e.checkRows(t.Context(), got.job.ID, e.active+1) }), "rows, not")

	// A runner that is done before it could be killed was not killed.
	require.ErrorIs(t, e.attempt(func() { e.kill(t.Context(), job.DefaultConfig(), 500, 5) }), errMissedKill)

	e.active++
	require.ErrorContains(t, e.attempt(func() { e.runEveryone(t.Context(), "inbox", constant(ungoverned(), 500)) }), "rows, not")
	require.ErrorContains(t, e.attempt(func() { e.insertAll(t.Context(), "inbox") }), "one statement wrote")
	require.ErrorContains(t, e.attempt(func() { e.insertByOffset(t.Context()) }), "rows, not")
}

// What fails first ends an attempt, and what it has deferred runs and says what else is wrong.
func TestFailure_EndsTheAttempt(t *testing.T) {
	t.Parallel()
	f, first, second := &failure{}, errors.New("first"), errors.New("second")
	err := f.attempt(func() {
		defer f.within("part")
		defer func() { f.check(second) }()
		f.check(nil)
		f.demand(true, "not %s", "said")
		f.check(first)
		t.Error("it went on")
	})
	require.EqualError(t, err, "part: first\nsecond")
	require.ErrorIs(t, err, second)
	require.NoError(t, f.attempt(func() {}), "the next is another")
}

// A figure that is no number means that nothing was measured.
func TestMeasure_RefusesAFigureThatIsNoNumber(t *testing.T) {
	t.Parallel()
	e := &env{config: config{progress: &bytes.Buffer{}}, failure: &failure{}}
	for _, value := range []float64{math.NaN(), math.Inf(1)} {
		err := e.attempt(func() {
			e.measure(t.Context(), benchmark{name: "none", run: func(_ context.Context, _ *env, r *result) {
				r.figure("speed", "speed", value, unitSpeed)
			}})
		})
		require.ErrorContains(t, err, "figure speed is ")
	}
}

// --quick keeps the sizes that flags give, and the last --only counts: make's own comes first.
func TestParse_Sizes(t *testing.T) {
	t.Parallel()
	c, err := parse([]string{"--only", "load", "--quick", "--rounds", "4", "--only", "walk, radius"}, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, []string{"walk", "radius"}, c.only)
	require.Equal(t, int64(4), c.rounds)
	require.Equal(t, int64(50_000), c.channels)
	require.Equal(t, int64(1), c.kills)
	c, err = parse([]string{"--channels=5000"}, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, int64(5000), c.channels)
	require.Equal(t, int64(3), c.rounds)
}

// What is not allowed is said with what is, all at once.
func TestRun_Usage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, 0, "Usage: make bench ARGS='[flags]'"},
		{[]string{"--fast"}, 2, "bench: flag provided but not defined: -fast\nRun `make bench ARGS=--help` for usage.\n"},
		{[]string{"walk"}, 2, `unexpected argument "walk"`},
		{
			[]string{"--only=walk,fly", "--channels=7", "--rounds=0", "--enqueues=-1", "--kills=10001", "--messages=5", "--orders=1"}, 2,
			`bench: only: there is no benchmark "fly"; allowed values: walk, alternatives, level, memory, latency, idle, takeover, radius, load, lists, river, stock, claims, orders, carriers, due, loss
channels: 7 is not allowed; allowed values: 2000 to 100000000
rounds: 0 is not allowed; allowed values: 1 to 10000
enqueues: -1 is not allowed; allowed values: 1 to 10000
kills: 10001 is not allowed; allowed values: 1 to 10000
messages: 5 is not allowed; allowed values: 1000 to 100000000
orders: 1 is not allowed; allowed values: 100 to 10000000
`,
		},
		{
			[]string{"seed", "--database-url=", "--only=walk", "--rounds=2"}, 2,
			`bench: database-url: is missing; allowed values: an empty database, which is filled and kept
only: seed measures nothing; allowed flags: database-url, quick, channels, jobs, history
rounds: seed measures nothing; allowed flags: database-url, quick, channels, jobs, history
`,
		},
		{[]string{"--quick", "--database-url", "host=" + t.TempDir() + " connect_timeout=2"}, 1, "bench: make a database of its own"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, c.code, run(c.args, &stdout, &stderr), "%v", c.args)
		require.Contains(t, stderr.String(), c.want)
		require.Empty(t, stdout.String())
	}
}

// A runner process that fails says why and exits 1.
func TestChild_FailsWithItsReason(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	for spec, want := range map[string]string{"{": "BELFRY_BENCH_CHILD", "{}": "channels.relation"} {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), "BELFRY_BENCH_CHILD="+spec)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, string(out))
		require.Equal(t, 1, exit.ExitCode())
		require.Contains(t, string(out), want)
	}
}
