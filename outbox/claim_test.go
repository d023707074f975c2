package outbox_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// channelsOf are the channels of messages, in order.
func channelsOf(claimed []outbox.Claimed) (ids []int64) {
	for _, c := range claimed {
		ids = append(ids, c.ChannelID)
	}
	return ids
}

// I6, I10: a claim takes what is due of one job that is not ABORTED, and nothing else.
func TestClaimJob_TakesWhatIsDueOfOneJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	done := b.Rest(t, outbox.TypePush, 30, job.Processed)
	other := b.Rest(t, outbox.TypePush, 3, job.Processed)
	aborted := b.Rest(t, outbox.TypePush, 5, job.Aborted)
	b.States(t, done, "PENDING", "QUEUED", "PROCESSING", "SENT", "DEAD", "CANCELLED")
	b.returned(t)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() + interval '1 hour' WHERE channel_id = 7`)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - interval '1 hour' WHERE channel_id = 19`)
	b.Exec(t, `UPDATE belfry.message_rows SET step = 1, attempts = 2, crashes = 1, reason = 'retry' WHERE channel_id = 13`)
	b.Exec(t, `UPDATE belfry.message_rows SET step = 1, attempts = 0, reason = 'failover' WHERE channel_id = 25`)
	b.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) VALUES ($1, 13, 0, 1, 'push', 'unknown'), ($1, 25, 0, 1, 'push', 'permanent')`, done)

	claimed := claim(t, l, done, 100)
	lease := one[int64](t, b, `SELECT max(id) FROM belfry.leases WHERE relay = 'r1'`)
	key := func(channel int64) outbox.Key { return outbox.Key{JobID: done, ChannelID: channel} }
	require.Equal(t, []outbox.Claimed{
		{Key: key(19), LeaseID: lease},
		{Key: key(1), LeaseID: lease},
		{Key: key(13), LeaseID: lease, Step: 1, Attempts: 2, Crashes: 1, Reason: outbox.ReasonRetry, Ambiguous: true},
		{Key: key(25), LeaseID: lease, Step: 1, Reason: outbox.ReasonFailover},
	}, outbox.Anywhere(claimed))
	require.Equal(t, map[string]int{"PENDING": 1, "QUEUED": 5, "PROCESSING": 9, "SENT": 5, "DEAD": 5, "CANCELLED": 5}, b.Statuses(t, done))
	require.True(t, one[bool](t, b, `SELECT relay = 'r1' AND expires_at > now() + interval '20 seconds' AND channel_ids @> '{1,13,19,25}' FROM belfry.leases WHERE id = $1`, lease))
	require.Equal(t, map[string]int{"PENDING": 3}, b.Statuses(t, other))

	require.Empty(t, claim(t, l, done, 100))
	require.Empty(t, claim(t, l, aborted, 100))
	b.Exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES (1000000, 1, now())`)
	require.Empty(t, claim(t, l, 1000000, 100), "of no job")
	_, err := b.jobs.Resume(t.Context(), job.One(aborted), job.Act{})
	require.NoError(t, err)
	require.Len(t, claim(t, l, aborted, 100), 5)
	_, _, err = l.ClaimJob(t.Context(), done, outbox.Position{}, 0, outbox.AnyTry)
	require.ErrorContains(t, err, "0 messages are not allowed; allowed values: 1 to 1000")
	require.Equal(t, 3, one[int](t, b, `SELECT count(*) FROM belfry.leases`), "nothing claimed, no lease")
}

