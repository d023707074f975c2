package compose_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

// A plain INSERT sends: its message is there in the same transaction, due at once or
// when it says, by its category's route or its own.
func TestActivities_APlainInsertSends(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `UPDATE belfry.categories SET route = '{push,sms}' WHERE name = 'activity'`)
	b.exec(t, `INSERT INTO belfry.activities (channel_id, title) VALUES (1, 'liked')`)
	b.exec(t, `INSERT INTO belfry.activities (channel_id, category, title, body, data, variants, route, deliver_at)
		VALUES (2, 'operator_notice', 'x', 'y', '{"a": 1}', '{"en": {"title": "z"}}', '{sms}', '2030-01-01 09:00Z')`)
	type message struct {
		ID, Channel int64
		Due         time.Time
		Route       string
	}
	rows, err := b.db.Pool.Query(t.Context(), `SELECT m.job_id, m.channel_id, m.next_attempt_at, a.route::text FROM belfry.messages m JOIN belfry.activities a ON a.id = m.job_id
		WHERE m.status = 'PENDING' ORDER BY m.job_id DESC`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[message])
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []any{int64(-1), int64(1), "{push,sms}"}, []any{list[0].ID, list[0].Channel, list[0].Route})
	require.WithinDuration(t, one[time.Time](t, b, `SELECT now()`), list[0].Due, time.Minute)
	require.Equal(t, []any{int64(-2), int64(2), "{sms}"}, []any{list[1].ID, list[1].Channel, list[1].Route})
	require.Equal(t, 2030, list[1].Due.UTC().Year())
	got := b.compose(t, -2, 2)[0]
	require.Equal(t, []string{"z", "y", "sms", "en"}, []string{got.Delivery.Title, got.Delivery.Body, got.Delivery.Medium, got.Delivery.Locale})

	err = pgx.BeginFunc(t.Context(), b.db.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT belfry.send(1, 'activity', 'never')`); err != nil {
			return err
		}
		return context.Canceled
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 2, one[int](t, b, `SELECT count(*) FROM belfry.messages`), "rolled back, both are gone")
}

// A repeated idempotency key returns the first activity, and sends nothing more.
func TestSend_IsIdempotentByItsKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	send := `SELECT belfry.send(channel_id => 1, category => 'activity', title => 'liked', idempotency_key => 'like-4711')`
	first := one[int64](t, b, send)
	require.Negative(t, first)
	require.Equal(t, first, one[int64](t, b, send))
	require.Equal(t, first, one[int64](t, b, `SELECT belfry.send_external('u-1', 'activity', 'liked', idempotency_key => 'like-4711')`))
	require.NotEqual(t, first, one[int64](t, b, `SELECT belfry.send_external('u-2', 'activity', 'liked')`))
	require.Equal(t, 2, one[int](t, b, `SELECT count(*) FROM belfry.messages`))

	// One that waits for another's key sees it, or is told to repeat.
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.activities`)
	require.NoError(t, err)
	b.exec(t, `SELECT belfry.send(1, 'activity', 'x', idempotency_key => 'other')`)
	_, err = tx.Exec(t.Context(), `SELECT belfry.send(1, 'activity', 'x', idempotency_key => 'other')`)
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	require.Equal(t, "40001", pg.Code)
}

// A role that may insert activities and nothing else can send.
func TestActivities_NeedNoOtherRight(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := pgx.BeginFunc(t.Context(), b.db.Pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			`CREATE ROLE belfry_test_sender`,
			`GRANT USAGE ON SCHEMA belfry TO belfry_test_sender`,
			`GRANT INSERT ON belfry.activities TO belfry_test_sender`,
			`SET LOCAL ROLE belfry_test_sender`,
			`INSERT INTO belfry.activities (channel_id, title) VALUES (1, 'liked')`,
			`SAVEPOINT s`,
		} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		for _, sql := range []string{
			`SELECT FROM belfry.messages`, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES (1, 1, now())`, `DELETE FROM belfry.activities`,
		} {
			_, err := tx.Exec(t.Context(), sql)
			require.ErrorContains(t, err, "permission denied", sql)
			_, err = tx.Exec(t.Context(), `ROLLBACK TO SAVEPOINT s`)
			require.NoError(t, err)
		}
		_, err := tx.Exec(t.Context(), `RESET ROLE`)
		require.NoError(t, err)
		var n int
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM belfry.messages WHERE job_id < 0`).Scan(&n))
		require.Equal(t, 1, n)
		return context.Canceled // a role belongs to the whole server
	})
	require.ErrorIs(t, err, context.Canceled)
}

