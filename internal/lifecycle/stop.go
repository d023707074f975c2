package lifecycle

import (
	"context"
	"errors"
	"time"
)

// errGraceOver is the cause of a hard stop that followed a soft one.
var errGraceOver = errors.New("the grace period after the stop is over")

// Stop is the hard stop of a loop whose context is its soft stop. After a soft stop the loop finishes the
// work in progress; a hard stop cancels that work. Use NewStop. It is safe for concurrent use.
type Stop struct {
	done  <-chan struct{}
	cause func() error
	now   context.CancelCauseFunc
}

// NewStop returns a Stop that is not stopped.
func NewStop() *Stop {
	ctx, now := context.WithCancelCause(context.Background())
	return &Stop{ctx.Done(), func() error { return context.Cause(ctx) }, now}
}

// Now stops the loop hard. The cause of the first call applies.
func (s *Stop) Now(cause error) { s.now(cause) }

// Done is closed by Now.
func (s *Stop) Done() <-chan struct{} { return s.done }

// After returns a context that ends at Now with its cause, or with errGraceOver when the grace period after
// the end of soft is over. After Now it has ended already. The caller must call release.
func (s *Stop) After(soft context.Context, grace func() time.Duration) (hard context.Context, release func()) {
	hard, cancel := context.WithCancelCause(context.WithoutCancel(soft))
	select {
	case <-s.done: // the goroutine below may be too late for the caller's first check
		cancel(s.cause())
	default:
	}
	released, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		var over <-chan time.Time
		softly := soft.Done()
		for {
			select {
			case <-released:
				return
			case <-s.done:
				cancel(s.cause())
				return
			case <-softly:
				timer := time.NewTimer(grace())
				defer timer.Stop()
				softly, over = nil, timer.C
			case <-over:
				cancel(errGraceOver)
				return
			}
		}
	}()
	return hard, func() {
		close(released)
		<-ended
		cancel(nil)
	}
}
