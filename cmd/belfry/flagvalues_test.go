package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
)

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
		require.Equal(t, want, text.Grouped(n))
	}
}

func TestShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1500 * time.Microsecond: "2ms", 1540 * time.Millisecond: "1.5s",
		42*time.Second + 400*time.Millisecond: "42s", 90 * time.Second: "1m30s", 26*time.Hour + 3*time.Minute: "26h03m",
	} {
		require.Equal(t, want, text.Short(d))
	}
}

// A title must not move the cursor of the terminal that shows it.
func TestOneLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b [2Jc", text.OneLine("a\nb\x1b[2Jc", 20))
	require.Equal(t, "안녕…", text.OneLine("안녕하세요", 3))
	require.Equal(t, "a b", text.OneLine("a\u009bb", 3))
}
