package jetstream

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// An error that comes after a later call was answered is no outage, and one that lasts is.
func TestOutage_ALateErrorIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		o := outage{log: zerolog.New(&log)}
		_ = o.tried(nats.ErrTimeout)
		require.True(t, o.gone, "what has never answered is away at once")
		_ = o.tried(nil)
		_ = o.tried(nats.ErrTimeout)
		require.False(t, o.gone)
		require.Equal(t, 1, strings.Count(log.String(), "is away"))
		require.Equal(t, 1, strings.Count(log.String(), "is back"))
		<-time.After(2 * lateError)
		_ = o.tried(nats.ErrTimeout)
		require.True(t, o.gone)
		require.Equal(t, 2, strings.Count(log.String(), "is away"))
		_ = o.tried(nil)
		o.disconnected(nats.ErrDisconnected)
		require.True(t, o.gone, "the connection itself is never late")
	})
}
