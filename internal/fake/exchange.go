package fake

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"maps"
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
	batch    bool // a call has many messages, and some faults are drawn for each
	// read understands a call. A reply with a status is the provider's own refusal, for
	// reasons nobody ordered; the messages of a call that cannot be read are one.
	read func(r *http.Request, body []byte) ([]message, reply)
	// accept says that the messages are taken, or of a batch which are.
	accept func(r *http.Request, taken []message) reply
	// refuse says so, with an HTTP status that somebody ordered.
	refuse func(status int) reply
	// invalid says that the address is none.
	invalid func() reply
}

// ofOne is what read returns for a call of one message.
func ofOne(m message, refused reply) ([]message, reply) { return []message{m}, refused }

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

// readAll reads a body of bounded size; a reply with a status refuses it.
func readAll(w http.ResponseWriter, r *http.Request) ([]byte, reply) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, jsonReply(http.StatusRequestEntityTooLarge, "413", map[string]string{"error": "the body is too large"})
	case err != nil:
		return nil, jsonReply(http.StatusBadRequest, "400", map[string]string{"error": "the body cannot be read"})
	}
	return body, reply{}
}

// exchange is one call of a provider.
type exchange struct {
	dialect

	ledger   *ledger
	plan     *plan
	arrived  time.Time
	messages []message
	kind     kind // of the fault that decides
}

// settle records what became of every message.
func (x *exchange) settle(v verdict) {
	for i := range x.messages {
		x.ledger.record(x.provider, &x.messages[i], x.arrived, x.kind, v)
	}
}

// take accepts the messages, but for faults of single ones of a batch, and returns how many
// it accepted.
func (x *exchange) take(r *http.Request, v verdict) (answer reply, accepted int) {
	for i := range x.messages {
		m := &x.messages[i]
		decided := x.kind
		if x.batch {
			m.fault = x.plan.draw(string(x.provider), ofMessage, m.subject()).fault.kind()
			x.ledger.fault(x.provider, m.fault)
			decided = cmp.Or(m.fault, x.kind)
		}
		if m.fault == kindRefused {
			x.ledger.record(x.provider, m, x.arrived, decided, verdict{code: sensRefused})
			m.id = m.name(1)
			continue
		}
		accepted++
		m.id = m.name(x.ledger.record(x.provider, m, x.arrived, decided, v))
	}
	return x.accept(r, x.messages), accepted
}

// play answers a provider's calls.
func (s *Server) play(d dialect) http.HandlerFunc {
	among := anyKind
	if d.batch {
		among = ofCall
	}
	return func(w http.ResponseWriter, r *http.Request) {
		x := exchange{dialect: d, ledger: s.ledger, plan: s.plan, arrived: s.config.Now(), messages: make([]message, 1)}
		body, refused := readAll(w, r)
		if refused.status == 0 {
			x.messages, refused = d.read(r, body)
		}
		about := make([]subject, len(x.messages))
		for i := range x.messages {
			x.messages[i].seal(d.provider)
			about[i] = x.messages[i].subject()
		}
		drawn := s.plan.draw(string(d.provider), among, about...)
		s.ledger.request(d.provider, drawn)
		if k := drawn.fault.kind(); refused.status == 0 || k == kindHang || k == kindReset || k == kindStatus {
			x.kind = k
		}
		if !pause(r.Context(), drawn.late) {
			x.settle(verdict{})
			abandon(w)
			return
		}
		x.answer(w, r, drawn.fault, refused)
	}
}

// answer does to a call what a fault has, or refuses it, or takes its messages.
func (x *exchange) answer(w http.ResponseWriter, r *http.Request, f Fault, refused reply) {
	taken := verdict{accepted: f.taken() && refused.status == 0, lost: true, retryAfter: f.RetryAfter}
	switch k := x.kind; {
	case k == kindStatus:
		answer := retryLater(x.refuse(f.Status), f.RetryAfter)
		if taken.accepted {
			x.take(r, taken)
		} else {
			x.settle(verdict{code: answer.code, retryAfter: f.RetryAfter})
		}
		answer.write(w)
	case k == kindHang || k == kindReset:
		if taken.accepted {
			x.take(r, taken)
		} else {
			x.settle(verdict{})
		}
		leaveUnanswered(w, r, k)
	case refused.status != 0:
		x.settle(verdict{code: refused.code})
		refused.write(w)
	case k == kindInvalid:
		answer := x.invalid()
		x.settle(verdict{code: answer.code})
		answer.write(w)
	default:
		if answer, accepted := x.take(r, verdict{accepted: true, lost: k == kindGarbage}); !answer.spoil(w, r, f) {
			x.ledger.unanswered(x.provider, accepted)
		}
	}
}

// aside answers what is no call of a message: good, unless a fault was ordered.
func (s *Server) aside(w http.ResponseWriter, r *http.Request, target string, good reply, refuse func(status int) reply) {
	drawn := s.plan.draw(target, anyKind)
	f := drawn.fault
	k := f.kind()
	switch {
	case !pause(r.Context(), drawn.late):
		abandon(w)
	case k == kindHang || k == kindReset:
		leaveUnanswered(w, r, k)
	case k == kindStatus:
		retryLater(refuse(f.Status), f.RetryAfter).write(w)
	default:
		good.spoil(w, r, f)
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
func leaveUnanswered(w http.ResponseWriter, r *http.Request, k kind) {
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

// write answers, and reports whether the answer went out.
func (a reply) write(w http.ResponseWriter) bool {
	return a.after(w, 0, 0, func() bool { return true })
}

// after answers with the head at once and then, before the body, so many times so many
// blanks, each followed by next, which reports whether to go on.
func (a reply) after(w http.ResponseWriter, times, blanks int64, next func() bool) bool {
	maps.Copy(w.Header(), a.header)
	w.Header().Set("Content-Length", strconv.FormatInt(int64(len(a.body))+times*blanks, 10))
	w.WriteHeader(a.status)
	for range times {
		if _, err := w.Write(bytes.Repeat([]byte(" "), int(blanks))); err != nil || !next() {
			return false
		}
	}
	_, err := w.Write(a.body)
	return err == nil
}

// spoil answers as a fault has it, and reports whether the whole answer went out.
// Garbage counts as gone out: that it was lost is known beforehand.
func (a reply) spoil(w http.ResponseWriter, r *http.Request, f Fault) bool {
	switch k := f.kind(); {
	case k == kindSlow:
		const steps = 20
		control := http.NewResponseController(w)
		return a.after(w, steps, 1, func() bool { return control.Flush() == nil && pause(r.Context(), f.Slow/steps) })
	case k == kindHuge:
		return a.after(w, f.Huge*16, megabyte/16, func() bool { return true })
	case k == kindGarbage:
		reply{status: a.status, header: a.header, body: []byte("{\"\xff\x00<<garbage>>\x01")}.write(w)
		return true
	}
	return a.write(w)
}
