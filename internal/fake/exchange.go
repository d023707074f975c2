package fake

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// maxBody bounds what is read of a call.
const maxBody = 1 << 20

const megabyte = 1 << 20

// reply is an answer by HTTP.
type reply struct {
	status int
	code   string // as it is counted when it is a refusal
	header http.Header
	body   []byte
}

// jsonReply is an answer whose body is JSON.
func jsonReply(status int, code string, body any) reply {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // bodies are written out in the source
	}
	return reply{status: status, code: code, header: http.Header{"Content-Type": {"application/json"}}, body: text}
}

// dialect is how one provider speaks.
type dialect struct {
	provider Provider
	// read understands a call of one message. A reply is the provider's own refusal, for
	// reasons nobody ordered.
	read func(r *http.Request, body []byte) (message, *reply)
	// accept says that a message is taken; id is the provider's name for it.
	accept func(m *message, r *http.Request, id string) reply
	// refuse says so, with an HTTP status that somebody ordered.
	refuse func(status int) reply
	// invalid says that the address is none.
	invalid func() reply
}

// gated runs a handler unless the server is closed, which waits for it.
func (s *Server) gated(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.gate.RLock()
		defer s.gate.RUnlock()
		if s.closed {
			abandon(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// readAll reads a body of bounded size.
func readAll(w http.ResponseWriter, r *http.Request) ([]byte, *reply) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		answer := jsonReply(http.StatusRequestEntityTooLarge, "413", map[string]string{"error": "the body is too large"})
		return nil, &answer
	case err != nil:
		answer := jsonReply(http.StatusBadRequest, "400", map[string]string{"error": "the body cannot be read"})
		return nil, &answer
	}
	return body, nil
}

// play answers a provider's calls of one message.
func (s *Server) play(d dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		arrived := s.config.Now()
		body, refused := readAll(w, r)
		var m message
		if refused == nil {
			m, refused = d.read(r, body)
		}
		m.seal(d.provider, "")
		drawn := s.plan.draw(string(d.provider), anyKind, m.subject())
		s.ledger.request(d.provider, drawn)
		f := drawn.fault
		k := f.kind()
		if refused != nil && k != kindHang && k != kindReset && k != kindStatus {
			k = kindNone
		}
		settle := func(v verdict) int64 { return s.ledger.record(d.provider, &m, arrived, k, v) }
		if !pause(r.Context(), drawn.late) {
			settle(verdict{})
			abandon(w)
			return
		}
		taken := f.taken() && refused == nil
		switch {
		case k == kindStatus:
			answer := retryLater(d.refuse(f.Status), f.RetryAfter)
			settle(verdict{accepted: taken, lost: taken, code: answer.code, retryAfter: f.RetryAfter})
			answer.write(w)
		case k == kindInvalid:
			answer := d.invalid()
			settle(verdict{code: answer.code})
			answer.write(w)
		case k == kindHang || k == kindReset:
			settle(verdict{accepted: taken, lost: taken})
			s.leaveUnanswered(w, r, k)
		default:
			if refused != nil {
				settle(verdict{code: refused.code})
				refused.write(w)
				return
			}
			n := settle(verdict{accepted: true, lost: k == kindGarbage})
			if !d.accept(&m, r, m.id(n)).spoil(w, r, f) {
				s.ledger.unanswered(d.provider, 1)
			}
		}
	}
}

// pause waits, and reports whether the client is still there.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// retryLater adds Retry-After.
func retryLater(r reply, d time.Duration) reply {
	if d > 0 {
		r.header = r.header.Clone()
		if r.header == nil {
			r.header = make(http.Header)
		}
		r.header.Set("Retry-After", strconv.FormatInt(int64(d/time.Second), 10))
	}
	return r
}

// leaveUnanswered hangs until the client leaves, or resets its connection at once.
func (s *Server) leaveUnanswered(w http.ResponseWriter, r *http.Request, k kind) {
	if k == kindHang {
		<-r.Context().Done()
	}
	abandon(w)
}

// abandon ends a call without an answer: the connection is reset, or with HTTP/2 the
// stream is.
func abandon(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // net/http's way to reset a stream, logged nowhere
	}
	resetConn(conn)
}

// resetConn closes a connection so that its peer sees a reset.
func resetConn(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn() // or closing would say goodbye first
	}
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // without it, closing is orderly, which is as good as it gets
	}
	_ = conn.Close()
}

// head writes all but the body; more is how long the body is apart from the reply's.
func (a reply) head(w http.ResponseWriter, more int64) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.FormatInt(int64(len(a.body))+more, 10))
	w.WriteHeader(a.status)
}

// write answers, and reports whether the answer went out.
func (a reply) write(w http.ResponseWriter) bool {
	a.head(w, 0)
	_, err := w.Write(a.body)
	return err == nil
}

// spoil answers as a fault has it, and reports whether the whole answer went out.
// Garbage counts as gone out: that it was lost is known beforehand.
func (a reply) spoil(w http.ResponseWriter, r *http.Request, f Fault) bool {
	switch k := f.kind(); {
	case k == kindSlow:
		return a.dribble(w, r, f.Slow)
	case k == kindHuge:
		return a.swell(w, f.Huge*megabyte)
	case k == kindGarbage:
		reply{status: a.status, header: a.header, body: []byte("{\"\xff\x00<<garbage>>\x01")}.write(w)
		return true
	}
	return a.write(w)
}

// dribble sends the head at once and the body, blanks before it, over d.
func (a reply) dribble(w http.ResponseWriter, r *http.Request, d time.Duration) bool {
	const steps = 20
	control := http.NewResponseController(w)
	a.head(w, steps)
	for range steps {
		if _, err := w.Write([]byte(" ")); err != nil || control.Flush() != nil || !pause(r.Context(), d/steps) {
			return false
		}
	}
	_, err := w.Write(a.body)
	return err == nil
}

// swell sends so many blanks and then the body.
func (a reply) swell(w http.ResponseWriter, size int64) bool {
	blanks := make([]byte, megabyte/16)
	for i := range blanks {
		blanks[i] = ' '
	}
	a.head(w, size)
	for left := size; left > 0; left -= int64(len(blanks)) {
		if _, err := w.Write(blanks[:min(left, int64(len(blanks)))]); err != nil {
			return false
		}
	}
	_, err := w.Write(a.body)
	return err == nil
}
