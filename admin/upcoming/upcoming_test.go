package upcoming_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/upcoming"
	"github.com/belfryhq/belfry/dev/admintest"
)

func TestUpcoming_ListsJobsAndOccurrencesByTimeAndLane(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Env.Now = nil
	require.NoError(t, d.Run("upcoming"))
	require.Contains(t, d.Out, "no pending job and no schedule matches; plan a job: `belfry enqueue --at TIME …`")
	d.Finished("push", "default", 30)
	d.Finished("inbox", "default", 20)
	for _, sql := range []string{
		`INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES
			('push', 'operator_notice', 'overdue', now() - interval '1 hour'), ('push', 'operator_notice', 'first', now() + interval '1 hour'), ('inbox', 'operator_notice', 'second', now() + interval '70 minutes'),
			('push', 'popular_content', 'new', now() + interval '4 hours')`,
		`INSERT INTO belfry.jobs (type, category, title, lane, schedule_at) VALUES ('push', 'operator_notice', 'other', 'night', now() + interval '1 hour'), ('push', 'operator_notice', 'shut', 'shut', now())`,
		`INSERT INTO belfry.jobs (type, category, title, needs_approval) VALUES ('push', 'operator_notice', 'asks', true)`,
		`SELECT belfry.pause_lane('shut', 'ann', 'wrong')`,
		`INSERT INTO belfry.schedules (name, every, template, query) VALUES
			('digest', '300 days', '{"types": ["push", "inbox"], "category": "operator_notice", "title": "Digest"}', NULL),
			('asked', '300 days', '{"type": "push", "category": "operator_notice", "title": "Asked"}', 'SELECT 1 AS priority'),
			('paused', '5 hours', '{"type": "push", "category": "operator_notice", "title": "Paused"}', NULL)`,
		`UPDATE belfry.schedules SET next_at = now() + CASE name WHEN 'digest' THEN interval '80 minutes' ELSE interval '3 hours' END WHERE name <> 'paused'`,
		`SELECT belfry.pause_schedule('paused', 'ann', 'holidays')`,
	} {
		d.Exec(sql)
	}
	list, next := d.Upcoming("occurrences", "1")
	require.Equal(t, `-1h0m0s default job 3 30m0s
0s shut job 8 30m0s lane shut is paused
1h0m0s default job 4 30m0s
1h0m0s night job 7 30m0s
1h10m0s default job 5 20m0s job 4
1h20m0s default schedule digest 50m0s job 4, job 5
3h0m0s  schedule asked ?
4h0m0s default job 6 ?
5h0m0s default schedule paused 30m0s the schedule is paused
`, d.Lines(list), "job 4 and job 5 end at the same time")
	require.Empty(t, next)
	require.NoError(t, d.Run("upcoming", "occurrences", "1"))
	require.Regexp(t, `(?m)^20\S+ \S+ +default +5 +second +20m0s +overlaps job 4$`, d.Out)
	require.Regexp(t, `(?m)^20\S+ \S+ +\? +asked +Asked +unknown +its query specifies lane and jobs$`, d.Out)
	require.Regexp(t, `(?m)^20\S+ \S+ +shut +8 +shut +30m0s +held: lane shut is paused$`, d.Out)

	list, _ = d.Upcoming("lane", "night", "occurrences", "1", "until", "+4h")
	require.Equal(t, "1h0m0s night job 7 30m0s\n3h0m0s  schedule asked ?\n", d.Lines(list))
	list, _ = d.Upcoming("from", "+65m", "skip_held", "on", "occurrences", "2", "until", "+300h")
	require.Equal(t, "1h10m0s default job 5 20m0s\n1h20m0s default schedule digest 50m0s job 5\n3h0m0s  schedule asked ?\n4h0m0s default job 6 ?\n", d.Lines(list))

	d.Exec(`UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() - interval '10 minutes' WHERE id = 3`)
	d.Exec(`INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('push', 'operator_notice', 'during', now() + interval '10 minutes'), ('push', 'operator_notice', 'after', now() + interval '45 minutes')`)
	list, _ = d.Upcoming("lane", "default", "until", "+50m")
	require.Equal(t, "10m0s default job 10 30m0s job 3\n45m0s default job 11 30m0s\n", d.Lines(list), "the running job is expected to end in 20 minutes")

	d.Exec(`SELECT belfry.halt('ann', 'fire')`)
	list, _ = d.Upcoming("until", "+50m", "lane", "default")
	require.Equal(t, "-1h0m0s default job 3 30m0s everything is halted\n10m0s default job 10 30m0s everything is halted\n45m0s default job 11 30m0s everything is halted\n", d.Lines(list))
	list, _ = d.Upcoming("skip_held", "on")
	require.Empty(t, list)
}

