package cities

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

// bundle is what most tests need.
type bundle struct {
	ctx   context.Context //nolint:containedctx // lives as long as one test
	pool  *pgxpool.Pool
	store *channels.Store
}

func setup(t *testing.T) bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	store, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	return bundle{ctx: ctx, pool: dbtest.New(t).Pool, store: store}
}

func (b bundle) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := b.pool.Exec(b.ctx, sql)
	require.NoError(t, err)
}

func (b bundle) queryIDs(t *testing.T, sql string) (ids []int64) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(b.ctx, sql).Scan(&ids))
	return ids
}
