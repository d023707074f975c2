package relay

import "time"

// channel is the notification channel on which the database announces messages, due now or later.
const channel = "belfry_messages"

// wake is called for hints: there may be messages, or a sender's settings have changed. A busy relay
// reads both soon enough.
func (r *Relay) wake() {
	if r.resting.Load() {
		r.heartbeatNow()
	}
	r.hints.Add(1)
	r.inflight.wake()
	if r.dispatch != nil {
		r.dispatch.wake()
	}
}

// setResting records whether the transport rests; the heartbeat is slower then.
func (r *Relay) setResting(yes bool) {
	if r.resting.Swap(yes) && !yes {
		r.heartbeatNow()
	}
}

// heartbeatNow triggers a heartbeat.
func (r *Relay) heartbeatNow() {
	select {
	case r.beatSoon <- struct{}{}:
	default:
	}
}

// heartbeatInterval is the interval of heartbeats. A resting relay sends two in the time after which
// other relays consider it dead, a third of the lease.
func (r *Relay) heartbeatInterval() time.Duration {
	lease := r.settings().Lease
	if r.resting.Load() && r.listener.Load().Listening() {
		return lease / 7
	}
	return min(time.Second, lease/9)
}

// expectReceipts shortens the interval of receipt searches for a while.
func (r *Relay) expectReceipts() {
	now := time.Now()
	if r.awaited.Swap(now.Add(2*r.settings().Receipts.Interval+time.Second).UnixNano()) < now.UnixNano() {
		select {
		case r.receiptsSoon <- struct{}{}:
		default:
		}
	}
}

// receiptInterval is the interval of searches for receipts.
func (r *Relay) receiptInterval() time.Duration {
	interval := r.settings().Receipts.Interval
	if r.resting.Load() && time.Now().UnixNano() > r.awaited.Load() {
		return max(min(time.Second, interval/4), 3*min(interval, r.rest))
	}
	return min(time.Second, interval/4)
}

// recoveryInterval is the interval of searches for lost leases.
func (r *Relay) recoveryInterval() time.Duration {
	lease := r.settings().Lease
	if r.resting.Load() {
		return min(lease/3, r.rest)
	}
	return min(lease/4, 5*time.Second)
}
