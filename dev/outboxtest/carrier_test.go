package outboxtest_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/outbox"
)

// fault is how a carrier, what it claims with, or a dispatcher is wrong, as a verb.
type fault string

var faults = []fault{
	"claims without a condition", "takes more than its credits", "does not ask for a job's credits", "drops what it has at a stop",
	"does not wake", "takes what is due later", "forgets what is settled", "takes what is final", "never sweeps",
	"pushes twice", "tells no gap", "is never full", "has no lanes", "claims what is held", "claims by an old push", "keeps what is held",
	"knows any epoch", "counts what is full", "knows no oldest push", "never pushes again", "forgets and does not say so", "queues in one queue",
	"knows only the pushes of its own", "drops what was not recorded",
}

// row is a message in memory.
type row struct {
	lane   string
	status outbox.Status
	due    time.Time
	push   int64
	tries  int
}

// truth is what PostgreSQL is to a real carrier.
type truth struct {
	mu     sync.Mutex
	fault  fault
	memory *outboxtest.Memory
	rows   map[outbox.Key]*row
	held   map[int64]bool
	queues map[outbox.Queue]*numbers
	jobs   int64
	lease  int64
}

// numbers are those of a queue's pushes.
type numbers struct {
	epoch       int
	first, last int64
}

const capacity = 50

// carry makes a Subject that is wrong in one way; "": in none.
func carry(f fault) *outboxtest.Subject {
	size := capacity
	if f == "is never full" {
		size = 1 << 20
	}
	w := &truth{
		fault: f, memory: outboxtest.NewMemory(size), rows: make(map[outbox.Key]*row), held: make(map[int64]bool),
		queues: map[outbox.Queue]*numbers{outbox.Activities: {first: 1}, outbox.Bulk: {first: 1}},
	}
	s := &outboxtest.Subject{
		Transport: w.carrier(), Other: w.carrier(),
		Bulk: func(_ testing.TB, lane string, n int, in time.Duration) []outbox.Key { return w.write(lane, n, in) },
		Activities: func(_ testing.TB, n int, in time.Duration) []outbox.Key {
			return w.write("", n, in)
		},
		Strand: func(_ testing.TB, keys []outbox.Key) func() {
			w.set(keys, outbox.Cancelled) // its copy is dropped when it comes up
			return func() { w.lose(keys) }
		},
		Settle: func(_ testing.TB, list []outbox.Settlement) []outbox.Settled { return w.settle(list) },
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
		Hold: func(_ testing.TB, job int64) func() {
			w.hold(job, true)
			return func() { w.hold(job, false) }
		},
		Recall: func(_ testing.TB, keys []outbox.Key) { w.set(keys, outbox.Cancelled) },
	}
	s.Carrier = &outboxtest.CarrierSubject{
		Dispatch: w.dispatch,
		Queued: func(_ testing.TB, n int) outbox.PushGroup {
			keys := w.write("a", n, 0)
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.queue(outbox.Bulk, keys)
		},
		Requeued: func(_ testing.TB, p outbox.PushGroup) outbox.PushGroup {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.queue(outbox.Bulk, p.Keys)
		},
		Unclaim: func(_ testing.TB, keys []outbox.Key) { w.set(keys, outbox.Queued) },
		Copies:  func(testing.TB) int { return w.memory.Copies() }, Capacity: capacity,
		Forget: func(testing.TB) { w.memory.Forget() },
		Lose:   func(_ testing.TB, keys []outbox.Key) { w.memory.Lose(keys) },
	}
	return s
}

func (w *truth) write(lane string, n int, in time.Duration) (keys []outbox.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs++
	job := w.jobs
	if lane == "" {
		job = -job
	}
	for i := range n {
		k := outbox.Key{JobID: job, ChannelID: int64(i + 1)}
		w.rows[k] = &row{lane: lane, status: outbox.Pending, due: time.Now().Add(in)}
		keys = append(keys, k)
	}
	return keys
}

func (w *truth) set(keys []outbox.Key, s outbox.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		w.rows[k].status = s
	}
}

// lose queues rows by a push whose copies are gone, whether or not one had been made before.
func (w *truth) lose(keys []outbox.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		w.rows[k].status, w.rows[k].push = outbox.Queued, 0
	}
}

func (w *truth) hold(job int64, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[job] = yes
}

