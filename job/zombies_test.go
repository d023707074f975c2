package job_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// watchful is a configuration of two daemons that watch each other closely, and
// under which a silent run is stale soon.
func watchful(name string, stale time.Duration) job.Config {
	c := config(name)
	c.StatementTimeout, c.StaleAfter = stale/2, stale
	c.Retry = job.RetryConfig{Limit: 1000, Initial: 10 * time.Millisecond, Max: stale / 4}
	c.PollInterval, c.WatchInterval = 50*time.Millisecond, 20*time.Millisecond
	c.MaxTakeovers = 1000
	c.Load.Health.Enabled = false
	return c
}

// silence is how long a run had been silent when its fence was passed.
func (b *bundle) silence(t *testing.T, id, fence int64) time.Duration {
	t.Helper()
	return one[time.Duration](t, b, `SELECT at - beat FROM public.ledger WHERE job_id = $1 AND old_fence = $2 AND new_fence = $2 + 1`, id, fence)
}

// I5: a runner is stopped by SIGSTOP at any moment of its walk. As long as its
// server connection is open, its job is its own until the heartbeat is stale, although
// a peer watches; inside a transaction the server ends the connection after
// statement_timeout, and that counts. Woken in the middle of its successor's walk,
// the zombie commits nothing. With BELFRY_TEST_ZOMBIES=50 that many times.
func TestProcess_StoppedRunnerKeepsItsJobUntilItIsStale(t *testing.T) {
	t.Parallel()
	const (
		n     = 2000
		stale = time.Second
	)
	b := setup(t, n)
	b.keepLedger(t)
	crew := map[string]*daemon{}
	for _, name := range []string{"one", "other"} {
		crew[name] = b.spawn(t, b.db.DSN, watchful(name, stale))
	}
	byHeartbeat, byConnection := 0, 0
	for i := range count(t, "BELFRY_TEST_ZOMBIES", 5) {
		id := b.enqueue(t, job.Spec{Type: []string{outbox.TypePush, outbox.TypeInbox}[i%2]})
		rate := []int{1500, 1500, 100_000}[i%3] // mostly between two chunks, or mostly inside one
		_, err := b.jobs.Set(t.Context(), id, job.Changes{"max_rows_per_second": rate}, job.Act{})
		require.NoError(t, err)
		b.eventually(t, `SELECT chunks > 0 FROM belfry.jobs WHERE id = $1`, id)
		var was tenancy
		require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT coalesce(runner, ''), fence FROM belfry.jobs WHERE id = $1`, id).Scan(&was.runner, &was.fence))
		zombie, runs := crew[was.runner]
		if !runs {
			continue // it was done before anybody looked
		}
		rest(t, time.Duration(rand.Int64N(int64(time.Duration(n/rate)*time.Second+10*time.Millisecond)))/2)
		zombie.signal(t, syscall.SIGSTOP)
		b.eventually(t, `SELECT fence > $2 OR status = 'PROCESSED' FROM belfry.jobs WHERE id = $1`, id, was.fence)
		if b.state(t, id).Fence == was.fence {
			zombie.signal(t, syscall.SIGCONT) // it was done so soon
			continue
		}
		silent, why := b.silence(t, id, was.fence), b.whyResumed(t, id, was.fence)
		if strings.Contains(why, wentSilent) {
			byHeartbeat++
			require.GreaterOrEqual(t, silent, stale, why)
		} else {
			byConnection++
			require.GreaterOrEqual(t, silent, stale/2, why)
		}
		b.eventually(t, `SELECT status = 'PROCESSED' OR EXISTS (SELECT FROM public.ledger WHERE job_id = $1 AND old_fence > $2 AND old_cursor <> new_cursor)
			FROM belfry.jobs WHERE id = $1`, id, was.fence)
		chunk := fmt.Sprintf("chunk %d %d", id, was.fence) // of that run: its successor may become silent, too
		chunks := zombie.lines(chunk)
		zombie.signal(t, syscall.SIGCONT)
		b.eventually(t, `SELECT status = 'PROCESSED' FROM belfry.jobs WHERE id = $1`, id)
		zombie.await(t, fmt.Sprintf("lost %d", id))
		// A chunk whose COMMIT was acknowledged while it was stopped it may still report.
		require.LessOrEqual(t, zombie.lines(chunk), chunks+1)
		b.requireDone(t, id, everyone(n))
		b.requireLedger(t)
	}
	t.Logf("taken over by a stale heartbeat %d times, by a connection that the server ended %d times", byHeartbeat, byConnection)
}

// I5, by the fence alone: the zombie is stopped with a chunk's rows written and wakes
// between its successor's claim and all that the successor does then. Nobody has
// moved the cursor or ended the zombie's connection; its chunk commits nothing.
func TestProcess_ZombieThatWakesRightAfterTheTakeOverCommitsNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{outbox.TypeInbox, outbox.TypePush} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 500)
			b.keepLedger(t)
			id := b.enqueue(t, job.Spec{Type: kind})
			zombie := b.child(t, config("zombie"), job.PointWritten, 3)
			zombie.await(t)
			zombie.signal(t, syscall.SIGSTOP)
			left := b.state(t, id)
			b.age(t, id)
			pool, p := b.pausing(t, "takeovers = least(takeovers, 2147483646) + 1,", true)
			heir := b.start(t, b.runnerWith(t, pool, config("heir"), outbox.Types(b.who)))
			wake := sync.OnceFunc(func() { close(p.open) })
			t.Cleanup(wake)
			p.await(t)
			zombie.signal(t, syscall.SIGCONT)
			zombie.proceed(t)
			out := zombie.end(t)
			require.Equal(t, job.Running, out.Jobs[0].Status)
			require.EqualValues(t, 2, out.Jobs[0].Fence, "the heir's")
			after := b.state(t, id)
			left.Fence++
			require.Equal(t, left, after)
			wake()
			heir.wait(t)
			b.requireDone(t, id, everyone(500))
			b.requireLedger(t)
		})
	}
}
