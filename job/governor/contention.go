package governor

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// contention detects from the run's own chunks that the server is busy. A chunk is slow if it takes more
// than HealthConfig.ChunkLatency times the duration of a quick chunk of its size.
//
// At full speed three slow chunks in a row make the run contended: it turns to small chunks for a moment,
// then tries full speed again, and doubles the wait each time that was too soon. While the run walks in
// small chunks, for this or another reason, each slow chunk doubles the rest after it and each quick chunk
// halves it, so that the run uses the server's idle moments.
type contention struct {
	base  *Baseline
	limit float64 // 0 means off
	small int     // keys of a small chunk

	until time.Time     // small chunks until then
	again time.Duration // how long the next time
	freed time.Time     // when it last went back to full speed
	ratio float64       // of the chunk that made it contended
	on    bool
	slow  int // slow chunks in a row at full speed

	rest   time.Duration // after the next quick chunk it halves
	restAt time.Time     // the rest ends
}

// The sizes and times below are measured, see docs/load.md.
const (
	// smallRows is a chunk that takes a few milliseconds, and still half of which is
	// work rather than fixed cost.
	smallRows = 2000
	// restLeast to restMost is the rest after a small chunk.
	restLeast = 10 * time.Millisecond
	restMost  = 80 * time.Millisecond
	// slowRun is how many slow chunks in a row make the run contended: one or two are a
	// checkpoint or a hiccup.
	slowRun = 3
	// againFirst to againMost is how long the run stays contended.
	againFirst = 250 * time.Millisecond
	againMost  = 8 * time.Second
)

func (c *contention) configure(s Settings) {
	c.limit = 0
	if s.Health.Enabled {
		c.limit = s.Health.ChunkLatency
	}
	c.small = min(max(smallRows, s.Chunk.MinRows), s.Chunk.MaxRows)
	if c.limit == 0 {
		c.on = false
	}
	if !s.Health.Enabled {
		c.rest, c.restAt = 0, time.Time{}
	}
}

func (c *contention) contended() bool { return c.on }

// told reports whether the run is contended or has just been. Contention ends when full speed has succeeded
// for a while.
func (c *contention) told(now time.Time) bool {
	return c.on || c.limit > 0 && !c.freed.IsZero() && now.Sub(c.freed) < c.again
}

func (c *contention) detail() string {
	return fmt.Sprintf("a chunk took %.1f times its unloaded time, allowed %v", c.ratio, c.limit)
}

// Observe records a committed chunk; small means that the run walks in small chunks.
func (c *contention) observe(now time.Time, chunk chunkCost, small bool) {
	ratio := c.base.learn(chunk)
	isSlow := c.limit > 0 && ratio > c.limit
	if !small {
		c.rest = 0
		if !isSlow {
			c.slow = 0
		} else if c.slow++; c.slow >= slowRun {
			c.enter(now, ratio)
		}
		return
	}
	switch {
	case isSlow:
		c.rest = min(c.rest*2, restMost)
	default:
		c.rest /= 2
	}
	c.rest = max(c.rest, restLeast)
	c.restAt = now.Add(c.rest)
	if c.on && !now.Before(c.until) {
		c.on, c.freed = false, now
		c.slow = slowRun - 1 // one more slow chunk is enough
	}
}

// enter makes the run contended, for longer when it was so until just now.
func (c *contention) enter(now time.Time, ratio float64) {
	if c.freed.IsZero() || now.Sub(c.freed) > 2*c.again {
		c.again = againFirst
	}
	c.slow = 0
	c.on, c.ratio, c.until = true, ratio, now.Add(c.again)
	c.again = min(c.again*2, againMost)
	c.rest, c.restAt = restLeast, now.Add(restLeast)
}

// chunkCost is one committed chunk.
type chunkCost struct {
	read int   // keys examined
	rows int64 // rows written
	took time.Duration
}

// Baseline holds the cost of unloaded chunks: for each class of size and density, the 20th percentile of the
// latest chunks. Under load some chunks always remain undisturbed: on a server with four busy clients the
// quickest fifth of small chunks took hardly longer than on an idle server, while half took a third longer.
// A lasting change becomes the new baseline. It is used by one run at a time.
type Baseline struct{ classes map[chunkClass]*costs }

// chunkClass are chunks that should cost about the same per key.
type chunkClass struct {
	size    int // bits of the number of keys
	density int // bits of the rows written per eight keys
}

// costs are the latest costs per key, in ns.
type costs struct {
	ring []float64
	next int
}

const (
	costsKept = 64
	costsMin  = 12 // fewer are not significant
)

// NewBaseline returns a baseline without measurements.
func NewBaseline() *Baseline { return &Baseline{classes: make(map[chunkClass]*costs)} }

// learn records a chunk and returns the ratio of its time to its unloaded time, or 0 if that is not known
// yet. Without data for its class it is compared with chunks of about twice its size, because the governor
// shrinks slow chunks, and a smaller class must not make them look quick.
func (b *Baseline) learn(chunk chunkCost) float64 {
	eighths := chunk.rows * 8 / int64(chunk.read)
	class := chunkClass{bits.Len(uint(chunk.read)), bits.Len(uint(max(eighths, 0)))}
	cost := float64(chunk.took) / float64(chunk.read)
	ratio := 0.0
	if least, known := b.classes[class].least(); known {
		ratio = cost / least
	} else if least, known := b.classes[chunkClass{class.size + 1, class.density}].least(); known {
		ratio = cost / least
	}
	known := b.classes[class]
	if known == nil {
		known = &costs{}
		b.classes[class] = known
	}
	known.add(cost)
	return ratio
}

// least returns the 20th percentile of the cost per key.
func (c *costs) least() (cost float64, known bool) {
	if c == nil || len(c.ring) < costsMin {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(c.ring))
	return sorted[len(sorted)/5], true
}

func (c *costs) add(cost float64) {
	if len(c.ring) < costsKept {
		c.ring = append(c.ring, cost)
		return
	}
	c.ring[c.next] = cost
	c.next = (c.next + 1) % costsKept
}