// badSQL is what the database refuses of an activity.
var badSQL = []struct{ name, sql string }{
	{"no channel", `INSERT INTO belfry.activities (title) VALUES ('x')`},
	{"category unknown", `SELECT belfry.send(1, 'likes', 'x')`},
	{"category null", `SELECT belfry.send(1, NULL, 'x')`},
	{"title null", `SELECT belfry.send(1, 'activity', NULL)`},
	{"title blank", `SELECT belfry.send(1, 'activity', ' ')`},
	{"title too long", `SELECT belfry.send(1, 'activity', repeat('x', 201))`},
	{"title with a bad template", `SELECT belfry.send(1, 'activity', '{{name}}')`},
	{"body null", `SELECT belfry.send(1, 'activity', 'x', NULL)`},
	{"body too long", `SELECT belfry.send(1, 'activity', 'x', repeat('x', 10001))`},
	{"body with a bad template", `SELECT belfry.send(1, 'activity', 'x', '{{attributes.name | shout}}')`},
	{"data a list", `SELECT belfry.send(1, 'activity', 'x', data => '[]')`},
	{"data too long", `SELECT belfry.send(1, 'activity', 'x', data => jsonb_build_object('a', repeat('x', 16384)))`},
	{"variants a list", `SELECT belfry.send(1, 'activity', 'x', variants => '[]')`},
	{"variant with a stray key", `SELECT belfry.send(1, 'activity', 'x', variants => '{"ko": {"subject": "x"}}')`},
	{"route of an unknown medium", `SELECT belfry.send(1, 'activity', 'x', route => '{push,fax}')`},
	{"route empty", `SELECT belfry.send(1, 'activity', 'x', route => '{}')`},
	{"deliver_at at the end of time", `SELECT belfry.send(1, 'activity', 'x', deliver_at => 'infinity')`},
	{"idempotency key empty", `SELECT belfry.send(1, 'activity', 'x', idempotency_key => '')`},
	{"requested by nobody", `SELECT belfry.send(1, 'activity', 'x', requested_by => ' ')`},
	{"requested by too many", `SELECT belfry.send(1, 'activity', 'x', requested_by => repeat('x', 201))`},
	{"created before", `INSERT INTO belfry.activities (channel_id, title, created_at) VALUES (1, 'x', now() - interval '1 day')`},
	{"an id of its own", `INSERT INTO belfry.activities (id, channel_id, title) OVERRIDING SYSTEM VALUE VALUES (5, 1, 'x')`},
	{"external id unknown", `SELECT belfry.send_external('u-99', 'activity', 'x')`},
	{"changed afterwards", `INSERT INTO belfry.activities (channel_id, title) VALUES (1, 'x'); UPDATE belfry.activities SET title = 'y'`},
	{"changed at once, like a new one", `INSERT INTO belfry.activities (channel_id, title) VALUES (1, 'x'); UPDATE belfry.activities SET title = 'y', route = NULL`},
}

// What the database says to bad input, word for word; nothing is half-written.
func TestActivities_BadInputNamesTheColumnAndTheAllowedValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var out strings.Builder
	for _, c := range badSQL {
		_, err := b.db.Pool.Exec(t.Context(), c.sql)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, c.name)
		fmt.Fprintf(&out, "# %s\n%s %s\n", c.name, pg.Code, regexp.MustCompile(`activity -\d+`).ReplaceAllString(pg.Message, "activity -N"))
		if pg.ColumnName != "" {
			fmt.Fprintf(&out, "column: %s\n", pg.ColumnName)
		}
		if pg.Hint != "" {
			fmt.Fprintf(&out, "hint: %s\n", pg.Hint)
		}
	}
	dbtest.Golden(t, "testdata/bad_sql.golden", out.String())
	require.Zero(t, one[int](t, b, `SELECT (SELECT count(*) FROM belfry.activities) + (SELECT count(*) FROM belfry.messages)`))
}

// An activity goes before nothing and waits for nothing: it is composed as any message.
func TestActivities_AreComposedLikeJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.send(t, 1, "activity", `{{attributes.name}} likes it`)
	got := b.compose(t, id, 1)[0]
	require.Equal(t, outbox.ActionSend, got.Action)
	require.Equal(t, []string{"Mina likes it", "activity", "{}"}, []string{got.Delivery.Title, got.Delivery.Category, string(got.Delivery.Data)})
}
