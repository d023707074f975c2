package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/relay"
)

const (
	// backPerSecond is how many copies of a job without credits come up in a second, about.
	backPerSecond = 2000
	backLeast     = 100 * time.Millisecond
	backMost      = 5 * time.Second
	backJobs      = 1000
)

// pace is how long a pull waits.
type pace struct {
	pull      time.Duration // for a first copy
	heartbeat time.Duration // the server says meanwhile that it has none; without two of them the pull is made anew
	silent    time.Duration // how long copies may be ready of which none comes
}

// pull waits for the first copy of a queue: one, so that what nobody asks for any more is one.
type pull struct {
	c    *carrier
	line *line

	mu       sync.Mutex
	waiting  bool
	first    natsjs.Msg // that came; nil: none
	err      error
	received time.Time // when a copy came last, or it began to wait for one
	silent   bool      // and none does though there are; it was said
}

// taken is a copy that was taken out.
type taken struct {
	item
	message natsjs.Msg
	line    *line
}

// Receive implements relay.Transport.
func (c *carrier) Receive(ctx context.Context, credits relay.Credits) ([]outbox.Claimed, error) {
	for ctx.Err() == nil {
		out, err := c.take(credits)
		if len(out) > 0 {
			claimed, failed := c.claimAll(out, credits)
			if err = errors.Join(err, failed); err != nil || len(claimed) > 0 {
				return claimed, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
		case <-credits.Changed():
		case <-c.soon:
		}
	}
	return nil, ctx.Err()
}

// take takes out no more than credits grant, activities first, and leaves a pull where there is
// nothing now. No stop cuts it short.
func (c *carrier) take(credits relay.Credits) (out []taken, err error) {
	rooms := map[relay.Queue]int{relay.Activities: credits.Activities(), relay.Bulk: credits.Bulk()}
	for _, q := range queues() {
		p, room := c.pulls[q], min(rooms[q], outbox.MaxBatch-len(out))
		if room <= 0 {
			p.giveBack()
			continue
		}
		messages, failed := p.take(room)
		err = errors.Join(err, failed)
		for _, m := range messages {
			i, bad := decodeItem(m.Data())
			if bad != nil {
				c.b.options.Log.Error().Err(bad).Str("transport", name).Str("detail", p.line.stream).Msg("a copy is dropped")
				err = errors.Join(err, p.line.drop(m, m.Term))
				continue
			}
			out = append(out, taken{i, m, p.line})
		}
	}
	return out, err
}

// take returns up to room copies that are there, or begins to wait for one.
func (p *pull) take(room int) (messages []natsjs.Msg, err error) {
	p.mu.Lock()
	first, waiting := p.first, p.waiting
	p.first, err, p.err = nil, p.err, nil
	p.mu.Unlock()
	if first != nil {
		messages = append(messages, first)
	}
	if err != nil {
		p.line.forget()
		return messages, p.c.b.outage.Tried(fmt.Errorf("take from stream %s: %w", p.line.stream, err))
	}
	if waiting || len(messages) == room {
		return messages, nil // what waits has found none
	}
	to, err := p.line.open(p.c.life)
	if err != nil {
		return messages, err
	}
	batch, err := to.consumer.FetchNoWait(room - len(messages))
	if err == nil {
		for m := range batch.Messages() {
			messages = append(messages, m)
		}
		err = batch.Error()
	}
	if err != nil && !errors.Is(err, nats.ErrTimeout) {
		p.line.forget()
		return messages, p.c.b.outage.Tried(fmt.Errorf("take from stream %s: %w", p.line.stream, err))
	}
	if len(messages) == 0 {
		p.wait(to)
		return nil, nil
	}
	p.heard()
	return messages, nil
}

// heard records that copies arrive.
func (p *pull) heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.received, p.silent = time.Now(), false
	_ = p.c.b.outage.Tried(nil)
}

// wait begins to wait for a copy.
func (p *pull) wait(to *opened) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = true
	if p.received.IsZero() {
		p.received = time.Now()
	}
	go func() {
		ctx, cancel := context.WithTimeout(p.c.life, p.c.b.pace.pull)
		defer cancel()
		m, err := next(ctx, to.consumer, p.c.b.pace.heartbeat)
		if err == nil && m == nil {
			err = p.watch(to)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waiting, p.first, p.err = false, m, err
		if m != nil {
			p.received, p.silent = time.Now(), false
			time.AfterFunc(strayFor, func() { p.stray(m) })
		}
		p.c.wake()
	}()
}

// next waits for one copy; nil: there was none.
func next(ctx context.Context, from natsjs.Consumer, heartbeat time.Duration) (natsjs.Msg, error) {
	batch, err := from.Fetch(1, natsjs.FetchContext(ctx), natsjs.FetchHeartbeat(heartbeat))
	if err != nil {
		return nil, err
	}
	for m := range batch.Messages() {
		return m, nil
	}
	if err := batch.Error(); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return nil, err
	}
	return nil, nil //nolint:nilnil // there was none
}

