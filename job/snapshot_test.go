package job_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// traced is a pool of its own, and what its connections send.
func (b *bundle) traced(t *testing.T, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	pc, err := pgxpool.ParseConfig(b.db.DSN)
	require.NoError(t, err)
	pc.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// count is how often a statement was asked.
func (a *asked) count(statement string) (n int) {
	for _, q := range a.last(math.MaxInt) {
		if q.sql == job.Statement(statement) {
			n++
		}
	}
	return n
}

// before acts right before a statement is sent for the first time.
type before struct {
	statement string
	act       func()
	once      sync.Once
}

func (h *before) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL == job.Statement(h.statement) {
		h.once.Do(h.act)
	}
	return ctx
}

func (*before) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A job that is too late to start is EXPIRED and not claimed, also when nothing else is to
// be cleared away.
func TestLook_FindsWhatIsOverdueAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	late := one[int64](t, b, `INSERT INTO belfry.jobs (type, category, title, schedule_at, expires_at)
		VALUES ('inbox', 'operator_notice', 'x', now() - interval '2 hours', now() - interval '1 second') RETURNING id`)
	out := b.runDue(t, b.runner(t, "r"))
	require.Empty(t, out.Jobs)
	require.Equal(t, []int64{late}, out.Expired)
}

// A runner makes its types known to those who enqueue, before there is a job of theirs.
func TestLook_TypesThatAreNewAreRegistered(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t), 10)
	b.exec(t, `DELETE FROM belfry.job_types WHERE name = 'push'`)
	b.runDue(t, b.runner(t, "r"))
	b.requireDone(t, b.enqueueAndRun(t, outbox.TypePush), everyone(10))
}

func (b *bundle) enqueueAndRun(t *testing.T, kind string) int64 {
	t.Helper()
	id := b.enqueue(t, job.Spec{Type: kind})
	b.runDue(t, b.runner(t, "r"))
	return id
}

// A daemon goes on polling while another runner runs a job: nobody says when that dies.
func TestLook_DaemonPollsWhileAJobRunsElsewhere(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	b.enqueue(t, job.Spec{})
	g := b.gate(job.PointWritten, 1)
	other := b.start(t, b.runner(t, "other", job.WithFailpoint(g.at)))
	g.await(t)
	trace := &asked{}
	c := config("r")
	c.Listen, c.PollInterval = true, 10*time.Millisecond
	r := b.runnerWith(t, b.traced(t, trace), c, outbox.Types(b.who))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	// One that rests asks every five seconds.
	require.Eventually(t, func() bool { return trace.count("JobsSnapshot") >= 30 }, patience, 10*time.Millisecond)
	g.release(nil)
	other.wait(t)
}

// Who held the lane, or the job's row, when a runner looked may have left when it looks who
// that is: it looks again, and has not done nothing in the middle of a change of runners.
func TestLook_AgainWhenWhoStoodInTheWayHasLeft(t *testing.T) {
	t.Parallel()
	t.Run("a run", func(t *testing.T) {
		t.Parallel()
		b := setup(t, 10)
		first, next := b.enqueue(t, job.Spec{}), b.enqueue(t, job.Spec{})
		g := b.gate(job.PointWritten, 1)
		other := b.start(t, b.runner(t, "other", job.WithFailpoint(g.at)))
		g.await(t)
		leaves := &before{statement: "JobsHeld", act: func() {
			other.stop() // it claims nothing more
			g.release(nil)
			<-other.ended
		}}
		out := b.runDue(t, b.runnerWith(t, b.traced(t, leaves), config("r"), outbox.Types(b.who)))
		require.NotEmpty(t, out.Jobs)
		b.requireDone(t, first, everyone(10))
		b.requireDone(t, next, everyone(10))
	})
	t.Run("a lock", func(t *testing.T) {
		t.Parallel()
		b := setup(t, 10)
		id := b.enqueue(t, job.Spec{})
		tx, err := b.db.Pool.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
		_, err = tx.Exec(t.Context(), `SELECT FROM belfry.jobs WHERE id = $1 FOR UPDATE`, id)
		require.NoError(t, err)
		leaves := &before{statement: "JobsHeld", act: func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }}
		out := b.runDue(t, b.runnerWith(t, b.traced(t, leaves), config("r"), outbox.Types(b.who)))
		require.Len(t, out.Jobs, 1)
		b.requireDone(t, id, everyone(10))
	})
}

// What a look rules out is not asked for: a claim while every lane with a due job is taken or
// paused, or what to clear away while a run of a type that is not known here is not stale
// enough for that.
func TestLook_RulesOutWhatIsNotAskedFor(t *testing.T) {
	t.Parallel()
	push := func(b *bundle) []job.Type {
		return slices.DeleteFunc(outbox.Types(b.who), func(k job.Type) bool { return k.Name() != outbox.TypePush })
	}
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, b *bundle)
		types   func(b *bundle) []job.Type
		never   []string
	}{
		{"lane paused", func(t *testing.T, b *bundle) {
			b.enqueue(t, job.Spec{})
			_, err := b.jobs.PauseLane(t.Context(), "default", job.Act{})
			require.NoError(t, err)
		}, func(b *bundle) []job.Type { return outbox.Types(b.who) }, []string{"JobClaim", "JobsHeld", "JobRelease"}},
		{"lane taken", func(t *testing.T, b *bundle) {
			b.enqueue(t, job.Spec{})
			b.enqueue(t, job.Spec{})
			g := b.gate(job.PointWritten, 1)
			b.start(t, b.runner(t, "other", job.WithFailpoint(g.at)))
			g.await(t)
		}, func(b *bundle) []job.Type { return outbox.Types(b.who) }, []string{"JobClaim", "JobRelease"}},
		{"unknown type", func(t *testing.T, b *bundle) {
			id := b.enqueue(t, job.Spec{})
			require.False(t, b.crash(t, "dead", job.PointWritten, 1))
			b.exec(t, `UPDATE belfry.jobs SET heartbeat_at = clock_timestamp() - 1.5 * $2::interval WHERE id = $1`, id, config("r").StaleAfter)
		}, push, []string{"JobClaim", "JobGiveUp", "JobRelease"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 10)
			c.prepare(t, b)
			trace := &asked{}
			require.Empty(t, b.runDue(t, b.runnerWith(t, b.traced(t, trace), config("r"), c.types(b))).Jobs)
			require.Positive(t, trace.count("JobsSnapshot"))
			for _, statement := range c.never {
				require.Zero(t, trace.count(statement), statement)
			}
		})
	}
}
