package compose_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
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
	b.exec(t, `INSERT INTO belfry.activities (id, channel_id, title, route) SELECT -nextval('belfry.arrivals_seq'), 1 + g % 1000, 'x', '{push}' FROM generate_series(1, 20000) g`)
	b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, sent_at) SELECT 1 + g % 100, g / 100, now(), 'SENT', now() FROM generate_series(1, 50000) g`)
	b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, sent_at) SELECT id, channel_id, now(), 'SENT', now() - -id * interval '1 minute' FROM belfry.activities`)
	b.exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome) SELECT 1 + g % 100, g / 100, 0, 1, 'push', 'retryable' FROM generate_series(1, 20000) g`)
	version := one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`)

	ids := []int64{1, 2, 3, -1, -2, 4999}
	plans := func() string {
		categories := []string{"operator_notice", "activity", "activity", "x", "y", "z"}
		return b.explain(t, "Contents", pgx.StrictNamedArgs{"ids": ids}) +
			b.explain(t, "LastFailures", pgx.StrictNamedArgs{"job_ids": ids, "channel_ids": ids}) +
			b.explain(t, "CapCounts", pgx.StrictNamedArgs{
				"channel_ids": ids, "categories": categories, "windows": []float64{86400, 60, 60, 60, 60, 60},
				"span_categories": categories, "lows": ids, "highs": ids, "jobs": 50000, "activities": 2003,
			})
	}
	stale := plans()
	b.exec(t, `ANALYZE`)
	fresh := plans()
	for _, table := range []string{"jobs", "activities", "message_rows", "attempts"} {
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

// What a batch reads is planned once, for one message as for many: a server that finds a plan
// for the messages at hand cheaper than one for any makes it anew for each batch, which takes
// longer than what it is a plan of.
func TestCompose_IsPlannedOnce(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t))
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform) SELECT g, 'u-' || g, 'ios' FROM generate_series(4, 5000) g`)
	b.exec(t, `INSERT INTO belfry.opt_outs (channel_id, medium) SELECT id, 'sms' FROM belfry.channels`)
	b.exec(t, `INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256) SELECT id, 'sms', sha256('x') FROM belfry.channels`)
	dbtest.Vacuum(t, b.db.Pool, "belfry.channels", "belfry.opt_outs", "belfry.invalid_addresses")
	composer, only := b.composerOfOneConnection(t)
	for range 20 {
		for _, channels := range [][]int64{{1}, {1, 4000}, {1, 900, 2000, 4000}} {
			var list []outbox.Claimed
			for _, channel := range channels {
				list = append(list, b.claim(t, b.send(t, channel, "activity", "told"), channel))
			}
			composed, err := composer.Compose(t.Context(), list)
			require.NoError(t, err)
			require.Len(t, composed, len(list))
		}
	}
	rows, err := only.Query(t.Context(), `SELECT statement FROM pg_prepared_statements WHERE custom_plans > 10`)
	require.NoError(t, err)
	anew, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, anew)
	var once int
	require.NoError(t, only.QueryRow(t.Context(), `SELECT count(*) FROM pg_prepared_statements WHERE generic_plans >= 50`).Scan(&once))
	require.Equal(t, 4, once, "contents, recipients, opt-outs, invalid addresses")
}

// composerOfOneConnection returns a composer whose statements are all made on one connection, and
// a pool of that connection.
func (b *bundle) composerOfOneConnection(t *testing.T) (*compose.Composer, *pgxpool.Pool) {
	t.Helper()
	config := b.db.Pool.Config()
	config.MinConns, config.MaxConns = 0, 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	composer, err := compose.New(pool, b.who, compose.DefaultConfig(), nil)
	require.NoError(t, err)
	return composer, pool
}
