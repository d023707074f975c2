package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// A claim by key waits for a claim of the next messages, also for the first one of the job, and leaves what that took.
func TestTake_ClaimsByKeyWaitForAClaim(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	for _, begun := range []bool{true, false} {
		id := b.Rest(t, outbox.TypePush, 6, job.Processed)
		if begun {
			b.Exec(t, `INSERT INTO belfry.job_claims (job_id) VALUES ($1)`, id)
		}
		tx, err := b.DB.Pool.Begin(bg)
		require.NoError(t, err)
		_, err = tx.Exec(bg, `INSERT INTO belfry.job_claims AS c (job_id, claimed_to) VALUES ($1, 4) ON CONFLICT ON CONSTRAINT job_claims_pkey DO UPDATE SET claimed_to = 4`, id)
		require.NoError(t, err)
		ended := make(chan []outbox.Claimed, 1)
		go func() {
			claimed, _ := l.ClaimKeys(bg, []outbox.Key{{JobID: id, ChannelID: 4}, {JobID: id, ChannelID: 5}})
			ended <- claimed
		}()
		b.Eventually(t, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database()))
			OR EXISTS (SELECT FROM belfry.message_rows WHERE job_id = $1 AND status = 'PROCESSING')`, id)
		require.NoError(t, tx.Commit(bg))
		select {
		case claimed := <-ended:
			require.Equal(t, []int64{5}, channelsOf(claimed), "begun: %v", begun)
		case <-time.After(patience):
			t.Fatal("the claim does not end")
		}
	}
}
