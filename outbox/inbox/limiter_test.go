package inbox

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
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

// A reader has few requests in flight, and one mark; the marks of all readers have half of the pool.
func TestFlights_LimitReadersAndMarks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlights(Config{MaxConnections: 4})
		ctx, cancel := context.WithCancel(t.Context())
		var leaves []func()
		for range 3 {
			_, leave, err := f.enter(ctx, "2")
			require.NoError(t, err)
			leaves = append(leaves, leave)
		}
		began := time.Now()
		_, _, err := f.enter(ctx, "2")
		require.ErrorIs(t, err, errInFlight)
		require.Equal(t, maxQueue, time.Since(began))
		time.AfterFunc(maxQueue/2, leaves[0])
		_, leave, err := f.enter(ctx, "2")
		require.NoError(t, err, "it waited")
		leaves[0] = leave

		end := make(chan struct{})
		var marks sync.WaitGroup
		mark := func(reader string) error {
			one, leave, err := f.enter(ctx, reader)
			require.NoError(t, err)
			defer leave()
			return f.mark(ctx, one, func() error { <-end; return nil })
		}
		marks.Go(func() { require.NoError(t, mark("3")) })
		synctest.Wait()
		require.ErrorIs(t, mark("3"), errMarks, "the other mark of the reader")
		marks.Go(func() { require.NoError(t, mark("4")) })
		synctest.Wait()
		require.ErrorIs(t, mark("5"), errMarks, "half of the pool")
		_, leave, err = f.enter(ctx, "5")
		require.NoError(t, err)
		leave()
		close(end)
		marks.Wait()
		require.NoError(t, mark("5"))
		cancel()
		_, _, err = f.enter(ctx, "2")
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, f.by, 1)
		for _, leave := range leaves {
			leave()
		}
		require.Empty(t, f.by)
	})
}
