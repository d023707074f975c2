package agenda_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/console/agenda"
	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/upcoming"
)

// Entries are at their places in the drawing of their day, also when clocks change on it.
func TestDays_DrawsEntriesInTheReadersZone(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	site := parts.Site{Zone: berlin, Action: func(act, _ string, _ url.Values) []parts.Link { return []parts.Link{{Name: act}} }, Page: func(_, id string) string { return "/" + id }}
	now := time.Date(2026, 10, 24, 12, 0, 0, 0, berlin)
	hour, id := int64(3_600_000), int64(7)
	days := agenda.Days([]upcoming.Entry{
		{At: now.Add(-time.Hour), Lane: "default", JobID: &id, Title: "Late"},
		{At: now.Add(-time.Minute), Lane: "default", JobID: &id, Title: "Late, too"},
		{At: now.Add(6 * time.Hour), Lane: "default", JobID: &id, Title: "Today", ExpectedMS: &hour},
		{At: time.Date(2026, 10, 25, 12, 0, 0, 0, berlin), Lane: "night", JobID: &id, Overlaps: []string{"job 8"}},
		{At: time.Date(2026, 10, 25, 13, 0, 0, 0, berlin), Schedule: "s", Held: "the schedule is paused"},
		{At: time.Date(2026, 10, 25, 14, 0, 0, 0, berlin), Schedule: "s"},
	}, nil, []string{"night"}, site, now)
	require.Len(t, days, 3)
	require.Equal(t, "Due", days[0].Name)
	require.False(t, days[0].Drawn, "what is overdue has no place in a day")
	require.Empty(t, days[0].Now)
	require.Equal(t, "Today", days[1].Name)
	require.Equal(t, "50%", days[1].Now)
	require.Equal(t, "Lane default", days[1].Only.Words)
	require.Equal(t, "1 start", days[1].Only.About)
	require.Empty(t, days[1].Only.Resume)
	require.Equal(t, []parts.Link{{Name: "lanes resume"}}, days[2].Lanes[0].Resume)
	require.False(t, days[1].Drawn, "one start needs no drawing")
	require.Equal(t, agenda.Block{X: "75%", Width: "4.167%", Tone: "done", About: "18:00 Today"}, days[1].Lanes[0].Blocks[0])
	require.Equal(t, "Tomorrow", days[2].Name)
	require.Equal(t, "52%", days[2].Lanes[0].Blocks[0].X, "the day has 25 hours")
	require.Equal(t, "s3", days[2].Lanes[0].Blocks[0].Tone)
	require.Equal(t, "Overlaps job 8", days[2].Lanes[0].Entries[0].Overlaps)
	require.Len(t, days[2].Lanes[1].Entries, 1, "a schedule is one entry")
	require.Contains(t, days[2].Lanes[1].Entries[0].Repeats, "also at 14:00")
	require.Equal(t, "idle", days[2].Lanes[1].Blocks[0].Tone)
}

// An overlap is marked on both rows, also on the row of a schedule whose occurrences are one entry.
func TestDays_MarksOverlapsOnBothRows(t *testing.T) {
	t.Parallel()
	site := parts.Site{Zone: time.UTC, Action: func(string, string, url.Values) []parts.Link { return nil }, Page: func(_, id string) string { return "/" + id }}
	now := time.Date(2026, 10, 24, 6, 0, 0, 0, time.UTC)
	at := func(hour, minute int) time.Time {
		return now.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute)
	}
	seven, eight := int64(7), int64(8)
	days := agenda.Days([]upcoming.Entry{
		{At: at(1, 0), Name: "schedule hourly", Lane: "default", Schedule: "hourly"},
		{At: at(2, 0), Name: "schedule hourly", Lane: "default", Schedule: "hourly"},
		{At: at(2, 1), Name: "job 7", Lane: "default", JobID: &seven, Title: "Sale", Overlaps: []string{"schedule hourly"}},
		{At: at(2, 1), Name: "schedule hourly", Lane: "night", Schedule: "hourly"}, // of another lane
		{At: at(2, 59), Name: "job 8", Lane: "default", JobID: &eight, Title: "News", Overlaps: []string{"job 7"}},
		{At: at(3, 0), Name: "schedule hourly", Lane: "default", Schedule: "hourly", Overlaps: []string{"job 7", "job 8"}},
		{At: at(4, 0), Name: "schedule hourly", Lane: "default", Schedule: "hourly", Overlaps: []string{"schedule hourly"}},
		{At: at(5, 0), Name: "schedule hourly", Lane: "default", Schedule: "hourly"},
	}, nil, nil, site, now)
	require.Len(t, days, 1)
	rows := days[0].Lanes[0].Entries
	require.Len(t, rows, 3)
	require.Equal(t, "Overlaps job 7 at 08:00, job 7 at 09:00, job 8 at 09:00 and 1 more", rows[0].Overlaps)
	require.Equal(t, "Overlaps schedule hourly and job 8", rows[1].Overlaps)
	require.Equal(t, "Overlaps job 7 and schedule hourly", rows[2].Overlaps)
	require.Empty(t, days[0].Lanes[1].Entries[0].Overlaps)
	var tones []string
	for _, b := range days[0].Lanes[0].Blocks {
		tones = append(tones, b.Tone)
	}
	require.Equal(t, []string{"wait", "s3", "s3", "s3", "s3", "s3", "wait"}, tones)
}
