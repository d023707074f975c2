package migrations_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

func clientRun(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, dbtest.Program(t, name), args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A dump keeps every id, and where the sequences stand, although the triggers let nobody
// give one: in a whole dump the triggers come after the rows, and a dump of rows alone is
// restored with --disable-triggers.
func TestDump_KeepsIDs(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := t.Context()
	_, err := db.Pool.Exec(ctx, `
		SELECT belfry.enqueue('inbox', 'operator_notice', 'job ' || g) FROM generate_series(1, 5) g;
		SELECT belfry.send(g, 'activity', 'activity ' || g) FROM generate_series(1, 5) g;
		DELETE FROM belfry.jobs WHERE id IN (2, 5);
		DELETE FROM belfry.message_rows WHERE job_id IN (-1, -5);
		DELETE FROM belfry.activities WHERE id IN (-1, -5)`)
	require.NoError(t, err)
	ids := func(db *dbtest.DB) (list string) {
		require.NoError(t, db.Pool.QueryRow(ctx, `SELECT string_agg(id || ' ' || title, ', ' ORDER BY id)
			FROM (SELECT id, title FROM belfry.jobs UNION ALL SELECT id, title FROM belfry.activities) t`).Scan(&list))
		return list
	}
	for name, c := range map[string]struct {
		to   *dbtest.DB
		args []string
	}{
		"whole":     {dbtest.NewEmpty(t), nil},
		"rows only": {dbtest.New(t), []string{"--data-only", "--disable-triggers", "--exclude-table=belfry.schema_migrations"}},
	} {
		if name == "rows only" { // what a migration fills is in the dump
			var truncate string
			require.NoError(t, c.to.Pool.QueryRow(ctx, `SELECT 'TRUNCATE ' || string_agg(oid::regclass::text, ', ') FROM pg_class
				WHERE relnamespace = 'belfry'::regnamespace AND relkind = 'r' AND relname <> 'schema_migrations'`).Scan(&truncate))
			_, err := c.to.Pool.Exec(ctx, truncate)
			require.NoError(t, err)
		}
		file := filepath.Join(t.TempDir(), "dump.sql")
		clientRun(t, "pg_dump", append(c.args, "--file", file, db.DSN)...)
		clientRun(t, "psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--single-transaction", "--file", file, c.to.DSN)
		require.Equal(t, ids(db), ids(c.to), name)
		var job, activity int64
		require.NoError(t, c.to.Pool.QueryRow(ctx, `SELECT belfry.enqueue('inbox', 'operator_notice', 'next'), belfry.send(1, 'activity', 'next')`).Scan(&job, &activity))
		require.Equal(t, []int64{6, -6}, []int64{job, activity}, name)
		_, err := c.to.Pool.Exec(ctx, `INSERT INTO belfry.jobs (id, type, category, title) VALUES (5, 'inbox', 'operator_notice', 'x')`)
		require.ErrorContains(t, err, "belfry.jobs.id: belongs to belfry", name)
	}
}
