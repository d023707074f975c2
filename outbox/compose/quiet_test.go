package compose

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // a machine without zone data tests the same

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/channels"
)

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at
}

// Quiet hours begin and end by the clocks of the zone (invariant 2), also on the days on
// which those change.
func TestQuietUntil_FollowsTheClocks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hours, zone, now string
		end              string // "": not quiet
	}{
		{"21:00-08:00", "Asia/Seoul", "2026-03-01T20:59:59+09:00", ""},
		{"21:00-08:00", "Asia/Seoul", "2026-03-01T21:00:00+09:00", "2026-03-02T08:00:00+09:00"},
		{"21:00-08:00", "Asia/Seoul", "2026-03-02T00:30:00+09:00", "2026-03-02T08:00:00+09:00"},
		{"21:00-08:00", "Asia/Seoul", "2026-03-02T07:59:59+09:00", "2026-03-02T08:00:00+09:00"},
		{"21:00-08:00", "Asia/Seoul", "2026-03-02T08:00:00+09:00", ""},
		{"12:00-13:30", "UTC", "2026-03-02T12:00:00Z", "2026-03-02T13:30:00Z"},
		{"12:00-13:30", "UTC", "2026-03-02T13:30:00Z", ""},
		{"12:00-13:30", "UTC", "2026-03-02T00:00:00Z", ""},
		{"00:00-06:00", "UTC", "2026-03-02T00:00:00Z", "2026-03-02T06:00:00Z"},
		{"20:00-00:00", "UTC", "2026-03-02T23:59:59Z", "2026-03-03T00:00:00Z"},
		{"20:00-00:00", "UTC", "2026-03-02T00:00:00Z", ""},
		{"21:00-08:00", "Asia/Kathmandu", "2026-03-02T02:14:59Z", "2026-03-02T08:00:00+05:45"},

		// Clocks go forward from 02:00 to 03:00 on 29 March: the night is an hour shorter.
		{"21:00-08:00", "Europe/Berlin", "2026-03-28T22:00:00+01:00", "2026-03-29T08:00:00+02:00"},
		// 02:30 is left out: it is when the clocks change.
		{"21:00-02:30", "Europe/Berlin", "2026-03-29T01:59:59+01:00", "2026-03-29T03:00:00+02:00"},
		{"21:00-02:30", "Europe/Berlin", "2026-03-29T03:00:00+02:00", ""},
		{"02:30-05:00", "Europe/Berlin", "2026-03-29T01:59:59+01:00", ""},
		{"02:30-05:00", "Europe/Berlin", "2026-03-29T03:00:00+02:00", "2026-03-29T05:00:00+02:00"},
		// Both are left out: nothing is left of them.
		{"02:15-02:45", "Europe/Berlin", "2026-03-29T03:00:00+02:00", ""},
		{"02:15-02:45", "Europe/Berlin", "2026-03-29T03:30:00+02:00", ""},

		// Clocks go back from 03:00 to 02:00 on 25 October: the night is an hour longer.
		{"21:00-08:00", "Europe/Berlin", "2026-10-24T22:00:00+02:00", "2026-10-25T08:00:00+01:00"},
		// 02:30 comes twice: the second one ends them, the first one begins them.
		{"21:00-02:30", "Europe/Berlin", "2026-10-25T02:45:00+02:00", "2026-10-25T02:30:00+01:00"},
		{"21:00-02:30", "Europe/Berlin", "2026-10-25T02:30:00+01:00", ""},
		{"02:30-05:00", "Europe/Berlin", "2026-10-25T02:30:00+02:00", "2026-10-25T05:00:00+01:00"},
		{"02:30-05:00", "Europe/Berlin", "2026-10-25T02:10:00+01:00", "2026-10-25T05:00:00+01:00"},

		// Midnight itself is left out (clocks go from 24:00 to 01:00).
		{"00:00-06:00", "Asia/Beirut", "2026-03-28T23:59:59+02:00", ""},
		{"00:00-06:00", "Asia/Beirut", "2026-03-29T01:00:00+03:00", "2026-03-29T06:00:00+03:00"},
		{"20:00-00:00", "Asia/Beirut", "2026-03-28T23:59:59+02:00", "2026-03-29T01:00:00+03:00"},
	} {
		hours, err := channels.ParseQuietHours(c.hours)
		require.NoError(t, err)
		zone, err := time.LoadLocation(c.zone)
		require.NoError(t, err)
		end, quiet := quietUntil(instant(t, c.now), hours, zone)
		name := fmt.Sprintf("%s in %s at %s", c.hours, c.zone, c.now)
		require.Equal(t, c.end != "", quiet, name)
		if quiet {
			require.True(t, end.Equal(instant(t, c.end)), "%s: %s", name, end)
		}
	}
}

// Whatever the zone and the instant: a message that waits is due at an instant that is
// not quiet, not before now, and not much later than a night.
func TestQuietUntil_EndsOutsideQuietHours(t *testing.T) {
	t.Parallel()
	names := []string{"UTC", "Asia/Seoul", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Beirut", "Pacific/Apia", "Asia/Kathmandu"}
	rapid.Check(t, func(rt *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom(names).Draw(rt, "zone"))
		require.NoError(rt, err)
		clock := rapid.Custom(func(rt *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, 95).Draw(rt, "quarter")) * 15 * time.Minute
		})
		h := channels.QuietHours{Start: clock.Draw(rt, "start"), End: clock.Draw(rt, "end")}
		if h.Start == h.End {
			rt.Skip("no quiet hours")
		}
		now := time.Unix(rapid.Int64Range(1262304000, 2082758400).Draw(rt, "now"), 0)
		end, quiet := quietUntil(now, h, zone)
		if !quiet {
			return
		}
		require.True(rt, end.After(now), "%s from %s", end, now)
		require.LessOrEqual(rt, end.Sub(now), 50*time.Hour)
		_, again := quietUntil(end, h, zone)
		require.False(rt, again, "%s is quiet again", end)
	})
}

// Names come from users' data: what is no zone is not looked for twice, and the memory is
// bounded.
func TestZones_AreBounded(t *testing.T) {
	t.Parallel()
	z := zones{known: make(map[string]*time.Location)}
	for i := range maxZones + 100 {
		require.Equal(t, time.UTC, z.get(fmt.Sprintf("No/Where%d", i), time.UTC))
	}
	require.Len(t, z.known, maxZones)
	require.Equal(t, "Asia/Seoul", z.get("Asia/Seoul", time.UTC).String())
	for _, name := range []string{"", "Local", "../etc/passwd", "Asia/Seoul\x00", "+09:00"} {
		require.Equal(t, time.UTC, z.get(name, time.UTC), name)
	}
	z = zones{known: make(map[string]*time.Location)}
	for length := range 200 {
		require.Equal(t, time.UTC, z.get(strings.Repeat("x", length), time.UTC))
	}
	require.Len(t, z.known, 65, "a name of 64 characters is kept, a longer one is not")
}