// Pages have each entry once and in order, also when many entries are due at the same time.
func TestUpcoming_PagesHaveEachEntryOnce(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Env.Now = nil
	d.Exec(`INSERT INTO belfry.jobs (type, category, title, lane, schedule_at)
		SELECT 'push', 'operator_notice', 'x', (ARRAY['default', 'a', 'b-1', 'b_1'])[1 + g % 4], date_trunc('second', now()) + (1 + g % 3) * interval '1 hour' FROM generate_series(1, 60) g`)
	d.Exec(`INSERT INTO belfry.schedules (name, every, template) SELECT 's' || g, '1 hour', '{"type": "push", "category": "operator_notice", "title": "x"}' FROM generate_series(1, 3) g`)
	d.Exec(`UPDATE belfry.schedules SET next_at = date_trunc('second', now()) + interval '1 hour'`)
	all, next := d.Upcoming("limit", "500", "until", "+3h30m")
	require.Len(t, all, 60+3*3)
	require.Empty(t, next)
	require.True(t, slices.IsSortedFunc(all, func(a, b upcoming.Entry) int { return a.At.Compare(b.At) }))
	for _, limit := range []string{"1", "7"} {
		var paged []upcoming.Entry
		given := []string{"limit", limit, "until", "+3h30m"}
		for {
			list, next := d.Upcoming(given...)
			paged = append(paged, list...)
			require.LessOrEqual(t, len(paged), len(all), "a page repeats entries")
			if next == "" {
				break
			}
			given = []string{"limit", limit, "until", "+3h30m", "after", next}
		}
		require.Len(t, paged, len(all))
		for i := range all {
			require.Equal(t, all[i].Name+all[i].At.String(), paged[i].Name+paged[i].At.String())
		}
	}
	require.NoError(t, d.Run("upcoming", "limit", "1"))
	require.Regexp(t, `there are more: --after 20[-0-9]+T[0-9:.]+Z/a/[0-9]+/ shows the next page`, d.Notes)
}

func TestEnqueue_PreviewNamesOverlapsInItsLane(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Env.Now = nil
	d.Finished("push", "default", 30)
	d.Exec(`INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('push', 'operator_notice', 'a', now() + interval '1 hour'), ('push', 'operator_notice', 'b', now() + interval '100 minutes')`)
	preview := func(more ...string) (behind, aheadOf []string, held string) {
		t.Helper()
		d.Enqueue("push", append([]string{"preview", "on"}, more...)...)
		var out struct {
			Lane struct {
				Behind  []string
				AheadOf []string `json:"ahead_of"`
				Held    string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(d.JSON), &out))
		return out.Lane.Behind, out.Lane.AheadOf, out.Lane.Held
	}
	behind, aheadOf, _ := preview("at", "+80m")
	require.Equal(t, []string{"job 2"}, behind)
	require.Equal(t, []string{"job 3"}, aheadOf)
	require.Regexp(t, `(?m)^lane +default: behind job 2; ahead of job 3$`, d.Out)
	behind, aheadOf, _ = preview("at", "+80m", "priority", "5")
	require.Empty(t, behind)
	require.Equal(t, []string{"job 2", "job 3"}, aheadOf, "job 2 is handed back")
	behind, aheadOf, _ = preview("at", "+10m")
	require.Empty(t, append(behind, aheadOf...))
	require.Regexp(t, "(?m)^lane +default: no overlap; list the lane.s entries: `belfry upcoming --lane default`$", d.Out)
	behind, _, _ = preview("at", "+80m", "lane", "night")
	require.Empty(t, behind)

	d.Exec(`INSERT INTO belfry.jobs (type, category, title, schedule_at) SELECT 'push', 'operator_notice', 'due', now() - interval '1 minute' FROM generate_series(1, 5)`)
	preview()
	require.Contains(t, d.Out, "default: behind job 4, job 5, job 6 and 2 more")
	d.Exec(`SELECT belfry.pause_lane('night', 'ann', 'x')`)
	_, _, held := preview("lane", "night")
	require.Equal(t, "lane night is paused", held)
	require.NoError(t, d.Run("jobs preview", "id", "2"))
	require.NotContains(t, d.JSON, `"lane"`, "the job exists")

	d.Exec(`INSERT INTO belfry.jobs (type, category, title, schedule_at) SELECT 'push', 'operator_notice', 'x', now() + interval '40 hours' FROM generate_series(1, 501)`)
	preview("at", "+40h")
	require.Contains(t, d.Out, "the other entries of lane default are unknown: more than 500 entries are due before")
}
