package job_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

func (b *bundle) attempts(t *testing.T, id int64) int {
	t.Helper()
	return one[int](t, b, `SELECT attempts FROM belfry.jobs WHERE id = $1`, id)
}

// A soft stop finishes the chunk and hands the job back with its cursor; being
// interrupted is no attempt.
func TestStop_SoftFinishesTheChunkAndHandsTheJobBack(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
	g := b.gate(job.PointWritten, 3)
	s := b.start(t, b.runner(t, "r1", job.WithFailpoint(g.at)))
	g.await(t)
	require.Equal(t, 1, b.attempts(t, id))
	s.stop()
	g.release(nil)
	out := s.wait(t)
	require.True(t, out.Interrupted)
	require.Equal(t, job.Pending, out.Jobs[0].Status)
	stopped := b.state(t, id)
	require.Equal(t, "3000", stopped.Cursor, "the chunk in progress counts")
	stopped.requireAtomic(t, everyone(500))
	require.Zero(t, b.attempts(t, id))
	require.Equal(t, []string{"enqueued", "claimed", "interrupted"}, b.kinds(t, id))

	b.runDue(t, b.runner(t, "r2"))
	b.requireDone(t, id, everyone(500))
	require.EqualValues(t, 5, b.state(t, id).Chunks)
}

// A hard stop rolls the chunk in progress back and hands the job back at once; so
// does the end of the grace period after a soft stop.
func TestStop_HardRollsTheChunkBackAndHandsTheJobBack(t *testing.T) {
	t.Parallel()
	for name, halt := range map[string]func(s *started){
		"StopNow":         func(s *started) { s.runner.StopNow(errors.New("second signal")) },
		"grace period":    func(s *started) { s.stop() },
		"soft, then hard": func(s *started) { s.stop(); s.runner.StopNow(errors.New("second signal")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 500)
			id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
			c := config("r1")
			if name == "grace period" {
				c.GracePeriod = 20 * time.Millisecond
			}
			reached, nth := make(chan struct{}), 0
			s := b.start(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who), job.WithFailpoint(func(ctx context.Context, point string) error {
				if point != job.PointWritten {
					return nil
				}
				if nth++; nth != 3 {
					return nil
				}
				close(reached)
				<-ctx.Done() // a statement that takes long
				return ctx.Err()
			})))
			<-reached
			halt(s)
			out := s.wait(t)
			require.True(t, out.Interrupted)
			stopped := b.state(t, id)
			require.Equal(t, job.Pending, stopped.Status)
			require.Equal(t, "2000", stopped.Cursor)
			stopped.requireAtomic(t, everyone(500))
			require.Zero(t, b.attempts(t, id))
			require.Equal(t, []string{"enqueued", "claimed", "interrupted"}, b.kinds(t, id))

			if name != "grace period" {
				again, err := s.runner.RunDue(t.Context())
				require.NoError(t, err)
				require.Empty(t, again.Jobs, "a runner that was stopped stays stopped")
				require.True(t, again.Interrupted)
			}
			b.runDue(t, b.runner(t, "r2"))
			b.requireDone(t, id, everyone(500))
		})
	}
}

// A stop while a run waits between retries does not wait with it.
func TestStop_EndsThePauseBetweenRetries(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.enqueue(t, job.Spec{})
	c := config("r1")
	c.Retry.Initial, c.Retry.Max = patience, patience
	failed := make(chan struct{})
	s := b.start(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who), job.WithFailpoint(func(_ context.Context, point string) error {
		if point == job.PointWritten {
			close(failed)
			return context.DeadlineExceeded
		}
		return nil
	})))
	<-failed
	b.eventually(t, `SELECT last_error IS NOT NULL FROM belfry.jobs WHERE id = $1`, id)
	began := time.Now()
	s.stop()
	out := s.wait(t)
	require.Less(t, time.Since(began), patience/2)
	require.True(t, out.Interrupted)
	require.Equal(t, job.Pending, b.state(t, id).Status)
	b.runDue(t, b.runner(t, "r2"))
	b.requireDone(t, id, everyone(500))
}

// A stop before the first claim claims nothing.
func TestStop_BeforeTheClaimClaimsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, 100)
	id := b.enqueue(t, job.Spec{})
	r := b.runner(t, "r")
	r.StopNow(errors.New("stopped early"))
	out := b.runDue(t, r)
	require.True(t, out.Interrupted)
	require.Equal(t, []string{"enqueued"}, b.kinds(t, id))
}
