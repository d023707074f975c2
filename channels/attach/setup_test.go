package attach

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// testDeadline bounds the database work of one test.
const testDeadline = 2 * time.Minute

// bundle is the environment of a test.
type bundle struct {
	ctx   context.Context //nolint:containedctx // lives as long as one test
	pool  *pgxpool.Pool
	store *channels.Store
}

func setup(t *testing.T) bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
	t.Cleanup(cancel)
	store, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	return bundle{ctx: ctx, pool: dbtest.Reused(t, 10).Pool, store: store}
}

func (b bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.pool.Exec(b.ctx, sql, args...)
	require.NoError(t, err)
}

// eventually waits until the query, a condition, is true.
func (b bundle) eventually(t *testing.T, sql string, args ...any) {
	t.Helper()
	require.Eventually(t, func() (is bool) {
		return b.pool.QueryRow(b.ctx, sql, args...).Scan(&is) == nil && is
	}, testDeadline, 5*time.Millisecond, sql)
}
