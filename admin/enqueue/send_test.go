package enqueue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/admintest"
)

// What is sent to somebody by an operation is an event with who sent it to which channel, once, and
// without what it says; what the application sends is none. Who is forgotten is in no event.
func TestSend_IsAnEvent(t *testing.T) {
	t.Parallel()
	d := admintest.Crowd(t)
	events := func() string {
		return d.One(`SELECT coalesce(string_agg(concat_ws(' ', name, kind, actor, detail - 'session_user'), '; ' ORDER BY id), '') FROM belfry.events WHERE subject = 'channel'`)
	}
	require.Empty(t, events())
	for range 2 {
		require.NoError(t, d.Run("send", "external_id", "u3", "title", "Hello u3", "idempotency_key", "order-17"))
	}
	sent := `3 sent_to ann@host {"activity": -4, "category": "activity"}`
	require.Equal(t, sent, events(), "once for its key")
	require.NoError(t, d.Run("jobs test-send", "id", "1", "to", "u3", "requested_by", "kim"))
	require.Equal(t, sent+`; 3 sent_to kim {"test_of": 1, "activity": -6, "category": "operator_notice"}`, events())
	require.Error(t, d.Run("send", "external_id", "u3", "title", "Hello", "category", "nonsense"))
	require.Error(t, d.Run("jobs test-send", "id", "99", "to", "u3"))

	require.NoError(t, d.Run("events list", "of", "channel"))
	require.Regexp(t, `(?m)^20\S+ \S+ +kim +channel +3 +sent_to +activity -6, a test of job 1 *$`, d.Out)
	require.Regexp(t, `(?m)^20\S+ \S+ +ann@host +channel +3 +sent_to +activity -4 *$`, d.Out)
	require.NoError(t, d.Run("channels events", "channel", "3"))
	require.Contains(t, d.Out, "a test of job 1")
	require.Contains(t, d.Kept(), "events")
	require.NoError(t, d.Run("channels forget", "channel", "3"))
	require.Empty(t, d.Kept())
	require.Equal(t, "2", d.One(`SELECT count(*)::text FROM belfry.events WHERE kind = 'sent_to' AND name = ''`), "that it was done is kept")
}
