package relay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay/judge"
	"github.com/belfryhq/belfry/outbox/sender"
)

// call calls the provider once and records the outcomes. It returns the jobs that have failed too often
// in a row.
func (q *queue) call(ctx context.Context, c call) (failing []judge.Streak) {
	batch := make([]sender.Delivery, len(c.items))
	for i, it := range c.items {
		batch[i] = it.Delivery
	}
	began := time.Now()
	results := q.send(sender.WithCheck(ctx, q.relay.checkOf(ctx, c)), batch)
	r, config := q.relay, q.settings()
	c.items, results = r.tried(c.items, results)
	q.end(c, results, began)
	if len(results) == 0 {
		return nil
	}
	for _, o := range r.observers {
		o.Called(config.Name, results, time.Since(began))
	}
	for i, it := range c.items {
		r.content.drop(it.Composed)
		r.outcomes.add(decide(it.Composed, config.Name, config.Retry, r.settings().Receipts.Interval, results[i], r.random()))
		final, accepted := judge.Counts(it.Composed, results[i]), results[i].Class == sender.Accepted || results[i].Class == sender.Pending
		if p := q.probes.of(it.Claimed.JobID); p != nil {
			p.Observe(it.Claimed.Key, results[i], final, false)
			if !p.Receipts {
				continue
			}
		}
		if !final && !accepted {
			continue
		}
		if s, full := q.answers.Add(it.Claimed.Key, results[i], config.AbortAfter); full {
			failing = append(failing, s)
		}
	}
	return failing
}

// tried returns the messages that were sent, with their results, and releases the others: their provider has not
// failed, and they are sent again without an attempt.
func (r *Relay) tried(items []item, results []sender.Result) (sent []item, of []sender.Result) {
	untried := func(result sender.Result) bool { return result.Untried && result.Class == sender.Retryable }
	if !slices.ContainsFunc(results, untried) {
		return items, results
	}
	for i, it := range items {
		if untried(results[i]) {
			r.release(items[i : i+1])
		} else {
			sent, of = append(sent, it), append(of, results[i])
		}
	}
	return sent, of
}

// checkOf returns the check of a call: its messages may be sent as long as this relay certainly holds their leases.
// Afterwards they may have been recalled or erased, or belong to another relay. A call that has not begun when the relay
// stops is left to another one: the stop would cut it off in the end. A call that has waited for its provider
// for more than a second rechecks them, so that it obeys an abort that returned in the meantime.
func (r *Relay) checkOf(ctx context.Context, c call) func() error {
	var mu sync.Mutex
	checked := c.checked
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		for _, it := range c.items {
			if r.stopping.Load() || !r.ledger.Holds(it.Claimed.LeaseID) {
				return sender.ErrLate
			}
		}
		if time.Since(checked) < min(r.settings().Lease/3, time.Second) {
			return nil
		}
		claimed := make([]outbox.Claimed, len(c.items))
		for i, it := range c.items {
			claimed[i] = it.Claimed
		}
		began := time.Now()
		var verdicts []outbox.Verdict
		err := r.withTimeout(ctx, func(ctx context.Context) (err error) {
			verdicts, err = r.ledger.Recheck(ctx, claimed)
			return err
		})
		if err != nil || slices.ContainsFunc(verdicts, func(v outbox.Verdict) bool { return v != outbox.VerdictSend }) {
			return sender.ErrLate
		}
		checked = began
		return nil
	}
}

// release returns messages as no call was made.
func (r *Relay) release(items []item) {
	for _, it := range items {
		r.content.drop(it.Composed)
		r.outcomes.add(outbox.Release(it.Claimed))
	}
}

// send calls Send and enforces its contract.
func (q *queue) send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	return q.guard(len(batch), func() []sender.Result { return q.client.Send(ctx, batch) })
}

// guard returns n results even if the client returns fewer, or panics: a message that causes a panic
// must not affect its neighbours.
func (q *queue) guard(n int, f func() []sender.Result) (results []sender.Result) {
	defer func() {
		if p := recover(); p != nil {
			q.relay.log.Error().Str("sender", q.settings().Name).Str("worker_id", q.relay.name).Str("error",
				fmt.Sprintf("%T", p)).Msg("a sender panicked")
			results = slices.Repeat([]sender.Result{{Class: sender.Unknown, Code: "panic", Detail: "the sender panicked"}}, n)
		}
	}()
	results = f()
	for len(results) < n {
		results = append(results, sender.Result{Class: sender.Unknown, Code: "no_result", Detail: "the sender returned no result"})
	}
	return results[:n]
}

// end returns the permit of a call that began then. No results: it was not made.
func (q *queue) end(c call, results []sender.Result, began time.Time) {
	now, recipients := time.Now(), make([]string, len(c.items))
	for i, it := range c.items {
		recipients[i] = it.Delivery.ExternalID
	}
	q.limits.End(c.Permit, results, recipients, now.Sub(began), now)
	q.mu.Lock()
	for _, result := range results {
		if result.Class == sender.Accepted || result.Class == sender.Pending {
			q.sent++
		} else {
			q.failed++
		}
	}
	q.calling--
	wanted := len(q.activities)+len(q.bulk) > 0
	q.mu.Unlock()
	if wanted {
		q.wake()
	}
}
