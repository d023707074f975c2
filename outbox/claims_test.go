package outbox_test

import (
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// takers are a claim and a push of messages that were never claimed. They return the channels.
func takers(l *outbox.Ledger, bulk outbox.PushQueue) map[string]func(id int64, after outbox.Position, limit int) ([]int64, outbox.Position, error) {
	return map[string]func(int64, outbox.Position, int) ([]int64, outbox.Position, error){
		"claim": func(id int64, after outbox.Position, limit int) ([]int64, outbox.Position, error) {
			claimed, next, err := l.ClaimJob(bg, id, after, limit, outbox.AnyTry)
			return channelsOf(claimed), next, err
		},
		"push": func(id int64, after outbox.Position, limit int) (channels []int64, next outbox.Position, err error) {
			keys, _, next, err := l.QueueJob(bg, bulk, id, after, limit, outbox.AnyTry)
			for _, k := range keys {
				channels = append(channels, k.ChannelID)
			}
			return channels, next, err
		},
	}
}

// A claim that examines more messages than it may take leaves the others to the next one.
func TestTake_LeavesWhatItExaminedOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	for name, next := range takers(l, bulk) {
		id := b.Rest(t, outbox.TypePush, 40, job.Processed)
		b.Exec(t, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE job_id = $1 AND channel_id <= 5`, id)
		want := stored(t, b.DB, `SELECT g FROM generate_series(6, 40) g`)
		position := outbox.Position{More: true}
		var found []int64
		for calls := 0; position.More; calls++ {
			require.Less(t, calls, 15, name)
			channels, after, err := next(id, position, 5)
			require.NoError(t, err)
			found, position = append(found, channels...), after
		}
		require.Equal(t, want, found, name)
	}
}

// A message that waits for its retry stops no message that was never claimed.
func TestTake_PassesReturnedMessagesThatAreNotDue(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	for name, next := range takers(l, bulk) {
		id := b.Rest(t, outbox.TypePush, 6, job.Processed)
		b.Exec(t, `UPDATE belfry.message_rows SET lease_id = 0, next_attempt_at = now() + interval '1 hour' WHERE job_id = $1 AND channel_id = 3`, id)
		channels, _, err := next(id, outbox.Position{}, 10)
		require.NoError(t, err)
		require.Equal(t, []int64{1, 2, 4, 5, 6}, channels, name)
	}
}

// I6: what may not be sent is not claimed, and the claims do not pass it.
func TestTake_LeavesWhatIsHeld(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	aborted, paused, waits := b.Rest(t, outbox.TypePush, 3, job.Aborted), b.Rest(t, outbox.TypePush, 3, job.Processed), b.Rest(t, outbox.TypePush, 3, job.Processed)
	b.Past(t, `UPDATE belfry.jobs SET lane = 'slow' WHERE id = $1`, paused)
	b.Exec(t, `INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('slow', now(), 'ann')`)
	b.Exec(t, `UPDATE belfry.jobs SET needs_approval = true WHERE id = $1`, waits)
	for name, next := range takers(l, bulk) {
		for how, id := range map[string]int64{"aborted": aborted, "lane paused": paused, "awaits approval": waits, "no job": 1_000_000} {
			channels, _, err := next(id, outbox.Position{}, 10)
			require.NoError(t, err)
			require.Empty(t, channels, "%s: %s", name, how)
		}
	}
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_claims WHERE claimed_to IS NOT NULL`))
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	b.Exec(t, `UPDATE belfry.installation SET halted_at = now(), halted_by = 'ann'`)
	for name, next := range takers(l, bulk) {
		channels, _, err := next(id, outbox.Position{}, 10)
		require.NoError(t, err)
		require.Empty(t, channels, "%s: halted", name)
	}
	require.Equal(t, map[string]int{"PENDING": 3}, b.Statuses(t, id))
}

// A claim waits for no message that another session keeps locked, in a category with a cap neither.
func TestTake_WaitsForNoLockedMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	b.Exec(t, `UPDATE belfry.categories SET cap = 1, cap_window = '1 day' WHERE name = 'operator_notice'`)
	other, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	_, err = other.Exec(bg, `SELECT FROM belfry.message_rows WHERE job_id = $1 AND channel_id = 2 FOR UPDATE`, id)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 3}, channelsOf(claim(t, l, id, 3)))
	require.NoError(t, other.Rollback(bg))
	require.Equal(t, map[string]int{"PROCESSING": 3}, b.Statuses(t, id))
	require.Equal(t, []int64{2}, stored(t, b.DB, `SELECT channel_id FROM belfry.message_rows WHERE job_id = $1 AND status = 'PENDING'`, id))
}

