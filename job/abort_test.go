package job_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// async runs an operator's abort that may have to wait for a row lock.
func (b *bundle) async(t *testing.T, id int64) (returned chan error) {
	t.Helper()
	returned = make(chan error, 1)
	ctx := t.Context()
	go func() {
		_, err := b.db.Pool.Exec(ctx, `UPDATE belfry.jobs SET abort_requested = true WHERE id = $1`, id)
		returned <- err
	}()
	return returned
}

// I6, the abort first: issued while a chunk's rows are written and its cursor has
// not moved, it returns at once, and the chunk rolls back.
func TestAbort_BeforeTheCursorMovesRollsTheChunkBack(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	for _, point := range []string{job.PointBegun, job.PointWritten} {
		inOrder(t, point, func(t *testing.T) {
			id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
			g := b.gate(point, 3)
			s := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
			g.await(t)
			b.abort(t, id)
			after := b.state(t, id)
			require.Equal(t, job.Aborted, after.Status)
			require.Equal(t, "2000", after.Cursor)
			after.requireAtomic(t, everyone(500))

			g.release(nil)
			out := s.wait(t)
			require.Equal(t, job.Aborted, out.Jobs[0].Status)
			require.Equal(t, after, b.state(t, id), "something was committed after the abort")
		})
	}
}

// I6, the commit first: issued when the cursor has moved, the abort waits for that
// one COMMIT, which counts, and nothing follows it.
func TestAbort_AfterTheCursorMovedWaitsForThatCommitOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
	g := b.gate(job.PointMoved, 3)
	next := b.gate(job.PointBegun, 4) // chunks this small could be at their end before the abort wakes up
	s := b.start(t, b.runner(t, "r", job.WithFailpoint(func(ctx context.Context, point string) error {
		if err := g.at(ctx, point); err != nil {
			return err
		}
		return next.at(ctx, point)
	})))
	g.await(t)
	returned := b.async(t, id)
	b.blocked(t)
	require.Equal(t, job.Running, b.state(t, id).Status)
	g.release(nil)
	require.NoError(t, <-returned)
	after := b.state(t, id)
	require.Equal(t, job.Aborted, after.Status)
	require.Equal(t, "3000", after.Cursor)
	after.requireAtomic(t, everyone(500))
	next.release(nil)

	require.Equal(t, job.Aborted, s.wait(t).Jobs[0].Status)
	require.Equal(t, after, b.state(t, id))
}

// I6: an abort in a caller's open transaction counts when that transaction
// commits, and never when it rolls back; until then the chunk waits.
func TestAbort_InAnOpenTransactionCountsWhenThatCommits(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		b := setup(t, 500)
		id := b.enqueue(t, job.Spec{})
		g := b.gate(job.PointWritten, 3)
		s := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
		g.await(t)
		tx, err := b.db.Pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `UPDATE belfry.jobs SET abort_requested = true WHERE id = $1`, id)
		require.NoError(t, err)
		g.release(nil)
		b.blocked(t)
		require.Equal(t, "2000", b.state(t, id).Cursor)
		if commits {
			require.NoError(t, tx.Commit(t.Context()))
			after := b.state(t, id)
			require.Equal(t, job.Aborted, s.wait(t).Jobs[0].Status)
			require.Equal(t, after, b.state(t, id))
			require.Equal(t, everyone(200), after.Rows)
		} else {
			require.NoError(t, tx.Rollback(t.Context()))
			s.wait(t)
			b.requireDone(t, id, everyone(500))
			require.EqualValues(t, 5, b.state(t, id).Chunks)
		}
	}
}

