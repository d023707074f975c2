package operation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
)

func TestInstant(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	seoul := time.FixedZone("KST", 9*3600)
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
		got, err := operation.ParseInstant(text, seoul)
		require.NoError(t, err, text)
		require.Equal(t, want, got.At(now), text)
	}
	for _, text := range []string{"", "tomorrow", "10m", "-10m", "+-10m", "+10", "2026-13-01 00:00", "2026-11-20", "08:50", "2026-02-30 10:00"} {
		_, err := operation.ParseInstant(text, seoul)
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
	_, err = operation.ParseInstant("2026-03-29 02:30", berlin)
	require.EqualError(t, err, "2026-03-29 02:30 does not exist in the time zone Europe/Berlin")
	for text, utc := range map[string]string{ // twice, once, and on the other side
		"2027-10-31 02:30": "2027-10-31T00:30:00Z", "2027-10-31 02:00:00": "2027-10-31T00:00:00Z",
		"2027-10-31 03:00": "2027-10-31T02:00:00Z", "2027-10-31 01:59": "2027-10-30T23:59:00Z", "2027-03-28 03:00": "2027-03-28T01:00:00Z",
	} {
		i, err := operation.ParseInstant(text, berlin)
		require.NoError(t, err)
		require.Equal(t, utc, i.At(time.Time{}).UTC().Format(time.RFC3339), text)
	}
	_, err = operation.ParseInstant("2026-03-29 03:30", berlin)
	require.NoError(t, err)
}
