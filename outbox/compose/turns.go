package compose

import (
	"maps"
	"sync"

	"github.com/belfryhq/belfry/outbox"
)

// turns is the order in which the batches of one Composer look at what is in flight. Two that
// look at once would each find the other's messages there, and both would wait. A batch
// whose turn comes later looks after the claims of the one before were committed: it finds
// these and leaves them their room, so that the one before need not.
//
// Only claims that were expected have a turn, and have one once: what is composed again
// counts for others from its first time on. A lease's id is never given twice, so that a
// claim that never comes does no harm.
type turns struct {
	mu     sync.Mutex
	last   int64
	turn   map[int64]int64 // of expected leases; 0: yet to come
	active map[int64]bool  // turns that are being taken
}

// expect notes claims that are on their way to be composed.
func (t *turns) expect(claimed []outbox.Claimed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range leases(claimed) {
		if _, known := t.turn[id]; !known {
			t.turn[id] = 0
		}
	}
}

// begin is called before a batch looks at what is in flight, and returns its turn.
func (t *turns) begin(claimed []outbox.Claimed) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.active[t.last] = true
	for _, id := range leases(claimed) {
		if turn, known := t.turn[id]; known && turn == 0 {
			t.turn[id] = t.last
		}
	}
	return t.last
}

// later reports whether all that is in flight under a lease leaves its room to the batch whose
// turn it is.
func (t *turns) later(lease, turn int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	other, known := t.turn[lease]
	return known && (other == 0 || other > turn)
}

// end ends a turn, and forgets what nobody asks for any more.
func (t *turns) end(turn int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.active, turn)
	oldest := t.last + 1
	for a := range t.active {
		oldest = min(oldest, a)
	}
	maps.DeleteFunc(t.turn, func(_, at int64) bool { return at != 0 && at < oldest })
}

// leases are those of claimed messages: one, unless they are put together by hand.
func leases(claimed []outbox.Claimed) (ids []int64) {
	for i, m := range claimed {
		if i == 0 || m.LeaseID != claimed[i-1].LeaseID {
			ids = append(ids, m.LeaseID)
		}
	}
	return ids
}
