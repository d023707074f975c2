package job

import (
	"fmt"
	"time"
)

// governor decides the size of the next chunk and the pause before it. It is a pure state machine without
// I/O, and the caller passes the time. A run calls it around every chunk, from one goroutine.
//
// Three inputs throttle a run, and the strictest applies:
//
//   - configured limits: rows per second, duty cycle;
//   - the server's vitals, which judge turns into pausing or slow walking;
//   - the run's own chunks: contention (see there) notices that they take longer than
//     unloaded ones.
type governor struct {
	s     loadSettings
	size  int // keys per chunk at full speed
	begun bool

	rateAt     time.Time // the rate limit lets the next chunk begin
	dutyAt     time.Time // the duty cycle does
	rated      bool      // the rate limit has held back the last chunk
	density    float64   // rows written per key examined, averaged
	contention contention

	vitals vitalSigns
	label  label
}

// slowDuty is the duty cycle of slow walking: a quarter leaves the server most of
// the time and still ends the job.
const slowDuty = 0.25

// rateBurst is how much of a second's allowance one chunk may write at once.
const rateBurst = 250 * time.Millisecond

// newGovernor returns the governor of one run. b holds the costs of unloaded chunks that this runner
// measured in earlier runs of the type, and is updated. Nil means none.
func newGovernor(s loadSettings, b *baseline) governor {
	if b == nil {
		b = newBaseline()
	}
	g := governor{density: 1, contention: contention{base: b, again: againFirst}}
	g.configure(s)
	return g
}

// configure changes the settings and keeps the measurements.
func (g *governor) configure(s loadSettings) {
	if s.maxRowsPerSecond != g.s.maxRowsPerSecond {
		g.rateAt = time.Time{} // a delay by the old limit does not apply to the new one
	}
	if s.dutyCycle != g.s.dutyCycle {
		g.dutyAt = time.Time{}
	}
	g.s = s
	if !g.begun {
		g.size = s.chunk.InitialRows
	}
	g.resize(g.size)
	g.contention.configure(s)
	g.vitals.configure(s.health)
}

func (g *governor) resize(rows int) {
	g.size = min(max(rows, g.s.chunk.MinRows), g.s.chunk.MaxRows)
}

// rows returns the maximum number of keys of the next chunk.
func (g *governor) rows() int {
	n := g.size
	if g.gentle() {
		n = min(n, g.contention.small)
	}
	if rate := g.s.maxRowsPerSecond; rate > 0 {
		allowed := float64(rate) * rateBurst.Seconds()
		n = min(n, int(min(allowed/max(g.density, 1e-6), float64(g.s.chunk.MaxRows))))
	}
	return min(max(n, g.s.chunk.MinRows), g.s.chunk.MaxRows)
}

// gentle reports whether the run walks in small chunks.
func (g *governor) gentle() bool {
	return g.vitals.reaction >= gentle || g.contention.contended()
}

// observe records a committed chunk: the keys it read, the rows it wrote, and its duration. now is the time
// of the commit.
func (g *governor) observe(now time.Time, read int, rows int64, took time.Duration) {
	if read <= 0 {
		return
	}
	took = max(took, time.Microsecond)
	began := now.Add(-took)
	asked := g.rows()
	g.begun = true
	g.density += (float64(rows)/float64(read) - g.density) / 4

	g.rateAt = later(g.rateAt, began)
	if rate := g.s.maxRowsPerSecond; rate > 0 {
		g.rateAt = g.rateAt.Add(seconds(float64(rows) / float64(rate)))
		g.rated = g.rateAt.After(now)
	} else {
		g.rated = false
	}
	g.dutyAt = now.Add(rest(took, g.duty()))

	g.vitals.own++
	small := g.gentle()
	g.contention.observe(now, chunkCost{read, rows, took}, small)
	if small && took <= g.s.chunk.Target {
		return // its size is not comparable with full speed
	}
	if small || !g.gentle() {
		g.adapt(asked, read, took)
	}
}

// adapt aims at the size that would have met the target, but at most doubles and at least halves, so that
// one outlier (a checkpoint, a cold cache) does not swing it. A short last page is ignored.
func (g *governor) adapt(asked, read int, took time.Duration) {
	if read < asked {
		return
	}
	ideal := float64(read) * float64(g.s.chunk.Target) / float64(took)
	if ideal > float64(g.size) && asked < g.size {
		return // the rate limit made it small
	}
	g.resize(int(min(max(ideal, float64(asked)/2), float64(asked)*2)))
}

// shrink halves the size after a chunk that timed out.
func (g *governor) shrink() {
	g.begun = true
	g.resize(min(g.size, g.rows()) / 2)
}

// duty returns the share of time that the run may spend in chunks.
func (g *governor) duty() float64 {
	d := g.s.dutyCycle
	if d <= 0 || d > 1 {
		d = 1
	}
	if g.vitals.reaction == slow {
		d = min(d, slowDuty)
	}
	return d
}

// probeDue reports whether a health probe is due, and takes it as begun: the next
// one is due an interval later, whatever becomes of this one.
func (g *governor) probeDue(now time.Time) bool {
	return g.s.health.probes() && g.vitals.due(now, g.s.health.Interval)
}

// judge records the result of a health probe.
func (g *governor) judge(now time.Time, v vitals) { g.vitals.judge(now, v, g.s.health) }

// pause returns the time to wait before the next chunk, zero for none, and the reason. The caller waits at
// most that long and calls pause again, with a health probe in between if one is due.
func (g *governor) pause(now time.Time) (time.Duration, throttle) {
	g.vitals.expire(now, g.s.health)
	wait := max(g.rateAt.Sub(now), g.dutyAt.Sub(now), g.contention.restAt.Sub(now), g.vitals.hold(now, g.s.health), 0)
	return wait, g.label.show(now, g.cause(now))
}

// cause returns the most urgent rule that throttles the run now.
func (g *governor) cause(now time.Time) throttle {
	switch {
	case g.vitals.verdict.Rule != "":
		return g.vitals.verdict
	case g.contention.told(now):
		return throttle{ruleChunkLatency, g.contention.detail()}
	case g.rated && g.s.maxRowsPerSecond > 0:
		return throttle{ruleRowsPerSecond, fmt.Sprintf("%d rows/s allowed", g.s.maxRowsPerSecond)}
	case g.s.dutyCycle > 0 && g.s.dutyCycle < 1:
		return throttle{ruleDutyCycle, fmt.Sprintf("%v of the time in chunks", g.s.dutyCycle)}
	}
	return throttle{}
}

// rest returns the pause after a chunk that maintains the duty cycle d.
func rest(took time.Duration, d float64) time.Duration {
	return time.Duration(float64(took) * (1/d - 1))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// label limits the changes of the displayed rule, because each change is an event: a burst of four, then one
// every fifteen seconds. Only the display lags behind, not the throttling.
type label struct {
	shown throttle
	spent float64 // changes not yet paid back
	at    time.Time
}

const (
	labelBurst  = 4
	labelRefill = 15 * time.Second
)

func (l *label) show(now time.Time, t throttle) throttle {
	if t.Rule == l.shown.Rule {
		l.shown = t
		return t
	}
	if !l.at.IsZero() {
		l.spent = max(l.spent-float64(now.Sub(l.at))/float64(labelRefill), 0)
	}
	l.at = now
	if l.spent+1 <= labelBurst {
		l.spent++
		l.shown = t
	}
	return l.shown
}