func (w *truth) settle(list []outbox.Settlement) (outcomes []outbox.Settled) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range list {
		r := w.rows[s.Key]
		if r.status == outbox.Queued { // the claim was forgotten
			outcomes = append(outcomes, outbox.Settled{Key: s.Key})
			continue
		}
		r.status, r.tries, r.due = s.To, s.NextAttempts, time.Now().Add(s.Wait)
		outcomes = append(outcomes, outbox.Settled{Key: s.Key, Status: s.To, Reason: s.Reason, Wait: s.Wait})
	}
	return outcomes
}

// claim is a outbox.Claim.
func (w *truth) claim(copies []outbox.Copy) ([]outbox.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lease++
	answers := make([]outbox.Answer, len(copies))
	for i, c := range copies {
		r, a := w.rows[c.Key], &answers[i]
		a.Claimed.Key = c.Key
		final := r.status.Final() && w.fault != "takes what is final"
		switch {
		case w.fault == "claims without a condition":
			a.Verdict = outbox.CopyClaimed
		case final:
			a.Verdict = outbox.CopyFinished
		case r.status == outbox.Processing:
			a.Verdict = outbox.CopyAnother
		case w.held[c.JobID] && w.fault == "keeps what is held":
			a.Verdict, a.Wait = outbox.CopyLater, 10*time.Millisecond
		case w.held[c.JobID] && w.fault != "claims what is held":
			a.Verdict, r.status = outbox.CopyHeld, outbox.Pending
		case r.due.After(time.Now()) && w.fault != "takes what is due later":
			a.Verdict, a.Wait = outbox.CopyLater, time.Until(r.due)
		case r.status == outbox.Queued && r.push > c.Push && w.fault != "claims by an old push":
			a.Verdict = outbox.CopyNotQueued
		default:
			a.Verdict = outbox.CopyClaimed
		}
		if a.Verdict == outbox.CopyClaimed {
			r.status = outbox.Processing
			a.Claimed.LeaseID, a.Claimed.Lane, a.Claimed.Attempts = w.lease, r.lane, r.tries
		}
		if w.fault == "has no lanes" {
			a.Claimed.Lane = ""
		}
	}
	return answers, nil
}

// queue is the COMMIT of a push.
func (w *truth) queue(name outbox.Queue, keys []outbox.Key) outbox.PushGroup {
	q := w.queues[name]
	q.last++
	for _, k := range keys {
		w.rows[k].status, w.rows[k].push = outbox.Queued, q.last
	}
	return w.push(name, q.last)
}

// push is one that is recorded.
func (w *truth) push(name outbox.Queue, number int64) outbox.PushGroup {
	q := w.queues[name]
	p := outbox.PushGroup{Queue: name, Epoch: epoch(q.epoch), First: q.first, Number: number}
	for k, r := range w.rows {
		if queueOf(k) == name && r.status == outbox.Queued && r.push == number {
			p.Keys, p.Lane = append(p.Keys, k), r.lane
		}
	}
	return p
}

func epoch(n int) string { return "0000000" + string(rune('0'+n)) + "-0000-0000-0000-000000000000" }

func queueOf(k outbox.Key) outbox.Queue {
	if k.JobID < 0 {
		return outbox.Activities
	}
	return outbox.Bulk
}

