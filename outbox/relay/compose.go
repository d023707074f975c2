package relay

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay/limit"
)

// Composer decides for each claimed message, in order, whether it is sent, deferred or refused. It is
// called with a deadline and concurrently, and writes nothing.
type Composer interface {
	// Expect announces a claim that will be composed. It returns at once.
	Expect(claimed []outbox.Claimed)
	Compose(ctx context.Context, claimed []outbox.Claimed) ([]outbox.Composed, error)
	// Transactions returns the number of its transactions in the database.
	Transactions() int64
}

// composers is the number of batches that are composed concurrently.
const composers = 2

// compose composes batches until the channel is closed, and enqueues messages to be sent. After the
// stop it returns them.
func (r *Relay) compose(ctx context.Context, in <-chan batch) {
	for b := range in {
		composed, unsent := r.composed(ctx, b.messages)
		r.outcomes.add(unsent...)
		r.credits.feedback(b, r.enqueue(b, composed))
	}
}

// composed composes messages. Messages that cannot be composed, or not before the stop, are settled
// instead: a message that fails its whole batch is found by bisection and fails alone.
func (r *Relay) composed(ctx context.Context, messages []outbox.Claimed) (composed []outbox.Composed, unsent []outbox.Settlement) {
	err := context.Cause(ctx)
	if err == nil {
		err = r.retry(ctx, "messages are not composed yet", func(ctx context.Context) (err error) {
			composed, err = r.composer.Compose(ctx, messages)
			return err
		})
	}
	var data *pgconn.PgError
	switch {
	case err == nil:
		return composed, nil
	case ctx.Err() != nil:
		for _, m := range messages {
			unsent = append(unsent, outbox.Release(m))
		}
		return nil, unsent
	case len(messages) > 1:
		composed, unsent = r.composed(ctx, messages[:len(messages)/2])
		more, others := r.composed(ctx, messages[len(messages)/2:])
		return append(composed, more...), append(unsent, others...)
	}
	m := messages[0]
	r.log.Error().Err(err).Int64("job_id", m.JobID).Int64("channel_id", m.ChannelID).Msg("a message cannot be composed")
	if !errors.As(err, &data) {
		return nil, []outbox.Settlement{deferred(m, outbox.ReasonRetry, time.Minute)}
	}
	return nil, []outbox.Settlement{{
		Claimed: m, To: outbox.Dead, Reason: outbox.ReasonBadContent, NextStep: m.Step, NextAttempts: m.Attempts,
		Error: "PostgreSQL refuses its content or its channel: " + data.Code,
	}}
}

// enqueue puts each composed message into its sender's queue, and records those that are
// refused, deferred, or have no sender here. It returns how many of each job went to each
// queue, those among them that it had no room for.
func (r *Relay) enqueue(b batch, composed []outbox.Composed) map[int64][]int {
	now := time.Now()
	var settlements []outbox.Settlement
	to, went := make([][]*outbox.Composed, len(r.queues)), make(map[int64][]int)
	for i := range composed {
		m := &composed[i]
		if id := m.Claimed.JobID; id > 0 && went[id] == nil {
			went[id] = make([]int, len(r.queues))
		}
		switch m.Action {
		case outbox.ActionRefuse:
			settlements = append(settlements, outbox.Settlement{
				Claimed: m.Claimed, To: m.Status, Reason: m.Reason, Record: m.Record,
				NextStep: m.Claimed.Step, NextAttempts: m.Claimed.Attempts,
			})
		case outbox.ActionDefer:
			settlements = append(settlements, deferred(m.Claimed, m.Reason, r.waitOf(m)))
		case outbox.ActionSend:
			q := r.queueFor(m.Delivery.Medium, m.Delivery.Platform)
			if q < 0 {
				settlements = append(settlements, r.unserved(m, now))
				withoutText(m)
				continue
			}
			to[q] = append(to[q], m)
			if m.Claimed.JobID > 0 {
				went[m.Claimed.JobID][q]++
			}
		}
	}
	r.outcomes.add(settlements...)
	for q, messages := range to {
		if len(messages) > 0 {
			r.queues[q].enqueue(messages, b.share, now)
		}
	}
	return went
}

// hurry divides the wait of a drain for messages in flight under a cap.
const hurry = 4

// waitOf returns the deferral of a composed message. A drain waits for messages in flight under a cap.
func (r *Relay) waitOf(m *outbox.Composed) time.Duration {
	if m.Reason != outbox.ReasonCapped || !r.draining.Load() {
		return m.Wait
	}
	wait := m.Wait / hurry
	for {
		longest := r.capped.Load()
		if int64(wait) <= longest || r.capped.CompareAndSwap(longest, int64(wait)) {
			return wait
		}
	}
}

// unserved settles a message without a sender here. A medium of other relays is left to them at once:
// they do not claim the message before its step. A platform without a sender is waited for.
func (r *Relay) unserved(m *outbox.Composed, now time.Time) outbox.Settlement {
	medium := m.Delivery.Medium
	if !slices.ContainsFunc(r.queues, func(q *queue) bool { return q.settings().Medium == medium }) && m.Step != m.Claimed.Step {
		return outbox.Settlement{
			Claimed: m.Claimed, To: outbox.Pending, Reason: outbox.ReasonFailover,
			NextStep: m.Step, NextAttempts: m.Attempts, Record: m.Record,
		}
	}
	pause := r.absent.Pause(m.Claimed.JobID < 0, now) + time.Duration(r.random()*float64(limit.AbsentLeast))
	return deferred(m.Claimed, outbox.ReasonNoSender, pause)
}

// queueFor is the index of the queue of the first sender that takes a medium and platform,
// or -1.
func (r *Relay) queueFor(medium, platform string) int {
	return slices.IndexFunc(r.queues, func(q *queue) bool { return q.settings().takes(medium, platform) })
}
