package httpcall

import (
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// Answer is what a provider said.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // the first BodyLimit bytes at most
	// Whole is false when the body was cut: it is longer than BodyLimit, or the
	// connection or the context ended before it. The status stands all the same.
	Whole bool

	now time.Time
}

// Result reads the status alone; see ClassOf.
func (a Answer) Result() sender.Result {
	detail := http.StatusText(a.Status)
	if a.Status >= 300 && a.Status < 400 {
		detail += " (not followed)"
	}
	return a.As(ClassOf(a.Status), strconv.Itoa(a.Status), detail)
}

// As is a sender's own reading of the answer. RetryAfter is the provider's, where the
// class lets the message be tried again.
func (a Answer) As(class sender.Class, code, detail string) sender.Result {
	result := sender.Result{Class: class, Code: code, Detail: detail}
	if class == sender.Retryable || class == sender.Unknown {
		result.RetryAfter = RetryAfter(a.Header, a.now)
	}
	return result
}

// ClassOf reads an HTTP status. 2xx: accepted. 408, 429, 500, 503: retryable, the
// provider says that it did not do it. Every other 5xx: unknown, as 502 and 504, by
// which a gateway says that it lost sight of the request. All else is permanent.
func ClassOf(status int) sender.Class {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable:
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

// Code returns a provider's code if it is fit to be kept: up to 64 letters, digits, _, .,
// : and -, with no run of digits that might be somebody's number; else the empty text.
func Code(text string) string {
	if !codeShape().MatchString(text) || longRun.MatchString(text) {
		return ""
	}
	return text
}
