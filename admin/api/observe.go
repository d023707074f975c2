package api

import (
	"context"
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
}

// notedKey is where a request's context has its *noted.
type notedKey struct{}

// observed tells Options.Observe of each request.
func (h *Handler) observed(next http.Handler) http.Handler {
	if h.Observe == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n := &noted{ResponseWriter: w, answered: Answered{Method: req.Method}}
		began, ended := time.Now(), false
		defer func() { // also where a stream is cut off by a panic, or recovering answers
			if !ended && n.answered.Status == 0 {
				n.answered.Status = http.StatusInternalServerError
			}
			n.answered.Took = time.Since(began)
			h.Observe(n.answered)
		}()
		next.ServeHTTP(n, req.WithContext(context.WithValue(req.Context(), notedKey{}, n)))
		ended = true
	})
}

// note says which operation a request is for.
func note(req *http.Request, operation string, stream bool) {
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
