package outbox_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// versions are the row versions of a job's messages, which a change replaces.
func (b *bundle) versions(t *testing.T, id int64) string {
	t.Helper()
	return one[string](t, b, `SELECT string_agg(ctid::text || xmin::text, ',' ORDER BY channel_id) FROM belfry.message_rows WHERE job_id = $1`, id)
}

// A first claim leaves the rows as they are, and one update makes a message SENT. The view shows it in flight, under
// the lease of its claim.
func TestTake_LeavesTheRows(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 10, job.Processed)
	before := b.versions(t, id)
	first, second := handed(t, l, id, 4), handed(t, l, id, 4)
	require.Equal(t, []int64{1, 2, 3, 4}, channelsOf(first))
	require.Equal(t, []int64{5, 6, 7, 8}, channelsOf(second))
	verdicts, err := l.Recheck(bg, append(first, second...))
	require.NoError(t, err)
	require.Equal(t, all(8, outbox.VerdictSend), verdicts)
	require.Equal(t, before, b.versions(t, id))
	require.Equal(t, map[string]int{"PENDING": 2, "PROCESSING": 8}, b.Statuses(t, id))
	require.Equal(t, []int64{5, 6, 7, 8}, stored(t, b.DB, `SELECT channel_id FROM belfry.messages WHERE lease_id = $1 ORDER BY 1`, second[0].LeaseID))

	statuses, err := l.Settle(bg, each(first, sent), leasesOf(first))
	require.NoError(t, err)
	require.Equal(t, all(4, outbox.Sent), statuses)
	statuses, err = l.Settle(bg, each(first, sent), leasesOf(first))
	require.NoError(t, err)
	require.Equal(t, all(4, outbox.Sent), statuses, "a repeated settlement finds its result")
	require.Equal(t, map[string]int{"PENDING": 2, "PROCESSING": 4, "SENT": 4}, b.Statuses(t, id))
	require.Equal(t, []int64{second[0].LeaseID}, stored(t, b.DB, `SELECT id FROM belfry.leases`))
}

// In a category with a cap a claim changes the rows: the cap counts messages in flight by channel.
func TestTake_ChangesTheRowsOfCappedCategories(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	b.Exec(t, `UPDATE belfry.categories SET cap = 1, cap_window = '1 day' WHERE name = 'operator_notice'`)
	l := b.ledger("r1")
	claimed := handed(t, l, id, 3)
	require.Equal(t, 3, one[int](t, b, `SELECT count(*) FROM belfry.message_rows WHERE status = 'PROCESSING' AND lease_id = $1`, claimed[0].LeaseID))
	statuses, err := l.Settle(bg, each(claimed, sent), leasesOf(claimed))
	require.NoError(t, err)
	require.Equal(t, all(3, outbox.Sent), statuses)
}

// What a claim returns, and what is written behind the claims, is claimed by its due time.
func TestTake_FindsWhatIsBehindIt(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 6, job.Processed)
	claimed := claim(t, l, id, 6)
	settlements := each(claimed[:2], outbox.Release)
	settlements = append(settlements, outbox.Settlement{Claimed: claimed[2], To: outbox.Pending, Reason: outbox.ReasonRetry, NextAttempts: 1})
	_, err := l.Settle(bg, settlements, nil)
	require.NoError(t, err)
	j := job.Job{ID: id, Cursor: "not a number"}
	for _, ids := range [][]int64{{-3, -2}, {7, 8}, {10}, {9}, {11, 6_000}} {
		_, err := write(b.DB, outbox.Push{}, j, ids)
		require.NoError(t, err)
	}
	require.Equal(t, []int64{-3, -2, 1, 2, 3, 9}, stored(t, b.DB, `SELECT channel_id FROM belfry.message_rows WHERE job_id = $1 AND lease_id IS NOT NULL ORDER BY 1`, id))
	require.ElementsMatch(t, []int64{7, 8, 10, 11, 6000, 1, 2, 3, -3, -2, 9}, channelsOf(claim(t, l, id, 20)))
	require.Equal(t, map[string]int{"PROCESSING": 14}, b.Statuses(t, id))

	// The highest messages were erased. The claims have passed them.
	b.Exec(t, `DELETE FROM belfry.message_rows WHERE job_id = $1 AND channel_id > 100`, id)
	_, err = write(b.DB, outbox.Push{}, j, []int64{200})
	require.NoError(t, err)
	require.Equal(t, []int64{200}, channelsOf(claim(t, l, id, 10)))
	_, err = write(b.DB, outbox.Push{}, j, []int64{300, 7000})
	require.NoError(t, err)
	require.Equal(t, []int64{300, 7000}, channelsOf(claim(t, l, id, 10)), "the lowest channel of a chunk counts")
}