// A message that another session has locked does not hold up those after it.
func TestTake_PushesPassALockedMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 5, job.Processed)
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE job_id = $1 AND channel_id = 2`, id)
	other, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	_, err = other.Exec(bg, `SELECT FROM belfry.message_rows WHERE job_id = $1 AND channel_id = 3 FOR UPDATE`, id)
	require.NoError(t, err)
	keys, push := queued(t, l, bulk, id, 10)
	require.Len(t, keys, 4)
	require.Equal(t, map[string]int{"QUEUED": 4, "CANCELLED": 1}, b.Statuses(t, id))
	require.Equal(t, all(4, outbox.CopyClaimed), verdicts(t, l, copiesOf(push, keys...)))
	require.Equal(t, map[string]int{"PROCESSING": 4, "CANCELLED": 1}, b.Statuses(t, id))
	require.Equal(t, 4, one[int](t, b, `SELECT count(*) FROM belfry.message_rows WHERE job_id = $1 AND status = 'PENDING'`, id), "their rows are as they were")
	require.NoError(t, other.Rollback(bg))
}

// The claims do not pass messages that a relay could not push, because it leads no longer.
func TestTake_PassesNothingWithoutAPush(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	_, bulk := lead(t, b.ledger("r1"))
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	keys, push := queued(t, b.ledger("r2"), bulk, id, 10)
	require.Empty(t, keys)
	require.Zero(t, push)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.job_claims WHERE claimed_to IS NOT NULL`))
	require.Equal(t, []int64{1, 2, 3}, channelsOf(claim(t, b.ledger("r3"), id, 10)))
}

// Messages that a carrier returns were claimed: the claims have passed them.
func TestTake_CarriersReturnClaimedMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	for how, back := range map[string]func(id int64, keys []outbox.Key, push int64){
		"lost by the carrier": func(_ int64, _ []outbox.Key, push int64) {
			b.Exec(t, `UPDATE belfry.pushes SET made_at = now() - interval '1 hour'`)
			_, err := l.Unqueue(bg, bulk, push+1, time.Minute, 10)
			require.NoError(t, err)
		},
		"no relay leads": func(int64, []outbox.Key, int64) {
			require.NoError(t, l.StopLeading(bg))
			_, err := l.Unserved(bg, 10)
			require.NoError(t, err)
			lead(t, l)
		},
		"held": func(id int64, keys []outbox.Key, push int64) {
			b.Exec(t, `SELECT belfry.abort($1)`, id)
			require.Equal(t, all(3, outbox.CopyHeld), verdicts(t, l, copiesOf(push, keys...)))
			b.Exec(t, `SELECT belfry.resume($1)`, id)
		},
	} {
		id := b.Rest(t, outbox.TypePush, 3, job.Processed)
		keys, push := queued(t, l, bulk, id, 3)
		require.Len(t, keys, 3)
		b.Exec(t, `UPDATE belfry.message_rows SET lease_id = NULL WHERE job_id = $1`, id)
		back(id, keys, push)
		require.Equal(t, map[string]int{"PENDING": 3}, b.Statuses(t, id), how)
		require.Len(t, claim(t, l, id, 10), 3, how)
	}
}

