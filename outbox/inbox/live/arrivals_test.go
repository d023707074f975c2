package live

import (
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var zerologNop = zerolog.Nop()

// Whatever the order in which transactions draw numbers, commit and roll back, each number that commits is visible to
// exactly one poll, and those that are rolled back are dropped in the end.
func TestArrivals_FindsEveryNumberOnce(t *testing.T) { //nolint:funlen // a model
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type transaction struct {
			id      int64
			numbers []int64
		}
		var (
			a                 arrivals
			running           []*transaction
			nextID, nextDrawn int64 = 1, 1
			committed               = map[int64]bool{}
			found                   = map[int64]int{}
			want              []int64
			jumps             int
		)
		poll := func() {
			settled := nextID // as xmin, at most
			for _, x := range running {
				settled = min(settled, x.id)
			}
			probes := a.probes()
			var visible []int64
			for n := range committed {
				if n > a.highest || slices.Contains(probes, n) {
					visible = append(visible, n)
				}
			}
			slices.Sort(visible)
			for _, n := range visible {
				found[n]++
			}
			require.False(t, a.add(visible, probes, settled))
			if a.unfenced() && rapid.Bool().Draw(t, "fence") {
				a.setFence(nextID)
				nextID++
			}
			for n := range committed {
				require.True(t, n > a.low() || found[n] > 0, "%d is at or below %d", n, a.low())
			}
			for _, x := range running {
				for _, n := range x.numbers {
					require.True(t, n > a.highest || slices.ContainsFunc(a.holes, func(h hole) bool { return h.first <= n && n <= h.last }), "%d is not awaited", n)
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			var i int
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				running = append(running, &transaction{id: nextID})
				nextID++
			case 1:
				if len(running) > 0 {
					i = rapid.IntRange(0, len(running)-1).Draw(t, "who")
					running[i].numbers = append(running[i].numbers, nextDrawn)
					nextDrawn++
				}
			case 2:
				if len(running) > 0 {
					i = rapid.IntRange(0, len(running)-1).Draw(t, "who")
					if rapid.Bool().Draw(t, "commits") {
						for _, n := range running[i].numbers {
							committed[n] = true
							want = append(want, n)
						}
					}
					running = slices.Delete(running, i, i+1)
				}
			case 3:
				poll()
			case 4: // the numbers go on in the next partition
				if jumps < 3 {
					jumps++
					nextDrawn = (nextDrawn/partition + 1) * partition
				}
			}
		}
		running = nil
		for range 10 + jumps*2*maxJump/maxProbes {
			poll()
			a.setFence(nextID)
			nextID++
		}
		for _, n := range want {
			require.Equal(t, 1, found[n], n)
		}
		require.Empty(t, a.holes)
	})
}

// A block of numbers that were rolled back is one hole, however long it is.
func TestArrivals_BoundsHoles(t *testing.T) {
	t.Parallel()
	var a arrivals
	require.False(t, a.add([]int64{1}, nil, 0))
	require.False(t, a.add([]int64{maxAwaited + 2}, nil, 0))
	require.Equal(t, []hole{{first: 2, last: maxAwaited + 1}}, a.holes)
	require.True(t, a.add([]int64{maxAwaited + 4}, nil, 0), "one more")
	require.Len(t, a.holes, 2)
	require.True(t, a.add([]int64{1 << 40}, nil, 0), "a number far ahead")
	require.Equal(t, []hole{{first: 1<<40 - maxAwaited/2, last: 1<<40 - 1}}, a.holes)

	a = arrivals{}
	require.False(t, a.add([]int64{1}, nil, 0))
	require.False(t, a.add([]int64{maxAwaited*6/10 + 2}, nil, 0))
	require.True(t, a.add([]int64{maxAwaited*12/10 + 3}, nil, 0), "two large blocks")
	require.EqualValues(t, maxAwaited/2, a.awaited())
	require.False(t, a.add(nil, nil, 0), "nothing more is given up")

	a = arrivals{}
	var even []int64
	for n := range int64(maxHoles) {
		even = append(even, 2*n+2)
	}
	require.False(t, a.add(even, nil, 0))
	require.Len(t, a.holes, maxHoles)
	require.True(t, a.add([]int64{2*maxHoles + 2}, nil, 0), "one more")
	require.Len(t, a.holes, maxHoles/2)
	seen := map[int64]bool{}
	for range maxHoles / 2 / maxProbes {
		for _, n := range a.probes() {
			seen[n] = true
		}
	}
	require.Len(t, seen, len(a.holes), "all are read in turns")
	a.setFence(7)
	for range maxHoles/2/maxProbes + 1 {
		require.False(t, a.add(nil, a.probes(), 7))
	}
	require.Empty(t, a.holes)
}

// Jobs are forgotten when no position can be older than their end.
func TestWalks_ForgetsJobs(t *testing.T) {
	t.Parallel()
	var w walks
	now := time.Unix(1_000_000, 0)
	w.baseline([]progress{{5, "10", true, false, true}}, now)
	require.Equal(t, []advance{{5, 10, 20, true}}, w.add([]progress{{5, "20", false, true, true}}, now.Add(1)))
	require.Empty(t, w.followed())
	w.add([]progress{{6, "20", false, false, true}}, now)
	require.Equal(t, []int64{6}, w.followed())
	w.add([]progress{{6, "20", false, true, true}}, now)
	require.Empty(t, w.add(nil, now.Add(maxAge)))
	require.Equal(t, []int64{5}, w.late(5, now))
	require.Empty(t, w.late(4, now))
	require.Empty(t, w.add(nil, now.Add(maxAge+2*slack)))
	require.Empty(t, w.known)
}
