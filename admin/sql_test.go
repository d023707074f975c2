package admin

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// The SQL in help texts runs.
func TestSQL_RunsAsHelpHasIt(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	found := 0
	for _, o := range Operations() {
		if o.SQL == "" {
			require.NotContains(t, o.Long, "same by SQL", "%s: a statement that is not tested", o.Name)
			continue
		}
		found++
		require.True(t, strings.HasSuffix(o.Long, "The same by SQL: "+o.SQL), o.Name)
		tx, err := db.Pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `
			INSERT INTO belfry.channels (id, external_id, platform) OVERRIDING SYSTEM VALUE VALUES (4711, 'user-4711', 'ios');
			SELECT setval(pg_get_serial_sequence('belfry.jobs', 'id'), 16);
			INSERT INTO belfry.jobs (type, category, title, needs_approval) VALUES ('push', 'operator_notice', 'the job of the examples', true);
			SELECT set_config('belfry.acts_for', 'kim', true)`)
		require.NoError(t, err)
		for statement := range strings.SplitSeq(o.SQL, "\n") {
			_, sql, labelled := strings.Cut(statement, ": ")
			if !labelled {
				sql = statement
			}
			_, err = tx.Exec(t.Context(), sql)
			require.NoError(t, err, "%s: %s", o.Name, sql)
		}
		require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context())))
	}
	require.GreaterOrEqual(t, found, 15)
}
