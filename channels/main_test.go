package channels

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/dev/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// testDeadline bounds everything one test asks of the database.
const testDeadline = 2 * time.Minute

// bundle is what most tests need.
type bundle struct {
	ctx   context.Context //nolint:containedctx // lives as long as one test
	pool  *pgxpool.Pool
	store *Store
}

func setup(t *testing.T) bundle {
	t.Helper()
	return setupOn(t, DefaultRelation)
}

func setupOn(t *testing.T, relation string) bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
	t.Cleanup(cancel)
	store, err := New(Config{Relation: relation})
	require.NoError(t, err)
	return bundle{ctx: ctx, pool: dbtest.Reused(t, 10).Pool, store: store}
}

// inOrder is t.Run for subtests that share a database, one after the other. One of its own
// costs a test as much as most of the rest of it.
func inOrder(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, test)
}

func (b bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.pool.Exec(b.ctx, sql, args...)
	require.NoError(t, err)
}

func (b bundle) queryIDs(t *testing.T, sql string, args ...any) []int64 {
	t.Helper()
	var ids []int64
	require.NoError(t, b.pool.QueryRow(b.ctx, sql, args...).Scan(&ids))
	return ids
}

// walkAll reads a whole walk by IDs and by Channels, which have to agree.
func (b bundle) walkAll(t *testing.T, a Audience, limit int) (ids []int64, examined int) {
	t.Helper()
	bound, err := b.store.Bound(b.ctx, b.pool)
	require.NoError(t, err)
	w, err := b.store.Open(b.ctx, b.pool, a, cursor.Position{}, bound)
	require.NoError(t, err)
	var at cursor.Position
	for {
		page, err := w.IDs(b.ctx, b.pool, at, limit)
		require.NoError(t, err)
		full, err := w.Channels(b.ctx, b.pool, at, limit)
		require.NoError(t, err)
		require.Equal(t, page.Read, full.Read)
		require.LessOrEqual(t, page.Read, limit)
		if page.Read == 0 {
			require.Empty(t, page.Rows)
			return ids, examined
		}
		require.Equal(t, page.Next, full.Next)
		require.Len(t, full.Rows, len(page.Rows))
		for i, c := range full.Rows {
			require.Equal(t, page.Rows[i], c.ID)
		}
		ids = append(ids, page.Rows...)
		examined += page.Read
		at = page.Next
	}
}
