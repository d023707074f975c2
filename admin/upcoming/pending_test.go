package upcoming

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
)

func TestPendingJobs_ListsEveryLaneTypeAndPriorityInOneOrder(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := t.Context()
	for _, sql := range []string{ // many are due at the same time
		`INSERT INTO belfry.jobs (type, category, title, lane, priority, schedule_at)
			SELECT (ARRAY['inbox', 'push'])[1 + g % 2], 'operator_notice', 'job ' || g, (ARRAY['lane-1', 'lane_1', 'lane0'])[1 + g % 3], g % 5, now() + (g * 7919 % 89 - 20) * interval '1 minute'
			  FROM generate_series(1, 400) g`,
		`UPDATE belfry.jobs SET abort_requested = true WHERE id % 10 = 0`,
		`SELECT belfry.pause_lane('lane0', 'ann', 'x')`,
	} {
		_, err := db.Pool.Exec(ctx, sql)
		require.NoError(t, err)
	}
	now, err := job.NewStore(db.Pool).Now(ctx)
	require.NoError(t, err)
	until := now.Add(time.Hour)
	for _, f := range []pendingFilter{
		{Limit: 1000}, {Limit: 7}, {Limit: 7, NotHeld: true, Until: &until}, {Lane: "lane-1", Limit: 1000, Until: &until}, {Lane: "lane-1", After: until, Limit: 9},
		{After: until, Limit: 1000}, {Lane: "a-lane", Limit: 5}, {Lane: "unused", Limit: 5},
	} {
		rows, err := db.Pool.Query(ctx, `SELECT id, type, category, title, lane, priority, schedule_at FROM belfry.jobs
			 WHERE status = 'PENDING' AND ($1 = '' OR lane = $1) AND schedule_at >= $2 AND schedule_at < coalesce($3, 'infinity'::timestamptz) AND NOT ($4 AND lane = 'lane0')
			 ORDER BY schedule_at, lane COLLATE "C", id`, f.Lane, f.After, f.Until, f.NotHeld)
		require.NoError(t, err)
		want, err := pgx.CollectRows(rows, pgx.RowToStructByName[pendingJob])
		require.NoError(t, err)
		for i := range want {
			want[i].ScheduleAt = want[i].ScheduleAt.UTC()
		}
		all := []pendingJob{}
		for next, pages := f, 0; pages <= 400; pages++ {
			list, err := pendingJobs(ctx, db.Pool, next)
			require.NoError(t, err)
			if len(list) == 0 {
				break
			}
			require.LessOrEqual(t, len(list), f.Limit)
			all = append(all, list...)
			last := list[len(list)-1]
			next.After, next.AfterLane, next.AfterID = last.ScheduleAt, last.Lane, last.ID
		}
		require.Equal(t, want, all, "%+v", f)
		require.Equal(t, f.Lane == "a-lane" || f.Lane == "unused", len(all) == 0, "lanes without jobs, before and after the others")
	}
}

func TestDurations_AreTheMedianOfTheLastFiveOfTheirLane(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := t.Context()
	finished := func(typ, category, lane, status string, minutes ...int) {
		for _, m := range minutes {
			dbtest.Past(t, db.Pool, `INSERT INTO belfry.jobs (id, type, category, title, lane, route, status, fence, started_at, finished_at, abort_requested)
				VALUES (nextval('belfry.jobs_id_seq'), $1, $2, 'x', $3, '{}', $4, 1, now() - $5 * interval '1 minute', now(), $4 = 'ABORTED')`, typ, category, lane, status, m)
		}
	}
	finished("push", "operator_notice", "default", "PROCESSED", 500, 500, 500, 3, 1, 900, 2, 4) // the last five: 3 1 900 2 4
	finished("push", "operator_notice", "night", "PROCESSED", 20, 10)
	finished("push", "operator_notice", "default", "ABORTED", 700, 700, 700, 700, 700)
	finished("inbox", "operator_notice", "default", "PROCESSED", 7)
	finished("push", "popular_content", "default", "PROCESSED", 8)
	kinds := []kind{
		{Type: "push", Category: "operator_notice", Lane: "default"}, {Type: "push", Category: "operator_notice", Lane: "night"},
		{Type: "push", Category: "operator_notice", Lane: "new"}, {Type: "inbox", Category: "operator_notice", Lane: "night"},
		{Type: "inbox", Category: "popular_content", Lane: "default"},
	}
	took, err := durations(ctx, db.Pool, kinds)
	require.NoError(t, err)
	require.Equal(t, map[kind]time.Duration{
		kinds[0]: 3 * time.Minute,
		kinds[1]: 10 * time.Minute,
		kinds[2]: 10 * time.Minute, // of the last five wherever they ran: 10 20 4 2 900
		kinds[3]: 7 * time.Minute,
	}, took)
	dbtest.Past(t, db.Pool, `UPDATE belfry.jobs SET started_at = NULL`) // by a role that runs jobs
	took, err = durations(ctx, db.Pool, kinds)
	require.NoError(t, err)
	require.Empty(t, took, "unknown durations")
}

