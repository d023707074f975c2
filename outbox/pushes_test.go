package outbox_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// begun begins a transaction with a statement, and returns its end.
func (b *bundle) begun(t *testing.T, statement string, args ...any) (end func()) {
	t.Helper()
	tx, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	_, err = tx.Exec(bg, statement, args...)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(bg)) }
}

// unchanged counts the messages of a job whose rows are as they were written.
func (b *bundle) unchanged(t *testing.T, id int64) int {
	t.Helper()
	return one[int](t, b, `SELECT count(*) FROM belfry.message_rows WHERE job_id = $1 AND status = 'PENDING' AND lease_id IS NULL AND push IS NULL`, id)
}

// keysLeft returns the keys in the pushes of the bulk queue, by their number.
func (b *bundle) keysLeft(t *testing.T) string {
	t.Helper()
	return one[string](t, b, `SELECT coalesce(string_agg(number || ':' || channel_ids::text, ' ' ORDER BY number), '') FROM belfry.pushes WHERE queue = 'bulk' AND queued > 0`)
}

// A push and its claims change no row, and a copy is claimed once.
func TestPush_IsClaimedWithoutChangesOfRows(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	one, two := b.ledger("r1"), b.ledger("r2")
	_, bulk := lead(t, one)
	id := b.Rest(t, outbox.TypePush, 6, job.Processed)
	keys, push := queued(t, one, bulk, id, 4)
	require.Equal(t, map[string]int{"QUEUED": 4, "PENDING": 2}, b.Statuses(t, id))
	require.Equal(t, "1:{1,2,3,4}", b.keysLeft(t))
	require.Equal(t, all(2, outbox.CopyClaimed), verdicts(t, one, copiesOf(push, keys[1:3]...)))
	require.Equal(t, "1:{1,4}", b.keysLeft(t))
	require.Equal(t, all(2, outbox.CopyAnother), verdicts(t, two, copiesOf(push, keys[1:3]...)))
	require.Equal(t, all(2, outbox.CopyClaimed), verdicts(t, two, copiesOf(push, keys[0], keys[3])))
	require.Empty(t, b.keysLeft(t))
	require.Equal(t, map[string]int{"PROCESSING": 4, "PENDING": 2}, b.Statuses(t, id))
	require.Equal(t, 6, b.unchanged(t, id))
	left, lane, err := one.QueuedBy(bg, bulk, push)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Empty(t, lane)
}

// While messages wait that were never claimed, each push in a row has as many as it may: none is spent on a search for
// messages that were returned.
func TestPush_EachInARowIsFull(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 20, job.Processed)
	var at outbox.Position
	for range 10 {
		keys, _, next, err := l.QueueJob(bg, bulk, id, at, 2, outbox.AnyTry)
		require.NoError(t, err)
		require.Len(t, keys, 2)
		at = next
	}
}

// Copies of messages of both kinds, of several pushes and jobs, are claimed by one call.
func TestPush_CopiesOfSeveralPushesAreClaimedTogether(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	var copies []outbox.Copy
	var jobs []int64
	for range 2 {
		id := b.Rest(t, outbox.TypePush, 4, job.Processed)
		b.Exec(t, `UPDATE belfry.message_rows SET lease_id = 0, step = 1 WHERE job_id = $1 AND channel_id = 4`, id)
		for range 2 { // 1 and 2 of one push, 3 of the next, and 4 of another
			keys, push := queued(t, l, bulk, id, 2)
			copies = append(copies, copiesOf(push, keys...)...)
		}
		keys, push := queued(t, l, bulk, id, 2)
		copies, jobs = append(copies, copiesOf(push, keys...)...), append(jobs, id)
	}
	require.Len(t, copies, 8)
	slices.Reverse(copies)
	answers, err := l.ClaimCopies(bg, copies)
	require.NoError(t, err)
	leases := map[int64]bool{}
	for i, a := range answers {
		require.Equal(t, outbox.CopyClaimed, a.Verdict)
		require.Equal(t, copies[i].Key, a.Claimed.Key)
		require.Equal(t, "default", a.Claimed.Lane)
		require.Equal(t, a.Claimed.ChannelID == 4, a.Claimed.Step == 1)
		leases[a.Claimed.LeaseID] = true
	}
	require.Len(t, leases, 2, "one for those that were never changed")
	claimed := make([]outbox.Claimed, len(answers))
	for i, a := range answers {
		claimed[i] = a.Claimed
	}
	statuses, err := l.Settle(bg, each(claimed, sent), leasesOf(claimed))
	require.NoError(t, err)
	require.Equal(t, all(8, outbox.Sent), statuses)
	for _, id := range jobs {
		require.Equal(t, map[string]int{"SENT": 4}, b.Statuses(t, id))
	}
}