// Messages that were returned come first in one of a few claims, however many were never claimed.
func TestTake_DoesNotStarveReturnedMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	for name, next := range map[string]func(id int64, after outbox.Position) ([]outbox.Key, outbox.Position, error){
		"claim": func(id int64, after outbox.Position) (keys []outbox.Key, next outbox.Position, err error) {
			claimed, next, err := l.ClaimJob(bg, id, after, 5, outbox.AnyTry)
			for _, c := range claimed {
				keys = append(keys, c.Key)
			}
			return keys, next, err
		},
		"push": func(id int64, after outbox.Position) ([]outbox.Key, outbox.Position, error) {
			keys, _, next, err := l.QueueJob(bg, bulk, id, after, 5, outbox.AnyTry)
			return keys, next, err
		},
	} {
		id := b.Rest(t, outbox.TypePush, 100, job.Processed)
		b.Exec(t, `UPDATE belfry.message_rows SET lease_id = 0 WHERE job_id = $1 AND channel_id = 100`, id)
		var position outbox.Position
		found := 0
		for claims := 1; found == 0; claims++ {
			require.LessOrEqual(t, claims, 5, name)
			keys, after, err := next(id, position)
			require.NoError(t, err)
			require.True(t, after.More, name)
			for _, k := range keys {
				if k.ChannelID == 100 {
					found = claims
				}
			}
			position = after
		}
	}
}

