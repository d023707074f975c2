package outbox_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Commits that notify wait for each other. Of activities that are committed at the same time
// one wakes the relays, and one that is open keeps nobody from it.
func TestActivities_OneOfThoseThatCommitTogetherWakes(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	const insert = `INSERT INTO belfry.activities (channel_id, title) VALUES (1, 'x')`
	conn, err := pgx.ConnectConfig(ctx, b.DB.Pool.Config().ConnConfig)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, `LISTEN belfry_messages`)
	require.NoError(t, err)
	next := func() string {
		t.Helper()
		n, err := conn.WaitForNotification(ctx)
		require.NoError(t, err)
		return n.Payload
	}
	begin := func() pgx.Tx {
		t.Helper()
		tx, err := b.DB.Pool.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, insert)
		require.NoError(t, err)
		return tx
	}

	open, committing := begin(), begin()
	b.Exec(t, insert)
	require.Empty(t, next(), "an open transaction wakes nobody, and others do")
	_, err = committing.Exec(ctx, `SET CONSTRAINTS ALL IMMEDIATE`) // as its COMMIT does first
	require.NoError(t, err)
	b.Exec(t, insert)
	b.Exec(t, `NOTIFY belfry_messages, 'between'`)
	require.Equal(t, "between", next(), "one that commits beside another wakes nobody")
	require.NoError(t, committing.Commit(ctx))
	require.Empty(t, next())
	require.NoError(t, open.Commit(ctx))
	require.Empty(t, next(), "the next one does again")
}
