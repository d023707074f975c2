package lifecycle

import (
	"context"
	"time"
)

// Pause waits for d, or returns the cause of ctx's end before it.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
