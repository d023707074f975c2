package compose_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/compose"
	"github.com/belfryhq/belfry/outbox/retention"
)

// capTo gives a category a cap of n an hour.
func (b *bundle) capTo(t require.TestingT, category string, n int) {
	b.exec(t, `UPDATE belfry.categories SET cap = $2, cap_window = '1 hour' WHERE name = $1`, category, n)
}

// sent makes a message SENT that long ago.
func (b *bundle) sent(t require.TestingT, job, channel int64, ago string) {
	b.exec(t, `UPDATE belfry.message_rows SET status = 'SENT', sent_at = now() - $3::interval, lease_id = NULL WHERE job_id = $1 AND channel_id = $2`, job, channel, ago)
}

// what is how a message was composed, in short.
func what(c outbox.Composed) string {
	switch c.Action {
	case outbox.ActionSend:
		return "send"
	case outbox.ActionRefuse:
		return fmt.Sprintf("%s %s", c.Status, c.Reason)
	case outbox.ActionDefer:
		return fmt.Sprintf("wait %s", c.Reason)
	}
	return string(c.Action)
}

// What counts against a cap, and what does not (invariant 3).
func TestCap_CountsWhatWasSentInItsWindow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.capTo(t, "operator_notice", 2)
	old, recent, other := b.job(t, nil), b.job(t, nil), b.job(t, map[string]any{"category": "popular_content"})
	now := b.job(t, nil)
	activity, otherActivity := b.send(t, 1, "operator_notice", "x"), b.send(t, 1, "activity", "x")
	b.exec(t, `SELECT belfry.send(2, 'operator_notice', 'x')`)
	compose1 := func() string { return what(b.compose(t, now, 1)[0]) }
	require.Equal(t, "send", compose1())

	b.sent(t, old, 1, "61 minutes")
	b.sent(t, recent, 2, "1 minute")
	b.sent(t, other, 1, "1 minute")
	b.sent(t, otherActivity, 1, "1 minute")
	b.exec(t, `UPDATE belfry.message_rows SET status = 'DEAD', reason = 'unknown' WHERE job_id = $1 AND channel_id = 1`, recent)
	require.Equal(t, "send", compose1(), "too old, another channel, another category, not sent")
	b.sent(t, recent, 1, "59 minutes")
	require.Equal(t, "send", compose1(), "one of two")
	b.sent(t, activity, 1, "1 minute")
	require.Equal(t, "CANCELLED capped", compose1(), "an activity of the category counts")
	b.exec(t, `UPDATE belfry.jobs SET delivered_at = now() - interval '2 minutes' WHERE id = $1`, recent)
	require.Equal(t, "CANCELLED capped", compose1(), "a job that is delivered counts")
	b.exec(t, `UPDATE belfry.categories SET cap_window = '30 minutes' WHERE name = 'operator_notice'`)
	require.Equal(t, "send", compose1())
	b.exec(t, `UPDATE belfry.message_rows SET status = 'PROCESSING', receipt = 'r', lease_id = NULL, sent_at = NULL WHERE job_id = $1 AND channel_id = 1`, recent)
	b.exec(t, `UPDATE belfry.jobs SET delivered_at = NULL WHERE id = $1`, recent)
	require.Equal(t, "CANCELLED capped", compose1(), "one whose receipt is awaited counts")

	again := b.claim(t, activity, 1) // capped like the messages of jobs
	b.sent(t, now, 1, "1 minute")
	got := b.composed(t, again)[0]
	require.Equal(t, "CANCELLED capped", what(got))
	require.Empty(t, got.Record)
}

