package relay

import "github.com/belfryhq/belfry/outbox"

// WithObserver adds a receiver of the relay's events.
func WithObserver(o outbox.Observer) Option {
	return func(r *Relay) { r.observers = append(r.observers, o) }
}

// observe reports a batch to the observers, once for each distinct outcome. A message without a status
// was not recorded, as in tally.
func (r *Relay) observe(batch []outbox.Settlement, statuses []outbox.Status) {
	if len(r.observers) == 0 {
		return
	}
	found := make(map[outbox.Recording]int)
	var same outbox.Recording // of the last n messages: most messages of a batch have one outcome
	n := 0
	for i := range batch {
		s, status := &batch[i], outbox.Status("")
		if i < len(statuses) {
			status = statuses[i]
		}
		o := outbox.Recording{Recorded: s.RecordedAs(status), Medium: r.mediumOf(s), JobID: max(0, s.JobID), Sender: senderOf(s)}
		if o.Recorded == outbox.RecordedDead {
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