// With 100,000 pending jobs in up to ten thousand combinations of lane, type and priority, the number of
// rows read depends on these combinations and on the limit, on the first page and on later ones.
func TestFault_UpcomingReadsTheHeadsOfAHundredThousand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, load string
		rows       int
	}{
		{"one lane and priority", `SELECT many(100000, at => now())`, 1_100},
		{"5 lanes, 2 types, 1000 priorities", `SELECT many(10000, at => now(), kind => CASE g % 2 WHEN 0 THEN 'inbox' ELSE 'push' END, lane => 'l' || g / 2) FROM generate_series(0, 9) g;
			UPDATE belfry.jobs SET priority = id % 1000`, 26_000},
	} {
		db := dbtest.New(t)
		for _, sql := range []string{manyJobs, `ALTER TABLE belfry.jobs DISABLE TRIGGER USER`, c.load, `ALTER TABLE belfry.jobs ENABLE TRIGGER USER`} {
			_, err := db.Pool.Exec(t.Context(), sql)
			require.NoError(t, err)
		}
		var middle pendingFilter
		require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT schedule_at, lane, id FROM belfry.jobs ORDER BY schedule_at, lane COLLATE "C", id OFFSET 50000 LIMIT 1`).
			Scan(&middle.After, &middle.AfterLane, &middle.AfterID))
		for _, known := range []string{"never analysed", "analysed"} {
			if known == "analysed" {
				dbtest.Vacuum(t, db.Pool, "belfry.jobs")
			}
			for _, f := range []pendingFilter{{}, middle} {
				require.LessOrEqual(t, rowsRead(t, db, f, 501), c.rows, "%s, %s, after %s", c.name, known, f.After)
				f.Limit = 501
				list, err := pendingJobs(t.Context(), db.Pool, f)
				require.NoError(t, err)
				require.Len(t, list, 501)
			}
		}
	}
}

// manyJobs loads jobs without their triggers, and makes one RUNNING.
const manyJobs = `
ALTER TABLE belfry.jobs SET (autovacuum_enabled = off);
CREATE FUNCTION many(n bigint, at timestamptz DEFAULT now() - interval '1 hour', kind text DEFAULT 'inbox',
                     urgency integer DEFAULT 0, lane text DEFAULT 'default') RETURNS void LANGUAGE sql AS $$
    INSERT INTO belfry.jobs (id, type, category, title, lane, priority, schedule_at, route)
    SELECT nextval('belfry.jobs_id_seq'), $3, 'operator_notice', 'many', $5, $4, $2 + g * interval '1 millisecond', '{}' FROM generate_series(1, $1) g
$$;
CREATE FUNCTION busy(lane text) RETURNS bigint LANGUAGE sql AS $$
    UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now()
     WHERE id = (SELECT max(j.id) FROM belfry.jobs j WHERE j.lane = $1) RETURNING id
$$;`

// The number of rows read does not depend on the number of pending jobs, on the reason why they wait, or on the
// planner's statistics.
func TestPendingJobs_ReadAFewRowsHoweverManyJobsWait(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	exec := func(sql string) {
		_, err := db.Pool.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	exec(manyJobs)
	for _, c := range []struct {
		name, load string
		rows       int
	}{
		{"all due", `SELECT many(2000)`, 30},
		{"the lane is busy", `SELECT many(2000); SELECT busy('default')`, 30},
		{"the lane is paused", `SELECT many(2000); INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('default', now(), 'x')`, 30},
		{"all scheduled for later", `SELECT many(2000, at => now() + interval '1 day')`, 30},
		{"one due behind more urgent jobs for later", `SELECT many(2000, at => now() + interval '1 day', urgency => 9); SELECT many(1)`, 30},
		{"one due in the last of lanes that are busy, paused or later", `
			SELECT many(222, at => now() + g % 3 * interval '1 day', lane => 'l' || g) FROM generate_series(1, 9) g;
			UPDATE belfry.jobs SET priority = id % 7;
			INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('l3', now(), 'x'), ('l6', now(), 'x');
			SELECT busy('l9'); SELECT many(1, lane => 'z')`, 300},
		{"one due behind more urgent jobs that wait for approval", `
			ALTER TABLE belfry.jobs ALTER needs_approval SET DEFAULT true; SELECT many(2000, urgency => 9);
			ALTER TABLE belfry.jobs ALTER needs_approval SET DEFAULT false; SELECT many(1)`, 30},
	} {
		exec(`TRUNCATE belfry.jobs, belfry.lanes RESTART IDENTITY CASCADE; DELETE FROM pg_statistic WHERE starelid = 'belfry.jobs'::regclass`)
		exec(`ALTER TABLE belfry.jobs DISABLE TRIGGER USER`)
		exec(c.load)
		exec(`ALTER TABLE belfry.jobs ENABLE TRIGGER USER`)
		require.LessOrEqual(t, rowsRead(t, db, pendingFilter{}, 3), c.rows, "%s, never analysed", c.name)
		dbtest.Vacuum(t, db.Pool, "belfry.jobs")
		require.LessOrEqual(t, rowsRead(t, db, pendingFilter{}, 3), c.rows, "%s, analysed", c.name)
	}
}

// plan is a node of EXPLAIN (ANALYZE, FORMAT JSON).
type plan struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"`
	Removed  float64 `json:"Rows Removed by Filter"`
	Loops    float64 `json:"Actual Loops"`
	Plans    []plan  `json:"Plans"`
}

