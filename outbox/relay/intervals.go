package relay

import "time"

// channel is what the database notifies when there may be messages to send, now or later.
const channel = "belfry_messages"

// wake is called at hints: there may be messages, or something about senders has changed.
// A relay that is at work looks at both soon enough.
func (r *Relay) wake() {
	if r.resting.Load() {
		r.beatNow()
	}
	r.inflight.wake()
	if r.dispatch != nil {
		r.dispatch.wake()
	}
}

// setResting says whether nothing is asked for, for a while; the heartbeat is slower then.
func (r *Relay) setResting(yes bool) {
	if r.resting.Swap(yes) && !yes {
		r.beatNow()
	}
}

// beatNow has the heartbeat not wait.
func (r *Relay) beatNow() {
	select {
	case r.beatSoon <- struct{}{}:
	default:
	}
}

// betweenBeats is the pace of the heartbeat: a relay at rest counts as living by two beats
// in the time after which others believe it dead, a third of the lease.
func (r *Relay) betweenBeats() time.Duration {
	lease := r.settings().Lease
	if r.resting.Load() && r.listener.Load().Listening() {
		return lease / 7
	}
	return min(time.Second, lease/9)
}

// expectReceipts has receipts looked for often for a while.
func (r *Relay) expectReceipts() {
	now := time.Now()
	if r.awaited.Swap(now.Add(2*r.settings().Receipts.Interval+time.Second).UnixNano()) < now.UnixNano() {
		select {
		case r.receiptsSoon <- struct{}{}:
		default:
		}
	}
}

// betweenReceipts is the pace of the search for receipts.
func (r *Relay) betweenReceipts() time.Duration {
	interval := r.settings().Receipts.Interval
	if r.resting.Load() && time.Now().UnixNano() > r.awaited.Load() {
		return max(min(time.Second, interval/4), 3*min(interval, r.rest))
	}
	return min(time.Second, interval/4)
}

// betweenRecoveries is the pace of the search for lost leases.
func (r *Relay) betweenRecoveries() time.Duration {
	lease := r.settings().Lease
	if r.resting.Load() {
		return min(lease/3, r.rest)
	}
	return min(lease/4, 5*time.Second)
}
