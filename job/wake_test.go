package job_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// daemon runs Run in the background until the test ends.
func (b *bundle) daemon(t *testing.T, c job.Config) (stop func()) {
	t.Helper()
	r := b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(patience):
			require.FailNow(t, "the daemon does not end")
		}
	}
	t.Cleanup(stop)
	return stop
}

const listening = `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`

// NOTIFY is the fast way: a daemon that polls once an hour runs a job as soon as
// it is committed, and so it does with a job that is resumed.
func TestRun_IsWokenByTheDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t, 100)
	c := config("r")
	c.Listen, c.PollInterval = true, time.Hour
	b.daemon(t, c)
	b.eventually(t, `SELECT EXISTS (`+listening+`)`)
	id := b.enqueue(t, job.Spec{})
	b.eventually(t, `SELECT status = 'PROCESSED' FROM belfry.jobs WHERE id = $1`, id)
	b.requireDone(t, id, everyone(100))

	future := time.Now().Add(24 * time.Hour)
	later := b.enqueue(t, job.Spec{ScheduleAt: &future})
	b.abort(t, later)
	b.exec(t, `UPDATE belfry.jobs SET schedule_at = now() WHERE id = $1`, later)
	_, err := b.jobs.Resume(t.Context(), job.One(later), job.Act{})
	require.NoError(t, err)
	b.eventually(t, `SELECT status = 'PROCESSED' FROM belfry.jobs WHERE id = $1`, later)
}

// NOTIFY is only a hint: without it polling finds everything, also a job that
// becomes due and a run that becomes stale.
func TestRun_PollingAloneFindsEverything(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	dead := b.enqueue(t, job.Spec{})
	b.crash(t, "dead", job.PointWritten, 2)
	b.age(t, dead)
	soon := one[time.Time](t, b, `SELECT now() + interval '300 milliseconds'`)
	due := b.enqueue(t, job.Spec{ScheduleAt: &soon})
	b.daemon(t, config("r"))
	now := b.enqueue(t, job.Spec{})
	for _, id := range []int64{dead, due, now} {
		b.eventually(t, `SELECT status = 'PROCESSED' FROM belfry.jobs WHERE id = $1`, id)
		b.requireDone(t, id, everyone(300))
	}
	require.True(t, one[bool](t, b, `SELECT started_at >= schedule_at FROM belfry.jobs WHERE id = $1`, due))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM (`+listening+`) l`), "it was told not to listen")
}

// The connection that listens may be lost: meanwhile polling finds the jobs, then
// the daemon listens again.
func TestRun_FaultOfTheListeningConnectionIsRepaired(t *testing.T) {
	t.Parallel()
	b := setup(t, 100)
	c := config("r")
	c.Listen, c.PollInterval = true, 500*time.Millisecond
	stop := b.daemon(t, c)
	b.eventually(t, `SELECT EXISTS (`+listening+`)`)
	pid := one[int32](t, b, listening)
	require.True(t, one[bool](t, b, `SELECT pg_terminate_backend($1, 10000)`, pid))
	id := b.enqueue(t, job.Spec{})
	b.eventually(t, `SELECT status = 'PROCESSED' FROM belfry.jobs WHERE id = $1`, id)
	b.eventually(t, `SELECT EXISTS (`+listening+` AND pid <> $1)`, pid)
	stop()
	b.eventually(t, `SELECT NOT EXISTS (`+listening+`)`)
}

// asked is what a pool's connections send, in order.
type asked struct {
	mu   sync.Mutex
	list []question
}

type question struct {
	sql string
	at  time.Time
}

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, question{data.SQL, time.Now()})
	return ctx
}

func (*asked) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// last are the last n statements, fewer if there were fewer.
func (a *asked) last(n int) []question {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.list[max(0, len(a.list)-n):])
}

// A daemon that hears hints, with nothing that runs or is due, asks one thing every few
// seconds, however often it polls while something runs.
func TestLong_RunIdleDaemonAsksOften(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	trace := &asked{}
	pc, err := pgxpool.ParseConfig(b.db.DSN)
	require.NoError(t, err)
	pc.ConnConfig.Tracer = trace
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	c := config("r")
	c.Listen, c.PollInterval, c.WatchInterval = true, 10*time.Millisecond, 10*time.Millisecond
	r := b.runnerWith(t, pool, c, outbox.Types(b.who))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })

	id := b.enqueue(t, job.Spec{})
	b.eventually(t, `SELECT status = 'PROCESSED' FROM belfry.jobs WHERE id = $1`, id)
	looks := func(q question) bool { return q.sql == job.Statement("JobsSnapshot") }
	require.Eventually(t, func() bool {
		two := trace.last(2)
		return len(two) == 2 && looks(two[0]) && looks(two[1]) && two[1].at.Sub(two[0].at) > time.Second
	}, patience, time.Millisecond)
	later := b.enqueue(t, job.Spec{}) // it is not asleep
	b.eventually(t, `SELECT status = 'PROCESSED' FROM belfry.jobs WHERE id = $1`, later)
}
