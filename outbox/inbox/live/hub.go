package live

import (
	"context"
	"errors"
	"sync"
)

const (
	// maxPerChannel is the maximum number of connections of one channel, such as tabs and devices of a person.
	maxPerChannel = 10
	// maxQueued is the number of events that may wait for a connection.
	maxQueued = 64
)

// Errors of a new connection.
var (
	errTooMany    = errors.New("too many streams are open")
	errTooManyOwn = errors.New("too many streams of this channel are open")
	errStopping   = errors.New("the server stops")
)

// closing is the reason why the server ends a connection. Each is resumable.
type closing int

const (
	open closing = iota
	tooSlow
	stopping
	expired
	gone // the client is
)

// event is a JSON object, without the position that is sent with it.
type event struct {
	kind kind
	data []byte
	at   position
}

// conn is a connection of a channel. The hub adds events, and the goroutine of the request takes them.
type conn struct {
	channel int64
	wake    chan struct{} // size 1

	mu     sync.Mutex
	queue  []event
	reason closing
}

// add queues an event, or ends a connection that has too many. Of read events in a row one is queued.
func (c *conn) add(e event) {
	c.mu.Lock()
	switch n := len(c.queue); {
	case e.kind == isRead && n > 0 && c.queue[n-1].kind == isRead:
	case n >= maxQueued:
		c.end(tooSlow)
	case c.reason == open:
		c.queue = append(c.queue, e)
	}
	c.mu.Unlock()
	c.signal()
}

func (c *conn) end(reason closing) {
	if c.reason == open {
		c.reason, c.queue = reason, nil
	}
}

func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// await waits until a connection may start. Events that are queued before, such as marks, remain in the queue.
func (c *conn) await(ctx context.Context, ready <-chan struct{}) error {
	defer c.signal() // for those events
	for {
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return errNotReady
		case <-c.wake:
			c.mu.Lock()
			stops := c.reason == stopping
			c.mu.Unlock()
			if stops {
				return errStopping
			}
		}
	}
}

// take returns the queued events. An empty queue costs no memory.
func (c *conn) take() ([]event, closing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.queue
	c.queue = nil
	return list, c.reason
}

// hub has the connections of a node by channel.
type hub struct {
	most int

	mu      sync.Mutex
	conns   map[int64][]*conn
	open    int
	place   position      // everything at or below it was queued
	ready   chan struct{} // closed when the feed follows the database
	ended   bool
	serving sync.WaitGroup // the open ones
}

// join adds a connection. The channel is closed when the connection gets all new events.
func (h *hub) join(channel int64) (*conn, <-chan struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return nil, nil, errStopping
	case h.open >= h.most:
		return nil, nil, errTooMany
	case len(h.conns[channel]) >= maxPerChannel:
		return nil, nil, errTooManyOwn
	}
	c := &conn{channel: channel, wake: make(chan struct{}, 1)}
	h.conns[channel] = append(h.conns[channel], c)
	h.open++
	h.serving.Add(1)
	return c, h.ready, nil
}

func (h *hub) leave(c *conn) {
	defer h.serving.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.conns[c.channel]
	for i := range list {
		if list[i] == c {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if h.open--; len(list) == 0 {
		delete(h.conns, c.channel)
		return
	}
	h.conns[c.channel] = list
}

// begin lets connections start: the feed follows the database from a position.
func (h *hub) begin(at position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.place = at
	select {
	case <-h.ready:
	default:
		close(h.ready)
	}
}

// rest reports whether there are no connections. Later ones then wait for begin.
func (h *hub) rest() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open > 0 {
		return false
	}
	select {
	case <-h.ready:
		h.ready = make(chan struct{})
	default:
	}
	return true
}

// connected returns those among channels that have a connection.
func (h *hub) connected(channels []int64) (list []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range channels {
		if len(h.conns[id]) > 0 {
			list = append(list, id)
		}
	}
	return list
}

// within returns the connected channels that may be in an advance.
func (h *hub) within(a advance) (list []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.conns {
		if !a.exact || id > a.from && id <= a.to {
			list = append(list, id)
		}
	}
	return list
}

// publish queues the events of a cycle and then moves the position to next. The last event of each channel has
// the new position: a client that has it has all earlier ones.
func (h *hub) publish(events map[int64][][]byte, next position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for channel, list := range events {
		for _, c := range h.conns[channel] {
			for i, data := range list {
				at := h.place
				if i == len(list)-1 {
					at = next
				}
				c.add(event{isNew, data, at})
			}
		}
	}
	h.place = next
}

// all queues a reload for all connections, or with a reason ends them.
func (h *hub) all(reason closing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = h.ended || reason == stopping
	for _, list := range h.conns {
		for _, c := range list {
			if reason == open {
				c.add(event{kind: isReload, data: reload})
				continue
			}
			c.mu.Lock()
			c.end(reason)
			c.mu.Unlock()
			c.signal()
		}
	}
}

// marked queues a read event for the connections of a channel.
func (h *hub) marked(channel int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns[channel] {
		c.add(event{kind: isRead, data: []byte(`{"type":"read"}`)})
	}
}

func (h *hub) at() position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.place
}

// count returns the number of connections.
func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}
