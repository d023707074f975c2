package schedule

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Schedules that fail, however many, leave one place to those that do not; nobody is in
// twice, and a place that is given back is taken.
func TestCrew_LeavesAPlaceToThoseThatDoNotFail(t *testing.T) {
	t.Parallel()
	for connections, places := range map[int]int{3: 1, 4: 1, 8: 2, 16: 4, 1000: 4} {
		c := newCrew(connections)
		require.Equal(t, places, c.places)
		var in []due
		for i := range 10 {
			if d := (due{Name: fmt.Sprint("bad-", i), Failing: true}); c.enter(d) {
				in = append(in, d)
			}
		}
		require.Len(t, in, max(places-1, 1))
		require.False(t, c.enter(in[0]))
		require.Equal(t, places > 1, c.enter(due{Name: "good"}))
		require.False(t, c.enter(due{Name: "late"}))
		require.Len(t, c.busy(), places)
		joined := make(chan bool)
		go func() { joined <- c.join(context.Background(), due{Name: "late"}) }()
		c.leave(in[0])
		require.True(t, <-joined)
		require.Len(t, c.left, 1)
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		require.False(t, c.join(cancelled, due{Name: "later"}))
	}
}
