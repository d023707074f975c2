package demo

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// bundle is one demonstration in a database of its own.
type bundle struct {
	config Config
	db     *dbtest.DB
	screen *bytes.Buffer
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{db: dbtest.NewEmpty(t), screen: new(bytes.Buffer)}
	b.config = Config{
		Channels: 20_000, Database: b.db.Name, Server: b.db.Pool, DSN: b.db.DSN,
		Executable: "no test starts it", Environ: append(os.Environ(), "BELFRY_RUNNER_LANES=nobody", "BELFRY_NONSENSE=1"),
		Screen: b.screen,
	}
	return b
}

// setupProcesses is setup for a demonstration that starts processes: to build belfry takes
// longer than the rest of most tests.
func setupProcesses(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	b.config.Executable = binary(t)
	return b
}

// stage opens a stage that the test drives itself.
func (b *bundle) stage(t *testing.T) *stage {
	t.Helper()
	require.NoError(t, b.config.Validate())
	s := newStage(b.config, new(Report))
	t.Cleanup(func() { require.NoError(t, s.close(t.Context())) })
	require.NoError(t, s.open(t.Context()))
	s.screen.act("test")
	return s
}

func (b *bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.db.Pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// D1: the whole demonstration with real processes, and then the same proof after
// one row was taken away: the demo may not call that OK.
func TestDemoProcess_ProvesAndNoticesAMissingRow(t *testing.T) {
	t.Parallel()
	b := setupProcesses(t)
	s := b.stage(t)
	require.NoError(t, s.perform(t.Context()), "%s", b.screen)
	r := s.report
	require.True(t, r.OK, "%s", b.screen)
	require.Empty(t, r.Problems)

	require.Len(t, r.Jobs, 1)
	j := r.Jobs[0]
	require.Equal(t, processed, j.Status)
	require.Positive(t, j.Rows)
	require.Equal(t, j.Matched, j.Rows)
	require.Positive(t, j.Chunks)
	require.Equal(t, int64(20_000), r.Channels)
	require.True(t, r.Kill.InMiddle)
	require.Positive(t, r.Kill.TakeOverMS)
	require.True(t, r.Abort.InMiddle)
	require.True(t, r.Abort.Still)

	for line := range strings.SplitSeq(b.screen.String(), "\n") {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 80, line)
		require.NotContains(t, line, "\x1b", "no colours unless asked")
	}
	for _, r := range s.runners {
		require.True(t, r.gone(), r.name)
	}

	b.exec(t, `DELETE FROM belfry.message_rows WHERE channel_id = (SELECT max(channel_id) FROM belfry.messages)`)
	r.Jobs, r.Problems = nil, nil
	b.screen.Reset()
	require.NoError(t, s.prove(t.Context()))
	require.False(t, r.OK)
	require.Equal(t, []string{"job 1: 1 of " + grouped(j.Matched) + " matching channels have no row"}, r.Problems)
	require.Contains(t, b.screen.String(), "NOT OK")
}

// D1: a kill that always comes after the last chunk is reported, not glossed over.
func TestDemoProcess_AKillThatComesTooLateIsNoSuccess(t *testing.T) {
	t.Parallel()
	b := setupProcesses(t)
	b.config.Channels = LeastChannels
	s := b.stage(t)
	s.hitAt = b.config.Channels // all of them
	require.NoError(t, s.enqueueJob(t.Context()))
	require.ErrorContains(t, s.killRunner(t.Context()), "kill -9 did not hit the job in its middle: it is ")
	s.report.judge()
	require.False(t, s.report.OK)
	require.Contains(t, s.report.Problems, "kill -9 hit no job in its middle")
}

// D1: likewise the abort.
func TestDemoProcess_AnAbortThatComesTooLateIsNoSuccess(t *testing.T) {
	t.Parallel()
	b := setupProcesses(t)
	b.config.Channels = LeastChannels
	s := b.stage(t)
	require.NoError(t, s.generate(t.Context()))
	require.NoError(t, s.enqueue(t.Context(), "NULL"))
	var err error
	s.heir, err = s.start(t.Context(), "run", "--quiet")
	require.NoError(t, err)
	require.NoError(t, s.heir.wantExit(t.Context(), 0)) // the job is done before anybody aborts it
	require.EqualError(t, s.abortJob(t.Context()), "the abort did not hit the job in its middle")
	require.False(t, s.report.Abort.InMiddle)
}

// D1: a row that comes with or after the abort is noticed. A trigger writes one when
// the flag is set, as a run that ignores the fence would.
func TestDemoProcess_NoticesARowAfterTheAbort(t *testing.T) {
	t.Parallel()
	b := setupProcesses(t)
	s := b.stage(t)
	require.NoError(t, s.generate(t.Context()))
	b.exec(t, `CREATE FUNCTION belfry.sneak() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at)
			SELECT NEW.id, c.id, now() FROM belfry.channels c WHERE c.id > NEW.cursor::bigint AND c.active
			ORDER BY c.id DESC LIMIT 1; -- far from the chunk in flight, whose keys are locked
			RETURN NULL;
		END $$`)
	b.exec(t, `CREATE TRIGGER sneak AFTER UPDATE OF abort_requested ON belfry.jobs
		FOR EACH ROW WHEN (NEW.status = 'ABORTED') EXECUTE FUNCTION belfry.sneak()`)
	require.NoError(t, s.enqueue(t.Context(), "4000"))
	var err error
	s.heir, err = s.start(t.Context(), "run", "--quiet")
	require.NoError(t, err)
	require.NoError(t, s.abort(t.Context()))
	a := s.report.Abort
	require.False(t, a.Still)
	require.False(t, a.Exact)
	s.report.judge()
	require.Contains(t, s.report.Problems, "the job continued after its abort had returned")
}

// D4: cancelling ends the demonstration and its runners.
func TestDemoProcess_CancelledLeavesNoRunner(t *testing.T) {
	t.Parallel()
	b := setupProcesses(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	errStop := context.DeadlineExceeded
	done := make(chan error, 1)
	go func() {
		_, err := Run(ctx, b.config)
		done <- err
	}()
	b.until(t, `SELECT EXISTS (SELECT FROM belfry.jobs WHERE status = 'RUNNING')`)
	cancel(errStop)
	require.ErrorIs(t, <-done, errStop)
	b.until(t, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'belfry%' AND pid <> pg_backend_pid())`)
	var unfinished int
	require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.jobs WHERE status <> 'PROCESSED'`).Scan(&unfinished))
	require.Positive(t, unfinished, "nobody was left to finish them")
}

// until waits until an SQL condition is true.
func (b *bundle) until(t *testing.T, condition string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pool, err := pgxpool.New(ctx, b.db.DSN+"&application_name=watcher")
	require.NoError(t, err)
	defer pool.Close()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		var done bool
		if err := pool.QueryRow(ctx, condition).Scan(&done); err == nil && done { // an error: there are no tables yet
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			require.NoError(t, ctx.Err(), condition)
		}
	}
}
