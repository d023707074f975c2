package outbox_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// crashed is what a relay decides of a message that another died with.
func crashed(h outbox.Handed) outbox.Settlement {
	return outbox.Settlement{
		Claimed: h.Claimed, To: outbox.Pending, Reason: outbox.ReasonRetry, NextStep: h.Step, NextAttempts: h.Attempts + 1, Wait: time.Minute,
		Record: []outbox.Attempt{{Step: h.Step, Attempt: h.Attempts + 1, Medium: "push", Outcome: outbox.OutcomeCrashed}},
	}
}

// decide gives a settlement for every message that was handed over.
func decide(lost outbox.Lost) (s []outbox.Settlement) {
	for _, h := range lost.Handed {
		s = append(s, crashed(h))
	}
	return s
}

// recoverAll takes back every lease that has expired.
func recoverAll(l *outbox.Ledger) error {
	lost, err := l.Lost(bg, nil, nil, 100)
	for _, one := range lost {
		if _, e := l.Recover(bg, one, decide(one)); e != nil {
			return e
		}
	}
	return err
}

// Of the messages that a dead relay had, those handed over are crashed, once each; the
// others come back as they were, and what was settled stays. Nobody's neighbours are
// blamed.
func TestRecover_TellsWhatWasHandedOver(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	dead, l := b.ledger("dead"), b.ledger("alive")
	id := b.Rest(t, outbox.TypePush, 10, job.Processed)
	b.Exec(t, `UPDATE belfry.message_rows SET reason = 'retry', attempts = 1 WHERE channel_id = 9`)
	claimed := claim(t, dead, id, 10)
	lease := claimed[0].LeaseID
	due := one[time.Time](t, b, `SELECT next_attempt_at FROM belfry.messages WHERE channel_id = 9`)
	handOver(t, dead, claimed[:6], nil)
	_, err := dead.Settle(ctx, []outbox.Settlement{sent(claimed[0])}, nil)
	require.NoError(t, err)
	lost, err := l.Lost(ctx, nil, nil, 10)
	require.NoError(t, err)
	require.Empty(t, lost, "it lives")
	b.expire(t, lease)
	_, err = delivery.Recall(ctx, b.DB.Pool, id, ann, nil) // marks what is in flight
	require.NoError(t, err)
	b.Exec(t, `UPDATE belfry.message_rows SET recalled_at = NULL WHERE channel_id NOT IN (5, 6, 7)`)

	lost, err = l.Lost(ctx, nil, nil, 10)
	require.NoError(t, err)
	require.Len(t, lost, 1)
	require.Equal(t, "dead", lost[0].Relay)
	require.Equal(t, 4, lost[0].Unhanded)
	require.Len(t, lost[0].Handed, 5)
	require.Equal(t, outbox.Handed{Claimed: outbox.Anywhere(claimed)[1], Route: []string{"push"}}, lost[0].Handed[0])
	r, err := l.Recover(ctx, lost[0], decide(lost[0]))
	require.NoError(t, err)
	require.Equal(t, outbox.Recovered{Released: 4, Settled: 5, Statuses: append(all(3, outbox.Pending), all(2, outbox.Cancelled)...)}, r)

	again := row{Status: "PENDING", Reason: "retry", Attempts: 1, Crashes: 1, Wait: time.Minute}
	for channel, want := range map[int64]row{
		1: {Status: "SENT", Attempts: 1, Sent: true, Lease: lease}, 2: again, 3: again, 4: again,
		5: {Status: "CANCELLED", Reason: "recalled", Attempts: 1, Crashes: 1, Wait: time.Minute, Recalled: true},
		6: {Status: "CANCELLED", Reason: "recalled", Attempts: 1, Crashes: 1, Wait: time.Minute, Recalled: true},
		7: {Status: "CANCELLED", Reason: "recalled", Recalled: true},
		8: {Status: "PENDING"}, 9: {Status: "PENDING", Reason: "retry", Attempts: 1}, 10: {Status: "PENDING"},
	} {
		require.Equal(t, want, b.row(t, outbox.Key{JobID: id, ChannelID: channel}), channel)
	}
	require.Equal(t, due, one[time.Time](t, b, `SELECT next_attempt_at FROM belfry.messages WHERE channel_id = 9`))
	require.Equal(t, 5, one[int](t, b, `SELECT count(*) FROM belfry.attempts WHERE outcome = 'crashed'`))
	require.Zero(t, one[int](t, b, `SELECT (SELECT count(*) FROM belfry.leases) + (SELECT count(*) FROM belfry.handovers)`))

	// The one who was paused is too late for everything (I8).
	r, err = l.Recover(ctx, lost[0], decide(lost[0]))
	require.NoError(t, err)
	require.True(t, r.Gone)
	verdicts, err := dead.Recheck(ctx, claimed)
	require.NoError(t, err)
	require.Equal(t, all(10, outbox.VerdictLost), verdicts)
	statuses, err := dead.Settle(ctx, each(claimed, sent), []int64{lease})
	require.NoError(t, err)
	require.Equal(t, append([]outbox.Status{outbox.Sent}, all(9, outbox.Status(""))...), statuses)
	handOver(t, dead, claimed, nil)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.handovers`))
	gone, err := dead.Renew(ctx, []int64{lease})
	require.NoError(t, err)
	require.Equal(t, []int64{lease}, gone)
}

// Whoever renews keeps what he has; an expired lease is not renewed, nor another's.
func TestRenew_KeepsLivingLeasesOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	l, other := b.ledger("r1"), b.ledger("r2")
	id := b.Rest(t, outbox.TypePush, 6, job.Processed)
	mine, expired, foreign := claim(t, l, id, 2)[0].LeaseID, claim(t, l, id, 2)[0].LeaseID, claim(t, other, id, 2)[0].LeaseID
	b.expire(t, expired)
	b.Exec(t, `UPDATE belfry.leases SET expires_at = now() + interval '20 seconds' WHERE id = ANY ($1)`, []int64{mine, foreign})
	lost, err := l.Renew(ctx, []int64{foreign, mine, expired, 99})
	require.NoError(t, err)
	require.Equal(t, []int64{foreign, expired, 99}, lost)
	require.Equal(t, []int64{mine}, one[[]int64](t, b, `SELECT array_agg(id) FROM belfry.leases WHERE expires_at > now() + interval '25 seconds'`))
	lost, err = l.Renew(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, lost)

	// A lease that was expired when it was looked at, and lives now, is left alone.
	b.Exec(t, `UPDATE belfry.leases SET expires_at = now() + interval '1 hour'`)
	r, err := other.Recover(ctx, outbox.Lost{LeaseID: mine, Relay: "r1"}, nil)
	require.NoError(t, err)
	require.True(t, r.Gone)
	require.Equal(t, map[string]int{"PROCESSING": 6}, b.Statuses(t, id))
}

// A claim whose answer was lost, and what a process before this one left, come back.
func TestLost_OrphansAreLeasesThatNobodyKnows(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	l, other := b.ledger("r1"), b.ledger("r2")
	id := b.Rest(t, outbox.TypePush, 10, job.Processed)
	known, orphan, foreign := claim(t, l, id, 2), handed(t, l, id, 2), claim(t, other, id, 2)
	b.Exec(t, `UPDATE belfry.leases SET claimed_at = now() - interval '16 seconds'`)
	young := claim(t, l, id, 2)
	lost, err := l.Lost(ctx, []int64{known[0].LeaseID}, nil, 10)
	require.NoError(t, err)
	require.Len(t, lost, 1)
	require.Equal(t, orphan[0].LeaseID, lost[0].LeaseID)
	require.Len(t, lost[0].Handed, 2)
	r, err := other.Recover(ctx, lost[0], decide(lost[0]))
	require.NoError(t, err)
	require.True(t, r.Gone, "it has not expired and is not another relay's to take")
	r, err = l.Recover(ctx, lost[0], decide(lost[0]))
	require.NoError(t, err)
	require.Equal(t, outbox.Recovered{Settled: 2, Statuses: all(2, outbox.Pending)}, r)
	require.ElementsMatch(t, []int64{known[0].LeaseID, foreign[0].LeaseID, young[0].LeaseID}, one[[]int64](t, b, `SELECT array_agg(id) FROM belfry.leases`))
	lost, err = l.Lost(ctx, nil, nil, 10)
	require.NoError(t, err)
	require.Len(t, lost, 1, "without anything known")
}

// What is locked, or was handed over since it was looked at, keeps the lease for the
// next time; two who recover the same share nothing.
func TestRecover_LeavesWhatItCannotHave(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	dead, l := b.ledger("dead"), b.ledger("alive")
	id := b.Rest(t, outbox.TypePush, 5, job.Processed)
	claimed := claim(t, dead, id, 5)
	handOver(t, dead, claimed[:2], nil)
	b.expire(t, claimed[0].LeaseID)
	lost, err := l.Lost(ctx, nil, nil, 1)
	require.NoError(t, err)
	b.Exec(t, `INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps) VALUES ($1, ARRAY[$2::bigint], '{3}', '{0}')`, claimed[0].LeaseID, id)
	other, err := b.DB.Pool.Begin(ctx)
	require.NoError(t, err)
	_, err = other.Exec(ctx, `SELECT FROM belfry.messages WHERE channel_id = 5 FOR UPDATE`)
	require.NoError(t, err)
	r, err := l.Recover(ctx, lost[0], decide(lost[0]))
	require.NoError(t, err)
	require.Equal(t, outbox.Recovered{Released: 1, Settled: 2, Left: 2, Statuses: all(2, outbox.Pending)}, r)
	_, err = other.Exec(ctx, `SELECT FROM belfry.leases FOR UPDATE`)
	require.NoError(t, err)
	r, err = l.Recover(ctx, lost[0], decide(lost[0]))
	require.NoError(t, err)
	require.True(t, r.Gone, "somebody else is at it")
	require.NoError(t, other.Rollback(ctx))
	require.NoError(t, recoverAll(l))
	require.Equal(t, map[string]int{"PENDING": 5}, b.Statuses(t, id))
	require.Equal(t, 3, one[int](t, b, `SELECT sum(crashes) FROM belfry.messages`))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`))
}

