package db_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
)

// A NULL where none may be is said as any other value that a rule refuses, and what is no
// rule of belfry's is left alone.
func TestRefusal_NamesTheColumnAndTheAllowedValues(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	_, err := base.Pool.Exec(t.Context(), `CREATE TABLE own (n int NOT NULL)`)
	require.NoError(t, err)
	for sql, want := range map[string]string{
		`INSERT INTO belfry.schedules (name, source, cron, template) VALUES ('a', NULL, '@daily', '{"type": "inbox", "category": "operator_notice", "title": "x"}')`: "belfry.schedules.source: is null; allowed values: all but null",
		`INSERT INTO belfry.opt_outs (channel_id, reason) VALUES (1, NULL)`:                                                                                          "belfry.opt_outs.reason: is null; allowed values: all but null",
		`INSERT INTO belfry.lanes (name, pause_reason) VALUES ('a', NULL)`:                                                                                           "belfry.lanes.pause_reason: is null; allowed values: all but null",
		`INSERT INTO belfry.schedules (name, cron, template) VALUES ('A b', '@daily', '{"type": "inbox", "category": "operator_notice", "title": "x"}')`:             "belfry.schedules.name: 'A b' is not a schedule name; allowed values: 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit",
		`INSERT INTO own VALUES (NULL)`: "",
	} {
		_, err := base.Pool.Exec(t.Context(), sql)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, sql)
		message, refused := db.Refusal(pg)
		require.Equal(t, want, message)
		require.Equal(t, want != "", refused, sql)
	}
}
