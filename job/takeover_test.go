package job_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// named is the default configuration.
func named(format string, args ...any) job.Config {
	c := job.DefaultConfig()
	c.Name = fmt.Sprintf(format, args...)
	return c
}

// tenancy is who runs a job, and how far it is.
type tenancy struct {
	runner string
	fence  int64
}

// running waits until the job's run has committed a chunk. It may be over before anybody looks.
func (b *bundle) running(t *testing.T, id int64) (now tenancy) {
	t.Helper()
	b.eventually(t, `SELECT chunks > 0 FROM belfry.jobs WHERE id = $1`, id)
	require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT coalesce(runner, ''), fence FROM belfry.jobs WHERE id = $1`, id).Scan(&now.runner, &now.fence))
	return now
}

// succeeded waits until another run than that of the fence has committed a chunk.
func (b *bundle) succeeded(t *testing.T, id, fence int64) {
	t.Helper()
	b.eventually(t, `SELECT EXISTS (SELECT FROM belfry.job_events e
		WHERE e.job_id = j.id AND e.kind = 'resumed' AND (e.detail->'after'->>'fence')::bigint > $2 AND (e.detail->>'chunks')::bigint < j.chunks)
		FROM belfry.jobs j WHERE j.id = $1`, id, fence)
}

// whyResumed is the reason in the event of the take-over from a fence.
func (b *bundle) whyResumed(t *testing.T, id, fence int64) string {
	t.Helper()
	return one[string](t, b, `SELECT reason FROM belfry.job_events WHERE job_id = $1 AND kind = 'resumed'
		AND (detail->'before'->>'fence')::bigint = $2`, id, fence)
}

const (
	lostConnection = "lost its server connection"
	wentSilent     = "ended without a word"
)

// requirePrefix is I2 and I3 in few bytes: of a job over everybody, exactly the
// channels up to the cursor have rows.
func (b *bundle) requirePrefix(t *testing.T, id int64) {
	t.Helper()
	text := one[string](t, b, `SELECT format('%s rows up to %s, %s written, %s channels up to the cursor %s',
			r.n, r.last, j.rows_written, (SELECT count(*) FROM belfry.channels c WHERE c.id <= k.at), k.at)
		FROM belfry.jobs j, LATERAL (SELECT coalesce(nullif(j."cursor", ''), '0')::bigint AS at) k,
		     LATERAL (SELECT count(*) AS n, coalesce(max(channel_id), 0) AS last FROM belfry.messages m WHERE m.job_id = j.id) r
		WHERE j.id = $1 AND (r.n <> j.rows_written OR r.last > k.at OR r.n <> (SELECT count(*) FROM belfry.channels c WHERE c.id <= k.at))
		UNION ALL SELECT '' ORDER BY 1 DESC LIMIT 1`, id)
	require.Empty(t, text)
}

// clear ends a job and forgets the rows of all.
func (b *bundle) clear(t *testing.T, id int64) {
	t.Helper()
	b.abort(t, id)
	b.requirePrefix(t, id)
	b.exec(t, `TRUNCATE belfry.message_rows`)
}

// percentiles is what is reported of a series of measurements.
func percentiles(d []time.Duration) string {
	d = slices.Sorted(slices.Values(d))
	at := func(p float64) time.Duration {
		return d[min(int(p*float64(len(d))), len(d)-1)].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%d times: p50 %s, p99 %s, max %s", len(d), at(0.50), at(0.99), d[len(d)-1].Round(100*time.Microsecond))
}

// A killed runner's job is taken over because its server connection is gone, long
// before the heartbeat is stale: by a peer that lives, or by a lone replacement as
// soon as that is there. All settings are the defaults. With BELFRY_TEST_KILLS=50
// the times are worth reporting.
func TestProcess_KilledRunnersJobIsTakenOverAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("by a live peer", func(t *testing.T) {
		t.Parallel()
		kills := count(t, "BELFRY_TEST_KILLS", 5)
		b := setup(t, 60_000)
		b.keepLedger(t)
		crew := map[string]*daemon{}
		for i := range 2 {
			p := b.spawn(t, b.db.DSN, named("first %d", i))
			crew[p.name] = p
		}
		var took []time.Duration
		for i := range kills {
			id, was := b.toBeKilled(t, i)
			victim := crew[was.runner]
			began := time.Now()
			victim.kill(t)
			b.succeeded(t, id, was.fence)
			took = append(took, time.Since(began))
			require.Contains(t, b.whyResumed(t, id, was.fence), lostConnection)
			b.clear(t, id)
			delete(crew, was.runner)
			p := b.spawn(t, b.db.DSN, named("next %d", i))
			crew[p.name] = p
		}
		b.requireLedger(t)
		t.Logf("kill -9 to the peer's first committed chunk, %s", percentiles(took))
	})
	t.Run("by a lone replacement", func(t *testing.T) {
		t.Parallel()
		kills := count(t, "BELFRY_TEST_KILLS", 2)
		b := setup(t, 60_000)
		b.keepLedger(t)
		p := b.spawn(t, b.db.DSN, named("first"))
		var took []time.Duration
		for i := range kills {
			id, was := b.toBeKilled(t, i)
			p.kill(t)
			p = b.launch(t, b.db.DSN, named("next %d", i))
			b.succeeded(t, id, was.fence)
			took = append(took, time.Since(p.started))
			require.Contains(t, b.whyResumed(t, id, was.fence), lostConnection)
			b.clear(t, id)
		}
		b.requireLedger(t)
		t.Logf("start of the process to its first committed chunk, %s", percentiles(took))
	})
}

// toBeKilled enqueues a job, every second one slowed down, and returns it at a
// random moment of its walk.
func (b *bundle) toBeKilled(t *testing.T, i int) (int64, tenancy) {
	t.Helper()
	for {
		id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
		if i%2 == 1 { // mostly between two chunks
			_, err := b.jobs.Set(t.Context(), id, job.Changes{"max_rows_per_second": 10_000}, job.Act{})
			require.NoError(t, err)
		}
		was := b.running(t, id)
		rest(t, time.Duration(rand.Int64N(int64(100*time.Millisecond))))
		if one[bool](t, b, `SELECT status = 'RUNNING' FROM belfry.jobs WHERE id = $1`, id) {
			return id, was
		}
		b.clear(t, id) // it was done so soon
	}
}

// pooled returns the DSN of a pooler before the test's database that gives each
// transaction a backend of its own.
func (b *bundle) pooled(t *testing.T) string {
	t.Helper()
	return dbtest.StartPgBouncer(t, b.db.DSN, dbtest.Churn()).DSN(b.db.Name) + "&default_query_exec_mode=exec"
}

// Behind a pooler in transaction mode a run has no server connection of its own, and
// its row names none: a live run, whose backends come and go, is left alone by a peer
// that watches, however slow it is, and a killed one is taken over when its heartbeat
// is stale, not before.
func TestProcess_BehindAPoolerOnlyTheHeartbeatDecides(t *testing.T) {
	t.Parallel()
	b := setup(t, 5000)
	b.keepLedger(t)
	dsn := b.pooled(t)
	// Chunks of 100 keys, one every 50 ms: the walk takes longer than a run may be
	// silent.
	const stale = 1500 * time.Millisecond
	c := config("")
	c.StatementTimeout, c.StaleAfter = stale/2, stale
	c.Retry.Max = stale / 4
	c.PollInterval, c.WatchInterval = 20*time.Millisecond, 10*time.Millisecond
	c.Load.MaxRowsPerSecond = 2000
	c.Load.Health.Enabled = false
	crew := map[string]*daemon{}
	for _, name := range []string{"one", "other"} {
		c.Name = name
		crew[name] = b.spawn(t, dsn, c)
	}
	id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
	b.running(t, id)
	require.Zero(t, one[int](t, b, `SELECT count(backend_pid) FROM belfry.jobs WHERE id = $1`, id))
	b.eventually(t, `SELECT chunks >= 10 FROM belfry.jobs WHERE id = $1`, id)
	// A machine that stands still makes a run silent.
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM public.ledger WHERE new_fence > old_fence AND old_status = 'RUNNING' AND at - beat < $1`, stale), "a live run was taken over")
	was := b.running(t, id)
	require.Zero(t, one[int](t, b, `SELECT count(backend_pid) FROM belfry.jobs WHERE id = $1`, id))

	crew[was.runner].kill(t)
	b.succeeded(t, id, was.fence)
	require.Contains(t, b.whyResumed(t, id, was.fence), wentSilent)
	silent := one[time.Duration](t, b, `SELECT at - beat FROM public.ledger WHERE job_id = $1 AND new_fence = $2 + 1 AND old_fence = $2`, id, was.fence)
	require.GreaterOrEqual(t, silent, stale)
	t.Logf("taken over after a silence of %s; stale_after is %s", silent, stale)
	b.eventually(t, `SELECT status = 'PROCESSED' FROM belfry.jobs WHERE id = $1`, id)
	b.requireDone(t, id, everyone(5000))
	b.requireLedger(t)
}

// A pooler makes its process numbers up: any 32 bits. Half of them are larger than
// PostgreSQL's type for its own.
func TestProcess_ClaimsBehindAPoolerWhateverNumberItMakesUp(t *testing.T) {
	t.Parallel()
	b := setup(t, 50)
	dsn := b.pooled(t)
	large := 0
	for i := 0; i < 100 && large < 3; i++ {
		pool, err := pgxpool.New(t.Context(), dsn+"&pool_max_conns=1")
		require.NoError(t, err)
		b.last = append(b.last, pool.Close)
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		made := conn.Conn().PgConn().PID()
		conn.Release()
		if made <= math.MaxInt32 {
			continue
		}
		large++
		id := b.enqueue(t, job.Spec{Type: outbox.TypePush})
		b.runDue(t, b.runnerWith(t, pool, config(fmt.Sprintf("r%d", i)), outbox.Types(b.who)))
		b.requireDone(t, id, everyone(50))
	}
	require.Equal(t, 3, large)
}
