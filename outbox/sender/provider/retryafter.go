package provider

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// longestWait is the maximum of Retry-After. It prevents an overflow when it is added to a time.
const longestWait = 365 * 24 * time.Hour

// retryAfter returns the wait of the header Retry-After from now, rounded up to whole seconds, at most a year.
// It returns zero without a valid header. A date is compared to now and to the answer's own Date, and the
// longer wait is returned, so that a wrong clock does not cause an early retry (I11).
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	at, err := dateOf(text)
	if c := text[0]; err != nil && c >= '0' && c <= '9' {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil && !math.IsInf(seconds, 1) || strings.ContainsAny(text, "xXpP_") {
			return 0
		}
		if seconds >= longestWait.Seconds() {
			return longestWait
		}
		return time.Duration(math.Ceil(seconds)) * time.Second
	}
	if err != nil {
		return 0
	}
	wait := at.Sub(now)
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		wait = max(wait, at.Sub(date))
	}
	if wait <= 0 {
		return 0
	}
	if wait >= longestWait {
		return longestWait
	}
	return (wait + time.Second - 1).Truncate(time.Second)
}

// dateOf parses a date in the three formats of HTTP, in RFC 3339, or with a numeric zone instead of GMT,
// which some servers write.
func dateOf(text string) (time.Time, error) {
	if at, err := http.ParseTime(text); err == nil {
		return at, nil
	}
	if at, err := time.Parse(time.RFC1123Z, text); err == nil {
		return at, nil
	}
	return time.Parse(time.RFC3339, text)
}
