package delivery_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// A message whose result is just being recorded is not cancelled by a recall that begins meanwhile, whether the
// settlement commits or not.
func TestRecall_LeavesLockedMessagesInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	bg, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l := outbox.NewLedger(b.DB.Pool, "r1", time.Minute)
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	claimed, _, err := l.ClaimJob(bg, id, outbox.Position{}, 2, outbox.AnyTry)
	require.NoError(t, err)
	other, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	_, err = other.Exec(bg, `SELECT FROM belfry.message_rows WHERE job_id = $1 AND channel_id = 1 FOR UPDATE`, id)
	require.NoError(t, err)
	tx, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	require.NoError(t, outbox.OwnClaimedTx(bg, tx, id, math.MinInt64, 1000))
	require.NoError(t, other.Rollback(bg))
	var keys, cancelled, left int64
	var last *int64
	var late []int64
	require.NoError(t, tx.QueryRow(bg, delivery.Statement("MessageRecall"), pgx.StrictNamedArgs{"job_id": id, "after": int64(0), "bound": int64(100), "keys": 10}).
		Scan(&keys, &last, &cancelled, &late, &left))
	require.EqualValues(t, 1, cancelled)
	require.EqualValues(t, 1, left, "is looked at again")
	require.NoError(t, tx.Commit(bg))
	statuses, err := l.Settle(bg, []outbox.Settlement{{Claimed: claimed[0], To: outbox.Sent, NextAttempts: 1}, {Claimed: claimed[1], To: outbox.Sent, NextAttempts: 1}}, nil)
	require.NoError(t, err)
	require.Equal(t, []outbox.Status{outbox.Sent, outbox.Sent}, statuses)
}
