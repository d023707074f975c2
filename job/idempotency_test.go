package job_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// A key that enqueued something else before is a slip of the caller, or an operator has
// corrected the job meanwhile: it is said, and changes nothing.
func TestEnqueue_AKeyThatSaidSomethingElseWarns(t *testing.T) {
	t.Parallel()
	conn, said := session(t, dbtest.New(t))
	enqueue := func(title string) (id int64) {
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT belfry.enqueue('inbox', 'operator_notice', $1, idempotency_key => 'k')`, title).Scan(&id))
		return id
	}
	first := enqueue("Hello")
	require.Equal(t, first, enqueue("Hello"))
	require.Empty(t, *said)
	require.Equal(t, first, enqueue("Goodbye"))
	require.Equal(t, []string{"WARNING: belfry.jobs.idempotency_key: 'k' enqueued job 1 before, which says something else; this request changes nothing"}, *said)
}

// session is an application's, and what the server remarks in it.
func session(t *testing.T, db *dbtest.DB) (*pgx.Conn, *[]string) {
	t.Helper()
	config, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	said := new([]string)
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { *said = append(*said, n.Severity+": "+n.Message) }
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn, said
}

// Listed channels that there are not are named to whoever enqueues by the function, unless
// the role may not look for them; the job is taken all the same.
func TestEnqueue_NamesListedChannelsThatAreMissing(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (external_id, platform) VALUES ('ann', 'ios'), ('bob', 'web')`)
	require.NoError(t, err)
	const enqueue = `SELECT belfry.enqueue('inbox', 'operator_notice', 'Hello', audience => $1::jsonb)`
	for audience, want := range map[string]string{
		`{"kind": "everyone"}`:                                             "",
		`{"kind": "channels", "external_ids": ["ann", "bob"]}`:             "",
		`{"kind": "channels", "external_ids": ["ann", "eve", "eve", "x"]}`: "2 of the listed channels do not exist now, as eve, x",
		`{"kind": "channels", "ids": [1, 7]}`:                              "1 of the listed channels do not exist now, as 7",
	} {
		conn, said := session(t, db)
		_, err := conn.Exec(t.Context(), enqueue, audience)
		require.NoError(t, err)
		if want == "" {
			require.Empty(t, *said, audience)
			continue
		}
		require.Equal(t, []string{"WARNING: belfry.jobs.audience: " + want}, *said)
	}
	blind := db.Role(t, "GRANT USAGE ON SCHEMA belfry TO :role", "GRANT INSERT ON belfry.jobs TO :role", "GRANT SELECT (id, type, group_id, idempotency_key) ON belfry.jobs TO :role")
	conn, said := session(t, blind)
	_, err = conn.Exec(t.Context(), enqueue, `{"kind": "channels", "external_ids": ["eve"]}`)
	require.NoError(t, err)
	require.Empty(t, *said)
}

// A comparison with a stored job confirms a guess of its content, so only enqueuers can compare.
func TestIdempotency_OnlyEnqueuersCompareContent(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	_, err := db.Pool.Exec(t.Context(), `SELECT belfry.enqueue('inbox', 'operator_notice', 'Secret', idempotency_key => 'k')`)
	require.NoError(t, err)
	const compare = `SELECT belfry.says('k', 'inbox', 'operator_notice', 'Secret', '', '{"kind": "everyone"}', '{}', '{}')`
	user := db.Role(t, "GRANT USAGE ON SCHEMA belfry TO :role")
	_, err = user.Pool.Exec(t.Context(), compare)
	require.ErrorContains(t, err, "permission denied for function says")
	enqueuer := db.Role(t, "GRANT USAGE ON SCHEMA belfry TO :role", "GRANT INSERT ON belfry.jobs TO :role",
		"GRANT SELECT (id, type, group_id, idempotency_key) ON belfry.jobs TO :role",
		"GRANT EXECUTE ON FUNCTION belfry.says(text, text, text, text, text, jsonb, jsonb, jsonb) TO :role")
	conn, said := session(t, enqueuer)
	_, err = conn.Exec(t.Context(), `SELECT belfry.enqueue('inbox', 'operator_notice', 'Other', idempotency_key => 'k')`)
	require.NoError(t, err)
	require.Len(t, *said, 1)
	require.Contains(t, (*said)[0], "says something else")
}
