package printer

import (
	"fmt"
	"time"
)

// Pace measures how fast a count grows, as an exponential average over some seconds. The
// zero value has not looked yet.
type Pace struct {
	at    time.Time // of the last look; zero: none yet
	n     int64
	rate  float64 // a second
	known bool
	since time.Time // when it grew first after a look; zero: not yet
}

// Moving is a rate a second: below it nothing goes on, or an average fades out.
const Moving = 0.5

const (
	paceWindow = 5 * time.Second // over which a pace forgets
	steady     = 3 * time.Second // of growth before it says how long the rest takes: at first there is little
)

// Rate is how much the count grows in a second; known: it was looked at twice.
func (p *Pace) Rate() (perSecond float64, known bool) { return p.rate, p.known }

// Look takes note of the count at a time.
func (p *Pace) Look(now time.Time, n int64) {
	took := now.Sub(p.at)
	switch {
	case p.at.IsZero():
	case took <= 0:
		return
	default:
		rate := max(float64(n-p.n)/took.Seconds(), 0)
		weight := min(float64(took)/float64(paceWindow), 1)
		if !p.known {
			weight = 1
		}
		p.rate += (rate - p.rate) * weight
		p.known = true
		if p.since.IsZero() && n > p.n {
			p.since = p.at
		}
	}
	p.at, p.n = now, n
}

// Left is how long so many more take; negative: it cannot be told, or not yet.
func (p *Pace) Left(rest int64) time.Duration {
	if p.rate < Moving || p.since.IsZero() || p.at.Sub(p.since) < steady {
		return -1
	}
	return time.Duration(float64(rest) / p.rate * float64(time.Second))
}

// PaceText is a rate a second, and how long the rest takes at that; "" without a rate. A left
// that is negative is not told.
func PaceText(perSecond *float64, left time.Duration) string {
	if perSecond == nil {
		return ""
	}
	text := fmt.Sprintf(", %s/s", Grouped(int64(*perSecond+0.5)))
	if left > 0 {
		text += ", " + Short(left) + " left"
	}
	return text
}

// Bar draws a part of a whole in so many characters.
func Bar(part, whole int64, width int) string {
	const full, empty = "########################################", "----------------------------------------"
	width = min(width, len(full))
	n := 0
	if whole > 0 {
		n = int(max(0, min(int64(width), int64(width)*part/whole)))
	}
	return "[" + full[:n] + empty[:width-n] + "]"
}
