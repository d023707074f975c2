package cursor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// relation is what a walk reads.
type relation interface {
	insert(t require.TestingT, key cursor.Position)
	remove(t require.TestingT, key cursor.Position)
	// bound returns the highest key, or the zero position.
	bound(t require.TestingT) cursor.Position
	chunk(t require.TestingT, after, bound cursor.Position, limit int) []cursor.Position
}

// Invariants 1 to 3, with the relation in memory: they rest on Compare, Encode
// and Decode alone.
func TestWalk_NeitherSkipsNorRepeats(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := anyKeyset().Draw(t, "keyset")
		exerciseWalk(t, k, &memoryRelation{keyset: k})
	})
}

// Invariants 1 to 3 on PostgreSQL: Window, OrderBy, OrderByDesc and FromRow.
func TestWalk_NeitherSkipsNorRepeatsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	conn, err := db.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	rapid.Check(t, func(rt *rapid.T) {
		k := anyKeyset().Draw(rt, "keyset")
		exerciseWalk(rt, k, newTable(t.Context(), rt, conn.Conn(), k))
	})
}

// exerciseWalk walks the relation in chunks of any size, with rows inserted and
// deleted between them and some chunks rolled back, beside a naive oracle that
// keeps all rows in a slice.
func exerciseWalk(t *rapid.T, k cursor.Keyset, r relation) {
	keys := anyKeys(k).Draw(t, "keys")
	o := &oracle{live: make([]bool, len(keys)), keys: keys}
	position := func(i int) cursor.Position {
		p, err := k.Position(keys[i]...)
		require.NoError(t, err)
		return p
	}
	toggle := func(i int) {
		if o.live[i] {
			r.remove(t, position(i))
		} else {
			r.insert(t, position(i))
		}
		o.live[i] = !o.live[i]
	}
	for i := range keys {
		if rapid.Bool().Draw(t, "exists at first") {
			toggle(i)
		}
	}

	// The bound is frozen, and stored like the cursor.
	bound := r.bound(t)
	highest := o.highest()
	require.Equal(t, highest >= 0, !bound.IsZero())
	if highest >= 0 {
		require.Equal(t, keys[highest], bound.Values())
	}
	storedBound, storedCursor := k.Encode(bound), ""
	throughout := slices.Clone(o.live) // existed from the start and was never deleted
	after, read := -1, make([]bool, len(keys))

	for chunks := 0; ; chunks++ {
		require.LessOrEqual(t, chunks, 3*len(keys)+1, "the walk does not end")
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		got := chunk(t, k, r, storedCursor, storedBound, limit)
		want := o.window(after, highest, limit)
		require.Equal(t, o.values(want), got)
		if len(got) == 0 {
			break // by key exhaustion: a short chunk is not the end
		}
		// The runner dies before the commit, at most twice per key on average so
		// that the walk gets on: the cursor stays and the chunk is read again.
		if chunks < 2*len(keys) && rapid.IntRange(0, 3).Draw(t, "rolled back") == 0 {
			continue
		}
		for _, i := range want {
			require.False(t, read[i], "read twice: %v", keys[i])
			read[i] = true
			after = i
		}
		storedCursor = k.Encode(position(after))
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(keys)-1), 0, 3).Draw(t, "inserted or deleted") {
			toggle(i)
			throughout[i] = throughout[i] && o.live[i]
		}
	}
	for i, key := range keys {
		if throughout[i] {
			require.True(t, read[i], "skipped: %v", key)
		}
		if i > highest {
			require.False(t, read[i], "read above the bound: %v", key)
		}
	}
}

// chunk reads one chunk from the stored texts, as a runner that has just
// resumed the job does.
func chunk(t require.TestingT, k cursor.Keyset, r relation, storedCursor, storedBound string, limit int) [][]any {
	after, err := k.Decode(storedCursor)
	require.NoError(t, err)
	bound, err := k.Decode(storedBound)
	require.NoError(t, err)
	got := [][]any{}
	for _, p := range r.chunk(t, after, bound, limit) {
		got = append(got, p.Values())
	}
	return got
}

