package outbox

import (
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// Recorded is the kind of a recorded outcome.
type Recorded string

// The recorded outcomes.
const (
	RecordedSent        Recorded = "sent"
	RecordedUnconfirmed Recorded = "unconfirmed" // SENT, and no receipt came in time
	RecordedAwaiting    Recorded = "awaiting"    // accepted; a receipt follows
	RecordedRetried     Recorded = "retried"     // put back for another attempt
	RecordedFailedOver  Recorded = "failed_over" // put back for the next medium
	RecordedDeferred    Recorded = "deferred"    // put back without an attempt
	RecordedReturned    Recorded = "returned"    // put back as it was
	RecordedDead        Recorded = "dead"
	RecordedRefused     Recorded = "refused"   // CANCELLED before a call
	RecordedCancelled   Recorded = "cancelled" // CANCELLED because it was recalled
	RecordedLost        Recorded = "lost"      // the message belongs to another relay
)

// AllRecorded lists them.
func AllRecorded() []Recorded {
	return []Recorded{
		RecordedSent, RecordedUnconfirmed, RecordedAwaiting, RecordedRetried, RecordedFailedOver, RecordedDeferred,
		RecordedReturned, RecordedDead, RecordedRefused, RecordedCancelled, RecordedLost,
	}
}

// RecordedAs maps the new status of the message to a kind. Without a status it is RecordedLost.
func (s *Settlement) RecordedAs(status Status) Recorded {
	switch status {
	case Sent:
		if n := len(s.Record); n > 0 && s.Record[n-1].Outcome == OutcomeUnconfirmed {
			return RecordedUnconfirmed
		}
		return RecordedSent
	case Processing:
		return RecordedAwaiting
	case Dead:
		return RecordedDead
	case Cancelled:
		if s.To == Cancelled && s.Reason != ReasonRecalled {
			return RecordedRefused
		}
		return RecordedCancelled
	case Pending, Queued:
		switch {
		case s.Untouched:
			return RecordedReturned
		case s.Reason == ReasonFailover:
			return RecordedFailedOver
		case len(s.Record) > 0:
			return RecordedRetried
		}
		return RecordedDeferred
	default:
		return RecordedLost
	}
}

// Recording describes messages that were recorded alike. Reason is set for dead letters. Medium is the
// medium of the last call, or "" without a call. JobID is 0 for activities. Sender is the sender of the
// last attempt, or the sender that deferred the messages; "" means that they reached no sender.
type Recording struct {
	Recorded Recorded
	Medium   string
	Reason   Reason
	JobID    int64
	Sender   string
}

// Observer receives a relay's events, from several goroutines. Its methods must return at once.
type Observer interface {
	// Called reports one call of a provider with its results and duration.
	Called(sender string, results []sender.Result, took time.Duration)
	// Recorded reports that n messages were recorded.
	Recorded(o Recording, n int)
	// Rebuilt reports that a queue of the carrier has lost its memory.
	Rebuilt(q Queue)
	// Beat reports the state of the senders at each heartbeat.
	Beat(senders []SenderWork)
}
