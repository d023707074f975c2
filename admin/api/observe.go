package api

import (
	"net/http"
	"time"
)

// Answered is a request that was answered.
type Answered struct {
	Operation string // its name; "": it was for none, or for nobody
	Method    string
	Status    int  // 0: the client was gone before there was one
	Stream    bool // it lasted as long as somebody read it
	Took      time.Duration
}

// noted is what becomes known of a request while it is answered, by the goroutine that does.
type noted struct {
	http.ResponseWriter

	answered Answered
	began    time.Time
}

// notedKey is where a request's context has its *noted.
type notedKey struct{}

// end returns the answered request.
func (n *noted) end() Answered {
	n.answered.Took = time.Since(n.began)
	return n.answered
}

// Note notes for Options.Observe which operation a request is for. The answer of a stream lasts as
// long as its reader stays.
func Note(req *http.Request, operation string, stream bool) {
	if n, is := req.Context().Value(notedKey{}).(*noted); is {
		n.answered.Operation, n.answered.Stream = operation, stream
	}
}

// WriteHeader implements http.ResponseWriter.
func (n *noted) WriteHeader(status int) {
	if n.answered.Status == 0 && status >= http.StatusOK {
		n.answered.Status = status
	}
	n.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (n *noted) Write(b []byte) (int, error) {
	if n.answered.Status == 0 {
		n.answered.Status = http.StatusOK
	}
	return n.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (n *noted) Unwrap() http.ResponseWriter { return n.ResponseWriter }
