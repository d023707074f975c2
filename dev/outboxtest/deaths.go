package outboxtest

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/child"
	"github.com/belfryhq/belfry/outbox"
)

// Place creates a new carrier for the workers of one test. It returns the location and the test's broker, or no broker if
// PostgreSQL is the transport.
type Place func(t testing.TB, name string) (Worker, outbox.Broker)

// Dies kills a worker with -9 at each point of its transport. Another worker delivers the messages: none is lost, each is
// SENT once, and called at most once more if the lease has counted the crash; no copy remains (I8, I10).
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
			// The server may still execute the last command.
			d.Eventually(t, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'victim')`)
			had, crashes := One[int](t, d, `SELECT count(*) FROM belfry.messages WHERE status = 'PROCESSING'`),
				One[int](t, d, `SELECT count(*) FROM belfry.messages m
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

// Stops suspends a worker for longer than its lease and heartbeat last. Another worker delivers its messages. After it
// continues, it delivers new messages (I8).
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
	other := d.StartWorker(t, w)
	d.Delivered(t)
	nothingLeft(t, d, b)
	require.NoError(t, other.Stop(child.Step{Signal: syscall.SIGTERM, Wait: patience})) // it would deliver the next job alone
	require.NoError(t, slow.Freeze(false))
	d.Job(t, "a", 1, n, 0)
	d.Eventually(t, `SELECT count(*) > 0 FROM public.calls WHERE worker = 'slow' AND job_id = (SELECT max(id) FROM belfry.jobs)`)
	d.Delivered(t)
	d.Accounted(t, 2*n)
}

// taken counts the copies that live and dead workers have taken.
func taken(t testing.TB, b outbox.Broker) (n int64) {
	t.Helper()
	list, err := b.Queues(t.Context())
	require.NoError(t, err)
	for _, q := range list {
		n += q.Taken + q.Later // JetStream does not know the workers of unacknowledged copies
	}
	return n
}

// nothingLeft waits until dead and suspended workers have no lease and no copy, and are not among the carrier's workers.
func nothingLeft(t testing.TB, d *Database, b outbox.Broker) {
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
