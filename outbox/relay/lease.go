package relay

import (
	"maps"
	"slices"
	"sync"

	"github.com/belfryhq/belfry/outbox"
)

// hand is what this relay holds: the leases of its claims, and how many messages of
// each are not settled, by lane. All of it is bounded (I13).
type hand struct {
	mu     sync.Mutex
	leases map[int64]*held
	lanes  map[string]int // messages in hand, by lane; activities have none
	acts   int
	total  int
	parts  int           // the lanes with work, and one more
	freed  chan struct{} // size 1: something has left the hand
}

// held is a lease and what is open under it.
type held struct {
	lane     string
	activity bool
	open     int // messages not settled
}

func newHand() *hand {
	return &hand{leases: make(map[int64]*held), lanes: make(map[string]int), parts: 2, freed: make(chan struct{}, 1)}
}

// take notes a claim. All messages of one claim share a lease.
func (h *hand) take(claimed []outbox.Claimed, lane string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &held{lane: lane, activity: claimed[0].JobID < 0, open: len(claimed)}
	h.leases[claimed[0].LeaseID] = l
	h.total += l.open
	if l.activity {
		h.acts += l.open
	} else {
		h.lanes[lane] += l.open
	}
}

// finishing returns the leases of which nothing is left once n, by lease, are settled.
func (h *hand) finishing(n map[int64]int) (done []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, count := range n {
		if l := h.leases[id]; l != nil && l.open <= count {
			done = append(done, id)
		}
	}
	return done
}

// drop takes settled or lost messages out of the hand and returns the leases of which
// nothing is left. They stay in hand until they have ended.
func (h *hand) drop(n map[int64]int) (done []int64) {
	h.mu.Lock()
	for id, count := range n {
		l := h.leases[id]
		if l == nil {
			continue
		}
		l.open -= count
		h.total -= count
		if l.activity {
			h.acts -= count
		} else if h.lanes[l.lane] -= count; h.lanes[l.lane] <= 0 {
			delete(h.lanes, l.lane)
		}
		if l.open <= 0 {
			done = append(done, id)
		}
	}
	h.mu.Unlock()
	h.rouse()
	return done
}

// ended takes leases out of the hand that are deleted.
func (h *hand) ended(leases []int64) {
	if len(leases) == 0 {
		return
	}
	h.mu.Lock()
	for _, id := range leases {
		delete(h.leases, id)
	}
	h.mu.Unlock()
	h.rouse()
}

func (h *hand) rouse() {
	select {
	case h.freed <- struct{}{}:
	default:
	}
}

// empty reports whether nothing is in hand, and no lease is left to be deleted.
func (h *hand) empty() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.leases) == 0
}

// ids are the leases in hand.
func (h *hand) ids() []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.leases))
}

func (h *hand) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.total
}

// room is how many more messages of a lane, or activities, may be claimed. One lane
// never gets all of it, however many there are: a lane whose sender hangs leaves the
// others theirs.
func (h *hand) room(c Config, lane string, lanes int, activity bool) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := int(c.ActivityShare * float64(c.MaxInHand))
	if activity {
		if kept == 0 {
			return c.MaxInHand - h.total
		}
		return min(c.MaxInHand-h.total, max(kept-h.acts, c.MaxInHand-kept-h.bulk()))
	}
	h.parts = max(lanes, 1) + 1
	return min(h.part(c)-h.lanes[lane], c.MaxInHand-kept-h.bulk(), c.MaxInHand-h.total)
}

// part is how many messages one lane may have in hand.
func (h *hand) part(c Config) int {
	return (c.MaxInHand - int(c.ActivityShare*float64(c.MaxInHand))) / h.parts
}

// portion is how much of one lane a sender's line may hold without need: not so much
// that a mixed job gets stuck in one of its lines.
func (h *hand) portion(c Config) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(1, min(c.Batch, h.part(c)/3))
}

func (h *hand) bulk() int { return h.total - h.acts }

// forget empties the hand: what the database did not take is other relays'.
func (h *hand) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.leases)
	clear(h.lanes)
	h.acts, h.total = 0, 0
}