// A push waits for a statement that changes messages for another reason, as a claim does, and leaves what that cancelled.
func TestTake_PushesWaitForARecall(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	l.WaitForClaims()
	_, bulk := lead(t, l)
	for _, cancelled := range []int{2, 3} {
		id := b.Rest(t, outbox.TypePush, 5, job.Processed)
		b.Exec(t, `INSERT INTO belfry.job_claims (job_id) VALUES ($1)`, id)
		tx, err := b.DB.Pool.Begin(bg)
		require.NoError(t, err)
		require.NoError(t, outbox.OwnClaimedTx(bg, tx, id, math.MinInt64, 1000))
		ended := make(chan error, 1)
		var keys []outbox.Key
		var push int64
		go func() {
			var err error
			keys, push, _, err = l.QueueJob(bg, bulk, id, outbox.Position{}, 10, outbox.AnyTry)
			ended <- err
		}()
		b.waits(t)
		_, err = tx.Exec(bg, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE job_id = $1 AND channel_id <= $2`, id, cancelled)
		require.NoError(t, err)
		require.NoError(t, tx.Commit(bg))
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(patience):
			t.Fatal("the push does not end")
		}
		require.Len(t, keys, 5-cancelled, "it sees what was cancelled")
		require.Equal(t, all(5-cancelled, outbox.CopyClaimed), verdicts(t, l, copiesOf(push, keys...)))
		require.Zero(t, one[int](t, b, `SELECT queued FROM belfry.pushes WHERE queue = 'bulk' AND number = $1`, push))
		require.Equal(t, map[string]int{"CANCELLED": cancelled, "PROCESSING": 5 - cancelled}, b.Statuses(t, id))
	}
}

// A claim waits for another one of the job, and begins where that ended.
func TestTake_WaitsForAnotherClaim(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	l.WaitForClaims()
	id := b.Rest(t, outbox.TypePush, 5, job.Processed)
	b.Exec(t, `INSERT INTO belfry.job_claims (job_id) VALUES ($1)`, id)
	tx, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	_, err = tx.Exec(bg, `UPDATE belfry.job_claims SET claimed_to = 3 WHERE job_id = $1`, id)
	require.NoError(t, err)
	ended := make(chan []outbox.Claimed, 1)
	go func() {
		claimed, _, _ := l.ClaimJob(bg, id, outbox.Position{}, 10, outbox.AnyTry)
		ended <- claimed
	}()
	b.waits(t)
	require.NoError(t, tx.Commit(bg))
	select {
	case claimed := <-ended:
		require.Equal(t, []int64{4, 5}, channelsOf(claimed))
	case <-time.After(patience):
		t.Fatal("the claim does not end")
	}
}

// A late result of a receipt does not find a message that has no lease any more.
func TestTake_ReceiptsFindNoReturnedMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 1, job.Processed)
	b.returned(t)
	statuses, err := b.ledger("r1").Settle(bg, []outbox.Settlement{{Claimed: outbox.Claimed{Key: outbox.Key{JobID: id, ChannelID: 1}}, To: outbox.Sent, Receipt: "r-1"}}, nil)
	require.NoError(t, err)
	require.Equal(t, []outbox.Status{""}, statuses)
}

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

// A copy of an activity's message is claimed as soon as it is due, and a sample contains nothing that is due later.
func TestTake_CopiesOfActivitiesAndSamplesAreDue(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	activity := b.ActivitiesFor(t, 1)[0]
	require.Equal(t, all(1, outbox.CopyClaimed), verdicts(t, l, copiesOf(1, outbox.Key{JobID: activity, ChannelID: 1})))
	id := b.Rest(t, outbox.TypePush, 2, job.Processed)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() + interval '1 hour' WHERE job_id = $1 AND channel_id = 2`, id)
	sample, err := l.ClaimKeys(bg, []outbox.Key{{JobID: id, ChannelID: 1}, {JobID: id, ChannelID: 2}})
	require.NoError(t, err)
	require.Equal(t, []int64{1}, channelsOf(sample))
}

// A recheck finds messages in flight at their positions, and those that were returned neither there nor by their keys.
func TestTake_RechecksWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 4, job.Processed)
	claimed := handed(t, l, id, 4)
	_, err := l.Settle(bg, each(claimed[2:], outbox.Release), nil)
	require.NoError(t, err)
	for name, args := range map[string]pgx.StrictNamedArgs{
		"positions": {"tids": one[[]pgtype.TID](t, b, `SELECT array_agg(ctid) FROM belfry.message_rows WHERE job_id = $1`, id), "job_ids": []int64{}, "channel_ids": []int64{}},
		"keys":      {"tids": []pgtype.TID{}, "job_ids": all(4, id), "channel_ids": []int64{1, 2, 3, 4}},
	} {
		args["leases"], args["jobs"] = leasesOf(claimed), []int64{id}
		var channels []int64
		require.NoError(t, b.DB.Pool.QueryRow(bg, outbox.Statement("MessageRecheck"), args).Scan(nil, nil, nil, nil, nil, &channels, nil, nil, nil))
		require.ElementsMatch(t, []int64{1, 2}, channels, name)
	}
}

