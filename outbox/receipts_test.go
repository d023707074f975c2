package outbox_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// accept leaves the first n messages of a job with a receipt r-CHANNEL to come, due for
// a look now.
func (b *bundle) accept(t require.TestingT, l *outbox.Ledger, id int64, n int) {
	claimed := handed(t, l, id, n)
	statuses, err := l.Settle(bg, each(claimed, func(c outbox.Claimed) outbox.Settlement {
		return outbox.Settlement{
			Claimed: c, To: outbox.Processing, NextAttempts: 1, Receipt: "r-" + strconv.Itoa(int(c.ChannelID)),
			Record: []outbox.Attempt{{Attempt: 1, Medium: "alimtalk", Sender: "sens", Outcome: outbox.OutcomeAccepted}},
		}
	}), []int64{claimed[0].LeaseID})
	require.NoError(t, err)
	require.Equal(t, all(n, outbox.Processing), statuses)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases WHERE id = $1`, claimed[0].LeaseID), "a receipt needs no lease")
}

// A receipt is looked for by a relay that has the sender; by another only when nobody has
// come for twice the time.
func TestReceipts_AreLeftToRelaysThatCanAsk(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	other, sens := b.serving("fcm"), b.serving("sens")
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	b.accept(t, b.ledger("r1"), id, 3)
	late := func(channel int, seconds int) {
		b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - make_interval(secs => $2) WHERE channel_id = $1`, channel, seconds)
	}
	late(1, 119)
	late(2, 121)
	list := due(t, other, 100)
	require.Len(t, list, 1)
	require.EqualValues(t, 2, list[0].ChannelID)
	require.Len(t, due(t, sens, 100), 2)
	require.Empty(t, due(t, sens, 100))
}

func due(t require.TestingT, l *outbox.Ledger, n int) []outbox.Awaited {
	list, err := l.ReceiptsDue(bg, n, time.Minute)
	require.NoError(t, err)
	return list
}

