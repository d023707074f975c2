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
)

const (
	// backPerSecond is the approximate rate of returned copies of a job without credits.
	backPerSecond = 2000
	backLeast     = 100 * time.Millisecond
	backMost      = 5 * time.Second
	backJobs      = 1000
)

// intervals are the timings of pulls. Tests shorten them.
type intervals struct {
	pull      time.Duration // timeout of a pull
	heartbeat time.Duration // between heartbeats of the server during a pull; two missing ones end it
	silent    time.Duration // time without a copy, although copies are ready, after which the consumer is opened again
}

// pull waits for the first copy of a queue. It requests a single copy, so that at most one must be returned.
type pull struct {
	c    *carrier
	line *line

	mu       sync.Mutex
	waiting  bool
	first    natsjs.Msg // received and not taken, or nil
	err      error
	received time.Time // time of the last copy, or of the first wait
	silent   bool      // no copy arrives although copies are ready, and this was logged
}

// taken is a received copy.
type taken struct {
	item
	message natsjs.Msg
	line    *line
}

// Receive implements outbox.Transport.
func (c *carrier) Receive(ctx context.Context, credits outbox.Credits) ([]outbox.Claimed, error) {
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

// take takes as many copies as credits permit, activities first, and starts a pull for an empty queue. A stop
// does not cancel it.
func (c *carrier) take(credits outbox.Credits) (out []taken, err error) {
	rooms := map[outbox.Queue]int{outbox.Activities: credits.Activities(), outbox.Bulk: credits.Bulk()}
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
				c.b.options.Log.Error().Err(bad).Str("transport", name).Str("detail", p.line.stream).Msg("dropped an invalid copy")
				err = errors.Join(err, p.line.drop(m, m.Term))
				continue
			}
			out = append(out, taken{i, m, p.line})
		}
	}
	return out, err
}

// take returns up to room available copies, or starts to wait for one.
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
		return messages, p.c.b.outage.Observe(fmt.Errorf("take from stream %s: %w", p.line.stream, err))
	}
	if waiting || len(messages) == room {
		return messages, nil // the running pull has found no copies
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
		return messages, p.c.b.outage.Observe(fmt.Errorf("take from stream %s: %w", p.line.stream, err))
	}
	if len(messages) == 0 {
		p.wait(to)
		return nil, nil
	}
	p.arrived()
	return messages, nil
}

// arrived records that copies arrive.
func (p *pull) arrived() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.received, p.silent = time.Now(), false
	_ = p.c.b.outage.Observe(nil)
}

// wait starts to wait for a copy.
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

// next waits for one copy. It returns nil if none arrived.
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
	return nil, nil //nolint:nilnil // no copy arrived
}

// watch logs once if copies are ready and none arrives; the consumer is then opened again.
func (p *pull) watch(to *opened) error {
	p.mu.Lock()
	since, logged := p.received, p.silent
	p.mu.Unlock()
	if time.Since(since) < p.c.b.pace.silent || p.c.life.Err() != nil {
		return nil
	}
	ctx, cancel := p.c.b.withTimeout(p.c.life)
	defer cancel()
	info, err := to.consumer.Info(ctx)
	if err != nil {
		return err
	}
	if info.NumPending == 0 || info.NumAckPending >= info.Config.MaxAckPending {
		return nil
	}
	p.line.forget()
	if !logged {
		p.c.b.options.Log.Warn().Str("worker_id", p.c.worker).Str("transport", name).Str("detail", p.line.stream).Uint64("rows",
			info.NumPending).Msg("copies are ready but none arrives; opening the consumer again")
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

// giveBack returns an unwanted copy to the queue.
func (p *pull) giveBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first != nil {
		_ = p.first.NakWithDelay(time.Millisecond) // after an error it is delivered after the lease
		p.first = nil
	}
}

// claimAll claims the taken copies that have credits, and applies the verdict to each. After an error
// the copies are returned.
func (c *carrier) claimAll(out []taken, credits outbox.Credits) (claimed []outbox.Claimed, err error) {
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
			_ = t.message.Nak() // after an error it is delivered after the lease
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
			if a.Wait <= maxDelay {
				_ = t.message.NakWithDelay(a.Wait) // after an error it is delivered after the lease
				continue
			}
			_ = t.line.drop(t.message, t.message.Ack)
		case outbox.CopyFinished, outbox.CopyAnother, outbox.CopyHeld, outbox.CopyNotQueued:
			_ = t.line.drop(t.message, t.message.Ack)
		}
	}
	return claimed, nil
}

// credited returns the copies that their jobs' senders take, and returns the other copies to the queue,
// for longer the more there are.
func (c *carrier) credited(out []taken, credits outbox.Credits) []taken {
	lanes, room := make(map[string]bool), make(map[int64]int)
	for _, t := range out {
		if t.line.queue == outbox.Bulk {
			lanes[t.lane] = true
		}
	}
	take := out[:0:0]
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range out {
		if t.line.queue != outbox.Bulk {
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
		_ = t.message.NakWithDelay(min(max(time.Duration(c.back[t.JobID])*time.Second/backPerSecond, backLeast),
			backMost)) // after an error it is delivered after the lease
	}
	if len(c.back) > backJobs { // most of them are finished jobs
		clear(c.back)
	}
	return take
}

// answerCalls subscribes this worker to roll calls. It returns nil if it is not connected.
func (c *carrier) answerCalls() *nats.Subscription {
	conn, err := c.b.connection()
	if err != nil {
		return nil
	}
	sub, err := conn.Subscribe(c.b.callSubject(), func(m *nats.Msg) {
		p := presence{Name: c.worker, Taken: make(map[outbox.Queue]int64)}
		c.mu.Lock()
		for _, h := range c.held {
			p.Taken[h.queue]++
		}
		c.mu.Unlock()
		if data, err := json.Marshal(p); err == nil {
			_ = m.Respond(data) // the caller repeats the call
		}
	})
	if err != nil {
		return nil
	}
	return sub
}
