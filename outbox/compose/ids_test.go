package compose_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

// squatter is the attacker of the tests below: it may insert jobs and activities.
func (b *bundle) squatter(t *testing.T) *dbtest.DB {
	t.Helper()
	return b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs, belfry.activities TO :role`)
}

// Once whoever could INSERT could take numbers that others were to draw: their
// transactions then failed.
func TestIDs_CannotBeSquattedByWhoeverMayInsert(t *testing.T) {
	t.Parallel()
	b := setup(t)
	attacker := b.squatter(t)
	for _, sql := range []string{
		`INSERT INTO belfry.jobs (id, type, category, title) OVERRIDING SYSTEM VALUE SELECT g, 'inbox', 'popular_content', 'squat' FROM generate_series(1, 50) g`,
		`INSERT INTO belfry.jobs (id, type, category, title) OVERRIDING SYSTEM VALUE VALUES (9223372036854775807, 'push', 'popular_content', 'hidden from jobs list')`,
		`INSERT INTO belfry.jobs (id, type, category, title) OVERRIDING USER VALUE VALUES (7, 'push', 'popular_content', 'x')`,
		`INSERT INTO belfry.jobs (id, type, category, title) VALUES (-1, 'push', 'popular_content', 'negative id')`,
		`INSERT INTO belfry.activities (id, channel_id, title) OVERRIDING SYSTEM VALUE SELECT -g, 1, 'squat' FROM generate_series(1, 50) g`,
		`INSERT INTO belfry.activities (id, channel_id, title) VALUES (5, 1, 'x')`,
		`INSERT INTO belfry.activities (id, channel_id, title, route) VALUES (-5, 1, 'x', '{sms}')`,
	} {
		_, err := attacker.Pool.Exec(t.Context(), sql)
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, sql)
		require.Equal(t, []string{"23514", "id"}, []string{refused.Code, refused.ColumnName}, sql)
		require.Contains(t, refused.Message, "allowed values for a new")
	}
	for sql, row := range map[string]string{
		"COPY belfry.jobs (id, type, category, title) FROM STDIN":   "7\tinbox\tpopular_content\tx\n",
		"COPY belfry.activities (id, channel_id, title) FROM STDIN": "-7\t1\tx\n",
	} {
		err := attacker.Pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
			_, err := c.Conn().PgConn().CopyFrom(t.Context(), strings.NewReader(row), sql)
			return err
		})
		require.ErrorContains(t, err, ".id: belongs to belfry", sql)
	}
	for range 3 {
		b.exec(t, `INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'popular_content', 'honest')`)
		b.exec(t, `INSERT INTO belfry.activities (channel_id, title) VALUES (1, 'honest')`)
	}
	require.Equal(t, "1,2,3", one[string](t, b, `SELECT string_agg(id::text, ',' ORDER BY id) FROM belfry.jobs`), "no number is lost")
	require.Equal(t, "-1,-2,-3", one[string](t, b, `SELECT string_agg(id::text, ',' ORDER BY id DESC) FROM belfry.activities`))
}

// Once a job with an activity's number had the activity's text sent to all its
// recipients.
func TestIDs_NoIDHasTwoContents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	private := b.send(t, 1, "activity", "PRIVATE: your test result")
	require.Negative(t, private)
	// Not even who may do anything but change the schema can make them meet.
	err := pgx.BeginFunc(t.Context(), b.db.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica; -- no trigger fires
			INSERT INTO belfry.jobs (id, type, category, title, route) VALUES (-1, 'push', 'popular_content', 'x', '{push}')`)
		return err
	})
	require.ErrorContains(t, err, "jobs_id_check")
	err = pgx.BeginFunc(t.Context(), b.db.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica;
			INSERT INTO belfry.activities (id, channel_id, title, route) VALUES (1, 1, 'x', '{push}')`)
		return err
	})
	require.ErrorContains(t, err, "activities_id_check")

	// A message says what its job or its activity says, and nothing without one.
	job := b.job(t, nil)
	require.Equal(t, "told", b.compose(t, job, 1)[0].Delivery.Title)
	dbtest.Past(t, b.db.Pool, fmt.Sprintf(`DELETE FROM belfry.jobs WHERE id = %d`, job)) // which jobs_transition rejects
	require.Equal(t, "PRIVATE: your test result", b.compose(t, private, 1)[0].Delivery.Title)
	require.NotEqual(t, outbox.ActionSend, b.compose(t, job, 2)[0].Action)
}

// A number that retention has freed is nobody's to take.
func TestIDs_OfDeletedRowsAreNotTakenAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	attacker := b.squatter(t)
	conn, err := attacker.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	exec := func(sql string) error {
		_, err := conn.Exec(t.Context(), sql)
		return err
	}
	require.NoError(t, exec(`INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'popular_content', 'x')`))
	require.NoError(t, exec(`INSERT INTO belfry.activities (channel_id, title) VALUES (1, 'x')`))
	b.exec(t, `DELETE FROM belfry.message_rows; DELETE FROM belfry.jobs; DELETE FROM belfry.activities`)
	require.ErrorContains(t, exec(`INSERT INTO belfry.jobs (id, type, category, title) VALUES (1, 'inbox', 'popular_content', 'x')`), "belfry.jobs.id")
	require.ErrorContains(t, exec(`INSERT INTO belfry.activities (id, channel_id, title) VALUES (-1, 1, 'x')`), "belfry.activities.id")
	for _, sql := range []string{`SELECT setval('belfry.jobs_id_seq', 1, false)`, `SELECT nextval('belfry.arrivals_seq')`, `UPDATE belfry.jobs SET id = 9`} {
		require.ErrorContains(t, exec(sql), "permission denied")
	}
	require.NoError(t, exec(`INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'popular_content', 'x')`))
	require.EqualValues(t, 2, one[int64](t, b, `SELECT id FROM belfry.jobs`))
	_, err = b.db.Pool.Exec(context.Background(), `UPDATE belfry.jobs SET id = 9`)
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "belfry.jobs.id: job 2 keeps its id; allowed changes: none", refused.Message)
}
