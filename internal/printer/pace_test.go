package printer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// told is the text of a pace and so many more.
func told(p Pace, rest int64) string {
	if !p.known {
		return PaceText(nil, p.Left(rest))
	}
	return PaceText(&p.rate, p.Left(rest))
}

func noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

func TestPace_ForgetsOverSeconds(t *testing.T) {
	t.Parallel()
	now := noon()
	var p Pace
	require.Empty(t, told(p, 100))
	p.Look(now, 1000)
	require.Empty(t, told(p, 100), "one look is no rate")
	require.Negative(t, p.Left(100))
	p.Look(now.Add(time.Second), 1100)
	require.Equal(t, ", 100/s", told(p, 1000), "a second is no basis for a time: it was a far too long one when a delivery began")
	p.Look(now.Add(time.Second), 1200) // the clock stands still
	require.InDelta(t, 100, p.rate, 0.001)
	p.Look(now.Add(2*time.Second), 1600)
	require.InDelta(t, 180, p.rate, 0.001, "a fifth of the way from 100 to 500, the window being five seconds")
	p.Look(now.Add(12*time.Second), 1600)
	require.Equal(t, ", 0/s", told(p, 1000), "it stands still for longer than the window")
	p.Look(now.Add(20*time.Second), 100)
	require.Zero(t, p.rate, "fewer are no negative rate")
	p = Pace{}
	for second := range 4 {
		p.Look(now.Add(time.Duration(second)*time.Second), 0)
	}
	for second := range 4 {
		p.Look(now.Add(time.Duration(4+second)*time.Second), int64(100*(1+second)))
		require.Equal(t, second >= 2, p.Left(1000) >= 0, "after %d seconds of growth", second+1)
	}
	fading := Pace{rate: 0.4, known: true}
	require.Equal(t, ", 0/s", told(fading, 1_000_000), "an average that fades out tells no time")
}

func TestBar_StaysInItsBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part, whole int64
		want        string
	}{{0, 0, "[----------]"}, {0, 10, "[----------]"}, {5, 10, "[#####-----]"}, {10, 10, "[##########]"}, {20, 10, "[##########]"}, {-1, 10, "[----------]"}} {
		require.Equal(t, c.want, Bar(c.part, c.whole, 10))
	}
}

func TestCountedTo_SaysThatThereAreMore(t *testing.T) {
	t.Parallel()
	require.Equal(t, "9", Bounded(9, 10_000))
	require.Equal(t, "10,000", Bounded(10_000, 10_000))
	require.Equal(t, "10,000+", Bounded(10_001, 10_000))
	require.Equal(t, "1 job", CountedTo(1, 10_000, "job"))
	require.Equal(t, "10,000 jobs", CountedTo(10_000, 10_000, "job"))
	require.Equal(t, "10,000+ jobs", CountedTo(10_001, 10_000, "job"))
}