// Claims step over cancelled messages in bounded steps, and stop at a message that is not due.
func TestTake_StepsOverCancelledMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	for name, next := range map[string]func(id int64, after outbox.Position) (int, outbox.Position, error){
		"claim": func(id int64, after outbox.Position) (int, outbox.Position, error) {
			claimed, next, err := l.ClaimJob(bg, id, after, 5, outbox.AnyTry)
			return len(claimed), next, err
		},
		"push": func(id int64, after outbox.Position) (int, outbox.Position, error) {
			keys, _, next, err := l.QueueJob(bg, bulk, id, after, 5, outbox.AnyTry)
			return len(keys), next, err
		},
	} {
		id := b.Rest(t, outbox.TypePush, 4110, job.Processed)
		b.Exec(t, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE job_id = $1 AND channel_id <= 4100`, id)
		b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() + interval '1 hour' WHERE job_id = $1 AND channel_id > 4103`, id)
		var position outbox.Position
		var err error
		claims, found := 0, 0
		for more := true; more; claims++ {
			var n int
			n, position, err = next(id, position)
			require.NoError(t, err)
			found += n
			require.Less(t, claims, 8, name)
			more = position.More
		}
		require.Equal(t, 3, found, name)
		require.Equal(t, int64(4103), one[int64](t, b, `SELECT claimed_to FROM belfry.job_claims WHERE job_id = $1`, id), name)
		b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() WHERE job_id = $1 AND channel_id > 4103`, id)
		n, _, err := next(id, outbox.Position{})
		require.NoError(t, err)
		require.Equal(t, 5, n, name)
	}
}

// A recall counts messages in flight as such, also without a change of their rows. Their attempt is the last.
func TestTake_RecallFindsMessagesInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 9, job.Processed)
	claimed := handed(t, l, id, 6)
	done, err := delivery.Recall(bg, b.DB.Pool, id, ann, nil)
	require.NoError(t, err)
	require.EqualValues(t, 3, done.Messages)
	require.EqualValues(t, 6, done.InFlight)
	verdicts, err := l.Recheck(bg, claimed)
	require.NoError(t, err)
	require.Equal(t, all(6, outbox.VerdictRecalled), verdicts)
	settlements := each(claimed[:3], sent)
	settlements = append(settlements, each(claimed[3:], outbox.Release)...)
	statuses, err := l.Settle(bg, settlements, leasesOf(claimed))
	require.NoError(t, err)
	require.Equal(t, append(all(3, outbox.Sent), all(3, outbox.Cancelled)...), statuses)
	require.Equal(t, map[string]int{"SENT": 3, "CANCELLED": 6}, b.Statuses(t, id))
	require.Empty(t, claim(t, l, id, 10))
}

// Claims wait for a statement that changes messages for another reason, also the first claim of a job, and then leave
// what it changed.
func TestTake_WaitsForARecall(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	l.WaitForClaims()
	for _, begun := range []bool{true, false} {
		id := b.Rest(t, outbox.TypePush, 5, job.Processed)
		if begun {
			b.Exec(t, `INSERT INTO belfry.job_claims (job_id) VALUES ($1)`, id)
		}
		tx, err := b.DB.Pool.Begin(bg)
		require.NoError(t, err)
		require.NoError(t, outbox.OwnClaimedTx(bg, tx, id, math.MinInt64, 1000))
		type result struct {
			claimed []outbox.Claimed
			err     error
		}
		ended := make(chan result, 1)
		go func() {
			claimed, _, err := l.ClaimJob(bg, id, outbox.Position{}, 10, outbox.AnyTry)
			ended <- result{claimed, err}
		}()
		b.Eventually(t, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database()))
			OR EXISTS (SELECT FROM belfry.job_claims WHERE job_id = $1 AND claimed_to IS NOT NULL)`, id)
		_, err = tx.Exec(bg, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE job_id = $1 AND channel_id < 4`, id)
		require.NoError(t, err)
		require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_claims WHERE job_id = $1 AND claimed_to IS NOT NULL`, id))
		require.NoError(t, tx.Commit(bg))
		select {
		case r := <-ended:
			require.NoError(t, r.err)
			verdicts, err := l.Recheck(bg, r.claimed)
			require.NoError(t, err)
			sendable := []int64{}
			for i, c := range r.claimed {
				if verdicts[i] == outbox.VerdictSend {
					sendable = append(sendable, c.ChannelID)
				}
			}
			require.Equal(t, []int64{4, 5}, sendable)
			require.Equal(t, map[string]int{"CANCELLED": 3, "PROCESSING": 2}, b.Statuses(t, id))
		case <-time.After(patience):
			t.Fatal("the claim does not end")
		}
	}
}

// A settlement needs the lease of its claim: after a recovery, or when a crash of the server lost the claim, the message
// belongs to another.
func TestTake_SettlesUnderItsLeaseOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 4, job.Processed)
	claimed := handed(t, l, id, 4)
	forged := claimed[0]
	forged.LeaseID++
	verdicts, err := l.Recheck(bg, []outbox.Claimed{forged})
	require.NoError(t, err)
	require.Equal(t, all(1, outbox.VerdictLost), verdicts)
	for _, settle := range []func(outbox.Claimed) outbox.Settlement{sent, outbox.Release} {
		statuses, err := l.Settle(bg, []outbox.Settlement{settle(forged)}, nil)
		require.NoError(t, err)
		require.Equal(t, []outbox.Status{""}, statuses)
	}
	// The crash of the server loses both writes of the claim.
	b.Exec(t, `DELETE FROM belfry.handovers`)
	b.Exec(t, `DELETE FROM belfry.leases`)
	b.Exec(t, `UPDATE belfry.job_claims SET claimed_to = NULL`)
	verdicts, err = l.Recheck(bg, claimed)
	require.NoError(t, err)
	require.Equal(t, all(4, outbox.VerdictLost), verdicts)
	statuses, err := l.Settle(bg, append(each(claimed[:2], sent), each(claimed[2:], outbox.Release)...), nil)
	require.NoError(t, err)
	require.Equal(t, all(4, outbox.Status("")), statuses)
	require.Equal(t, map[string]int{"PENDING": 4}, b.Statuses(t, id))
}

