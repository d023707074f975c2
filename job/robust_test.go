package job_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/governor"
	"github.com/belfryhq/belfry/outbox"
)

// writing is a job type of the test's own.
func (b *bundle) writing(t *testing.T, write job.WriterFunc[int64]) job.Type {
	t.Helper()
	b.exec(t, `INSERT INTO belfry.job_types (name) VALUES ('custom') ON CONFLICT DO NOTHING`)
	return job.NewType[int64]("custom", "", job.RecipientIDs(b.who), write)
}

// daemons starts runners that go on until the test ends.
func (b *bundle) daemons(t *testing.T, runners ...*job.Runner) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, len(runners))
	for _, r := range runners {
		go func() { ended <- r.Run(ctx) }()
	}
	b.last = append(b.last, func() {
		cancel()
		for _, r := range runners {
			r.StopNow(errTestOver)
			if err := <-ended; err != nil {
				t.Log(err) // cut short
			}
		}
	})
}

const atRest = `SELECT status IN ('PROCESSED', 'FAILED') FROM belfry.jobs WHERE id = $1`

// A chunk that takes the database server down every time is a take-over like any
// other: the job is FAILED, it does not crash the server again and again.
func TestFault_ThatCrashesTheServerEndsInFailed(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.NewOn(t, dbtest.NewServer(t, true)), 300)
	crashes := 0
	kind := b.writing(t, func(_ context.Context, tx pgx.Tx, _ job.Job, _ []int64) (int64, error) {
		crashes++
		return 0, syscall.Kill(int(tx.Conn().PgConn().PID()), syscall.SIGKILL) // as out of memory does
	})
	id := b.enqueue(t, job.Spec{Type: "custom"})
	c := config("r")
	c.MaxTakeovers = 1
	c.Retry.Limit = 1
	b.daemons(t, b.runnerWith(t, b.db.Pool, c, []job.Type{kind}))
	var j job.Job
	require.Eventually(t, func() (over bool) {
		var err error
		j, err = b.jobs.Get(t.Context(), id)
		return err == nil && j.Status == job.Failed
	}, patience, 20*time.Millisecond)
	require.LessOrEqual(t, crashes, 6)
	require.Zero(t, j.Chunks)
}

// A Writer that leaves its connection unusable does not make the run look dead: the
// row names the next connection before the next chunk.
func TestPoison_OpenRowsDoNotLookLikeADeadRun(t *testing.T) {
	t.Parallel()
	b := setup(t, 240)
	const bad = step * 77
	kind := b.writing(t, func(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
		if !slices.Contains(ids, bad) {
			return outbox.Inbox{}.Write(ctx, tx, j, ids)
		}
		rows, err := tx.Query(ctx, `SELECT generate_series(1, 100000)`)
		if err != nil || !rows.Next() {
			return 0, err
		}
		return 0, errors.New("no template") // the rows stay open
	})
	id := b.enqueue(t, job.Spec{Type: "custom"})
	var runners []*job.Runner
	for _, name := range []string{"a", "b"} {
		c := config(name)
		// Three halvings find the recipient. On a machine that takes longer than the grace
		// to connect again a run may be taken over in between; one that was taken over each
		// time would not get through them.
		c.Chunk = governor.ChunkConfig{InitialRows: 8, MinRows: 8, MaxRows: 8, Target: 100 * time.Millisecond}
		c.MaxTakeovers = 50
		runners = append(runners, b.runnerWith(t, b.db.Pool, c, []job.Type{kind}))
	}
	b.daemons(t, runners...)
	b.eventually(t, atRest, id)
	j := b.get(t, id)
	require.Equal(t, job.Processed, j.Status, j.LastError)
	require.Equal(t, int64(1), j.Skipped)
	b.requireAccounts(t, id)
}