// oracle knows every key that ever exists, in order, and which are there now.
type oracle struct {
	keys [][]any
	live []bool
}

// highest returns the index of the highest live key, or -1.
func (o *oracle) highest() int {
	for i := len(o.keys) - 1; i >= 0; i-- {
		if o.live[i] {
			return i
		}
	}
	return -1
}

// window returns the first live keys above after and at or below bound.
func (o *oracle) window(after, bound, limit int) []int {
	var is []int
	for i := after + 1; i <= bound && len(is) < limit; i++ {
		if o.live[i] {
			is = append(is, i)
		}
	}
	return is
}

func (o *oracle) values(is []int) [][]any {
	vs := [][]any{}
	for _, i := range is {
		vs = append(vs, o.keys[i])
	}
	return vs
}

// anyKeys generates distinct keys in the oracle's order. Each column has only a
// few values, so that leading columns tie and neighbours leave gaps.
func anyKeys(k cursor.Keyset) *rapid.Generator[[][]any] {
	return rapid.Custom(func(t *rapid.T) [][]any {
		var domains [][]any
		for _, c := range k.Columns() {
			domains = append(domains, rapid.SliceOfN(anyValue(c.Type), 1, 8).Draw(t, "values of "+c.Name))
		}
		n := rapid.IntRange(1, 25).Draw(t, "keys")
		keys := make([][]any, n)
		for i := range keys {
			for _, d := range domains {
				keys[i] = append(keys[i], rapid.SampledFrom(d).Draw(t, "value"))
			}
		}
		slices.SortFunc(keys, compareValues)
		return slices.CompactFunc(keys, func(a, b []any) bool { return compareValues(a, b) == 0 })
	})
}

// memoryRelation is a relation that knows nothing but Compare.
type memoryRelation struct {
	keyset cursor.Keyset
	keys   []cursor.Position
}

func (m *memoryRelation) insert(_ require.TestingT, key cursor.Position) {
	m.keys = append(m.keys, key)
}

func (m *memoryRelation) remove(_ require.TestingT, key cursor.Position) {
	m.keys = slices.DeleteFunc(m.keys, func(p cursor.Position) bool { return m.keyset.Compare(p, key) == 0 })
}

func (m *memoryRelation) bound(require.TestingT) cursor.Position {
	if len(m.keys) == 0 {
		return cursor.Position{}
	}
	return slices.MaxFunc(m.keys, m.keyset.Compare)
}

func (m *memoryRelation) chunk(_ require.TestingT, after, bound cursor.Position, limit int) []cursor.Position {
	var in []cursor.Position
	for _, p := range m.keys {
		if m.keyset.Compare(p, after) > 0 && m.keyset.Compare(p, bound) <= 0 {
			in = append(in, p)
		}
	}
	slices.SortFunc(in, m.keyset.Compare)
	return in[:min(limit, len(in))]
}

// table is a temporary table keyed by the keyset, in one session.
type table struct {
	keyset cursor.Keyset
	conn   *pgx.Conn
	ctx    context.Context //nolint:containedctx // the test's own, in a fixture that implements an interface without it
	name   string
}

// newTable makes an empty temporary table, which goes with the check. Its name
// is new to the session: pgx keeps prepared statements by their text.
func newTable(ctx context.Context, t *rapid.T, conn *pgx.Conn, k cursor.Keyset) *table {
	r := &table{keyset: k, conn: conn, ctx: ctx, name: fmt.Sprintf("walk_%d", tables.Add(1))}
	r.exec(t, "CREATE TEMPORARY TABLE "+r.name+" "+definition(k))
	t.Cleanup(func() { r.exec(t, "DROP TABLE "+r.name) })
	r.exec(t, "CREATE UNIQUE INDEX ON "+r.name+" "+index(k))
	return r
}

// tables numbers the temporary tables.
var tables atomic.Int64

