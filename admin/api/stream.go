package api

import (
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
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/text"
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
	eventStream = lifecycle.EventStream
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
	w      *lifecycle.EventWriter
	to     http.ResponseWriter
	events bool // text/event-stream; otherwise one JSON document per line
	id     uint64
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
	s := &stream{w: lifecycle.NewEventWriter(w, h.streams.event), to: w, events: events}
	s.id, _ = strconv.ParseUint(req.Header.Get("Last-Event-ID"), 10, 32)
	out, err := h.Stream(req.Context(), c, func(item any) error { return s.item(render(item)) }, s.beat)
	switch {
	case s.w.Failed() || req.Context().Err() != nil: // the reader is gone, or too slow
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
func (s *stream) begin() (b []byte) {
	kind := jsonLines
	if s.events {
		kind = eventStream
	}
	if s.w.Begin(kind) && s.events {
		b = lifecycle.AppendRetry(b, reconnectTime)
	}
	return b
}

// event appends an event to b. Items have no name.
func (s *stream) event(b []byte, name string, v any) []byte {
	s.id++
	return lifecycle.AppendEvent(b, strconv.FormatUint(s.id, 10), name, text.Must(json.Marshal(v)))
}

func (s *stream) lines(b []byte, documents ...any) []byte {
	for _, one := range documents {
		b = append(append(b, text.Must(json.Marshal(one))...), '\n')
	}
	return b
}

func (s *stream) item(item any) error {
	if b := s.begin(); s.events {
		return s.w.Send(s.event(b, "", item))
	}
	return s.w.Send(s.lines(nil, operation.Lines(item)...))
}

// beat sends a heartbeat to the client and the proxies in between.
func (s *stream) beat() error {
	if b := s.begin(); s.events {
		return s.w.Send(append(b, ": still here\n\n"...))
	}
	return s.w.Send([]byte("\n"))
}

// last ends the stream with the result of its operation, which may be nil.
func (s *stream) last(out any) {
	b := s.begin()
	switch {
	case !s.events && out != nil:
		b = s.lines(b, out)
	case s.events && out != nil:
		b = s.event(b, "end", out)
	case s.events:
		b = s.event(b, "end", struct{}{})
	}
	_ = s.w.Send(b)
}

// AbortResponse ends a handler and cuts its response off, so that the client does not take it for complete.
// net/http defines a panic for this.
func AbortResponse() { panic(http.ErrAbortHandler) }

// cut ends the stream with an error. It aborts a response of lines, so that the client does not take it for a
// complete one.
func (s *stream) cut(p *Problem) {
	if !s.w.Begun() {
		s.w.Deadline()
		p.write(s.to)
		return
	}
	if !s.events {
		AbortResponse()
	}
	_ = s.w.Send(s.event(nil, "problem", p))
}
