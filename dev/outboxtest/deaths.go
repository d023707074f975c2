package outboxtest

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/child"
	"github.com/belfryhq/belfry/outbox/relay"
)

// Place makes a carrier that nobody has used, for the workers of one test: where it is, and the
// test's own broker of it. Without a broker PostgreSQL is the transport.
type Place func(t testing.TB, name string) (Worker, relay.Broker)

// Dies kills a worker with -9 at each of some points, those that its transport has: another one
// delivers what it had. Nothing is lost, each message is SENT once, and called for once more at
// most where the lease has counted the crash; no copy is left (I8, I10).
func Dies(t *testing.T, points []Point, place Place) {
	t.Helper()
	for _, at := range points {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			const n = 300
			d := NewDatabase(t, dbtest.New(t), n)
			d.Called(t)
			d.Job(t, "a", 1, n, 0)
			w, b := place(t, "dies-"+string(at))
			w.Name, w.Point = "victim", at
			victim := d.StartWorker(t, w)
			select {
			case <-victim.Ended():
			case <-time.After(patience):
				require.FailNow(t, "it does not die")
			}
			require.True(t, victim.EndedBy(syscall.SIGKILL))
			// The server may still do what it was asked for last.
			d.Eventually(t, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'victim')`)
			had, crashes := One[int](t, d, `SELECT count(*) FROM belfry.messages WHERE status = 'PROCESSING'`), One[int](t, d, `SELECT count(*) FROM belfry.messages m
				WHERE m.status = 'PROCESSING' AND EXISTS (SELECT FROM belfry.handovers h, unnest(h.job_ids, h.channel_ids) u(job_id, channel_id)
				WHERE h.lease_id = m.lease_id AND u.job_id = m.job_id AND u.channel_id = m.channel_id)`)
			if at == Claimed || at == Called {
				require.Positive(t, had, "it dies with messages")
			}
			if at == Called {
				require.Positive(t, crashes, "whose outcome nobody knows")
			}
			if b != nil && at != Removed {
				require.Positive(t, taken(t, b), "and with copies")
			}
			w.Name, w.Point, w.Lease = "survivor", "", survivorLease
			survivor := d.StartWorker(t, w)
			d.Delivered(t)
			d.Accounted(t, n)
			require.Equal(t, crashes, One[int](t, d, `SELECT coalesce(sum(crashes), 0) FROM belfry.messages`), "crashes that the lease counted")
			require.LessOrEqual(t, One[int](t, d, `SELECT count(*) FROM public.calls`), n+crashes)
			nothingLeft(t, d, b)
			require.NoError(t, survivor.Stop(child.Step{Signal: syscall.SIGTERM, Wait: patience}))
		})
	}
}

// Stops has a worker stand still for longer than its lease and its sign of life last, and go on:
// another one delivers what it had, and it delivers again what comes then (I8).
func Stops(t *testing.T, place Place) {
	t.Helper()
	const n = 2000
	d := NewDatabase(t, dbtest.New(t), n)
	d.Called(t)
	w, b := place(t, "stops")
	w.Name, w.Takes = "slow", 5*time.Millisecond
	slow := d.StartWorker(t, w)
	d.Job(t, "a", 1, n, 0)
	d.Eventually(t, `SELECT count(*) > 100 FROM public.calls WHERE worker = 'slow'`)
	require.NoError(t, slow.Freeze(true))
	w.Name = "other"
	d.StartWorker(t, w)
	d.Delivered(t)
	nothingLeft(t, d, b)
	require.NoError(t, slow.Freeze(false))
	d.Job(t, "a", 1, n, 0)
	d.Eventually(t, `SELECT count(*) > 0 FROM public.calls WHERE worker = 'slow' AND job_id = (SELECT max(id) FROM belfry.jobs)`)
	d.Delivered(t)
	d.Accounted(t, 2*n)
}

// taken counts the copies that workers have taken out, dead ones too.
func taken(t testing.TB, b relay.Broker) (n int64) {
	t.Helper()
	list, err := b.Queues(t.Context())
	require.NoError(t, err)
	for _, q := range list {
		n += q.Taken + q.Later // JetStream does not know who had them
	}
	return n
}

// nothingLeft waits until whoever died or stands still has nothing: no lease, no copy, no place
// among the carrier's workers.
func nothingLeft(t testing.TB, d *Database, b relay.Broker) {
	t.Helper()
	d.Eventually(t, `SELECT NOT EXISTS (SELECT FROM belfry.leases)`)
	if b == nil {
		return
	}
	require.Eventually(t, func() bool {
		list, err := b.Queues(t.Context())
		require.NoError(t, err)
		for _, q := range list {
			if q.Ready+q.Later+q.Taken > 0 || q.Oldest != q.Last+1 || len(q.Workers) != 1 {
				return false
			}
		}
		return true
	}, patience, 10*time.Millisecond, "nothing is left in the carrier")
}
