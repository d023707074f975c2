package outboxtest_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/outboxtest"
	"github.com/belfryhq/belfry/outbox/relay"
)

// fault is how a carrier is wrong, as a verb.
type fault string

var faults = []fault{
	"claims without a condition", "takes more than its credits", "does not ask for a job's credits", "drops what it has at a stop",
	"does not wake", "takes what is due later", "forgets what is settled", "takes what is final", "never sweeps",
	"pushes twice", "tells no gap", "is never full", "has no lanes",
}

// row is a message in memory.
type row struct {
	lane   string
	status outbox.Status
	due    time.Time
	lease  int64
	tries  int
}

// truth is what PostgreSQL is to a real carrier.
type truth struct {
	mu    sync.Mutex
	fault fault
	rows  map[outbox.Key]*row
	order []outbox.Key // ids in the carrier; one may be there twice
	push  map[relay.Queue]int64
	jobs  int64
	lease int64
}

const capacity = 50

// carrier is the transport of one relay: it carries ids in memory and claims by key.
type carrier struct{ *truth }

// carry makes a Subject that is wrong in one way; "": in none.
func carry(f fault) *outboxtest.Subject {
	w := &truth{fault: f, rows: make(map[outbox.Key]*row), push: make(map[relay.Queue]int64)}
	return &outboxtest.Subject{
		Transport: &carrier{w}, Other: &carrier{w}, Capacity: capacity,
		Bulk: func(_ testing.TB, lane string, n int, in time.Duration) []outbox.Key {
			return w.write(lane, n, in, true)
		},
		Activities: func(_ testing.TB, n int, in time.Duration) []outbox.Key {
			return w.write("", n, in, true)
		},
		Queued: func(_ testing.TB, n int) []outbox.Key { return w.write("a", n, 0, false) },
		Strand: func(_ testing.TB, keys []outbox.Key) func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			hide := func(s outbox.Status) {
				for _, k := range keys {
					w.rows[k].status = s
				}
			}
			hide(outbox.Cancelled) // its copy is dropped when it comes up
			return func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				hide(outbox.Queued)
			}
		},
		Settle: func(_ testing.TB, list []outbox.Settlement) []relay.Settled { return w.settle(list) },
		Processing: func(testing.TB) (n int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, r := range w.rows {
				if r.status == outbox.Processing {
					n++
				}
			}
			return n
		},
	}
}

func (w *truth) write(lane string, n int, in time.Duration, pushed bool) (keys []outbox.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs++
	job := w.jobs
	if lane == "" {
		job = -job
	}
	for i := range n {
		k := outbox.Key{JobID: job, ChannelID: int64(i + 1)}
		w.rows[k] = &row{lane: lane, status: outbox.Queued, due: time.Now().Add(in)}
		keys = append(keys, k)
	}
	if pushed {
		w.order = append(w.order, keys...)
	}
	return keys
}

func (w *truth) settle(list []outbox.Settlement) (outcomes []relay.Settled) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range list {
		r := w.rows[s.Key]
		r.status, r.tries, r.due = s.To, s.NextAttempts, time.Now().Add(s.Wait)
		outcomes = append(outcomes, relay.Settled{Key: s.Key, Status: s.To, Reason: s.Reason, Wait: s.Wait})
	}
	return outcomes
}

func (*carrier) String() string { return "memory" }

func (c *carrier) Push(_ context.Context, p relay.Push) (relay.Pushed, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.push[p.Queue]
	switch {
	case p.Number <= last && c.fault != "pushes twice":
		return relay.Pushed{Answer: relay.PushDone}, nil
	case p.Number > last+1 && c.fault != "tells no gap":
		return relay.Pushed{Answer: relay.PushGap, From: last + 1}, nil
	case len(c.order)+len(p.Keys) > capacity && c.fault != "is never full":
		return relay.Pushed{Answer: relay.PushFull}, nil
	}
	c.push[p.Queue] = p.Number
	if c.fault == "pushes twice" {
		for _, k := range p.Keys {
			c.rows[k].status = outbox.Queued
		}
	}
	c.order = append(c.order, p.Keys...)
	return relay.Pushed{Answer: relay.PushDone}, nil
}

func (c *carrier) Settled(_ context.Context, outcomes []relay.Settled) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range outcomes {
		switch {
		case c.rows[s.Key] == nil:
		case s.Status == outbox.Pending && c.fault != "forgets what is settled", s.Status == outbox.Sent && c.fault == "takes what is final":
			c.order = append(c.order, s.Key)
		}
	}
	return nil
}

func (c *carrier) Receive(ctx context.Context, credits relay.Credits) ([]outbox.Claimed, error) {
	sweep := time.NewTicker(50 * time.Millisecond)
	defer sweep.Stop()
	for ctx.Err() == nil {
		if claimed := c.claim(credits); len(claimed) > 0 {
			if ctx.Err() != nil && c.fault == "drops what it has at a stop" {
				return nil, ctx.Err()
			}
			return claimed, ctx.Err()
		}
		if c.fault == "does not wake" {
			<-ctx.Done()
			break
		}
		select {
		case <-ctx.Done():
		case <-credits.Changed():
		case <-sweep.C:
			c.sweep()
		}
	}
	return nil, ctx.Err()
}

// sweep puts ids back that the carrier has lost.
func (c *carrier) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault == "never sweeps" || c.fault == "forgets what is settled" {
		return
	}
	for k, r := range c.rows {
		if r.status == outbox.Queued && !slices.Contains(c.order, k) && c.push[relay.Bulk] == 0 {
			c.order = append(c.order, k)
		}
	}
}

// claim takes ids out as far as the credits go, and claims them by key.
func (c *carrier) claim(credits relay.Credits) (claimed []outbox.Claimed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	activities, bulk := credits.Activities(), credits.Bulk()
	if c.fault == "takes more than its credits" {
		activities, bulk = 1000, 1000
	}
	jobs, now, left := make(map[int64]int), time.Now(), c.order[:0:0]
	c.lease++
	for _, k := range c.order {
		r, room := c.rows[k], &bulk
		if k.JobID < 0 {
			room = &activities
		}
		final := r.status != outbox.Queued && r.status != outbox.Pending
		switch {
		case final && c.fault != "claims without a condition" && c.fault != "takes what is final":
			continue // its copy is dropped
		case r.due.After(now) && c.fault != "takes what is due later", *room == 0,
			k.JobID > 0 && jobs[k.JobID] >= credits.Job(k.JobID, r.lane, 1) && c.fault != "does not ask for a job's credits" && c.fault != "takes more than its credits":
			left = append(left, k)
			continue
		}
		*room--
		jobs[k.JobID]++
		r.status, r.lease = outbox.Processing, c.lease
		m := outbox.Claimed{Key: k, LeaseID: c.lease, Lane: r.lane, Attempts: r.tries}
		if c.fault == "has no lanes" {
			m.Lane = ""
		}
		if c.fault == "claims without a condition" {
			left = append(left, k)
		}
		claimed = append(claimed, m)
	}
	c.order = left
	return claimed
}
