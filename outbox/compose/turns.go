package compose

import (
	"maps"
	"sync"

	"github.com/belfryhq/belfry/outbox"
)

// turns orders the batches of one Composer that count messages in flight. Two batches that count at
// the same time would each find the messages of the other in flight, and both would wait. A batch with a later
// turn counts after the claims of the earlier batch were committed, so it finds them and waits for
// them; the earlier batch ignores the messages of the later one. Only claims that were expected have a
// turn, and have it once: a batch that is composed again counts for other batches from its first time
// on. A lease id is never reused, so that a turn cannot belong to another claim.
type turns struct {
	mu     sync.Mutex
	last   int64
	turn   map[int64]int64 // of expected leases; 0 before its turn
	active map[int64]bool  // turns in progress
}

// expect registers claims that will be composed.
func (t *turns) expect(claimed []outbox.Claimed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range leases(claimed) {
		if _, known := t.turn[id]; !known {
			t.turn[id] = 0
		}
	}
}

// begin returns the turn of a batch. It must be called before the batch counts messages in flight.
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

// later reports whether the batch of a lease has a later turn, so that its messages in flight do not
// count.
func (t *turns) later(lease, turn int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	other, known := t.turn[lease]
	return known && (other == 0 || other > turn)
}

// end ends a turn and drops turns that no batch needs any more.
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

// leases returns the leases of claimed messages: one lease, except in batches assembled by a test.
func leases(claimed []outbox.Claimed) (ids []int64) {
	for i, m := range claimed {
		if i == 0 || m.LeaseID != claimed[i-1].LeaseID {
			ids = append(ids, m.LeaseID)
		}
	}
	return ids
}
