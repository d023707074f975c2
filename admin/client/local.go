package client

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Local returns a client of an API in this process. It asks as whoever sent a request: with its
// cookies and tokens, from its address.
func Local(h http.Handler, as *http.Request) *Client {
	return &Client{http: &http.Client{
		Transport:     Within(h, as),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// localRoot is where the API of this process is, to itself.
const localRoot = "http://belfry"

// Keyed returns a client whose acts are done once for a key (Idempotency-Key).
func (c *Client) Keyed(key string) *Client {
	keyed := *c
	keyed.key = key
	return &keyed
}

// Within returns what has h answer requests, as though whoever sent as had asked for them.
func Within(h http.Handler, as *http.Request) http.RoundTripper { return within{h, as} }

type within struct {
	handler http.Handler
	as      *http.Request
}

// notPassed are the headers of a request that are about its own body and page.
var notPassed = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Idempotency-Key", "If-Match",
	"If-None-Match", "Last-Event-Id", "Origin", "Referer", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User", "Te", "Trailer", "Upgrade",
}

// RoundTrip implements http.RoundTripper: the answer comes as it is written.
func (t within) RoundTrip(out *http.Request) (*http.Response, error) {
	in := out.Clone(out.Context())
	for name, values := range t.as.Header {
		if _, own := in.Header[name]; !own && !slices.Contains(notPassed, name) {
			in.Header[name] = values
		}
	}
	in.RequestURI, in.Host, in.RemoteAddr, in.TLS = out.URL.RequestURI(), t.as.Host, t.as.RemoteAddr, t.as.TLS
	in.URL.Scheme, in.URL.Host = "", ""
	if in.Body == nil {
		in.Body = http.NoBody
	}
	reader, writer := io.Pipe()
	w := &answer{header: make(http.Header), body: writer, begun: make(chan struct{})}
	go func() {
		defer func() {
			w.WriteHeader(http.StatusOK)
			if recover() != nil { // the handler broke the answer off, as a server's may
				_ = writer.CloseWithError(io.ErrUnexpectedEOF)
				return
			}
			_ = writer.Close()
		}()
		t.handler.ServeHTTP(w, in)
	}()
	<-w.begun
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: reader, ContentLength: -1, Request: out,
	}, nil
}

// answer is the ResponseWriter of a request within the process.
type answer struct {
	header, sent http.Header
	status       int
	body         *io.PipeWriter
	once         sync.Once
	begun        chan struct{} // closed once status and sent are there
}

// Header implements http.ResponseWriter.
func (w *answer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *answer) WriteHeader(status int) {
	if status < http.StatusOK {
		return
	}
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

// Write implements http.ResponseWriter.
func (w *answer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// SetWriteDeadline is for http.ResponseController: who reads is in this process, and closes what
// it does not read any more.
func (w *answer) SetWriteDeadline(time.Time) error { return nil }

// Flush implements http.Flusher: nothing is kept back.
func (w *answer) Flush() { w.WriteHeader(http.StatusOK) }
