package main

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/printer"
)

// pace measures how fast a count grows, as an exponential average over some seconds.
type pace struct {
	at    time.Time // of the last look; zero: none yet
	n     int64
	rate  float64 // a second
	known bool
	since time.Time // when it grew first after a look; zero: not yet
}

const (
	paceWindow = 5 * time.Second // over which a pace forgets
	moving     = 0.5             // a second: below that nothing goes on, or an average fades out
	steady     = 3 * time.Second // of growth before it says how long the rest takes: at first there is little
)

// look takes note of the count at a time.
func (p *pace) look(now time.Time, n int64) {
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

// left is how long so many more take; negative: it cannot be told, or not yet.
func (p *pace) left(rest int64) time.Duration {
	if p.rate < moving || p.since.IsZero() || p.at.Sub(p.since) < steady {
		return -1
	}
	return time.Duration(float64(rest) / p.rate * float64(time.Second))
}

// text is the rate, and how long the rest takes at that; "" until it is known.
func (p *pace) text(rest int64) string {
	if !p.known {
		return ""
	}
	text := fmt.Sprintf(", %s/s", printer.Grouped(int64(p.rate+0.5)))
	if left := p.left(rest); left >= 0 && rest > 0 {
		text += ", " + printer.Short(left) + " left"
	}
	return text
}

// bar draws a part of a whole in so many characters.
func bar(part, whole int64, width int) string {
	const full, empty = "########################################", "----------------------------------------"
	width = min(width, len(full))
	n := 0
	if whole > 0 {
		n = int(max(0, min(int64(width), int64(width)*part/whole)))
	}
	return "[" + full[:n] + empty[:width-n] + "]"
}
