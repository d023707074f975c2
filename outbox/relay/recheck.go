package relay

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// recheck returns a verdict for each message right before its call, after the durable record of the
// hand-over. It gives up only when the relay is stopped hard.
func (r *Relay) recheck(hard context.Context, claimed []outbox.Claimed) (verdicts []outbox.Verdict, err error) {
	for {
		var began time.Time
		err = r.retry(hard, "messages are not rechecked yet", func(ctx context.Context) (err error) {
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
		// A verdict holds as long as the lease. A process that was frozen in the meantime rechecks
		// again.
		if time.Since(began) < r.settings().Lease/3 {
			return verdicts, nil
		}
	}
}

// rechecked returns the messages that may be sent and records the others.
func (r *Relay) rechecked(hard context.Context, items []item, verdicts []outbox.Verdict) (send []item) {
	send = items[:0]
	var lost []outbox.Settlement
	for i, it := range items {
		if verdicts[i] != outbox.VerdictSend {
			r.content.drop(it.Composed)
		}
		switch verdicts[i] {
		case outbox.VerdictSend:
			send = append(send, it)
		case outbox.VerdictHeld, outbox.VerdictEdited:
			r.outcomes.add(outbox.Release(it.Claimed))
		case outbox.VerdictRecalled:
			r.outcomes.add(outbox.Settlement{Claimed: it.Claimed, To: outbox.Cancelled, Reason: outbox.ReasonRecalled,
				NextStep: it.Claimed.Step, NextAttempts: it.Claimed.Attempts})
		case outbox.VerdictLost:
			lost = append(lost, outbox.Settlement{Claimed: it.Claimed})
		}
	}
	r.lose(hard, lost)
	return send
}

// lose drops messages that belong to another relay, and returns their copies to the transport:
// otherwise a carrier would keep them as copies of a live worker.
func (r *Relay) lose(hard context.Context, lost []outbox.Settlement) {
	if len(lost) == 0 {
		return
	}
	r.tally.lost.Add(int64(len(lost)))
	for i := range lost {
		r.log.Debug().Int64("job_id", lost[i].JobID).Int64("channel_id", lost[i].ChannelID).Msg("the message belongs to another relay")
	}
	r.inform(hard, lost, make([]outbox.Status, len(lost)))
	r.outcomes.endLeases(r.inflight.drop(claimedOf(lost)))
}
