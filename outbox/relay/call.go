package relay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/sender"
)

// deliver hands a group over: the durable record first, then one look at every message,
// then the calls at once. Nothing is called that the look does not let pass (I6, I8).
func (l *line) deliver(hard context.Context, calls []call) {
	r := l.relay
	claimed := make([]outbox.Claimed, 0, len(calls))
	for _, c := range calls {
		for _, it := range c.items {
			m := it.Claimed
			m.Step = it.Step // that the call is for
			claimed = append(claimed, m)
		}
	}
	verdicts, err := r.handOver(hard, claimed)
	l.handed()
	ctx, cancel := context.WithTimeoutCause(hard, l.settings().Timeout, errTimeout)
	var called sync.WaitGroup
	for _, c := range calls {
		if err != nil {
			for _, it := range c.items {
				r.books.add(outbox.Release(it.Claimed)) // as no call was made
			}
			l.end(c, nil, time.Time{})
			continue
		}
		n := len(c.items)
		c.items = r.admitted(c.items, verdicts[:n])
		verdicts = verdicts[n:]
		if len(c.items) == 0 {
			l.end(c, nil, time.Time{})
			continue
		}
		called.Go(func() { l.call(ctx, c) })
	}
	called.Wait()
	cancel()
}

// handOver records what is about to be handed to a provider and looks at it. It gives up
// only when the relay is stopped hard.
func (r *Relay) handOver(hard context.Context, claimed []outbox.Claimed) (verdicts []outbox.Verdict, err error) {
	for {
		var looked time.Time
		err = r.insist(hard, "messages are not handed over yet", func(ctx context.Context) error {
			if err := r.at(ctx, pointHandOver); err != nil {
				return err
			}
			if err := r.ledger.HandOver(ctx, claimed); err != nil {
				return err
			}
			if err := r.at(ctx, pointLook); err != nil {
				return err
			}
			looked = time.Now()
			var err error
			verdicts, err = r.ledger.Look(ctx, claimed)
			return err
		})
		if err != nil {
			return nil, err
		}
		if err := r.at(hard, pointLooked); err != nil {
			return nil, err
		}
		if hard.Err() != nil {
			return nil, context.Cause(hard)
		}
		// What the look said holds while the lease does. A process that was stopped
		// meanwhile looks again.
		if time.Since(looked) < r.settings().Lease/3 {
			return verdicts, nil
		}
	}
}

// admitted returns what may be sent, and settles what may not.
func (r *Relay) admitted(items []item, verdicts []outbox.Verdict) (send []item) {
	send = items[:0]
	for i, it := range items {
		switch verdicts[i] {
		case outbox.VerdictSend:
			send = append(send, it)
		case outbox.VerdictHeld, outbox.VerdictEdited:
			r.books.add(outbox.Release(it.Claimed))
		case outbox.VerdictRecalled:
			r.books.add(outbox.Settlement{Claimed: it.Claimed, To: outbox.Cancelled, Reason: outbox.ReasonRecalled, NextStep: it.Claimed.Step, NextAttempts: it.Claimed.Attempts})
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
	r.books.over(r.hand.drop(map[int64]int{c.LeaseID: 1}))
}

// call calls the provider once and has the outcomes recorded.
func (l *line) call(ctx context.Context, c call) {
	batch := make([]sender.Delivery, len(c.items))
	for i, it := range c.items {
		batch[i] = it.Delivery
	}
	began := time.Now()
	results := l.send(ctx, batch)
	l.end(c, results, began)
	r, config := l.relay, l.settings()
	look := r.settings().Receipts.Interval
	for i, it := range c.items {
		r.books.add(decide(it.Composed, config.Name, config.Retry, look, results[i], r.random()))
	}
}

// send is Send with its promises kept.
func (l *line) send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	return l.guard(len(batch), func() []sender.Result { return l.client.Send(ctx, batch) })
}

// guard returns n results, also when the client returns fewer, or panics: a message that
// makes it panic must not take its neighbours along.
func (l *line) guard(n int, f func() []sender.Result) (results []sender.Result) {
	defer func() {
		if p := recover(); p != nil {
			l.relay.log.Error().Str("sender", l.settings().Name).Str("worker_id", l.relay.name).Str("error", fmt.Sprintf("%T", p)).Msg("a sender panicked")
			results = slices.Repeat([]sender.Result{{Class: sender.Unknown, Code: "panic", Detail: "the sender panicked"}}, n)
		}
	}()
	results = f()
	for len(results) < n {
		results = append(results, sender.Result{Class: sender.Unknown, Code: "no_result", Detail: "the sender did not say what became of it"})
	}
	return results[:n]
}
