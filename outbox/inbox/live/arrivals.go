package live

import "slices"

const (
	// maxHoles bounds the blocks of arrivals that are awaited, and maxAwaited the arrivals in them.
	maxHoles   = 10_000
	maxAwaited = 1_000_000
	// partition is the number of arrivals of a partition of belfry.notifications. When one is full, the numbers go on in
	// the next (belfry.next_arrival): maxJump more of this one are awaited, and the first maxJump of each one skipped.
	partition = 1_000_000_000
	maxJump   = 10_000
	// maxProbes bounds the awaited arrivals that one poll reads again.
	maxProbes = 500
)

// hole is a block of arrivals below the highest one that were not visible: their transactions have not committed, or
// never will.
type hole struct {
	first, last int64
	fence       int64 // a transaction id above those of the arrivals' transactions; 0: not drawn yet
}

// arrivals tracks which numbers of belfry.arrivals_seq were seen. Numbers are drawn in order by transactions that
// have their transaction id already, and become visible in any order. A number below the highest one that is not
// visible has a transaction id below each one that is assigned later (the fence). When all transactions below the
// fence are over and the number is still not visible, it was rolled back.
type arrivals struct {
	highest int64
	holes   []hole // ascending
	next    int64  // the first awaited arrival of the next poll, or one below it
}

// low returns the highest arrival with no hole at or below it.
func (a *arrivals) low() int64 {
	if len(a.holes) > 0 {
		return a.holes[0].first - 1
	}
	return a.highest
}

// probes returns the awaited arrivals that the next poll reads, ascending and in turns.
func (a *arrivals) probes() []int64 {
	list := []int64{}
	for _, h := range a.holes {
		for n := max(h.first, a.next); n <= h.last; n++ {
			if len(list) == maxProbes {
				a.next = n
				return list
			}
			list = append(list, n)
		}
	}
	a.next = 0
	return list
}

// add records the result of a poll: the visible arrivals, ascending, out of the probes and of all above the highest
// one. All transactions below settled were over before. It reports whether holes were given up, because they are
// too many.
func (a *arrivals) add(visible, probes []int64, settled int64) (overflow bool) {
	a.fill(visible, probes, settled)
	for _, n := range visible {
		if n <= a.highest {
			continue
		}
		a.holes = append(a.holes, gaps(a.highest, n)...)
		a.highest = n
	}
	// Some more than necessary are given up, so that clients do not read their lists after each poll.
	if len(a.holes) > maxHoles {
		a.holes, overflow = slices.Delete(a.holes, 0, len(a.holes)-maxHoles/2), true
	}
	if awaited := a.awaited(); awaited > maxAwaited {
		overflow = true
		for excess := awaited - maxAwaited/2; excess > 0; {
			first := &a.holes[0]
			n := min(excess, first.last-first.first+1)
			if first.first += n; first.first > first.last {
				a.holes = a.holes[1:]
			}
			excess -= n
		}
	}
	return overflow
}

// gaps returns the holes between a visible arrival and the next visible one. If n is in a later partition, it takes
// as drawn the first maxJump arrivals after visible and of each partition in between, and all of its own before n.
func gaps(visible, n int64) (holes []hole) {
	for start := n / partition * partition; visible+maxJump < start; {
		next := ((visible+1)/partition + 1) * partition
		holes = append(holes, hole{first: visible + 1, last: min(visible+maxJump, next-1)})
		visible = next - 1
	}
	if visible+1 < n {
		holes = append(holes, hole{first: visible + 1, last: n - 1})
	}
	return holes
}

// awaited returns the number of awaited arrivals.
func (a *arrivals) awaited() (n int64) {
	for _, h := range a.holes {
		n += h.last - h.first + 1
	}
	return n
}

// fill removes from the holes the visible arrivals, and the probes that were rolled back.
func (a *arrivals) fill(visible, probes []int64, settled int64) {
	seen := make(map[int64]bool, len(visible))
	for _, n := range visible {
		seen[n] = true
	}
	var rest []hole
	for _, h := range a.holes {
		for len(probes) > 0 && probes[0] <= h.last {
			n := probes[0]
			probes = probes[1:]
			if n < h.first || !seen[n] && (h.fence == 0 || settled < h.fence) {
				continue
			}
			if h.first < n {
				rest = append(rest, hole{h.first, n - 1, h.fence})
			}
			h.first = n + 1
		}
		if h.first <= h.last {
			rest = append(rest, h)
		}
	}
	a.holes = rest
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
