package api

import (
	"bytes"
	"encoding/json"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/db"
)

// Limits of streams. Each stream needs two goroutines and the memory of an item. The queries are shared
// (jobs.Broadcaster).
const (
	maxStreams    = 512              // of the process; a browser has one with live pages
	maxOwnStreams = 32               // of one identity
	beatEvery     = 15 * time.Second // interval of comments and authorization checks
	eventTime     = 10 * time.Second // deadline of each write
	reconnectTime = 5 * time.Second  // delay before a client reconnects
)

// eventStream and jsonLines are the forms of a stream.
const (
	eventStream = "text/event-stream"
	jsonLines   = "application/x-ndjson"
)

// streams counts the open streams, and ends all of them.
type streams struct {
	most, own   int
	beat, event time.Duration

	mu       sync.Mutex
	open     int
	by       map[string]int
	stopping chan struct{}
	stop     sync.Once
}

func newStreams() *streams {
	return &streams{
		most: maxStreams, own: maxOwnStreams, beat: beatEvery, event: eventTime,
		by: make(map[string]int), stopping: make(chan struct{}),
	}
}

// enter counts a stream of an identity. The error is a *RefusedError if there are too many.
func (s *streams) enter(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.most || s.by[name] >= s.own {
		text := "too many streams are open; allowed: " + strconv.Itoa(s.own) + " of one identity, " + strconv.Itoa(s.most) + " in all"
		return refused(http.StatusServiceUnavailable, db.KindUnavailable, text).again(retryAfter)
	}
	s.open++
	s.by[name]++
	return nil
}

func (s *streams) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.by[name]--; s.by[name] == 0 {
		delete(s.by, name)
	}
}

// nextBeat returns the time until the next heartbeat. All streams have it at the same moment, so that one
// query authorizes all of them.
func (s *streams) nextBeat() time.Duration {
	now := time.Now()
	return now.Truncate(s.beat).Add(s.beat).Sub(now)
}

// Streams returns the number of open streams.
func (h *Handler) Streams() int {
	h.streams.mu.Lock()
	defer h.streams.mu.Unlock()
	return h.streams.open
}

// EndStreams ends all open and all later streams, because the server stops.
func (h *Handler) EndStreams() { h.streams.stop.Do(func() { close(h.streams.stopping) }) }

// stream is a streamed response. Only the request's goroutine writes to it.
type stream struct {
	w      http.ResponseWriter
	ctl    *http.ResponseController
	events bool // text/event-stream; otherwise one JSON document per line
	within time.Duration
	id     uint64
	begun  bool
	failed bool // a write has failed
}

// ServeStream answers a request with the items of a stream, as render returns them. An error before the first
// item has a status like any other.
func (h *Handler) ServeStream(w http.ResponseWriter, req *http.Request, c Call, render func(item any) any) {
	h.serveStream(route{}, w, req, c, render)
}

func (h *Handler) serveStream(r route, w http.ResponseWriter, req *http.Request, c Call, render func(item any) any) {
	events, acceptable := formOf(req)
	if !acceptable {
		problemf(http.StatusNotAcceptable, "allowed Accept: "+eventStream+", "+jsonLines).write(w)
		return
	}
	s := &stream{w: w, ctl: http.NewResponseController(w), events: events, within: h.streams.event}
	s.id, _ = strconv.ParseUint(req.Header.Get("Last-Event-ID"), 10, 32)
	_ = s.ctl.SetWriteDeadline(time.Time{})
	out, err := h.Stream(req.Context(), c, func(item any) error { return s.item(render(item)) }, s.beat)
	switch {
	case s.failed || req.Context().Err() != nil: // the reader is gone, or too slow
	case err != nil:
		s.cut(problemOf(r, err))
	default:
		s.last(out)
	}
}

// formOf returns the form of a stream that a request accepts.
func formOf(req *http.Request) (events, acceptable bool) {
	best := 0.0
	accept := strings.Join(req.Header.Values("Accept"), ",")
	if accept == "" {
		return false, true
	}
	for part := range strings.SplitSeq(accept, ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		weight := 1.0
		if q, given := params["q"]; given {
			if weight, err = strconv.ParseFloat(q, 64); err != nil || math.IsNaN(weight) {
				continue
			}
		}
		if weight <= best {
			continue
		}
		switch kind {
		case eventStream, "text/*":
			best, events = weight, true
		case jsonLines, "application/*", "*/*":
			best, events = weight, false
		}
	}
	return events, best > 0
}

// begin sets the headers of the response at the first item.
func (s *stream) begin(b *bytes.Buffer) {
	if s.begun {
		return
	}
	s.begun = true
	kind := jsonLines
	if s.events {
		kind = eventStream
		b.WriteString("retry: " + strconv.FormatInt(reconnectTime.Milliseconds(), 10) + "\n\n")
	}
	s.w.Header().Set("Content-Type", kind)
	s.w.Header().Set("X-Accel-Buffering", "no") // for proxies that buffer responses
	s.w.WriteHeader(http.StatusOK)
}

// send writes and flushes b. There is no deadline between writes.
func (s *stream) send(b *bytes.Buffer) (err error) {
	defer func() { s.failed = err != nil }()
	_ = s.ctl.SetWriteDeadline(time.Now().Add(s.within))
	if _, err := s.w.Write(b.Bytes()); err != nil {
		return err
	}
	if err := s.ctl.Flush(); err != nil {
		return err
	}
	return s.ctl.SetWriteDeadline(time.Time{})
}

// event appends an event to b. Items have no name.
func (s *stream) event(b *bytes.Buffer, name string, v any) {
	s.id++
	b.WriteString("id: " + strconv.FormatUint(s.id, 10) + "\n")
	if name != "" {
		b.WriteString("event: " + name + "\n")
	}
	b.WriteString("data: ")
	b.Write(must(json.Marshal(v))) // without line breaks
	b.WriteString("\n\n")
}

func (s *stream) lines(b *bytes.Buffer, documents ...any) {
	for _, one := range documents {
		b.Write(append(must(json.Marshal(one)), '\n'))
	}
}

func (s *stream) item(item any) error {
	var b bytes.Buffer
	if s.begin(&b); s.events {
		s.event(&b, "", item)
	} else {
		s.lines(&b, operation.Lines(item)...)
	}
	return s.send(&b)
}

// beat sends a heartbeat to the client and the proxies in between.
func (s *stream) beat() error {
	var b bytes.Buffer
	if s.begin(&b); s.events {
		b.WriteString(": still here\n\n")
	} else {
		b.WriteString("\n")
	}
	return s.send(&b)
}

// last ends the stream with the result of its operation, which may be nil.
func (s *stream) last(out any) {
	var b bytes.Buffer
	s.begin(&b)
	switch {
	case !s.events && out != nil:
		s.lines(&b, out)
	case s.events && out != nil:
		s.event(&b, "end", out)
	case s.events:
		s.event(&b, "end", struct{}{})
	}
	_ = s.send(&b)
}

// AbortResponse ends a handler and cuts its response off, so that the client does not take it for complete.
// net/http defines a panic for this.
func AbortResponse() { panic(http.ErrAbortHandler) }

// cut ends the stream with an error. It aborts a response of lines, so that the client does not take it for a
// complete one.
func (s *stream) cut(p *Problem) {
	if !s.begun {
		_ = s.ctl.SetWriteDeadline(time.Now().Add(s.within))
		p.write(s.w)
		return
	}
	if !s.events {
		AbortResponse()
	}
	var b bytes.Buffer
	s.event(&b, "problem", p)
	_ = s.send(&b)
}