// A claim waits for nobody: what another is just claiming is skipped, and found from
// the beginning when he did not take it. I6: an abort goes through beside it.
func TestClaimJob_SkipsWhatIsLocked(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 10, job.Processed)
	b.ActivitiesFor(t, 10)
	b.returned(t)
	other, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), `SELECT FROM belfry.messages WHERE channel_id IN (3, 4, 8) FOR UPDATE`)
	require.NoError(t, err)
	claimed, next, err := l.ClaimJob(t.Context(), id, outbox.Position{}, 5, outbox.AnyTry)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 5, 6, 7}, channelsOf(claimed))
	require.ElementsMatch(t, []int64{1, 2, 5, 6, 7, 9, 10}, channelsOf(claimActivities(t, l, 10)))
	b.Exec(t, `UPDATE belfry.jobs SET title = title WHERE id = $1`, id)
	require.NoError(t, other.Rollback(t.Context()))
	claimed, _, err = l.ClaimJob(t.Context(), id, next, 5, outbox.AnyTry)
	require.NoError(t, err)
	require.Equal(t, []int64{8, 9, 10}, channelsOf(claimed))
	require.Equal(t, []int64{3, 4}, channelsOf(claim(t, l, id, 10)))
	require.Len(t, claimActivities(t, l, 10), 3)
}

// Claims go on where the last one ended. What becomes due later is ahead of them; what
// comes back as it was is behind, and found from the beginning.
func TestClaimJob_GoesOnFromAPosition(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 40, job.Processed)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = date_trunc('hour', now()) - make_interval(mins => (channel_id % 4)::int), lease_id = 0`)
	var position outbox.Position
	var first []outbox.Claimed
	var seen []int64
	for len(seen) < 40 {
		claimed, next, err := l.ClaimJob(ctx, id, position, 7, outbox.AnyTry)
		require.NoError(t, err)
		require.LessOrEqual(t, len(claimed), 7)
		if first == nil {
			first = claimed
		}
		seen, position = append(seen, channelsOf(claimed)...), next
	}
	var want []int64
	for _, rest := range []int64{3, 2, 1, 0} {
		for channel := int64(1); channel <= 40; channel++ {
			if channel%4 == rest {
				want = append(want, channel)
			}
		}
	}
	require.Equal(t, want, seen)

	retry := first[0]
	settlements := each(first[1:], outbox.Release)
	settlements = append(settlements, outbox.Settlement{Claimed: retry, To: outbox.Pending, Reason: outbox.ReasonRetry, NextAttempts: 1})
	_, err := l.Settle(ctx, settlements, nil)
	require.NoError(t, err)
	claimed, _, err := l.ClaimJob(ctx, id, position, 100, outbox.AnyTry)
	require.NoError(t, err)
	require.Equal(t, []int64{retry.ChannelID}, channelsOf(claimed))
	require.Equal(t, channelsOf(first[1:]), channelsOf(claim(t, l, id, 100)))
}

// I8: however many relays claim, each message is one's.
func TestClaimJob_GivesEachMessageToOneRelay(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 3000, job.Processed)
	activities := b.ActivitiesFor(t, 600)
	var mu sync.Mutex
	owners := make(map[outbox.Key]int64)
	var wg sync.WaitGroup
	for _, relay := range []string{"r1", "r2", "r3"} {
		l := b.ledger(relay)
		l.WaitForClaims()
		take := func(claimed []outbox.Claimed, err error) bool {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range claimed {
				if _, twice := owners[c.Key]; twice {
					err = context.Canceled
				}
				owners[c.Key] = c.LeaseID
			}
			if err != nil {
				t.Errorf("%v", err)
			}
			return len(claimed) > 0
		}
		wg.Go(func() {
			for more := true; more; {
				claimed, _, err := l.ClaimJob(t.Context(), id, outbox.Position{}, 50, outbox.AnyTry)
				more = take(claimed, err)
			}
			for more := true; more; {
				claimed, _, err := l.ClaimActivities(t.Context(), outbox.Position{}, 0, 20, outbox.AnyTry)
				more = take(claimed, err)
			}
		})
	}
	wg.Wait()
	// A claim may come back short while another is at the same rows, so the rest is taken now.
	for _, c := range append(claim(t, b.ledger("r4"), id, 1000), claimActivities(t, b.ledger("r4"), 1000)...) {
		owners[c.Key] = c.LeaseID
	}
	require.Len(t, owners, 3000+len(activities))
	for key, lease := range owners {
		require.Equal(t, lease, one[int64](t, b, `SELECT lease_id FROM belfry.messages WHERE job_id = $1 AND channel_id = $2`, key.JobID, key.ChannelID))
		if key.ChannelID > 100 {
			break // enough
		}
	}
}

func claimActivities(t require.TestingT, l *outbox.Ledger, n int) []outbox.Claimed {
	claimed, _, err := l.ClaimActivities(context.Background(), outbox.Position{}, 0, n, outbox.AnyTry)
	require.NoError(t, err)
	return claimed
}

func TestClaimActivities_GoesByTime(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	b.Rest(t, outbox.TypePush, 10, job.Processed)
	ids := b.ActivitiesFor(t, 6)
	base := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i, minutes := range []int{3, 1, 2, 120, 0, 2} {
		b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = $2 WHERE job_id = $1`, ids[i], base.Add(time.Duration(minutes)*time.Minute))
	}
	claimed, next, err := l.ClaimActivities(t.Context(), outbox.Position{DueAt: base.Add(time.Minute - time.Microsecond)}, 0, 2, outbox.AnyTry)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 6}, channelsOf(claimed))
	require.Equal(t, ids[1], claimed[0].JobID)
	require.Equal(t, outbox.Position{DueAt: next.DueAt, JobID: ids[5], ChannelID: 6, More: true}, next)
	require.True(t, next.DueAt.Equal(base.Add(2*time.Minute)))
	claimed, next, err = l.ClaimActivities(t.Context(), next, 0, 10, outbox.AnyTry)
	require.NoError(t, err)
	require.Equal(t, []int64{3, 1}, channelsOf(claimed))
	require.False(t, next.More)
	claimed, after, err := l.ClaimActivities(t.Context(), next, 0, 10, outbox.AnyTry)
	require.NoError(t, err)
	require.Empty(t, claimed)
	require.Equal(t, next, after)
	claimed, _, err = l.ClaimActivities(t.Context(), outbox.Position{}, 50*time.Minute, 10, outbox.AnyTry)
	require.NoError(t, err)
	require.Empty(t, claimed, "due for longer")
	require.Equal(t, []int64{5}, channelsOf(claimActivities(t, l, 10)), "behind")
	require.Equal(t, "PENDING", one[string](t, b, `SELECT status FROM belfry.messages WHERE job_id = $1`, ids[3]), "due later")
}

