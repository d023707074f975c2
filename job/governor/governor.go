package governor

import (
	"fmt"
	"time"
)

// Governor decides the size of the next chunk and the pause before it. It is a pure state machine without
// I/O, and the caller passes the time. A run calls it around every chunk, from one goroutine.
//
// Three inputs throttle a run, and the strictest applies:
//
//   - configured limits: rows per second, duty cycle;
//   - the server's vitals, which judge turns into pausing or slow walking;
//   - the run's own chunks: contention (see there) notices that they take longer than
//     unloaded ones.
type Governor struct {
	settings Settings
	size     int // keys per chunk at full speed
	begun    bool

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

// New returns the governor of one run. b holds the costs of unloaded chunks that this runner
// measured in earlier runs of the type, and is updated. Nil means none.
func New(s Settings, b *Baseline) Governor {
	if b == nil {
		b = NewBaseline()
	}
	g := Governor{density: 1, contention: contention{base: b, again: againFirst}}
	g.Configure(s)
	return g
}

// Health returns the configured health checks.
func (g *Governor) Health() HealthConfig { return g.settings.Health }

// Configure changes the settings and keeps the measurements.
func (g *Governor) Configure(s Settings) {
	if s.MaxRowsPerSecond != g.settings.MaxRowsPerSecond {
		g.rateAt = time.Time{} // a delay by the old limit does not apply to the new one
	}
	if s.DutyCycle != g.settings.DutyCycle {
		g.dutyAt = time.Time{}
	}
	g.settings = s
	if !g.begun {
		g.size = s.Chunk.InitialRows
	}
	g.resize(g.size)
	g.contention.configure(s)
	g.vitals.configure(s.Health)
}

func (g *Governor) resize(rows int) {
	g.size = min(max(rows, g.settings.Chunk.MinRows), g.settings.Chunk.MaxRows)
}

// Rows returns the maximum number of keys of the next chunk.
func (g *Governor) Rows() int {
	n := g.size
	if g.gentle() {
		n = min(n, g.contention.small)
	}
	if rate := g.settings.MaxRowsPerSecond; rate > 0 {
		allowed := float64(rate) * rateBurst.Seconds()
		n = min(n, int(min(allowed/max(g.density, 1e-6), float64(g.settings.Chunk.MaxRows))))
	}
	return min(max(n, g.settings.Chunk.MinRows), g.settings.Chunk.MaxRows)
}

// gentle reports whether the run walks in small chunks.
func (g *Governor) gentle() bool {
	return g.vitals.reaction >= gentle || g.contention.contended()
}

// Observe records a committed chunk: the keys it read, the rows it wrote, and its duration. now is the time
// of the commit.
func (g *Governor) Observe(now time.Time, read int, rows int64, took time.Duration) {
	if read <= 0 {
		return
	}
	took = max(took, time.Microsecond)
	began := now.Add(-took)
	asked := g.Rows()
	g.begun = true
	g.density += (float64(rows)/float64(read) - g.density) / 4

	g.rateAt = later(g.rateAt, began)
	if rate := g.settings.MaxRowsPerSecond; rate > 0 {
		g.rateAt = g.rateAt.Add(seconds(float64(rows) / float64(rate)))
		g.rated = g.rateAt.After(now)
	} else {
		g.rated = false
	}
	g.dutyAt = now.Add(rest(took, g.duty()))

	g.vitals.own++
	small := g.gentle()
	g.contention.observe(now, chunkCost{read, rows, took}, small)
	if small && took <= g.settings.Chunk.Target {
		return // its size is not comparable with full speed
	}
	if small || !g.gentle() {
		g.adapt(asked, read, took)
	}
}

// adapt aims at the size that would have met the target, but at most doubles and at least halves, so that
// one outlier (a checkpoint, a cold cache) does not swing it. A short last page is ignored.
func (g *Governor) adapt(asked, read int, took time.Duration) {
	if read < asked {
		return
	}
	ideal := float64(read) * float64(g.settings.Chunk.Target) / float64(took)
	if ideal > float64(g.size) && asked < g.size {
		return // the rate limit made it small
	}
	g.resize(int(min(max(ideal, float64(asked)/2), float64(asked)*2)))
}

// Shrink halves the size after a chunk that timed out.
func (g *Governor) Shrink() {
	g.begun = true
	g.resize(min(g.size, g.Rows()) / 2)
}

// duty returns the share of time that the run may spend in chunks.
func (g *Governor) duty() float64 {
	d := g.settings.DutyCycle
	if d <= 0 || d > 1 {
		d = 1
	}
	if g.vitals.reaction == slow {
		d = min(d, slowDuty)
	}
	return d
}

// ProbeDue reports whether a health probe is due, and takes it as begun: the next
// one is due an interval later, whatever becomes of this one.
func (g *Governor) ProbeDue(now time.Time) bool {
	return g.settings.Health.probes() && g.vitals.due(now, g.settings.Health.Interval)
}

// Judge records the result of a health probe.
func (g *Governor) Judge(now time.Time, v Vitals) { g.vitals.judge(now, v, g.settings.Health) }

// Pause returns the time to wait before the next chunk, zero for none, and the reason. The caller waits at
// most that long and calls Pause again, with a health probe in between if one is due.
func (g *Governor) Pause(now time.Time) (time.Duration, Throttle) {
	g.vitals.expire(now, g.settings.Health)
	wait := max(g.rateAt.Sub(now), g.dutyAt.Sub(now), g.contention.restAt.Sub(now), g.vitals.hold(now, g.settings.Health), 0)
	return wait, g.label.show(now, g.cause(now))
}

// cause returns the most urgent rule that throttles the run now.
func (g *Governor) cause(now time.Time) Throttle {
	switch {
	case g.vitals.verdict.Rule != "":
		return g.vitals.verdict
	case g.contention.told(now):
		return Throttle{ruleChunkLatency, g.contention.detail()}
	case g.rated && g.settings.MaxRowsPerSecond > 0:
		return Throttle{ruleRowsPerSecond, fmt.Sprintf("%d rows/s allowed", g.settings.MaxRowsPerSecond)}
	case g.settings.DutyCycle > 0 && g.settings.DutyCycle < 1:
		return Throttle{ruleDutyCycle, fmt.Sprintf("%v of the time in chunks", g.settings.DutyCycle)}
	}
	return Throttle{}
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
	shown Throttle
	spent float64 // changes not yet paid back
	at    time.Time
}

const (
	labelBurst  = 4
	labelRefill = 15 * time.Second
)

func (l *label) show(now time.Time, t Throttle) Throttle {
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
