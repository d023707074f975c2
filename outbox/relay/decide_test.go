package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

// world is every combination that decide tells apart.
type world struct {
	class     sender.Class
	policy    relay.Policy
	attempt   int // that was just made, of 3
	step      int // of 2
	ambiguous bool
	passed    bool // the step was reached by passing one over
	after     time.Duration
	random    float64
}

func everyWorld(f func(world)) {
	for _, class := range []sender.Class{sender.Accepted, sender.Pending, sender.Retryable, sender.Unknown, sender.Permanent, sender.InvalidAddress, ""} {
		for _, policy := range []relay.Policy{relay.Exponential, relay.Linear} {
			for attempt := 1; attempt <= 3; attempt++ {
				for step := range 2 {
					for bits := range 16 {
						f(world{class, policy, attempt, step, bits&1 > 0, bits&2 > 0, time.Duration(bits&4) * time.Second, float64(bits&8) / 9})
					}
				}
			}
		}
	}
}

// I9, I11, I12: what is recorded of every outcome, for every class, policy, attempt and
// step.
func TestDecide_EveryOutcome(t *testing.T) {
	t.Parallel()
	n := 0
	everyWorld(func(w world) {
		n++
		retry := relay.RetryConfig{Attempts: 3, Policy: w.policy, Initial: time.Second, Max: time.Minute, Jitter: 1}
		c := &outbox.Composed{
			Claimed: outbox.Claimed{Key: outbox.Key{JobID: 1, ChannelID: 2}, LeaseID: 3, Step: w.step, Attempts: w.attempt - 1, Ambiguous: w.ambiguous},
			Route:   []string{"push", "sms"}, Step: w.step, Attempts: w.attempt - 1,
			Delivery: sender.Delivery{Medium: []string{"push", "sms"}[w.step], Address: "secret"},
		}
		if w.passed {
			c.Claimed.Step, c.Claimed.Attempts = 0, 0
			c.Record = []outbox.Attempt{{Medium: "push", Outcome: outbox.OutcomeRefused, Reason: outbox.ReasonOptedOut}}
		}
		s := relay.Decide(c, "s", retry, 7*time.Second, sender.Result{Class: w.class, Code: "c", Detail: "d", RetryAfter: w.after, Receipt: "r"}, w.random)
		at := fmt.Sprintf("%+v: %+v", w, s)
		require.Equal(t, c.Claimed, s.Claimed, at)
		record := s.Record
		if w.passed {
			require.Equal(t, c.Record[0], record[0], at)
			record = record[1:]
		}
		if w.class == sender.Accepted {
			require.Empty(t, record, at)
			require.Equal(t, outbox.Sent, s.To, at)
			return
		}
		require.Len(t, record, 1, at)
		require.Equal(t, outbox.Attempt{Step: w.step, Attempt: w.attempt, Medium: c.Delivery.Medium, Sender: "s", Outcome: record[0].Outcome, Code: "c", Error: "d"}, record[0], at)
		require.Equal(t, w.class == sender.InvalidAddress, s.InvalidAddress != nil, at)
		unknown := w.class == sender.Unknown || w.class == ""
		again := unknown || w.class == sender.Retryable
		switch {
		case w.class == sender.Pending:
			require.Equal(t, outbox.Processing, s.To, at)
			require.Equal(t, outbox.OutcomeAccepted, record[0].Outcome, at)
			require.Equal(t, 7*time.Second, s.Wait, at)
			require.Equal(t, "r", s.Receipt, at)
		case again && w.attempt < 3:
			require.Equal(t, outbox.Pending, s.To, at)
			require.Equal(t, outbox.ReasonRetry, s.Reason, at)
			require.Equal(t, []int{w.step, w.attempt}, []int{s.NextStep, s.NextAttempts}, at)
			require.GreaterOrEqual(t, s.Wait, w.after, at)
			require.LessOrEqual(t, s.Wait, w.after+time.Duration(w.attempt)*time.Second, at) // both policies, up to attempt 2
		case w.step == 0:
			require.Equal(t, outbox.Pending, s.To, at)
			require.Equal(t, outbox.ReasonFailover, s.Reason, at)
			require.Equal(t, []int{1, 0}, []int{s.NextStep, s.NextAttempts}, at)
			require.Zero(t, s.Wait, at)
		case w.ambiguous || unknown:
			require.Equal(t, outbox.Dead, s.To, at)
			require.Equal(t, outbox.ReasonUnknown, s.Reason, "what may have been accepted is never called failed: "+at)
		default:
			require.Equal(t, outbox.Dead, s.To, at)
			reason := outbox.ReasonExhausted
			if !again {
				reason = outbox.Reason(w.class) // permanent, invalid_address
			}
			require.Equal(t, reason, s.Reason, at)
		}
	})
	require.Equal(t, 7*2*3*2*16, n)
}

