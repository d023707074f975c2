package main

import (
	"math"
	"slices"
	"strings"
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

// ratio is the median of the ratios of two series, each taken within its round.
func ratio(a, b []float64) float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		ratios = append(ratios, a[i]/b[i])
	}
	return median(ratios)
}

// tenths returns the first and the last tenth of the values, at least one each.
func tenths(values []float64) (first, last []float64) {
	n := min(max(len(values)/10, 1), len(values))
	return values[:n], values[len(values)-n:]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func perSecond(n int64, d time.Duration) float64 { return float64(n) / d.Seconds() }

// turn is one of what is compared: its name, and what measures it once.
type turn struct {
	name    string
	measure func() float64
}

// inTurns measures everything once a round and returns what the rounds came to, in the order
// of the turns. Of two, each is first in turn.
func (e *env) inTurns(unit string, turns ...turn) [][]float64 {
	values := make([][]float64, len(turns))
	for round := range e.rounds {
		said := make([]string, len(turns))
		for i := range turns {
			if len(turns) == 2 {
				i = (i + int(round)) % 2
			}
			value := turns[i].measure()
			values[i] = append(values[i], value)
			said[i] = turns[i].name + " " + quantity(value, unit)
		}
		first, last := values[0][round], values[len(turns)-1][round]
		e.say("  %d/%d: %s; first to last %.3f", round+1, e.rounds, strings.Join(said, ", "), first/last)
	}
	return values
}