// dispatch is a dispatcher, as short as it can be.
func (w *truth) dispatch(_ testing.TB, to outbox.Carrier) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, name := range []outbox.Queue{outbox.Activities, outbox.Bulk} {
				w.step(ctx, to, name)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// step hands over what is recorded, takes back what is lost, and queues what is due.
func (w *truth) step(ctx context.Context, to outbox.Carrier, name outbox.Queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queues[name]
	in, err := to.Inside(ctx, name)
	if err != nil {
		return
	}
	if in.Epoch != epoch(q.epoch) && q.last >= q.first {
		q.epoch, q.first = q.epoch+1, q.last+1
		for k, r := range w.rows {
			if queueOf(k) == name && r.status == outbox.Queued {
				q.first = min(q.first, r.push)
			}
		}
		in = outbox.Inside{Last: q.first - 1}
	}
	if w.fault == "knows only the pushes of its own" {
		in.Last = q.last
	}
	for n := max(in.Last+1, q.first); n <= q.last; n++ {
		if answer, err := to.Push(ctx, w.push(name, n)); err != nil || answer != outbox.PushDone {
			return
		}
	}
	due := make(map[int64][]outbox.Key)
	for k, r := range w.rows {
		if queueOf(k) == name && r.status == outbox.Queued && in.Epoch == epoch(q.epoch) && r.push < in.Oldest && w.fault != "never sweeps" {
			r.status = outbox.Pending
		}
		if queueOf(k) == name && (r.status == outbox.Pending || r.status == outbox.Cancelled && w.fault == "claims without a condition") && !r.due.After(time.Now()) && (!w.held[k.JobID] || w.fault == "claims what is held") {
			due[max(k.JobID, 0)] = append(due[max(k.JobID, 0)], k)
		}
	}
	for _, keys := range due {
		for part := range slices.Chunk(keys, capacity/2) {
			if answer, err := to.Push(ctx, w.queue(name, part)); err != nil || answer != outbox.PushDone {
				return
			}
		}
	}
}

// carrier is one relay's, wrong in one way.
func (w *truth) carrier() outbox.Carrier {
	return &wrong{Carrier: w.memory.Carrier("r", w.claim), truth: w, pushed: make(map[int64]bool)}
}

type wrong struct {
	outbox.Carrier
	*truth
	pushing sync.Mutex
	pushed  map[int64]bool
	known   outbox.Inside
}

func (c *wrong) String() string { return "memory, which " + string(c.fault) }

func (c *wrong) Push(ctx context.Context, p outbox.PushGroup) (outbox.PushAnswer, error) {
	c.pushing.Lock()
	defer c.pushing.Unlock()
	again := c.pushed[p.Number]
	c.pushed[p.Number] = true
	switch {
	case c.fault == "queues in one queue":
		p.Queue = outbox.Bulk
	case again && c.fault == "never pushes again":
		return outbox.PushDone, nil
	case again && c.fault == "pushes twice", c.fault == "tells no gap":
		in, err := c.Carrier.Inside(ctx, p.Queue)
		if err != nil {
			return "", err
		}
		p.Epoch, p.First = in.Epoch+"x", p.Number
	case c.fault == "knows any epoch":
		if in, err := c.Carrier.Inside(ctx, p.Queue); err == nil && in.Epoch != "" {
			p.Epoch = in.Epoch
		}
	}
	answer, err := c.Carrier.Push(ctx, p)
	if answer == outbox.PushFull && c.fault == "counts what is full" {
		p.Keys = nil
		return c.Carrier.Push(ctx, p)
	}
	return answer, err
}

func (c *wrong) Inside(ctx context.Context, q outbox.Queue) (outbox.Inside, error) {
	c.pushing.Lock()
	defer c.pushing.Unlock()
	in, err := c.Carrier.Inside(ctx, q)
	if c.fault == "knows no oldest push" {
		in.Oldest = 0
	}
	if c.fault == "forgets and does not say so" && q == outbox.Bulk {
		if in.Epoch == "" && c.known.Epoch != "" {
			return c.known, err
		}
		c.known = in
	}
	return in, err
}

func (c *wrong) Settled(ctx context.Context, outcomes []outbox.Settled) error {
	outcomes = slices.Clone(outcomes)
	if c.fault == "forgets what is settled" {
		return nil
	}
	for i := range outcomes {
		if c.fault == "takes what is final" {
			outcomes[i].Status = outbox.Pending
		}
		if c.fault == "drops what was not recorded" && outcomes[i].Status == "" {
			outcomes[i].Status = outbox.Queued
		}
		if c.fault == "takes what is due later" {
			outcomes[i].Wait = 0
		}
	}
	return c.Carrier.Settled(ctx, outcomes)
}

func (c *wrong) Receive(ctx context.Context, credits outbox.Credits) ([]outbox.Claimed, error) {
	claimed, err := c.Carrier.Receive(ctx, &wrongCredits{Credits: credits, fault: c.fault})
	if len(claimed) > 0 && c.fault == "drops what it has at a stop" {
		<-ctx.Done() // it is slow
		return nil, ctx.Err()
	}
	return claimed, err
}

type wrongCredits struct {
	outbox.Credits
	fault fault
	looks int
}

func (c *wrongCredits) Activities() int {
	if c.looks++; c.looks > 1 && c.fault == "does not wake" {
		return 0
	}
	if n := c.Credits.Activities(); c.fault != "takes more than its credits" {
		return n
	}
	return 1000
}

func (c *wrongCredits) Bulk() int {
	if c.fault == "takes more than its credits" {
		return 1000
	}
	if c.looks > 1 && c.fault == "does not wake" {
		return 0
	}
	return c.Credits.Bulk()
}

func (c *wrongCredits) Job(id int64, lane string, lanes int) int {
	if c.fault == "does not ask for a job's credits" || c.fault == "takes more than its credits" {
		return 1000
	}
	return c.Credits.Job(id, lane, lanes)
}
