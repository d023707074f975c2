package relay

import (
	"time"

	"github.com/belfryhq/belfry/outbox"
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

// recordedOf maps a message's new status to a kind. Without a status it is RecordedLost.
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

// Outcome describes messages that were recorded alike. Reason is set for dead letters. Medium is the
// medium of the last call, or "" without a call. JobID is 0 for activities. Sender is the sender of the
// last attempt, or the sender that deferred the messages; "" means that they reached no sender.
type Outcome struct {
	Recorded Recorded
	Medium   string
	Reason   outbox.Reason
	JobID    int64
	Sender   string
}

// Observer receives a relay's events, from several goroutines. Its methods must return at once.
type Observer interface {
	// Called reports one call of a provider with its results and duration.
	Called(sender string, results []sender.Result, took time.Duration)
	// Recorded reports that the outcome of n messages was recorded.
	Recorded(o Outcome, n int)
	// Rebuilt reports that a queue of the carrier has lost its memory.
	Rebuilt(q outbox.Queue)
	// Beat reports the state of the senders at each heartbeat.
	Beat(senders []outbox.SenderWork)
}

// WithObserver adds a receiver of the relay's events.
func WithObserver(o Observer) Option { return func(r *Relay) { r.observers = append(r.observers, o) } }

// observe reports a batch to the observers, once for each distinct outcome. A message without a status
// was not recorded, as in tally.
func (r *Relay) observe(batch []outbox.Settlement, statuses []outbox.Status) {
	if len(r.observers) == 0 {
		return
	}
	found := make(map[Outcome]int)
	var same Outcome // of the last n messages: most messages of a batch have one outcome
	n := 0
	for i := range batch {
		s, status := &batch[i], outbox.Status("")
		if i < len(statuses) {
			status = statuses[i]
		}
		o := Outcome{Recorded: recordedOf(s, status), Medium: r.mediumOf(s), JobID: max(0, s.JobID), Sender: senderOf(s)}
		if o.Recorded == RecordedDead {
			o.Reason = s.Reason
		}
		if o != same && n > 0 {
			found[same] += n
			n = 0
		}
		same = o
		n++
	}
	if n > 0 {
		found[same] += n
	}
	for o, n := range found {
		for _, observer := range r.observers {
			observer.Recorded(o, n)
		}
	}
}

// mediumOf returns the medium of a message's last attempt, or "".
func (r *Relay) mediumOf(s *outbox.Settlement) string {
	if n := len(s.Record); n > 0 {
		return s.Record[n-1].Medium
	}
	if s.To == outbox.Pending { // deferred
		return ""
	}
	return r.mediaBySender[s.Sender]
}

// senderOf returns the sender of a message's last attempt, or the sender that deferred it, or "".
func senderOf(s *outbox.Settlement) string {
	if n := len(s.Record); n > 0 && s.Sender == "" {
		return s.Record[n-1].Sender
	}
	return s.Sender
}