// waits returns when a session waits for a lock.
func (b *bundle) waits(t *testing.T) {
	t.Helper()
	b.Eventually(t, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database()))`)
}

// A settlement that waits for a recovery changes nothing after it.
func TestTake_SettlesNothingThatWasTakenBackMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	l.WaitForMessages()
	for name, settle := range map[string]func(outbox.Claimed) outbox.Settlement{"sent": sent, "released": outbox.Release} {
		id := b.Rest(t, outbox.TypePush, 2, job.Processed)
		claimed := handed(t, l, id, 2)
		tx, err := b.DB.Pool.Begin(bg)
		require.NoError(t, err)
		_, err = tx.Exec(bg, `UPDATE belfry.message_rows SET lease_id = 0, crashes = 1 WHERE job_id = $1`, id)
		require.NoError(t, err)
		_, err = tx.Exec(bg, `DELETE FROM belfry.leases WHERE id = $1`, claimed[0].LeaseID)
		require.NoError(t, err)
		ended := make(chan []outbox.Status, 1)
		go func() {
			statuses, _ := l.Settle(bg, each(claimed, settle), nil)
			ended <- statuses
		}()
		b.waits(t)
		require.NoError(t, tx.Commit(bg))
		select {
		case statuses := <-ended:
			require.Equal(t, all(2, outbox.Status("")), statuses, name)
		case <-time.After(patience):
			t.Fatal("the settlement does not end")
		}
		require.Equal(t, 2, one[int](t, b, `SELECT count(*) FROM belfry.message_rows WHERE job_id = $1 AND status = 'PENDING' AND lease_id = 0`, id), name)
	}
}

// A settlement waits for a session that locks a message for a short time.
func TestTake_SettlesAfterAShortLock(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	l.WaitForMessages()
	id := b.Rest(t, outbox.TypePush, 2, job.Processed)
	claimed := handed(t, l, id, 2)
	other, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	_, err = other.Exec(bg, `SELECT FROM belfry.message_rows WHERE job_id = $1 AND channel_id = 2 FOR UPDATE`, id)
	require.NoError(t, err)
	ended := make(chan []outbox.Status, 1)
	go func() {
		statuses, _ := l.Settle(bg, each(claimed, outbox.Release), nil)
		ended <- statuses
	}()
	b.waits(t)
	require.NoError(t, other.Rollback(bg))
	select {
	case statuses := <-ended:
		require.Equal(t, all(2, outbox.Pending), statuses)
	case <-time.After(patience):
		t.Fatal("the settlement does not end")
	}
}

// The statement for plain successes settles messages in flight whose rows were never changed, and no others.
func TestTake_SentIsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 4, job.Processed)
	claimed := handed(t, l, id, 4)
	_, err := l.Settle(bg, []outbox.Settlement{outbox.Release(claimed[1])}, nil)
	require.NoError(t, err)
	numbers := make([]int64, 0, 4)
	lease := claimed[0].LeaseID
	require.NoError(t, b.DB.Pool.QueryRow(bg, outbox.Statement("MessagesSent"), pgx.StrictNamedArgs{
		"lease_ids": []int64{lease, lease, lease + 1, lease}, "job_ids": []int64{id, id, id, id}, "channel_ids": []int64{1, 2, 3, 4},
		"tids":   one[[]pgtype.TID](t, b, `SELECT array_agg(ctid) FROM belfry.message_rows WHERE job_id = $1`, id),
		"leases": []int64{lease, lease + 1}, "attempts": []int16{1, 1, 1, 1}, "receipts": []string{"", "", "", ""}, "senders": []string{"", "", "", ""},
	}).Scan(&numbers, nil))
	require.ElementsMatch(t, []int64{1, 4}, numbers)
	require.Equal(t, map[string]int{"SENT": 2, "PENDING": 1, "PROCESSING": 1}, b.Statuses(t, id))
}

// A lease ends beside messages that nobody has claimed, although their channels lie between those of its messages.
func TestTake_LeasesEndBesideUnclaimedMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 5, job.Processed)
	claim(t, l, id, 1)
	sample, err := l.ClaimKeys(bg, []outbox.Key{{JobID: id, ChannelID: 2}, {JobID: id, ChannelID: 4}})
	require.NoError(t, err)
	require.Len(t, sample, 2)
	handOver(t, l, sample, nil)
	statuses, err := l.Settle(bg, each(sample, sent), leasesOf(sample))
	require.NoError(t, err)
	require.Equal(t, all(2, outbox.Sent), statuses)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases WHERE id = $1`, sample[0].LeaseID))
}

