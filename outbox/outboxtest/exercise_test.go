package outboxtest_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/outboxtest"
)

func TestExercise_PassesACarrier(t *testing.T) {
	t.Parallel()
	outboxtest.Exercise(t, func(testing.TB) *outboxtest.Subject { return carry("") })
}

// Every check fails on a carrier that is wrong in one way, so that no check is for show.
func TestLong_ExerciseFailsAWrongCarrier(t *testing.T) {
	t.Parallel()
	failed := make(map[string][]fault)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, f := range faults {
		for _, c := range outboxtest.Checks() {
			all.Go(func() {
				s := carry(f)
				s.Patience = 2 * time.Second
				r := &recorder{TB: t}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					c.Run(r, s)
				}()
				<-ended
				mu.Lock()
				defer mu.Unlock()
				if r.has() {
					failed[c.Name] = append(failed[c.Name], f)
				}
			})
		}
	}
	all.Wait()
	for _, c := range outboxtest.Checks() {
		require.NotEmpty(t, failed[c.Name], "%s never fails", c.Name)
	}
	found := make(map[fault]bool)
	for _, list := range failed {
		for _, f := range list {
			found[f] = true
		}
	}
	for _, f := range faults {
		require.True(t, found[f], "no check finds a carrier that %s", f)
	}
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
