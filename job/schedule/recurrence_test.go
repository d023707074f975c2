package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func zone(t require.TestingT, name string) *time.Location {
	z, err := loadZone(name)
	require.NoError(t, err)
	return z
}

func mustCron(t require.TestingT, text string, z *time.Location) *crontab {
	c, err := parseCron(text, z)
	require.NoError(t, err)
	return c
}

// Both edges, zone by zone. Each list is what fires from the start on, in local time
// with its offset.
func TestCron_WhereClocksAreChanged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, zone, cron, from string
		want                   []string
	}{
		// New York: 2026-03-08 02:00 EST → 03:00 EDT; 2026-11-01 02:00 EDT → 01:00 EST.
		{"wall time in the gap fires after it", "America/New_York", "30 2 * * *", "2026-03-07 12:00 -05:00", []string{"03-08 03:00 -04:00", "03-09 02:30 -04:00"}},
		{"several in the gap fire once", "America/New_York", "*/20 2 * * *", "2026-03-07 12:00 -05:00", []string{"03-08 03:00 -04:00", "03-09 02:00 -04:00", "03-09 02:20 -04:00"}},
		{"gap and the hour after it coincide", "America/New_York", "0 2,3 * * *", "2026-03-07 12:00 -05:00", []string{"03-08 03:00 -04:00", "03-09 02:00 -04:00"}},
		{"wall time in the repeated hour fires at the first", "America/New_York", "30 1 * * *", "2026-10-31 12:00 -04:00", []string{"11-01 01:30 -04:00", "11-02 01:30 -05:00"}},
		{"from within the second pass it is over", "America/New_York", "30 1 * * *", "2026-11-01 01:10 -05:00", []string{"11-02 01:30 -05:00"}},
		{"hourly leaves the gap out", "America/New_York", "0 * * * *", "2026-03-08 00:30 -05:00", []string{"03-08 01:00 -05:00", "03-08 03:00 -04:00", "03-08 04:00 -04:00"}},
		{"@hourly too", "America/New_York", "@hourly", "2026-03-08 00:30 -05:00", []string{"03-08 01:00 -05:00", "03-08 03:00 -04:00"}},
		{"hourly fires in both repeated hours", "America/New_York", "0 * * * *", "2026-11-01 00:30 -04:00", []string{"11-01 01:00 -04:00", "11-01 01:00 -05:00", "11-01 02:00 -05:00"}},
		{"every other hour is real time", "America/New_York", "15 */2 * * *", "2026-03-08 00:00 -05:00", []string{"03-08 00:15 -05:00", "03-08 04:15 -04:00"}},
		{"minutes of real time", "America/New_York", "*/30 * * * *", "2026-11-01 01:20 -04:00", []string{"11-01 01:30 -04:00", "11-01 01:00 -05:00", "11-01 01:30 -05:00", "11-01 02:00 -05:00"}},
		// Berlin: 2026-03-29 02:00 → 03:00; 2026-10-25 03:00 → 02:00.
		{"Berlin, gap", "Europe/Berlin", "0 2 * * *", "2026-03-28 12:00 +01:00", []string{"03-29 03:00 +02:00", "03-30 02:00 +02:00"}},
		{"Berlin, repeated", "Europe/Berlin", "0 2 * * *", "2026-10-24 12:00 +02:00", []string{"10-25 02:00 +02:00", "10-26 02:00 +01:00"}},
		{"Berlin, every other hour repeats", "Europe/Berlin", "0 */2 * * *", "2026-10-25 01:00 +02:00", []string{"10-25 02:00 +02:00", "10-25 02:00 +01:00", "10-25 04:00 +01:00"}},
		// Lord Howe: half an hour. 2026-10-04 02:00 → 02:30; 2026-04-05 02:00 → 01:30.
		{"Lord Howe, gap", "Australia/Lord_Howe", "15 2 * * *", "2026-10-03 12:00 +10:30", []string{"10-04 02:30 +11:00", "10-05 02:15 +11:00"}},
		{"Lord Howe, after the gap", "Australia/Lord_Howe", "45 2 * * *", "2026-10-03 12:00 +10:30", []string{"10-04 02:45 +11:00", "10-05 02:45 +11:00"}},
		{"Lord Howe, repeated", "Australia/Lord_Howe", "45 1 * * *", "2026-04-04 12:00 +11:00", []string{"04-05 01:45 +11:00", "04-06 01:45 +10:30"}},
		{"Lord Howe, real time repeats", "Australia/Lord_Howe", "45 * * * *", "2026-04-05 01:00 +11:00", []string{"04-05 01:45 +11:00", "04-05 01:45 +10:30", "04-05 02:45 +10:30"}},
		{"Lord Howe, real time in the gap", "Australia/Lord_Howe", "15 * * * *", "2026-10-04 01:00 +10:30", []string{"10-04 01:15 +10:30", "10-04 03:15 +11:00"}},
		// Cairo changes at midnight: 2026-04-24 00:00 → 01:00; 2026-10-30 00:00 → 23:00 of the day before.
		{"Cairo, midnight does not come", "Africa/Cairo", "@daily", "2026-04-23 12:00 +02:00", []string{"04-24 01:00 +03:00", "04-25 00:00 +03:00"}},
		{"Cairo, the day's last hour comes twice", "Africa/Cairo", "30 23 * * *", "2026-10-29 12:00 +03:00", []string{"10-29 23:30 +03:00", "10-30 23:30 +02:00"}},
		{"Cairo, midnight comes once", "Africa/Cairo", "0 0 * * *", "2026-10-29 12:00 +03:00", []string{"10-30 00:00 +02:00", "10-31 00:00 +02:00"}},
		// Apia left out 30 December 2011 altogether.
		{"Apia, a day that is left out", "Pacific/Apia", "0 10 * * *", "2011-12-29 09:00 -10:00", []string{"12-29 10:00 -10:00", "12-31 00:00 +14:00", "12-31 10:00 +14:00"}},
		{"Seoul, no change", "Asia/Seoul", "30 8 * * MON-FRI", "2026-03-06 09:00 +09:00", []string{"03-09 08:30 +09:00", "03-10 08:30 +09:00"}},
		{"leap day", "UTC", "0 0 29 2 *", "2026-01-01 00:00 +00:00", []string{"02-29 00:00 +00:00", "02-29 00:00 +00:00"}},
		{"either day", "UTC", "0 0 13 * FRI", "2026-03-07 00:00 +00:00", []string{"03-13 00:00 +00:00", "03-20 00:00 +00:00", "03-27 00:00 +00:00", "04-03 00:00 +00:00", "04-10 00:00 +00:00", "04-13 00:00 +00:00"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			z := zone(t, c.zone)
			from, err := time.Parse("2006-01-02 15:04 -07:00", c.from)
			require.NoError(t, err)
			list, err := Definition{Cron: c.cron, TimeZone: c.zone}.next(time.Time{}, from, len(c.want))
			require.NoError(t, err)
			var got []string
			for _, o := range list {
				got = append(got, o.In(z).Format("01-02 15:04 -07:00"))
			}
			require.Equal(t, c.want, got)
		})
	}
}

