package recipients_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/admintest"
)

// What an operator records and takes back is an event with its actor, once for each change; what the
// application records is none.
func TestOptOuts_AnOperatorsAreEvents(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`INSERT INTO belfry.channels (external_id, platform) VALUES ('u1', 'ios')`)
	events := func() string {
		return d.One(`SELECT coalesce(string_agg(concat_ws(' ', name, kind, actor, reason, detail ->> 'category', detail ->> 'medium'), '; ' ORDER BY id), '') FROM belfry.events WHERE subject = 'channel'`)
	}
	d.Exec(`SELECT belfry.opt_out(1, '*', 'sms')`)
	require.Empty(t, events())
	require.NoError(t, d.Run("channels opt-out", "channel", "1", "medium", "sms"), "it stands already")
	require.Empty(t, events())
	require.NoError(t, d.Run("channels opt-out", "external_id", "u1", "category", "popular_content", "reason", "asked for it"))
	require.NoError(t, d.Run("channels opt-out", "external_id", "u1", "category", "popular_content", "reason", "again"))
	out := "1 opted_out ann@host asked for it popular_content *"
	require.Equal(t, out, events())
	require.NoError(t, d.Run("channels opt-in", "channel", "1", "category", "popular_content", "reason", "changed their mind"))
	require.NoError(t, d.Run("channels opt-in", "channel", "1", "category", "popular_content"))
	require.Equal(t, out+"; 1 opted_in ann@host changed their mind popular_content *", events())
	require.NoError(t, d.Run("channels events", "channel", "1"))
	require.Contains(t, d.Out, "opted_in")
	require.ErrorContains(t, d.Run("channels opt-out", "channel", "1", "category", "nonsense"), "allowed values")
	require.Equal(t, "2", d.One(`SELECT count(*) FROM belfry.events WHERE subject = 'channel'`))
}
