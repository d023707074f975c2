package migrations_test

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/migrations"
)

// relation is a table or a view of belfry within a transaction.
type relation struct {
	OID, File, Scans int64
	Table            string
	Modes            []string // of the locks that this session has
}

// relations reads the tables, partitions and views of belfry. A scan of the transaction before may still be counted.
func relations(t *testing.T, tx pgx.Tx) map[int64]relation {
	t.Helper()
	rows, err := tx.Query(t.Context(), `
		SELECT c.oid::bigint AS oid, coalesce(pg_relation_filenode(c.oid), 0)::bigint AS file, pg_stat_get_xact_numscans(c.oid) AS scans,
		       'belfry.' || (SELECT p.relname FROM pg_class p WHERE p.oid = coalesce(pg_partition_root(c.oid), c.oid)) AS table,
		       coalesce((SELECT array_agg(DISTINCT l.mode) FROM pg_locks l WHERE l.pid = pg_backend_pid() AND l.relation = c.oid), '{}') AS modes
		  FROM pg_class c WHERE c.relnamespace = 'belfry'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[relation])
	require.NoError(t, err)
	found := make(map[int64]relation, len(list))
	for _, r := range list {
		found[r.OID] = r
	}
	return found
}

// modeOf returns the mode in SQL of a mode of pg_locks: ShareRowExclusiveLock is SHARE ROW EXCLUSIVE.
func modeOf(lock string) string {
	var words strings.Builder
	for i, r := range strings.TrimSuffix(lock, "Lock") {
		if i > 0 && r >= 'A' && r <= 'Z' {
			words.WriteByte(' ')
		}
		words.WriteRune(r)
	}
	return strings.ToUpper(words.String())
}

// taken executes the text of a migration in tx and returns the locks that it took on relations that existed before.
func taken(t *testing.T, tx pgx.Tx, text string) []migrations.Lock {
	t.Helper()
	before := relations(t, tx)
	_, err := tx.Exec(t.Context(), text)
	require.NoError(t, err, text)
	after := relations(t, tx)
	locks := make(map[string]migrations.Lock)
	for oid, was := range before {
		is, there := after[oid]
		if !there { // dropped, which needs the strongest lock
			is = was
			is.Modes = []string{"AccessExclusiveLock"}
		}
		l, ok := locks[was.Table]
		if !ok {
			l = migrations.Lock{Table: was.Table, Work: migrations.Instant}
		}
		for _, mode := range is.Modes {
			if m := modeOf(mode); migrations.Strength(m) > migrations.Strength(l.Mode) {
				l.Mode = m
			}
		}
		switch {
		case is.File != was.File:
			l.Work = migrations.Rewrite
		case is.Scans > was.Scans && l.Work == migrations.Instant:
			l.Work = migrations.Scan
		}
		if l.Mode != "" {
			locks[was.Table] = l
		}
	}
	return slices.SortedFunc(maps.Values(locks), func(a, b migrations.Lock) int { return strings.Compare(a.Table, b.Table) })
}

// Each migration declares the locks that it takes: it runs on the schema of the migrations before it, and the locks of
// its session are compared with its header.
func TestLocks_AreDeclared(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	_, err := db.Pool.Exec(t.Context(), `CREATE SCHEMA belfry`)
	require.NoError(t, err)
	names, err := fs.Glob(migrations.FS, "*.up.sql")
	require.NoError(t, err)
	for _, name := range names {
		text, err := fs.ReadFile(migrations.FS, name)
		require.NoError(t, err)
		declared := migrations.LocksOf(string(text))
		require.Len(t, declared, strings.Count(string(text), "-- Locks:"), "%s: the form is -- Locks: belfry.TABLE MODE (instant|scan|rewrite)", name)
		if statements := migrations.StatementsOf(string(text)); len(statements) > 0 { // no transaction
			for _, statement := range statements {
				_, err = db.Pool.Exec(t.Context(), statement)
				require.NoError(t, err, name)
			}
			for _, l := range declared {
				require.Equal(t, "SHARE UPDATE EXCLUSIVE", l.Mode, name)
			}
			require.NotEmpty(t, declared, name)
			continue
		}
		conn, err := pgx.ConnectConfig(t.Context(), db.Pool.Config().ConnConfig) // scans are counted per session
		require.NoError(t, err)
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		require.Equal(t, taken(t, tx, string(text)), declared, "the locks of %s differ from its header", name)
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, conn.Close(t.Context()))
	}
}

// The comparison finds each kind of lock and of work.
func TestLocks_OfEachKindAreFound(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	for text, want := range map[string]string{
		`CREATE TABLE belfry.fresh (id bigint)`:                                                                          "",
		`SELECT count(*) FROM belfry.jobs`:                                                                               "",
		`ALTER TABLE belfry.jobs ADD COLUMN note text`:                                                                   "belfry.jobs ACCESS EXCLUSIVE (instant)",
		`ALTER TABLE belfry.samples ADD COLUMN note uuid DEFAULT gen_random_uuid()`:                                      "belfry.samples ACCESS EXCLUSIVE (rewrite)",
		`ALTER TABLE belfry.samples ADD CONSTRAINT c CHECK (at IS NOT NULL) NOT VALID`:                                   "belfry.samples ACCESS EXCLUSIVE (instant)",
		`ALTER TABLE belfry.samples ADD CONSTRAINT c CHECK (at IS NOT NULL)`:                                             "belfry.samples ACCESS EXCLUSIVE (scan)",
		`CREATE INDEX ON belfry.message_rows (sender)`:                                                                   "belfry.message_rows SHARE (scan)",
		`CREATE TABLE belfry.fresh (id bigint REFERENCES belfry.jobs (id))`:                                              "belfry.jobs SHARE ROW EXCLUSIVE (instant)",
		`DROP VIEW belfry.dead_letters`:                                                                                  "belfry.dead_letters ACCESS EXCLUSIVE (instant)",
		`UPDATE belfry.samples SET at = at`:                                                                              "belfry.samples ROW EXCLUSIVE (scan)",
		`ANALYZE belfry.samples`:                                                                                         "belfry.samples SHARE UPDATE EXCLUSIVE (instant)",
		`ALTER TABLE belfry.jobs ADD COLUMN note text; LOCK belfry.lanes IN EXCLUSIVE MODE; TRUNCATE belfry.attachments`: "belfry.attachments ACCESS EXCLUSIVE (rewrite), belfry.jobs ACCESS EXCLUSIVE (instant), belfry.lanes EXCLUSIVE (instant)",
	} {
		conn, err := pgx.ConnectConfig(t.Context(), db.Pool.Config().ConnConfig)
		require.NoError(t, err)
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		var list, lines []string
		for _, l := range taken(t, tx, text) {
			list = append(list, l.Table+" "+l.Mode+" ("+string(l.Work)+")")
			lines = append(lines, "-- Locks: "+list[len(list)-1])
			require.Equal(t, []migrations.Lock{l}, migrations.LocksOf("-- A header.\n"+lines[len(lines)-1]+"\n\n"+text))
		}
		require.Equal(t, want, strings.Join(list, ", "), text)
		require.NoError(t, conn.Close(t.Context()))
	}
}
