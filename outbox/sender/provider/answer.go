package provider

import (
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// httpAnswer is what a provider said.
type httpAnswer struct {
	status int
	header http.Header
	body   []byte // the first answerLimit bytes at most
	// whole is false when the body was cut: it is longer than answerLimit, or the
	// connection or the context ended before it. The status stands all the same.
	whole bool

	now time.Time
}

// refuseAddress is the result of an address that the client refuses without a call. It is
// not recorded as invalid: only a provider can know that.
func refuseAddress(code, detail string) sender.Result {
	return sender.Result{Class: sender.Permanent, Code: code, Detail: detail, Refusal: sender.RefusedAddress}
}

// refuseContent is the result of a message that the client refuses without a call.
func refuseContent(code, detail string) sender.Result {
	return sender.Result{Class: sender.Permanent, Code: code, Detail: detail, Refusal: sender.RefusedContent}
}

// result reads the status alone; see classOfStatus.
func (a httpAnswer) result() sender.Result {
	detail := http.StatusText(a.status)
	if a.status >= 300 && a.status < 400 {
		detail += " (not followed)"
	}
	return a.as(classOfStatus(a.status), strconv.Itoa(a.status), detail)
}

// as is a sender's own reading of the answer. RetryAfter is the provider's, where the
// class lets the message be tried again.
func (a httpAnswer) as(class sender.Class, code, detail string) sender.Result {
	result := sender.Result{Class: class, Code: code, Detail: detail}
	if class == sender.Retryable || class == sender.Unknown {
		result.RetryAfter = retryAfter(a.header, a.now)
	}
	return result
}

// classOfStatus reads an HTTP status. 2xx: accepted. 408, 425, 429, 500, 503: retryable, the
// provider reports that it did not do it. 401: retryable as well. It is about the sender's
// credentials and not about the message, and opens the relay's breaker. Every other 5xx: unknown, as 502 and 504, by
// which a gateway says that it lost sight of the request. All else is permanent.
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

// keptCode returns a provider's code if it is fit to be kept: up to 64 letters, digits,
// _, ., : and -, with no run of digits that might be somebody's number; else the empty
// text.
func keptCode(text string) string {
	if !codeShape().MatchString(text) || longRun.MatchString(text) {
		return ""
	}
	return text
}
