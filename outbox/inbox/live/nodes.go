package live

import (
	"context"
	"sync"
	"time"
)

// Hints passes hints between nodes (package outbox/redishints). They may be lost, come twice or be wrong.
type Hints interface {
	// Send has the other nodes receive a hint. It waits for nothing.
	Send(kind string, channelID int64)
	// Run calls received with the hints of other nodes until ctx ends.
	Run(ctx context.Context, received func(kind string, channelID int64))
}

// Kinds of hints.
const (
	mark = "mark" // a person's notifications were marked
	wake = "wake" // there may be new notifications
	deaf = "deaf" // the sender hears no notification of PostgreSQL: pass them on
)

const (
	// Wakes are passed on for deafFor after a request, which is repeated every deafEvery.
	deafEvery = 5 * time.Second
	deafFor   = 3 * deafEvery
	// passEvery is the shortest time between two wakes of all nodes. It is below hotFor: meanwhile their receivers poll.
	passEvery = 100 * time.Millisecond
)

// nodes exchanges hints with the other nodes. A nil nodes does nothing.
type nodes struct {
	hints   Hints
	listens func() bool
	asks    time.Time // the last deaf of this node

	mu     sync.Mutex
	asked  time.Time // the last deaf of another node
	passed time.Time // the last wake of any node
}

// Share has the server exchange hints with the other nodes: read events then reach clients on every node, and nodes that
// hear no notification of PostgreSQL, as behind a pooler, poll after the wakes of others. It is called before Run.
func (s *Server) Share(hints Hints) { s.nodes = &nodes{hints: hints} }

// hinted handles a hint of another node. Unknown kinds are of later versions.
func (s *Server) hinted(kind string, channelID int64) {
	n := s.nodes
	switch kind {
	case mark:
		s.hub.marked(channelID)
	case wake:
		if !n.listens() {
			s.rouse()
		}
		n.mu.Lock()
		n.passed = time.Now()
		n.mu.Unlock()
	case deaf:
		n.mu.Lock()
		n.asked = time.Now()
		n.mu.Unlock()
	}
}

func (n *nodes) marked(channelID int64) {
	if n != nil {
		n.hints.Send(mark, channelID)
	}
}

// pass passes on a notification of PostgreSQL, if another node asks for it.
func (n *nodes) pass() {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.asked) < deafFor && time.Since(n.passed) >= passEvery {
		n.passed = time.Now()
		n.hints.Send(wake, 0)
	}
}

// ask asks the other nodes to pass wakes on, if this one hears no notification.
func (n *nodes) ask() {
	if n != nil && !n.listens() && time.Since(n.asks) >= deafEvery {
		n.asks = time.Now()
		n.hints.Send(deaf, 0)
	}
}
