package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/printer"
)

func TestInstant(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	seoul := time.FixedZone("KST", 9*3600)
	parse := instantParser(func() time.Time { return now }, seoul)
	for text, want := range map[string]time.Time{
		"2026-11-20T08:50:00+09:00": time.Date(2026, 11, 19, 23, 50, 0, 0, time.UTC),
		"2026-11-20T08:50:00Z":      time.Date(2026, 11, 20, 8, 50, 0, 0, time.UTC),
		"2026-11-20 08:50:00+09:00": time.Date(2026, 11, 19, 23, 50, 0, 0, time.UTC),
		"2026-11-20T08:50:00.25Z":   time.Date(2026, 11, 20, 8, 50, 0, 250_000_000, time.UTC),
		"+10m":                      now.Add(10 * time.Minute),
		"+1h30m":                    now.Add(90 * time.Minute),
		"+0s":                       now,
		"2026-11-20 08:50":          time.Date(2026, 11, 19, 23, 50, 0, 0, time.UTC),
		"2026-11-20 08:50:30":       time.Date(2026, 11, 19, 23, 50, 30, 0, time.UTC),
		"2026-11-20T08:50":          time.Date(2026, 11, 19, 23, 50, 0, 0, time.UTC),
	} {
		got, err := parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "tomorrow", "10m", "-10m", "+-10m", "+10", "2026-13-01 00:00", "2026-11-20", "08:50", "2026-02-30 10:00"} {
		_, err := parse(text)
		require.ErrorContains(t, err, "allowed values: RFC 3339", text)
	}
}

// An hour that the change to summer time skips names no instant.
func TestInstant_SkippedHour(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("no time zone data: %v", err)
	}
	parse := instantParser(time.Now, berlin)
	_, err = parse("2026-03-29 02:30")
	require.EqualError(t, err, "2026-03-29 02:30 does not exist in the time zone Europe/Berlin")
	_, err = parse("2026-03-29 03:30")
	require.NoError(t, err)
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	d, err := parseDuration("1h30m")
	require.NoError(t, err)
	require.Equal(t, 90*time.Minute, d)
	for _, text := range []string{"", "30", "-1s", "soon"} {
		_, err := parseDuration(text)
		require.ErrorContains(t, err, "durations with their unit", text)
	}
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -999: "-999"} {
		require.Equal(t, want, printer.Grouped(n))
	}
}

func TestShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1500 * time.Microsecond: "2ms", 1540 * time.Millisecond: "1.5s",
		42*time.Second + 400*time.Millisecond: "42s", 90 * time.Second: "1m30s", 26*time.Hour + 3*time.Minute: "26h03m",
	} {
		require.Equal(t, want, printer.Short(d))
	}
}

// A title must not move the cursor of the terminal that shows it.
func TestOneLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b [2Jc", printer.OneLine("a\nb\x1b[2Jc", 20))
	require.Equal(t, "안녕…", printer.OneLine("안녕하세요", 3))
	require.Equal(t, "a b", printer.OneLine("a\u009bb", 3))
}
