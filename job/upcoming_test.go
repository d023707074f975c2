package job_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
)

func TestUpcoming_ListsEveryLaneTypeAndPriorityInOneOrder(t *testing.T) {
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
	jobs := job.NewStore(db.Pool)
	now, err := jobs.Now(ctx)
	require.NoError(t, err)
	until := now.Add(time.Hour)
	for _, f := range []job.UpcomingFilter{
		{Limit: 1000}, {Limit: 7}, {Limit: 7, NotHeld: true, Until: &until}, {Lane: "lane-1", Limit: 1000, Until: &until}, {Lane: "lane-1", After: until, Limit: 9},
		{After: until, Limit: 1000}, {Lane: "a-lane", Limit: 5}, {Lane: "unused", Limit: 5},
	} {
		rows, err := db.Pool.Query(ctx, `SELECT id, type, category, title, lane, priority, schedule_at FROM belfry.jobs
			 WHERE status = 'PENDING' AND ($1 = '' OR lane = $1) AND schedule_at >= $2 AND schedule_at < coalesce($3, 'infinity'::timestamptz) AND NOT ($4 AND lane = 'lane0')
			 ORDER BY schedule_at, lane COLLATE "C", id`, f.Lane, f.After, f.Until, f.NotHeld)
		require.NoError(t, err)
		want, err := pgx.CollectRows(rows, pgx.RowToStructByName[job.Upcoming])
		require.NoError(t, err)
		for i := range want {
			want[i].ScheduleAt = want[i].ScheduleAt.UTC()
		}
		all := []job.Upcoming{}
		for next, pages := f, 0; pages <= 400; pages++ {
			list, err := jobs.Upcoming(ctx, next)
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
	finished := func(kind, category, lane, status string, minutes ...int) {
		for _, m := range minutes {
			dbtest.Past(t, db.Pool, `INSERT INTO belfry.jobs (id, type, category, title, lane, route, status, fence, started_at, finished_at, abort_requested)
				VALUES (nextval('belfry.jobs_id_seq'), $1, $2, 'x', $3, '{}', $4, 1, now() - $5 * interval '1 minute', now(), $4 = 'ABORTED')`, kind, category, lane, status, m)
		}
	}
	finished("push", "operator_notice", "default", "PROCESSED", 500, 500, 500, 3, 1, 900, 2, 4) // the last five: 3 1 900 2 4
	finished("push", "operator_notice", "night", "PROCESSED", 20, 10)
	finished("push", "operator_notice", "default", "ABORTED", 700, 700, 700, 700, 700)
	finished("inbox", "operator_notice", "default", "PROCESSED", 7)
	finished("push", "popular_content", "default", "PROCESSED", 8)
	kinds := []job.Kind{
		{Type: "push", Category: "operator_notice", Lane: "default"}, {Type: "push", Category: "operator_notice", Lane: "night"},
		{Type: "push", Category: "operator_notice", Lane: "new"}, {Type: "inbox", Category: "operator_notice", Lane: "night"},
		{Type: "inbox", Category: "popular_content", Lane: "default"},
	}
	took, err := job.NewStore(db.Pool).Durations(ctx, kinds)
	require.NoError(t, err)
	require.Equal(t, map[job.Kind]time.Duration{
		kinds[0]: 3 * time.Minute,
		kinds[1]: 10 * time.Minute,
		kinds[2]: 10 * time.Minute, // of the last five wherever they ran: 10 20 4 2 900
		kinds[3]: 7 * time.Minute,
	}, took)
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
		var middle job.UpcomingFilter
		require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT schedule_at, lane, id FROM belfry.jobs ORDER BY schedule_at, lane COLLATE "C", id OFFSET 50000 LIMIT 1`).
			Scan(&middle.After, &middle.AfterLane, &middle.AfterID))
		for _, known := range []string{"never analysed", "analysed"} {
			if known == "analysed" {
				dbtest.Vacuum(t, db.Pool, "belfry.jobs")
			}
			for _, f := range []job.UpcomingFilter{{}, middle} {
				p := explained(t, db, "JobsUpcoming", upcomingArgs(f.After, f.AfterLane, f.AfterID, 501))
				require.LessOrEqual(t, p.looked("jobs"), c.rows, "%s, %s, after %s: %s", c.name, known, f.After, p)
				f.Limit = 501
				list, err := job.NewStore(db.Pool).Upcoming(t.Context(), f)
				require.NoError(t, err)
				require.Len(t, list, 501)
			}
		}
	}
}

// upcomingArgs are the arguments of the statement JobsUpcoming for all lanes.
func upcomingArgs(after any, lane string, id int64, limit int) pgx.StrictNamedArgs {
	return pgx.StrictNamedArgs{"lane": nil, "not_held": false, "until": nil, "after": after, "after_lane": lane, "after_id": id, "limit": limit}
}
