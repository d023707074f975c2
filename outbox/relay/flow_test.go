package relay_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/relay/limit"
	"github.com/belfryhq/belfry/outbox/sender"
)

// reached waits until a sender has had so many calls.
func (s *script) reached(t *testing.T, n int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); len(s.all()) < n; <-tick.C {
		require.Less(t, time.Since(began), patience, "%d calls of %d", len(s.all()), n)
	}
}

// A lane whose sender hangs leaves the other lanes theirs, and a job whose other messages
// go elsewhere, too. What is held in memory meanwhile is bounded (I13).
func TestRelay_HangingSenderStarvesNobody(t *testing.T) {
	t.Parallel()
	b := setup(t, 3000)
	b.exec(t, `UPDATE belfry.channels SET addresses = addresses || '{"email": "a@b.c"}'`)
	b.job(t, "a", 1, 3000, "push")
	mixed := b.job(t, "b", 1, 500, "sms")
	other := b.job(t, "c", 1, 500, "email")
	c := config("r")
	c.Batch, c.MaxInFlight = 50, 500
	dead := settings("apns", "push")
	stuck := settings("sms-android", "sms")
	stuck.Platforms = []string{"android"}
	works := &script{}
	run := b.start(t, c, []relay.Sender{
		{SenderConfig: dead, Client: &script{answer: hang}},
		{SenderConfig: stuck, Client: &script{answer: hang}},
		{SenderConfig: settings("sms-rest", "sms"), Client: works},
		{SenderConfig: settings("mail", "email"), Client: works},
	})
	b.eventually(t, `SELECT count(*) = 500 FROM belfry.messages WHERE job_id = $1 AND status = 'SENT'`, other)
	b.eventually(t, `SELECT count(*) = 250 FROM belfry.messages WHERE job_id = $1 AND status = 'SENT'`, mixed)
	require.LessOrEqual(t, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'PROCESSING'`), 500)
	require.LessOrEqual(t, run.Stats().InFlight, 500)
	run.StopNow(context.Canceled)
	require.NoError(t, receive(t, run.ended))
	// The stop may cut off a claim whose COMMIT succeeds: its lease is recovered when it has expired.
	require.LessOrEqual(t, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'PROCESSING'`), c.Batch)
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.messages m JOIN belfry.handovers h ON h.lease_id = m.lease_id WHERE m.status = 'PROCESSING'`))
	require.Equal(t, 750, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'SENT'`))
}

