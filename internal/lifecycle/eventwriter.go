package lifecycle

import (
	"net/http"
	"strconv"
	"time"
)

// EventStream is the media type of server-sent events.
const EventStream = "text/event-stream"

// EventWriter writes one streamed HTTP response: server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html) or other pieces, each flushed at once. It is not safe for concurrent use.
type EventWriter struct {
	w      http.ResponseWriter
	ctl    *http.ResponseController
	within time.Duration
	begun  bool
	failed bool
}

// NewEventWriter returns an EventWriter that gives each write a deadline, and none to the time between them. It removes the
// server's write deadline.
func NewEventWriter(w http.ResponseWriter, within time.Duration) *EventWriter {
	s := &EventWriter{w: w, ctl: http.NewResponseController(w), within: within}
	_ = s.ctl.SetWriteDeadline(time.Time{})
	return s
}

// Begin sends the headers with the first piece, for the media type of the stream. It reports whether this was the
// first call.
func (s *EventWriter) Begin(kind string) bool {
	if s.begun {
		return false
	}
	s.begun = true
	s.w.Header().Set("Content-Type", kind)
	s.w.Header().Set("X-Accel-Buffering", "no") // for proxies that buffer responses
	s.w.WriteHeader(http.StatusOK)
	return true
}

// Begun reports whether Begin was called.
func (s *EventWriter) Begun() bool { return s.begun }

// Failed reports whether the last Send failed.
func (s *EventWriter) Failed() bool { return s.failed }

// Deadline sets the deadline of a write that does not go through Send.
func (s *EventWriter) Deadline() { _ = s.ctl.SetWriteDeadline(time.Now().Add(s.within)) }

// Send writes and flushes a piece.
func (s *EventWriter) Send(b []byte) (err error) {
	defer func() { s.failed = err != nil }()
	s.Deadline()
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	if err := s.ctl.Flush(); err != nil {
		return err
	}
	return s.ctl.SetWriteDeadline(time.Time{})
}

// AppendRetry appends the delay before a client reconnects.
func AppendRetry(b []byte, delay time.Duration) []byte {
	return append(strconv.AppendInt(append(b, "retry: "...), delay.Milliseconds(), 10), "\n\n"...)
}

// AppendEvent appends an event. id and name may be "". data has no line breaks; with nil data the event only sets
// the id of the client's position.
func AppendEvent(b []byte, id, name string, data []byte) []byte {
	for _, field := range [...]struct{ name, value string }{{"id: ", id}, {"event: ", name}} {
		if field.value != "" {
			b = append(append(append(b, field.name...), field.value...), '\n')
		}
	}
	if data != nil {
		b = append(append(append(b, "data: "...), data...), '\n')
	}
	return append(b, '\n')
}
