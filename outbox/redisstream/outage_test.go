package redisstream

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// An error that comes after a later call was answered is no outage, and one that lasts is.
func TestOutage_ALateErrorIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		o := outage{log: zerolog.New(&log)}
		_ = o.tried(io.EOF)
		require.True(t, o.is(), "what has never answered is away at once")
		_ = o.tried(nil)
		_ = o.tried(io.EOF)
		require.False(t, o.is())
		require.Equal(t, 1, strings.Count(log.String(), "is away"))
		require.Equal(t, 1, strings.Count(log.String(), "is back"))
		<-time.After(2 * lateError)
		_ = o.tried(io.EOF)
		require.True(t, o.is())
		require.Equal(t, 2, strings.Count(log.String(), "is away"))
	})
}
