package outbox_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Commits that notify wait for each other. Of activities that are committed within 20 ms
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

	ago := func() { b.Exec(t, `SELECT setval('belfry.activities_woken_seq', 0)`) }
	open := begin()
	ago()
	b.Exec(t, insert)
	require.Empty(t, next(), "an open transaction wakes nobody, and others do")
	for tries := 0; ; tries++ { // a machine that stops for 20 ms has the insert wake
		require.Less(t, tries, 1000, "one that commits right after another wakes nobody")
		b.Exec(t, `SELECT setval('belfry.activities_woken_seq', (extract(epoch FROM clock_timestamp()) * 1000)::bigint)`)
		b.Exec(t, insert)
		b.Exec(t, `NOTIFY belfry_messages, 'between'`)
		if next() == "between" {
			break
		}
		require.Equal(t, "between", next())
	}
	ago()
	require.NoError(t, open.Commit(ctx))
	require.Empty(t, next(), "the next one does again")
}

// Once any login could take the advisory lock that decided which commit wakes relays, and messages
// waited for the next poll.
func TestActivities_NoOtherLoginKeepsThemFromWaking(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	config := b.DB.Pool.Config().ConnConfig
	listener, err := pgx.ConnectConfig(ctx, config)
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close(ctx)) }()
	_, err = listener.Exec(ctx, `LISTEN belfry_messages`)
	require.NoError(t, err)
	anybody := b.DB.Role(t)
	conn, err := anybody.Pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(ctx, `SELECT pg_advisory_lock(x'62656c66'::integer, x'62656c6c'::integer)`)
	require.NoError(t, err)
	_, err = conn.Exec(ctx, `SELECT setval('belfry.activities_woken_seq', 1)`)
	require.ErrorContains(t, err, "permission denied")
	b.Exec(t, `INSERT INTO belfry.activities (channel_id, title) VALUES (1, 'x')`)
	b.Exec(t, `NOTIFY belfry_messages, 'later'`)
	n, err := listener.WaitForNotification(ctx)
	require.NoError(t, err)
	require.Empty(t, n.Payload, "the activity has woken relays")
	_, err = conn.Exec(ctx, `SELECT pg_advisory_unlock_all()`)
	require.NoError(t, err)
}
