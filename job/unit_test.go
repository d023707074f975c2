package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job/governor"
)

func TestBackoff_DoublesUpToTheMaximum(t *testing.T) {
	t.Parallel()
	u := run{Runner: &Runner{}}
	u.reloaded.Store(&Config{Retry: RetryConfig{Initial: 100 * time.Millisecond, Max: time.Second}})
	var got []time.Duration
	for u.failed = 1; u.failed <= 6; u.failed++ {
		got = append(got, u.backoff())
	}
	ms := time.Millisecond
	require.Equal(t, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second}, got)
}

// A short stale_after does not make a throttled run look dead.
func TestHold_HeartbeatComesSeveralTimesBeforeItIsStale(t *testing.T) {
	t.Parallel()
	for _, stale := range []time.Duration{100 * time.Millisecond, time.Second, 30 * time.Second, 24 * time.Hour} {
		every := Config{StaleAfter: stale}.tellEvery()
		require.Positive(t, every)
		require.LessOrEqual(t, every, stale/4)
	}
}

// What a retry can fix, by SQLSTATE and by Go error.
func TestRetryable_ByCause(t *testing.T) {
	t.Parallel()
	state := func(code string) error { return fmt.Errorf("chunk: %w", &pgconn.PgError{Code: code}) }
	for _, err := range []error{
		state("40001"), state("40P01"), state("55P03"), state("57014"), state("25P03"), state("53100"), state("53200"),
		state("53300"), state("57P01"), state("57P02"), state("57P03"), state("08006"), state("58030"),
		state("26000"), state("42P05"), // by a pooler
		io.ErrUnexpectedEOF, &net.OpError{Op: "read", Err: errors.New("reset")}, context.DeadlineExceeded, ErrUnreachable, errMoved,
	} {
		require.True(t, retryable(err), "%v", err)
	}
	for _, err := range []error{
		state("22012"), state("23505"), state("23514"), state("22P02"), state("42P01"), state("42501"), errors.New("a writer's own"),
	} {
		require.False(t, retryable(err), "%v", err)
	}
}

func TestConfig_DefaultIsValid(t *testing.T) {
	t.Parallel()
	require.NoError(t, DefaultConfig().Validate())
}

// Every problem is told at once, with its key.
func TestConfig_ValidateTellsEverything(t *testing.T) {
	t.Parallel()
	err := Config{
		Lanes:            []string{"Fast"},
		PollInterval:     time.Millisecond,
		StaleAfter:       time.Second,
		StatementTimeout: 2 * time.Second,
		GracePeriod:      -time.Second,
		Chunk:            governor.ChunkConfig{InitialRows: 5, MinRows: 10, MaxRows: 1, Target: 5 * time.Second},
		Retry:            RetryConfig{Limit: -1, For: -1, Initial: 0, Max: time.Minute},
	}.Validate()
	for _, key := range []string{
		"runner.lanes", "runner.poll_interval", "runner.stale_after", "runner.grace_period", "runner.chunk.initial_rows",
		"runner.chunk.max_rows", "runner.chunk.target", "runner.retry.limit", "runner.retry.for", "runner.retry.initial",
	} {
		require.ErrorContains(t, err, key+": ")
	}
}

func TestNewType_PanicsOnAProgrammersError(t *testing.T) {
	t.Parallel()
	writer := WriterFunc[int64](nil)
	require.Panics(t, func() { NewType[int64]("Bad Name", "", RecipientIDs(nil), writer) })
	require.Panics(t, func() { NewType[int64]("name", "", nil, writer) })
}

// An error of any length fits into belfry.job_skips, whatever its characters.
func TestErrorText_FitsItsColumn(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"x", "é", "한", "\xff"} {
		for n := range 4 {
			text := errorText(errors.New(strings.Repeat("x", n) + strings.Repeat(word, 5000)))
			require.LessOrEqual(t, len(text), 4000)
			require.True(t, utf8.ValidString(text))
		}
	}
}
