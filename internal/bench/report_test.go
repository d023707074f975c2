package bench

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// sample has a met goal, a missed one, a series and a note.
func sample() Report {
	r := Report{
		StartedAt: time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC), Seconds: 12.5,
		Machine:  Machine{OS: "linux", Arch: "amd64", CPUs: 2, Go: "go1.26"},
		Postgres: Postgres{Version: "15.1", Fsync: "on", SynchronousCommit: "on", SharedBuffers: "128MB", MaxWALSize: "1GB", JIT: "on", Private: true},
		Channels: 1_000_000, Rounds: 3,
	}
	one := Result{Name: "walk", What: "a job against the plain statement", Seconds: 9.6}
	one.figure("speed", "the job", 1_234_567.8, unitSpeed, nil)
	one.figure("ratio", "ratio", 0.9312, unitRatio, atLeast(0.95))
	one.figure("chunk_p99", "chunk p99", 250, unitMS, atMost(250))
	two := Result{Name: "radius", What: "cost against matches", Seconds: 2.4, Notes: []string{"A note."}}
	two.figure("faster", "the job is faster", 4.25, unitTimes, nil)
	two.figure("kills", "runners killed", 5, unitCount, nil)
	two.figure("peak", "peak", 14.53, unitMiB, atMost(64))
	two.Table = &Table{
		Columns: []string{"audience", "matches", "µs/match"},
		Rows:    [][]any{{"Seoul 1 km", int64(1234), 3.456}, {"nobody", int64(0), "-"}, {"everyone", 12, 0.5}},
	}
	r.Results = []Result{one, two}
	r.GoalsMet = len(r.Missed()) == 0
	return r
}

func TestReport_Table(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, sample().WriteTable(&b))
	golden(t, "table.golden", b.String())
}

func TestReport_JSON(t *testing.T) {
	t.Parallel()
	text, err := json.MarshalIndent(sample(), "", "  ")
	require.NoError(t, err)
	golden(t, "report.golden.json", string(text)+"\n")
}

func TestReport_MissedGoalsAreNamed(t *testing.T) {
	t.Parallel()
	r := sample()
	require.Equal(t, []string{"walk/ratio"}, r.Missed())
	require.False(t, r.GoalsMet)
	r.Results = r.Results[1:]
	require.Empty(t, r.Missed())
	var b strings.Builder
	require.NoError(t, r.WriteTable(&b))
	require.Contains(t, b.String(), "All goals of these benchmarks are met.")
}

// A goal's own value meets it.
func TestGoal_BoundsAreInclusive(t *testing.T) {
	t.Parallel()
	require.True(t, atMost(250).met(250))
	require.False(t, atMost(250).met(250.1))
	require.True(t, atLeast(0.95).met(0.95))
	require.False(t, atLeast(0.95).met(0.9499))
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -999: "-999"} {
		require.Equal(t, want, grouped(n))
	}
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://me:secret@db:5433/service?sslmode=disable": "postgres://me:secret@db:5433/mine?sslmode=disable",
		"postgresql:///service?host=/run":                      "postgresql:///mine?host=/run",
		"host=db dbname=service":                               "host=db dbname=service dbname=mine",
	} {
		got, err := withDatabase(dsn, "mine")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := withDatabase("postgres://me:secret@db:port/x", "mine")
	require.EqualError(t, err, "database-url: is not a valid URL")
}
