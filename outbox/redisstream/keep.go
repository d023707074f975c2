package redisstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// readTimeout is the timeout of a call.
	readTimeout = 10 * time.Second
	// movable is the maximum number of copies that one script moves.
	movable = 1000
	// movePause is the maximum pause of a mover, because another worker's copy may be due earlier.
	movePause = time.Second
)

// Keep implements outbox.Carrier.
func (c *carrier) Keep(ctx context.Context) {
	var ends sync.WaitGroup
	for place := range c.queues {
		ends.Go(func() { c.moveAll(ctx, place) })
		ends.Go(func() { c.maintain(ctx, place) })
	}
	ends.Go(func() { c.returnHeld(ctx) })
	ends.Wait()
	c.leave()
}

// moveAll moves due copies of every worker until ctx ends.
func (c *carrier) moveAll(ctx context.Context, place int) {
	failures := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-c.movers[place]:
		}
		next, err := c.move(ctx, place)
		if err != nil {
			failures++
			next = min(50*time.Millisecond<<min(failures, 5), movePause)
		} else {
			failures = 0
		}
		timer.Reset(next)
	}
}

// move moves a batch and returns the time of the next move.
func (c *carrier) move(ctx context.Context, place int) (time.Duration, error) {
	q := c.queues[place]
	answer, err := c.run(ctx, c.scripts.move, []string{q.stream, q.waiting, q.returned}, movable)
	if ctx.Err() == nil && c.outage.Observe(err) != nil {
		return 0, fmt.Errorf("move due copies of the queue %s: %w", q.name, err)
	}
	next, _ := answer.(int64)
	if next < 0 {
		return movePause, nil
	}
	return min(time.Duration(next)*time.Millisecond, movePause), nil
}

// maintain sends the heartbeat, trims, and takes over idle entries until ctx ends.
func (c *carrier) maintain(ctx context.Context, place int) {
	tick := time.NewTicker(c.pace.tick)
	defer tick.Stop()
	for ctx.Err() == nil {
		alive, err := c.heartbeat(ctx, place, c.consumer)
		if err == nil {
			_, err = c.inside(ctx, c.queues[place])
		}
		if err == nil {
			_, err = c.reclaim(ctx, place, alive)
		}
		if ctx.Err() == nil {
			_ = c.outage.Observe(err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// heartbeat sends a consumer's heartbeat and returns the live consumers.
func (b *Broker) heartbeat(ctx context.Context, place int, consumer string) (alive []string, err error) {
	q := b.queues[place]
	answer, err := b.run(ctx, b.scripts.heartbeat, []string{q.stream, q.consumers}, group, consumer, b.pace.alive.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("send the heartbeat of the queue %s: %w", q.name, err)
	}
	list, _ := answer.([]any)
	for _, v := range list {
		if name, is := v.(string); is {
			alive = append(alive, name)
		}
	}
	return alive, nil
}

// reclaim takes over the idle entries whose assignee is this consumer, and returns their number. The
// next read returns them as own pending entries.
func (c *carrier) reclaim(ctx context.Context, place int, alive []string) (int, error) {
	q, l, got := c.queues[place], c.lines[place], 0
	if !slices.Contains(alive, c.consumer) {
		return 0, nil
	}
	defer func() {
		if got > 0 {
			l.requestRecovery()
		}
	}()
	for from, n := "-", 0; ctx.Err() == nil && n < reclaimable; n += reclaimPage {
		list, err := c.db.Do.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: q.stream, Group: group, Idle: c.pace.idle, Start: from, End: "+", Count: reclaimPage,
		}).Result()
		if noGroup(err) || errors.Is(err, redis.Nil) {
			return got, nil // the next read creates it
		}
		if err != nil {
			return got, fmt.Errorf("list idle entries of the queue %s: %w", q.name, err)
		}
		args := []any{group, c.consumer, c.pace.idle.Milliseconds()}
		for _, p := range list {
			if assignee(p.ID, p.RetryCount, alive) != c.consumer {
				continue
			}
			args = append(args, p.ID, p.RetryCount)
			if p.RetryCount >= suspicious {
				c.mu.Lock()
				c.crashed[p.ID] = true
				c.mu.Unlock()
			}
		}
		if len(args) > 3 {
			answer, err := c.run(ctx, c.scripts.reclaim, []string{q.stream, q.returned}, args...)
			if err != nil {
				l.requestRecovery()
				return got, fmt.Errorf("take over idle entries of the queue %s: %w", q.name, err)
			}
			took, _ := answer.(int64)
			got += int(took)
		}
		if len(list) < reclaimPage {
			break
		}
		from = "(" + list[len(list)-1].ID
	}
	return got, nil
}

// leave puts back entries that this worker has not claimed, and unregisters it. Another worker takes
// over claimed entries once they have been idle for long enough.
func (c *carrier) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*readTimeout)
	defer cancel()
	for place, l := range c.lines {
		if c.reading[place] {
			l.unblock()
		}
	}
	for c.reading[activities] || c.reading[bulk] {
		r := <-c.results // a read has a deadline
		c.reading[r.place] = false
	}
	for place, l := range c.lines {
		l.requestRecovery()
		for !c.outage.Lasts() && l.needsRecovery() {
			messages, own, err := l.read(ctx, 1)
			if err != nil || c.arrived(ctx, place, messages, own) != nil {
				break
			}
			c.putBack(true)
		}
	}
	c.putBack(true)
	for place, q := range c.queues {
		if !c.outage.Lasts() {
			_, err := c.run(ctx, c.scripts.leave, []string{q.stream, q.consumers}, group, c.consumer)
			_ = c.outage.Observe(err)
		}
		c.lines[place].close()
	}
}
