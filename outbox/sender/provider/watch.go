package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/belfryhq/belfry/outbox/sender"
)

// watch records whether a request may have reached its provider.
//
// A request with a body begins when its headers are written: net/http writes them before the body, and a
// provider cannot act without the body. If RoundTrip returns an error before the headers are written, no body
// is sent afterwards: with HTTP/1 the writing goroutine has ended, and with HTTP/2 the stream is aborted, which
// is checked before each part of a body. A request without a body begins when it has a connection; so whether the
// message may still be sent is checked before its connection, and for a body before its first byte.
type watch struct {
	tried atomic.Bool // a connection was requested or received, so the request is valid
	begun atomic.Bool // the request may have been sent
	late  atomic.Bool // the body was not sent, because the message may no longer be sent
	http2 atomic.Bool // the connection speaks HTTP/2
}

// checkedBody is a body that fails before its first byte if the message may no longer be sent.
type checkedBody struct {
	io.ReadCloser
	ctx   context.Context //nolint:containedctx // of the request that it belongs to
	watch *watch
	read  bool
}

func (b *checkedBody) Read(p []byte) (int, error) {
	if !b.read {
		if err := sender.Check(b.ctx); err != nil {
			b.watch.late.Store(true)
			return 0, err
		}
		b.read = true
	}
	return b.ReadCloser.Read(p)
}

// request returns a watched copy of the original with its own body.
func (w *watch) request(ctx context.Context, original *http.Request) (*http.Request, error) {
	req := original.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// net/http restarts a request only if nothing of it was written, or GetBody permits it.
		GetConn: func(string) {
			w.tried.Store(true)
			w.begun.Store(false)
		},
		GotConn: func(info httptrace.GotConnInfo) {
			w.tried.Store(true) // a new HTTP/2 connection, which other calls share, has no GetConn
			if c, ok := info.Conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
				w.http2.Store(true)
			}
			if !hasBody(original) {
				w.begun.Store(true)
			}
		},
		WroteHeaders: func() { w.begun.Store(true) },
	}))
	if !hasBody(original) {
		return req, nil
	}
	if original.GetBody == nil {
		return nil, errors.New("a body without GetBody")
	}
	req.GetBody = func() (io.ReadCloser, error) {
		if w.http2.Load() && w.begun.Load() { // HTTP/1 restarts only what was not written, although it may have begun here
			return nil, errors.New("the request was sent")
		}
		w.late.Store(false)
		body, err := original.GetBody()
		return &checkedBody{ReadCloser: body, ctx: ctx, watch: w}, err
	}
	var err error
	req.Body, err = req.GetBody()
	return req, err
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }
