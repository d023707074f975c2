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
	starveJobs  = 10_000 // maximum number of jobs in carrier.starve
)

// idleHold is the maximum time that an entry is held while Receive is not called.
const idleHold = time.Second

// returnHeld puts back entries that are held for too long, until ctx ends.
func (c *carrier) returnHeld(ctx context.Context) {
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

// putBack returns entries to waiting: those held for too long, or all of them, due now. It returns the
// time until the next call.
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
