package job_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
)

// The statements that run for every chunk, every tick or every console refresh
// keep their plans on a table with a long history. The statements are EXPLAINed
// as they stand in queries.sql.
func TestQueries_HotStatementsKeepTheirPlans(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	// 5,000 finished jobs, 200 waiting, one running in another lane.
	dbtest.Past(t, db.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, idempotency_key, status, abort_requested, finished_at)
		SELECT nextval('belfry.jobs_id_seq'), 'inbox', 'popular_content', 'old', '{}', 'k' || g, 'ABORTED', true, now() FROM generate_series(1, 5000) g`)
	dbtest.Past(t, db.Pool, `INSERT INTO belfry.job_events (job_id, kind, actor, detail) SELECT id, kind, 'ann', '{"before": {"status": "PENDING"}, "after": {"status": "ABORTED"}}'
		  FROM belfry.jobs, unnest('{enqueued,aborted}'::text[]) kind ORDER BY kind DESC, id`)
	for _, sql := range []string{
		`INSERT INTO belfry.events (subject, name, kind, actor) SELECT 'lane', 'news', 'paused', 'ann' FROM generate_series(1, 5000)`,
		`INSERT INTO belfry.jobs (type, category, title, priority) SELECT 'inbox', 'popular_content', 'new', g % 7 FROM generate_series(1, 200) g`,
		`INSERT INTO belfry.jobs (type, category, title, lane) VALUES ('inbox', 'popular_content', 'now', 'other')`,
		`UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now() WHERE lane = 'other'`,
	} {
		_, err := db.Pool.Exec(ctx, sql)
		require.NoError(t, err)
	}
	dbtest.Vacuum(t, db.Pool, "belfry.jobs", "belfry.job_events", "belfry.events")
	var out strings.Builder
	explain(t, db, &out, "JobsSnapshot", pgx.StrictNamedArgs{"runner": "r2", "types": []string{"inbox"}, "lanes": nil, "stale_after": "30s"})
	explain(t, db, &out, "JobClaim", pgx.StrictNamedArgs{"runner": "r2", "types": []string{"inbox"}, "lanes": nil, "pid": 1})
	explain(t, db, &out, "JobResumeDead", pgx.StrictNamedArgs{"runner": "r2", "types": []string{"inbox"}, "lanes": nil, "stale_after": "30s", "pid": 1, "gone": []int64{3}})
	explain(t, db, &out, "JobGiveUp", pgx.StrictNamedArgs{"runner": "r2", "types": []string{"inbox"}, "lanes": nil, "stale_after": "30s", "max_takeovers": 5, "gone": []int64{3}, "limit": 100})
	explain(t, db, &out, "JobRelease", pgx.StrictNamedArgs{"types": []string{"inbox"}, "lanes": nil, "stale_after": "30s", "limit": 100})
	explain(t, db, &out, "JobExpire", pgx.StrictNamedArgs{"limit": 1000})
	explain(t, db, &out, "RunBegin", pgx.StrictNamedArgs{"application": "a", "timeout_ms": "100", "lock_timeout_ms": "80", "async_commit": true, "id": int64(5), "types": []string{"inbox"}})
	explain(t, db, &out, "ChunkCommit", pgx.StrictNamedArgs{"id": int64(5), "fence": int64(1), "before": "", "cursor": "9", "read": 1, "rows": 1,
		"matched": 1, "declined": 0, "skipped": 0, "throttle": "", "detail": "", "throttled_ms": 0})
	explain(t, db, &out, "RunHold", pgx.StrictNamedArgs{"id": int64(5), "fence": int64(1), "throttle": "", "detail": "", "throttled_ms": 0})
	explain(t, db, &out, "SkipNext", pgx.StrictNamedArgs{"job_id": int64(5)})
	explain(t, db, &out, "RunHeartbeat", pgx.StrictNamedArgs{"id": int64(5), "fence": int64(1), "error": "", "pid": 1})
	for _, filter := range []pgx.StrictNamedArgs{ // what few or none pass is found at once
		{"by": "status"}, {"by": "type", "type": "push"}, {"by": "category", "category": "question"}, {"by": "lane", "lane": "night"},
		{"by": "group", "group_id": "00000000-0000-0000-0000-000000000001"}, {"by": "category", "lane": "default", "category": "popular_content", "type": "push"},
		{"by": "status", "lowest": int64(40), "since": "2020-01-01", "until": "2020-01-02"},
	} {
		args := pgx.StrictNamedArgs{"before_id": int64(1 << 40), "statuses": []string{"FAILED", "ABORTED"}, "type": nil, "category": nil, "lane": nil, "text": nil, "group_id": nil, "lowest": int64(1), "since": nil, "until": nil, "looks": 50}
		maps.Copy(args, filter)
		explain(t, db, &out, "JobsLooked", args)
	}
	// few jobs wait, whatever they are filtered by
	explain(t, db, &out, "JobsAwaiting", pgx.StrictNamedArgs{"before_id": int64(1 << 40), "statuses": []string{"FAILED", "ABORTED"}, "type": nil, "category": nil, "lane": nil, "text": nil, "group_id": nil, "lowest": int64(1), "since": nil, "until": nil, "limit": 50})
	explain(t, db, &out, "JobSpan", pgx.StrictNamedArgs{"since": "2020-01-01", "until": "2020-01-02"})
	explain(t, db, &out, "LaneList", pgx.StrictNamedArgs{"most": job.LaneCounts + 1})
	explain(t, db, &out, "JobEvents", pgx.StrictNamedArgs{"job_id": int64(5), "after_id": int64(0), "limit": 50})
	explain(t, db, &out, "JobActs", pgx.StrictNamedArgs{"before": int64(1 << 40), "looks": 2000, "actor": "ann", "kind": "", "since": nil, "limit": 101})
	explain(t, db, &out, "JobsHeld", pgx.StrictNamedArgs{"lanes": nil})
	require.NotContains(t, strings.ReplaceAll(out.String(), "Seq Scan on lanes", ""), "Seq Scan")
	var version int
	require.NoError(t, db.Pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int / 10000`).Scan(&version))
	if version == 15 { // each version words its plans a little differently
		dbtest.Golden(t, "testdata/explain.golden", out.String())
	}
}

func explain(t *testing.T, db *dbtest.DB, out *strings.Builder, name string, args pgx.StrictNamedArgs) {
	t.Helper()
	rows, err := db.Pool.Query(context.Background(), "EXPLAIN (COSTS OFF) "+job.Statement(name), args)
	require.NoError(t, err, name)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err, name)
	out.WriteString("# " + name + "\n" + strings.Join(plan, "\n") + "\n")
}
