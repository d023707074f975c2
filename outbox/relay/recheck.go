package relay

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// recheck looks at messages right before their calls, after the durable record of the
// hand-over: one verdict each. It gives up only when the relay is stopped hard.
func (r *Relay) recheck(hard context.Context, claimed []outbox.Claimed) (verdicts []outbox.Verdict, err error) {
	for {
		var began time.Time
		err = r.insist(hard, "messages are not rechecked yet", func(ctx context.Context) (err error) {
			if err = r.at(ctx, pointRecheck); err != nil {
				return err
			}
			began = time.Now()
			verdicts, err = r.ledger.Recheck(ctx, claimed)
			return err
		})
		if err != nil {
			return nil, err
		}
		if err := r.at(hard, pointRechecked); err != nil {
			return nil, err
		}
		if hard.Err() != nil {
			return nil, context.Cause(hard)
		}
		// What a recheck said holds while the lease does. A process that was stopped
		// meanwhile asks again.
		if time.Since(began) < r.settings().Lease/3 {
			return verdicts, nil
		}
	}
}

// rechecked returns what may be sent, and records what may not.
func (r *Relay) rechecked(hard context.Context, items []item, verdicts []outbox.Verdict) (send []item) {
	send = items[:0]
	var lost []outbox.Settlement
	for i, it := range items {
		switch verdicts[i] {
		case outbox.VerdictSend:
			send = append(send, it)
		case outbox.VerdictHeld, outbox.VerdictEdited:
			r.outcomes.add(outbox.Release(it.Claimed))
		case outbox.VerdictRecalled:
			r.outcomes.add(outbox.Settlement{Claimed: it.Claimed, To: outbox.Cancelled, Reason: outbox.ReasonRecalled, NextStep: it.Claimed.Step, NextAttempts: it.Claimed.Attempts})
		case outbox.VerdictLost:
			lost = append(lost, outbox.Settlement{Claimed: it.Claimed})
		}
	}
	r.lose(hard, lost)
	return send
}

// lose forgets messages that are not this relay's any more, and has the transport put their
// copies back: a carrier would keep them as a live worker's.
func (r *Relay) lose(hard context.Context, lost []outbox.Settlement) {
	if len(lost) == 0 {
		return
	}
	r.tally.lost.Add(int64(len(lost)))
	for i := range lost {
		r.log.Debug().Int64("job_id", lost[i].JobID).Int64("channel_id", lost[i].ChannelID).Msg("the message is not this relay's any more")
	}
	r.inform(hard, lost, make([]outbox.Status, len(lost)))
	r.outcomes.over(r.inflight.drop(claimedOf(lost)))
}
