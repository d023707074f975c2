package jetstream

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/outbox"
)

const (
	// maxDelay is the maximum time that a copy waits in the stream until its message is due. Copies that
	// are due later leave the stream, and the dispatcher pushes them again.
	maxDelay = time.Minute
	// strayFor is the time after which a copy that no Receive has taken is returned.
	strayFor = 100 * time.Millisecond
)

// carrier connects one relay to a broker.
type carrier struct {
	b      *Broker
	worker string
	claim  outbox.Claim
	life   context.Context //nolint:containedctx // ends with Keep: pulls outlast the Receive that makes them
	end    context.CancelFunc
	pulls  map[outbox.Queue]*pull
	soon   chan struct{} // size 1; signals the result of a pull

	mu   sync.Mutex
	held map[outbox.Key]held // claimed and not settled
	back map[int64]int       // by job: copies returned since the job last had credit
}

// held is a copy whose message is in flight.
type held struct {
	message natsjs.Msg
	queue   outbox.Queue
}

//nolint:revive // the carrier's own context
func newCarrier(b *Broker, worker string, claim outbox.Claim, life context.Context, end context.CancelFunc) *carrier {
	c := &carrier{
		b: b, worker: worker, claim: claim, life: life, end: end, pulls: make(map[outbox.Queue]*pull),
		soon: make(chan struct{}, 1), held: make(map[outbox.Key]held), back: make(map[int64]int),
	}
	for _, q := range queues() {
		c.pulls[q] = &pull{c: c, line: b.lines[q]}
	}
	return c
}

// String implements outbox.Transport.
func (*carrier) String() string { return name }

// wake makes Receive check the results of its pulls.
func (c *carrier) wake() {
	select {
	case c.soon <- struct{}{}:
	default:
	}
}

// Settled implements outbox.Transport. After a lost acknowledgement the copy is delivered again, and its
// claim finds the message finished.
func (c *carrier) Settled(_ context.Context, outcomes []outbox.Settled) error {
	c.mu.Lock()
	list := make(map[outbox.Key]held, len(outcomes))
	for _, s := range outcomes {
		if h, ok := c.held[s.Key]; ok {
			list[s.Key] = h
			delete(c.held, s.Key)
		}
	}
	c.mu.Unlock()
	var failed error
	for _, s := range outcomes {
		h, ok := list[s.Key]
		if !ok {
			continue
		}
		delete(list, s.Key)
		var err error
		switch line := c.b.lines[h.queue]; {
		case s.Status == "", s.Status == outbox.Pending && s.Wait <= maxDelay:
			err = h.message.NakWithDelay(max(s.Wait, time.Millisecond))
		case s.Status == outbox.Dead: // PostgreSQL has the dead letter
			err = line.drop(h.message, h.message.Term)
		default:
			err = line.drop(h.message, h.message.Ack)
		}
		if err != nil {
			failed = err
		}
	}
	return failed
}

// drop removes a copy and stores its reply subject for settled.
func (l *line) drop(m natsjs.Msg, by func() error) error {
	if err := by(); err != nil {
		return err
	}
	l.acked.Lock()
	defer l.acked.Unlock()
	l.last = m.Reply()
	return nil
}

// Keep implements outbox.Carrier: it renews the claimed copies and answers roll calls. At the end it
// returns copies that are claimed and not settled.
func (c *carrier) Keep(ctx context.Context) {
	defer c.end()
	var roll *nats.Subscription
	tick := time.NewTicker(c.b.options.Lease / 3)
	defer tick.Stop()
	for {
		if roll == nil || !roll.IsValid() { // its connection was closed
			roll = c.answerCalls()
		}
		select {
		case <-ctx.Done():
			if roll != nil {
				_ = roll.Unsubscribe() // or the connection is gone
			}
			c.release()
			return
		case <-tick.C:
		}
		c.mu.Lock()
		for _, h := range c.held {
			_ = h.message.InProgress() // after an error it is delivered again, and the claim decides
		}
		c.mu.Unlock()
	}
}

// release returns all copies that are not settled.
func (c *carrier) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, h := range c.held {
		_ = h.message.Nak() // after an error it is delivered after the lease
		delete(c.held, key)
	}
	for _, p := range c.pulls {
		p.giveBack()
	}
}