// Nobody yields to a job that cannot be claimed because somebody holds its row.
func TestPreemption_LockedUrgentJobDoesNotStopTheLane(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	slow, urgent := b.enqueue(t, job.Spec{}), b.enqueue(t, job.Spec{Priority: 5})
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.jobs WHERE id = $1 FOR UPDATE`, urgent)
	require.NoError(t, err)
	s := b.start(t, b.runner(t, "r"))
	b.eventually(t, `SELECT status = 'PROCESSED' FROM belfry.jobs WHERE id = $1`, slow)
	require.NoError(t, tx.Rollback(t.Context()))
	s.end(t)
	require.Equal(t, []string{"enqueued", "claimed", "finished"}, b.kinds(t, slow))
}

// A Writer's error that says "no rows" is a recipient's, not the end of the skips.
func TestPoison_RetryMeetsNoRowsOfAWriter(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	fixed := false
	kind := b.writing(t, func(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
		if slices.Contains(ids, 50) || slices.Contains(ids, 60) && !fixed {
			var x int
			return 0, tx.QueryRow(ctx, `SELECT 1 WHERE false`).Scan(&x)
		}
		return outbox.Inbox{}.Write(ctx, tx, j, ids)
	})
	id := b.enqueue(t, job.Spec{Type: "custom"})
	b.runDue(t, b.runnerWith(t, b.db.Pool, config("r"), []job.Type{kind}))
	fixed = true
	_, err := b.jobs.RetrySkipped(t.Context(), id, job.Act{}, nil)
	require.NoError(t, err)
	b.runDue(t, b.runnerWith(t, b.db.Pool, config("r"), []job.Type{kind}))
	require.Equal(t, "50 2 false", one[string](t, b, `SELECT string_agg(key || ' ' || attempts || ' ' || retry, ', ') FROM belfry.job_skips`))
	require.Len(t, b.state(t, id).Rows, 299)
	b.requireAccounts(t, id)
}

// A dead run of a type that no live runner knows does not block its lane permanently.
func TestTakeover_DeadRunOfAnUnknownTypeLeavesTheLane(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	require.False(t, b.crash(t, "dead", job.PointCommitted, 2))
	other := b.enqueue(t, job.Spec{Type: outbox.TypePush})
	push := slices.DeleteFunc(outbox.Types(b.who), func(k job.Type) bool { return k.Name() != outbox.TypePush })
	r := b.runnerWith(t, b.db.Pool, config("push only"), push)
	require.Empty(t, b.runDue(t, r).Jobs, "those who know the type come first")
	b.age(t, id)
	b.runDue(t, r)
	b.requireDone(t, other, everyone(500))
	require.Equal(t, job.Pending, b.state(t, id).Status)
	require.Equal(t, 1, b.get(t, id).Takeovers)
	b.runDue(t, b.runner(t, "heir"))
	b.requireDone(t, id, everyone(500))
}

// Whoever may update jobs may abort, whatever plan the trigger's expressions get.
func TestAbort_NeedsNoOtherTable(t *testing.T) {
	t.Parallel()
	b := setup(t, 5)
	id := b.enqueue(t, job.Spec{})
	role := fmt.Sprintf("operator_%d", time.Now().UnixNano())
	b.exec(t, `CREATE ROLE `+role)
	t.Cleanup(func() {
		_, err := b.db.Pool.Exec(context.WithoutCancel(t.Context()), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		require.NoError(t, err)
	})
	b.exec(t, `GRANT USAGE ON SCHEMA belfry TO `+role)
	b.exec(t, `GRANT SELECT, UPDATE ON belfry.jobs TO `+role)
	require.NoError(t, pgx.BeginFunc(t.Context(), b.db.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SET LOCAL ROLE `+role+`; SET LOCAL plan_cache_mode = force_generic_plan;
			UPDATE belfry.jobs SET abort_requested = true`)
		return err
	}))
	require.Equal(t, job.Aborted, b.state(t, id).Status)
}

// Recipients that the Writer declined stand between faults like those it wrote.
func TestPoison_DeclinedRecipientsAreNoRow(t *testing.T) {
	t.Parallel()
	b := setup(t, 150)
	kind := b.writing(t, func(_ context.Context, _ pgx.Tx, _ job.Job, ids []int64) (int64, error) {
		if slices.ContainsFunc(ids, func(id int64) bool { return id%50 == 0 }) {
			return 0, errors.New("bad")
		}
		return 0, nil // opted out, all of the others
	})
	id := b.enqueue(t, job.Spec{Type: "custom"})
	b.runDue(t, b.runnerWith(t, b.db.Pool, config("r"), []job.Type{kind}))
	j := b.get(t, id)
	require.Equal(t, job.Processed, j.Status, j.LastError)
	require.Equal(t, []int64{30, 120, 0}, []int64{j.Skipped, j.Declined, j.RowsWritten})
}

