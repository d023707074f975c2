package api

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/db"
)

// Problem is the JSON of an error (RFC 9457).
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Kind is the kind of an operation's error.
	Kind   db.Kind `json:"kind,omitempty"`
	Errors []Fault `json:"errors,omitempty"`
	// Changes lists the acts on the object since the version that the caller expects, newest first.
	Changes []operation.ActSince `json:"changes,omitempty"`
	// Next is the advised next step.
	Next string `json:"next,omitempty"`
	// Result is the partial result of an operation that failed.
	Result any `json:"result,omitempty"`

	header http.Header
}

// Fault is one invalid parameter of a request.
type Fault struct {
	// Location names the parameter: path.lane, query.limit, body.reason. Empty if the fault is of a
	// combination of parameters.
	Location string `json:"location,omitempty"`
	// Message lists the allowed values.
	Message string `json:"message"`
}

// retryAfter is the Retry-After of a response during a database outage.
const retryAfter = 5 * time.Second

// statuses maps each kind to its HTTP status.
var statuses = map[db.Kind]int{
	db.KindFailed:      http.StatusInternalServerError,
	db.KindInvalid:     http.StatusUnprocessableEntity,
	db.KindNotFound:    http.StatusNotFound,
	db.KindConflict:    http.StatusConflict,
	db.KindStale:       http.StatusPreconditionFailed,
	db.KindHeld:        http.StatusConflict,
	db.KindDenied:      http.StatusForbidden,
	db.KindForbidden:   http.StatusForbidden,
	db.KindStandby:     http.StatusServiceUnavailable,
	db.KindUnavailable: http.StatusServiceUnavailable,
	db.KindTooSlow:     http.StatusServiceUnavailable,
	db.KindUnknown:     http.StatusInternalServerError,
}

// StatusOf returns the HTTP status of an error of a kind.
func StatusOf(kind db.Kind) int { return statuses[kind] }

// problemf returns a problem of the request itself.
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
	kind := db.KindOf(err)
	p := problemf(statuses[kind], r.of.WithNames(err.Error()))
	p.Kind = kind
	var bad *operation.InvalidError
	if errors.As(err, &bad) {
		p.Detail = "the request was not understood; nothing was done"
		if kind == db.KindNotFound {
			p.Detail = bad.Err.Error()
		}
		for _, one := range bad.Problems {
			p.Errors = append(p.Errors, Fault{r.located(one.Param), r.of.WithNames(one.Text)})
		}
	}
	// The advice of one error among several concerns that error alone and is in the text.
	advised, is := err.(*operation.AdvisedError) //nolint:errorlint // see above
	if is {
		p.Detail, p.Next = r.of.WithNames(advised.Err.Error()), advised.Next.String()
	}
	if old := new(operation.StaleError); errors.As(err, &old) {
		p.Changes = old.Changes
	}
	if p.Status == http.StatusServiceUnavailable || kind == db.KindHeld {
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

// located returns the location of a parameter.
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
