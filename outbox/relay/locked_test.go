package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/relay"
)

// Sessions that keep rows of a job locked delay these rows: neither other messages of the job, nor other jobs, nor
// activities wait for them, and a stop leaves no other outcome unrecorded.
func TestRelay_LockedRowsDelayNoOthers(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]struct {
		sql  string
		left int // messages of the job that are not sent meanwhile
	}{
		"messages": {`SELECT FROM belfry.message_rows WHERE job_id = $1 AND channel_id IN (100, 1000, 2000, 2900) FOR UPDATE`, 4},
		"claims":   {`SELECT belfry.own_claimed($1, -9223372036854775808, 1000)`, 3000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 3000)
			locked := b.job(t, "a", 1, 3000)
			other := b.job(t, "b", 1, 3000)
			tx, err := b.DB.Pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), lock.sql, locked)
			require.NoError(t, err)
			c := config("r")
			c.MaxInFlight = 1250
			if name == "messages" {
				c.StatementTimeout = 3 * time.Second // a stop waits for twice that
			}
			s := &script{}
			run := b.start(t, c, []relay.Sender{push(s)})
			b.eventually(t, `SELECT count(*) = 3000 FROM belfry.messages WHERE job_id = $1 AND status = 'SENT'`, other)
			b.eventually(t, `SELECT count(*) = 3000 - $2 FROM belfry.messages WHERE job_id = $1 AND status = 'SENT'`, locked, lock.left)
			for i := range 10 {
				id := b.activity(t, 1+i)
				b.eventually(t, `SELECT count(*) = 1 FROM belfry.messages WHERE job_id = $1 AND status = 'SENT'`, id)
			}
			if name == "claims" {
				require.NoError(t, tx.Rollback(t.Context()))
				b.eventually(t, `SELECT count(*) = 3000 FROM belfry.messages WHERE job_id = $1 AND status = 'SENT'`, locked)
				run.end(t)
				return
			}
			run.end(t)
			require.NoError(t, tx.Rollback(t.Context()))
			require.Equal(t, 4, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status <> 'SENT'`))
			require.LessOrEqual(t, len(s.all()), 6010, "none is sent twice")
		})
	}
}

// Many jobs whose claims another session holds delay no other job of their lane.
func TestRelay_HeldClaimsOfManyJobsDelayNoOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, 3000)
	for range 40 {
		b.job(t, "a", 1, 10)
	}
	other := b.job(t, "a", 1, 3000)
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT belfry.own_claimed(j.id) FROM belfry.jobs j WHERE j.id <> $1`, other)
	require.NoError(t, err)
	run := b.start(t, config("r"), []relay.Sender{push(&script{})})
	b.eventually(t, `SELECT count(*) = 3000 FROM belfry.messages WHERE job_id = $1 AND status = 'SENT'`, other)
	require.NoError(t, tx.Rollback(t.Context()))
	b.Delivered(t)
	run.end(t)
}

// More locked messages of a job than a relay has room for delay no other job of the lane, and are recorded once they are
// free.
func TestRelay_ManyLockedRowsDelayNoOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, 3000)
	locked, other := b.job(t, "a", 1, 3000), b.job(t, "a", 1, 3000)
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.message_rows WHERE job_id = $1 FOR UPDATE`, locked)
	require.NoError(t, err)
	c := config("r")
	c.MaxInFlight, c.Batch = 400, 100
	s := &script{}
	run := b.start(t, c, []relay.Sender{push(s)})
	b.eventually(t, `SELECT count(*) = 3000 FROM belfry.messages WHERE job_id = $1 AND status = 'SENT'`, other)
	require.Less(t, len(s.all()), 4500, "the job whose outcomes cannot be recorded pauses")
	require.NoError(t, tx.Rollback(t.Context()))
	b.Delivered(t)
	run.end(t)
	require.Len(t, s.all(), 6000, "none is sent twice")
}
