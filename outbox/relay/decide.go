package relay

import (
	"time"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

// decide returns the settlement of a message that was handed to a sender, for its result. random is
// even in [0, 1).
//
//	accepted ──────────► SENT
//	pending ───────────► PROCESSING, its receipt awaited
//	retryable, unknown ► PENDING, retry; after the last attempt ─┐
//	permanent ───────────────────────────────────────────────────┴► PENDING, the next
//	                                        medium; after the last medium ► DEAD
func decide(c *outbox.Composed, name string, retry RetryConfig, look time.Duration, r sender.Result, random float64) outbox.Settlement {
	s := outbox.Settlement{Claimed: c.Claimed, NextStep: c.Step, NextAttempts: c.Attempts + 1, Record: c.Record}
	if r.Class == sender.Accepted {
		s.To, s.Receipt, s.Sender = outbox.Sent, r.Receipt, name
		return s
	}
	tried := outbox.Attempt{Step: c.Step, Attempt: c.Attempts + 1, Medium: c.Delivery.Medium, Sender: name, Code: r.Code, Error: r.Detail}
	failed := failure{settlement: s, ambiguous: c.Claimed.Ambiguous, last: c.Step+1 >= len(c.Route)}
	switch r.Class {
	case sender.Pending:
		if r.Receipt == "" {
			tried.Code, tried.Error = "no_receipt", "the sender said pending without a receipt"
			return failed.again(tried, outbox.OutcomeUnknown, retry, 0, random)
		}
		tried.Outcome = outbox.OutcomeAccepted
		s.To, s.Receipt, s.Sender, s.Wait, s.Record = outbox.Processing, r.Receipt, name, look, with(s.Record, tried)
		return s
	case sender.Permanent:
		return failed.forGood(tried, outbox.OutcomePermanent, outbox.ReasonPermanent)
	case sender.InvalidAddress:
		failed.settlement.InvalidAddress = outbox.AddressHash(c.Delivery.Address)
		return failed.forGood(tried, outbox.OutcomeInvalidAddress, outbox.ReasonInvalidAddress)
	case sender.Retryable:
		return failed.again(tried, outbox.OutcomeRetryable, retry, r.RetryAfter, random)
	case sender.Accepted, sender.Unknown:
	}
	return failed.again(tried, outbox.OutcomeUnknown, retry, r.RetryAfter, random)
}

// decideCrash returns the settlement of a message that was handed over by a relay whose lease expired:
// its outcome is unknown. The ledger counts the crash.
func decideCrash(c outbox.Handed, retry RetryConfig, maxCrashes int, random float64) outbox.Settlement {
	tried := outbox.Attempt{Step: c.Step, Attempt: c.Attempts + 1, Medium: medium(c.Route, c.Step),
		Error: "the relay's lease ran out after the message had been handed over"}
	failed := failure{
		settlement: outbox.Settlement{Claimed: c.Claimed, NextStep: c.Step, NextAttempts: c.Attempts + 1, Record: c.Bypassed},
		last:       c.Step+1 >= len(c.Route),
	}
	if c.Crashes+1 >= maxCrashes {
		tried.Outcome = outbox.OutcomeCrashed
		failed.last = true
		return failed.next(tried, outbox.ReasonCrashed)
	}
	return failed.again(tried, outbox.OutcomeCrashed, retry, 0, random)
}

// decideReceipt returns the settlement of a message for its receipt, and whether it must be recorded
// now.
func decideReceipt(a outbox.Awaited, limit time.Duration, r sender.Result) (outbox.Settlement, bool) {
	s := outbox.Settlement{Claimed: a.Claimed, NextStep: a.Step, NextAttempts: a.Attempts, Receipt: a.Receipt}
	answer := outbox.Attempt{Step: a.Step, Attempt: a.Attempts, Medium: a.Medium, Sender: a.Sender, Code: r.Code, Error: r.Detail}
	failed := failure{settlement: s, ambiguous: a.Ambiguous, last: a.Step+1 >= len(a.Route)}
	switch r.Class {
	case sender.Accepted:
		s.To, s.Sender = outbox.Sent, a.Sender
		return s, true
	case sender.Permanent:
		return failed.forGood(answer, outbox.OutcomePermanent, outbox.ReasonPermanent), true
	case sender.InvalidAddress:
		return failed.forGood(answer, outbox.OutcomeInvalidAddress, outbox.ReasonInvalidAddress), true
	case sender.Pending, sender.Retryable, sender.Unknown:
	}
	if a.Age < limit {
		return s, false // read again when its hold expires
	}
	answer.Outcome, answer.Error = outbox.OutcomeUnconfirmed, "no result within "+limit.String()
	s.To, s.Record = outbox.Sent, []outbox.Attempt{answer}
	return s, true
}

// failure is an attempt that was not accepted, as far as is known.
type failure struct {
	settlement outbox.Settlement
	ambiguous  bool // an earlier attempt may have been accepted
	last       bool // the route has no medium after this one
}

// longestRetryAfter is the longest that a message waits because a provider asks for it. A provider
// that asks for more, such as one that sends an instant as seconds, is not believed: the attempt
// counts as any other, and the next one is a day later.
const longestRetryAfter = 24 * time.Hour

// again is for an attempt that may be repeated: later, or never when it was the last.
func (f failure) again(tried outbox.Attempt, outcome outbox.Outcome, retry RetryConfig, after time.Duration,
	random float64) outbox.Settlement {
	tried.Outcome = outcome
	if tried.Attempt >= retry.Attempts {
		return f.next(tried, outbox.ReasonExhausted)
	}
	s := f.settlement
	s.To, s.Reason = outbox.Pending, outbox.ReasonRetry
	s.Wait = wait(retry, tried.Attempt, after, random)
	return f.recorded(s, tried)
}

// forGood is for an attempt that no repetition can fix.
func (f failure) forGood(tried outbox.Attempt, outcome outbox.Outcome, reason outbox.Reason) outbox.Settlement {
	tried.Outcome = outcome
	return f.next(tried, reason)
}

// next leaves the medium permanently: for the route's next one (I12), or for the dead
// letters, which never call failed what may have been accepted.
func (f failure) next(tried outbox.Attempt, reason outbox.Reason) outbox.Settlement {
	s := f.settlement
	switch {
	case !f.last:
		s.To, s.Reason, s.NextStep, s.NextAttempts = outbox.Pending, outbox.ReasonFailover, tried.Step+1, 0
	case f.ambiguous, tried.Outcome == outbox.OutcomeUnknown, tried.Outcome == outbox.OutcomeCrashed && reason != outbox.ReasonCrashed:
		s.To, s.Reason = outbox.Dead, outbox.ReasonUnknown
	default:
		s.To, s.Reason = outbox.Dead, reason
	}
	return f.recorded(s, tried)
}

func (failure) recorded(s outbox.Settlement, tried outbox.Attempt) outbox.Settlement {
	s.Record = with(s.Record, tried)
	s.Error = tried.Error
	if tried.Code != "" {
		s.Error = tried.Code + ": " + tried.Error
	}
	return s
}

// with appends to a record without writing into an array that others see.
func with(record []outbox.Attempt, tried outbox.Attempt) []outbox.Attempt {
	return append(record[:len(record):len(record)], tried)
}

// wait is the pause after the given number of attempts (with a jitter of 1 full jitter,
// after M. Brooker, "Exponential Backoff And Jitter"). What the provider asked for comes
// first, and whole up to longestRetryAfter (I11).
func wait(retry RetryConfig, attempts int, after time.Duration, random float64) time.Duration {
	return min(max(after, 0), longestRetryAfter) + retry.draw(attempts, random)
}

// medium is the one of a step; empty when the route ends before.
func medium(route []string, step int) string {
	if step < len(route) {
		return route[step]
	}
	return ""
}
