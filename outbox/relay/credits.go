package relay

import (
	"maps"
	"sync"
	"time"

	"github.com/belfryhq/belfry/outbox"
)

const (
	// probeAfter is how long the known destinations of a job limit it: its next messages may be for
	// another sender.
	probeAfter = 5 * time.Second
	// forgetAfter is how long the destinations of a job without claims are remembered.
	forgetAfter = time.Minute
)

// credits are the free slots of the senders' queues, minus claimed messages that are not enqueued yet.
// Only composing knows a message's sender. So a job spends the credits of the queues that received a
// tenth or more of its last claim. One batch is claimed of a job without known queues, and a tenth of a
// batch every five seconds of a job whose queues have no credit.
type credits struct {
	relay *Relay

	mu        sync.Mutex
	spent     []int // by queue
	jobs      map[int64]*destination
	forgotten time.Time // when old entries were last removed
}

// destination describes the queues of a job's messages.
type destination struct {
	underway int       // messages that are claimed and not enqueued
	known    bool      // some have been composed
	seen     time.Time // when the last ones were
	to       []int     // of these, by queue
	total    int       // of these, to any queue
}

func newCredits(r *Relay) *credits {
	return &credits{relay: r, spent: make([]int, len(r.queues)), jobs: make(map[int64]*destination)}
}

// Activities implements Credits.
func (c *credits) Activities() int {
	if c.relay.content.full(true, 0) {
		return 0
	}
	return c.relay.inflight.room(c.relay.settings(), "", 0, true)
}

// Bulk implements Credits.
func (c *credits) Bulk() int {
	if !c.relay.content.claims() {
		return 0
	}
	return c.relay.inflight.bulkRoom(c.relay.settings())
}

// Idle implements Credits.
func (c *credits) Idle() bool { return c.relay.idle() }

// Changed implements Credits.
func (c *credits) Changed() <-chan struct{} { return c.relay.inflight.changed }

// Job implements Credits.
func (c *credits) Job(id int64, lane string, lanes int) int {
	if c.relay.probing(id) || !c.relay.content.claims() {
		return 0 // of a probed job, except its sample
	}
	config, now := c.relay.settings(), time.Now()
	if c.relay.inflight.stuckOf(id) >= config.Batch {
		return 0
	}
	room := c.relay.inflight.room(config, lane, lanes, false)
	if room < c.relay.inflight.least(config) {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.jobs[id]
	switch {
	case d == nil:
		return min(room, config.Batch)
	case !d.known && d.underway > 0, d.total == 0 && d.underway >= 2*config.Batch:
		return 0
	case d.total == 0: // nothing of the last claim went to a sender
		return room
	}
	free, enough := c.free(d, now)
	switch {
	case free > 0 && free >= min(config.Batch, enough):
		return min(room, free)
	case d.underway == 0 && now.Sub(d.seen) >= probeAfter:
		return min(room, max(1, config.Batch/10))
	}
	return 0
}

// free returns the number of messages that the job's queues take, and the number worth a claim: half a
// queue.
func (c *credits) free(d *destination, now time.Time) (free, enough int) {
	share := c.relay.inflight.share(c.relay.settings())
	for i, n := range d.to {
		if 10*n < d.total {
			continue
		}
		q := c.relay.queues[i]
		if granted := q.grants(share, now) - c.spent[i]; granted > 0 {
			free += granted
			enough += (q.limits.Depth(share) + 1) / 2
		}
	}
	return free, enough
}

// spend takes credits for claimed messages, in the proportions of their jobs' last claims.
func (c *credits) spend(messages []outbox.Claimed) batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.forget(now)
	b := batch{messages: messages, spent: make([]int, len(c.spent)), share: c.relay.inflight.share(c.relay.settings())}
	for from := 0; from < len(messages); {
		id, n := messages[from].JobID, 1
		for from+n < len(messages) && messages[from+n].JobID == id {
			n++
		}
		from += n
		if id < 0 {
			continue
		}
		d := c.jobs[id]
		if d == nil {
			d = &destination{seen: now, to: make([]int, len(c.spent))}
			c.jobs[id] = d
		}
		d.underway += n
		for i, went := range d.to {
			if went > 0 {
				part := (n*went + d.total - 1) / d.total
				c.spent[i] += part
				b.spent[i] += part
			}
		}
	}
	return b
}

// feedback returns the credits of a batch after it was enqueued or deferred, and records the queues of
// its jobs.
func (c *credits) feedback(b batch, went map[int64][]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for i, n := range b.spent {
		c.spent[i] -= n
	}
	for _, m := range b.messages {
		if d := c.jobs[m.JobID]; d != nil {
			d.underway--
			d.known, d.seen = true, now
		}
	}
	for id, to := range went {
		if d := c.jobs[id]; d != nil {
			d.to, d.total = to, 0
			for _, n := range to {
				d.total += n
			}
		}
	}
}

// forget drops what is known of jobs that nothing was claimed of for a while (I13).
func (c *credits) forget(now time.Time) {
	if now.Sub(c.forgotten) < forgetAfter {
		return
	}
	c.forgotten = now
	maps.DeleteFunc(c.jobs, func(_ int64, d *destination) bool { return d.underway == 0 && now.Sub(d.seen) > forgetAfter })
}