// oracle is the naive answer: it looks at every minute of real time after an instant.
// On the wall, the occurrences of a minute are those wall times that appear in it for
// the first time, and those that were left out just before it.
func oracle(c *crontab, after time.Time, until time.Time) (list []time.Time) {
	matches := func(w time.Time) bool {
		return c.spec.Month&(1<<uint(w.Month())) != 0 && c.day(w) &&
			c.spec.Hour&(1<<uint(w.Hour())) != 0 && c.spec.Minute&(1<<uint(w.Minute())) != 0
	}
	wall := func(at time.Time) time.Time {
		_, offset := at.In(c.zone).Zone()
		return at.Add(time.Duration(offset) * time.Second).UTC()
	}
	// The highest wall time seen so far; two days are more than any change of clocks.
	begin := after.Truncate(time.Minute).Add(-48 * time.Hour)
	seen := wall(begin)
	for at := begin.Add(time.Minute); at.Before(until); at = at.Add(time.Minute) {
		w := wall(at)
		hit := false
		if c.realTime {
			hit = matches(w)
		} else {
			for next := seen.Add(time.Minute); !next.After(w); next = next.Add(time.Minute) {
				hit = hit || matches(next)
			}
		}
		if w.After(seen) {
			seen = w
		}
		if hit && at.After(after) {
			list = append(list, at.UTC())
		}
	}
	return list
}