// An activity overtakes a bulk job of 100,000 messages that is being sent at its sender's
// limit.
func TestRelay_ActivityOvertakesBulk(t *testing.T) {
	t.Parallel()
	b := setup(t, 20_000)
	b.job(t, "default", 1, 20_000)
	provider := &script{answer: func(ctx context.Context, _ sender.Delivery) sender.Result {
		select { // a provider that takes its time
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
		return sender.Result{Class: sender.Accepted}
	}}
	run := b.start(t, config("r"), []relay.Sender{push(provider)})
	provider.reached(t, 300)
	before := len(provider.all())
	id := b.activity(t, 7)
	b.eventually(t, `SELECT status = 'SENT' FROM belfry.messages WHERE job_id = $1`, id)
	run.end(t)
	require.Len(t, provider.of(id, 7), 1)
	after := slices.IndexFunc(provider.all(), func(c called) bool { return c.JobID == id })
	require.Less(t, after-before, 5_000, "bulk messages sent meanwhile")
}

// A breaker opens after failures in a row, messages wait without attempts, and when the
// provider is back everything is sent within the limits.
func TestRelay_BreakerOpensAndHeals(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.job(t, "default", 1, 500)
	var broken atomic.Bool
	broken.Store(true)
	provider := &script{answer: func(context.Context, sender.Delivery) sender.Result {
		if broken.Load() {
			return sender.Result{Class: sender.Retryable, Code: "503"}
		}
		return sender.Result{Class: sender.Accepted}
	}}
	c := settings("fcm", "push")
	c.Retry.Attempts, c.Concurrency = 1000, 4
	c.Breaker = limit.BreakerConfig{Failures: 5, OpenFor: time.Second, Probes: 1}
	run := b.start(t, config("r"), []relay.Sender{{SenderConfig: c, Client: provider}})
	b.eventually(t, `SELECT count(*) > 400 FROM belfry.messages WHERE reason = 'breaker_open'`)
	calls := len(provider.all())
	require.Less(t, calls, 100, "calls while the provider is down")
	b.eventually(t, `SELECT limits -> 0 ->> 'breaker' IN ('open', 'half_open') AND limits -> 0 ->> 'medium' = 'push' AND (limits #> '{0,failed_per_second}')::float > 0 FROM belfry.relays`)
	require.LessOrEqual(t, one[int](t, b, `SELECT sum(attempts)::int FROM belfry.messages`), len(provider.all()))
	broken.Store(false)
	b.exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() WHERE status = 'PENDING'`)
	b.eventually(t, `SELECT count(*) = 500 FROM belfry.messages WHERE status = 'SENT'`)
	b.eventually(t, `SELECT limits -> 0 ->> 'breaker' = 'closed' AND (limits #> '{0,sent_per_second}')::float > 0 FROM belfry.relays`)
	require.Equal(t, "closed", run.Stats().Senders[0].Breaker)
	run.end(t)
	require.Len(t, b.record(t, id), len(provider.all())-500, "what was deferred was no attempt")
}

// A sender's rate holds, is changed live by a reload and by an operator, who can pause it
// as well.
func TestRelay_RateAndPauseChangeLive(t *testing.T) {
	t.Parallel()
	b := setup(t, 1000)
	b.job(t, "default", 1, 1000)
	provider := &script{}
	c := settings("fcm", "push")
	c.RatePerSecond, c.Burst = 100, 10
	base := config("r")
	base.MaxInFlight = 1250
	began := time.Now() // before the first token
	run := b.start(t, base, []relay.Sender{{SenderConfig: c, Client: provider}})
	provider.reached(t, 60)
	first := provider.all()
	least := time.Duration(float64(len(first)-10) / 100 * float64(time.Second))
	require.GreaterOrEqual(t, first[len(first)-1].at.Sub(began), least, "%d calls", len(first))

	b.exec(t, `INSERT INTO belfry.senders (name, paused_at, paused_by) VALUES ('fcm', now(), 'somebody')`)
	require.Eventually(t, func() bool { return run.Stats().Senders[0].Paused }, patience, time.Millisecond)
	b.eventually(t, `SELECT count(*) = 0 FROM belfry.messages WHERE status = 'PROCESSING'`)
	paused := len(provider.all())
	require.Positive(t, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE reason = 'sender_paused'`))
	b.exec(t, `UPDATE belfry.senders SET paused_at = NULL, paused_by = NULL, concurrency = 40`)
	require.Eventually(t, func() bool { return !run.Stats().Senders[0].Paused }, patience, time.Millisecond)
	b.exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() WHERE status = 'PENDING'`)
	provider.reached(t, paused+20)
	require.Equal(t, 40, run.Stats().Senders[0].Concurrency)

	c.RatePerSecond = 0
	require.NoError(t, run.Reload(base, []relay.SenderConfig{c}))
	b.exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() WHERE status = 'PENDING'`)
	b.eventually(t, `SELECT count(*) = 1000 FROM belfry.messages WHERE status = 'SENT'`)
	run.end(t)
	require.Len(t, provider.all(), 1000)
}

// What may not change while a relay runs is refused, with its key, and nothing changes.
func TestReload_RefusesWhatIsFixed(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	r := b.relay(t, config("r"), []relay.Sender{push(&script{})})
	c, s := config("other"), settings("apns", "sms")
	c.Lease *= 2
	s.Platforms = []string{"ios"}
	s.Concurrency = 7
	err := r.Reload(c, []relay.SenderConfig{s})
	for _, key := range []string{"delivery.name", "delivery.lease", "senders[0].name", "senders[0].medium", "senders[0].platforms"} {
		require.ErrorContains(t, err, key+": cannot change")
	}
	require.ErrorContains(t, r.Reload(config("r"), nil), "senders: cannot change")
	require.Equal(t, 16, r.Stats().Senders[0].Concurrency)
}

// Lanes take turns, and in a lane the more urgent job goes first.
func TestRelay_LanesTakeTurns(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	low := b.job(t, "a", 1, 500)
	high := b.job(t, "a", 1, 500)
	other := b.job(t, "b", 1, 500)
	b.exec(t, `UPDATE belfry.jobs SET priority = 5 WHERE id = $1`, high)
	c := config("r")
	c.Batch, c.MaxInFlight, c.ActivityShare = 50, 150, 0
	provider := &script{}
	s := settings("fcm", "push")
	s.Concurrency = 50
	run := b.start(t, c, []relay.Sender{{SenderConfig: s, Client: provider}})
	b.eventually(t, `SELECT count(*) = 1500 FROM belfry.messages WHERE status = 'SENT'`)
	run.end(t)
	last := map[int64]int{}
	for i, call := range provider.all() {
		last[call.JobID] = i
	}
	require.Less(t, last[high], last[low], "the urgent job of the lane first")
	require.Less(t, last[other], last[low], "half the turns are the other lane's")
}

// A drain ends by itself when nothing is due: not for retries that are due later, nor for
// what no sender takes now.
func TestDrain_EndsWhenNothingIsDue(t *testing.T) {
	t.Parallel()
	b := setup(t, 3000)
	b.job(t, "a", 1, 1000, "push", "sms")
	b.job(t, "b", 1, 3000, "sms")
	b.exec(t, `INSERT INTO belfry.senders (name, paused_at, paused_by) VALUES ('sms', now(), 'somebody')`)
	c := settings("fcm", "push")
	c.Retry = relay.RetryConfig{Attempts: 3, Policy: relay.Linear, Initial: time.Hour, Max: time.Hour}
	provider := &script{answer: func(_ context.Context, d sender.Delivery) sender.Result {
		return sender.Result{Class: map[bool]sender.Class{true: sender.Accepted, false: sender.Retryable}[d.ChannelID <= 900], RetryAfter: time.Hour}
	}}
	stats := b.drain(t, config("r"), relay.Sender{SenderConfig: c, Client: provider}, sms(&script{}))
	require.EqualValues(t, 900, stats.Sent)
	require.EqualValues(t, 100, stats.Retried)
	require.Equal(t, 900, b.statuses(t)["SENT"])
	require.Equal(t, 100, b.statuses(t)["PENDING retry"])
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE status = 'PROCESSING'`))
}

