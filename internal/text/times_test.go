package text_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
)

func TestTimes_AreOfTheZoneThatWasAskedFor(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 9, 0, 12, 345, time.UTC)
	require.Equal(t, "2026-11-20 09:00:12+00:00", text.Times{Zone: time.UTC}.Clock(at))
	require.Equal(t, "2026-11-20 04:00:12-05:00", text.Times{Zone: time.FixedZone("east coast", -5*3600)}.Clock(at))
	require.Equal(t, text.LocalClock(at), text.Times{}.Clock(at))
}

func TestTimes_AreToldFromNow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	times := text.Times{Relative: true, Zone: time.UTC, Now: func() time.Time { return now }}
	for d, want := range map[time.Duration]string{
		0: "now", 999 * time.Millisecond: "now", -999 * time.Millisecond: "now",
		time.Second: "in 1s", -90 * time.Second: "90s ago", 119*time.Second + 999*time.Millisecond: "in 119s",
		-3 * time.Minute: "3m ago", -119 * time.Minute: "119m ago", 2 * time.Hour: "in 2h", 47*time.Hour + 59*time.Minute: "in 47h",
		-48 * time.Hour: "2d ago", 400 * 24 * time.Hour: "in 400d",
	} {
		require.Equal(t, want, times.Clock(now.Add(d)), d)
	}
	soon := time.Now().Add(90*time.Minute + 30*time.Second)
	require.Equal(t, "in 90m", text.Times{Relative: true}.Clock(soon), "by the machine's clock")
}