// Random expressions in several zones, over windows around changes of the clocks and
// elsewhere, agree with the naive oracle.
func TestCron_AgreesWithTheNaiveOracle(t *testing.T) {
	t.Parallel()
	zones := []string{"America/New_York", "Europe/Berlin", "Asia/Seoul", "Australia/Lord_Howe", "Africa/Cairo", "America/Santiago", "UTC"}
	rapid.Check(t, func(t *rapid.T) {
		z := zone(t, rapid.SampledFrom(zones).Draw(t, "zone"))
		text := drawCron(t)
		c := mustCron(t, text, z)
		from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 365*24*3600).Draw(t, "seconds")) * time.Second)
		if _, end := from.In(z).ZoneBounds(); !end.IsZero() && rapid.Bool().Draw(t, "at a change") {
			from = end.Add(time.Duration(rapid.IntRange(-6*3600, 3*3600).Draw(t, "from the change")) * time.Second)
		}
		until := from.Add(4 * 24 * time.Hour).Truncate(time.Minute)
		want := oracle(c, from, until)
		var got []time.Time
		for at := c.next(from); !at.IsZero() && at.Before(until); at = c.next(at) {
			got = append(got, at)
			require.LessOrEqual(t, len(got), len(want), "%s in %s from %s", text, z, from)
			require.True(t, want[len(got)-1].Equal(at), "%s in %s from %s: want %s, got %s", text, z, from, want[len(got)-1], at)
		}
		require.Len(t, got, len(want), "%s in %s from %s", text, z, from)
	})
}

// On the last day of a leap year ZoneBounds ends a stretch before the instant, if the zone's table has ended and its rule
// applies: after 2037 with the files of Debian, and today with those of Go.
func TestCron_TheLastDayOfALeapYear(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"America/New_York", "Europe/Berlin", "Europe/London", "Australia/Lord_Howe", "America/Santiago", "Asia/Seoul"} {
		for _, text := range []string{"0 */6 * * *", "*/20 23 * * *", "0 9 31 12 *", "0 0 1 1 *"} {
			for _, year := range []int{2028, 2040, 2044} {
				c, from := mustCron(t, text, zone(t, name)), time.Date(year, 12, 30, 0, 0, 0, 0, time.UTC)
				until := from.Add(4 * 24 * time.Hour)
				walked := make(chan []time.Time, 1)
				go func() {
					var got []time.Time
					for at := c.next(from); at.Before(until); at = c.next(at) {
						got = append(got, at)
					}
					walked <- got
				}()
				select {
				case got := <-walked:
					require.Equal(t, oracle(c, from, until), got, "%s %s %d", name, text, year)
				case <-time.After(time.Minute):
					require.Fail(t, "the search does not end", "%s %s %d", name, text, year)
				}
			}
		}
	}
}

