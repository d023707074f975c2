package outboxtest_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/dev/outboxtest"
)

func TestExercise_PassesACarrier(t *testing.T) {
	t.Parallel()
	outboxtest.Exercise(t, func(testing.TB) *outboxtest.Subject { return carry("") })
}

// Every check fails on a carrier that is wrong in one way, so that no check is for show, and
// none on one that is not: a few carriers at a time, or the machine alone would be the fault.
func TestLong_ExerciseFailsAWrongCarrier(t *testing.T) {
	t.Parallel()
	failed := make(map[fault][]string)
	var mu sync.Mutex
	var carriers errgroup.Group
	carriers.SetLimit(4)
	for _, f := range append([]fault{""}, faults...) {
		carriers.Go(func() error {
			var checks sync.WaitGroup
			for _, c := range outboxtest.Checks() {
				checks.Go(func() {
					if fails(t, c, f) {
						mu.Lock()
						defer mu.Unlock()
						failed[f] = append(failed[f], c.Name)
					}
				})
			}
			checks.Wait()
			return nil
		})
	}
	require.NoError(t, carriers.Wait())
	require.Empty(t, failed[""], "of a carrier with no fault")
	found := make(map[string]bool)
	for _, f := range faults {
		require.NotEmpty(t, failed[f], "no check finds a carrier that %s", f)
		for _, name := range failed[f] {
			found[name] = true
		}
	}
	for _, c := range outboxtest.Checks() {
		require.True(t, found[c.Name], "%s never fails", c.Name)
	}
}

// fails reports whether a check fails on a carrier with a fault.
func fails(t *testing.T, c outboxtest.Check, f fault) bool {
	t.Helper()
	s := carry(f)
	if f != "" { // what never comes is not waited for long
		s.Patience = 2 * time.Second
	}
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(r, s)
	}()
	<-ended
	return r.has()
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	failed bool
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(string, ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) FailNow() {
	r.Errorf("")
	runtime.Goexit()
}

func (r *recorder) has() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
