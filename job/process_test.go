package job_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// brief is a configuration under which a run is stale in real time soon: nothing
// but the clock makes it so.
func brief(name string) job.Config {
	c := config(name)
	c.StatementTimeout, c.StaleAfter = 2*time.Second, 4*time.Second
	c.Retry = job.RetryConfig{Limit: 1000, Initial: 10 * time.Millisecond, Max: 200 * time.Millisecond}
	return c
}

// takeOver looks for work, as a daemon would, until it has run a job.
func (b *bundle) takeOver(t *testing.T, c job.Config) job.Outcome {
	t.Helper()
	types := append(outbox.Types(b.who), copying(b.who, (&gate{}).at))
	r := b.runnerWith(t, b.db.Pool, c, types)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < patience; <-tick.C {
		if out := b.insist(t, r); len(out.Jobs) > 0 {
			return out
		}
	}
	require.FailNow(t, "the job was never taken over")
	return job.Outcome{}
}

// I1, I2, I3, I5: a runner is killed with SIGKILL in the middle of a chunk, its
// rows written and not committed, or committed and not acknowledged, or anywhere
// else. Another process finds its job stale and finishes it exactly.
func TestProcess_KilledRunnerIsSucceededExactly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		point  string
		nth    int
		cursor string // that the killed run leaves
	}{
		{job.PointBegun, 3, "2000"},
		{job.PointWritten, 3, "2000"},
		{job.PointMoved, 3, "2000"},
		{job.PointCommitLost, 1, ""}, // the bound is frozen, nothing else
		{job.PointCommitLost, 4, "3000"},
		{job.PointCommitted, 3, "3000"},
	} {
		for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
			t.Run(kind+" at "+c.point, func(t *testing.T) {
				t.Parallel()
				b := setup(t, 550)
				id := b.enqueue(t, job.Spec{Type: kind})
				p := b.child(t, config("victim"), c.point, c.nth)
				p.await(t)
				p.kill(t)
				left := b.state(t, id)
				require.Equal(t, job.Running, left.Status)
				require.Equal(t, c.cursor, left.Cursor)
				left.requireAtomic(t, everyone(550))

				out := b.takeOver(t, config("heir")) // its server connection is gone
				require.Len(t, out.Jobs, 1)
				b.requireDone(t, id, everyone(550))
				require.EqualValues(t, 6, b.state(t, id).Chunks)
				require.Equal(t, []string{"enqueued", "claimed", "resumed", "finished"}, b.kinds(t, id))
			})
		}
	}
}

// I5: a runner is stopped with SIGSTOP past the stale limit, holding the keys of
// uncommitted rows, or in the middle of a COPY that no timeout of the server ends,
// or with nothing open. Another process takes over and finishes. Woken by SIGCONT,
// the zombie commits nothing and ends in good order.
func TestProcess_StoppedRunnerCommitsNothingWhenItWakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		point, kind string
		rows, nth   int
	}{
		{job.PointBegun, outbox.TypePush, 100, 3},
		{job.PointWritten, outbox.TypePush, 100, 3},
		{job.PointWritten, outbox.TypeInbox, 100, 3},
		{job.PointMoved, outbox.TypePush, 100, 3},
		{job.PointCommitted, outbox.TypePush, 100, 3},
		{pointCopying, "copying", 10_000, 2},
	} {
		t.Run(c.kind+" at "+c.point, func(t *testing.T) {
			t.Parallel()
			n := c.rows * 5
			b := setup(t, n)
			b.exec(t, `INSERT INTO belfry.job_types (name) VALUES ('copying')`)
			id := b.enqueue(t, job.Spec{Type: c.kind})
			config := brief("zombie")
			config.Chunk.InitialRows, config.Chunk.MinRows, config.Chunk.MaxRows = c.rows, c.rows, c.rows
			p := b.child(t, config, c.point, c.nth)
			p.await(t)
			p.signal(t, syscall.SIGSTOP)
			if c.point == pointCopying {
				b.eventually(t, `SELECT EXISTS (SELECT FROM pg_stat_progress_copy WHERE relid = 'belfry.notifications'::regclass AND tuples_processed > 0)`)
			}
			heir := config
			heir.Name = "heir"
			out := b.takeOver(t, heir)
			require.Len(t, out.Jobs, 1)
			b.requireDone(t, id, everyone(n))
			before := b.state(t, id)

			p.signal(t, syscall.SIGCONT)
			p.proceed(t)
			woken := p.end(t)
			require.Len(t, woken.Jobs, 1)
			require.Equal(t, job.Processed, woken.Jobs[0].Status)
			require.EqualValues(t, 2, woken.Jobs[0].Fence, "the heir's")
			require.Equal(t, before, b.state(t, id))
			require.Equal(t, []string{"enqueued", "claimed", "resumed", "finished"}, b.kinds(t, id))
		})
	}
}

// I4: processes race for one job: exactly one gets it, many times.
func TestProcess_TwoRunnersRaceForOneJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000)
	for range 5 {
		id := b.enqueue(t, job.Spec{})
		one, other := b.child(t, config("one"), "", 0), b.child(t, config("other"), "", 0)
		require.Equal(t, 1, len(one.end(t).Jobs)+len(other.end(t).Jobs))
		require.Equal(t, []string{"enqueued", "claimed", "finished"}, b.kinds(t, id))
		b.requireDone(t, id, everyone(1000))
	}
}

// I6 across processes: the UPDATE stops a runner elsewhere, also one that is
// stopped in the middle of a chunk at that moment.
func TestProcess_AbortOfAStoppedRunnersJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
	p := b.child(t, config("r"), job.PointWritten, 3)
	p.await(t)
	p.signal(t, syscall.SIGSTOP)
	b.abort(t, id)
	after := b.state(t, id)
	require.Equal(t, job.Aborted, after.Status)
	after.requireAtomic(t, everyone(500))
	p.signal(t, syscall.SIGCONT)
	p.proceed(t)
	out := p.end(t)
	require.Equal(t, job.Aborted, out.Jobs[0].Status)
	require.Equal(t, after, b.state(t, id))
}
