package job_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// powerless returns a pool whose sessions may do with belfry's tables what they
// like but not end other roles' connections, so that only the fence is left.
func (b *bundle) powerless(t *testing.T) *pgxpool.Pool {
	t.Helper()
	role := pgx.Identifier{b.db.Name + "_r"}.Sanitize()
	if len(b.db.Name) > 60 {
		role = pgx.Identifier{b.db.Name[:60] + "_r"}.Sanitize()
	}
	for _, sql := range []string{
		`CREATE ROLE ` + role,
		`GRANT USAGE ON SCHEMA belfry TO ` + role,
		`GRANT ALL ON ALL TABLES IN SCHEMA belfry TO ` + role,
		`GRANT ALL ON ALL SEQUENCES IN SCHEMA belfry TO ` + role,
	} {
		b.exec(t, sql)
	}
	c, err := pgxpool.ParseConfig(b.db.DSN)
	require.NoError(t, err)
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET ROLE `+role)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	b.last = append(b.last, func() {
		pool.Close()
		for _, sql := range []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			_, err := b.db.Pool.Exec(context.WithoutCancel(t.Context()), sql)
			require.NoError(t, err)
		}
	})
	return pool
}

// I5: a run that is paused in the middle of a chunk, whose job is taken over and
// done meanwhile, commits nothing when it wakes, wherever it was paused, and goes
// on without harm.
func TestRunner_PausedRunCommitsNothingAfterATakeOver(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	for _, point := range []string{job.PointBegun, job.PointWritten, job.PointCommitted} {
		inOrder(t, point, func(t *testing.T) {
			id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
			g := b.gate(point, 2)
			zombie := b.start(t, b.runner(t, "zombie", job.WithFailpoint(g.at)))
			g.await(t)
			b.age(t, id)
			out := b.runDue(t, b.runner(t, "heir"))
			require.Len(t, out.Jobs, 1)
			b.requireDone(t, id, everyone(500))
			before := b.state(t, id)

			g.release(nil)
			ended := zombie.wait(t)
			require.Len(t, ended.Jobs, 1)
			require.Equal(t, job.Processed, ended.Jobs[0].Status, "as the heir left it")
			require.Equal(t, before, b.state(t, id))
			require.Equal(t, []string{"enqueued", "claimed", "resumed", "finished"}, b.kinds(t, id))
		})
	}
}

// I5: the fence alone keeps a paused run from committing: here nobody may end its
// connection, its transaction is whole and nothing else is different; only the
// claim of the heir, who has not written a row yet.
func TestRunner_FenceAloneStopsAPausedRun(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	asleep, waiting := b.gate(job.PointWritten, 2), b.gate(job.PointBegun, 1)
	zombie := b.start(t, b.runner(t, "zombie", job.WithFailpoint(asleep.at)))
	asleep.await(t)
	b.age(t, id)
	heir := b.start(t, b.runnerWith(t, b.powerless(t), config("heir"), outbox.Types(b.who), job.WithFailpoint(waiting.at)))
	waiting.await(t)
	before := b.state(t, id)
	require.EqualValues(t, 2, before.Fence)
	before.requireAtomic(t, everyone(500))

	asleep.release(nil)
	out := zombie.wait(t)
	require.Equal(t, "heir", out.Jobs[0].Runner)
	require.Equal(t, before, b.state(t, id), "the zombie committed")

	waiting.release(nil)
	heir.wait(t)
	b.requireDone(t, id, everyone(500))
	require.EqualValues(t, 5, b.state(t, id).Chunks)
}

// I5, liveness: the keys that a paused run has written and not committed block the
// heir only until the heir has ended that run's connection.
func TestRunner_TakeOverEndsTheConnectionThatHoldsItsKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	asleep := b.gate(job.PointWritten, 2)
	c := config("zombie")
	c.StatementTimeout, c.StaleAfter = 3*patience, 6*patience // the server would end it by then
	zombie := b.start(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who), job.WithFailpoint(asleep.at)))
	asleep.await(t)
	pid := one[int32](t, b, `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'belfry job ' || $1::bigint || ' fence 1'`, id)
	b.age(t, id)
	b.runDue(t, b.runner(t, "heir"))
	b.requireDone(t, id, everyone(500))
	b.eventually(t, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid)
	asleep.release(nil)
	zombie.wait(t)
}

// Any session may take the name of a run. One that the runner's role may not terminate is left alone, and those that
// it may are terminated all the same.
func TestRunner_EndsOnlyConnectionsThatItMayEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	may := b.db.Role(t)
	other := b.db.Role(t)
	signal := b.db.Role(t, `GRANT pg_signal_backend TO :role`)
	member := b.db.Role(t, fmt.Sprintf(`GRANT %q TO :role`, may.User))
	elevated := b.db.Role(t, fmt.Sprintf(`GRANT %q TO :role`, one[string](t, b, `SELECT current_user::text`)))
	for _, c := range []struct {
		name   string
		by     *dbtest.DB
		of     *dbtest.DB
		killed bool
	}{
		{"own", may, may, true},
		{"another role's", may, other, false},
		{"a superuser's", may, b.db, false},
		{"of a role it is a member of", member, may, true},
		{"a member's", may, member, false},
		{"with pg_signal_backend", signal, other, true},
		{"a superuser's with pg_signal_backend", signal, b.db, false},
		{"a superuser's as its member", elevated, b.db, false},
		{"by a superuser", b.db, other, true},
		{"a superuser's by a superuser", b.db, b.db, true},
	} {
		conn, err := pgx.Connect(t.Context(), c.of.DSN)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		_, err = conn.Exec(t.Context(), `SET application_name = 'belfry job 1 fence 0'`)
		require.NoError(t, err)
		for name, args := range map[string]pgx.StrictNamedArgs{"another job": {"id": 2, "fence": 1}, "an older run": {"id": 1, "fence": -1}} {
			tag, err := c.by.Pool.Exec(t.Context(), job.Statement("RunTerminateOldBackends"), args)
			require.NoError(t, err, c.name)
			require.Zero(t, tag.RowsAffected(), "%s: %s", c.name, name)
		}
		tag, err := c.by.Pool.Exec(t.Context(), job.Statement("RunTerminateOldBackends"), pgx.StrictNamedArgs{"id": 1, "fence": 1})
		require.NoError(t, err, c.name)
		require.Equal(t, c.killed, tag.RowsAffected() == 1, c.name)
		pid := conn.PgConn().PID()
		if c.killed {
			b.eventually(t, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid)
		} else {
			require.NoError(t, conn.Ping(t.Context()), c.name)
		}
		require.NoError(t, conn.Close(t.Context()))
		b.eventually(t, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid)
	}
}

// A run that was taken over and stumbles must not end its heir's connection.
func TestRunner_OlderRunDoesNotEndTheConnectionOfTheNewer(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	asleep, waiting := b.gate(job.PointCommitted, 1), b.gate(job.PointWritten, 1)
	zombie := b.start(t, b.runner(t, "zombie", job.WithFailpoint(asleep.at)))
	asleep.await(t)
	b.age(t, id)
	var chunks atomic.Int64
	heir := b.start(t, b.runner(t, "heir", job.WithFailpoint(func(ctx context.Context, point string) error {
		if point == job.PointBegun {
			chunks.Add(1)
		}
		return waiting.at(ctx, point)
	})))
	waiting.await(t)
	asleep.release(context.DeadlineExceeded)
	zombie.wait(t)
	waiting.release(nil)
	heir.wait(t)
	b.requireDone(t, id, everyone(500))
	require.EqualValues(t, 5, chunks.Load(), "4 chunks and the look that finds no more key, none of them twice")
}

// I5: a run that stops with its cursor moved and nothing committed holds the job's
// row, so nobody can take the job over before the server has ended that
// transaction, which it does by itself after the statement timeout.
func TestRunner_PausedBeforeItsCommitIsEndedByTheServer(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	g := b.gate(job.PointMoved, 2)
	c := config("zombie")
	c.StatementTimeout = 1500 * time.Millisecond
	zombie := b.startTo(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who), job.WithFailpoint(func(ctx context.Context, point string) error {
		if point == job.PointBegun {
			_, err := b.db.Pool.Exec(ctx, `UPDATE belfry.jobs SET heartbeat_at = heartbeat_at - interval '1 day' WHERE id = $1`, id)
			return err
		}
		return g.at(ctx, point)
	})), g.reached)
	out := b.runDue(t, b.runner(t, "early"))
	const lasts = `EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'belfry job ' || $1::bigint || ' fence 1' AND datname = current_database())`
	if one[bool](t, b, `SELECT `+lasts, id) { // else this machine took longer than the server waits
		require.Empty(t, out.Jobs, "the row is locked")
		require.Len(t, out.Held, 1)
	}
	b.eventually(t, `SELECT NOT `+lasts, id)
	require.Len(t, append(out.Jobs, b.runDue(t, b.runner(t, "heir")).Jobs...), 1)
	b.requireDone(t, id, everyone(500))
	before := b.state(t, id)
	g.release(nil)
	zombie.end(t)
	require.Equal(t, before, b.state(t, id))
}

// I5: the take-over itself: a run that still beats is left alone, one that does
// not is resumed from its cursor by whoever looks, and by one only.
func TestRunner_TakesOverOnlyWhatIsStale(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	require.False(t, b.crash(t, "dead", job.PointWritten, 3))
	require.Equal(t, "2000", b.state(t, id).Cursor)

	out := b.runDue(t, b.runner(t, "early"))
	require.Empty(t, out.Jobs)
	require.Len(t, out.Held, 1)
	require.Equal(t, "dead", out.Held[0].Runner)

	b.age(t, id)
	heirs := make([]*started, 4)
	for i := range heirs {
		heirs[i] = b.start(t, b.runner(t, "heir "+string(rune('a'+i))))
	}
	ran := 0
	for _, s := range heirs {
		ran += len(s.wait(t).Jobs)
	}
	require.Equal(t, 1, ran)
	b.requireDone(t, id, everyone(500))
	require.Equal(t, []string{"enqueued", "claimed", "resumed", "finished"}, b.kinds(t, id))
	require.EqualValues(t, 5, b.state(t, id).Chunks, "from the cursor, not from the start")
}

// A runner that comes back under its own name resumes its job at once.
func TestRunner_ResumesWhatBearsItsOwnNameAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	id := b.enqueue(t, job.Spec{})
	b.crash(t, "node-1", job.PointMoved, 2)
	b.runDue(t, b.runner(t, "node-1"))
	b.requireDone(t, id, everyone(300))
}

// boundGate is a Source whose Bound waits at a gate.
type boundGate struct {
	job.Source[int64]
	g *gate
}

func (s boundGate) Bound(ctx context.Context, tx pgx.Tx, j job.Job) (cursor.Position, error) {
	at, err := s.Source.Bound(ctx, tx, j)
	return at, errors.Join(err, s.g.at(ctx, s.g.point))
}

// I5, I1: a run that was taken over while it looked for the bound freezes none.
func TestRunner_OlderRunFreezesNoBound(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	b.register(t)
	id := b.enqueue(t, job.Spec{Type: "noting"})
	gated := func(g *gate) []job.Type {
		return []job.Type{job.NewType("noting", "of a test", boundGate{job.RecipientIDs(b.who), g}, job.Writer[int64](outbox.Inbox{}))}
	}
	asleep, waiting := b.gate("bound", 1), b.gate("bound", 1)
	zombie := b.start(t, b.runnerWith(t, b.db.Pool, config("zombie"), gated(asleep)))
	asleep.await(t)
	b.age(t, id)
	heir := b.start(t, b.runnerWith(t, b.powerless(t), config("heir"), gated(waiting)))
	waiting.await(t)
	asleep.release(nil)
	zombie.wait(t)
	require.True(t, one[bool](t, b, `SELECT bound IS NULL AND fence = 2 AND status = 'RUNNING' FROM belfry.jobs WHERE id = $1`, id))
	waiting.release(nil)
	heir.wait(t)
	b.requireDone(t, id, everyone(500))
}

// I5: nor does a run that was taken over end the job, in whatever way: the
// statement that would is fenced like a chunk.
func TestRunner_OlderRunDoesNotEndTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	for name, c := range map[string]struct {
		point string
		nth   int
		wake  func(zombie *started, g *gate)
	}{
		"finished": {job.PointCommitLost, 1 + 5 + 1, func(_ *started, g *gate) { g.release(nil) }},
		"failed":   {job.PointBegun, 2, func(_ *started, g *gate) { g.release(errors.New("broken")) }},
		"interrupted": {job.PointWritten, 2, func(zombie *started, g *gate) {
			zombie.runner.StopNow(errors.New("second signal"))
			g.release(context.Canceled)
		}},
		"given up": {job.PointBegun, 2, func(_ *started, g *gate) { g.release(context.DeadlineExceeded) }},
	} {
		inOrder(t, name, func(t *testing.T) {
			id := b.enqueue(t, job.Spec{})
			asleep, waiting := b.gate(c.point, c.nth), b.gate(job.PointBegun, 1)
			config := config("zombie")
			config.Retry.Limit = 0
			zombie := b.start(t, b.runnerWith(t, b.db.Pool, config, outbox.Types(b.who), job.WithFailpoint(asleep.at)))
			asleep.await(t)
			b.age(t, id)
			heir := b.start(t, b.runner(t, "heir", job.WithFailpoint(waiting.at)))
			waiting.await(t)
			before := b.state(t, id)
			c.wake(zombie, asleep)
			zombie.wait(t)
			require.Equal(t, before, b.state(t, id))
			waiting.release(nil)
			heir.wait(t)
			b.requireDone(t, id, everyone(500))
			require.Equal(t, []string{"enqueued", "claimed", "resumed", "finished"}, b.kinds(t, id))
		})
	}
}

// Staleness is judged from progress: each chunk and each retry renews the
// heartbeat, however long the job has run.
func TestRunner_ProgressRenewsTheHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	id := b.enqueue(t, job.Spec{})
	fresh := func() bool {
		return one[bool](t, b, `SELECT heartbeat_at > clock_timestamp() - interval '1 hour' FROM belfry.jobs WHERE id = $1`, id)
	}
	var afterChunk, afterRetry []bool
	begun := 0
	b.runDue(t, b.runner(t, "r", job.WithFailpoint(func(_ context.Context, point string) error {
		switch point {
		case job.PointCommitted:
			afterChunk = append(afterChunk, fresh())
		case job.PointBegun:
			if begun++; begun == 3 {
				afterRetry = append(afterRetry, fresh())
			}
			b.age(t, id)
			if begun == 2 {
				return context.DeadlineExceeded
			}
		}
		return nil
	})))
	require.Equal(t, []bool{true, true, true}, afterChunk)
	require.Equal(t, []bool{true}, afterRetry)
	b.requireDone(t, id, everyone(300))
}
