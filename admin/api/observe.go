package api

import (
	"net/http"
	"time"
)

// Answered describes a completed request.
type Answered struct {
	Operation string // empty without a known operation or an authenticated caller
	Method    string
	Status    int  // zero if the client disconnected before the response
	Stream    bool // Took is then the client's reading time
	Took      time.Duration
}

// recorder collects the Answered of a request. It is used by the request's goroutine alone.
type recorder struct {
	http.ResponseWriter

	answered Answered
	began    time.Time
}

// recorderKey is the context key of a request's *recorder.
type recorderKey struct{}

// end returns the answered request.
func (n *recorder) end() Answered {
	n.answered.Took = time.Since(n.began)
	return n.answered
}

// Note notes for Options.Observe which operation a request is for. The duration of a stream depends on its
// client.
func Note(req *http.Request, operation string, stream bool) {
	if n, is := req.Context().Value(recorderKey{}).(*recorder); is {
		n.answered.Operation, n.answered.Stream = operation, stream
	}
}

// WriteHeader implements http.ResponseWriter.
func (n *recorder) WriteHeader(status int) {
	if n.answered.Status == 0 && status >= http.StatusOK {
		n.answered.Status = status
	}
	n.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (n *recorder) Write(b []byte) (int, error) {
	if n.answered.Status == 0 {
		n.answered.Status = http.StatusOK
	}
	return n.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (n *recorder) Unwrap() http.ResponseWriter { return n.ResponseWriter }
