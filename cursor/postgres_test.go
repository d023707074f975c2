package cursor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// mixed is a keyset of every type under names that need their quotes.
var mixed = cursor.MustKeyset(
	cursor.Column{Name: "Occurred at", Type: cursor.Timestamptz}, cursor.Column{Name: `"@odd"`, Type: cursor.Text},
	cursor.Column{Name: "select", Type: cursor.UUID}, cursor.Column{Name: "이름", Type: cursor.Int}, cursor.Column{Name: "ID", Type: cursor.Bigint},
)

// setup returns a pool on an empty database and a context with a deadline.
func setup(t *testing.T) (context.Context, *pgxpool.Pool) {
	t.Helper()
	db := dbtest.NewEmpty(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx, db.Pool
}

func exec(ctx context.Context, t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(ctx, sql, args...)
	require.NoError(t, err, sql)
}

// An operator reads and casts the stored text in SQL.
func TestEncode_CastsBackInSQL(t *testing.T) {
	t.Parallel()
	ctx, pool := setup(t)
	for _, typ := range []cursor.Type{cursor.Bigint, cursor.Int, cursor.UUID, cursor.Timestamptz} {
		k := one(typ)
		for _, v := range someValues[typ] {
			p, err := k.Position(v)
			require.NoError(t, err)
			rows, err := pool.Query(ctx, "SELECT $1::text::"+string(typ), k.Encode(p))
			require.NoError(t, err)
			got, err := pgx.CollectExactlyOneRow(rows, k.FromRow)
			require.NoError(t, err, k.Encode(p))
			require.Equal(t, p, got)
		}
	}
	k := keysetOf(cursor.Text, cursor.Bigint)
	for _, v := range someValues[cursor.Text] {
		p, err := k.Position(v, int64(9007199254740993))
		require.NoError(t, err)
		rows, err := pool.Query(ctx, "SELECT $1::text::jsonb ->> 0, ($1::text::jsonb ->> 1)::bigint", k.Encode(p))
		require.NoError(t, err)
		got, err := pgx.CollectExactlyOneRow(rows, k.FromRow)
		require.NoError(t, err, k.Encode(p))
		require.Equal(t, p, got)
	}
}

// Behind PgBouncer people set simple protocol or exec mode, in which pgx
// renders arguments as text by their Go type.
func TestWindow_WorksInEveryQueryExecMode(t *testing.T) {
	t.Parallel()
	ctx, pool := setup(t)
	exec(ctx, t, pool, "CREATE TABLE mixed "+definition(mixed))
	var keys []cursor.Position
	for i, at := range someValues[cursor.Timestamptz] {
		text := someValues[cursor.Text][i]
		if text == "한국어" { // one column that ties, too
			text = ""
		}
		p, err := mixed.Position(at, text, [16]byte{15: byte(i)}, i-3, int64(-i)<<40)
		require.NoError(t, err)
		keys = append(keys, p)
		exec(ctx, t, pool, "INSERT INTO mixed VALUES ($1, $2, $3, $4, $5)", p.Values()...)
	}
	modes := []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	}
	for _, mode := range modes {
		for _, bound := range keys {
			for _, after := range append(keys, cursor.Position{}) {
				var want []cursor.Position
				for _, p := range keys {
					if mixed.Compare(after, p) < 0 && mixed.Compare(p, bound) <= 0 {
						want = append(want, p)
					}
				}
				window, args := mixed.Window(after, bound)
				rows, err := pool.Query(ctx, "SELECT "+mixed.SelectList()+" FROM mixed WHERE "+window, mode, args)
				require.NoError(t, err)
				got, err := pgx.CollectRows(rows, mixed.FromRow)
				require.NoError(t, err, "%s: %s to %s", mode, after, bound)
				require.ElementsMatch(t, want, got, "%s: %s to %s", mode, after, bound)
			}
		}
	}
}

