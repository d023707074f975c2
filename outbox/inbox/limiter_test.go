package inbox

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLimiter_RemembersABoundedNumberOfReaders(t *testing.T) {
	t.Parallel()
	l := newLimiter(Config{RatePerSecond: 1, Burst: 2})
	l.most = 10
	now := time.Now()
	require.Zero(t, l.take("2", now))
	require.Zero(t, l.take("2", now))
	require.Equal(t, time.Second, l.take("2", now))
	require.Equal(t, time.Second, l.take("2", now), "a rejected request is not counted")
	require.Zero(t, l.take("2", now.Add(time.Second)))
	for i := range 1000 {
		if i%10 == 0 {
			require.NotZero(t, l.take("2", now.Add(time.Second)), "an active reader is not forgotten")
		}
		require.Zero(t, l.take(strconv.Itoa(100+i), now))
		require.LessOrEqual(t, len(l.newer)+len(l.older), 20)
	}
}
