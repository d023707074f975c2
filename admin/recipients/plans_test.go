package recipients

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// The jobs that still need a segment are found by an index, however many are over.
func TestSegments_UsersAreReadByAnIndex(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	dbtest.Past(t, base.Pool, `INSERT INTO belfry.jobs (id, type, category, title, status, abort_requested, finished_at, idempotency_key, route)
		SELECT nextval('belfry.jobs_id_seq'), 'inbox', 'popular_content', 'old', 'ABORTED', true, now(), 'k' || g, '{}' FROM generate_series(1, 5000) g`)
	dbtest.Vacuum(t, base.Pool, "belfry.jobs")
	rows, err := base.Pool.Query(t.Context(), "EXPLAIN (COSTS OFF) "+queries.segmentUsers,
		pgx.NamedArgs{"limit": 100, "segment": "beta", "scan": segmentScan})
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	plan := strings.Join(lines, "\n")
	require.Contains(t, plan, "jobs_status_idx")
	require.NotContains(t, plan, "Seq Scan on jobs ")
}