// A lease that names what nobody took, as when rows changed under a claim, just ends.
// So do handovers of leases that are gone.
func TestRecover_SweepsWhatIsLeftBehind(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	b.Exec(t, `INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps) VALUES (0, '{1}', '{1}', '{0}'), (8, '{1}', '{1}', '{0}'), (100, '{1}', '{1}', '{0}')`)
	b.Exec(t, `INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (7, 'dead', now(), '{7,7}', '{1,2}'), (8, 'alive', now() + interval '1 hour', '{8}', '{1}')`)
	require.NoError(t, recoverAll(l))
	require.Equal(t, []int64{8}, one[[]int64](t, b, `SELECT array_agg(id) FROM belfry.leases`))
	require.Equal(t, []int64{8}, one[[]int64](t, b, `SELECT array_agg(lease_id) FROM belfry.handovers`))
	_, err := l.Recover(bg, outbox.Lost{}, []outbox.Settlement{{To: outbox.Queued}})
	require.ErrorContains(t, err, "To QUEUED is not allowed")
}

// I6, I8: a process that was thought gone, and is just about to look, does not pass the
// look while another of its name takes back what it has.
func TestRecover_OfAnOrphanThatLivesLetsNoLookPass(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	id := b.Rest(t, outbox.TypePush, 5, job.Processed)
	lives, again := b.ledger("same"), b.ledger("same")
	claimed := claim(t, lives, id, 5)
	b.Exec(t, `UPDATE belfry.leases SET claimed_at = claimed_at - interval '20 seconds'`)
	lost, err := again.Lost(ctx, nil, nil, 10)
	require.NoError(t, err)
	require.Len(t, lost, 1)
	gate, err := b.DB.Pool.Begin(ctx)
	require.NoError(t, err)
	_, err = gate.Exec(ctx, `LOCK TABLE belfry.attempts IN SHARE MODE`)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := again.Recover(bg, lost[0], nil)
		done <- err
	}()
	b.Eventually(t, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'belfry.attempts'::regclass)`)
	handOver(t, lives, claimed, nil)
	verdicts, err := lives.Recheck(ctx, claimed)
	require.NoError(t, err)
	require.NoError(t, gate.Rollback(ctx))
	require.NoError(t, <-done)
	require.Equal(t, all(5, outbox.VerdictLost), verdicts)
	require.Equal(t, map[string]int{"PENDING": 5}, b.Statuses(t, id))
}

// A message that was called for after steps were bypassed comes back at the step that was
// called, and with the others, each once however often the handover was made.
func TestLost_TellsTheStepThatWasCalled(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	b.Exec(t, `UPDATE belfry.message_rows SET attempts = 2, reason = 'retry', lease_id = 0`)
	dead := b.ledger("dead")
	claimed := claim(t, dead, id, 3)
	b.Past(t, `UPDATE belfry.jobs SET route = '{push,email,sms}' WHERE id = $1`, id)
	calls := slices.Clone(claimed[:2])
	calls[0].Step = 2
	bypassed := []outbox.Attempt{
		{Step: 0, Medium: "push", Outcome: outbox.OutcomeRefused, Reason: outbox.ReasonInvalidAddress},
		{Step: 1, Medium: "email", Outcome: outbox.OutcomeRefused, Reason: outbox.ReasonNoAddress},
	}
	for range 2 {
		handOver(t, dead, calls, map[outbox.Key][]outbox.Attempt{calls[0].Key: bypassed})
	}
	b.expire(t, claimed[0].LeaseID)
	lost, err := b.ledger("alive").Lost(ctx, nil, nil, 10)
	require.NoError(t, err)
	require.Len(t, lost, 1)
	require.Equal(t, 1, lost[0].Unhanded)
	require.Len(t, lost[0].Handed, 2)
	calls[0].Attempts = 0
	found := []outbox.Claimed{lost[0].Handed[0].Claimed, lost[0].Handed[1].Claimed}
	require.Equal(t, outbox.Anywhere(calls), found)
	require.Equal(t, bypassed, lost[0].Handed[0].Bypassed)
	require.Nil(t, lost[0].Handed[1].Bypassed)
}

// Leases whose messages cannot be read together are read one by one: one that fails does not stop the
// recovery of the others.
func TestLost_ReadsLeasesOneByOne(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t), 0)
	dead, l := b.ledger("dead"), b.ledger("alive")
	id := b.Rest(t, outbox.TypePush, 4, job.Processed)
	broken, good := claim(t, dead, id, 2), claim(t, dead, id, 2)
	b.Exec(t, `ALTER TABLE belfry.handovers DROP CONSTRAINT handovers_steps_check`)
	b.Exec(t, `INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps, reasons) VALUES ($1, ARRAY[$2::bigint], ARRAY[$3::bigint], '{NULL}', '{x}')`,
		broken[0].LeaseID, id, broken[0].ChannelID)
	b.expire(t, broken[0].LeaseID, good[0].LeaseID)
	lost, err := l.Lost(bg, nil, nil, 10)
	require.NoError(t, err)
	require.Len(t, lost, 2)
	for i := range lost {
		require.True(t, lost[i].Unread)
		require.Zero(t, lost[i].Unhanded)
		err := l.ReadLost(bg, &lost[i])
		if lost[i].LeaseID == broken[0].LeaseID {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.False(t, lost[i].Unread)
		require.Equal(t, 2, lost[i].Unhanded)
		r, err := l.Recover(bg, lost[i], nil)
		require.NoError(t, err)
		require.Equal(t, 2, r.Released)
	}
}

// A reason that is too long for an attempt, as only a role that writes handovers itself can store it, does not
// prevent the recovery of its lease.
func TestRecover_CutsALongReason(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t), 0)
	dead, l := b.ledger("dead"), b.ledger("alive")
	id := b.Rest(t, outbox.TypePush, 1, job.Processed)
	claimed := claim(t, dead, id, 1)
	b.Exec(t, `INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps, reasons) VALUES
		($1, ARRAY[$2::bigint, $2], ARRAY[$3::bigint, $3], '{0,1}', ARRAY[repeat('ü', 1000), NULL])`, claimed[0].LeaseID, id, claimed[0].ChannelID)
	b.expire(t, claimed[0].LeaseID)
	lost, err := l.Lost(bg, nil, nil, 10)
	require.NoError(t, err)
	require.Len(t, lost, 1)
	require.Len(t, lost[0].Handed, 1)
	require.Len(t, lost[0].Handed[0].Bypassed, 1)
	require.Len(t, lost[0].Handed[0].Bypassed[0].Reason, 500, "bytes, of 1,000 that belfry.attempts allows")
}

// A lease with more handovers than any relay writes is recovered: none of them is read, and all its messages count
// as handed over. Handovers that are deleted with leases are bounded as well, and go with later recoveries.
func TestRecover_ReadsABoundedNumberOfHandovers(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]string{
		"rows": `INSERT INTO belfry.handovers SELECT $1, ARRAY[$2::bigint], ARRAY[1::bigint], ARRAY[0::smallint] FROM generate_series(1, 8001)`,
		"keys": `INSERT INTO belfry.handovers SELECT $1, array_fill($2::bigint, ARRAY[11000]), array_fill(1::bigint, ARRAY[11000]), array_fill(0::smallint, ARRAY[11000]) FROM generate_series(1, 4)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 0)
			l := b.ledger("alive")
			id := b.Rest(t, outbox.TypePush, 20, job.Processed)
			lease, next := claim(t, b.ledger("dead"), id, 10)[0].LeaseID, claim(t, b.ledger("dead"), id, 10)[0].LeaseID
			b.Exec(t, fill, lease, id)
			b.expire(t, lease)
			lost, err := l.Lost(t.Context(), nil, nil, 10)
			require.NoError(t, err)
			require.Len(t, lost, 1)
			require.Len(t, lost[0].Handed, 10)
			r, err := l.Recover(t.Context(), lost[0], decide(lost[0]))
			require.NoError(t, err)
			require.Equal(t, 10, r.Settled)
			if name == "rows" {
				require.Equal(t, 1001, one[int](t, b, `SELECT count(*) FROM belfry.handovers`))
			}
			b.expire(t, next)
			require.NoError(t, recoverAll(l))
			require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.handovers`))
			require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`))
		})
	}
}

