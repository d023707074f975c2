package outbox

// reasonOf is what a message's row says of its channel, and why. awaited tells that a
// receipt is awaited.
func reasonOf(status Status, reason Reason, awaited, aborted bool) (r, why Reason) {
	switch status {
	case Pending, Queued:
		if aborted {
			return ReasonHeld, reason
		}
		return ReasonWaiting, reason
	case Processing:
		if awaited {
			return ReasonSending, ReasonReceipt
		}
		return ReasonSending, ""
	case Dead:
		return ReasonDead, reason
	case Cancelled:
		return ReasonCancelled, reason
	case Sent:
	}
	return ReasonSent, ""
}

// Tally counts messages by what has become of them, and by why.
type Tally map[Reason]map[Reason]int64

func (t Tally) add(r, why Reason, n int64) {
	if why == "" {
		return
	}
	if t[r] == nil {
		t[r] = make(map[Reason]int64)
	}
	t[r][why] += n
}
