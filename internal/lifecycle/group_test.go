package lifecycle_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// An error of one loop ends the others, and each has ended when Together returns.
func TestTogether_OneErrorEndsAll(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	ended := false
	err := lifecycle.Together(t.Context(),
		func(ctx context.Context) error {
			<-ctx.Done()
			ended = true
			return nil
		},
		func(context.Context) error { return wrong },
	)
	require.ErrorIs(t, err, wrong)
	require.True(t, ended)
}

// One that ends without an error leaves the others alone.
func TestTogether_AnEndIsNoError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan struct{})
	require.NoError(t, lifecycle.Together(ctx,
		func(context.Context) error {
			close(first)
			return nil
		},
		func(ctx context.Context) error {
			<-first
			if err := ctx.Err(); err != nil {
				return err
			}
			cancel()
			return nil
		},
	))
}
