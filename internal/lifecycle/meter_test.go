package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMeter_ForgetsOverSeconds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var m Meter
	known := func() bool { _, known := m.Rate(); return known }
	m.Observe(now, 1000)
	require.False(t, known(), "one observation gives no rate")
	require.Negative(t, m.Left(100))
	m.Observe(now.Add(time.Second), 1100)
	require.True(t, known())
	require.InDelta(t, 100, m.rate, 0.001)
	require.Negative(t, m.Left(1000), "one second of growth gives no estimate: it was far too long when a delivery began")
	m.Observe(now.Add(time.Second), 1200) // the clock stands still
	require.InDelta(t, 100, m.rate, 0.001)
	m.Observe(now.Add(2*time.Second), 1600)
	require.InDelta(t, 180, m.rate, 0.001, "a fifth of the way from 100 to 500 with a window of five seconds")
	m.Observe(now.Add(12*time.Second), 1600)
	require.Zero(t, m.rate, "the count stood still for longer than the window")
	m.Observe(now.Add(20*time.Second), 100)
	require.Zero(t, m.rate, "a decrease gives no negative rate")
	m = Meter{}
	for second := range 4 {
		m.Observe(now.Add(time.Duration(second)*time.Second), 0)
	}
	for second := range 4 {
		m.Observe(now.Add(time.Duration(4+second)*time.Second), int64(100*(1+second)))
		require.Equal(t, second >= 2, m.Left(1000) >= 0, "after %d seconds of growth", second+1)
	}
	m.Observe(now.Add(17*time.Second), 400)
	m.Observe(now.Add(18*time.Second), 500)
	require.Negative(t, m.Left(1000), "a pause is in the average, such as that of a job that was stopped and resumed")
	m.Observe(now.Add(21*time.Second), 800)
	require.Positive(t, m.Left(1000))
	fading := Meter{rate: 0.4, known: true}
	require.Negative(t, fading.Left(1_000_000), "a fading average gives no estimate")
}