// definition is the column list of a table with the keyset's columns.
func definition(k cursor.Keyset) string {
	var columns []string
	for _, c := range k.Columns() {
		columns = append(columns, fmt.Sprintf("%s %s NOT NULL", pgx.Identifier{c.Name}.Sanitize(), c.Type))
	}
	return "(" + strings.Join(columns, ", ") + ")"
}

// index is the column list of the index that the package documents.
func index(k cursor.Keyset) string {
	return "(" + k.OrderBy() + ")"
}

func (r *table) deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.ctx, 30*time.Second)
}

func (r *table) exec(t require.TestingT, sql string, args ...any) int64 {
	ctx, cancel := r.deadline()
	defer cancel()
	tag, err := r.conn.Exec(ctx, sql, args...)
	require.NoError(t, err, sql)
	return tag.RowsAffected()
}

func (r *table) query(t require.TestingT, sql string, args ...any) []cursor.Position {
	ctx, cancel := r.deadline()
	defer cancel()
	rows, err := r.conn.Query(ctx, sql, args...)
	require.NoError(t, err, sql)
	got, err := pgx.CollectRows(rows, r.keyset.FromRow)
	require.NoError(t, err, sql)
	return got
}

func (r *table) insert(t require.TestingT, key cursor.Position) {
	marks := make([]string, len(key.Values()))
	for i := range marks {
		marks[i] = fmt.Sprintf("$%d", i+1)
	}
	r.exec(t, "INSERT INTO "+r.name+" VALUES ("+strings.Join(marks, ", ")+")", key.Values()...)
}

// remove deletes the key by a window that holds it alone if the order is right:
// nothing above it at or below it, and it is the last.
func (r *table) remove(t require.TestingT, key cursor.Position) {
	upTo, args := r.keyset.Window(cursor.Position{}, key)
	require.Equal(t, int64(1), r.exec(t, "DELETE FROM "+r.name+" WHERE ctid = (SELECT ctid FROM "+r.name+
		" WHERE "+upTo+" ORDER BY "+r.keyset.OrderByDesc()+" LIMIT 1)", args))
}

func (r *table) bound(t require.TestingT) cursor.Position {
	got := r.query(t, "SELECT "+r.keyset.SelectList()+" FROM "+r.name+" ORDER BY "+r.keyset.OrderByDesc()+" LIMIT 1")
	if len(got) == 0 {
		return cursor.Position{}
	}
	return got[0]
}

func (r *table) chunk(t require.TestingT, after, bound cursor.Position, limit int) []cursor.Position {
	window, args := r.keyset.Window(after, bound)
	args["limit"] = limit
	return r.query(t, "SELECT "+r.keyset.SelectList()+" FROM "+r.name+
		" WHERE "+window+" ORDER BY "+r.keyset.OrderBy()+" LIMIT @limit", args)
}

// Invariant 5.
func TestCompare_IsTheOrderOfPostgreSQL(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	conn, err := db.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	rapid.Check(t, func(rt *rapid.T) {
		k := anyKeyset().Draw(rt, "keyset")
		r := newTable(t.Context(), rt, conn.Conn(), k)
		var keys []cursor.Position
		for _, values := range anyKeys(k).Draw(rt, "keys") {
			p, err := k.Position(values...)
			require.NoError(rt, err)
			keys = append(keys, p)
			r.insert(rt, p)
		}
		slices.SortFunc(keys, k.Compare)
		selectAll := "SELECT " + k.SelectList() + " FROM " + r.name
		require.Equal(rt, keys, r.query(rt, selectAll+" ORDER BY "+k.OrderBy()))
		slices.Reverse(keys)
		require.Equal(rt, keys, r.query(rt, selectAll+" ORDER BY "+k.OrderByDesc()))
		// Row comparison is the same order: each key counts those at or below it.
		for i, p := range keys {
			upTo, args := k.Window(cursor.Position{}, p)
			require.Equal(rt, keys[i:], r.query(rt, selectAll+" WHERE "+upTo+" ORDER BY "+k.OrderByDesc(), args))
		}
	})
}
