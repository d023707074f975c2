package doctor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/admintest"
)

// What a role may not see is left out, and asked for nothing else.
func TestHealth_IsOfWhatTheRoleMaySee(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	require.NoError(t, d.Run("health"))
	require.Regexp(t, `(?m)^as of +20`, d.Out)
	require.Regexp(t, `(?m)^postgresql +[0-9.]+`, d.Out)
	require.Regexp(t, `(?m)^connections +[1-9][0-9]* of [0-9]+$`, d.Out)
	require.Regexp(t, `(?m)^relays +none live$`, d.Out)
	require.NotContains(t, d.Out, "behind", "there is no standby")

	d.Exec(`INSERT INTO belfry.relays (name, transport, heartbeat_at)
		SELECT name, transport, now() + interval '50 seconds' FROM (VALUES ('r1', 'postgres'), ('r2', 'redislist'), ('r3', 'redislist')) r (name, transport)`)
	d.Exec(`INSERT INTO belfry.relays (name, heartbeat_at) VALUES ('gone', now() - interval '1 minute'), ('ahead', now() + interval '1 hour')`)
	other, err := d.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), `SELECT pg_current_xact_id()`)
	require.NoError(t, err)
	require.NoError(t, d.Run("health"))
	require.NoError(t, other.Rollback(t.Context()))
	require.Regexp(t, `(?m)^relays +1 live, over postgres\nrelays +2 live, over redislist$`, d.Out)
	require.Regexp(t, `(?m)^oldest transaction +([0-9.]+[a-z]+)+$`, d.Out)
	require.Regexp(t, `"oldest_transaction_seconds": *[0-9]`, d.JSON)
}
