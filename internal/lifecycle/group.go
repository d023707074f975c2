package lifecycle

import (
	"context"
	"errors"
	"sync"
)

// Together runs loops concurrently and returns when all have ended. Each loop ends when its context ends. A
// loop that returns an error cancels the others.
func Together(ctx context.Context, loops ...func(context.Context) error) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	errs := make([]error, len(loops))
	var group sync.WaitGroup
	for i, loop := range loops {
		group.Go(func() {
			if errs[i] = loop(ctx); errs[i] != nil {
				end()
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
