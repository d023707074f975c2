package compose_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/migrations/dbtest"
	"github.com/belfryhq/belfry/outbox/compose"
)

// goldenVersion is the PostgreSQL whose wording the golden plans have. The other
// versions are held to what matters: no scan of a table that grows, no sort of it.
const goldenVersion = 15

// The plans of every statement over tables that have grown, with fresh statistics and
// with those of when they were empty (invariant 6). A changed golden file is a change of
// what a batch costs: review it as code.
func TestLong_PlansOfBatchStatements(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t))
	b.exec(t, `ALTER TABLE belfry.jobs DISABLE TRIGGER USER`)
	b.exec(t, `ALTER TABLE belfry.activities DISABLE TRIGGER USER`)
	b.exec(t, `ANALYZE`) // empty
	b.exec(t, `INSERT INTO belfry.jobs (id, type, category, title, route, started_at, delivered_at)
		SELECT nextval('belfry.jobs_id_seq'), 'push', (ARRAY['operator_notice','popular_content','question_content'])[1 + g % 3], 'x', '{push}', now() - g * interval '1 hour', now() - g * interval '1 hour'
		  FROM generate_series(1, 5000) g`)
	b.exec(t, `INSERT INTO belfry.activities (id, channel_id, title, route) SELECT nextval('belfry.activities_id_seq'), 1 + g % 1000, 'x', '{push}' FROM generate_series(1, 20000) g`)
	b.exec(t, `INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at, status, sent_at) SELECT 1 + g % 100, g / 100, now(), 'SENT', now() FROM generate_series(1, 50000) g`)
	b.exec(t, `INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at, status, sent_at) SELECT id, channel_id, now(), 'SENT', now() - -id * interval '1 minute' FROM belfry.activities`)
	b.exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) SELECT 1 + g % 100, g / 100, 0, 1, 'push', 'retryable' FROM generate_series(1, 20000) g`)
	version := one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`)

	ids := []int64{1, 2, 3, -1, -2, 4999}
	plans := func() string {
		categories := []string{"operator_notice", "activity", "activity", "x", "y", "z"}
		return b.explain(t, "Contents", pgx.StrictNamedArgs{"ids": ids}) +
			b.explain(t, "LastFailures", pgx.StrictNamedArgs{"job_ids": ids, "channel_ids": ids}) +
			b.explain(t, "CapCounts", pgx.StrictNamedArgs{
				"channel_ids": ids, "categories": categories, "windows": []float64{86400, 60, 60, 60, 60, 60},
				"span_categories": categories, "lows": ids, "highs": ids,
			})
	}
	stale := plans()
	b.exec(t, `ANALYZE`)
	fresh := plans()
	for _, table := range []string{"jobs", "activities", "messages", "attempts"} {
		require.NotContains(t, stale, "Seq Scan on "+table)
		require.NotContains(t, fresh, "Seq Scan on "+table)
	}
	if version == goldenVersion {
		dbtest.Golden(t, "testdata/explain.golden", fresh)
	}
}

// explain returns the plan of a statement without costs; JIT and parallelism vary between
// machines.
func (b *bundle) explain(t *testing.T, name string, args pgx.StrictNamedArgs) string {
	t.Helper()
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), `SET LOCAL max_parallel_workers_per_gather = 0`)
	require.NoError(t, err)
	rows, err := tx.Query(t.Context(), "EXPLAIN (COSTS OFF) "+compose.Statement(name), args)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return "# " + name + "\n" + strings.Join(lines, "\n") + "\n\n"
}
