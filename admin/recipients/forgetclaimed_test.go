package recipients_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/recipients"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/outbox"
)

// A message that a relay has in flight is waited for, although its row was never changed, and a plan does not count it.
func TestForget_WaitsForClaimedMessages(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	l := outbox.NewLedger(d.DB.Pool, "r1", time.Hour)
	claimed, _, err := l.ClaimJob(t.Context(), 1, outbox.Position{}, 3, outbox.AnyTry)
	require.NoError(t, err)
	require.Len(t, claimed, 3)
	forget := func(channel int64, o recipients.ForgetOptions) int64 {
		done, err := recipients.Forget(t.Context(), d.DB.Pool, d.Env.Channels, channel, "", o)
		if channel == 3 && !o.DryRun {
			require.ErrorIs(t, err, recipients.ErrStillSent)
		} else {
			require.NoError(t, err)
		}
		return done.Messages
	}
	require.EqualValues(t, 1, forget(3, recipients.ForgetOptions{DryRun: true}), "the activity's")
	require.EqualValues(t, 1, forget(4, recipients.ForgetOptions{DryRun: true}), "never claimed")
	require.EqualValues(t, 1, forget(3, recipients.ForgetOptions{}))
	require.EqualValues(t, 1, forget(4, recipients.ForgetOptions{}))
	require.Equal(t, "{1,2,3,5,6,7,8}", d.One(`SELECT array_agg(channel_id ORDER BY channel_id)::text FROM belfry.message_rows WHERE job_id = 1`))
	statuses, err := l.Settle(t.Context(), []outbox.Settlement{{Claimed: claimed[2], To: outbox.Sent, NextAttempts: 1}}, nil)
	require.NoError(t, err)
	require.Equal(t, []outbox.Status{outbox.Sent}, statuses)
}

// A message whose result is just being recorded, or that was written meanwhile, is not erased before its job's claims are
// held.
func TestForget_ErasesWhatItHolds(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, _, err := outbox.NewLedger(d.DB.Pool, "r1", time.Hour).ClaimJob(ctx, 1, outbox.Position{}, 3, outbox.AnyTry)
	require.NoError(t, err)
	other, err := d.DB.Pool.Begin(ctx)
	require.NoError(t, err)
	_, err = other.Exec(ctx, `SELECT FROM belfry.message_rows WHERE job_id = 1 AND channel_id = 3 FOR UPDATE`)
	require.NoError(t, err)
	tx, err := d.DB.Pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	rows, err := tx.Query(ctx, recipients.Statement("ForgetHold"), pgx.StrictNamedArgs{"after": 0, "only": nil, "channel_id": 3, "keys": 10})
	require.NoError(t, err)
	held, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	require.Equal(t, []int64{1}, held)
	require.NoError(t, other.Rollback(ctx))
	require.Equal(t, "0", d.One(`SELECT count(*)::text FROM (SELECT FROM belfry.job_claims FOR UPDATE SKIP LOCKED) c`), "no claim goes on")
	kept := func(channel int64, held []int64) bool {
		var kept bool
		require.NoError(t, tx.QueryRow(ctx, recipients.Statement("ForgetMessages"), pgx.StrictNamedArgs{
			"after": 0, "only": []int64{1}, "channel_id": channel, "keys": 10, "dry_run": false, "held": held, "tries": 10,
		}).Scan(nil, nil, nil, &kept, nil, nil))
		return kept
	}
	require.True(t, kept(3, held), "in flight")
	require.True(t, kept(4, []int64{}), "not held")
	require.False(t, kept(4, held))
}
