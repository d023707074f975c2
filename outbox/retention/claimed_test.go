package retention_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/retention"
)

// claim takes n messages of a job.
func (b *bundle) claim(t require.TestingT, id int64, n int) []outbox.Claimed {
	claimed, _, err := outbox.NewLedger(b.DB.Pool, "r1", time.Hour).ClaimJob(context.Background(), id, outbox.Position{}, n, outbox.AnyTry)
	require.NoError(t, err)
	require.Len(t, claimed, n)
	return claimed
}

// Of the messages of an old aborted job, those that a relay has in flight remain until its lease has expired, although
// their rows were never changed. A dry run counts the same.
func TestPrune_KeepsClaimedMessagesOfLiveRelays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, other := b.Rest(t, outbox.TypePush, 9, job.Processed), b.Rest(t, outbox.TypePush, 3, job.Processed)
	lease := b.claim(t, id, 4)[0].LeaseID
	b.claim(t, id, 1)
	b.claim(t, other, 3)
	_, err := b.jobs.Abort(t.Context(), job.One(id), ann)
	require.NoError(t, err)
	b.Age(t, "40 days", id, other)
	prune := func() (pruned retention.Pruned) {
		counted, err := retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{DryRun: true})
		require.NoError(t, err)
		pruned, err = retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{})
		require.NoError(t, err)
		require.Equal(t, pruned.Messages, counted.Messages)
		return pruned
	}
	require.Equal(t, retention.Pruned{Messages: 4}, prune())
	require.Equal(t, map[string]int{"PROCESSING": 5}, b.Statuses(t, id))
	b.Exec(t, `UPDATE belfry.leases SET expires_at = now() - interval '1 second' WHERE id = $1`, lease)
	require.Equal(t, retention.Pruned{Messages: 4}, prune())
	b.Exec(t, `UPDATE belfry.leases SET expires_at = now() - interval '1 second' WHERE job_ids[1] = $1`, id)
	require.Equal(t, retention.Pruned{Messages: 1, Jobs: 1}, prune())
	require.Equal(t, map[string]int{"PROCESSING": 3}, b.Statuses(t, other), "is not aborted")
	require.Equal(t, []int64{other}, one[[]int64](t, b, `SELECT array_agg(job_id) FROM belfry.job_claims`), "a job takes its claims with it")
}

// A dry run counts messages whose lease has expired before their rows were changed.
func TestPrune_CountsClaimedMessagesOfDeadRelays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.Rest(t, outbox.TypePush, 5, job.Processed)
	b.claim(t, id, 2)
	b.claim(t, id, 1)
	_, err := b.jobs.Abort(t.Context(), job.One(id), ann)
	require.NoError(t, err)
	b.Age(t, "40 days", id)
	b.Exec(t, `UPDATE belfry.leases SET expires_at = now() - interval '1 second' WHERE cardinality(channel_ids) = 2`)
	counted, err := retention.Prune(t.Context(), b.DB.Pool, month(), retention.Options{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, retention.Pruned{Messages: 4}, counted)
}

// A message whose result is just being recorded is not deleted by a step that begins meanwhile.
func TestPrune_LeavesLockedMessagesInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	b.claim(t, id, 2)
	other, err := b.DB.Pool.Begin(ctx)
	require.NoError(t, err)
	_, err = other.Exec(ctx, `SELECT FROM belfry.message_rows WHERE job_id = $1 AND channel_id = 1 FOR UPDATE`, id)
	require.NoError(t, err)
	tx, err := b.DB.Pool.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, outbox.OwnClaimedTx(ctx, tx, id, math.MinInt64, 1000))
	require.NoError(t, other.Rollback(ctx))
	var last *int64
	var deleted int64
	require.NoError(t, tx.QueryRow(ctx, retention.Statement("MessagePrune"), pgx.StrictNamedArgs{
		"as_of": nil, "job_id": id, "after": int64(0), "keys": 10, "seconds": 0.0, "aborted": true, "tries": 10,
	}).Scan(&last, &deleted, nil))
	require.EqualValues(t, 1, deleted)
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, map[string]int{"PROCESSING": 2}, b.Statuses(t, id))
}

// A job that is kept keeps its claims.
func TestPrune_KeepsTheClaimsOfAJobThatStays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.Rest(t, outbox.TypePush, 2, job.Processed)
	b.claim(t, id, 2)
	_, err := b.DB.Pool.Exec(t.Context(), retention.Statement("JobPrune"), pgx.StrictNamedArgs{"as_of": nil, "id": id, "seconds": 0.0})
	require.NoError(t, err)
	require.Equal(t, int64(2), one[int64](t, b, `SELECT claimed_to FROM belfry.job_claims WHERE job_id = $1`, id))
}