// Relays that claim different copies of one push wait for each other, and none loses a key or claims one of another.
func TestPush_RelaysShareOne(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 400, job.Processed)
	keys, push := queued(t, l, bulk, id, 400)
	var relays sync.WaitGroup
	for i := range 4 {
		relays.Go(func() {
			l := b.ledger(fmt.Sprint("relay", i))
			for at := i * 10; at < len(keys); at += 40 {
				copies := copiesOf(push, keys[at:at+10]...)
				for len(copies) > 0 {
					answers, err := l.ClaimCopies(bg, copies)
					if err != nil {
						t.Error(err)
						return
					}
					var later []outbox.Copy
					for i, a := range answers {
						if a.Verdict == outbox.CopyLater {
							later = append(later, copies[i])
						}
					}
					copies = later
				}
			}
		})
	}
	relays.Wait()
	require.Empty(t, b.keysLeft(t))
	require.Equal(t, 400, one[int](t, b, `SELECT count(DISTINCT c) FROM belfry.leases, unnest(channel_ids) c`))
	require.Equal(t, 400, one[int](t, b, `SELECT sum(cardinality(channel_ids)) FROM belfry.leases`))
	require.Equal(t, 400, b.unchanged(t, id))
}

// A session that holds a push delays its copies only, and does not drop them.
func TestPush_CopiesOfALockedPushComeLater(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	returned := b.Rest(t, outbox.TypePush, 1, job.Processed)
	b.returned(t)
	id := b.Rest(t, outbox.TypePush, 4, job.Processed)
	other, push := queued(t, l, bulk, returned, 1)
	copies := copiesOf(push, other...)
	keys, push := queued(t, l, bulk, id, 2)
	copies = append(copies, copiesOf(push, keys...)...)
	end := b.begun(t, `SELECT FROM belfry.pushes WHERE number = $1 FOR UPDATE`, push)
	for _, hold := range []string{`SELECT 1 WHERE $1 > 0`, `SELECT belfry.abort($1)`} {
		b.Exec(t, hold, id)
		began := time.Now()
		answers, err := l.ClaimCopies(bg, copies[1:])
		require.NoError(t, err)
		require.Equal(t, outbox.CopyLater, answers[0].Verdict)
		require.Equal(t, outbox.CopyLater, answers[1].Verdict)
		require.Less(t, time.Since(began), 9*time.Second, "other statements wait for 10 s")
	}
	b.Exec(t, `SELECT belfry.resume($1)`, id)
	require.Equal(t, []outbox.CopyVerdict{outbox.CopyClaimed, outbox.CopyLater, outbox.CopyLater}, verdicts(t, l, copies))
	end()
	require.Equal(t, all(2, outbox.CopyClaimed), verdicts(t, l, copies[1:]))
}

