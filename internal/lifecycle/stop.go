package lifecycle

import (
	"context"
	"errors"
	"time"
)

// errGraceOver is the cause of a hard stop that followed a soft one.
var errGraceOver = errors.New("the grace period after the stop is over")

// Stop is the hard stop of a loop whose soft stop is the end of its context: after the soft
// one it finishes what it has begun, after the hard one it cuts that off. The zero value is
// of no use. It is safe for concurrent use.
type Stop struct {
	done  <-chan struct{}
	cause func() error
	now   context.CancelCauseFunc
}

// NewStop returns a Stop that has not come.
func NewStop() *Stop {
	ctx, now := context.WithCancelCause(context.Background())
	return &Stop{ctx.Done(), func() error { return context.Cause(ctx) }, now}
}

// Now stops hard. Only the first call's cause counts.
func (s *Stop) Now(cause error) { s.now(cause) }

// Done is closed by Now.
func (s *Stop) Done() <-chan struct{} { return s.done }

// After returns a context that ends at Now, by its cause, or when the grace period that
// begins at the end of soft is over, by errGraceOver. After Now it has ended already. It must be
// released.
func (s *Stop) After(soft context.Context, grace func() time.Duration) (hard context.Context, release func()) {
	hard, cancel := context.WithCancelCause(context.WithoutCancel(soft))
	select {
	case <-s.done: // the goroutine below may come too late for the caller's first look
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
