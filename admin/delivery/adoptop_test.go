package delivery_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/outbox"
)

// A copy is adopted by who may do so, once, and a look changes nothing.
func TestAdopt_IsShownAndThenDone(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`INSERT INTO belfry.channels (external_id, platform) VALUES ('u1', 'ios')`)
	d.Enqueue("inbox")
	adopted := func() bool {
		t.Helper()
		i, err := outbox.ReadInstallation(t.Context(), d.DB.Pool)
		require.NoError(t, err)
		return i.Adopted
	}
	question := func(given ...string) operation.Question {
		t.Helper()
		o, in := d.Input("adopt", given...)
		q, err := o.Confirm(t.Context(), d.Env, in)
		require.NoError(t, err)
		return q
	}
	require.Empty(t, question(), "there is nothing to agree to")
	require.NoError(t, d.Run("adopt"))
	require.Regexp(t, `^nothing to adopt: belfry was made or adopted here, in database \d+ of server \d+\n$`, d.Out)
	require.Nil(t, d.Receipt().InForceSince, "it was made here")
	require.NoError(t, d.Run("adopt", "dry_run", "on"))
	require.NotContains(t, d.JSON, "receipt", "a look is no act")

	d.Exec(`UPDATE belfry.installation SET database_oid = NULL`)
	require.Equal(t, "Adopt it?", question().Text)
	require.Zero(t, question().Count)
	require.False(t, question().About.(*delivery.Adoption).Adopted, "what would leave is shown before")
	require.Empty(t, question("dry_run", "on"), "nobody is asked about a look")
	require.NoError(t, d.Run("adopt", "dry_run", "on"))
	require.Regexp(t, `^made on  nowhere\nnow on   database \d+ of server \d+\nadopted, relays send:\n  the messages of 1 job that are PENDING or RUNNING\n$`, d.Out)
	d.Env.Role = operation.Operator
	require.ErrorContains(t, d.Run("adopt"), "adopt needs the role admin; this is operator")
	require.False(t, adopted())

	d.Env.Role = operation.Admin
	require.NoError(t, d.Run("adopt", "reason", "moved"))
	require.Regexp(t, `^adopted: relays deliver from database \d+ of server \d+, and send:\n  the messages of 1 job that `, d.Out)
	require.Regexp(t, `"adopted":true,.*"changed":true`, d.JSON)
	require.True(t, adopted())
	moved := *d.Receipt().InForceSince
	events, err := d.Env.Jobs.ControlEvents(t.Context(), "installation", "", 0, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"ann@host", "moved"}, []string{events[0].Actor, events[0].Reason})
	require.NoError(t, d.Run("adopt"))
	require.Regexp(t, `"adopted":true,.*"changed":false`, d.JSON)
	require.Equal(t, moved, *d.Receipt().InForceSince, "it is so already, since then")
	require.EqualValues(t, 1, d.Receipt().Concerned)
	require.Contains(t, d.Notes, "done at ")
}
