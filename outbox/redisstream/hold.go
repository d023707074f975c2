package redisstream

import (
	"context"
	"time"
)

// Entries without credits wait for 100 ms, plus half a millisecond for each copy of their job that was
// put back before, up to five seconds: two thousand come back per second.
const (
	starveLeast = 100 * time.Millisecond
	starveEach  = 500 * time.Microsecond
	starveMost  = 5 * time.Second
	starveJobs  = 10_000 // of so many jobs it is known
)

// idleHold is how long an entry is held while Receive is not called.
const idleHold = time.Second

// holdBack puts back entries that are held for too long, until ctx ends.
func (c *carrier) holdBack(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-c.holding:
		}
		timer.Reset(c.putBack(false))
	}
}

// putBack returns entries to waiting: those held for too long, or all of them, due now. It reports
// whether there are more.
func (c *carrier) putBack(all bool) (next time.Duration) {
	next = time.Hour
	var steps [2]step
	c.mu.Lock()
	limit := idleHold
	if c.waits {
		limit = c.pace.hold
	}
	if len(c.starve) > starveJobs {
		clear(c.starve)
	}
	for place := range c.held {
		left := c.held[place][:0]
		for _, e := range c.held[place] {
			switch held := time.Since(e.since); {
			case all:
				steps[place].wait(e, 0)
			case held < limit:
				next = min(next, max(limit-held, c.pace.hold))
				left = append(left, e)
			default:
				steps[place].wait(e, min(starveMost, starveLeast+time.Duration(c.starve[e.JobID])*starveEach))
				c.starve[e.JobID]++
			}
		}
		c.held[place] = left
	}
	c.mu.Unlock()
	c.apply(&steps)
	return next
}