// greedy is a Source that returns more than it was asked for.
type greedy struct{ job.Source[int64] }

func (g greedy) Open(ctx context.Context, tx pgx.Tx, j job.Job, after, bound cursor.Position) (job.Walk[int64], error) {
	w, err := g.Source.Open(ctx, tx, j, after, bound)
	return greedyWalk{w}, err
}

type greedyWalk struct{ job.Walk[int64] }

func (g greedyWalk) Page(ctx context.Context, tx pgx.Tx, after cursor.Position, limit int) (cursor.Page[int64], error) {
	return g.Walk.Page(ctx, tx, after, max(limit, 10))
}

// A Source that does not keep to the limit cannot be halved, and is told so.
func TestPoison_SourceBeyondTheLimitFailsTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	b.exec(t, `INSERT INTO belfry.job_types (name) VALUES ('custom')`)
	kind := job.NewType[int64]("custom", "", greedy{job.RecipientIDs(b.who)}, job.WriterFunc[int64](func(context.Context, pgx.Tx, job.Job, []int64) (int64, error) {
		return 0, errors.New("bad")
	}))
	id := b.enqueue(t, job.Spec{Type: "custom"})
	b.runDue(t, b.runnerWith(t, b.db.Pool, config("r"), []job.Type{kind}))
	require.Equal(t, job.Failed, b.state(t, id).Status)
	require.Contains(t, b.state(t, id).LastError, "the Source read 10 keys where at most ")
}

// A reload is judged together with what stays: no retry.max beyond stale_after.
func TestSettings_ReloadThatDoesNotFitWhatStays(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	r := b.runnerWith(t, b.db.Pool, job.DefaultConfig(), outbox.Types(b.who))
	c := job.DefaultConfig()
	c.StaleAfter, c.Retry.Max = 10*time.Minute, 5*time.Minute
	require.NoError(t, c.Validate())
	_, err := r.Reload(c)
	require.ErrorContains(t, err, "runner.stale_after: 30s is not allowed; it must be at least twice retry.max (5m0s)")
}

// An abort that the operator gave up waiting for stays flagged.
func TestAbortCache_CancelledAbortStaysFlagged(t *testing.T) {
	t.Parallel()
	_, cache := cached(t)
	b := setup(t, 5)
	id := b.enqueue(t, job.Spec{})
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.jobs WHERE id = $1 FOR UPDATE`, id)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	aborted := make(chan error, 1)
	go func() {
		_, err := b.jobs.WithAbortCache(cache).Abort(ctx, job.One(id), job.Act{Actor: "ann"})
		aborted <- err
	}()
	b.blocked(t)
	cancel()
	require.ErrorAs(t, <-aborted, new(*job.FlaggedError))
	require.NoError(t, tx.Rollback(t.Context()))
	flag, err := cache.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "ann", flag.Actor)
}

// What belfry.set refuses names its column, whatever JSON it was given.
func TestSettings_SetNamesTheColumnOfABadValue(t *testing.T) {
	t.Parallel()
	b := setup(t, 5)
	id := b.enqueue(t, job.Spec{})
	for column, value := range map[string]any{
		"priority": "abc", "max_chunk_rows": 99999999999, "schedule_at": "soonish", "health_checks": "maybe",
		"title": map[string]int{"a": 1}, "max_rows_per_second": 1.5, "duty_cycle": "NaN", "body": 7,
	} {
		_, err := b.jobs.Set(t.Context(), id, job.Changes{column: value}, job.Act{})
		var invalid *job.InvalidError
		require.ErrorAs(t, err, &invalid, column)
		require.Equal(t, column, invalid.Column)
		require.Contains(t, invalid.Message, "allowed values: ", column)
	}
	require.Equal(t, []string{"enqueued"}, b.kinds(t, id))
}
