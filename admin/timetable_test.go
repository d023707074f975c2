package admin_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/migrations/dbtest"
)

// timetable is one as it is in JSON.
func (d *desk) timetable(given ...string) (t admin.Timetable) {
	d.t.Helper()
	require.NoError(d.t, d.run("timetable", given...))
	require.NoError(d.t, json.Unmarshal([]byte(d.json), &t))
	return t
}

// finished has jobs of a lane that took so many minutes.
func (d *desk) finished(kind, lane string, minutes int) {
	d.t.Helper()
	dbtest.Past(d.t, d.db.Pool, `INSERT INTO belfry.jobs (id, type, category, title, lane, route, status, fence, started_at, finished_at)
		VALUES (nextval('belfry.jobs_id_seq'), $1, 'operator_notice', 'x', $2, '{}', 'PROCESSED', 1, now() - $3 * interval '1 minute', now())`, kind, lane, minutes)
}

// told are the entries, in a line each: what is due when in minutes from now, where, how long it takes, and its note.
func told(t admin.Timetable) string {
	var b strings.Builder
	for _, e := range t.Entries {
		b.WriteString(e.At.Sub(t.AsOf).Round(time.Minute).String() + " " + e.Lane + " " + e.What() + " " + e.Expected())
		if e.StartsAt != nil {
			b.WriteString(" from " + e.StartsAt.Sub(t.AsOf).Round(time.Minute).String())
		}
		for _, more := range []string{e.WaitsFor, e.HandedBackFor, e.Held} {
			if more != "" {
				b.WriteString(" (" + more + ")")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// busy is how many minutes the first lane is taken.
func busy(t admin.Timetable) (minutes int64) {
	for _, h := range t.Lanes[0].Load {
		minutes += h.BusyMS
	}
	return (minutes + 30_000) / 60_000
}

func TestTimetable_HasEverythingOnOneTimeAxis(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	require.Empty(t, d.timetable().Entries)
	require.Contains(t, d.out, "nothing is due until ")
	d.env.Now = nil
	d.finished("push", "default", 30)
	d.finished("inbox", "default", 20)
	for _, sql := range []string{
		`INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES
			('push', 'operator_notice', 'due', now() - interval '1 hour'), ('push', 'operator_notice', 'first', now() + interval '1 hour'), ('inbox', 'operator_notice', 'second', now() + interval '70 minutes'),
			('push', 'popular_content', 'new', now() + interval '4 hours'), ('push', 'operator_notice', 'far', now() + interval '25 hours')`,
		`INSERT INTO belfry.jobs (type, category, title, lane, schedule_at) VALUES ('push', 'operator_notice', 'other', 'night', now() + interval '1 hour'), ('push', 'operator_notice', 'shut', 'shut', now())`,
		`SELECT belfry.pause_lane('shut', 'ann', 'wrong')`,
		`INSERT INTO belfry.schedules (name, every, template, query) VALUES
			('digest', '300 days', '{"types": ["push", "inbox"], "category": "operator_notice", "title": "Digest"}', NULL),
			('asked', '300 days', '{"type": "push", "category": "operator_notice", "title": "Asked"}', 'SELECT 1 AS priority'),
			('paused', '5 hours', '{"type": "push", "category": "operator_notice", "title": "Paused"}', NULL)`,
		`UPDATE belfry.schedules SET next_at = now() + CASE name WHEN 'digest' THEN interval '65 minutes' ELSE interval '3 hours' END WHERE name <> 'paused'`,
		`SELECT belfry.pause_schedule('paused', 'ann', 'holidays')`,
	} {
		d.exec(sql)
	}
	at := d.timetable("for", "2h")
	require.Equal(t, `-1h0m0s default job 3 (push): due 30m0s from 0s
0s shut job 9 (push): shut 30m0s (lane shut is paused)
1h0m0s default job 4 (push): first 30m0s from 1h0m0s
1h0m0s night job 8 (push): other 30m0s from 1h0m0s
1h5m0s default schedule digest (push, inbox): Digest 50m0s from 1h30m0s (job 4)
1h10m0s default job 5 (inbox): second 20m0s from 2h20m0s (job 4)
`, told(at))
	require.Len(t, at.Lanes, 3)
	require.Equal(t, "default", at.Lanes[0].Lane)
	require.EqualValues(t, 90, busy(at), "half an hour, and the whole of the last one")
	require.Contains(t, d.out, "5 jobs and 1 firing until ")
	require.Contains(t, d.out, "; 2 collide with others")
	require.Regexp(t, `schedule digest \(push, inbox\): Digest +50m0s +collides with job 4: starts 20[-0-9:+ ]+; ends 20`, d.out)
	require.Contains(t, d.out, "load per hour:")

	at = d.timetable("lane", "night", "for", "24h")
	require.Contains(t, told(at), "1h0m0s night job 8 (push): other")
	require.Contains(t, told(at), "3h0m0s  schedule asked (push): Asked unknown\n")
	require.NotContains(t, told(at), "default")
	require.Contains(t, told(d.timetable()), "schedule paused (push): Paused 30m0s (the schedule is paused)\n")
	require.Contains(t, told(at), "schedule asked")
	require.NotContains(t, d.out, "far")
	require.Contains(t, d.out, "how long 2 of them take is unknown", "the one that a query makes, and the one of a kind that was never finished")

	d.exec(`UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() - interval '10 minutes' WHERE id = 3`)
	d.exec(`INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', 'after that')`)
	require.Contains(t, told(d.timetable()), "0s default job 10 (push): after that 30m0s from 20m0s (job 3)\n", "what runs has its lane until it is expected to end")
	later := d.timetable("from", "+30m", "for", "2h")
	require.NotContains(t, told(later), "job 3 ", "it is due and runs before")
	require.Contains(t, told(later), "job 4 ")
	at = d.timetable("from", "+75m", "for", "2h", "lane", "default")
	require.Equal(t, `1h0m0s default job 4 (push): first 30m0s from 1h0m0s
1h5m0s default schedule digest (push, inbox): Digest 50m0s from 1h30m0s (job 4)
1h10m0s default job 5 (inbox): second 20m0s from 2h20m0s (job 4)
3h0m0s  schedule asked (push): Asked unknown
`, told(at), "what runs from before is in the way")
	require.EqualValues(t, 85, busy(at), "from then on")

	d.exec(`SELECT belfry.halt('ann', 'fire')`)
	require.Contains(t, told(d.timetable()), "job 4 (push): first 30m0s (belfry is halted)\n")
	require.Contains(t, d.notes, "belfry is halted: nothing starts until `belfry go`")
}

func TestTimetable_FindsWhenALaneIsFree(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.env.Now = nil
	d.finished("push", "default", 30)
	d.exec(`INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('push', 'operator_notice', 'a', now() + interval '20 minutes'), ('push', 'operator_notice', 'b', now() + interval '1 hour')`)
	free := func(given ...string) (admin.FreeSlot, time.Duration) {
		t.Helper()
		at := d.timetable(append([]string{"lane", "default"}, given...)...)
		require.NotNil(t, at.Free)
		if at.Free.At == nil {
			return *at.Free, -1
		}
		return *at.Free, at.Free.At.Sub(at.AsOf).Round(time.Minute)
	}
	slot, in := free("free", "10m")
	require.True(t, slot.Certain)
	require.Zero(t, in)
	require.Contains(t, d.out, "lane default is expected to be free for 10m0s from ")
	_, in = free("free", "30m")
	require.Equal(t, 90*time.Minute, in)
	slot, in = free("free", "30m", "for", "100m")
	require.False(t, slot.Certain)
	require.Negative(t, in)
	require.Contains(t, d.out, "no free time of 30m0s was found in lane default: it is not free for so long in this time; --for looks further")

	d.exec(`INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('push', 'popular_content', 'c', now() + interval '95 minutes')`)
	slot, in = free("free", "30m")
	require.Equal(t, 95*time.Minute, in)
	require.False(t, slot.Certain)
	require.Equal(t, "nobody knows how long job 4 before it takes", slot.Why)

	d.exec(`INSERT INTO belfry.schedules (name, every, template, query) VALUES ('asked', '10 minutes', '{"type": "push", "category": "operator_notice", "title": "Asked"}', 'SELECT 1 AS priority')`)
	slot, in = free("free", "15m")
	require.Zero(t, in)
	require.Equal(t, "schedule asked says its lane when it fires", slot.Why)
	d.exec(`SELECT belfry.pause_lane('default', 'ann', 'wrong')`)
	slot, _ = free("free", "1m")
	require.False(t, slot.Certain)
	require.Equal(t, "the lane is paused, and what is held starts when it is resumed", slot.Why)
}

// A schedule of every second and a thousand jobs fill no page, and what is missing is said.
func TestTimetable_SaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.env.Now = nil
	d.exec(`INSERT INTO belfry.schedules (name, every, template) VALUES ('tick', '1 second', '{"type": "push", "category": "operator_notice", "title": "Tick", "lane": "ticks"}')`)
	at := d.timetable()
	require.Len(t, at.Entries, 100)
	require.Len(t, at.Cuts, 1)
	require.Equal(t, "schedule tick", at.Cuts[0].Of)
	require.WithinDuration(t, at.AsOf.Add(100*time.Second), at.Cuts[0].Until, 30*time.Second)
	require.Equal(t, at.Cuts[0].Until, *at.Lanes[0].CompleteUntil)
	require.Contains(t, d.notes, "schedule tick fires more often than 100 times in this time: what it fires from ")

	d.exec(`INSERT INTO belfry.jobs (type, category, title, schedule_at) SELECT 'push', 'operator_notice', 'x', now() + g * interval '1 minute' FROM generate_series(1, 501) g`)
	at = d.timetable("lane", "default", "free", "23h")
	require.Len(t, at.Entries, 500)
	require.Equal(t, "jobs", at.Cuts[0].Of)
	require.Equal(t, at.Cuts[0].Until, *at.Lanes[0].CompleteUntil)
	require.WithinDuration(t, at.AsOf.Add(501*time.Minute), at.Cuts[0].Until, time.Minute)
	require.Nil(t, at.Free.At)
	require.Equal(t, "it is not free for so long before the list is cut", at.Free.Why)
	require.Contains(t, d.notes, "more than 500 jobs in this time: those from ")
	d.exec(`INSERT INTO belfry.schedules (name, every, template) SELECT 's' || g, '5 minutes', '{"type": "push", "category": "operator_notice", "title": "x"}' FROM generate_series(1, 10) g`)
	at = d.timetable("lane", "default")
	require.Len(t, at.Entries, 1000)
	require.Len(t, at.Cuts, 12, "of the jobs, of each schedule, and of all firings")
}

func TestTimetable_RefusesWhatCannotBeLookedAt(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, c := range []struct {
		says  string
		given []string
	}{
		{"for: 32d is too long; allowed values: 1m to 31d", []string{"for", "32d"}},
		{"lane: is needed with --free", []string{"free", "10m"}},
		{"free: 2h0m0s is longer than the time that is looked at, 1h00m", []string{"lane", "default", "free", "2h", "for", "1h"}},
		{"from: the time that is looked at is over; allowed values: times later than 1d ago", []string{"from", "2020-01-01 00:00"}},
	} {
		require.ErrorContains(t, d.run("timetable", c.given...), c.says)
	}
}

// What is due and takes no time, as far as anybody knows, has not been yet: it is shown.
func TestTimetable_ShowsABacklogThatTakesNoTime(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.env.Now = nil
	d.finished("push", "default", 0)
	d.exec(`INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('push', 'operator_notice', 'due', now() - interval '1 hour')`)
	require.Equal(t, "-1h0m0s default job 2 (push): due 0s from 0s\n", told(d.timetable()))
}
