package migrations_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/migrations"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// catalog describes every object of the schema, so that two states of it can be
// compared word for word.
func catalog(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(context.Background(), `
		SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '')
		  FROM information_schema.columns WHERE table_schema = 'belfry' AND table_name <> 'schema_migrations'
		UNION ALL SELECT 'constraint ' || conname || ' ' || pg_get_constraintdef(oid)
		  FROM pg_constraint WHERE connamespace = 'belfry'::regnamespace AND conrelid <> 'belfry.schema_migrations'::regclass
		UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'belfry' AND tablename <> 'schema_migrations'
		UNION ALL SELECT 'function ' || pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'belfry'::regnamespace
		UNION ALL SELECT 'trigger ' || pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
		  WHERE c.relnamespace = 'belfry'::regnamespace AND NOT t.tgisinternal
		ORDER BY 1`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return list
}

func TestMigrations_UpDownUpLeadsToTheSameSchema(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	ctx := context.Background()
	applied, err := migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	require.NotEmpty(t, applied)
	require.Equal(t, migrations.Latest(), applied[len(applied)-1])
	first := catalog(t, db.Pool)
	require.NotEmpty(t, first)

	undone, err := migrations.Down(ctx, db.DSN, 0)
	require.NoError(t, err)
	require.Len(t, undone, len(applied))
	require.Empty(t, catalog(t, db.Pool), "down leaves nothing but the bookkeeping")

	_, err = migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	require.Equal(t, first, catalog(t, db.Pool))
	again, err := migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	require.Empty(t, again)
}

// Each single step can be undone and done again.
func TestMigrations_EachStepGoesDownAndUp(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	whole := catalog(t, db.Pool)
	for version := migrations.Latest() - 1; version >= 0; version-- {
		undone, err := migrations.Down(ctx, db.DSN, version)
		require.NoError(t, err)
		require.Equal(t, []int64{version + 1}, undone)
	}
	_, err := migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	require.Equal(t, whole, catalog(t, db.Pool))
}

// Locations from before 0015 whose difference from 0 is too small for their index become 0.
func TestMigrations_TinyLocationsBecomeZero(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	_, err := migrations.Down(ctx, db.DSN, 14)
	require.NoError(t, err)
	_, err = db.Pool.Exec(ctx, `INSERT INTO belfry.channels (external_id, platform, location) VALUES
		('a', 'ios', point(1e-300, 1)), ('b', 'ios', point(2, -1e-300)), ('c', 'ios', point(1e-13, -1e-13)), ('d', 'ios', point(1e-11, 0)), ('e', 'ios', NULL)`)
	require.NoError(t, err)
	_, err = migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	var places string
	require.NoError(t, db.Pool.QueryRow(ctx, `SELECT string_agg(coalesce(location::text, 'none'), ' ' ORDER BY external_id) FROM belfry.channels`).Scan(&places))
	require.Equal(t, "(0,1) (2,0) (0,0) (1e-11,0) none", places)
}

func TestMigrations_SeveralNodesMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	var nodes sync.WaitGroup
	counts := make([]int, 8)
	errs := make([]error, len(counts))
	for i := range counts {
		nodes.Go(func() {
			applied, err := migrations.Config{LockTimeout: time.Hour}.Up(context.Background(), db.DSN)
			counts[i], errs[i] = len(applied), err
		})
	}
	nodes.Wait()
	total := 0
	for i := range counts {
		require.NoError(t, errs[i])
		total += counts[i]
	}
	list, err := migrations.List(context.Background(), db.DSN)
	require.NoError(t, err)
	require.Equal(t, len(list), total, "every migration was applied once, by one node")
}

func TestMigrations_ListTellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	_, err := migrations.Down(ctx, db.DSN, migrations.Latest()-1)
	require.NoError(t, err)
	list, err := migrations.List(ctx, db.DSN)
	require.NoError(t, err)
	for i, s := range list {
		require.Equal(t, int64(i+1), s.Version)
		require.NotEmpty(t, s.Title)
		require.Equal(t, s.Version < migrations.Latest(), s.Applied != nil)
	}
}

// Every file says why it exists and has its other half.
func TestMigrations_FilesComeInPairsWithAReason(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(migrations.FS, "*.sql")
	require.NoError(t, err)
	for _, name := range names {
		text, err := fs.ReadFile(migrations.FS, name)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "-- "), "%s has no header comment", name)
		other := strings.NewReplacer(".up.", ".down.", ".down.", ".up.").Replace(name)
		_, err = fs.Stat(migrations.FS, other)
		require.NoError(t, err)
	}
}

// Databases in use have the schema that the files made.
func TestMigrations_NeverChange(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(migrations.FS, "*.sql")
	require.NoError(t, err)
	var sums strings.Builder
	for _, name := range names {
		text, err := fs.ReadFile(migrations.FS, name)
		require.NoError(t, err)
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), name)
	}
	immutable, err := os.ReadFile("testdata/immutable.txt")
	require.NoError(t, err)
	require.Equal(t, string(immutable), sums.String(), "change the schema by another migration, and add the lines of its files")
}

// A function's text is read again in each session, by that session's rules: where
// standard_conforming_strings is off, '\S' means an S.
func TestMigrations_FunctionsReadTheSameInEverySession(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	rows, err := db.Pool.Query(context.Background(), `SELECT proname FROM pg_proc
		WHERE pronamespace = 'belfry'::regnamespace AND prosqlbody IS NULL AND strpos(prosrc, chr(92)) > 0 ORDER BY 1`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, list, "write [^[:space:]] for \\S")
}

// versionOf returns the version of a migration file.
func versionOf(t *testing.T, name string) int64 {
	t.Helper()
	number, _, _ := strings.Cut(name, "_")
	version, err := strconv.ParseInt(number, 10, 64)
	require.NoError(t, err, name)
	return version
}

// Whoever writes a job can know all that happens to it: few triggers, each with its own
// columns, so that none needs to come before another.
func TestMigrations_JobsHaveAtMostSevenTriggers(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	var triggers int
	require.NoError(t, db.Pool.QueryRow(context.Background(),
		`SELECT count(*) FROM pg_trigger WHERE tgrelid = 'belfry.jobs'::regclass AND NOT tgisinternal`).Scan(&triggers))
	require.LessOrEqual(t, triggers, 7)
}