func TestWindow_OfAnEmptyRelationReadsNothing(t *testing.T) {
	t.Parallel()
	ctx, pool := setup(t)
	k := one(cursor.Bigint)
	exec(ctx, t, pool, "CREATE TABLE late "+definition(k))
	exec(ctx, t, pool, "INSERT INTO late VALUES (1)") // after the bound was read
	window, args := k.Window(cursor.Position{}, cursor.Position{})
	args["limit"] = 10
	rows, err := pool.Query(ctx, "SELECT k FROM late WHERE "+window+" LIMIT @limit", args)
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, k.FromRow)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestFromRow_NamesEachFault(t *testing.T) {
	t.Parallel()
	ctx, pool := setup(t)
	const prefix = `cursor: value is no key of the keyset: `
	tests := map[string]struct {
		typ       cursor.Type
		sql, want string
	}{
		"NULL":                     {cursor.Bigint, "SELECT NULL::bigint", prefix + `column "k": is NULL; key columns have to be NOT NULL`},
		"no columns":               {cursor.Bigint, "SELECT", prefix + `the row has 0 columns, want first the key columns "k"`},
		"bigint for int":           {cursor.Int, "SELECT 1::bigint AS n", prefix + `column "k": want int, the result column "n" has type int8`},
		"numeric for bigint":       {cursor.Bigint, "SELECT 1::numeric AS n", prefix + `column "k": want bigint, the result column "n" has type numeric`},
		"timestamp without a zone": {cursor.Timestamptz, "SELECT now()::timestamp AS at", prefix + `column "k": want timestamptz, the result column "at" has type timestamp`},
		"date":                     {cursor.Timestamptz, "SELECT now()::date AS at", prefix + `column "k": want timestamptz, the result column "at" has type date`},
		"text for uuid":            {cursor.UUID, "SELECT ''::text AS u", prefix + `column "k": want uuid, the result column "u" has type text`},
		"char for text":            {cursor.Text, "SELECT 'a'::char(3) AS c", prefix + `column "k": want text, the result column "c" has type bpchar`},
		"a type of no name here":   {cursor.Text, "SELECT 0::oid::regcollation AS c", prefix + `column "k": want text, the result column "c" has type with OID 4191`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, err := pool.Query(ctx, tt.sql)
			require.NoError(t, err)
			_, err = pgx.CollectRows(rows, one(tt.typ).FromRow)
			require.ErrorIs(t, err, cursor.ErrValue)
			require.EqualError(t, err, tt.want)
		})
	}
}

