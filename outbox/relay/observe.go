package relay

import (
	"time"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

// Recorded is what was recorded about a message. Each outcome is one of them.
type Recorded string

// What can be recorded.
const (
	RecordedSent        Recorded = "sent"
	RecordedUnconfirmed Recorded = "unconfirmed" // SENT, and no receipt came in time
	RecordedAwaiting    Recorded = "awaiting"    // accepted, and a receipt is to come
	RecordedRetried     Recorded = "retried"     // put back for another attempt
	RecordedFailedOver  Recorded = "failed_over" // put back for the next medium
	RecordedDeferred    Recorded = "deferred"    // put back without an attempt
	RecordedReturned    Recorded = "returned"    // put back as it was
	RecordedDead        Recorded = "dead"
	RecordedRefused     Recorded = "refused"   // CANCELLED before a call
	RecordedCancelled   Recorded = "cancelled" // CANCELLED because it was recalled
	RecordedLost        Recorded = "lost"      // another relay's
)

// AllRecorded lists them.
func AllRecorded() []Recorded {
	return []Recorded{
		RecordedSent, RecordedUnconfirmed, RecordedAwaiting, RecordedRetried, RecordedFailedOver, RecordedDeferred,
		RecordedReturned, RecordedDead, RecordedRefused, RecordedCancelled, RecordedLost,
	}
}

// recordedOf is what the status that a message got tells; none: it was not recorded.
func recordedOf(s *outbox.Settlement, status outbox.Status) Recorded {
	switch status {
	case outbox.Sent:
		if n := len(s.Record); n > 0 && s.Record[n-1].Outcome == outbox.OutcomeUnconfirmed {
			return RecordedUnconfirmed
		}
		return RecordedSent
	case outbox.Processing:
		return RecordedAwaiting
	case outbox.Dead:
		return RecordedDead
	case outbox.Cancelled:
		if s.To == outbox.Cancelled && s.Reason != outbox.ReasonRecalled {
			return RecordedRefused
		}
		return RecordedCancelled
	case outbox.Pending, outbox.Queued:
		switch {
		case s.Untouched:
			return RecordedReturned
		case s.Reason == outbox.ReasonFailover:
			return RecordedFailedOver
		case len(s.Record) > 0:
			return RecordedRetried
		}
		return RecordedDeferred
	default:
		return RecordedLost
	}
}

// Outcome is what was recorded about some messages at once. Reason is a dead letter's.
// Medium is that of the last call; "": there was none.
type Outcome struct {
	Recorded Recorded
	Medium   string
	Reason   outbox.Reason
}

// Observer hears what a relay does, from the goroutines that do it: several at a time. It
// must return at once.
type Observer interface {
	// Called tells of one call of a provider, its results, and how long it took.
	Called(sender string, results []sender.Result, took time.Duration)
	// Recorded tells that the outcome of n messages was recorded.
	Recorded(o Outcome, n int)
	// Rebuilt tells that a queue of the carrier has lost its memory.
	Rebuilt(q Queue)
}

// WithObserver has o hear what the relay does.
func WithObserver(o Observer) Option { return func(r *Relay) { r.observer = o } }

// observe tells the observer of a batch, once for each different outcome. A message without
// a status was not recorded, as in tally.
func (r *Relay) observe(batch []outbox.Settlement, statuses []outbox.Status) {
	if r.observer == nil {
		return
	}
	found := make(map[Outcome]int)
	for i := range batch {
		s, status := &batch[i], outbox.Status("")
		if i < len(statuses) {
			status = statuses[i]
		}
		o := Outcome{Recorded: recordedOf(s, status), Medium: r.mediumOf(s)}
		if o.Recorded == RecordedDead {
			o.Reason = s.Reason
		}
		found[o]++
	}
	for o, n := range found {
		r.observer.Recorded(o, n)
	}
}

// mediumOf is the medium by which a message was tried last; "": by none.
func (r *Relay) mediumOf(s *outbox.Settlement) string {
	if n := len(s.Record); n > 0 {
		return s.Record[n-1].Medium
	}
	return r.mediaBySender[s.Sender]
}
