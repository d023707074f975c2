package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

func TestStop_HardFollowsSoftByTheGracePeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stop := lifecycle.NewStop()
		soft, end := context.WithCancel(t.Context())
		grace := time.Minute
		hard, release := stop.After(soft, func() time.Duration { return grace })
		defer release()
		grace = time.Second // a reload; what holds when the stop comes counts
		<-time.After(time.Hour)
		require.NoError(t, hard.Err())
		end()
		<-time.After(time.Second - 1)
		synctest.Wait()
		require.NoError(t, hard.Err())
		<-time.After(time.Nanosecond)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(hard), lifecycle.ErrGraceOver)
		select {
		case <-stop.Done():
			require.Fail(t, "nobody called Now")
		default:
		}
	})
}

func TestStop_NowCutsEachLoopOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stop := lifecycle.NewStop()
		soft, end := context.WithCancel(t.Context())
		first, release := stop.After(soft, func() time.Duration { return time.Minute })
		end()
		<-time.After(time.Second)
		cause := errors.New("power")
		stop.Now(cause)
		stop.Now(errors.New("later"))
		<-stop.Done()
		<-first.Done()
		require.Equal(t, cause, context.Cause(first))
		release()
		second, release := stop.After(t.Context(), func() time.Duration { return time.Minute })
		require.Equal(t, cause, context.Cause(second), "what was stopped stays so, from the first look on")
		release()
	})
}

func TestStop_ReleasedContextHasEnded(t *testing.T) {
	t.Parallel()
	hard, release := lifecycle.NewStop().After(t.Context(), func() time.Duration { return 0 })
	require.NoError(t, hard.Err())
	release()
	require.ErrorIs(t, hard.Err(), context.Canceled)
}
