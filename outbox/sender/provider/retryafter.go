package provider

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// longestWait is the longest Retry-After that is taken at its word, so that adding it to
// a time cannot overflow.
const longestWait = 365 * 24 * time.Hour

// retryAfter is how long the header Retry-After asks to wait from now, in whole seconds,
// rounded up; zero when there is none or it makes no sense. A date is read both by now
// and by the answer's own Date, and the longer wait counts: a clock that is wrong must
// not make a retry early (I11). At most a year.
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

// dateOf reads a date in one of the three forms of HTTP, or in one that some servers write: with a
// numeric zone instead of GMT, or as RFC 3339.
func dateOf(text string) (time.Time, error) {
	if at, err := http.ParseTime(text); err == nil {
		return at, nil
	}
	if at, err := time.Parse(time.RFC1123Z, text); err == nil {
		return at, nil
	}
	return time.Parse(time.RFC3339, text)
}
