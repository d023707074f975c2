package provider

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// httpAnswer is a provider's answer.
type httpAnswer struct {
	status int
	header http.Header
	body   []byte // at most answerLimit bytes
	// whole is false if the body is incomplete: it exceeds answerLimit, or the connection or the context ended
	// during the read. The status is valid nevertheless.
	whole      bool
	redirected bool // it is from another URL than the requested one

	now time.Time
}

// refuseAddress returns the result of an address that the client refuses without a call. The address is not
// recorded as invalid: only a provider can know that.
func refuseAddress(code, detail string) sender.Result {
	return sender.Result{Class: sender.Permanent, Code: code, Detail: detail, Refusal: sender.RefusedAddress}
}

// refuseContent returns the result of a message that the client refuses without a call.
func refuseContent(code, detail string) sender.Result {
	return sender.Result{Class: sender.Permanent, Code: code, Detail: detail, Refusal: sender.RefusedContent}
}

// result classifies the answer by its status only; see classOfStatus.
func (a httpAnswer) result() sender.Result {
	detail := http.StatusText(a.status)
	if a.status >= 300 && a.status < 400 {
		detail += " (not followed)"
	}
	return a.as(classOfStatus(a.status), strconv.Itoa(a.status), detail)
}

// as returns a result with a class that the sender has determined. If the class permits a retry, the result has
// the provider's Retry-After.
func (a httpAnswer) as(class sender.Class, code, detail string) sender.Result {
	result := sender.Result{Class: class, Code: code, Detail: detail}
	if class == sender.Retryable || class == sender.Unknown {
		result.RetryAfter = retryAfter(a.header, a.now)
	}
	return result
}

// classOfStatus classifies an HTTP status. 2xx is accepted. 408, 425, 429, 500 and 503 are retryable: the
// provider reports that it did not act. 401 is retryable too, because it concerns the sender's credentials and
// not the message; it opens the relay's breaker. Every other 5xx is unknown, such as 502 and 504, with which a
// gateway reports that it does not know the result. All other statuses are permanent.
func classOfStatus(status int) sender.Class {
	switch status {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusServiceUnavailable:
		return sender.Retryable
	}
	switch {
	case status >= 200 && status < 300:
		return sender.Accepted
	case status >= 500:
		return sender.Unknown
	}
	return sender.Permanent
}

var (
	codeShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`) })
	longRun   = regexp.MustCompile(`[0-9][0-9.:-]{5,}[0-9]`)
)

// keptCode returns a provider's code if it can be stored: up to 64 letters, digits, _, ., : and -, without a run
// of digits that may be a telephone number. Otherwise it returns an empty text.
func keptCode(text string) string {
	if !codeShape().MatchString(text) || longRun.MatchString(text) {
		return ""
	}
	return text
}

// longestWait is the maximum of Retry-After.
const longestWait = 24 * time.Hour

// retryAfter returns the wait of the header Retry-After from now, rounded up to whole seconds, at most a day.
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
