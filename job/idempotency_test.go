package job_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/migrations/dbtest"
)

// A key that enqueued something else before is a slip of the caller, or an operator has
// corrected the job meanwhile: it is said, and changes nothing.
func TestEnqueue_AKeyThatSaidSomethingElseWarns(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	config, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	var said []string
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { said = append(said, n.Severity+": "+n.Message) }
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }() // a test's
	enqueue := func(title string) (id int64) {
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT belfry.enqueue('inbox', 'operator_notice', $1, idempotency_key => 'k')`, title).Scan(&id))
		return id
	}
	first := enqueue("Hello")
	require.Equal(t, first, enqueue("Hello"))
	require.Empty(t, said)
	require.Equal(t, first, enqueue("Goodbye"))
	require.Equal(t, []string{"WARNING: belfry.jobs.idempotency_key: 'k' enqueued job 1 before, which says something else; this request changes nothing"}, said)
}