// A recall locks the pushes of the messages that it examines, and no others.
func TestPush_IsNotClaimedDuringARecall(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 10, job.Processed)
	var copies []outbox.Copy
	for range 3 { // 1 to 3, 4 to 6, 7 to 9
		keys, push := queued(t, l, bulk, id, 3)
		copies = append(copies, copiesOf(push, keys...)...)
	}
	require.Equal(t, []int64{1, 1, 1, 2, 2, 2, 3, 3, 3}, stored(t, b.DB, `SELECT push FROM belfry.messages WHERE job_id = $1 AND status = 'QUEUED' ORDER BY channel_id`, id))
	tx, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	require.NoError(t, outbox.OwnClaimedTx(bg, tx, id, 3, 3))
	rows, err := tx.Query(bg, `SELECT channel_id FROM belfry.message_rows WHERE job_id = $1 AND status = 'QUEUED' AND push = 2`, id)
	require.NoError(t, err)
	shown, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	require.ElementsMatch(t, []int64{4, 5, 6}, shown, "in their rows")
	require.Equal(t, outbox.CopyClaimed, verdicts(t, l, copies[0:1])[0], "before them")
	require.Equal(t, all(3, outbox.CopyLater), verdicts(t, l, copies[3:6]))
	require.Equal(t, outbox.CopyClaimed, verdicts(t, l, copies[8:9])[0], "after them")
	_, err = tx.Exec(bg, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE job_id = $1 AND channel_id = ANY ('{4,5}')`, id)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(bg))
	require.Equal(t, []outbox.CopyVerdict{outbox.CopyFinished, outbox.CopyFinished, outbox.CopyClaimed}, verdicts(t, l, copies[3:6]))
	require.Equal(t, "1:{2,3} 3:{7,8}", b.keysLeft(t))

	tx, err = b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	require.NoError(t, outbox.OwnClaimedTx(bg, tx, id, math.MinInt64, 1000))
	require.Equal(t, all(2, outbox.CopyLater), verdicts(t, l, copies[6:8]), "more keys than there are")
	require.NoError(t, tx.Rollback(bg))
}

// A recall waits for a claim from the pushes that it examines.
func TestPush_ARecallWaitsForAClaim(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	queued(t, l, bulk, id, 3)
	end := b.begun(t, `SELECT FROM belfry.pushes WHERE number = 1 FOR UPDATE`)
	tx, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	owned := make(chan error, 1)
	go func() { owned <- outbox.OwnClaimedTx(bg, tx, id, math.MinInt64, 10) }()
	b.waits(t)
	end()
	require.NoError(t, <-owned)
	require.NoError(t, tx.Commit(bg))
	require.Empty(t, b.keysLeft(t))
	require.Equal(t, map[string]int{"QUEUED": 3}, b.Statuses(t, id))
	require.Zero(t, b.unchanged(t, id))
}

// A held message whose row is locked keeps its key and its copy, until it can be returned.
func TestPush_AHeldMessageIsReturnedWhenItsRowIsFree(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	keys, push := queued(t, l, bulk, id, 3)
	copies := copiesOf(push, keys...)
	end := b.begun(t, `SELECT FROM belfry.message_rows WHERE job_id = $1 AND channel_id = 2 FOR UPDATE`, id)
	b.Exec(t, `SELECT belfry.abort($1)`, id)
	require.Equal(t, []outbox.CopyVerdict{outbox.CopyHeld, outbox.CopyLater, outbox.CopyHeld}, verdicts(t, l, copies))
	require.Equal(t, "1:{2}", b.keysLeft(t))
	end()
	require.Equal(t, outbox.CopyHeld, verdicts(t, l, copies[1:2])[0])
	require.Empty(t, b.keysLeft(t))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`))
	require.Equal(t, map[string]int{"PENDING": 3}, b.Statuses(t, id))
	b.Exec(t, `SELECT belfry.resume($1)`, id)
	again, _ := queued(t, l, bulk, id, 10)
	require.Len(t, again, 3)
}

