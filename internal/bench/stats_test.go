package bench

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{3, 1, 2}, 2},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		require.InDelta(t, c.want, median(c.values), 0, "%v", c.values)
	}
	require.True(t, math.IsNaN(median(nil)))
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	for _, c := range []struct {
		values  []float64
		p, want float64
	}{
		{hundred, 50, 50}, {hundred, 99, 99}, {hundred, 99.5, 100}, {hundred, 100, 100}, {hundred, 0.1, 1},
		{[]float64{5, 1}, 50, 1}, {[]float64{5, 1}, 99, 5}, {[]float64{9}, 1, 9},
	} {
		require.InDelta(t, c.want, percentile(c.values, c.p), 0, "p%v", c.p)
	}
	require.True(t, math.IsNaN(percentile(nil, 50)))
}

// A percentile is one of the values, and at least p per cent do not exceed it.
func TestPercentile_CoversItsShare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 50).Draw(t, "values")
		p := rapid.Float64Range(0.1, 100).Draw(t, "p")
		before := slices.Clone(values)
		got := percentile(values, p)
		require.Equal(t, before, values, "the caller's values keep their order")
		require.Contains(t, values, got)
		within := 0
		for _, v := range values {
			if v <= got {
				within++
			}
		}
		require.GreaterOrEqual(t, float64(within)+1e-9, p/100*float64(len(values)))
	})
}

func TestTenths(t *testing.T) {
	t.Parallel()
	values := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21}
	first, last := tenths(values)
	require.Equal(t, []float64{1, 2}, first)
	require.Equal(t, []float64{20, 21}, last)
	first, last = tenths([]float64{4, 5})
	require.Equal(t, []float64{4}, first)
	require.Equal(t, []float64{5}, last)
	first, last = tenths(nil)
	require.Empty(t, first)
	require.Empty(t, last)
}

func TestPerSecond(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 500, perSecond(100, 200*time.Millisecond), 1e-9)
	require.Zero(t, perSecond(100, 0))
}
