package metrics

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// run starts a loop that ends with its context, or with what is sent.
func run(ctx context.Context, loop func(context.Context) error) (ended chan error) {
	ended = make(chan error, 1)
	go func() { ended <- loop(ctx) }()
	return ended
}

func TestHealth_FromStartToStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const every = 15 * time.Second
		h := NewHealth(every)
		ready := func(want ...string) {
			t.Helper()
			require.ElementsMatch(t, want, h.Ready(time.Now()))
		}
		ready("the process is starting", "the database has not answered yet")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		fail := make(chan error)
		loop := func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return nil
			case err := <-fail:
				return err
			}
		}
		runner, relay := h.Loop("runner", loop), h.Loop("relay", loop)
		first := run(ctx, runner)
		synctest.Wait()
		h.Polled(time.Now(), "", nil)
		ready("the process is starting")
		second := run(ctx, relay)
		synctest.Wait()
		ready()

		h.Polled(time.Now(), "the schema is at version 3, this belfry needs 6", nil)
		ready("the schema is at version 3, this belfry needs 6")
		h.Polled(time.Now(), "", nil)
		ready()
		<-time.After(10 * time.Second)
		h.Polled(time.Now(), "", errors.New("connection refused"))
		ready("the database answered last 10s ago")
		require.Empty(t, h.Live(time.Now()), "to start it again would not help")
		h.Polled(time.Now(), "", nil)
		ready()
		<-time.After(2*every + pollTimeout)
		ready()
		<-time.After(time.Second) // no poll ends
		ready("the database answered last 36s ago")
		<-time.After(hangs*h.patience - 36*time.Second)
		require.Empty(t, h.Live(time.Now()))
		<-time.After(time.Second)
		require.Equal(t, []string{"no poll of the database has ended for 1m46s: the process hangs"}, h.Live(time.Now()))
		h.Polled(time.Now(), "", errors.New("connection refused"))
		require.Empty(t, h.Live(time.Now()), "who looks and finds it away does not hang")
		h.Polled(time.Now(), "", nil)

		fail <- nil
		synctest.Wait()
		require.Len(t, h.Live(time.Now()), 1)
		require.Regexp(t, "^loop (runner|relay) has ended$", h.Live(time.Now())[0])
		ready(h.Live(time.Now())[0])
		h.Stop()
		require.Empty(t, h.Live(time.Now()), "who is told to end is not to be killed meanwhile")
		ready("the process is stopping")
		stop()
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		require.Empty(t, h.Live(time.Now()))
	})
}

func TestPoller_ReportsToHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, h := New(Build{}), NewHealth(time.Minute)
		answers := make(chan error, 1)
		var hang atomic.Bool
		l := m.Poller(time.Minute, h, func(ctx context.Context) (string, error) {
			if hang.Load() {
				<-ctx.Done()
				return "", ctx.Err()
			}
			select {
			case err := <-answers:
				return "", err
			default:
				return "too new", nil
			}
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := run(ctx, h.Loop("poll", l.Run))
		synctest.Wait()
		require.Equal(t, []string{"too new"}, h.Ready(time.Now()))
		at, _ := m.value(t, "belfry_last_database_poll_timestamp_seconds")
		require.InDelta(t, float64(time.Now().Unix()), at, 1e-3)
		answers <- errors.New("away")
		<-time.After(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"the database answered last 1m0s ago"}, h.Ready(time.Now()))
		m.shows(t, map[string]float64{"belfry_database_poll_failures_total": 1, "belfry_last_database_poll_timestamp_seconds": at})
		hang.Store(true)
		<-time.After(time.Minute + pollTimeout)
		synctest.Wait()
		m.shows(t, map[string]float64{"belfry_database_poll_failures_total": 2})
		<-time.After(time.Minute - pollTimeout) // it hangs again
		stop()
		require.NoError(t, <-ended)
		m.shows(t, map[string]float64{"belfry_database_poll_failures_total": 2})
	})
}