// A receipt is looked for by one relay at a time, and settled by the receipt: once,
// by whoever comes first, whatever the job does meanwhile.
func TestReceipts_AreLookedForAndSettledOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l, other := b.ledger("r1"), b.ledger("r2")
	id := b.Rest(t, outbox.TypePush, 7, job.Aborted)
	_, err := b.jobs.Resume(bg, job.One(id), job.Act{})
	require.NoError(t, err)
	b.accept(t, l, id, 7)
	b.Exec(t, `UPDATE belfry.attempts SET at = now() - interval '1 hour' WHERE channel_id = 1`)
	b.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) VALUES ($1, 1, 0, 1, 'push', 'unknown')`, id)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() + interval '1 hour' WHERE channel_id = 7`)
	_, err = b.jobs.Abort(bg, job.One(id), job.Act{})
	require.NoError(t, err)
	first := due(t, l, 4)
	require.Len(t, first, 4)
	require.Len(t, due(t, other, 100), 2)
	require.Empty(t, due(t, l, 100), "for a minute")
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() WHERE channel_id < 7`)
	list := due(t, other, 100)
	require.Len(t, list, 6)
	require.InDelta(t, 3600, list[0].Age.Seconds(), 60)
	require.Less(t, list[1].Age, time.Minute)
	list[0].Age = 0
	require.Equal(t, outbox.Awaited{
		Claimed: outbox.Claimed{Key: outbox.Key{JobID: id, ChannelID: 1}, Attempts: 1, Ambiguous: true},
		Route:   []string{"push"}, Receipt: "r-1", Medium: "alimtalk", Sender: "sens",
	}, list[0])

	settle := func(a outbox.Awaited, to outbox.Status, reason outbox.Reason, outcomes ...outbox.Outcome) outbox.Settlement {
		s := outbox.Settlement{Claimed: a.Claimed, To: to, Reason: reason, NextStep: a.Step, NextAttempts: a.Attempts, Wait: time.Hour, Receipt: a.Receipt}
		for _, o := range outcomes {
			s.Record = append(s.Record, outbox.Attempt{Attempt: 1, Medium: "alimtalk", Outcome: o})
		}
		return s
	}
	failed := settle(list[3], outbox.Pending, outbox.ReasonFailover, outbox.OutcomePermanent)
	failed.NextStep, failed.NextAttempts = 1, 0
	s := []outbox.Settlement{
		settle(list[0], outbox.Sent, ""),
		settle(list[1], outbox.Sent, "", outbox.OutcomeUnconfirmed),
		settle(list[2], outbox.Processing, ""),
		failed,
		settle(list[4], outbox.Dead, outbox.ReasonPermanent, outbox.OutcomePermanent),
		settle(list[5], outbox.Sent, ""),
	}
	s[5].Receipt = "another"
	want := []outbox.Status{outbox.Sent, outbox.Sent, outbox.Processing, outbox.Pending, outbox.Dead, ""}
	statuses, err := l.Settle(bg, s, nil)
	require.NoError(t, err)
	require.Equal(t, want, statuses)
	statuses, err = other.Settle(bg, s, nil)
	require.NoError(t, err)
	want[3] = "" // it has no receipt any more by which to know it
	require.Equal(t, want, statuses)

	require.Equal(t, row{Status: "SENT", Attempts: 1, Sent: true, Receipt: "r-1", Wait: time.Minute}, b.row(t, list[0].Key))
	require.Equal(t, []string{"accepted", "unconfirmed"}, b.attempts(t, list[1].Key))
	require.Equal(t, row{Status: "PROCESSING", Attempts: 1, Receipt: "r-3", Wait: time.Hour}, b.row(t, list[2].Key))
	require.Equal(t, row{Status: "PENDING", Reason: "failover", Step: 1, Wait: time.Hour}, b.row(t, list[3].Key))
	require.Equal(t, []string{"accepted", "permanent"}, b.attempts(t, list[3].Key))
	require.Equal(t, row{Status: "DEAD", Reason: "permanent", Attempts: 1, Wait: time.Hour, Receipt: "r-5"}, b.row(t, list[4].Key))
	require.Equal(t, "PROCESSING", b.row(t, list[5].Key).Status)
	_, err = l.ReceiptsDue(bg, 0, time.Minute)
	require.ErrorContains(t, err, "0 messages are not allowed")
}

// A recalled message that a provider had accepted goes by no other medium.
func TestReceipts_OfARecalledMessageAreItsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	b.accept(t, l, id, 3)
	got, err := delivery.Recall(bg, b.DB.Pool, id, ann, nil)
	require.NoError(t, err)
	require.Equal(t, delivery.Recalled{Awaiting: 3}, got)
	list := due(t, l, 10)
	require.Len(t, list, 3)
	statuses, err := l.Settle(bg, []outbox.Settlement{
		{Claimed: list[0].Claimed, To: outbox.Pending, Reason: outbox.ReasonFailover, NextStep: 1, Receipt: "r-1"},
		{Claimed: list[1].Claimed, To: outbox.Sent, Receipt: "r-2"},
		{Claimed: list[2].Claimed, To: outbox.Processing, Receipt: "r-3"},
	}, nil)
	require.NoError(t, err)
	require.Equal(t, []outbox.Status{outbox.Cancelled, outbox.Sent, outbox.Processing}, statuses)
}

// A job is delivered when it is at rest and nothing is left to send, and not before.
func TestMarkDelivered_WaitsForTheLast(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	marked := func(id int64) bool {
		yes, err := l.MarkDelivered(bg, id)
		require.NoError(t, err)
		require.Equal(t, yes, one[bool](t, b, `SELECT coalesce((SELECT delivered_at IS NOT NULL FROM belfry.jobs WHERE id = $1), false)`, id))
		return yes
	}
	id := b.Rest(t, outbox.TypePush, 4, job.Aborted)
	later := b.Rest(t, outbox.TypePush, 1, job.Failed)
	b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() + interval '1 hour' WHERE job_id = $1`, later)
	require.False(t, marked(later), "due later")
	require.False(t, marked(id), "held")
	_, err := b.jobs.Resume(bg, job.One(id), job.Act{})
	require.NoError(t, err)
	require.False(t, marked(99))
	claimed := claim(t, l, id, 3)
	_, err = l.Settle(bg, []outbox.Settlement{sent(claimed[0])}, nil)
	require.NoError(t, err)
	b.Exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'r', heartbeat_at = now() WHERE id = $1`, id)
	b.Exec(t, `UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = $1`, id)
	require.False(t, marked(id), "in flight")
	require.Len(t, claim(t, l, id, 3), 1)
	require.False(t, marked(id), "in flight, all of it")
	b.Exec(t, `UPDATE belfry.leases SET expires_at = now() WHERE id <> $1`, claimed[0].LeaseID)
	require.NoError(t, recoverAll(l))
	_, err = l.Settle(bg, each(claimed[1:], sent), []int64{claimed[0].LeaseID})
	require.NoError(t, err)
	b.accept(t, l, id, 1)
	require.False(t, marked(id), "a receipt is awaited")
	_, err = l.Settle(bg, []outbox.Settlement{{Claimed: due(t, l, 1)[0].Claimed, To: outbox.Sent, Receipt: "r-4"}}, nil)
	require.NoError(t, err)
	require.True(t, marked(id))
	yes, err := l.MarkDelivered(bg, id)
	require.NoError(t, err)
	require.False(t, yes, "once")

	running := b.Rest(t, outbox.TypePush, 0, job.Aborted)
	_, err = b.jobs.Resume(bg, job.One(running), job.Act{})
	require.NoError(t, err)
	require.False(t, marked(running), "it may write more")
}

// I10: a job that goes on, and a redrive that is just being committed, are not missed.
func TestMarkDelivered_DoesNotMissARedrive(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 1, job.Processed)
	b.States(t, id, "DEAD")
	b.Exec(t, `DELETE FROM belfry.leases`)
	redrive, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	_, err = redrive.Exec(bg, `UPDATE belfry.message_rows SET status = 'PENDING', reason = 'redriven' WHERE job_id = $1`, id)
	require.NoError(t, err)
	_, err = redrive.Exec(bg, `UPDATE belfry.job_deliveries SET dead = 0 WHERE job_id = $1`, id)
	require.NoError(t, err)
	_, err = redrive.Exec(bg, `UPDATE belfry.jobs SET delivered_at = NULL WHERE id = $1`, id)
	require.NoError(t, err)
	yes, err := l.MarkDelivered(bg, id)
	require.NoError(t, err, "it does not wait for the redrive")
	require.False(t, yes)
	require.NoError(t, redrive.Commit(bg))
	yes, err = l.MarkDelivered(bg, id)
	require.NoError(t, err)
	require.False(t, yes)
	b.States(t, id, "SENT")
	tag, err := b.DB.Pool.Exec(bg, outbox.Statement("JobMarkDelivered"), pgx.StrictNamedArgs{"id": id})
	require.NoError(t, err)
	require.Zero(t, tag.RowsAffected(), "without the lock, its counts may be older than a redrive")
	yes, err = l.MarkDelivered(bg, id)
	require.NoError(t, err)
	require.True(t, yes)

	aborted := b.Rest(t, outbox.TypePush, 0, job.Aborted)
	yes, err = l.MarkDelivered(bg, aborted)
	require.NoError(t, err)
	require.True(t, yes)
	_, err = b.jobs.Resume(bg, job.One(aborted), job.Act{})
	require.NoError(t, err)
	candidates, err := l.Candidates(bg)
	require.NoError(t, err)
	require.Equal(t, []outbox.Candidate{{JobID: aborted, Lane: "default"}}, candidates)
}

// named is a sender of which nothing else is known.
func named(name string) outbox.SenderWork {
	return outbox.SenderWork{SenderLimits: outbox.SenderLimits{Name: name}}
}

// A heartbeat says how many transactions the relay has made: the ledger's and, beside them, the
// rest.
func TestBeat_SaysHowManyTransactionsItMade(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id, l := b.Rest(t, outbox.TypePush, 6, job.Processed), b.ledger("r1")
	beat := func(besides int64) int {
		_, _, err := l.Beat(bg, []outbox.SenderWork{named("fcm")}, 0, besides)
		require.NoError(t, err)
		return one[int](t, b, `SELECT transactions FROM belfry.relays`)
	}
	require.Equal(t, 0, beat(0))
	claimed := claim(t, l, id, 3)
	handOver(t, l, claimed, nil)
	require.Equal(t, 3, beat(0), "a heartbeat, a claim and a hand-over")
	require.Equal(t, 44, beat(40))
}

// Relays that beat share what they have in common; one that ends, or is silent, does
// not count.
func TestBeat_CountsTheRelaysThatLive(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	beat := func(relay string, senders ...string) map[string]int {
		limits := make([]outbox.SenderWork, len(senders))
		for i, name := range senders {
			limits[i].Name = name
		}
		states, adopted, err := b.ledger(relay).Beat(bg, limits, 7, 0)
		require.True(t, adopted)
		require.NoError(t, err)
		live := make(map[string]int)
		for name, s := range states {
			live[name] = s.Relays
		}
		return live
	}
	require.Equal(t, map[string]int{"fcm": 1, "gate": 1}, beat("r1", "fcm", "gate"))
	require.Equal(t, map[string]int{"fcm": 2}, beat("r2", "fcm"))
	require.Equal(t, map[string]int{"fcm": 3, "gate": 2}, beat("r3", "fcm", "gate"))
	require.Equal(t, map[string]int{}, beat("r2"))
	require.Equal(t, map[string]int{"fcm": 2, "gate": 2}, beat("r1", "fcm", "gate"))
	require.Equal(t, 7, one[int](t, b, `SELECT min(in_flight) FROM belfry.relays`))
	b.Exec(t, `UPDATE belfry.relays SET heartbeat_at = now() - interval '21 seconds' WHERE name = 'r3'`)
	require.Equal(t, map[string]int{"fcm": 1}, beat("r1", "fcm"))
	b.Exec(t, `UPDATE belfry.relays SET heartbeat_at = now() - interval '2 hours' WHERE name = 'r3'`)
	require.Equal(t, map[string]int{"fcm": 2}, beat("r2", "fcm"))
	require.NoError(t, b.ledger("r2").Deregister(bg))
	require.Equal(t, map[string]int{"fcm": 1}, beat("r1", "fcm"))
	require.Equal(t, []string{"r1"}, one[[]string](t, b, `SELECT array_agg(name) FROM belfry.relays`))
	b.Exec(t, `INSERT INTO belfry.relays (name, senders, heartbeat_at) SELECT 'forged ' || g, '{fcm}', now() + interval '2 minutes' + g * interval '1 hour' FROM generate_series(0, 9) g`)
	require.Equal(t, map[string]int{"fcm": 1}, beat("r1", "fcm"), "no relay has written such heartbeats")
	require.Equal(t, 1, one[int](t, b, `SELECT count(*) FROM belfry.relays`))
	b.Exec(t, `INSERT INTO belfry.relays (name, senders) SELECT 'forged ' || g, '{fcm}' FROM generate_series(1, 1000) g`)
	require.Equal(t, map[string]int{"fcm": 500}, beat("r1", "fcm"), "a share is a five-hundredth at least")
	b.Exec(t, `DELETE FROM belfry.relays WHERE name <> 'r1'`)
	b.Exec(t, `INSERT INTO belfry.relays (name, heartbeat_at) SELECT 'silent ' || g, now() - interval '1 hour' - (g % 3 - 1) * interval '30 minutes' FROM generate_series(1, 1999) g`)
	require.Equal(t, map[string]int{"fcm": 2}, beat("r2", "fcm"), "silent relays make room")
	require.NoError(t, b.ledger("r2").Deregister(bg))
	b.Exec(t, `DELETE FROM belfry.relays WHERE name <> 'r1'`)

	b.Exec(t, `INSERT INTO belfry.senders (name, rate_per_second, paused_at, paused_by, pause_reason) VALUES ('fcm', 2.5, now(), 'ann', 'limits'), ('gate', NULL, NULL, NULL, ''), ('other', 1, NULL, NULL, '')`)
	b.Exec(t, `UPDATE belfry.senders SET concurrency = 9 WHERE name = 'gate'`)
	states, _, err := b.ledger("r1").Beat(bg, []outbox.SenderWork{named("fcm"), named("gate"), named("free")}, 0, 0)
	require.NoError(t, err)
	rate, slots := 2.5, 9
	require.Equal(t, map[string]outbox.LiveSender{
		"fcm":  {Relays: 1, SenderOverride: outbox.SenderOverride{RatePerSecond: &rate, Paused: true, PauseReason: "limits"}},
		"gate": {Relays: 1, SenderOverride: outbox.SenderOverride{Concurrency: &slots}},
		"free": {Relays: 1},
	}, states)

	first, err := b.ledger("r1").Installation(bg)
	require.NoError(t, err)
	second, err := b.ledger("r2").Installation(bg)
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.NotZero(t, first)
}

// Of a job with messages to send it waits for nobody and writes nothing.
func TestMarkDelivered_OnlyReadsWhileMessagesAreLeft(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 2, job.Processed)
	locked, err := b.DB.Pool.Begin(bg)
	require.NoError(t, err)
	_, err = locked.Exec(bg, `SELECT FROM belfry.jobs WHERE id = $1 FOR UPDATE`, id)
	require.NoError(t, err)
	for _, statuses := range [][]string{{"PENDING", "SENT"}, {"SENT", "QUEUED"}} {
		b.States(t, id, statuses...)
		b.Exec(t, `DELETE FROM belfry.leases`)
		yes, err := l.MarkDelivered(bg, id)
		require.NoError(t, err)
		require.False(t, yes, statuses)
	}
	require.NoError(t, locked.Rollback(bg))
	yes, err := l.MarkDelivered(bg, id)
	require.NoError(t, err)
	require.False(t, yes, "a carrier has one")
	b.States(t, id, "SENT")
	b.Exec(t, `DELETE FROM belfry.leases`)
	yes, err = l.MarkDelivered(bg, id)
	require.NoError(t, err)
	require.True(t, yes)
}