// I10: what a carrier has lost of a push becomes PENDING, except locked messages. Keys of finished messages go.
func TestPush_LostKeysReturn(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	activities, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 12, job.Processed)
	for range 3 { // 1 to 4, 5 to 8, 9 to 12
		queued(t, l, bulk, id, 4)
	}
	unqueue := func(oldest int64) int {
		n, err := l.Unqueue(bg, bulk, oldest, time.Minute, 100)
		require.NoError(t, err)
		return n
	}
	require.Zero(t, unqueue(9), "none is old")
	b.Exec(t, `UPDATE belfry.pushes SET made_at = now() - interval '2 minutes' WHERE number <= 2`)
	require.Zero(t, unqueue(1), "all are inside")
	n, err := l.Unqueue(bg, activities, 9, time.Minute, 100)
	require.NoError(t, err)
	require.Zero(t, n, "of the other queue")
	n, err = l.Unserved(bg, 100)
	require.NoError(t, err)
	require.Zero(t, n, "a relay leads")
	b.Exec(t, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'recalled' WHERE job_id = $1 AND channel_id = 2`, id)
	end := b.begun(t, `SELECT FROM belfry.message_rows WHERE job_id = $1 AND channel_id = 3 FOR UPDATE`, id)
	locked := b.begun(t, `SELECT FROM belfry.pushes WHERE number = 2 FOR UPDATE`)
	require.Equal(t, 2, unqueue(9), "1 and 4")
	require.Equal(t, "1:{3} 2:{5,6,7,8} 3:{9,10,11,12}", b.keysLeft(t))
	locked()
	require.Equal(t, 4, unqueue(9))
	end()
	require.NoError(t, l.ForgetPushes(bg, bulk, time.Minute))
	require.Equal(t, "1:{3} 3:{9,10,11,12}", b.keysLeft(t), "it has a key")
	require.Equal(t, 1, unqueue(9))
	require.Zero(t, unqueue(9))
	require.NoError(t, l.ForgetPushes(bg, bulk, time.Minute))
	require.Equal(t, []int64{3}, stored(t, b.DB, `SELECT number FROM belfry.pushes WHERE queue = 'bulk'`))
	require.Equal(t, map[string]int{"PENDING": 7, "CANCELLED": 1, "QUEUED": 4}, b.Statuses(t, id))
	require.NoError(t, l.StopLeading(bg))
	n, err = l.Unserved(bg, 1)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	require.Empty(t, b.keysLeft(t))
	require.Len(t, claim(t, l, id, 20), 11)
}

// Pushes with a locked message hold up neither the return of the others nor the removal of pushes.
func TestPush_LockedRowsDelayNoOtherReturn(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 40, job.Processed)
	for range 20 {
		queued(t, l, bulk, id, 2)
	}
	b.Exec(t, `UPDATE belfry.pushes SET made_at = now() - interval '2 minutes'`)
	b.Exec(t, `INSERT INTO belfry.pushes (queue, number, made_at) VALUES ('bulk', 90, now() + interval '1 year')`) // by a role that delivers
	end := b.begun(t, `SELECT FROM belfry.message_rows WHERE job_id = $1 AND channel_id IN (1, 3, 5, 7) FOR UPDATE`, id)
	require.Eventually(t, func() bool {
		_, err := l.Unqueue(bg, bulk, 99, time.Minute, 100)
		require.NoError(t, err)
		return b.Statuses(t, id)["PENDING"] == 36
	}, patience, time.Millisecond)
	require.Equal(t, "1:{1} 2:{3} 3:{5} 4:{7}", b.keysLeft(t))
	forget := b.begun(t, `SELECT FROM belfry.pushes WHERE number = 20 FOR UPDATE`)
	require.NoError(t, l.ForgetPushes(bg, bulk, time.Minute))
	require.Equal(t, []int64{1, 2, 3, 4, 20, 90}, stored(t, b.DB, `SELECT number FROM belfry.pushes WHERE queue = 'bulk' ORDER BY number`))
	forget()
	end()
}

// Whoever may write pushes and leases writes no keys that are NULL, which their readers would not understand.
func TestPush_KeysAreNotNull(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	for name, statement := range map[string]string{
		"pushes_keys_check":   `INSERT INTO belfry.pushes (queue, number, job_id, last_channel, channel_ids, tids) VALUES ('bulk', 1, 7, 9, '{NULL}', '{"(0,1)"}')`,
		"pushes_number_check": `INSERT INTO belfry.pushes (queue, number) VALUES ('bulk', -5)`,
		"leases_keys_check":   `INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (1, 'r', now(), '{35}', '{NULL}')`,
	} {
		_, err := b.DB.Pool.Exec(bg, statement)
		require.ErrorContains(t, err, name)
	}
}

// A new epoch begins with the first push that has keys or QUEUED rows, and a push is repeated with its keys.
func TestPush_IsRepeatedInANewEpoch(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 6, job.Processed)
	for range 3 {
		keys, push := queued(t, l, bulk, id, 2)
		if push == 1 {
			require.Equal(t, all(2, outbox.CopyClaimed), verdicts(t, l, copiesOf(push, keys...)))
		}
	}
	_, bulk = lead(t, l)
	renewed, ok, err := l.RenewQueue(bg, bulk)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 2, renewed.First)
	keys, lane, err := l.QueuedBy(bg, renewed, 2)
	require.NoError(t, err)
	require.Equal(t, []outbox.Key{{JobID: id, ChannelID: 3}, {JobID: id, ChannelID: 4}}, keys)
	require.Equal(t, "default", lane)
}

// A push takes the place of a row with its number, which a role that delivers can insert.
func TestPush_ReplacesAForgedRow(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 2, job.Processed)
	b.Exec(t, `INSERT INTO belfry.pushes (queue, number, made_at, job_id, last_channel, channel_ids, tids)
		VALUES ('bulk', 1, now() - interval '1 day', 7, 9, '{8,9,10}', '{"(0,1)","(0,2)","(0,3)"}')`)
	keys, push := queued(t, l, bulk, id, 2)
	require.EqualValues(t, 1, push)
	require.Equal(t, "1:{1,2}", b.keysLeft(t))
	require.True(t, one[bool](t, b, `SELECT made_at > now() - interval '1 hour' FROM belfry.pushes WHERE number = 1`))
	require.Equal(t, all(2, outbox.CopyClaimed), verdicts(t, l, copiesOf(push, keys...)))
}

// A sample finds and claims messages that are QUEUED, too.
func TestPush_SamplesClaimQueuedMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 6, job.Processed)
	keys, push := queued(t, l, bulk, id, 6)
	require.Equal(t, all(2, outbox.CopyClaimed), verdicts(t, l, copiesOf(push, keys[:2]...)))
	sample := stored(t, b.DB, outbox.Statement("JobSample"), pgx.StrictNamedArgs{"job_id": id, "n": 50})
	require.NotEmpty(t, sample)
	require.Subset(t, []int64{3, 4, 5, 6}, sample)
	claimed, err := l.ClaimKeys(bg, keys)
	require.NoError(t, err)
	require.Equal(t, []int64{3, 4, 5, 6}, channelsOf(claimed))
	require.Empty(t, b.keysLeft(t))
	require.Equal(t, 6, b.unchanged(t, id))
}

// The cap of a category counts messages in flight by their rows.
func TestPush_ACapCountsClaimedMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	b.Exec(t, `UPDATE belfry.categories SET cap_window = '1 day', cap = 1 WHERE name = (SELECT category FROM belfry.jobs WHERE id = $1)`, id)
	keys, push := queued(t, l, bulk, id, 3)
	require.Equal(t, 3, b.unchanged(t, id))
	answers, err := l.ClaimCopies(bg, copiesOf(push, keys...))
	require.NoError(t, err)
	require.Equal(t, 3, one[int](t, b, `SELECT count(*) FROM belfry.message_rows WHERE status = 'PROCESSING' AND lease_id = $1`, answers[0].Claimed.LeaseID))
	statuses, err := l.Settle(bg, each([]outbox.Claimed{answers[0].Claimed, answers[1].Claimed, answers[2].Claimed}, sent), nil)
	require.NoError(t, err)
	require.Equal(t, all(3, outbox.Sent), statuses)
}

// VACUUM FULL moves rows, and a push still has their old positions.
func TestPush_RowsMayMove(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	b.Rest(t, outbox.TypePush, 40, job.Processed)
	id := b.Rest(t, outbox.TypePush, 4, job.Processed)
	keys, push := queued(t, l, bulk, id, 4)
	b.Exec(t, `DELETE FROM belfry.message_rows WHERE job_id <> $1`, id)
	b.Exec(t, `VACUUM FULL belfry.message_rows`)
	answers, err := l.ClaimCopies(bg, copiesOf(push, keys...))
	require.NoError(t, err)
	claimed := make([]outbox.Claimed, len(answers))
	for i, a := range answers {
		claimed[i] = a.Claimed
	}
	checked, err := l.Recheck(bg, claimed)
	require.NoError(t, err)
	require.Equal(t, all(4, outbox.VerdictSend), checked)
	statuses, err := l.Settle(bg, each(claimed, sent), leasesOf(claimed))
	require.NoError(t, err)
	require.Equal(t, all(4, outbox.Sent), statuses)
}

// If only the second statement fails, the claims of the first one are answered, and the other copies come again.
func TestPush_ClaimsSurviveAnErrorAfterThem(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	_, bulk := lead(t, l)
	id := b.Rest(t, outbox.TypePush, 2, job.Processed)
	keys, push := queued(t, l, bulk, id, 1)
	copies := copiesOf(push, append(keys, outbox.Key{JobID: id, ChannelID: 2})...)
	b.Exec(t, `ALTER TABLE belfry.attempts RENAME TO gone`)
	require.Equal(t, []outbox.CopyVerdict{outbox.CopyClaimed, outbox.CopyLater}, verdicts(t, l, copies))
	_, err := l.ClaimCopies(bg, copies[1:])
	require.ErrorContains(t, err, "attempts")
}
