package main

import (
	"math"
	"slices"
	"time"
)

// median is the middle value, or the mean of the two in the middle; NaN of nothing. A
// quarter of a rank above the half is the upper one of two, and the same where there is one.
func median(values []float64) float64 {
	return (percentile(values, 50) + percentile(values, 50+25/float64(max(len(values), 1)))) / 2
}

// percentile is the smallest value that at least p per cent of the values do not exceed
// (nearest rank): always one of them, so a p99 of few values is their maximum. p is in
// (0, 100]; NaN of nothing.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(len(values))))
	return slices.Sorted(slices.Values(values))[min(max(rank, 1), len(values))-1]
}

// tenths returns the first and the last tenth of the values, at least one each.
func tenths(values []float64) (first, last []float64) {
	n := min(max(len(values)/10, 1), len(values))
	return values[:n], values[len(values)-n:]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func perSecond(n int64, d time.Duration) float64 { return float64(n) / d.Seconds() }

// pair is what two alternatives came to, round by round, and the ratio of each round.
type pair struct{ a, b, ratio []float64 }

// inTurns runs two measurements of a speed as often as there are rounds, each first in turn.
func (e *env) inTurns(nameA string, a func() (float64, error), nameB string, b func() (float64, error)) (p pair, err error) {
	for round := range e.rounds {
		var speed [2]float64
		for i := range int64(2) {
			which := (round + i) % 2
			if speed[which], err = [2]func() (float64, error){a, b}[which](); err != nil {
				return p, err
			}
		}
		p.a, p.b, p.ratio = append(p.a, speed[0]), append(p.b, speed[1]), append(p.ratio, speed[0]/speed[1])
		e.say("  %d/%d: %s %s/s, %s %s/s, ratio %.3f", round+1, e.rounds, nameA, number(speed[0]), nameB, number(speed[1]), speed[0]/speed[1])
	}
	return p, nil
}
