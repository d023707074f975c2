package operation

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// Every page of the console reads the status: by indexes, however long the past is.
func TestStatus_IsReadByIndexes(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	dbtest.Past(t, base.Pool, `INSERT INTO belfry.jobs (id, type, category, title, status, abort_requested, finished_at, idempotency_key, route)
		SELECT nextval('belfry.jobs_id_seq'), 'inbox', 'popular_content', 'old', 'ABORTED', true, now(), 'k' || g, '{}' FROM generate_series(1, 5000) g`)
	dbtest.Past(t, base.Pool, `INSERT INTO belfry.job_events (job_id, kind, actor) SELECT id, 'aborted', 'ann' FROM belfry.jobs`)
	_, err := base.Pool.Exec(t.Context(), `INSERT INTO belfry.events (subject, name, kind, actor) SELECT 'lane', 'news', 'paused', 'ann' FROM generate_series(1, 5000)`)
	require.NoError(t, err)
	dbtest.Vacuum(t, base.Pool, "belfry.jobs", "belfry.job_events", "belfry.events")
	rows, err := base.Pool.Query(t.Context(), "EXPLAIN (COSTS OFF) "+queries.statusRead, pgx.NamedArgs{"limit": 100})
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	plan := strings.Join(lines, "\n")
	for _, index := range []string{"jobs_one_running_per_lane", "job_events_pkey", "events_pkey"} {
		require.Contains(t, plan, index)
	}
	for _, large := range []string{"jobs", "job_events", "events"} {
		require.NotContains(t, plan, "Seq Scan on "+large+" ")
	}
}
