package admin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/outbox"
)

// A copy is adopted by who may do so, once, and a look changes nothing.
func TestAdopt_IsShownAndThenDone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.exec(`INSERT INTO belfry.channels (external_id, platform) VALUES ('u1', 'ios')`)
	d.enqueue("inbox")
	adopted := func() bool {
		t.Helper()
		i, err := outbox.ReadInstallation(t.Context(), d.db.Pool)
		require.NoError(t, err)
		return i.Adopted
	}
	question := func(given ...string) admin.Question {
		t.Helper()
		o, in := d.input("adopt", given...)
		q, err := o.Confirm(t.Context(), d.env, in)
		require.NoError(t, err)
		return q
	}
	require.Empty(t, question(), "there is nothing to agree to")
	require.NoError(t, d.run("adopt"))
	require.Regexp(t, `^nothing to adopt: belfry was made or adopted here, in database \d+ of server \d+\n$`, d.out)
	require.Nil(t, d.receipt().InForceSince, "it was made here")
	require.NoError(t, d.run("adopt", "dry_run", "on"))
	require.NotContains(t, d.json, "receipt", "a look is no act")

	d.exec(`UPDATE belfry.installation SET database_oid = NULL`)
	require.Equal(t, "Adopt it?", question().Text)
	require.Zero(t, question().Count)
	require.False(t, question().About.(*admin.Adoption).Adopted, "what would leave is shown before")
	require.Empty(t, question("dry_run", "on"), "nobody is asked about a look")
	require.NoError(t, d.run("adopt", "dry_run", "on"))
	require.Regexp(t, `^made on  nowhere\nnow on   database \d+ of server \d+\nadopted, relays send:\n  what 1 job that are PENDING or RUNNING will write\n$`, d.out)
	d.env.Role = admin.Operator
	require.ErrorContains(t, d.run("adopt"), "adopt needs the role admin; this is operator")
	require.False(t, adopted())

	d.env.Role = admin.Admin
	require.NoError(t, d.run("adopt", "reason", "moved"))
	require.Regexp(t, `^adopted: relays deliver from database \d+ of server \d+, and send:\n  what 1 job that `, d.out)
	require.Regexp(t, `"adopted":true,.*"changed":true`, d.json)
	require.True(t, adopted())
	moved := *d.receipt().InForceSince
	events, err := d.env.Jobs.ControlEvents(t.Context(), "installation", "", 0, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"ann@host", "moved"}, []string{events[0].Actor, events[0].Reason})
	require.NoError(t, d.run("adopt"))
	require.Regexp(t, `"adopted":true,.*"changed":false`, d.json)
	require.Equal(t, moved, *d.receipt().InForceSince, "it is so already, since then")
	require.EqualValues(t, 1, d.receipt().Concerned)
	require.Contains(t, d.notes, "done at ")
}