// A copy never takes a message that its job's claims may take at the same time, and a sample does by holding them.
func TestTake_CopiesLeaveWhatWasNeverClaimed(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 6, job.Processed)
	claimed := claim(t, l, id, 2)
	require.Equal(t, []int64{1, 2}, channelsOf(claimed))
	keys := []outbox.Key{{JobID: id, ChannelID: 1}, {JobID: id, ChannelID: 4}}
	require.Equal(t, []outbox.CopyVerdict{outbox.CopyAnother, outbox.CopyNotQueued}, verdicts(t, l, copiesOf(1, keys...)))
	sample, err := l.ClaimKeys(bg, keys)
	require.NoError(t, err)
	require.Equal(t, []int64{4}, channelsOf(sample))
	require.Equal(t, []int64{3, 5, 6}, channelsOf(claim(t, l, id, 10)))
}

// A relay takes no first attempt with a medium that it does not serve.
func TestTake_ServesTheFirstMedium(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	push, sms := b.serving("push"), b.serving("sms")
	id := b.Rest(t, outbox.TypePush, 2, job.Processed)
	b.Past(t, `UPDATE belfry.jobs SET route = '{push,sms}' WHERE id = $1`, id)
	require.Empty(t, claim(t, sms, id, 10))
	require.Len(t, claim(t, push, id, 10), 2)
}

// A session that keeps a message locked does not stop the settlement of others with it.
func TestTake_SettlesBesideALockedMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 4, job.Processed)
	claimed := handed(t, l, id, 4)
	other, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	_, err = other.Exec(bg, `SELECT FROM belfry.message_rows WHERE job_id = $1 AND channel_id = 2 FOR UPDATE`, id)
	require.NoError(t, err)
	for _, settle := range []func(context.Context, []outbox.Settlement, []int64) ([]outbox.Status, error){l.Settle, l.SettleUnlocked} {
		statuses, err := settle(bg, each(claimed, sent), leasesOf(claimed))
		require.ErrorIs(t, err, outbox.ErrRowsLocked)
		var locked *outbox.LockedError
		require.ErrorAs(t, err, &locked)
		require.Equal(t, []int{1}, locked.Settlements)
		require.Equal(t, []outbox.Status{outbox.Sent, "", outbox.Sent, outbox.Sent}, statuses)
		require.Equal(t, map[string]int{"SENT": 3, "PROCESSING": 1}, b.Statuses(t, id))
	}
	require.NoError(t, other.Rollback(bg))
	statuses, err := l.Settle(bg, each(claimed, sent), leasesOf(claimed))
	require.NoError(t, err)
	require.Equal(t, all(4, outbox.Sent), statuses)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`))
}

// A claim does not wait for long for a session that holds the claims of its job, and takes what was returned.
func TestTake_GivesUpHeldClaims(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 4, job.Processed)
	tx, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	require.NoError(t, outbox.OwnClaimedTx(bg, tx, id, math.MinInt64, 1000))
	began := time.Now()
	_, _, err = l.ClaimJob(bg, id, outbox.Position{}, 10, outbox.AnyTry)
	require.ErrorIs(t, err, job.ErrLocked)
	_, _, _, err = l.QueueJob(bg, bulk, id, outbox.Position{}, 10, outbox.AnyTry)
	require.ErrorIs(t, err, job.ErrLocked)
	require.Less(t, time.Since(began), 9*time.Second, "other statements wait for 10 s each")
	b.Exec(t, `UPDATE belfry.message_rows SET lease_id = 0 WHERE job_id = $1 AND channel_id > 2`, id)
	require.Equal(t, []int64{3, 4}, channelsOf(claim(t, l, id, 10)))
	require.NoError(t, tx.Rollback(bg))
	require.Equal(t, []int64{1, 2}, channelsOf(claim(t, l, id, 10)))
}
