package outbox

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// An error that comes after a later call was answered is no outage, and one that lasts is.
func TestCarrierOutage_ALateErrorIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		is := func(of error) func(error) bool { return func(err error) bool { return errors.Is(err, of) } }
		o := NewCarrierOutage(zerolog.New(&log), "some", is(io.EOF), is(io.ErrShortWrite))
		said := func(text string) int { return strings.Count(log.String(), text) }
		require.Equal(t, io.EOF, o.Observe(io.EOF))
		require.True(t, o.Lasts(), "what has never answered is away at once")
		require.NoError(t, o.Observe(nil))
		_ = o.Observe(io.EOF)
		require.False(t, o.Lasts())
		require.Equal(t, 1, said("is away"))
		require.Equal(t, 1, said("is back"))
		<-time.After(2 * lateError)
		_, _ = o.Observe(io.EOF), o.Observe(io.EOF)
		require.True(t, o.Lasts())
		require.Equal(t, 2, said("is away"))
		_ = o.Observe(nil)
		o.Disconnected(io.ErrClosedPipe)
		require.True(t, o.Lasts(), "the connection itself is never late")
		_, _ = o.Observe(io.ErrShortWrite), o.Observe(io.ErrShortWrite)
		require.Equal(t, 1, said("returns errors"))
		<-time.After(2 * refusalRepeats)
		_, _ = o.Observe(io.ErrShortWrite), o.Observe(io.ErrNoProgress)
		require.Equal(t, 2, said("returns errors"), "once a minute, and only what is to be said")
		require.True(t, o.Lasts(), "a refusal is no answer that was asked for")
	})
}
