package words

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
)

func TestCellStatus_HasNoCapitalLetters(t *testing.T) {
	t.Parallel()
	for cell, want := range map[text.StatusCell]string{
		text.Status("RUNNING"): "Running", text.Status("ABORTED", " halted"): "Stopped halted", text.Status("DELIVERING", " 3%"): "Delivering 3%",
		text.Status("dead", ", permanent"): "dead, permanent", text.Status("no", " relay"): "no relay", text.Status(""): "",
	} {
		require.Equal(t, want, CellStatus(cell).Word)
	}
}

func TestRelative_RoundsToOneUnit(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "just now", -9 * time.Second: "just now", 5 * time.Second: "now", -42 * time.Second: "42 s ago", 89 * time.Second: "in 89 s",
		-90 * time.Second: "2 min ago", 3 * time.Minute: "in 3 min", -89 * time.Minute: "89 min ago", 119 * time.Minute: "in 2 h",
		-35 * time.Hour: "35 h ago", 37 * time.Hour: "in 2 d", -30 * 24 * time.Hour: "30 d ago", 40 * 24 * time.Hour: "30 Dec 2026",
	} {
		require.Equal(t, want, relative(now.Add(d), now), d)
	}
	zone := time.FixedZone("", 3600)
	require.Equal(t, `<time datetime="2020-01-02T04:04:05+01:00" title="2020-01-02 04:04:05+01:00" data-relative>2 Jan 2020</time>`,
		string(When(zone, time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC))))
	require.Empty(t, When(zone, time.Time{}))
}

func TestSpan_HasTwoUnitsAtMost(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0 s", -time.Hour: "0 s", 400 * time.Millisecond: "0 s", 59 * time.Second: "59 s", 90 * time.Second: "1 min 30 s", 12*time.Minute + 30*time.Second: "12 min",
		2 * time.Hour: "2 h", 125 * time.Minute: "2 h 5 min", 23 * time.Hour: "23 h", 26 * time.Hour: "1 d 2 h", 40 * 24 * time.Hour: "40 d",
	} {
		require.Equal(t, want, Span(d), d)
	}
	require.Empty(t, TimeLeft(nil))
	require.Equal(t, "almost done", TimeLeft(new(0.4)))
	require.Equal(t, "about 2 h left", TimeLeft(new(7200.0)))
}

func TestNumbers_HaveUnits(t *testing.T) {
	t.Parallel()
	for rate, want := range map[float64]string{0: "0/s", 0.04: "under 0.1/s", 0.5: "0.5/s", 2: "2/s", 9.97: "10/s", 1250.4: "1,250/s"} {
		require.Equal(t, want, PerSecond(rate, ""), rate)
	}
	for of, want := range map[[2]float64]string{{0, 0}: "0 %", {1, 10000}: "under 0.1 %", {12, 1000}: "1.2 %", {1, 4}: "25 %", {1, 1}: "100 %"} {
		require.Equal(t, want, Ratio(of[0], of[1]))
	}
}

func TestDayOf_IsInTheZoneOfTheInstant(t *testing.T) {
	t.Parallel()
	seoul := time.FixedZone("KST", 9*3600)
	now := time.Date(2026, 11, 20, 23, 0, 0, 0, time.UTC) // 08:00 of the 21st in Seoul
	for at, want := range map[time.Time]string{
		now.In(seoul): "Today", now.Add(17 * time.Hour).In(seoul): "Tomorrow", now.Add(30 * time.Minute): "Today",
		now.Add(72 * time.Hour): "Mon 23 Nov", now.Add(-24 * time.Hour): "Yesterday", now.Add(-48 * time.Hour): "Wed 18 Nov", time.Date(2027, 1, 4, 0, 0, 0, 0, time.UTC): "Mon 4 Jan 2027",
	} {
		require.Equal(t, want, DayOf(at, now))
		require.Equal(t, want == "Today", IsToday(at, now), want)
	}
}

func TestCronWords_NamesCommonExpressions(t *testing.T) {
	t.Parallel()
	for cron, want := range map[string]string{
		"0 9 * * *": "every day at 09:00", "30 18 * * 1-5": "every weekday at 18:30", "0 7 * * MON": "every Monday at 07:00", "5 * * * *": "every hour at :05",
		"*/15 * * * *": "every 15 min", "0 8 1 * *": "on day 1 of each month at 08:00", "@daily": "every day at 00:00", "0 9,18 * * *": "repeatedly",
		"0 9 1 1 *": "repeatedly", "": "repeatedly", "a b * * *": "repeatedly", "@every 5m": "repeatedly",
	} {
		require.Equal(t, want, cronWords(cron, ""), cron)
	}
	require.Equal(t, "every 6 h", cronWords("", "6h"))
}