// I6, I3: aborts that race the walk at random: what stands when the UPDATE has
// returned stands permanently, and after a resume every channel has its one row.
func TestChaos_AbortRacesWithTheWalkNothingFollowsIt(t *testing.T) {
	t.Parallel()
	const n, rounds = 300, 200
	b := setup(t, n)
	points := []string{job.PointBegun, job.PointWritten, job.PointMoved, job.PointCommitted, job.PointCommitLost}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	caught := 0
	for range rounds {
		id := b.enqueue(t, job.Spec{})
		point, nth := points[random.IntN(len(points))], 1+random.IntN(6)
		now := make(chan struct{})
		// The run does not wait for the abort: the two race from here.
		failpoint := func(_ context.Context, at string) error {
			if at == point {
				if nth--; nth == 0 {
					close(now)
				}
			}
			return nil
		}
		s := b.start(t, b.runnerWith(t, b.db.Pool, small("r", 50), outbox.Types(b.who), job.WithFailpoint(failpoint)))
		select {
		case <-now:
		case <-s.ended:
		}
		b.abort(t, id)
		after := b.state(t, id)
		s.wait(t)
		require.Equal(t, after, b.state(t, id), "at %s", point)
		after.requireAtomic(t, everyone(n))
		if after.Status == job.Aborted {
			caught++
			_, err := b.jobs.Resume(t.Context(), job.One(id), job.Act{})
			require.NoError(t, err)
			b.runDue(t, b.runner(t, "r"))
		}
		b.requireDone(t, id, everyone(n))
	}
	t.Logf("%d of %d aborts came before the job's end", caught, rounds)
	require.NotZero(t, caught)
}

// I6: an aborted job stays as it is, whoever looks for work, until it is resumed,
// and then goes on from its cursor.
func TestAbort_StaysUntilResumedFromTheCursor(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	pending := b.enqueue(t, job.Spec{})
	_, err := b.jobs.Abort(t.Context(), job.One(pending), job.Act{Actor: "ann", Reason: "wrong title"})
	require.NoError(t, err)
	require.Empty(t, b.runDue(t, b.runner(t, "r")).Jobs)
	require.Empty(t, b.state(t, pending).Rows)

	running := b.enqueue(t, job.Spec{})
	begun, chunks := 0, 0
	b.runDue(t, b.runner(t, "r", job.WithFailpoint(func(_ context.Context, point string) error {
		switch point {
		case job.PointBegun:
			begun++
		case job.PointCommitted:
			if chunks++; chunks == 2 {
				b.abort(t, running)
			}
		}
		return nil
	})))
	require.Equal(t, 2, begun, "the next chunk is not even begun")
	stopped := b.state(t, running)
	require.Equal(t, job.Aborted, stopped.Status)
	require.Equal(t, "2000", stopped.Cursor)
	require.Empty(t, b.runDue(t, b.runner(t, "r")).Jobs)
	require.Equal(t, stopped, b.state(t, running))

	for _, id := range []int64{pending, running} {
		_, err := b.jobs.Resume(t.Context(), job.One(id), job.Act{Actor: "ben"})
		require.NoError(t, err)
	}
	out := b.runDue(t, b.runner(t, "r"))
	require.Len(t, out.Jobs, 2)
	b.requireDone(t, pending, everyone(500))
	b.requireDone(t, running, everyone(500))
	require.EqualValues(t, 5, b.state(t, running).Chunks, "2 before the abort, 3 after it")
}

// I6 for a group: members that run, wait or are done are aborted and resumed
// together, by the Go API as by plain SQL.
func TestAbort_OfAGroupStopsEveryJobThatIsNotDone(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	ids, err := b.jobs.EnqueueGroup(t.Context(), []string{"inbox", "push"}, job.Spec{
		Category: "popular_content", Title: "both", Audience: channels.Everyone(), RequestedBy: "ann",
	})
	require.NoError(t, err)
	first, err := b.jobs.Get(t.Context(), ids[0])
	require.NoError(t, err)
	require.NotNil(t, first.GroupID)

	g := b.gate(job.PointWritten, 2)
	s := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
	g.await(t)
	members, err := b.jobs.Abort(t.Context(), job.Selection{Group: first.GroupID}, job.Act{Actor: "ben"})
	require.NoError(t, err)
	require.Len(t, members, 2)
	before := []state{b.state(t, ids[0]), b.state(t, ids[1])}
	g.release(nil)
	require.Len(t, s.wait(t).Jobs, 1, "the second was never started")
	for i, id := range ids {
		require.Equal(t, before[i], b.state(t, id))
		require.Equal(t, job.Aborted, before[i].Status)
	}
	_, err = b.jobs.Abort(t.Context(), job.Selection{Group: first.GroupID}, job.Act{})
	var wrong *job.WrongStatusError
	require.ErrorAs(t, err, &wrong)

	_, err = b.jobs.Resume(t.Context(), job.Selection{Group: first.GroupID}, job.Act{Actor: "ben"})
	require.NoError(t, err)
	b.runDue(t, b.runner(t, "r"))
	for _, id := range ids {
		b.requireDone(t, id, everyone(300))
	}
}
