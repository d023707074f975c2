package bench

import (
	"bufio"
	"context"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/migrations/dbtest"
)

// A server given by URL gets a database of this run's own, and keeps nothing of it.
func TestEnv_DropsItsDatabase(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	config := QuickConfig()
	config.DatabaseURL = db.DSN
	e, err := openEnv(t.Context(), config)
	require.NoError(t, err)
	name := e.pool.Config().ConnConfig.Database
	require.Contains(t, name, "belfry_bench_")
	exists := func() (n int) {
		require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_database WHERE datname = $1`, name).Scan(&n))
		return n
	}
	require.Equal(t, 1, exists())
	require.NoError(t, e.close())
	require.Zero(t, exists())
	require.NoError(t, e.close(), "a second close does nothing")
}

// Rows that are not there are an error, not a figure.
func TestEnv_CountsRows(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	config := QuickConfig()
	config.DatabaseURL, config.Channels = db.DSN, MinChannels
	e, err := openEnv(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.close()) })
	require.NoError(t, e.fill(t.Context()))
	run, err := e.runEveryone(t.Context(), "push", constant(500))
	require.NoError(t, err)
	require.Equal(t, e.active, run.job.RowsWritten)
	require.Len(t, run.chunks, MinChannels/500)
	for _, c := range run.chunks {
		require.Equal(t, int64(500), c.keys)
		require.Positive(t, c.took)
	}
	require.ErrorContains(t, e.checkRows(t.Context(), run.job, e.active+1), "rows, not")

	e.active++
	_, err = e.runEveryone(t.Context(), "inbox", constant(500))
	require.ErrorContains(t, err, "rows, not")
	_, err = e.insertAll(t.Context(), "inbox")
	require.ErrorContains(t, err, "one statement wrote")
	_, err = e.insertByOffset(t.Context())
	require.ErrorContains(t, err, "rows, not")
}

// A figure that is no number means that nothing was measured.
func TestMeasure_RefusesAFigureThatIsNoNumber(t *testing.T) {
	t.Parallel()
	e := &env{Config: QuickConfig(), filled: true}
	for _, value := range []float64{math.NaN(), math.Inf(1)} {
		_, err := e.measure(t.Context(), benchmark{name: "none", run: func(_ context.Context, _ *env, r *Result) error {
			r.figure("speed", "speed", value, unitSpeed, nil)
			return nil
		}})
		require.ErrorContains(t, err, "figure speed is ")
	}
}

// A runner that is done before it could be killed was not killed.
func TestChild_DoneBeforeTheKillIsAMiss(t *testing.T) {
	t.Parallel()
	lines := func(text string) *child { return &child{lines: bufio.NewScanner(strings.NewReader(text))} }
	require.NoError(t, lines(`{"chunks":1}`+"\n"+`{"chunks":2}`).awaitChunks(2))
	require.ErrorIs(t, lines(`{"chunks":1}`+"\n"+`{"ended":true,"peak_bytes":5}`).awaitChunks(2), errMissedKill)
	require.ErrorIs(t, lines(`{"chunks":1}`).awaitChunks(2), io.EOF)
	require.ErrorContains(t, lines("panic: oh").awaitChunks(2), "panic: oh")
}