// A drain follows its messages through their media.
func TestLong_DrainFollowsFailover(t *testing.T) {
	t.Parallel()
	b := setup(t, 700)
	b.job(t, "a", 1, 700, "push", "sms")
	b.drain(t, config("r"), push(&script{answer: always(sender.Result{Class: sender.Permanent})}), sms(&script{}))
	require.Equal(t, map[string]int{"SENT": 700}, b.statuses(t))
}

// A drain takes back what a relay that died has left, however soon it would end: where
// delivery runs from cron only, nobody else does (I8).
func TestDrain_TakesBackWhatADeadRelayLeft(t *testing.T) {
	t.Parallel()
	b := setup(t, 500)
	id := b.job(t, "a", 1, 500)
	dying := outbox.NewLedger(b.DB.Pool, "dying", time.Hour)
	for i := range 25 {
		claimed, _, err := dying.ClaimJob(t.Context(), id, outbox.Position{}, 20, outbox.AnyTry)
		require.NoError(t, err)
		require.Len(t, claimed, 20)
		if i == 0 {
			handOver(t, dying, claimed)
		}
	}
	b.expire(t)
	c := config("r")
	c.MaxCrashes = 1
	stats := b.drain(t, c, push(&script{}))
	require.Equal(t, []int64{480, 20, 20, 500}, []int64{stats.Sent, stats.Dead, stats.Ambiguous, stats.Recovered})
	require.Equal(t, map[string]int{"SENT": 480, "DEAD crashed": 20}, b.statuses(t))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.leases`))
}

// A drain looks for the receipts that are due, and sends by the next medium what they say
// has failed.
func TestDrain_LooksForReceipts(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	b.awaiting(t, 300, "fcm", "1 second", "push", "sms")
	provider := &patient{results: func(receipt string) sender.Result {
		return sender.Result{Class: map[bool]sender.Class{true: sender.Permanent, false: sender.Accepted}[receipt == "r-7"]}
	}}
	other, c := &script{}, config("r")
	c.Receipts.Interval = time.Hour // one look
	stats := b.drain(t, c, relay.Sender{SenderConfig: settings("fcm", "push"), Client: provider}, sms(other))
	require.EqualValues(t, 300, stats.Sent)
	require.Equal(t, map[string]int{"SENT": 300}, b.statuses(t))
	require.Len(t, other.all(), 1)
}
