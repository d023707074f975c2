package job_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

func TestUpcoming_IsTheSoonestOfEveryLaneTypeAndPriority(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := t.Context()
	_, err := db.Pool.Exec(ctx, `INSERT INTO belfry.jobs (type, category, title, lane, priority, schedule_at)
		SELECT (ARRAY['inbox', 'push'])[1 + g % 2], 'operator_notice', 'job ' || g, 'lane-' || g % 3, g % 5, now() + (g * 7919 % 400 - 20) * interval '1 minute'
		  FROM generate_series(1, 400) g`)
	require.NoError(t, err)
	_, err = db.Pool.Exec(ctx, `UPDATE belfry.jobs SET abort_requested = true WHERE id % 10 = 0`)
	require.NoError(t, err)
	jobs := job.NewStore(db.Pool)
	now, err := jobs.Now(ctx)
	require.NoError(t, err)
	from, until := now.Add(time.Hour), now.Add(3*time.Hour)
	for _, c := range []struct {
		lane  string
		since *time.Time
		limit int
	}{{"", nil, 1000}, {"", nil, 7}, {"lane-1", nil, 1000}, {"lane-1", &from, 9}, {"", &from, 1000}, {"a-lane", nil, 5}, {"nobodys", nil, 5}} {
		list, err := jobs.Upcoming(ctx, c.lane, false, c.since, until, c.limit)
		require.NoError(t, err)
		rows, err := db.Pool.Query(ctx, `SELECT id, type, category, title, lane, priority, schedule_at FROM belfry.jobs
			 WHERE status = 'PENDING' AND ($1 = '' OR lane = $1) AND schedule_at >= coalesce($2, '-infinity'::timestamptz) AND schedule_at < $3
			 ORDER BY schedule_at, id LIMIT $4`, c.lane, c.since, until, c.limit)
		require.NoError(t, err)
		want, err := pgx.CollectRows(rows, pgx.RowToStructByName[job.Upcoming])
		require.NoError(t, err)
		for i := range want {
			want[i].ScheduleAt = want[i].ScheduleAt.UTC()
		}
		require.Equal(t, want, list, "%+v", c)
		require.Equal(t, c.lane == "a-lane" || c.lane == "nobodys", len(list) == 0, "a lane where nothing waits, before and after the others")
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

// A hundred thousand wait, in up to ten thousand combinations of lane, type and priority: what is read
// grows with these and with what is asked for.
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
		for _, known := range []string{"never analysed", "analysed"} {
			if known == "analysed" {
				dbtest.Vacuum(t, db.Pool, "belfry.jobs")
			}
			until := time.Now().Add(24 * time.Hour)
			p := explained(t, db, "JobsUpcoming", pgx.StrictNamedArgs{"lane": nil, "paused": false, "since": nil, "until": until, "limit": 501})
			require.LessOrEqual(t, p.looked("jobs"), c.rows, "%s, %s: %s", c.name, known, p)
			began := time.Now()
			list, err := job.NewStore(db.Pool).Upcoming(t.Context(), "", false, nil, until, 501)
			require.NoError(t, err)
			require.Len(t, list, 501)
			t.Logf("%s, %s: %s", c.name, known, time.Since(began))
		}
	}
}
