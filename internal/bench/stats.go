package bench

import (
	"math"
	"slices"
	"time"
)

// median is the middle value, or the mean of the two in the middle; NaN of
// nothing.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// percentile is the smallest value that at least p per cent of the values do not
// exceed (nearest rank): always one of them, so a p99 of few values is their
// maximum. p is in (0, 100]; NaN of nothing.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// tenths returns the first and the last tenth of the values, at least one each.
func tenths(values []float64) (first, last []float64) {
	if len(values) == 0 {
		return nil, nil
	}
	n := max(len(values)/10, 1)
	return values[:n], values[len(values)-n:]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// perSecond is a speed; 0 when no time passed.
func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