// A claim, or a push, examines a bounded number of messages and ends where the next one continues. So
// messages that it skips, such as those for media that the relay does not serve, delay the others by
// few claims, however many they are.
func TestLedger_SkipsManyMessagesInBoundedClaims(t *testing.T) {
	t.Parallel()
	const passed, examined = 50_000, 2000
	b := setup(t, 0)
	ctx := t.Context()
	l := b.ledger("r1")
	l.Serve([]string{"push"}, nil)
	id := b.Rest(t, outbox.TypePush, 1, job.Processed)
	b.Past(t, `INSERT INTO belfry.activities (id, channel_id, title, route) SELECT -g, g, 'like', CASE WHEN g <= $1 THEN '{sms}'::text[] ELSE '{push}' END FROM generate_series(1, $1::int + 1) g`, passed)
	b.Past(t, `DELETE FROM belfry.message_rows`)
	b.Past(t, `UPDATE belfry.jobs SET route = '{sms,push}'`)
	// Of the job, the last one alone is at its step push; of either, it alone has an attempt.
	b.Past(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, lease_id, step, attempts)
		SELECT CASE WHEN k THEN $2 ELSE -g END, g, now() - interval '1 hour' + make_interval(secs => g / 1e3), 0, CASE WHEN g > $1 AND k THEN 1 ELSE 0 END, CASE WHEN g > $1 THEN 1 ELSE 0 END
		  FROM generate_series(1, $1::int + 1) g CROSS JOIN unnest('{true,false}'::boolean[]) k`, passed, id)
	activities, bulk := lead(t, l)
	for what, claim := range map[string]func(outbox.Position) (int, outbox.Position, error){
		"ClaimJob": func(after outbox.Position) (int, outbox.Position, error) {
			claimed, next, err := l.ClaimJob(ctx, id, after, 10, outbox.AnyTry)
			return len(claimed), next, err
		},
		"ClaimActivities": func(after outbox.Position) (int, outbox.Position, error) {
			claimed, next, err := l.ClaimActivities(ctx, after, 0, 10, outbox.AnyTry)
			return len(claimed), next, err
		},
		"QueueJob": func(after outbox.Position) (int, outbox.Position, error) {
			keys, _, next, err := l.QueueJob(ctx, bulk, id, after, 10, outbox.LaterTry)
			return len(keys), next, err
		},
		"QueueActivities": func(after outbox.Position) (int, outbox.Position, error) {
			keys, _, next, err := l.QueueActivities(ctx, activities, after, 0, 10, outbox.LaterTry)
			return len(keys), next, err
		},
	} {
		b.Past(t, `UPDATE belfry.message_rows SET status = 'PENDING', lease_id = 0 WHERE status <> 'PENDING'`)
		var position outbox.Position
		var reached []int64 // channels
		for found := 0; found == 0; reached = append(reached, position.ChannelID) {
			var err error
			found, position, err = claim(position)
			require.NoError(t, err)
			require.LessOrEqual(t, len(reached), passed/examined, what)
			require.Equal(t, found == 0, position.More, what)
		}
		require.Len(t, reached, passed/examined+1, what)
		first := int64(examined)
		if strings.HasPrefix(what, "Claim") {
			first = 20 // twice the limit, before it knows that it skips messages
		}
		require.Equal(t, first, reached[0], what)
		require.Equal(t, first+examined, reached[1], what)
		require.EqualValues(t, passed+1, position.ChannelID, what)
	}
}

// The look right before the call says what the one rule says (view sendable_messages),
// and to the owner only (I6, I8).
func TestLook_SaysWhatTheRuleSays(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	l := b.ledger("r1")
	fine := b.Rest(t, outbox.TypePush, 60, job.Processed)
	held := b.Rest(t, outbox.TypePush, 60, job.Aborted)
	waits := b.Rest(t, outbox.TypePush, 60, job.Processed)
	b.Exec(t, `UPDATE belfry.jobs SET needs_approval = true WHERE id = $1`, waits)
	gone := int64(1000000)
	b.Exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT $1, g, now() FROM generate_series(1, 60) g`, gone)
	activity := b.ActivitiesFor(t, 1)[0]
	b.Exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT $1, g, now() FROM generate_series(2, 60) g`, activity)
	leases := make(map[string]int64)
	for i, left := range []string{"1 hour", "-1 second"} {
		leases[[]string{"live", "expired"}[i]] = one[int64](t, b, `INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES ($2, 'r1', now() + $1::interval, '{1}', '{1}') RETURNING id`, left, i+1)
	}
	leases["deleted"] = 77
	var ask []outbox.Claimed
	var want []outbox.Verdict
	for _, id := range []int64{fine, held, waits, gone, activity} {
		channel := int64(0)
		for _, status := range []string{"PENDING", "QUEUED", "PROCESSING", "SENT", "DEAD", "CANCELLED"} {
			for _, lease := range []string{"live", "expired", "deleted"} {
				for _, mark := range []string{"", "recalled", "receipt"} {
					if channel++; mark != "" && (status == "PENDING" || status == "QUEUED") {
						continue
					}
					b.Exec(t, `UPDATE belfry.message_rows SET status = $3, lease_id = $4, reason = 'x', recalled_at = CASE $5 WHEN 'recalled' THEN now() END, receipt = CASE $5 WHEN 'receipt' THEN 'x' END
						WHERE job_id = $1 AND channel_id = $2`, id, channel, status, leases[lease], mark)
					mine := outbox.Claimed{Key: outbox.Key{JobID: id, ChannelID: channel}, LeaseID: leases[lease]}
					others := mine
					others.LeaseID = leases["live"] + leases["expired"] - leases[lease]
					verdict := outbox.VerdictLost
					if owned := status == "PROCESSING" && lease == "live" && mark != "receipt"; owned {
						verdict = outbox.VerdictSend
						switch {
						case mark == "recalled":
							verdict = outbox.VerdictRecalled
						case id == held || id == waits || id == gone:
							verdict = outbox.VerdictHeld
						}
						require.Equal(t, verdict == outbox.VerdictSend,
							one[bool](t, b, `SELECT EXISTS (SELECT FROM belfry.sendable_messages WHERE job_id = $1 AND channel_id = $2)`, id, channel))
					}
					ask, want = append(ask, mine, others), append(want, verdict, outbox.VerdictLost)
				}
			}
		}
	}
	ask, want = append(ask, outbox.Claimed{Key: outbox.Key{JobID: fine, ChannelID: 5000}, LeaseID: leases["live"]}), append(want, outbox.VerdictLost)
	got, err := l.Recheck(ctx, ask)
	require.NoError(t, err)
	require.Equal(t, want, got)
	slices.Reverse(ask)
	slices.Reverse(want)
	got, err = l.Recheck(ctx, ask)
	require.NoError(t, err)
	require.Equal(t, want, got, "in the order of the question")
	got, err = l.Recheck(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, got)
	_, err = l.Recheck(ctx, make([]outbox.Claimed, outbox.MaxBatch+1))
	require.ErrorContains(t, err, "1001 messages are not allowed")
}

// A handover is written per lease that lives; one that has expired gets none.
func TestHandOver_WritesWhatIsHandedOver(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 30, job.Processed)
	one1, two, three := claim(t, l, id, 10), claim(t, l, id, 10), claim(t, l, id, 10)
	b.expire(t, three[0].LeaseID)
	handOver(t, l, slices.Concat(one1[:5], three, two[3:]), nil)
	handOver(t, l, nil, nil)
	require.Equal(t, []int64{1, 2, 3, 4, 5}, one[[]int64](t, b, `SELECT channel_ids FROM belfry.handovers WHERE lease_id = $1`, one1[0].LeaseID))
	require.Equal(t, []int64{14, 15, 16, 17, 18, 19, 20}, one[[]int64](t, b, `SELECT channel_ids FROM belfry.handovers WHERE lease_id = $1`, two[0].LeaseID))
	require.EqualValues(t, 2, one[int64](t, b, `SELECT count(*) FROM belfry.handovers`))
}

// expire lets a lease expire.
func (b *bundle) expire(t require.TestingT, leases ...int64) {
	b.Exec(t, `UPDATE belfry.leases SET expires_at = clock_timestamp() WHERE id = ANY ($1)`, leases)
}

// I8: a crash of the server forgets a claim, and what was claimed before it is lost to
// the look permanently, whoever claims the messages after it.
func TestFault_ClaimForgottenByACrashGivesItsLeaseToNobody(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t, true)
	b := setupOn(t, dbtest.NewOn(t, server), 0)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b.Exec(t, `ALTER SYSTEM SET wal_writer_delay = '10s'`)
	b.Exec(t, `SELECT pg_reload_conf()`)
	var before, after []outbox.Claimed
	for round := 0; len(after) == 0 && round < 10; round++ {
		id := b.Rest(t, outbox.TypePush, 5, job.Processed)
		b.Exec(t, `CHECKPOINT`)
		before = claim(t, b.ledger("before"), id, 5)
		require.Len(t, before, 5)
		require.NoError(t, server.Stop(ctx, pgserver.Immediate))
		require.NoError(t, server.Start(ctx))
		b.DB.Pool.Reset()
		after = claim(t, b.ledger("after"), id, 5)
	}
	require.Len(t, after, 5, "no crash has forgotten a claim")
	handOver(t, b.ledger("before"), before, nil)
	handOver(t, b.ledger("after"), after, nil)
	for name, claimed := range map[string][]outbox.Claimed{"before": before, "after": after} {
		verdicts, err := b.ledger(name).Recheck(ctx, claimed)
		require.NoError(t, err)
		require.Equal(t, all(5, map[string]outbox.Verdict{"before": outbox.VerdictLost, "after": outbox.VerdictSend}[name]), verdicts, name)
	}
}

// serving is the ledger of a relay that has senders for these media.
func (b *bundle) serving(media ...string) *outbox.Ledger {
	l := b.ledger("serving " + strings.Join(media, " "))
	media = append([]string{}, media...) // nil is all
	l.Serve(media, media)
	return l
}

// What another relay has the sender for is left to it: a relay that took it could only
// put it off. A job by other media costs a claim one look at the job, however many
// messages of it are due.
func TestClaim_LeavesOtherRelaysTheirMedia(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t), 0)
	push, sms, none := b.serving("push", "email"), b.serving("sms"), b.serving()
	id, other := b.Rest(t, outbox.TypePush, 30, job.Processed), b.Rest(t, outbox.TypePush, 2000, job.Processed)
	b.Past(t, `UPDATE belfry.jobs SET route = '{push,sms}' WHERE id = $1`, id)
	b.Past(t, `UPDATE belfry.jobs SET route = '{email}' WHERE id = $1`, other)
	b.Exec(t, `UPDATE belfry.message_rows SET step = 1, lease_id = 0 WHERE job_id = $1 AND channel_id % 3 = 0`, id)
	b.Exec(t, `UPDATE belfry.message_rows SET step = 2, lease_id = 0 WHERE job_id = $1 AND channel_id = 1`, id) // beyond the route: somebody is to say so
	b.ActivitiesFor(t, 4)
	b.Exec(t, `UPDATE belfry.message_rows SET step = 1 WHERE job_id < 0 AND channel_id = 2`)
	b.Past(t, `UPDATE belfry.activities SET route = '{push,sms}'`)

	require.Empty(t, claim(t, none, id, 100))
	require.Empty(t, claimActivities(t, none, 100))
	require.Equal(t, []int64{1, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30}, channelsOf(claim(t, sms, id, 100)))
	require.Equal(t, []int64{2}, channelsOf(claimActivities(t, sms, 100)))
	require.Len(t, claim(t, push, id, 100), 19)
	require.ElementsMatch(t, []int64{1, 3, 4}, channelsOf(claimActivities(t, push, 100)))

	dbtest.Vacuum(t, b.DB.Pool, "belfry.message_rows")
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), outbox.Statement("LedgerBegin"), pgx.StrictNamedArgs{"timeout_ms": "10000", "lock_ms": "10000", "durable": false})
	require.NoError(t, err)
	rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, COSTS off, TIMING off) "+outbox.Statement("MessageClaim"), pgx.StrictNamedArgs{
		"job_id": other, "after_at": time.Time{}, "after_channel": int64(0), "keys": 10, "lease": int64(1), "relay": "r1", "seconds": 30.0, "media": []string{"sms"}, "retries": nil, "bound": 10,
	})
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Regexp(t, `messages_due_idx on message_rows m \(never executed\)(.|\n)*messages_due_idx on message_rows m_1 \(never executed\)`, strings.Join(lines, "\n"))
}

// A lease that a renewal brings back after the hand-over found it expired: nothing was recorded,
// the look sees it alive, and HandOver says that it must not be called.
func TestHandOver_SaysWhatItRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id, l := b.Rest(t, outbox.TypePush, 6, job.Processed), b.ledger("r1")
	claimed := claim(t, l, id, 3)
	other, _, err := l.ClaimJob(t.Context(), id, outbox.Position{}, 3, outbox.AnyTry)
	require.NoError(t, err)
	lease := claimed[0].LeaseID
	b.expire(t, lease) // since the renewal below has begun
	tx, err := b.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `UPDATE belfry.leases SET expires_at = clock_timestamp() + interval '1 minute' WHERE id = $1`, lease)
	require.NoError(t, err)
	all := slices.Concat(claimed, other)
	recorded, err := l.HandOver(t.Context(), all, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	verdicts, err := l.Recheck(t.Context(), all)
	require.NoError(t, err)
	require.Equal(t, slices.Repeat([]outbox.Verdict{outbox.VerdictSend}, 6), verdicts, "it is alive again")
	require.Equal(t, []int64{other[0].LeaseID}, recorded)
	require.Equal(t, recorded[0], one[int64](t, b, `SELECT lease_id FROM belfry.handovers`))
}