// read returns the number of rows of belfry.jobs that the node and the nodes below it read.
func (p plan) read() (n int) {
	if p.Relation == "jobs" && strings.HasSuffix(p.Type, "Scan") {
		n = int((p.Rows + p.Removed) * p.Loops)
	}
	for _, below := range p.Plans {
		n += below.read()
	}
	return n
}

// rowsRead returns the number of rows of belfry.jobs that a page of pending jobs reads.
func rowsRead(t *testing.T, db *dbtest.DB, f pendingFilter, limit int) int {
	t.Helper()
	var text string
	require.NoError(t, db.Pool.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+queries.jobsUpcoming, pgx.StrictNamedArgs{
		"lane": nil, "not_held": false, "until": nil, "after": f.After, "after_lane": f.AfterLane, "after_id": f.AfterID, "limit": limit,
	}).Scan(&text))
	var roots []struct{ Plan plan }
	require.NoError(t, json.Unmarshal([]byte(text), &roots))
	return roots[0].Plan.read()
}

// The statements keep their plans on a table with a long history.
func TestQueries_KeepTheirPlans(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	dbtest.Past(t, db.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, idempotency_key, status, abort_requested, finished_at)
		SELECT nextval('belfry.jobs_id_seq'), 'inbox', 'popular_content', 'old', '{}', 'k' || g, 'ABORTED', true, now() FROM generate_series(1, 5000) g`)
	for _, sql := range []string{
		`INSERT INTO belfry.jobs (type, category, title, priority) SELECT 'inbox', 'popular_content', 'new', g % 7 FROM generate_series(1, 200) g`,
		`INSERT INTO belfry.jobs (type, category, title, lane) VALUES ('inbox', 'popular_content', 'now', 'other')`,
		`UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now() WHERE lane = 'other'`,
	} {
		_, err := db.Pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	dbtest.Vacuum(t, db.Pool, "belfry.jobs")
	var out strings.Builder
	explain := func(name, statement string, args pgx.StrictNamedArgs) {
		rows, err := db.Pool.Query(t.Context(), "EXPLAIN (COSTS OFF) "+statement, args)
		require.NoError(t, err, name)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, name)
		out.WriteString("# " + name + "\n" + strings.Join(plan, "\n") + "\n")
	}
	explain("JobsUpcoming", queries.jobsUpcoming, pgx.StrictNamedArgs{
		"lane": nil, "not_held": true, "until": "2030-01-01", "after": "2020-01-01", "after_lane": "default", "after_id": int64(17), "limit": 501,
	})
	explain("JobDurations", queries.jobDurations, pgx.StrictNamedArgs{
		"types": []string{"inbox"}, "categories": []string{"popular_content"}, "lanes": []string{"default"}, "looks": durationsRead,
	})
	require.NotContains(t, strings.ReplaceAll(out.String(), "Seq Scan on lanes", ""), "Seq Scan")
	var version int
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int / 10000`).Scan(&version))
	if version == 15 { // the texts of plans differ between versions
		dbtest.Golden(t, "testdata/explain.golden", out.String())
	}
}
