package redisstream

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfryhq/belfry/internal/redisdb"
	"github.com/belfryhq/belfry/outbox"
)

const (
	// name is the transport's name in the configuration and the log.
	name = "redisstream"
	// settleBatch is the maximum number of entries that one script settles; Lua's unpack is limited.
	settleBatch = 1000
)

// carrier connects one relay to the streams for one run.
type carrier struct {
	*Broker
	consumer string
	claim    outbox.Claim
	lines    [2]*line
	movers   [2]chan struct{} // size 1; signals a new waiting copy
	results  chan result      // of running reads, at most one per line
	holding  chan struct{}    // size 1; signals held entries

	// reading is used by Receive, and by Keep after the last Receive.
	reading [2]bool

	mu       sync.Mutex
	waits    bool                 // Receive waits for credits or entries
	held     [2][]entry           // read and not claimed
	inFlight map[outbox.Key]entry // claimed and not settled
	crashed  map[string]bool      // ids of unclaimed entries that were delivered often
	starve   map[int64]int        // by job: copies put back since the job last had credits
	lanes    map[string]time.Time // last read of an entry of the lane
}

// result is the result of a finished read.
type result struct {
	place int // index of the queue
	err   error
}

// Carrier implements outbox.Broker.
func (b *Broker) Carrier(worker string, claim outbox.Claim) outbox.Carrier {
	c := &carrier{
		Broker: b, consumer: worker, claim: claim, results: make(chan result, 2), holding: make(chan struct{}, 1),
		inFlight: make(map[outbox.Key]entry), crashed: make(map[string]bool), starve: make(map[int64]int), lanes: make(map[string]time.Time),
	}
	for i, q := range b.queues {
		c.lines[i], c.movers[i] = newLine(b, q, worker), make(chan struct{}, 1)
	}
	return c
}

// String implements outbox.Transport.
func (*carrier) String() string { return name }

// Push implements outbox.Carrier.
func (c *carrier) Push(ctx context.Context, p outbox.PushGroup) (outbox.PushAnswer, error) {
	q := c.queues[placeOf(p.Queue)]
	args := make([]any, 0, 6+len(p.Keys))
	args = append(args, group, p.Epoch, p.First, p.Number, c.options.MaxQueued, memoryShare)
	for _, k := range p.Keys {
		args = append(args, text(k, p.Number, p.Lane))
	}
	answer, err := c.run(ctx, c.scripts.push, []string{q.stream, q.state, q.waiting}, args...)
	if redisdb.Full(err) {
		return outbox.PushFull, nil
	}
	if c.outage.Observe(err) != nil {
		return "", fmt.Errorf("push %d of the queue %s: %w", p.Number, p.Queue, err)
	}
	switch answer {
	case "done":
		return outbox.PushDone, nil
	case "gap":
		return outbox.PushGap, nil
	case "full":
		return outbox.PushFull, nil
	}
	return "", fmt.Errorf("push %d of the queue %s: unexpected reply %v", p.Number, p.Queue, answer)
}

// Inside implements outbox.Carrier.
func (c *carrier) Inside(ctx context.Context, name outbox.Queue) (outbox.Inside, error) {
	in, err := c.inside(ctx, c.queues[placeOf(name)])
	return in, c.outage.Observe(err)
}

// Settled implements outbox.Transport. While the server is unreachable nothing is lost or logged: the
// entries stay pending, and this worker claims them again and learns that they are settled.
func (c *carrier) Settled(ctx context.Context, outcomes []outbox.Settled) error {
	var steps [2]step
	c.mu.Lock()
	for i := range outcomes {
		o := &outcomes[i]
		e, known := c.inFlight[o.Key]
		if !known {
			continue
		}
		delete(c.inFlight, o.Key)
		s := &steps[queueOf(o.Key)]
		switch o.Status {
		case "", outbox.Pending:
			s.wait(e, o.Wait)
		case outbox.Dead:
			s.bury(e)
		case outbox.Sent, outbox.Cancelled, outbox.Queued, outbox.Processing:
			s.drop(e)
		}
	}
	c.mu.Unlock()
	for place := range steps {
		if err := c.settle(ctx, place, &steps[place]); err != nil && !redisdb.Away(err) {
			return err
		}
	}
	return nil
}

// step collects the changes to the entries of one queue.
type step struct {
	ids   []string
	waits []delayed
	dead  []string
}

// delayed is a copy that returns to the stream after wait.
type delayed struct {
	text string
	push int64
	wait time.Duration
}

func (s *step) drop(e entry) { s.ids = append(s.ids, e.id) }

func (s *step) wait(e entry, wait time.Duration) {
	s.drop(e)
	s.waits = append(s.waits, delayed{e.text, e.Push, wait})
}

func (s *step) bury(e entry) {
	s.drop(e)
	s.dead = append(s.dead, e.text)
}

// settle executes a step. After an error its result is unknown: pending entries are claimed again.
func (c *carrier) settle(ctx context.Context, place int, s *step) error {
	if len(s.ids) == 0 {
		return nil
	}
	q := c.queues[place]
	keys := []string{q.stream, q.waiting, q.returned, q.dead}
	var dead, waits = s.dead, s.waits
	for ids := range slices.Chunk(s.ids, settleBatch) {
		now, later := dead[:min(len(dead), settleBatch)], waits[:min(len(waits), settleBatch)]
		dead, waits = dead[len(now):], waits[len(later):] // each has an id, so the last batch of ids is the last of these
		args := make([]any, 0, 4+len(ids)+3*len(later)+len(now))
		args = append(args, group, maxDead, len(ids), len(later))
		for _, id := range ids {
			args = append(args, id)
		}
		for _, w := range later {
			// Rounded up to a millisecond, so that the copy is not due too early.
			args = append(args, w.text, w.push, (w.wait + time.Millisecond - 1).Milliseconds())
		}
		for _, text := range now {
			args = append(args, text)
		}
		if _, err := c.run(ctx, c.scripts.settle, keys, args...); err != nil {
			c.lines[place].requestRecovery()
			return fmt.Errorf("settle entries of the queue %s: %w", q.name, c.outage.Observe(err))
		}
	}
	_ = c.outage.Observe(nil)
	if len(s.waits) > 0 {
		wake(c.movers[place])
	}
	return nil
}

// wake fills a channel of size 1.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// known returns the ids of a queue's entries that this worker has in memory.
func (c *carrier) known(place int) map[string]bool {
	ids := make(map[string]bool, len(c.inFlight)+len(c.held[place]))
	for k, e := range c.inFlight {
		if queueOf(k) == place {
			ids[e.id] = true
		}
	}
	for _, e := range c.held[place] {
		ids[e.id] = true
	}
	return ids
}

// arrived holds the entries of a read, except known ones, and drops entries that are not copies.
func (c *carrier) arrived(ctx context.Context, place int, messages []redis.XMessage, own bool) error {
	now := time.Now()
	var gone step
	c.mu.Lock()
	var ids map[string]bool
	if own {
		ids = c.known(place)
	}
	for _, m := range messages {
		e, whole := read(m, now)
		switch {
		case ids[m.ID]:
		case !whole: // the entry was deleted; the dispatcher pushes its message again
			gone.drop(e)
		default:
			c.held[place] = append(c.held[place], e)
			c.lanes[e.lane] = now
		}
	}
	some := len(c.held[place]) > 0
	c.mu.Unlock()
	if some {
		wake(c.holding)
	}
	return c.settle(ctx, place, &gone)
}