// What was sent counts against a cap for as long as that looks back, however short messages
// are kept otherwise (invariant 3).
func TestCap_HoldsWhateverRetentionIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `UPDATE belfry.categories SET cap = 1, cap_window = '24 hours' WHERE name IN ('operator_notice', 'activity')`)
	job, free := b.job(t, nil), b.job(t, map[string]any{"category": "popular_content"})
	activity := b.send(t, 1, "activity", "x")
	b.past(t, `UPDATE belfry.jobs SET status = 'PROCESSED', rows_written = 3, finished_at = now() - interval '2 hours', delivered_at = now() - interval '2 hours'`)
	b.past(t, `UPDATE belfry.activities SET created_at = now() - interval '2 hours'`)
	b.exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - interval '2 hours'`)
	for _, id := range []int64{job, free, activity} {
		for channel := range int64(3) {
			b.sent(t, id, channel+1, "2 hours")
		}
	}
	hour := outbox.DefaultRetention()
	hour.Messages, hour.Jobs = time.Hour, time.Hour
	prune := func(want retention.Pruned) {
		for _, dry := range []bool{true, false} {
			got, err := retention.Prune(t.Context(), b.db.Pool, hour, retention.Options{DryRun: dry})
			require.NoError(t, err)
			require.Equal(t, want, got, "dry run %t", dry)
		}
	}
	prune(retention.Pruned{Messages: 3, Jobs: 1})
	require.Equal(t, "CANCELLED capped", what(b.compose(t, b.job(t, nil), 1)[0]))
	another := b.send(t, 1, "activity", "x")
	require.Equal(t, "CANCELLED capped", what(b.composed(t, b.claim(t, another, 1))[0]))

	b.exec(t, `UPDATE belfry.categories SET cap_window = '90 minutes' WHERE cap IS NOT NULL`)
	prune(retention.Pruned{Messages: 4, Jobs: 1})
	require.Equal(t, "send", what(b.compose(t, b.job(t, map[string]any{"route": []string{"sms"}}), 2)[0]), "what a shorter window leaves out is not kept")
}

// Others in flight may come to count: a message waits for them, and within a
// batch the first ones go (invariant 3).
func TestCap_WaitsForOthersInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.capTo(t, "activity", 2)
	var list []outbox.Claimed
	for range 4 {
		list = append(list, b.claim(t, b.send(t, 1, "activity", "x"), 1))
	}
	list = append(list, b.claim(t, b.send(t, 2, "activity", "x"), 2))
	all := func(list []outbox.Composed) (said []string) {
		for _, c := range list {
			said = append(said, what(c))
		}
		return said
	}
	b.exec(t, `UPDATE belfry.categories SET route = '{sms}' WHERE name = 'activity'`)
	require.Equal(t, []string{"send", "send", "wait capped", "wait capped", "DEAD no_address"}, all(b.composed(t, list...)))
	require.Equal(t, []string{"wait capped", "wait capped"}, all(b.composed(t, list[2:4]...)), "the first two are in other hands")
	b.sent(t, list[0].JobID, 1, "0")
	require.Equal(t, []string{"wait capped"}, all(b.composed(t, list[2])))
	b.exec(t, `UPDATE belfry.message_rows SET status = 'PENDING', lease_id = NULL WHERE job_id < 0 AND job_id <> $1 AND status = 'PROCESSING'`, list[2].JobID)
	got := b.composed(t, list[2])
	require.Equal(t, []string{"send"}, all(got), "they came back without being sent")
	b.sent(t, list[1].JobID, 1, "0")
	require.Equal(t, []string{"CANCELLED capped"}, all(b.composed(t, list[2])))

	b.composer = b.newComposer(t, compose.DefaultConfig(), 0.5)
	b.capTo(t, "activity", 3)
	b.claim(t, list[3].JobID, 1)
	require.Equal(t, 5500*time.Millisecond, b.composed(t, list[2])[0].Wait)
}

// Batches of one composer that are composed at the same moment do not wait for each other in
// vain: those of the first go, whichever that is. What nobody expected, and what another
// composer has, is waited for (invariant 3).
func TestCap_OfBatchesAtOnceTheFirstGoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `UPDATE belfry.categories SET route = '{sms}' WHERE name = 'activity'`)
	b.capTo(t, "activity", 1)
	claim := func(lease int64) outbox.Claimed {
		m := b.claim(t, b.send(t, 1, "activity", "x"), 1)
		m.LeaseID = lease
		b.exec(t, `UPDATE belfry.message_rows SET lease_id = $2 WHERE job_id = $1`, m.JobID, lease)
		return m
	}
	one, two, three := claim(11), claim(12), claim(13)
	b.composer.Expect([]outbox.Claimed{one})
	b.composer.Expect([]outbox.Claimed{two})
	require.Equal(t, "wait capped", what(b.composed(t, one)[0]), "nobody has said that the third is to come")
	b.exec(t, `DELETE FROM belfry.message_rows WHERE job_id = $1`, three.JobID)
	require.Equal(t, "send", what(b.composed(t, one)[0]))
	require.Equal(t, "wait capped", what(b.composed(t, two)[0]))

	for round := range int64(20) {
		b.exec(t, `DELETE FROM belfry.message_rows`)
		said := make(chan string, 3)
		var list []outbox.Claimed
		for n := range int64(3) {
			list = append(list, claim(100+10*round+n))
			b.composer.Expect(list[n:])
		}
		for _, m := range list {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				composed, err := b.composer.Compose(ctx, []outbox.Claimed{m})
				if err != nil {
					said <- err.Error()
					return
				}
				said <- what(composed[0])
			}()
		}
		got := map[string]int{}
		for range list {
			got[<-said]++
		}
		require.Equal(t, map[string]int{"send": 1, "wait capped": 2}, got)
	}
}

// A message that is not to be sent takes no room.
func TestCap_IsForThoseThatAreSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.capTo(t, "operator_notice", 1)
	bad, id := b.job(t, nil), b.job(t, map[string]any{"route": []string{"push"}})
	b.past(t, `UPDATE belfry.jobs SET route = '{fax}' WHERE id = $1`, bad)
	list := b.composed(t, b.claim(t, bad, 1), b.claim(t, id, 1))
	require.Equal(t, []string{"DEAD no_address", "send"}, []string{what(list[0]), what(list[1])})
}

// Whatever relays do at once, no channel gets more than its cap: claims, composes and
// settlements in any order, by relays that each compose after their claim was committed
// (invariant 3). And none waits permanently: alone, a message goes or is refused.
func TestCap_HoldsInAnyOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `UPDATE belfry.categories SET route = '{sms}' WHERE name = 'activity'`)
	rapid.Check(t, func(rt *rapid.T) {
		b.exec(rt, `DELETE FROM belfry.message_rows`)
		b.exec(rt, `DELETE FROM belfry.activities`)
		limit := rapid.IntRange(1, 3).Draw(rt, "cap")
		b.capTo(rt, "activity", limit)
		const n = 4
		var ids []int64
		for range n {
			ids = append(ids, b.send(rt, 1, "activity", "x"))
		}
		state := make(map[int64]string) // "", claimed, passed, sent, capped
		step := func(id int64) {
			switch state[id] {
			case "":
				b.claim(rt, id, 1)
				state[id] = "claimed"
			case "claimed":
				got := b.composed(rt, outbox.Claimed{Key: outbox.Key{JobID: id, ChannelID: 1}, LeaseID: 1})[0]
				switch what(got) {
				case "send":
					state[id] = "passed"
				case "wait capped":
					b.exec(rt, `UPDATE belfry.message_rows SET status = 'PENDING', lease_id = NULL WHERE job_id = $1`, id)
					state[id] = ""
				case "CANCELLED capped":
					b.exec(rt, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'capped', lease_id = NULL WHERE job_id = $1`, id)
					state[id] = "capped"
				default:
					rt.Fatalf("%s", what(got))
				}
			case "passed":
				b.sent(rt, id, 1, "0")
				state[id] = "sent"
			}
		}
		for range rapid.IntRange(0, 16).Draw(rt, "steps") {
			step(ids[rapid.IntRange(0, n-1).Draw(rt, "which")])
		}
		for range 2 { // what is under way ends
			for _, id := range ids {
				if state[id] != "" {
					step(id)
				}
			}
		}
		for _, id := range ids { // and the others go alone, to their end
			for rounds := 0; state[id] != "sent" && state[id] != "capped"; rounds++ {
				require.Less(rt, rounds, 4, "%v", state)
				step(id)
			}
		}
		sent := one[int](rt, b, `SELECT count(*) FROM belfry.messages WHERE status = 'SENT'`)
		require.Equal(rt, limit, sent, "%v", state)
	})
}

// Two relays that compose at the same moment see each other's message.
func TestCap_HoldsForTwoRelaysAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `UPDATE belfry.categories SET route = '{sms}' WHERE name = 'activity'`)
	b.capTo(t, "activity", 1)
	both := make(map[string]int)
	for range 20 {
		b.exec(t, `DELETE FROM belfry.message_rows`)
		said := make(chan string, 2)
		for range 2 {
			id := b.send(t, 1, "activity", "x")
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				_, err := b.db.Pool.Exec(ctx, `UPDATE belfry.message_rows SET status = 'PROCESSING', lease_id = 1 WHERE job_id = $1`, id)
				if err != nil {
					said <- err.Error()
					return
				}
				list, err := b.composer.Compose(ctx, []outbox.Claimed{{Key: outbox.Key{JobID: id, ChannelID: 1}, LeaseID: 1}})
				if err != nil {
					said <- err.Error()
					return
				}
				said <- what(list[0])
			}()
		}
		one, two := <-said, <-said
		if one > two {
			one, two = two, one
		}
		both[one+", "+two]++
	}
	require.Zero(t, both["send, send"], "%v", both)
	require.Equal(t, 20, both["send, wait capped"]+both["wait capped, wait capped"], "%v", both)
}
