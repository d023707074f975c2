package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

func TestPause_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	require.NoError(t, lifecycle.Pause(ctx, time.Millisecond))
	cause := errors.New("stopped")
	time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
	require.ErrorIs(t, lifecycle.Pause(ctx, time.Hour), cause)
}
