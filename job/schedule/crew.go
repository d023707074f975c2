package schedule

import (
	"context"
	"slices"
	"sync"
)

// maxAsking is how many queries a Firer runs at once at most.
const maxAsking = 4

// crew is the firings with a query that are in progress, a bounded number. The last place
// is kept from schedules that fail, so that queries which sleep until their deadline,
// however many, leave a place to one that does not. It is safe for concurrent use.
type crew struct {
	places int
	left   chan struct{} // size 1: a firing ended

	mu      sync.Mutex
	names   []string
	failing int // of names
	changed chan struct{}
}

// newCrew returns one for a pool of so many connections.
func newCrew(connections int) *crew {
	return &crew{places: min(max(connections/4, 1), maxAsking), left: make(chan struct{}, 1), changed: make(chan struct{})}
}

// enter takes a place if there is one for d, and nobody of that name is in.
func (c *crew) enter(d due) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.names) >= c.places || d.Failing && c.failing >= max(c.places-1, 1) || slices.Contains(c.names, d.Name) {
		return false
	}
	c.names = append(c.names, d.Name)
	if d.Failing {
		c.failing++
	}
	return true
}

// join waits for a place; false: ctx was cancelled before.
func (c *crew) join(ctx context.Context, d due) bool {
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if c.enter(d) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// leave gives the place back.
func (c *crew) leave(d due) {
	c.mu.Lock()
	c.names = slices.DeleteFunc(c.names, func(name string) bool { return name == d.Name })
	if d.Failing {
		c.failing--
	}
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	select {
	case c.left <- struct{}{}:
	default:
	}
}

// busy names the schedules that are in.
func (c *crew) busy() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.names)
}
