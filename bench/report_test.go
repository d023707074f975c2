package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/migrations/dbtest"
)

// sample has a met goal, a missed one, a series and a note.
func sample() report {
	r := report{
		StartedAt: time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC), Seconds: 12.5,
		Machine:  machine{OS: "linux", Arch: "amd64", CPUs: 2, Go: "go1.26"},
		Postgres: postgres{Version: "15.1", Fsync: "on", SynchronousCommit: "on", SharedBuffers: "128MB", MaxWALSize: "1GB", JIT: "on", Private: true},
		Channels: 1_000_000, Rounds: 3,
	}
	one := result{Name: "walk", What: "a job against the plain statement", Seconds: 9.6}
	one.figure("inbox_speed", "the job", 1_234_567.8, unitSpeed)
	one.figure("inbox_ratio", "ratio", 0.9312, unitRatio, atLeast(0.95))
	one.figure("inbox_chunk_p99", "chunk p99", 250, unitMS, atMost(250))
	two := result{Name: "memory", What: "cost against matches", Seconds: 2.4}
	two.note("A %s.", "note")
	two.figure("faster", "the job is faster", 4.25, unitTimes)
	two.figure("kills", "runners killed", 5, unitCount)
	two.figure("large_peak", "peak", 14.53, "MiB", atMost(64))
	two.Table = &table{
		Columns: []string{"audience", "matches", "µs/match"},
		Rows:    [][]any{{"Seoul 1 km", int64(1234), 3.456}, {"nobody", int64(0), "-"}, {"everyone", 12, 0.5}},
	}
	r.Results = []result{one, two}
	r.GoalsMet = len(r.missed()) == 0
	return r
}

func TestReport_TableAndData(t *testing.T) {
	t.Parallel()
	var text, data strings.Builder
	require.NoError(t, sample().show(false, &text))
	dbtest.Golden(t, "testdata/table.golden", text.String())
	require.NoError(t, sample().show(true, &data))
	dbtest.Golden(t, "testdata/report.golden.json", data.String())
}

// A goal's own value meets it.
func TestReport_MissedGoalsAreNamed(t *testing.T) {
	t.Parallel()
	r := sample()
	require.Equal(t, []string{"walk/inbox_ratio"}, r.missed())
	require.False(t, r.GoalsMet)
	r.Results = r.Results[1:]
	require.Empty(t, r.missed())
	var b strings.Builder
	require.NoError(t, r.show(false, &b))
	require.Contains(t, b.String(), "All goals of these benchmarks are met.")
}

// loadSample is what two rounds of one foreground might give.
func loadSample() report {
	r := sample()
	series := make(map[beside]measured)
	for i, s := range scenarios() {
		var m measured
		for round := range 2 {
			k := float64(i*i*i + 1 + round)
			for n, value := range [...]float64{1000 / k, 0.5 * k, 1.25 * k, 4 * k, 100_000 * k * float64(min(i, 1))} {
				m[n] = append(m[n], value)
			}
		}
		series[beside{bystander, s.name}] = m
	}
	one := result{Name: "load", What: "what a job does to others"}
	one.loadFigures(series)
	r.Results = []result{one}
	return r
}

// Ratios are taken within each round, and what did not run is not in the table.
func TestReport_Load(t *testing.T) {
	t.Parallel()
	r := loadSample().Results[0]
	require.Len(t, r.Table.Rows, len(scenarios()))
	require.InDelta(t, (9.0/1+10.0/2)/2, r.Table.Rows[2][7], 1e-9)
	require.Equal(t, "governed_p95_ratio", r.Figures[0].Name)
	require.False(t, *r.Figures[0].Met)
}

func TestReport_SVG(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, loadSample().writeSVG(&b))
	dbtest.Golden(t, "testdata/load.golden.svg", b.String())
	for decoder := xml.NewDecoder(strings.NewReader(b.String())); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	require.ErrorContains(t, sample().writeSVG(&b), "--only: load")
}

// The window counts transactions by their end; a line that pgbench could not finish is not
// there, and a file that is no log is an error.
func TestReadLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := time.Unix(1_900_000_000, 0)
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("pgbench_log.77", strings.Join([]string{
		"0 1 1500 0 1899999999 999999 20", // before
		"0 2 2500 0 1900000000 0 20",
		"1 3 3500 0 1900000000 500000", // without a rate
		"1 4 9900 0 1900000001 0 20",   // after
		"1 5 99",                       // cut
	}, "\n"))
	ms, complete, err := readLogs(dir, at, at.Add(time.Second))
	require.NoError(t, err)
	require.True(t, complete)
	require.Equal(t, []float64{2.5, 3.5}, ms)

	write("pgbench_log.77.1", "2 1 4500 0 1900000000 1 0\n") // a thread that has not come to the end
	ms, complete, err = readLogs(dir, at, at.Add(time.Second))
	require.NoError(t, err)
	require.False(t, complete)
	require.Equal(t, []float64{2.5, 3.5, 4.5}, ms)

	for text, want := range map[string]string{"hello\n": `logged "hello`, "0 1 skipped 0 1 2\n": "skipped"} {
		write("pgbench_log.77.1", text)
		_, _, err = readLogs(dir, at, at)
		require.ErrorContains(t, err, want)
	}
	ms, complete, err = readLogs(t.TempDir(), at, at)
	require.NoError(t, err)
	require.False(t, complete)
	require.Empty(t, ms)
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for want, values := range map[float64][]float64{7: {7}, 2: {3, 1, 2}, 2.5: {4, 1, 3, 2}, 1.5: {2, 1}, 3: {5, 1, 4, 2, 3}} {
		require.InDelta(t, want, median(values), 0, "%v", values)
	}
	require.True(t, math.IsNaN(median(nil)))
}

func TestPercentile_IsTheNearestRank(t *testing.T) {
	t.Parallel()
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	for _, c := range []struct {
		values  []float64
		p, want float64
	}{
		{hundred, 50, 50}, {hundred, 99, 99}, {hundred, 99.5, 100}, {hundred, 100, 100}, {hundred, 0.1, 1},
		{[]float64{5, 1}, 50, 1}, {[]float64{5, 1}, 99, 5}, {[]float64{9}, 1, 9},
	} {
		require.InDelta(t, c.want, percentile(c.values, c.p), 0, "p%v", c.p)
	}
	require.InDelta(t, 100, hundred[0], 0, "the caller's values keep their order")
	require.True(t, math.IsNaN(percentile(nil, 50)))
}

func TestTenths(t *testing.T) {
	t.Parallel()
	var values []float64
	for i := range 21 {
		values = append(values, float64(i+1))
	}
	for _, c := range []struct{ values, first, last []float64 }{
		{values, []float64{1, 2}, []float64{20, 21}},
		{[]float64{4, 5}, []float64{4}, []float64{5}},
		{nil, nil, nil},
	} {
		first, last := tenths(c.values)
		require.Equal(t, c.first, first)
		require.Equal(t, c.last, last)
	}
}
