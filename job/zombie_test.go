package job_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// pauser stops a runner between two statements: once, when a statement that
// contains match has been answered or, when commit is set, the COMMIT after it. It
// stands for a SIGSTOP at that moment.
type pauser struct {
	match   string
	commit  bool
	armed   bool
	reached chan struct{}
	open    chan struct{}
	once    sync.Once
}

type pausedSQL struct{}

func (p *pauser) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, pausedSQL{}, d.SQL)
}

func (p *pauser) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	sql, _ := ctx.Value(pausedSQL{}).(string)
	if strings.Contains(sql, p.match) {
		p.armed = true
		if p.commit {
			return
		}
	}
	if p.armed && (!p.commit || sql == "commit") {
		p.once.Do(func() { close(p.reached); <-p.open })
	}
}

// await waits until the pool's user is paused.
func (p *pauser) await(t tester) {
	t.Helper()
	select {
	case <-p.reached:
	case <-time.After(patience):
		require.FailNow(t, "nobody sent a statement that holds "+p.match)
	}
}

// pausing returns a pool of its own whose user is paused after match.
func (b *bundle) pausing(t *testing.T, match string, commit bool) (*pgxpool.Pool, *pauser) {
	t.Helper()
	p := &pauser{match: match, commit: commit, reached: make(chan struct{}), open: make(chan struct{})}
	c, err := pgxpool.ParseConfig(b.db.DSN)
	require.NoError(t, err)
	c.ConnConfig.Tracer = p
	c.MaxConns = 1 // one statement after the other
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	b.last = append(b.last, pool.Close)
	return pool, p
}

// I5: a run keeps the fence of its claim. A runner that is stopped right after its
// claim, and wakes when another has taken over, must not read the successor's
// fence from the row and go on under it.
func TestRunner_FaultRightAfterTheClaimDoesNotAdoptTheSuccessorsFence(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000)
	for _, c := range []struct {
		name, match string
		commit      bool
		crashed     bool // the zombie itself resumes a stale run
	}{
		{"claim", "started_at = coalesce(started_at", true, false},
		{"resume", "j.runner = ", true, true},
		{"open", "set_config('application_name'", false, true},
	} {
		inOrder(t, c.name, func(t *testing.T) {
			id := b.enqueue(t, job.Spec{})
			if c.crashed {
				b.crash(t, "first", job.PointCommitted, 1)
				b.age(t, id)
			}
			var mu sync.Mutex
			chunks := 0
			pool, p := b.pausing(t, c.match, c.commit)
			zombie := b.start(t, b.runnerWith(t, pool, config("zombie"), outbox.Types(b.who), job.WithObserver(func(p job.Progress) {
				mu.Lock()
				defer mu.Unlock()
				if p.Event == "chunk" {
					chunks++
				}
			})))
			p.await(t)
			b.age(t, id)
			g := b.gate(job.PointWritten, 2)
			heir := b.start(t, b.runner(t, "heir", job.WithFailpoint(g.at)))
			g.await(t) // in the middle of its second chunk, with uncommitted rows
			close(p.open)
			zombie.wait(t)
			require.Zero(t, chunks, "the zombie committed under its successor's fence")
			require.Equal(t, job.Running, b.state(t, id).Status)
			g.release(nil)
			out := heir.wait(t)
			require.Equal(t, job.Processed, out.Jobs[0].Status)
			b.requireDone(t, id, everyone(1000))
			require.Contains(t, b.kinds(t, id), job.EventFinished)
			require.Equal(t, "heir", one[string](t, b, `SELECT actor FROM belfry.job_events WHERE job_id = $1 AND kind = 'finished'`, id))
		})
	}
}

// A runner that is stopped inside its claim keeps the row locked only until the
// server ends its transaction; then another claims the job.
func TestRunner_FaultInsideTheClaimDoesNotLockTheJobPermanently(t *testing.T) {
	t.Parallel()
	b := setup(t, 200)
	id := b.enqueue(t, job.Spec{})
	pool, p := b.pausing(t, "started_at = coalesce(started_at", false)
	c := config("zombie")
	c.StatementTimeout = 1500 * time.Millisecond
	c.Chunk.Target = 100 * time.Millisecond
	zombie := b.startTo(t, b.runnerWith(t, pool, c, outbox.Types(b.who)), p.reached)
	heir := b.runner(t, "heir")
	early := b.runDue(t, heir)
	const lasts = `EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction')`
	if one[bool](t, b, `SELECT `+lasts) { // else this machine took longer than the server waits
		require.Empty(t, early.Jobs, "the row is locked")
	}
	b.eventually(t, `SELECT NOT `+lasts)
	b.runDue(t, heir)
	b.requireDone(t, id, everyone(200))
	close(p.open)
	<-zombie.ended
	b.requireDone(t, id, everyone(200))
}

// I4: a runner that is stopped inside its claim makes the others wait for the lane;
// for them it is held, not an error.
func TestRunner_FaultInsideAnotherClaimHoldsTheLane(t *testing.T) {
	t.Parallel()
	b := setup(t, 200)
	first, second := b.enqueue(t, job.Spec{}), b.enqueue(t, job.Spec{})
	pool, p := b.pausing(t, "started_at = coalesce(started_at", false)
	zombie := b.start(t, b.runnerWith(t, pool, config("zombie"), outbox.Types(b.who)))
	p.await(t)
	c := config("heir")
	c.StatementTimeout = 1500 * time.Millisecond
	c.Chunk.Target = 100 * time.Millisecond
	out := b.insist(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who))) // wants the second job
	close(p.open)
	zombie.wait(t)
	require.Empty(t, out.Jobs)
	b.requireDone(t, first, everyone(200))
	b.requireDone(t, second, everyone(200))
}
