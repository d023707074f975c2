package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/bench"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestParse_QuickKeepsTheSizesThatFlagsGive(t *testing.T) {
	t.Parallel()
	config, opts, err := parse([]string{"--quick", "--rounds", "4", "--only", "walk, radius", "--json"}, &bytes.Buffer{})
	require.NoError(t, err)
	require.True(t, opts.json)
	require.Equal(t, []string{"walk", "radius"}, config.Only)
	require.Equal(t, 4, config.Rounds)
	require.Equal(t, bench.QuickConfig().Channels, config.Channels)
	require.Equal(t, bench.QuickConfig().Kills, config.Kills)
	require.True(t, config.Quick)

	config, _, err = parse([]string{"--channels=5000"}, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, int64(5000), config.Channels)
	require.Equal(t, bench.DefaultConfig().Rounds, config.Rounds)
	require.False(t, config.Quick)
}

func TestRun_Usage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, 0, "Usage: belfry-bench [flags]"},
		{[]string{"--fast"}, 2, "belfry-bench: flag provided but not defined: -fast\nRun `belfry-bench --help` for usage.\n"},
		{[]string{"walk"}, 2, `unexpected argument "walk"`},
		{[]string{"--only", "fly"}, 2, `only: there is no benchmark "fly"`},
		{[]string{"--channels", "1"}, 2, "channels: 1 is not allowed"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, c.code, run(c.args, &stdout, &stderr), "%v", c.args)
		require.Contains(t, stderr.String(), c.want)
		require.Empty(t, stdout.String())
	}
}

// Data on stdout, progress on stderr, exit code 0 also when a goal is missed.
func TestBench_JSON(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	var stdout, stderr bytes.Buffer
	code := run([]string{"--quick", "--channels=2000", "--only=level", "--json", "--database-url", db.DSN}, &stdout, &stderr)
	require.Zero(t, code, stderr.String())
	var report bench.Report
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &report))
	require.Len(t, report.Results, 1)
	require.Equal(t, "level", report.Results[0].Name)
	require.Contains(t, stderr.String(), "generating 2,000 channels")
}

func TestBench_Table(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	var stdout, stderr bytes.Buffer
	code := run([]string{"--quick", "--channels=2000", "--only=level", "--database-url", db.DSN}, &stdout, &stderr)
	require.Zero(t, code, stderr.String())
	require.Contains(t, stdout.String(), "last to first")
}

func TestRun_ErrorIsExitCode1(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	code := run([]string{"--quick", "--database-url", "host=" + t.TempDir() + " connect_timeout=2"}, &stdout, &stderr)
	require.Equal(t, 1, code)
	require.Contains(t, stderr.String(), "belfry-bench: make a database of its own")
	require.Empty(t, stdout.String())
}
