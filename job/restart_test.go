package job_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// I1, I2, I3: PostgreSQL is stopped like by a crash in the middle of a job, and
// comes back later. The runner's process goes on by itself, and the result is
// exact: for messages, whose chunks commit synchronously, and for notifications,
// whose last chunks the crash may lose together with their cursor.
func TestProcess_PostgreSQLCrashesUnderARun(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t, true)
	b := setupOn(t, dbtest.NewOn(t, server), 3000)
	c := config("r")
	c.Retry.Limit = 1000
	for _, crash := range []struct {
		kind, point string
		over        bool // the server is back before the run goes on
	}{
		{outbox.TypePush, job.PointWritten, false},
		{outbox.TypePush, job.PointMoved, false},
		{outbox.TypeInbox, job.PointMoved, false},
		{outbox.TypeInbox, job.PointCommitted, true},
	} {
		id := b.enqueue(t, job.Spec{Type: crash.kind})
		g := b.gate(crash.point, 15)
		s := b.start(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who), job.WithFailpoint(g.at)))
		g.await(t)
		before := b.state(t, id)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		require.NoError(t, server.Stop(ctx, pgserver.Immediate))
		if !crash.over {
			g.release(nil)
		}
		require.NoError(t, server.Start(ctx))
		cancel()
		b.db.Pool.Reset()
		if crash.over {
			after := b.state(t, id)
			after.requireAtomic(t, everyone(3000))
			t.Logf("%s: the crash lost %d chunks", crash.kind, before.Chunks-after.Chunks)
			g.release(nil)
		}
		require.Len(t, s.wait(t).Jobs, 1, "%s at %s", crash.kind, crash.point)
		b.requireDone(t, id, everyone(3000))
		require.EqualValues(t, 30, b.state(t, id).Chunks)
		require.Equal(t, []string{"enqueued", "claimed", "finished"}, b.kinds(t, id), "the same run")
	}
}

// A daemon outlives its database: it fails, waits and finds the job, which its own
// lost run left RUNNING, and jobs that came later.
func TestProcess_DaemonOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t, false)
	b := setupOn(t, dbtest.NewOn(t, server), 3000)
	id := b.enqueue(t, job.Spec{})
	g := b.gate(job.PointWritten, 10)
	c := config("r")
	c.Retry.Limit = 2 // gives up soon
	c.Listen = true
	r := b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who), job.WithFailpoint(g.at))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() { stop(); g.release(nil); require.NoError(t, <-ended) }()
	g.await(t)
	limited, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, server.Stop(limited, pgserver.Immediate))
	g.release(nil)
	require.NoError(t, server.Start(limited))
	b.db.Pool.Reset()
	done := func(id int64) {
		require.Eventually(t, func() bool {
			j, err := b.jobs.Get(limited, id)
			return err == nil && j.Status == job.Processed
		}, patience, 5*time.Millisecond)
		b.requireDone(t, id, everyone(3000))
	}
	done(id)
	done(b.enqueue(t, job.Spec{Type: outbox.TypePush}))
}
