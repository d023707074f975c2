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
			verdicts, err = r.ledger.Look(ctx, claimed)
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
func (r *Relay) rechecked(items []item, verdicts []outbox.Verdict) (send []item) {
	send = items[:0]
	for i, it := range items {
		switch verdicts[i] {
		case outbox.VerdictSend:
			send = append(send, it)
		case outbox.VerdictHeld, outbox.VerdictEdited:
			r.outcomes.add(outbox.Release(it.Claimed))
		case outbox.VerdictRecalled:
			r.outcomes.add(outbox.Settlement{Claimed: it.Claimed, To: outbox.Cancelled, Reason: outbox.ReasonRecalled, NextStep: it.Claimed.Step, NextAttempts: it.Claimed.Attempts})
		case outbox.VerdictLost:
			r.lose(it.Claimed)
		}
	}
	return send
}

// lose forgets a message that is not this relay's any more.
func (r *Relay) lose(c outbox.Claimed) {
	r.tally.lost.Add(1)
	r.log.Debug().Int64("job_id", c.JobID).Int64("channel_id", c.ChannelID).Msg("another relay has the message")
	r.outcomes.over(r.inflight.drop(func(yield func(*outbox.Claimed) bool) { yield(&c) }))
}