func TestFromRow_TakesNarrowerTypesAndFurtherColumns(t *testing.T) {
	t.Parallel()
	ctx, pool := setup(t)
	tests := []struct {
		typ  cursor.Type
		sql  string
		want any
	}{
		{cursor.Bigint, "SELECT 7::smallint, 'title'", 7},
		{cursor.Bigint, "SELECT 7::integer, NULL", 7},
		{cursor.Int, "SELECT 7::smallint, 1.5", 7},
		{cursor.Text, "SELECT 'x'::varchar(9), now()", "x"},
	}
	for _, tt := range tests {
		t.Run(tt.sql, func(t *testing.T) {
			t.Parallel()
			rows, err := pool.Query(ctx, tt.sql)
			require.NoError(t, err)
			got, err := pgx.CollectExactlyOneRow(rows, one(tt.typ).FromRow)
			require.NoError(t, err)
			want, err := one(tt.typ).Position(tt.want)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

// Each type's window is read through the documented index: both bounds are
// index conditions, nothing is sorted and nothing is filtered.
func TestWindow_IsReadThroughTheIndex(t *testing.T) {
	t.Parallel()
	ctx, pool := setup(t)
	value := map[cursor.Type]string{ // of the n-th row
		cursor.Bigint:      "(%s)::bigint",
		cursor.Int:         "(%s)::int",
		cursor.UUID:        "md5((%s)::text)::uuid",
		cursor.Text:        "'key ' || (%s)",
		cursor.Timestamptz: "'2026-01-01Z'::timestamptz + (%s) * interval '1 second'",
	}
	keysets := map[string]cursor.Keyset{"every type": keysetOf(everyType...), "tied text, bigint": keysetOf(cursor.Text, cursor.Bigint)}
	for _, typ := range everyType {
		keysets[string(typ)] = keysetOf(typ)
	}
	for name, k := range keysets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := pgx.Identifier{"walk " + name}.Sanitize()
			var values []string
			for i, c := range k.Columns() {
				n := "n / 100" // leading columns tie
				if i == len(k.Columns())-1 {
					n = "n"
				}
				values = append(values, fmt.Sprintf(value[c.Type], n))
			}
			exec(ctx, t, pool, "CREATE TABLE "+table+" "+definition(k))
			exec(ctx, t, pool, "INSERT INTO "+table+" SELECT "+strings.Join(values, ", ")+" FROM generate_series(1, 5000) n")
			exec(ctx, t, pool, "CREATE UNIQUE INDEX ON "+table+" "+index(k))
			exec(ctx, t, pool, "ANALYZE "+table)

			at := func(offset int) cursor.Position {
				rows, err := pool.Query(ctx, "SELECT "+k.SelectList()+" FROM "+table+" ORDER BY "+k.OrderBy()+" OFFSET $1 LIMIT 1", offset)
				require.NoError(t, err)
				p, err := pgx.CollectExactlyOneRow(rows, k.FromRow)
				require.NoError(t, err)
				return p
			}
			window, args := k.Window(at(2000), at(4000))
			plan := explain(ctx, t, pool, "SELECT "+k.SelectList()+" FROM "+table+" WHERE "+window+" ORDER BY "+k.OrderBy()+" LIMIT 100", args)
			require.Regexp(t, `Index (Only )?Scan using`, plan)
			require.NotRegexp(t, `Sort|Seq Scan|Filter|Bitmap`, plan)
			require.Regexp(t, `Index Cond: .*>.*<=`, plan)

			plan = explain(ctx, t, pool, "SELECT "+k.SelectList()+" FROM "+table+" ORDER BY "+k.OrderByDesc()+" LIMIT 1", pgx.StrictNamedArgs{})
			require.Regexp(t, `Index (Only )?Scan Backward using`, plan)
			require.NotRegexp(t, `Sort|Seq Scan`, plan)
		})
	}
}

// The other half of the documented contract: an index in another collation
// does not serve a text keyset.
func TestWindow_OfTextNeedsAnIndexInCollationC(t *testing.T) {
	t.Parallel()
	ctx, pool := setup(t)
	k := keysetOf(cursor.Text)
	exec(ctx, t, pool, `CREATE TABLE walk (c1 text COLLATE ucs_basic NOT NULL UNIQUE)`)
	exec(ctx, t, pool, "INSERT INTO walk SELECT 'key ' || i FROM generate_series(1, 5000) i")
	exec(ctx, t, pool, "ANALYZE walk")
	after, err := k.Position("key 2")
	require.NoError(t, err)
	bound, err := k.Position("key 4")
	require.NoError(t, err)
	window, args := k.Window(after, bound)
	sql := "SELECT c1 FROM walk WHERE " + window + " ORDER BY " + k.OrderBy() + " LIMIT 100"
	require.Regexp(t, `Sort`, explain(ctx, t, pool, sql, args))

	exec(ctx, t, pool, `CREATE UNIQUE INDEX ON walk (c1 COLLATE "C")`)
	require.NotRegexp(t, `Sort`, explain(ctx, t, pool, sql, args))
}

// explain returns the plan as text.
func explain(ctx context.Context, t *testing.T, pool *pgxpool.Pool, sql string, args pgx.StrictNamedArgs) string {
	t.Helper()
	rows, err := pool.Query(ctx, "EXPLAIN "+sql, args)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

// The order of text is the bytes' whatever the database's locale says.
func TestOrderBy_OfTextIgnoresTheLocale(t *testing.T) {
	t.Parallel()
	ctx, pool := setup(t)
	var built bool
	require.NoError(t, pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_collation WHERE collname = 'und-x-icu')").Scan(&built))
	if !built {
		t.Skip("this PostgreSQL was built without ICU, so it has no locale that is certain to differ from C")
	}
	k := keysetOf(cursor.Text)
	exec(ctx, t, pool, `CREATE TABLE walk (c1 text COLLATE "und-x-icu" NOT NULL)`)
	exec(ctx, t, pool, "INSERT INTO walk VALUES ('b'), ('B'), ('a'), ('_'), ('é'), ('z')")
	rows, err := pool.Query(ctx, "SELECT c1 FROM walk ORDER BY "+k.OrderBy())
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"B", "_", "a", "b", "z", "é"}, got)

	after, err := k.Position("B")
	require.NoError(t, err)
	bound, err := k.Position("b")
	require.NoError(t, err)
	window, args := k.Window(after, bound)
	rows, err = pool.Query(ctx, "SELECT c1 FROM walk WHERE "+window+" ORDER BY "+k.OrderBy(), args)
	require.NoError(t, err)
	got, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"_", "a", "b"}, got)
}
