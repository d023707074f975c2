package api

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/errkind"
)

// Problem is the JSON of an error, as RFC 9457 has it.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Kind is the errkind.Kind of an error of an operation.
	Kind   errkind.Kind `json:"kind,omitempty"`
	Errors []Fault      `json:"errors,omitempty"`
	// Changes are the acts that changed a thing since the caller saw it, newest first.
	Changes []operation.ActSince `json:"changes,omitempty"`
	// Next says what to do about it.
	Next string `json:"next,omitempty"`
	// Result is what was done or found all the same.
	Result any `json:"result,omitempty"`

	header http.Header
}

// Fault is one thing that is wrong with a request.
type Fault struct {
	// Location is where: path.lane, query.limit, body.reason; empty: several together.
	Location string `json:"location,omitempty"`
	// Message says what is allowed.
	Message string `json:"message"`
}

// retryAfter is how long a client waits before it asks a database again that was away.
const retryAfter = 5 * time.Second

// statuses has the status of each kind.
var statuses = map[errkind.Kind]int{
	errkind.Failed:      http.StatusInternalServerError,
	errkind.Invalid:     http.StatusUnprocessableEntity,
	errkind.NotFound:    http.StatusNotFound,
	errkind.Conflict:    http.StatusConflict,
	errkind.Stale:       http.StatusPreconditionFailed,
	errkind.Held:        http.StatusConflict,
	errkind.Denied:      http.StatusForbidden,
	errkind.Forbidden:   http.StatusForbidden,
	errkind.Standby:     http.StatusServiceUnavailable,
	errkind.Unavailable: http.StatusServiceUnavailable,
	errkind.TooSlow:     http.StatusServiceUnavailable,
	errkind.Unknown:     http.StatusInternalServerError,
}

// StatusOf is the status of an answer with an error of a kind.
func StatusOf(kind errkind.Kind) int { return statuses[kind] }

// problemf is a problem of the request itself.
func problemf(status int, detail string) *Problem {
	return &Problem{Title: http.StatusText(status), Status: status, Detail: detail}
}

// with adds a header.
func (p *Problem) with(name, value string) *Problem {
	if p.header == nil {
		p.header = make(http.Header)
	}
	p.header.Set(name, value)
	return p
}

// problemOf returns the problem of an error that a caller may read, of an operation at a route.
func problemOf(r route, err error) *Problem {
	var rejected *RefusedError
	if errors.As(err, &rejected) {
		return rejected.problem()
	}
	kind := errkind.Of(err)
	p := problemf(statuses[kind], r.of.WithNames(err.Error()))
	p.Kind = kind
	var bad *operation.InvalidError
	if errors.As(err, &bad) {
		p.Detail = "the request was not understood; nothing was done"
		if kind == errkind.NotFound {
			p.Detail = bad.Err.Error()
		}
		for _, one := range bad.Problems {
			p.Errors = append(p.Errors, Fault{r.located(one.Param), r.of.WithNames(one.Text)})
		}
	}
	advised, is := err.(*operation.AdvisedError) //nolint:errorlint // one of several advises on that alone, and is in the text
	if is {
		p.Detail, p.Next = r.of.WithNames(advised.Err.Error()), advised.Next
	}
	if old := new(operation.StaleError); errors.As(err, &old) {
		p.Changes = old.Changes
	}
	if p.Status == http.StatusServiceUnavailable || kind == errkind.Held {
		p.with("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
	}
	return p
}

// problem returns the problem of a call that was refused before it began.
func (e *RefusedError) problem() *Problem {
	p := problemf(e.Status, e.Text)
	p.Kind = e.Of
	if e.After > 0 {
		p.with("Retry-After", strconv.Itoa(int(math.Ceil(e.After.Seconds()))))
	}
	if e.challenge != "" {
		p.with("WWW-Authenticate", e.challenge)
	}
	return p
}

// located is where a parameter of the route stands.
func (r route) located(name string) string {
	of, _, _ := strings.Cut(name, "[") // jobs[3].title
	if at, known := r.in[of]; known {
		return at.location(name)
	}
	return name
}

// write answers with the problem.
func (p *Problem) write(w http.ResponseWriter) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	respond(w, p.Status, "application/problem+json", p)
}
