package live

import "slices"

const (
	// maxHoles bounds the arrivals that are awaited.
	maxHoles = 10_000
	// maxProbes bounds the holes that one poll reads again.
	maxProbes = 500
)

// hole is an arrival below the highest one that was not visible: its transaction has not committed, or never will.
type hole struct {
	arrival int64
	fence   int64 // a transaction id above that of the arrival's transaction; 0: not drawn yet
}

// arrivals tracks which numbers of belfry.arrivals_seq were seen. Numbers are drawn in order by transactions that
// have their transaction id already, and become visible in any order. A number below the highest one that is not
// visible has a transaction id below each one that is assigned later (the fence). When all transactions below the
// fence are over and the number is still not visible, it was rolled back.
type arrivals struct {
	highest int64
	holes   []hole // ascending
	next    int    // the first hole of the next poll
}

// low returns the highest arrival with no hole at or below it.
func (a *arrivals) low() int64 {
	if len(a.holes) > 0 {
		return a.holes[0].arrival - 1
	}
	return a.highest
}

// probes returns the holes that the next poll reads, in turns.
func (a *arrivals) probes() []int64 {
	list := make([]int64, 0, min(len(a.holes), maxProbes))
	for range cap(list) {
		a.next %= len(a.holes)
		list = append(list, a.holes[a.next].arrival)
		a.next++
	}
	return list
}

// add records the result of a poll: the visible arrivals, ascending, out of the probes and of all above the highest
// one. All transactions below settled were over before. It reports whether holes were given up, because they are
// too many.
func (a *arrivals) add(visible, probes []int64, settled int64) (overflow bool) {
	seen := make(map[int64]bool, len(visible))
	for _, n := range visible {
		seen[n] = true
	}
	probed := make(map[int64]bool, len(probes))
	for _, n := range probes {
		probed[n] = true
	}
	a.holes = slices.DeleteFunc(a.holes, func(h hole) bool {
		return seen[h.arrival] || probed[h.arrival] && h.fence > 0 && settled >= h.fence
	})
	for _, n := range visible {
		if n <= a.highest {
			continue
		}
		from := a.highest + 1
		if n-from > maxHoles {
			from, overflow = n-maxHoles, true
		}
		for ; from < n; from++ {
			a.holes = append(a.holes, hole{arrival: from})
		}
		a.highest = n
	}
	if most := len(a.holes) - maxHoles; most > 0 {
		// Some more than necessary, so that clients do not read their lists after each poll.
		a.holes, overflow = slices.Delete(a.holes, 0, min(len(a.holes), most+maxHoles/2)), true
	}
	return overflow
}

// unfenced reports whether a hole has no fence.
func (a *arrivals) unfenced() bool {
	return len(a.holes) > 0 && a.holes[len(a.holes)-1].fence == 0
}

// setFence gives the holes without one a transaction id that was drawn after they were found.
func (a *arrivals) setFence(id int64) {
	for i := len(a.holes) - 1; i >= 0 && a.holes[i].fence == 0; i-- {
		a.holes[i].fence = id
	}
}
