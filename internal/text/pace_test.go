package text

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPaceText_OmitsUnknownParts(t *testing.T) {
	t.Parallel()
	require.Empty(t, PaceText(nil, time.Minute))
	require.Equal(t, ", 0/s", PaceText(new(0.4), -1))
	require.Equal(t, ", 180/s, 10s left", PaceText(new(180.0), 10*time.Second))
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
