package relay

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// handOver hands over a group: the durable record, then a recheck of every message, then the calls at
// once. A message is called only if it was recorded and the recheck allows it (I6, I8).
func (q *queue) handOver(hard context.Context, calls []call) {
	r := q.relay
	claimed := make([]outbox.Claimed, 0, len(calls))
	var bypassed map[outbox.Key][]outbox.Attempt
	for _, c := range calls {
		for _, it := range c.items {
			m := it.Claimed
			m.Step = it.Step // that the call is for
			claimed = append(claimed, m)
			if len(it.Record) > 0 {
				if bypassed == nil {
					bypassed = make(map[outbox.Key][]outbox.Attempt)
				}
				bypassed[m.Key] = it.Record
			}
		}
	}
	recorded, err := r.recordHandOver(hard, claimed, bypassed)
	var verdicts []outbox.Verdict
	if err == nil {
		verdicts, err = r.recheck(hard, claimed)
	}
	for i := range verdicts {
		// Unrecorded messages are not called: a renewal that committed after the record may have
		// restored a lease that it found expired.
		if verdicts[i] == outbox.VerdictSend && !slices.Contains(recorded, claimed[i].LeaseID) {
			verdicts[i] = outbox.VerdictHeld
		}
	}
	q.handedOver()
	checked := time.Now()
	ctx, cancel := context.WithTimeoutCause(hard, q.settings().Timeout, errTimeout)
	defer cancel()
	var called sync.WaitGroup
	for _, c := range calls {
		if err != nil {
			r.release(c.items)
			q.end(c, nil, time.Time{})
			continue
		}
		n := len(c.items)
		c.items = r.rechecked(hard, c.items, verdicts[:n])
		verdicts = verdicts[n:]
		if len(c.items) == 0 {
			q.end(c, nil, time.Time{})
			continue
		}
		c.checked = checked
		called.Go(func() { q.suspect(q.call(ctx, c), &q.answers) })
	}
	called.Wait()
}

// recordHandOver records what is about to be handed to a provider, and returns the leases
// under which it did. It gives up only when the relay is stopped hard.
func (r *Relay) recordHandOver(hard context.Context, claimed []outbox.Claimed,
	bypassed map[outbox.Key][]outbox.Attempt) (leases []int64, err error) {
	err = r.retry(hard, "messages are not handed over yet", func(ctx context.Context) (err error) {
		if err = r.at(ctx, pointHandOver); err != nil {
			return err
		}
		leases, err = r.ledger.HandOver(ctx, claimed, bypassed)
		return err
	})
	return leases, err
}

// handedOver lets the next group be handed over.
func (q *queue) handedOver() {
	<-q.relay.handing
	q.mu.Lock()
	q.handing--
	q.mu.Unlock()
	q.wake()
}
