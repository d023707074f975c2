package admin_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a role may not see is left out, and asked for nothing else.
func TestHealth_IsOfWhatTheRoleMaySee(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	require.NoError(t, d.run("health"))
	require.Regexp(t, `(?m)^as of +20`, d.out)
	require.Regexp(t, `(?m)^postgresql +[0-9.]+`, d.out)
	require.Regexp(t, `(?m)^connections +[1-9][0-9]* of [0-9]+$`, d.out)
	require.Regexp(t, `(?m)^relays +none live$`, d.out)
	require.NotContains(t, d.out, "behind", "there is no standby")

	d.exec(`INSERT INTO belfry.relays (name, transport, heartbeat_at)
		SELECT name, transport, now() + interval '10 minutes' FROM (VALUES ('r1', 'postgres'), ('r2', 'redislist'), ('r3', 'redislist')) r (name, transport)`)
	d.exec(`INSERT INTO belfry.relays (name, heartbeat_at) VALUES ('gone', now() - interval '1 minute')`)
	other, err := d.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), `SELECT pg_current_xact_id()`)
	require.NoError(t, err)
	require.NoError(t, d.run("health"))
	require.NoError(t, other.Rollback(t.Context()))
	require.Regexp(t, `(?m)^relays +1 live, over postgres\nrelays +2 live, over redislist$`, d.out)
	require.Regexp(t, `(?m)^oldest transaction +([0-9.]+[a-z]+)+$`, d.out)
	require.Regexp(t, `"oldest_transaction_seconds": *[0-9]`, d.json)
}
