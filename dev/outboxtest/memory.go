package outboxtest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

// Memory is a minimal carrier in memory, which relays share through their Carriers. It tests the suite itself, and other
// packages use it to test a relay with a carrier.
//
//	Push ──► waiting ──due, credits──► taken ──claimed──► Settled, final: dropped
//	            ▲                        │ later               │ PENDING
//	            └────────────────────────┴─────────────────────┘
type Memory struct {
	mu       sync.Mutex
	capacity int
	pushed   map[outbox.Key]bool
	queues   map[outbox.Queue]*memoryQueue
	changed  chan struct{} // closed and replaced when a copy waits
	down     error
}

// memoryQueue is a queue of Memory.
type memoryQueue struct {
	epoch   string
	last    int64
	waiting []waiting
	taken   map[outbox.Copy]waiting // not claimed
	claimed map[outbox.Key]waiting  // not settled
}

// waiting is a copy in a queue.
type waiting struct {
	outbox.Copy
	lane string
	due  time.Time
}

// NewMemory returns a carrier with the given capacity per queue.
func NewMemory(capacity int) *Memory {
	m := &Memory{capacity: capacity, pushed: map[outbox.Key]bool{}, changed: make(chan struct{})}
	m.Forget()
	return m
}

// Carrier implements outbox.Broker. Copies that a dead relay has taken remain taken.
func (m *Memory) Carrier(_ string, claim outbox.Claim) outbox.Carrier {
	return &memoryCarrier{m, claim}
}

// Check implements outbox.Broker.
func (m *Memory) Check(context.Context) ([]string, error) { return nil, m.down }

// Close implements outbox.Broker.
func (*Memory) Close() error { return nil }

// Empty implements outbox.Broker.
func (m *Memory) Empty(context.Context) error {
	m.Forget()
	return nil
}

// Queues implements outbox.Broker.
func (m *Memory) Queues(ctx context.Context) (list []outbox.QueueStatus, err error) {
	for _, name := range []outbox.Queue{outbox.Activities, outbox.Bulk} {
		in, err := (&memoryCarrier{m, nil}).Inside(ctx, name)
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		q, s := m.queues[name], outbox.QueueStatus{Queue: name, Inside: in}
		s.Taken, s.Full = int64(len(q.taken)+len(q.claimed)), len(q.waiting) >= m.capacity
		for _, w := range q.waiting {
			if w.due.After(time.Now()) {
				s.Later++
			} else {
				s.Ready++
			}
		}
		m.mu.Unlock()
		list = append(list, s)
	}
	return list, nil
}

// Forget removes all contents, including numbers and epochs.
func (m *Memory) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queues = make(map[outbox.Queue]*memoryQueue)
	for _, q := range []outbox.Queue{outbox.Activities, outbox.Bulk} {
		m.queues[q] = &memoryQueue{taken: make(map[outbox.Copy]waiting), claimed: make(map[outbox.Key]waiting)}
	}
}

// Rewind removes all pushes after the given one, like the promotion of a replica.
func (m *Memory) Rewind(queue outbox.Queue, to int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queues[queue]
	q.last = min(q.last, to)
	q.waiting = slices.DeleteFunc(q.waiting, func(w waiting) bool { return w.Push > to })
}

// Lose drops the copies of some messages without a trace.
func (m *Memory) Lose(keys []outbox.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.queues {
		q.waiting = slices.DeleteFunc(q.waiting, func(w waiting) bool { return slices.Contains(keys, w.Key) })
	}
}

// Fail makes every call return err until Fail(nil).
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = err
}

// Pushed returns the number of messages that were ever pushed.
func (m *Memory) Pushed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pushed)
}

// Copies returns the number of waiting copies, including later due ones.
func (m *Memory) Copies() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.queues {
		n += len(q.waiting)
	}
	return n
}

// wake wakes waiting calls of Receive. The caller holds the lock.
func (m *Memory) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// memoryCarrier is the carrier of one relay.
type memoryCarrier struct {
	*Memory
	claim outbox.Claim
}

// Keep implements outbox.Carrier.
func (*memoryCarrier) Keep(ctx context.Context) { <-ctx.Done() }

// String implements outbox.Transport.
func (*memoryCarrier) String() string { return "memory" }

