package lifecycle

import (
	"context"
	"errors"
	"sync"
)

// Together runs loops side by side that end when their context does, and returns when all have
// ended. One that ends with an error ends the others.
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
