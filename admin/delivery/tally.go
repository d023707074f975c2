package delivery

import "github.com/belfryhq/belfry/outbox"

// ReasonOf returns the fate of a message and its reason. awaited reports whether a receipt is awaited.
func ReasonOf(status outbox.Status, reason outbox.Reason, awaited, aborted bool) (r, why outbox.Reason) {
	switch status {
	case outbox.Pending, outbox.Queued:
		if aborted {
			return outbox.ReasonHeld, reason
		}
		return outbox.ReasonWaiting, reason
	case outbox.Processing:
		if awaited {
			return outbox.ReasonSending, outbox.ReasonReceipt
		}
		return outbox.ReasonSending, ""
	case outbox.Dead:
		return outbox.ReasonDead, reason
	case outbox.Cancelled:
		return outbox.ReasonCancelled, reason
	case outbox.Sent:
	}
	return outbox.ReasonSent, ""
}

// Tally counts messages by fate and reason.
type Tally map[outbox.Reason]map[outbox.Reason]int64

// Add counts n rows of a reason and its cause.
func (t Tally) Add(r, why outbox.Reason, n int64) {
	if why == "" {
		return
	}
	if t[r] == nil {
		t[r] = make(map[outbox.Reason]int64)
	}
	t[r][why] += n
}