// The message of an activity is in flight by its row alone, whatever leases contain its key.
func TestTake_ActivitiesAreInFlightByTheirRows(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	activities := b.ActivitiesFor(t, 2)
	lease := func(in string, keys ...outbox.Key) int64 {
		k := make([][2]int64, 0, len(keys))
		for _, key := range keys {
			k = append(k, [2]int64{key.JobID, key.ChannelID})
		}
		return one[int64](t, b, `INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids)
			SELECT 1 + (SELECT coalesce(max(id), 0) FROM belfry.leases), 'r1', now() + $1::interval, array_agg(k[1]), array_agg(k[2])
			  FROM (SELECT ARRAY(SELECT e::bigint FROM jsonb_array_elements_text(p) e) AS k FROM jsonb_array_elements($2::jsonb) p) s RETURNING id`, in, k)
	}
	first, second := outbox.Key{JobID: activities[0], ChannelID: 1}, outbox.Key{JobID: activities[1], ChannelID: 2}
	for _, keys := range [][]outbox.Key{{first}, {first, second}} { // one range of keys, and several
		id := lease("1 hour", keys...)
		statuses, err := l.Settle(bg, []outbox.Settlement{outbox.Release(outbox.Claimed{Key: first, LeaseID: id})}, []int64{id})
		require.NoError(t, err)
		require.Equal(t, []outbox.Status{""}, statuses)
		require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`))
	}
	// Beside a message that was never changed and is locked.
	id := b.Rest(t, outbox.TypePush, 1, job.Processed)
	require.Len(t, claim(t, l, id, 1), 1)
	b.Exec(t, `DELETE FROM belfry.leases`)
	lease("-1 second", first, outbox.Key{JobID: id, ChannelID: 1})
	lost, err := l.Lost(bg, nil, nil, 10)
	require.NoError(t, err)
	require.Len(t, lost, 1)
	require.Equal(t, 1, lost[0].Unhanded)
	other, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	_, err = other.Exec(bg, `SELECT FROM belfry.message_rows WHERE job_id = $1 FOR UPDATE`, id)
	require.NoError(t, err)
	r, err := l.Recover(bg, lost[0], nil)
	require.NoError(t, err)
	require.Equal(t, outbox.Recovered{Left: 1, Statuses: []outbox.Status{}}, r)
	require.NoError(t, other.Rollback(bg))
	r, err = l.Recover(bg, lost[0], nil)
	require.NoError(t, err)
	require.Equal(t, outbox.Recovered{Released: 1, Statuses: []outbox.Status{}}, r)
	require.Equal(t, 2, one[int](t, b, `SELECT count(*) FROM belfry.message_rows WHERE job_id < 0 AND lease_id IS NULL`))
}

// Messages that were never claimed have no attempt.
func TestTake_LaterTriesLeaveWhatWasNeverClaimed(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	claimed, _, err := l.ClaimJob(bg, id, outbox.Position{}, 10, outbox.LaterTry)
	require.NoError(t, err)
	require.Empty(t, claimed)
	keys, _, _, err := l.QueueJob(bg, bulk, id, outbox.Position{}, 10, outbox.LaterTry)
	require.NoError(t, err)
	require.Empty(t, keys)
	require.Equal(t, map[string]int{"PENDING": 3}, b.Statuses(t, id))
}

// The position after a claim or a push is not the beginning, so that the next one is not as rare as those from there.
func TestTake_GoesOnFromAPosition(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	for name, next := range takers(l, bulk) {
		id := b.Rest(t, outbox.TypePush, 3, job.Processed)
		var position outbox.Position
		for _, want := range []int{3, 0} {
			channels, after, err := next(id, position, 5)
			require.NoError(t, err)
			require.Len(t, channels, want, name)
			require.NotEqual(t, outbox.Position{}, after, name)
			position = after
		}
	}
}

// A claim that has taken messages returns them, although its second statement failed.
func TestTake_ReturnsWhatItTookBeforeAnError(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 4, job.Processed)
	b.Exec(t, `UPDATE belfry.message_rows SET lease_id = 0 WHERE job_id = $1 AND channel_id = 2`, id)
	b.Exec(t, `ALTER TABLE belfry.message_rows ADD CONSTRAINT broken CHECK (status <> 'PROCESSING')`)
	require.Equal(t, []int64{1, 3, 4}, channelsOf(claim(t, l, id, 10)))
	_, _, err := l.ClaimJob(bg, id, outbox.Position{}, 10, outbox.AnyTry)
	require.Error(t, err)
}