// Push implements outbox.Carrier.
func (m *memoryCarrier) Push(_ context.Context, p outbox.PushGroup) (outbox.PushAnswer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queues[p.Queue]
	switch known := q.epoch == p.Epoch; {
	case m.down != nil:
		return "", m.down
	case known && p.Number <= q.last:
		return outbox.PushDone, nil
	case known && p.Number > q.last+1, !known && p.Number != p.First:
		return outbox.PushGap, nil
	case len(p.Keys) > 0 && len(q.waiting)+len(p.Keys) > m.capacity:
		return outbox.PushFull, nil
	}
	q.epoch, q.last = p.Epoch, p.Number
	for _, k := range p.Keys {
		m.pushed[k] = true
		q.waiting = append(q.waiting, waiting{outbox.Copy{Key: k, Push: p.Number}, p.Lane, time.Time{}})
	}
	m.wake()
	return outbox.PushDone, nil
}

// Inside implements outbox.Carrier.
func (m *memoryCarrier) Inside(_ context.Context, queue outbox.Queue) (outbox.Inside, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queues[queue]
	oldest := q.last + 1
	for _, w := range q.waiting {
		oldest = min(oldest, w.Push)
	}
	for _, w := range q.taken {
		oldest = min(oldest, w.Push)
	}
	for _, w := range q.claimed {
		oldest = min(oldest, w.Push)
	}
	return outbox.Inside{Epoch: q.epoch, Last: q.last, Oldest: oldest}, m.down
}

// Settled implements outbox.Transport.
func (m *memoryCarrier) Settled(_ context.Context, outcomes []outbox.Settled) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range outcomes {
		q := m.queues[queueOf(s.Key)]
		if w, claimed := q.claimed[s.Key]; claimed && (s.Status == "" || s.Status == outbox.Pending) {
			w.due = time.Now().Add(s.Wait)
			q.waiting = append(q.waiting, w)
		}
		delete(q.claimed, s.Key)
	}
	m.wake()
	return m.down
}

func queueOf(k outbox.Key) outbox.Queue {
	if k.JobID < 0 {
		return outbox.Activities
	}
	return outbox.Bulk
}

// Receive implements outbox.Transport.
func (m *memoryCarrier) Receive(ctx context.Context, credits outbox.Credits) ([]outbox.Claimed, error) {
	for ctx.Err() == nil {
		taken, next, changed, err := m.take(credits)
		if err != nil {
			return nil, err
		}
		if len(taken) > 0 {
			claimed, err := m.claimed(taken)
			if err != nil || len(claimed) > 0 {
				return claimed, err
			}
			continue
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-credits.Changed():
		case <-changed:
		}
		timer.Stop()
	}
	return nil, ctx.Err()
}

// take takes due copies within the credits, activities first. next is the time of the next poll unless something changes.
func (m *memoryCarrier) take(credits outbox.Credits) (taken []waiting, next time.Time, changed chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	next = now.Add(time.Hour)
	room := map[outbox.Queue]int{outbox.Activities: credits.Activities(), outbox.Bulk: credits.Bulk()}
	jobs := make(map[int64]int)
	for _, name := range []outbox.Queue{outbox.Activities, outbox.Bulk} {
		q := m.queues[name]
		left := q.waiting[:0:0]
		for _, w := range q.waiting {
			if w.due.After(now) {
				next = earlier(next, w.due)
			}
			if w.JobID > 0 && jobs[w.JobID] == 0 {
				jobs[w.JobID] = 1 + credits.Job(w.JobID, w.lane, 1) // plus one, because 0 means unknown
			}
			if w.due.After(now) || room[name] <= 0 || w.JobID > 0 && jobs[w.JobID] <= 1 || len(taken) == outbox.MaxBatch || m.down != nil {
				left = append(left, w)
				continue
			}
			room[name]--
			jobs[w.JobID]--
			q.taken[w.Copy] = w
			taken = append(taken, w)
		}
		q.waiting = left
	}
	return taken, next, m.changed, m.down
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// claimed claims the taken copies and applies the verdict to each. After an error it returns them to the queue.
func (m *memoryCarrier) claimed(taken []waiting) (claimed []outbox.Claimed, err error) {
	copies := make([]outbox.Copy, len(taken))
	for i, w := range taken {
		copies[i] = w.Copy
	}
	answers, err := m.claim(copies)
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.wake()
	for i, w := range taken {
		q := m.queues[queueOf(w.Key)]
		delete(q.taken, w.Copy)
		if err != nil {
			q.waiting = append(q.waiting, w)
			continue
		}
		switch a := answers[i]; a.Verdict {
		case outbox.CopyClaimed:
			claimed = append(claimed, a.Claimed)
			q.claimed[w.Key] = w
		case outbox.CopyLater:
			w.due = time.Now().Add(a.Wait)
			q.waiting = append(q.waiting, w)
		case outbox.CopyFinished, outbox.CopyAnother, outbox.CopyHeld, outbox.CopyNotQueued:
		}
	}
	return claimed, err
}
