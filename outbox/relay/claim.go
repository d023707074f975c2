package relay

import (
	"context"
	"errors"
	"time"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox"
)

// batch contains the messages of one Receive until they are composed.
type batch struct {
	messages []outbox.Claimed
	spent    []int // credits of each queue
	share    int   // how many bulk messages one queue may hold
}

// claim receives messages and sends them on to be composed, until ctx ends or a drain has
// nothing left to receive.
func (r *Relay) claim(ctx context.Context, out chan<- batch) {
	failures := 0
	for ctx.Err() == nil {
		if r.blocked() {
			if r.draining.Load() || !r.restUntilLet(ctx) {
				return
			}
			continue
		}
		began := time.Now()
		messages, err := r.transport.Receive(ctx, r.credits)
		if len(messages) > 0 { // even with an error: claimed messages must not be dropped
			r.took(messages, began)
			r.composer.Expect(messages)
			out <- r.credits.spend(messages) // a composer takes it: they end after this
		}
		over := errors.Is(err, outbox.ErrNothingDue)
		if over {
			err = nil
		}
		text, carrier := "messages are not claimed", errors.As(err, new(carrierError))
		spoken := false
		if carrier { // the error does not concern the database
			text = "messages are not taken out of the carrier"
		} else {
			spoken = ctx.Err() == nil && r.outage.Observe(began, err)
		}
		switch {
		case over && r.drained(ctx):
			return
		case err == nil || ctx.Err() != nil:
			failures = 0
		default:
			if failures++; failures == 1 && !spoken {
				r.log.WithLevel(levelOf(err)).Err(err).Str("worker_id", r.name).Str("transport", r.transport.String()).Msg(text)
			}
			_ = lifecycle.Pause(ctx, min(50*time.Millisecond<<min(failures, 5), time.Second))
		}
	}
}

// took records claimed messages.
func (r *Relay) took(found []outbox.Claimed, began time.Time) {
	r.inflight.take(found)
	r.tally.claimed.Add(int64(len(found)))
	r.log.Debug().Int64("job_id", found[0].JobID).Int("rows", len(found)).Int64("elapsed_ms",
		time.Since(began).Milliseconds()).Msg("claimed messages")
}

// drained reports whether a drain without due messages is finished. A drain with messages deferred
// under a cap waits until they are due.
func (r *Relay) drained(ctx context.Context) bool {
	wait := time.Duration(r.capped.Swap(0))
	return wait == 0 || lifecycle.Pause(ctx, wait) != nil
}

// restUntilLet waits a while until messages may leave the database; the heartbeat finds it. It
// returns false when ctx ends.
func (r *Relay) restUntilLet(ctx context.Context) bool {
	r.setResting(true) // hints wake the heartbeat
	timer := time.NewTimer(r.rest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-r.credits.Changed():
		r.setResting(false)
	}
	return true
}