// A client that says pending without a receipt has said nothing that can be followed up.
func TestDecide_PendingWithoutReceiptIsUnknown(t *testing.T) {
	t.Parallel()
	c := &outbox.Composed{Route: []string{"push"}}
	s := relay.Decide(c, "s", relay.DefaultConfig().Retry, 0, sender.Result{Class: sender.Pending}, 0)
	require.Equal(t, outbox.Pending, s.To)
	require.Equal(t, outbox.OutcomeUnknown, s.Record[0].Outcome)
}

// I11: nobody calls before a Retry-After is over. One that makes no sense, such as an instant in
// seconds, is a day's, and counts one attempt as any.
func TestDecide_WaitsForADayAtMost(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for after, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, day: day, day + 1: day, 25 * time.Hour: day, 365 * day: day} {
		c := &outbox.Composed{Route: []string{"push", "sms"}, Delivery: sender.Delivery{Medium: "push"}}
		retry := relay.RetryConfig{Attempts: 3, Policy: relay.Linear, Initial: time.Second, Max: time.Minute}
		s := relay.Decide(c, "s", retry, time.Second, sender.Result{Class: sender.Retryable, RetryAfter: after}, 0)
		require.Equal(t, outbox.ReasonRetry, s.Reason)
		require.Equal(t, 1, s.NextAttempts)
		require.Equal(t, want+time.Second, s.Wait, "and the pause of the policy")
	}
}

// I11: never before the Retry-After, and after it drawn evenly up to the policy's pause,
// which grows and is bounded.
func TestWait_FullJitterAfterRetryAfter(t *testing.T) {
	t.Parallel()
	exponential := relay.RetryConfig{Attempts: 9, Policy: relay.Exponential, Initial: time.Second, Max: 10 * time.Second, Jitter: 1}
	linear := exponential
	linear.Policy = relay.Linear
	for i, seconds := range [][2]float64{{1, 1}, {2, 2}, {4, 3}, {8, 4}, {10, 5}, {10, 6}} {
		for _, random := range []float64{0, 0.25, 0.999} {
			for _, after := range []time.Duration{-time.Hour, 0, time.Minute, 30 * 24 * time.Hour} {
				least := min(max(after, 0), 24*time.Hour)
				require.Equal(t, least+time.Duration(random*seconds[0]*1e9), relay.Wait(exponential, i+1, after, random))
				require.Equal(t, least+time.Duration(random*seconds[1]*1e9), relay.Wait(linear, i+1, after, random))
			}
		}
	}
	require.LessOrEqual(t, relay.Wait(exponential, 1000, 0, 0.999), 10*time.Second, "no overflow")
}

