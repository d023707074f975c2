package outbox_test

import (
	"context"
	"crypto/sha256"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// row is what the database says of a message.
type row struct {
	Status, Reason, Receipt, Error string
	Step, Attempts, Crashes        int
	Lease                          int64
	Sent, Recalled                 bool
	Wait                           time.Duration // until due, from now, in seconds
}

func (b *bundle) row(t require.TestingT, key outbox.Key) (r row) {
	var seconds int64
	require.NoError(t, b.DB.Pool.QueryRow(bg, `SELECT status, coalesce(reason, ''), coalesce(receipt, ''), coalesce(last_error, ''), step, attempts, crashes,
			coalesce(lease_id, 0), sent_at IS NOT NULL, recalled_at IS NOT NULL, greatest(0, round(extract(epoch FROM next_attempt_at - now())))::bigint
		  FROM belfry.messages WHERE job_id = $1 AND channel_id = $2`, key.JobID, key.ChannelID).
		Scan(&r.Status, &r.Reason, &r.Receipt, &r.Error, &r.Step, &r.Attempts, &r.Crashes, &r.Lease, &r.Sent, &r.Recalled, &seconds))
	r.Wait = time.Duration(seconds) * time.Second
	return r
}

// attempts are the outcomes recorded of a message.
func (b *bundle) attempts(t require.TestingT, key outbox.Key) []string {
	return one[[]string](t, b, `SELECT coalesce(array_agg(outcome ORDER BY id), '{}') FROM belfry.attempts WHERE job_id = $1 AND channel_id = $2`, key.JobID, key.ChannelID)
}

// outcomes are one settlement of each kind, and what the row is afterwards. The first
// word of a name is the status.
func outcomes() map[string]struct {
	settle func(c outbox.Claimed) outbox.Settlement
	row    row
} {
	with := func(to outbox.Status, reason outbox.Reason, outcome outbox.Outcome) func(outbox.Claimed) outbox.Settlement {
		return func(c outbox.Claimed) outbox.Settlement {
			return outbox.Settlement{
				Claimed: c, To: to, Reason: reason, NextStep: 1, NextAttempts: 2, Wait: time.Hour, Error: "told",
				Record: []outbox.Attempt{{Attempt: 1, Medium: "push", Sender: "fcm", Outcome: outcome, Code: "429"}},
			}
		}
	}
	return map[string]struct {
		settle func(c outbox.Claimed) outbox.Settlement
		row    row
	}{
		"SENT":      {sent, row{Status: "SENT", Attempts: 1, Sent: true}},
		"PENDING":   {with(outbox.Pending, outbox.ReasonRetry, outbox.OutcomeRetryable), row{Status: "PENDING", Reason: "retry", Step: 1, Attempts: 2, Wait: time.Hour, Error: "told"}},
		"DEAD":      {with(outbox.Dead, outbox.ReasonPermanent, outbox.OutcomePermanent), row{Status: "DEAD", Reason: "permanent", Step: 1, Attempts: 2, Wait: time.Hour, Error: "told"}},
		"CANCELLED": {with(outbox.Cancelled, outbox.ReasonOptedOut, outbox.OutcomeRefused), row{Status: "CANCELLED", Reason: "opted_out", Step: 1, Attempts: 2, Error: "told"}},
		"PROCESSING": {func(c outbox.Claimed) outbox.Settlement {
			s := with(outbox.Processing, "", outbox.OutcomeAccepted)(c)
			s.Receipt = "r-1"
			return s
		}, row{Status: "PROCESSING", Receipt: "r-1", Step: 1, Attempts: 2, Wait: time.Hour, Error: "told"}},
		"PENDING as it was": {outbox.Release, row{Status: "PENDING", Reason: "breaker_open"}},
		"SENT after a retry": {func(c outbox.Claimed) outbox.Settlement {
			s := sent(c)
			s.Receipt, s.Record = "kept", []outbox.Attempt{{Attempt: 1, Medium: "push", Outcome: outbox.OutcomeUnconfirmed}}
			return s
		}, row{Status: "SENT", Attempts: 1, Sent: true, Receipt: "kept"}},
	}
}

// Every outcome, by the owner and by somebody else, once and again (I8): what the
// first call has done a second one reports, and does not do.
func TestSettle_RecordsEachOutcomeOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	l, late := b.ledger("r1"), b.ledger("r2")
	for name, o := range outcomes() {
		id := b.Rest(t, outbox.TypePush, 3, job.Processed)
		b.Exec(t, `UPDATE belfry.message_rows SET reason = 'breaker_open' WHERE job_id = $1`, id)
		claimed := handed(t, l, id, 3)
		before := b.row(t, claimed[2].Key)
		s := each(claimed[:2], o.settle)
		want := all(2, outbox.Status(o.row.Status))
		foreign := o.settle(claimed[2])
		foreign.LeaseID += 1000
		statuses, err := late.Settle(ctx, append(s, foreign), nil)
		require.NoError(t, err, name)
		require.Equal(t, append(want, ""), statuses, name)
		require.Equal(t, before, b.row(t, claimed[2].Key), name)
		require.Empty(t, b.attempts(t, claimed[2].Key), name)
		for range 2 {
			for _, c := range claimed[:2] {
				r := b.row(t, c.Key)
				if name != "PROCESSING" { // whose receipt is its owner
					require.Equal(t, c.LeaseID, r.Lease, name)
					r.Lease = 0
				}
				require.Equal(t, o.row, r, name)
				require.Len(t, b.attempts(t, c.Key), len(s[0].Record), name)
			}
			statuses, err = l.Settle(ctx, s, []int64{claimed[0].LeaseID})
			require.NoError(t, err)
			require.Equal(t, want, statuses, "%s: after an unknown COMMIT", name)
			require.EqualValues(t, 2, one[int64](t, b, `SELECT (SELECT count(*) FROM belfry.leases WHERE id = $1) + (SELECT count(*) FROM belfry.handovers WHERE lease_id = $1)`, claimed[0].LeaseID),
				"the third message keeps the lease")
		}
		// Another relay has it now: nothing is told of what was ours before.
		if o.row.Status == "PENDING" {
			b.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - interval '1 second' WHERE job_id = $1`, id)
			require.Len(t, claim(t, late, id, 10), 2)
			statuses, err = l.Settle(ctx, s, nil)
			require.NoError(t, err)
			require.Equal(t, all(2, outbox.Status("")), statuses, name)
		}
		statuses, err = l.Settle(ctx, []outbox.Settlement{sent(claimed[2])}, []int64{claimed[0].LeaseID})
		require.NoError(t, err)
		require.Equal(t, []outbox.Status{outbox.Sent}, statuses)
		require.Zero(t, one[int64](t, b, `SELECT (SELECT count(*) FROM belfry.leases WHERE id = $1) + (SELECT count(*) FROM belfry.handovers WHERE lease_id = $1)`, claimed[0].LeaseID))
	}
	statuses, err := l.Settle(ctx, nil, nil)
	require.NoError(t, err)
	require.Empty(t, statuses)
}

// transitions finds out which statuses a message can go to by what the ledger and a
// recall do, whatever they are asked for.
func TestLedger_TransitionsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	l := b.ledger("r1")
	statuses := []outbox.Status{outbox.Pending, outbox.Queued, outbox.Processing, outbox.Sent, outbox.Dead, outbox.Cancelled}
	id := b.Rest(t, outbox.TypePush, 1, job.Processed)
	key := outbox.Key{JobID: id, ChannelID: 1}
	lease := one[int64](t, b, `INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (1, 'r1', now() + interval '1 hour', ARRAY[$1::bigint], '{1}') RETURNING id`, id)
	owner := outbox.Claimed{Key: key, LeaseID: lease}
	acts := map[string]func() error{
		"claim": func() error {
			_, _, err := l.ClaimJob(ctx, id, outbox.Position{}, 1, outbox.AnyTry)
			return err
		},
		"recall": func() error {
			_, err := delivery.Recall(ctx, b.DB.Pool, id, ann, nil)
			return err
		},
		"recover, never sent": func() error { return recoverAll(l) },
		"recover, handed over": func() error {
			b.Exec(t, `INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps) VALUES ($1, ARRAY[$2::bigint], '{1}', '{0}')`, lease, id)
			return recoverAll(l)
		},
	}
	for name, o := range outcomes() {
		acts["settle "+name] = func() error {
			_, err := l.Settle(ctx, []outbox.Settlement{o.settle(owner)}, nil)
			return err
		}
	}
	edges := make(map[[2]outbox.Status]bool)
	for name, act := range acts {
		for _, from := range statuses {
			b.Exec(t, `INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES ($1, 'r1', now(), ARRAY[$2::bigint], '{1}')
				ON CONFLICT (id) DO UPDATE SET expires_at = now()`, lease, id)
			b.Exec(t, `DELETE FROM belfry.handovers`)
			b.Exec(t, `UPDATE belfry.message_rows SET status = $2, lease_id = $3, reason = 'x', receipt = NULL, recalled_at = NULL, sent_at = NULL, next_attempt_at = now() WHERE job_id = $1`, id, string(from), lease)
			require.NoError(t, act(), name)
			to := outbox.Status(b.row(t, key).Status)
			require.True(t, from == to || from.May(to), "%s: %s → %s", name, from, to)
			if name == "settle PROCESSING" && from == outbox.Processing || from != to {
				edges[[2]outbox.Status{from, to}] = true
			}
		}
	}
	for _, from := range statuses {
		for _, to := range statuses {
			byOthers := from == outbox.Queued && to != outbox.Cancelled || to == outbox.Queued || from == outbox.Dead // carriers, and operators' acts on dead letters
			require.Equal(t, from.May(to) && !byOthers, edges[[2]outbox.Status{from, to}], "%s → %s", from, to)
			require.False(t, from.Final() && to != from && from != outbox.Dead && from.May(to), "%s → %s", from, to)
		}
	}
	for _, s := range statuses {
		_, err := l.Settle(ctx, []outbox.Settlement{{Claimed: owner, To: s, Reason: "x", Receipt: "r", Record: []outbox.Attempt{{Outcome: outbox.OutcomeAccepted, Medium: "push"}}}}, nil)
		require.Equal(t, outbox.Processing.May(s), err == nil, "%s: %v", s, err)
	}
}

// What a relay must not ask for is an error before anything is written.
func TestSettle_RefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	c := claim(t, l, b.Rest(t, outbox.TypePush, 1, job.Processed), 1)[0]
	awaited := c
	awaited.LeaseID = 0
	for says, s := range map[string]outbox.Settlement{
		"To QUEUED is not allowed; allowed values: PENDING, SENT, DEAD, CANCELLED or PROCESSING":  {Claimed: c, To: outbox.Queued},
		"Untouched with SENT is not allowed; allowed values: PENDING":                             {Claimed: c, To: outbox.Sent, Untouched: true},
		"no Reason with DEAD is not allowed":                                                      {Claimed: c, To: outbox.Dead},
		"no Reason with CANCELLED is not allowed":                                                 {Claimed: c, To: outbox.Cancelled},
		"no Receipt is not allowed":                                                               {Claimed: c, To: outbox.Processing},
		"1/1: no Receipt is not allowed":                                                          {Claimed: awaited, To: outbox.Sent},
		"a Record without acceptance is not allowed; allowed values: one that ends with accepted": {Claimed: c, To: outbox.Processing, Receipt: "x", Record: []outbox.Attempt{{Outcome: outbox.OutcomeRetryable}}},
		"InvalidAddress without a Record is not allowed":                                          {Claimed: c, To: outbox.Pending, InvalidAddress: make([]byte, 32)},
	} {
		_, err := l.Settle(t.Context(), []outbox.Settlement{sent(c), s}, nil)
		require.ErrorContains(t, err, says)
	}
	_, err := l.Settle(t.Context(), make([]outbox.Settlement, outbox.MaxBatch+1), nil)
	require.ErrorContains(t, err, "1001 messages are not allowed; allowed values: 0 to 1000")
	require.Equal(t, "PROCESSING", b.row(t, c.Key).Status)
}

// A constraint that somebody put on the table and that refuses a row stays the server's answer: by
// its class a relay knows that the same rows will be refused again, and looks for the one at fault.
func TestSettle_SaysThatARowWasRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	c := claim(t, l, b.Rest(t, outbox.TypePush, 1, job.Processed), 1)[0]
	b.Exec(t, `ALTER TABLE belfry.message_rows ADD CONSTRAINT of_somebody CHECK (status <> 'SENT')`)
	_, err := l.Settle(t.Context(), []outbox.Settlement{sent(c)}, nil)
	require.ErrorContains(t, err, "of_somebody")
	require.Equal(t, db.Violation, db.ClassOf(err))
	require.NotErrorAs(t, err, new(*job.InvalidError))
	require.Equal(t, "PROCESSING", b.row(t, c.Key).Status)
}

// The record of attempts, and the addresses that are no good.
func TestSettle_AppendsToTheRecord(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 2, job.Processed)
	claimed := claim(t, l, id, 2)
	long := strings.Repeat("ä", 1500)
	sum := sha256.Sum256([]byte("token"))
	s := outbox.Settlement{
		Claimed: claimed[0], To: outbox.Pending, Reason: outbox.ReasonFailover, NextStep: 2, Error: "nul \x00, \xff and " + long,
		Record: []outbox.Attempt{
			{Step: 0, Medium: "push", Outcome: outbox.OutcomeRefused, Reason: outbox.ReasonOptedOut},
			{Step: 1, Attempt: 1, Medium: "sms", Sender: "gate", Outcome: outbox.OutcomeInvalidAddress, Code: long, Error: long},
		},
		InvalidAddress: sum[:],
	}
	retry := outbox.Settlement{
		Claimed: claimed[1], To: outbox.Pending, Reason: outbox.ReasonRetry, NextAttempts: 1, Wait: -time.Hour,
		Record: []outbox.Attempt{{Attempt: 1, Medium: "push", Outcome: outbox.OutcomeUnknown}},
	}
	for range 2 { // an unknown COMMIT
		_, err := l.Settle(t.Context(), []outbox.Settlement{s, retry}, []int64{claimed[0].LeaseID})
		require.NoError(t, err)
	}
	require.Equal(t, []string{"refused", "invalid_address"}, b.attempts(t, claimed[0].Key))
	require.Equal(t, []string{"unknown"}, b.attempts(t, claimed[1].Key))
	require.True(t, one[bool](t, b, `SELECT (step, attempt, medium, sender, reason, length(code), length(error)) = (1, 1, 'sms', 'gate', '', 100, 1000) FROM belfry.attempts WHERE outcome = 'invalid_address'`))
	require.True(t, one[bool](t, b, `SELECT (step, attempt, medium, sender, reason) = (0, 0, 'push', '', 'opted_out') FROM belfry.attempts WHERE outcome = 'refused'`))
	require.True(t, one[bool](t, b, `SELECT last_error LIKE 'nul , � and ää%' AND length(last_error) = 1000 FROM belfry.messages WHERE channel_id = 1`))
	require.True(t, one[bool](t, b, `SELECT (channel_id, medium, sha256, sender, length(error), job_id) = (1, 'sms', $1, 'gate', 1000, $2) FROM belfry.invalid_addresses`, sum[:], id))
	claimed = claim(t, l, id, 2)
	require.Equal(t, []int64{1, 2}, channelsOf(claimed), "a wait below zero is none")
	require.Equal(t, []bool{false, true}, []bool{claimed[0].Ambiguous, claimed[1].Ambiguous})
	require.Equal(t, 2, claimed[0].Step)

	// The same address again is no error.
	s.Claimed, s.NextStep = claimed[0], 3
	statuses, err := l.Settle(t.Context(), []outbox.Settlement{s}, nil)
	require.NoError(t, err)
	require.Equal(t, []outbox.Status{outbox.Pending}, statuses)
}

// A message that was recalled while a relay had it: its attempt is the last, whatever
// the relay asks for. What was sent is SENT.
func TestSettle_MakesARecalledAttemptTheLast(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	l := b.ledger("r1")
	for name, o := range outcomes() {
		id := b.Rest(t, outbox.TypePush, 1, job.Processed)
		c := handed(t, l, id, 1)[0]
		_, err := delivery.Recall(t.Context(), b.DB.Pool, id, ann, nil)
		require.NoError(t, err)
		want := outbox.Status(o.row.Status)
		if want == outbox.Pending || want == outbox.Dead {
			want = outbox.Cancelled
		}
		for range 2 {
			statuses, err := l.Settle(t.Context(), []outbox.Settlement{o.settle(c)}, []int64{c.LeaseID})
			require.NoError(t, err)
			require.Equal(t, []outbox.Status{want}, statuses, name)
		}
		r := b.row(t, c.Key)
		require.True(t, r.Recalled)
		require.Equal(t, string(want), r.Status)
		if o.row.Status == "PENDING" || o.row.Status == "DEAD" {
			require.Equal(t, "recalled", r.Reason, name)
			require.Len(t, b.attempts(t, c.Key), len(o.settle(c).Record), "what was tried is on record")
		}
	}
}

// Connections that die in the middle, before or after the COMMIT: each settlement is made
// again until it is answered, and everything is recorded once (I8).
func TestSettle_IsMadeAgainThroughLostConnections(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	pool, err := pgxpool.New(t.Context(), b.DB.DSN)
	require.NoError(t, err)
	defer pool.Close()
	l := outbox.NewLedger(pool, "r1", time.Minute)
	id := b.Rest(t, outbox.TypePush, 600, job.Processed)
	ctx, end := context.WithCancel(t.Context())
	var killer sync.WaitGroup
	defer killer.Wait()
	defer end()
	b.Exec(t, `CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.02); RETURN NULL; END'`)
	for _, table := range []string{"leases", "message_rows"} { // so that the killer meets them on a busy machine, too
		b.Exec(t, `CREATE TRIGGER slow AFTER INSERT OR UPDATE ON belfry.`+table+` EXECUTE FUNCTION public.slow()`)
	}
	killer.Go(func() {
		for kills := 0; ctx.Err() == nil && kills < 25; {
			var n int
			_ = b.DB.Pool.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid() AND query ~ 'SET status = |leases' AND random() < 0.4`).Scan(&n)
			kills += n
		}
	})
	lost := 0
	again := func(do func() error) {
		for err := do(); err != nil; err = do() {
			require.ErrorIs(t, err, job.ErrUnreachable)
			lost++
		}
	}
	for range 30 {
		var claimed []outbox.Claimed
		again(func() (err error) {
			claimed, _, err = l.ClaimJob(bg, id, outbox.Position{}, 20, outbox.AnyTry)
			return err
		})
		s := each(claimed, func(c outbox.Claimed) outbox.Settlement {
			if c.ChannelID%2 == 0 {
				return sent(c)
			}
			return outbox.Settlement{Claimed: c, To: outbox.Dead, Reason: outbox.ReasonPermanent, NextAttempts: 1, Record: []outbox.Attempt{{Attempt: 1, Medium: "push", Outcome: outbox.OutcomePermanent}}}
		})
		if len(s) == 0 {
			break // the rest is under claims whose answer was lost
		}
		again(func() error {
			statuses, err := l.Settle(bg, s, []int64{claimed[0].LeaseID})
			for i, status := range statuses {
				require.Equal(t, s[i].To, status)
			}
			return err
		})
	}
	end()
	killer.Wait()
	t.Logf("%d calls were cut short", lost)
	require.Positive(t, lost)
	orphans := one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'PROCESSING'`)
	b.Exec(t, `UPDATE belfry.leases SET claimed_at = now() - interval '1 minute'`)
	left, err := b.ledger("r1").Lost(bg, nil, nil, 100)
	require.NoError(t, err)
	for _, o := range left {
		r, err := b.ledger("r1").Recover(bg, o, nil)
		require.NoError(t, err)
		orphans -= r.Released
	}
	require.Zero(t, orphans, "what a claim took whose answer was lost comes back")
	require.Equal(t, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'DEAD'`), one[int](t, b, `SELECT count(*) FROM belfry.attempts`))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`))
}

// A settlement that meets a recall at the very row waits for it and then sees it.
func TestSettle_MeetsARecallHalfWay(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	l := b.ledger("r1")
	id := b.Rest(t, outbox.TypePush, 30, job.Processed)
	claimed := handed(t, l, id, 30)
	recall, err := b.DB.Pool.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, outbox.OwnClaimedTx(ctx, recall, id, math.MinInt64, 1000))
	_, err = recall.Exec(ctx, `UPDATE belfry.message_rows SET recalled_at = now() WHERE job_id = $1 AND channel_id % 3 = 0`, id)
	require.NoError(t, err)
	type answer struct {
		statuses []outbox.Status
		err      error
	}
	ended := make(chan answer, 1)
	go func() {
		s := each(claimed[:15], sent)
		for _, c := range claimed[15:] {
			s = append(s, outbox.Settlement{Claimed: c, To: outbox.Pending, Reason: outbox.ReasonRetry, NextAttempts: 1, Record: []outbox.Attempt{{Attempt: 1, Medium: "push", Outcome: outbox.OutcomeRetryable}}})
		}
		statuses, err := l.Settle(ctx, s, []int64{claimed[0].LeaseID})
		ended <- answer{statuses, err}
	}()
	b.Eventually(t, `SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
	require.NoError(t, recall.Commit(ctx))
	got := <-ended
	require.NoError(t, got.err)
	want := all(15, outbox.Sent)
	for i := 16; i <= 30; i++ {
		if i%3 == 0 {
			want = append(want, outbox.Cancelled)
		} else {
			want = append(want, outbox.Pending)
		}
	}
	require.Equal(t, want, got.statuses)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`))
	require.Equal(t, 15, one[int](t, b, `SELECT count(*) FROM belfry.attempts`))
}
