package provider

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// watch knows of one request whether it may have reached its provider.
//
// A request with a body begins when its headers are written: net/http writes them before
// the body, and a provider cannot act without the body. When RoundTrip returns an error
// and the headers were not written yet, no body goes out afterwards: by HTTP/1 the
// writing goroutine has ended by then, and by HTTP/2 the stream was aborted, which is
// looked at before each piece of a body. A request without a body begins when it has got
// its connection, because by HTTP/2 nothing stops its headers after that.
type watch struct {
	tried atomic.Bool // a connection was asked for: the request itself is sound
	begun atomic.Bool // it may have gone out
}

// request is a copy of the original, with a body of its own, that is watched.
func (w *watch) request(ctx context.Context, original *http.Request) (*http.Request, error) {
	hasBody := original.Body != nil && original.Body != http.NoBody
	req := original.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// net/http starts over only when surely nothing of the request was processed.
		GetConn: func(string) {
			w.tried.Store(true)
			w.begun.Store(false)
		},
		GotConn: func(httptrace.GotConnInfo) {
			if !hasBody {
				w.begun.Store(true)
			}
		},
		WroteHeaders: func() { w.begun.Store(true) },
	}))
	if !hasBody {
		return req, nil
	}
	if original.GetBody == nil {
		return nil, errors.New("a body without GetBody")
	}
	var err error
	req.Body, err = original.GetBody()
	return req, err
}