// A ledger holds a lease until it has not renewed it for the lease time, or learns that it is lost.
func TestLedger_HoldsItsLeases(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	l := outbox.NewLedger(b.DB.Pool, "r", 15*time.Second)
	require.False(t, l.Holds(1))
	lease := claim(t, l, id, 1)[0].LeaseID
	require.Eventually(t, func() bool { return !l.Holds(lease) }, time.Minute, 10*time.Millisecond)
	b.Exec(t, `UPDATE belfry.leases SET expires_at = now() + interval '1 minute' WHERE id = $1`, lease)
	lost, err := l.Renew(t.Context(), []int64{lease})
	require.NoError(t, err)
	require.Empty(t, lost)
	require.True(t, l.Holds(lease))

	l = outbox.NewLedger(b.DB.Pool, "r2", time.Hour)
	lease = claim(t, l, id, 1)[0].LeaseID
	b.Exec(t, `UPDATE belfry.leases SET expires_at = now() WHERE id = $1`, lease)
	require.True(t, l.Holds(lease), "not known yet")
	lost, err = l.Renew(t.Context(), []int64{lease})
	require.NoError(t, err)
	require.Equal(t, []int64{lease}, lost)
	require.False(t, l.Holds(lease))

	last := claim(t, l, id, 1)
	lease = last[0].LeaseID
	require.True(t, l.Holds(lease))
	_, err = l.Settle(t.Context(), each(last, outbox.Release), []int64{lease})
	require.NoError(t, err)
	require.False(t, l.Holds(lease), "it has ended")
}