// watch logs once if copies are ready and none arrives; the consumer is then opened again.
func (p *pull) watch(to *opened) error {
	p.mu.Lock()
	since, said := p.received, p.silent
	p.mu.Unlock()
	if time.Since(since) < p.c.b.pace.silent || p.c.life.Err() != nil {
		return nil
	}
	ctx, cancel := p.c.b.within(p.c.life)
	defer cancel()
	info, err := to.consumer.Info(ctx)
	if err != nil {
		return err
	}
	if info.NumPending == 0 || info.NumAckPending >= info.Config.MaxAckPending {
		return nil
	}
	p.line.forget()
	if !said {
		p.c.b.options.Log.Warn().Str("worker_id", p.c.worker).Str("transport", name).Str("detail", p.line.stream).Uint64("rows", info.NumPending).Msg("copies are ready and none comes; the subscription is made anew")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
	return nil
}

// stray gives back a copy that no Receive has taken.
func (p *pull) stray(m natsjs.Msg) {
	p.mu.Lock()
	mine := p.first == m
	p.mu.Unlock()
	if mine {
		p.giveBack()
	}
}

// giveBack returns unwanted copies to the queue.
func (p *pull) giveBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first != nil {
		_ = p.first.NakWithDelay(time.Millisecond) // or it comes again by itself
		p.first = nil
	}
}

// claimAll claims the taken copies that have credits, and applies the verdict to each. After an error
// the copies are returned.
func (c *carrier) claimAll(out []taken, credits relay.Credits) (claimed []outbox.Claimed, err error) {
	if out = c.credited(out, credits); len(out) == 0 {
		return nil, nil
	}
	copies := make([]outbox.Copy, len(out))
	for i, t := range out {
		copies[i] = t.Copy
	}
	answers, err := c.claim(copies)
	if err != nil {
		for _, t := range out {
			_ = t.message.Nak() // or it comes again by itself
		}
		return nil, err
	}
	c.mu.Lock()
	for i, t := range out {
		if answers[i].Verdict == outbox.CopyClaimed {
			claimed = append(claimed, answers[i].Claimed)
			c.held[t.Key] = held{t.message, t.line.queue}
		}
	}
	c.mu.Unlock()
	for i, t := range out {
		switch a := answers[i]; a.Verdict {
		case outbox.CopyClaimed:
		case outbox.CopyLater:
			if a.Wait <= keptFor {
				_ = t.message.NakWithDelay(a.Wait) // or it comes again by itself
				continue
			}
			_ = t.line.drop(t.message, t.message.Ack)
		case outbox.CopyFinished, outbox.CopyAnother, outbox.CopyHeld, outbox.CopyNotQueued:
			_ = t.line.drop(t.message, t.message.Ack) // as well
		}
	}
	return claimed, nil
}

// credited returns the copies that their jobs' senders take, and returns the other copies to the queue,
// for longer the more there are.
func (c *carrier) credited(out []taken, credits relay.Credits) []taken {
	lanes, room := make(map[string]bool), make(map[int64]int)
	for _, t := range out {
		if t.line.queue == relay.Bulk {
			lanes[t.lane] = true
		}
	}
	take := out[:0:0]
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range out {
		if t.line.queue != relay.Bulk {
			take = append(take, t)
			continue
		}
		if _, asked := room[t.JobID]; !asked {
			if room[t.JobID] = credits.Job(t.JobID, t.lane, len(lanes)); room[t.JobID] > 0 {
				delete(c.back, t.JobID)
			}
		}
		if room[t.JobID] > 0 {
			room[t.JobID]--
			take = append(take, t)
			continue
		}
		c.back[t.JobID]++
		_ = t.message.NakWithDelay(min(max(time.Duration(c.back[t.JobID])*time.Second/backPerSecond, backLeast), backMost)) // or it comes again by itself
	}
	if len(c.back) > backJobs { // of most of them nothing has come for long
		clear(c.back)
	}
	return take
}

// answerCalls has this worker answer who asks for those that live. nil: not yet.
func (c *carrier) answerCalls() interface{ Unsubscribe() error } {
	conn, err := c.b.connection()
	if err != nil {
		return nil
	}
	sub, err := conn.Subscribe(c.b.callSubject(), func(m *nats.Msg) {
		p := presence{Name: c.worker, Taken: make(map[relay.Queue]int64)}
		c.mu.Lock()
		for _, h := range c.held {
			p.Taken[h.queue]++
		}
		c.mu.Unlock()
		if data, err := json.Marshal(p); err == nil {
			_ = m.Respond(data) // who asked asks again
		}
	})
	if err != nil {
		return nil
	}
	return sub
}
