package schedule

import (
	"context"
	"slices"
	"sync"
)

// maxAsking is the maximum number of queries that a Firer runs concurrently.
const maxAsking = 4

// crew limits the concurrent firings with a query. The last place is reserved for schedules that do not fail, so that
// queries that time out cannot occupy all places. It is safe for concurrent use.
type crew struct {
	places int
	left   chan struct{} // size 1: a firing ended

	mu      sync.Mutex
	names   []string
	failing int // of names
	changed chan struct{}
}

// newCrew returns a crew for a pool with the given number of connections.
func newCrew(connections int) *crew {
	return &crew{places: min(max(connections/4, 1), maxAsking), left: make(chan struct{}, 1), changed: make(chan struct{})}
}

// enter takes a place for d if there is one and d is not firing already.
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

// join waits for a place. It returns false if ctx was cancelled.
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

// leave releases the place.
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

// busy returns the names of the firing schedules.
func (c *crew) busy() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.names)
}
