package migrations_test

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/migrations"
)

// with returns the migrations of belfry up to a version, and more of a test: the texts of pairs by their stem, such
// as 0900_note.
func with(t *testing.T, to int64, more map[string][2]string) migrations.Config {
	t.Helper()
	all := fstest.MapFS{}
	names, err := fs.Glob(migrations.FS, "*.sql")
	require.NoError(t, err)
	for _, name := range names {
		text, err := fs.ReadFile(migrations.FS, name)
		require.NoError(t, err)
		if versionOf(t, name) <= to {
			all[name] = &fstest.MapFile{Data: text}
		}
	}
	for stem, texts := range more {
		all[stem+".up.sql"], all[stem+".down.sql"] = &fstest.MapFile{Data: []byte(texts[0])}, &fstest.MapFile{Data: []byte(texts[1])}
	}
	return migrations.Config{LockTimeout: time.Hour}.Of(all)
}

// expanding are migrations that a release may run beside the release before it.
var expanding = map[string][2]string{
	"0901_note": {"-- Locks: belfry.jobs ACCESS EXCLUSIVE (instant)\nALTER TABLE belfry.jobs ADD COLUMN note text;\n",
		"ALTER TABLE belfry.jobs DROP COLUMN note;\n"},
	"0902_index": {"-- Locks: belfry.message_rows SHARE UPDATE EXCLUSIVE (scan)\nDROP INDEX CONCURRENTLY IF EXISTS belfry.test_idx;\n" +
		"CREATE INDEX CONCURRENTLY test_idx ON belfry.message_rows (sender);\n", "DROP INDEX belfry.test_idx;\n"},
	"0903_table": {"CREATE TABLE belfry.fresh (id bigint);\n", "DROP TABLE belfry.fresh;\n"},
	"0904_check": {"-- Locks: belfry.message_rows ACCESS EXCLUSIVE (instant)\nALTER TABLE belfry.message_rows ADD CONSTRAINT c CHECK (attempts < 10001) NOT VALID;\n",
		"ALTER TABLE belfry.message_rows DROP CONSTRAINT c;\n"},
	"0905_valid": {"-- Locks: belfry.message_rows SHARE UPDATE EXCLUSIVE (scan)\nALTER TABLE belfry.message_rows VALIDATE CONSTRAINT c;\n", "-- Nothing to undo.\n"},
	"0906_both":  {"-- Locks: belfry.samples ACCESS EXCLUSIVE (rewrite)\n-- Locks: belfry.fresh ACCESS EXCLUSIVE (instant)\nSELECT 1;\n", "SELECT 1;\n"},
}

func TestPlan_ListsTheLocksOnExistingTables(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	c := with(t, migrations.Latest(), expanding)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT 1, n, now() FROM generate_series(1, 20000) n;
		ANALYZE belfry.message_rows`)
	require.NoError(t, err)
	list, err := c.Plan(t.Context(), db.DSN)
	require.NoError(t, err)
	type row struct{ table, lock, blocks, effort, expected string }
	var got []row
	var versions []int64
	for _, p := range list {
		versions = append(versions, p.Version)
		got = append(got, row{p.Table, p.Lock, p.Blocks, p.Effort(), p.Expected()})
	}
	require.Equal(t, []int64{901, 902, 903, 904, 905, 906}, versions)
	require.Equal(t, []row{
		{"belfry.jobs", "ACCESS EXCLUSIVE", "reads and writes", "instant", "under 1s"},
		{"belfry.message_rows", "SHARE UPDATE EXCLUSIVE", "vacuum and migrations", "scan of 1 MB, about 20000 rows", "under 1s"},
		{}, // of a table that does not exist yet
		{"belfry.message_rows", "ACCESS EXCLUSIVE", "reads and writes", "instant", "under 1s"},
		{"belfry.message_rows", "SHARE UPDATE EXCLUSIVE", "vacuum and migrations", "scan of 1 MB, about 20000 rows", "under 1s"},
		{"belfry.samples", "ACCESS EXCLUSIVE", "reads and writes", "rewrite of 0 MB", "under 1s"},
	}, got)
	require.Equal(t, "pending migrations: 6; locks on existing tables: 5; apply with `belfry migrate up`", migrations.Summary(list))

	applied, err := c.Up(t.Context(), db.DSN)
	require.NoError(t, err)
	require.Equal(t, versions, applied)
	list, err = c.Plan(t.Context(), db.DSN)
	require.NoError(t, err)
	require.Empty(t, list)
	require.Equal(t, "no migration is pending", migrations.Summary(list))
	undone, err := c.Down(t.Context(), db.DSN, migrations.Latest())
	require.NoError(t, err)
	require.Len(t, undone, 6)

	list, err = migrations.Plan(t.Context(), dbtest.NewEmpty(t).DSN)
	require.NoError(t, err)
	require.Len(t, list, int(migrations.Latest()))
	require.Equal(t, fmt.Sprintf("pending migrations: %d; they lock no existing table; apply with `belfry migrate up`", migrations.Latest()), migrations.Summary(list))
}
