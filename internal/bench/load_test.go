package bench

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/migrations/dbtest"
)

// The window counts transactions by their end; a line that pgbench could not finish
// is not there, and a file that is no log is an error.
func TestTransactions_Read(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := time.Unix(1_900_000_000, 0)
	log := strings.Join([]string{
		"0 1 1500 0 1899999999 999999 20", // before
		"0 2 2500 0 1900000000 0 20",
		"1 3 3500 0 1900000000 500000", // without a rate
		"1 4 9900 0 1900000001 0 20",   // after
		"1 5 99",                       // cut
	}, "\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pgbench_log.77"), []byte(log), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pgbench_log.77.1"), []byte("2 1 4500 0 1900000000 1 0\n"), 0o600))
	got, err := readLogs(dir, at, at.Add(time.Second))
	require.NoError(t, err)
	require.ElementsMatch(t, []float64{2.5, 3.5, 4.5}, got.ms)
	require.InDelta(t, 3, got.perSecond(), 0)
	require.NoDirExists(t, dir)

	for text, want := range map[string]string{"hello\n": `logged "hello`, "0 1 skipped 0 1 2\n": "skipped"} {
		require.ErrorContains(t, (&transactions{}).read(strings.NewReader(text), at, at), want)
	}
	empty := t.TempDir()
	_, err = readLogs(empty, at, at)
	require.ErrorContains(t, err, "no transaction")
}

func TestParseCPUTimes(t *testing.T) {
	t.Parallel()
	busy, total := parseCPUTimes("cpu  10 1 5 100 20 2 3 4 7 0\ncpu0 1 1 1 1\n")
	require.InDelta(t, 25, busy, 0)
	require.InDelta(t, 145, total, 0)
	busy, total = parseCPUTimes("")
	require.Zero(t, busy)
	require.Zero(t, total)
}

// loadSample is what two rounds of one foreground might give.
func loadSample() Report {
	r := sample()
	series := make(map[[2]string][]measured)
	for i, s := range scenarios() {
		for round := range 2 {
			k := float64(i*i*i + 1 + round)
			m := measured{tps: 1000 / k, p50: 0.5 * k, p95: 1.25 * k, p99: 4 * k}
			if i > 0 {
				m.rows = 100_000 * k
			}
			series[[2]string{bystander, s.name}] = append(series[[2]string{bystander, s.name}], m)
		}
	}
	result := Result{Name: "load", What: "what a job does to others"}
	result.reportLoad(series)
	r.Results = []Result{result}
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
	require.NoError(t, loadSample().WriteSVG(&b))
	golden(t, "load.golden.svg", b.String())
	for decoder := xml.NewDecoder(strings.NewReader(b.String())); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	require.ErrorContains(t, sample().WriteSVG(&b), "--only: load")
}

// The whole of load runs at sizes that prove no more than that: pgbench, all
// scenarios, rows counted.
func TestBench_LoadMeasures(t *testing.T) {
	t.Parallel()
	if _, err := findPgbench(t.Context()); err != nil {
		t.Skip(err)
	}
	db := dbtest.New(t)
	config := QuickConfig()
	config.DatabaseURL, config.Channels, config.Only = db.DSN, 4000, []string{"load"}
	report, err := Run(t.Context(), config)
	require.NoError(t, err)
	table := report.Results[0].Table
	require.Len(t, table.Rows, len(scenarios()))
	for _, row := range table.Rows {
		require.Positive(t, row[2], "transactions: %v", row)
		if row[1] != "alone" {
			require.Positive(t, row[9], "rows: %v", row)
		}
	}
	require.Positive(t, report.Results[0].Figures[5].Value)
	require.Equal(t, "idle_ratio", report.Results[0].Figures[5].Name)
}

// Without pgbench load is skipped by name, and that is no error.
func TestLoad_WithoutPgbenchIsSkipped(t *testing.T) {
	t.Parallel()
	var r Result
	r.skipLoad(errNoPgbench)
	require.Empty(t, r.Figures)
	require.Contains(t, r.Notes[0], "Skipped: pgbench is not there")
}