// A message that was handed over by a relay that died: an unknown attempt, and a dead
// letter after max_crashes, whatever else is left to try.
func TestDecideCrash(t *testing.T) {
	t.Parallel()
	retry := relay.RetryConfig{Attempts: 3, Policy: relay.Linear, Initial: time.Second, Max: time.Minute}
	for _, test := range []struct {
		step, attempts, crashes, max int
		to                           outbox.Status
		reason                       outbox.Reason
		nextStep, nextAttempts       int
	}{
		{0, 0, 0, 3, outbox.Pending, outbox.ReasonRetry, 0, 1},
		{0, 1, 1, 3, outbox.Pending, outbox.ReasonRetry, 0, 2},
		{0, 2, 2, 3, outbox.Dead, outbox.ReasonCrashed, 0, 3},
		{0, 0, 0, 1, outbox.Dead, outbox.ReasonCrashed, 0, 1},
		{0, 2, 0, 3, outbox.Pending, outbox.ReasonFailover, 1, 0},
		{1, 2, 1, 3, outbox.Dead, outbox.ReasonUnknown, 1, 3},
		{1, 0, 1, 3, outbox.Pending, outbox.ReasonRetry, 1, 1},
	} {
		h := outbox.Handed{Claimed: outbox.Claimed{Step: test.step, Attempts: test.attempts, Crashes: test.crashes}, Route: []string{"push", "sms"}}
		s := relay.DecideCrash(h, retry, test.max, 0.5)
		require.Equal(t, test.to, s.To, test)
		require.Equal(t, test.reason, s.Reason, test)
		require.Equal(t, test.nextStep, s.NextStep, test)
		require.Equal(t, test.nextAttempts, s.NextAttempts, test)
		require.Len(t, s.Record, 1)
		require.Equal(t, outbox.OutcomeCrashed, s.Record[0].Outcome, test)
		require.Equal(t, test.attempts+1, s.Record[0].Attempt, test)
	}
}

func TestDecideReceipt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		class     sender.Class
		step      int
		age       time.Duration
		ambiguous bool
		settled   bool
		to        outbox.Status
		reason    outbox.Reason
		recorded  outbox.Outcome
	}{
		{sender.Accepted, 0, 0, false, true, outbox.Sent, "", ""},
		{sender.Accepted, 0, time.Hour, true, true, outbox.Sent, "", ""},
		{sender.Pending, 0, 0, false, false, "", "", ""},
		{sender.Pending, 0, time.Minute, false, true, outbox.Sent, "", outbox.OutcomeUnconfirmed},
		{sender.Unknown, 0, time.Minute, false, true, outbox.Sent, "", outbox.OutcomeUnconfirmed},
		{sender.Retryable, 0, 0, false, false, "", "", ""},
		{sender.Permanent, 0, 0, false, true, outbox.Pending, outbox.ReasonFailover, outbox.OutcomePermanent},
		{sender.Permanent, 0, time.Hour, false, true, outbox.Pending, outbox.ReasonFailover, outbox.OutcomePermanent},
		{sender.Permanent, 1, 0, false, true, outbox.Dead, outbox.ReasonPermanent, outbox.OutcomePermanent},
		{sender.Permanent, 1, 0, true, true, outbox.Dead, outbox.ReasonUnknown, outbox.OutcomePermanent},
		{sender.InvalidAddress, 1, 0, false, true, outbox.Dead, outbox.ReasonInvalidAddress, outbox.OutcomeInvalidAddress},
	} {
		a := outbox.Awaited{Claimed: outbox.Claimed{Step: test.step, Attempts: 2, Ambiguous: test.ambiguous}, Route: []string{"push", "sms"}, Receipt: "r", Age: test.age, Medium: "push", Sender: "s"}
		s, settled := relay.DecideReceipt(a, time.Minute, sender.Result{Class: test.class})
		require.Equal(t, test.settled, settled, test)
		if !settled {
			continue
		}
		require.Equal(t, test.to, s.To, test)
		require.Equal(t, test.reason, s.Reason, test)
		require.Equal(t, "r", s.Receipt, test)
		if test.recorded == "" {
			require.Empty(t, s.Record, test)
			continue
		}
		require.Len(t, s.Record, 1, test)
		require.Equal(t, test.recorded, s.Record[0].Outcome, test)
		require.Equal(t, 2, s.Record[0].Attempt, test)
	}
}
