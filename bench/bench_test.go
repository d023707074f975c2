package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/bench"
	"github.com/belfryhq/belfry/internal/pgserver"
)

func TestMain(m *testing.M) {
	pgserver.Watchdog() // never returns in the private server's watchdog
	m.Run()
}

// Every benchmark runs, counts what it says, and its figures are numbers.
func TestBench_MeasuresEverything(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	require.Zero(t, run([]string{"--quick", "--json", "--messages", "2000", "--orders", "100"}, &stdout, &stderr), stderr.String())
	var report bench.Report
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &report))
	require.Len(t, report.Results, len(measurements()))
	for _, result := range report.Results {
		require.NotEmpty(t, result.Figures, result.Name)
		for _, f := range result.Figures {
			require.Positive(t, f.Value, "%s/%s", result.Name, f.Name)
		}
	}
}

// What is not allowed is said with what is, all at once.
func TestBench_RefusesBadSizes(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"only: \"walk\" is no benchmark; allowed values: river, stock, claims, orders": {"--only", "walk"},
		"messages: 5 is not allowed; allowed values: 1000 to 100000000":                {"--messages", "5"},
		"rounds: 0 is not allowed; allowed values: 1 to 100":                           {"--rounds", "0"},
		"orders: 1 is not allowed; allowed values: 100 to 10000000":                    {"--orders", "1"},
		"unexpected argument \"x\"":                                                    {"x"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, 2, run(args, &stdout, &stderr))
		require.Contains(t, stderr.String(), name)
		require.Empty(t, stdout.String())
	}
}

func TestPercentile_IsTheNearestRank(t *testing.T) {
	t.Parallel()
	values := []float64{5, 1, 4, 2, 3}
	require.InDelta(t, 3, percentile(values, 50), 0)
	require.InDelta(t, 5, percentile(values, 99), 0)
	require.InDelta(t, 1, percentile(values, 1), 0)
}