// drawCron makes an expression whose occurrences are mostly frequent and at night.
func drawCron(t *rapid.T) string {
	pick := func(label string, choices ...string) string { return rapid.SampledFrom(choices).Draw(t, label) }
	number := func(label string, low, high int) string {
		return fmt.Sprint(rapid.IntRange(low, high).Draw(t, label))
	}
	minute := pick("minute", "0", "*", "*/15", "*/7", "30-50/5", number("minute number", 0, 59), "0,30")
	hour := pick("hour", "*", "*/2", "*/5", "0", "1", "2", "3", "0-3", "23", "1,2", number("hour number", 0, 23), "0-6/2", "*,1")
	dom := pick("day of month", "*", "*", "*", "*/2", number("day", 1, 28), "1-15")
	month := pick("month", "*", "*", "*", "3,4,10,11", "mar-nov")
	dow := pick("day of week", "*", "*", "*", "0", "sun", "MON-FRI", "*/2")
	return strings.Join([]string{minute, hour, dom, month, dow}, " ")
}

// The next one is the same whether one walks or jumps, and it is always later.
func TestRecurrence_NextIsMonotone(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	recurrences := map[string]recurrence{
		"interval": interval{anchor: time.Date(2026, 1, 1, 0, 0, 7, 0, time.UTC), every: 17 * time.Second},
		"wall":     mustCron(t, "*/10 1-3 * * *", zone(t, "America/New_York")),
		"real":     mustCron(t, "*/10 * * * *", zone(t, "Australia/Lord_Howe")),
	}
	for name, recurs := range recurrences {
		for range 500 {
			from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(random.Int64N(int64(366 * 24 * time.Hour))))
			first := recurs.next(from)
			require.True(t, first.After(from), name)
			require.Equal(t, first, recurs.next(first.Add(-1)), name)
			between := from.Add(first.Sub(from) / 2)
			require.Equal(t, first, recurs.next(between), name)
		}
	}
}

// The grid is that of the creation, whatever was late or long ago.
func TestInterval_StaysOnItsGrid(t *testing.T) {
	t.Parallel()
	anchor := time.Date(2026, 5, 1, 9, 0, 3, 999, time.UTC)
	d := Definition{Every: "1h30m"}
	for _, c := range [][2]string{
		{"2026-05-01T09:00:03Z", "2026-05-01T10:30:03Z"},
		{"2026-05-01T10:30:02Z", "2026-05-01T10:30:03Z"},
		{"2026-05-01T10:30:03Z", "2026-05-01T12:00:03Z"},
		{"2020-01-01T00:00:00Z", "2026-05-01T10:30:03Z"}, // the first is one interval after the creation
		{"2400-05-01T09:00:03Z", "2400-05-01T10:30:03Z"},
	} {
		after, err := time.Parse(time.RFC3339, c[0])
		require.NoError(t, err)
		list, err := d.next(anchor, after, 1)
		require.NoError(t, err)
		require.Equal(t, c[1], list[0].Format(time.RFC3339))
	}
}

func TestCron_BadExpressionsNameWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "* * * *", "* * * * * *", "61 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "@every 5m", "@reboot",
		"TZ=Asia/Seoul * * * * *", "CRON_TZ=UTC 0 0 * * *", "? * * * *", "0 0 30 2 *", "0 0 31 4,6 *", ", * * * *", "5-1 * * * *", "*/0 * * * *",
		"* * * foo *", "1--2 * * * *", "\n0 0 * * *", "99999999999999999999 * * * *", "* * * * 0,,", "-1 * * * *",
	} {
		_, err := parseCron(text, time.UTC)
		require.Error(t, err, "%q", text)
		require.ErrorContains(t, err, "allowed values: five fields", "%q", text)
	}
}

// Whatever is given, parsing and the first occurrence end.
func FuzzParseCron(f *testing.F) {
	for _, seed := range []string{"0 9 * * MON-FRI", "@daily", "*/5 1-3,7 1 jan *", "0 0 29 2 *", "59/9 * * * 6"} {
		f.Add(seed)
	}
	z := zone(f, "America/New_York")
	from := time.Date(2026, 3, 8, 6, 59, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCron(text, z)
		if err != nil {
			return
		}
		at := c.next(from)
		if !at.After(from) || at.Second() != 0 {
			t.Fatalf("%q: %s after %s", text, at, from)
		}
	})
}
