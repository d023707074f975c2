package redisstream

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

const (
	// readable is the maximum number of entries that one read returns.
	readable = outbox.MaxBatch
	// laneSeen is the time after the last read of a lane's entry for which the lane counts.
	laneSeen = 5 * time.Second
	// stopTimeout is the time for which Receive waits for unblocked reads. Keep waits for the rest.
	stopTimeout = 2 * time.Second
)

// Receive implements outbox.Transport. It reads the next batch during the claim of a batch, within the
// remaining credits.
func (c *carrier) Receive(ctx context.Context, credits outbox.Credits) ([]outbox.Claimed, error) {
	for ctx.Err() == nil {
		batch, room := c.fit(credits)
		c.startReads(room)
		if len(batch) > 0 {
			if claimed, err := c.claimed(batch); err != nil || len(claimed) > 0 {
				return claimed, err
			}
			continue
		}
		c.receives(true)
		select {
		case <-ctx.Done():
		case <-credits.Changed():
		case r := <-c.results:
			c.reading[r.place] = false
			if r.err != nil {
				c.receives(false)
				return nil, r.err
			}
		}
		c.receives(false)
	}
	c.stop()
	return nil, ctx.Err()
}

// receives records whether Receive waits.
func (c *carrier) receives(waits bool) {
	c.mu.Lock()
	c.waits = waits
	c.mu.Unlock()
}

// fit removes the held entries that have credits, activities first, and returns the number of entries
// that may be read from each queue.
func (c *carrier) fit(credits outbox.Credits) (batch []entry, room [2]int) {
	room = [2]int{credits.Activities(), credits.Bulk()}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.lanes, func(_ string, seen time.Time) bool { return time.Since(seen) > laneSeen })
	lanes := max(1, len(c.lanes))
	if _, some := c.lanes[""]; some && lanes > 1 {
		lanes-- // activities have no lane
	}
	jobs := make(map[int64]int)
	for place := range c.held {
		left, took := c.held[place][:0], 0
		for _, e := range c.held[place] {
			free, asked := jobs[e.JobID]
			if place == bulk && !asked {
				free = credits.Job(e.JobID, e.lane, lanes)
				if free > 0 {
					delete(c.starve, e.JobID)
				}
			}
			if took >= room[place] || place == bulk && free <= 0 || len(batch) == outbox.MaxBatch {
				jobs[e.JobID] = free
				left = append(left, e)
				continue
			}
			jobs[e.JobID] = free - 1
			took++
			batch = append(batch, e)
		}
		c.held[place] = left
		room[place] -= took + len(left)
		room[place] = min(room[place], readable-len(left))
	}
	return batch, room
}

// startReads starts a read of each queue that has no running read.
func (c *carrier) startReads(room [2]int) {
	for place, l := range c.lines {
		if c.reading[place] || room[place] <= 0 && !l.needsRecovery() {
			continue
		}
		c.reading[place] = true
		go func() { c.results <- result{place, c.read(place, max(1, room[place]))} }()
	}
}

// read holds the entries of a read.
func (c *carrier) read(place, n int) error {
	// The read continues after a stop of Receive, until its own deadline.
	ctx, cancel := context.WithTimeout(context.Background(), 2*c.pace.block+readTimeout)
	defer cancel()
	messages, own, err := c.lines[place].read(ctx, n)
	if c.outage.Observe(err) != nil {
		return err
	}
	return c.arrived(ctx, place, messages, own)
}

// claimed claims a batch and applies the verdict to each entry. After an error the entries are held
// again.
func (c *carrier) claimed(batch []entry) ([]outbox.Claimed, error) {
	copies := make([]outbox.Copy, len(batch))
	for i := range batch {
		copies[i] = batch[i].Copy
	}
	answers, err := c.claim(copies)
	c.mu.Lock()
	if err != nil {
		for i, e := range batch {
			e.since = time.Now()
			place := queueOf(e.Key)
			c.held[place] = slices.Insert(c.held[place], min(i, len(c.held[place])), e)
		}
		c.mu.Unlock()
		return nil, err
	}
	claimed := make([]outbox.Claimed, 0, len(batch))
	var steps [2]step
	for i, e := range batch {
		s, a := &steps[queueOf(e.Key)], &answers[i]
		switch a.Verdict {
		case outbox.CopyClaimed:
			if other, twice := c.inFlight[e.Key]; twice { // a claim of this worker that has expired
				s.drop(other)
			}
			c.inFlight[e.Key] = e
			claimed = append(claimed, a.Claimed)
		case outbox.CopyLater:
			s.wait(e, a.Wait)
		case outbox.CopyFinished:
			if a.Dead && c.crashed[e.id] {
				s.bury(e)
			} else {
				s.drop(e)
			}
		case outbox.CopyAnother, outbox.CopyHeld, outbox.CopyNotQueued:
			s.drop(e)
		}
		delete(c.crashed, e.id)
	}
	c.mu.Unlock()
	c.apply(&steps)
	return claimed, nil
}

// apply settles entries of both queues. Failed ones are claimed again; the outage logs the failure.
func (c *carrier) apply(steps *[2]step) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	for place := range steps {
		_ = c.settle(ctx, place, &steps[place])
	}
}

// stop ends the running reads and puts back the held entries.
func (c *carrier) stop() {
	for place, l := range c.lines {
		if c.reading[place] {
			l.unblock()
		}
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	for late := false; !late && (c.reading[activities] || c.reading[bulk]); {
		select {
		case r := <-c.results:
			c.reading[r.place] = false // the next Receive retries after an error
		case <-timer.C:
			late = true
		}
	}
	c.putBack(true)
}
