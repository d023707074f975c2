package relay

import (
	"context"
	"sync"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay/judge"
	"github.com/belfryhq/belfry/outbox/sender"
)

// receiptsAtOnce is the number of receipts per read.
const receiptsAtOnce = 500

// lookForReceipts reads due results from the providers while there is room for outcomes (I13). A
// message whose limit has expired is SENT, unconfirmed, even if no provider can be reached.
func (r *Relay) lookForReceipts(ctx context.Context) error {
	for ctx.Err() == nil && !r.blocked() {
		config := r.settings()
		limit := min(receiptsAtOnce, config.MaxInFlight-r.outcomes.waiting())
		if limit <= 0 {
			return nil // the next round is soon
		}
		r.outcomes.forget()
		var due []outbox.Awaited
		err := r.withTimeout(ctx, func(ctx context.Context) (err error) {
			due, err = r.ledger.ReceiptsDue(ctx, limit, config.Receipts.Interval)
			return err
		})
		if err != nil {
			return err
		}
		if len(due) > 0 {
			r.expectReceipts()
		}
		bySender := make(map[string][]outbox.Awaited)
		for _, a := range due {
			bySender[a.Sender] = append(bySender[a.Sender], a)
		}
		var asking sync.WaitGroup
		for name, list := range bySender {
			asking.Go(func() { r.askFor(ctx, r.queueNamed(name), list, config.Receipts) })
		}
		asking.Wait()
		if len(due) < limit {
			return nil
		}
	}
	return nil
}

// waiting returns the number of outcomes that are not being recorded.
func (b *batcher) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

// askFor reads the results of messages that one sender has accepted. Without a queue the sender is
// unknown here; a relay that has it gets the time of two more reads.
func (r *Relay) askFor(ctx context.Context, q *queue, list []outbox.Awaited, config ReceiptConfig) {
	results := make([]sender.Result, len(list))
	for i := range results {
		results[i] = sender.Result{Class: sender.Pending}
	}
	limit := config.Limit
	if q != nil {
		q.receipts(ctx, list, results)
	} else {
		limit += 2 * config.Interval
	}
	var failing []judge.Streak
	for i, a := range list {
		if s, settled := decideReceipt(a, limit, results[i]); settled {
			r.outcomes.addReceipt(s)
			if s.To == outbox.Sent { // also unconfirmed, which is a sign of life
				results[i].Class = sender.Accepted
			}
		}
		if q == nil || results[i].Class != sender.Accepted && a.Step+1 < len(a.Route) || results[i].Class == sender.Pending {
			continue
		}
		if p := q.probes.of(a.JobID); p != nil && p.Receipts {
			p.Observe(a.Key, results[i], true, true)
		} else if s, full := q.confirmations.Add(a.Key, results[i], q.settings().AbortAfter); full {
			failing = append(failing, s)
		}
	}
	if q != nil {
		q.suspect(failing, &q.confirmations)
	}
}

// receipts fills in what the client knows.
func (q *queue) receipts(ctx context.Context, list []outbox.Awaited, results []sender.Result) {
	reader, ok := q.client.(sender.ReceiptReader)
	if !ok {
		return
	}
	n := max(1, q.client.MaxBatch())
	for from := 0; from < len(list) && ctx.Err() == nil; from += n {
		to := min(from+n, len(list))
		receipts := make([]string, 0, n)
		for _, a := range list[from:to] {
			receipts = append(receipts, a.Receipt)
		}
		limited, cancel := context.WithTimeoutCause(ctx, q.settings().Timeout, errTimeout)
		copy(results[from:to], q.guard(len(receipts), func() []sender.Result { return reader.Receipts(limited, receipts) }))
		cancel()
	}
}

func (r *Relay) queueNamed(name string) *queue {
	for _, q := range r.queues {
		if q.settings().Name == name {
			return q
		}
	}
	return nil
}
