package fake

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"
)

// maxBody bounds what is read of a call.
const maxBody = 1 << 20

// reply is an answer by HTTP.
type reply struct {
	status int
	code   string // as it is counted when it is a refusal
	header http.Header
	body   []byte
}

// jsonReply is an answer whose body is JSON.
func jsonReply(status int, code string, body any) reply {
	return reply{status: status, code: code, header: http.Header{"Content-Type": {"application/json"}}, body: must(json.Marshal(body))}
}

// write answers. A client that has left needs no answer.
func (a reply) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

// dialect is how one provider speaks.
type dialect struct {
	provider Provider
	// read understands a call. A reply with a status is the provider's own refusal, for
	// reasons nobody ordered; the messages of a call that cannot be read are one.
	read func(r *http.Request, body []byte) ([]message, reply)
	// accept says that the messages are taken, or of many which are.
	accept func(r *http.Request, taken []message) reply
	// refuse says so, with an HTTP status that somebody ordered.
	refuse func(status int) reply
	// invalid says that the address is none. Without a status, the result says so later.
	invalid reply
}

// ofOne is what read returns for a call of one message.
func ofOne(m message, refused reply) ([]message, reply) { return []message{m}, refused }

// exchange is one call of a provider.
type exchange struct {
	dialect

	server   *Server
	arrived  time.Time
	messages []message
}

// play answers a provider's calls.
func (s *Server) play(d dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			abandon(w)
			return
		}
		defer s.leave()
		x := exchange{dialect: d, server: s, arrived: s.config.Now(), messages: make([]message, 1)}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		refused := d.refuse(http.StatusRequestEntityTooLarge)
		if err == nil {
			x.messages, refused = d.read(r, body)
		}
		x.answer(w, r, refused)
	}
}

// answer does to a call what a fault has, or refuses it, or takes its messages.
func (x *exchange) answer(w http.ResponseWriter, r *http.Request, refused reply) {
	addresses := make([]string, len(x.messages))
	for i, m := range x.messages {
		addresses[i] = m.address
	}
	late, f := x.server.plan.ofCall(x.provider, addresses...)
	switch k := f.kind(); {
	case !pause(r.Context().Done(), late):
		x.settle(kindNone, verdict{})
		abandon(w)
	case k == kindStatus:
		answer := x.refuse(f.Status)
		if f.RetryAfter > 0 {
			answer.header.Set("Retry-After", strconv.FormatInt(int64(f.RetryAfter/time.Second), 10))
		}
		x.settle(k, verdict{code: answer.code, retryAfter: f.RetryAfter})
		answer.write(w)
	case k == kindHang || k == kindReset:
		x.settle(k, verdict{accepted: f.taken() && refused.status == 0, lost: true})
		if k == kindHang {
			<-r.Context().Done()
		}
		abandon(w)
	case refused.status != 0:
		x.settle(kindNone, verdict{code: refused.code})
		refused.write(w)
	default:
		x.take(r, k).write(w)
	}
}

// settle records what became of every message.
func (x *exchange) settle(k kind, v verdict) {
	for i := range x.messages {
		x.server.ledger.record(x.provider, &x.messages[i], x.arrived, k, v)
	}
}

// take accepts the messages, but for faults of single ones.
func (x *exchange) take(r *http.Request, k kind) reply {
	for i := range x.messages {
		m := &x.messages[i]
		record := func(k kind, v verdict) int64 { return x.server.ledger.record(x.provider, m, x.arrived, k, v) }
		switch m.fault = x.server.plan.ofMessage(x.provider, m.address); {
		case m.fault == kindInvalid && x.invalid.status != 0: // the only one
			record(m.fault, verdict{code: x.invalid.code})
			return x.invalid
		case m.fault == kindRefused:
			record(m.fault, verdict{code: sensRefused})
		case m.fault != kindNone:
			m.number = record(m.fault, verdict{accepted: true, lost: k == kindGarbage})
		default:
			m.number = record(k, verdict{accepted: true, lost: k == kindGarbage})
		}
	}
	answer := x.accept(r, x.messages)
	if k == kindGarbage {
		answer.body = []byte("{\"\xff\x00<<garbage>>\x01")
	}
	return answer
}

// pause waits, and reports whether nothing ended it before.
func pause(ended <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ended:
		return false
	}
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
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // without it, closing is orderly, which is as good as it gets
	}
	_ = conn.Close()
}

// handler routes every path.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, d := range map[string]dialect{
		"POST /webhook/{any...}": s.webhook(),
		"POST /sms":              s.sms(),
		"POST /v1/projects/{project}/messages:send":     s.fcm(),
		"POST /3/device/{token}":                        s.apns(),
		"POST /webpush/{id}":                            s.webpush(),
		"POST /alimtalk/v2/services/{service}/messages": s.alimTalk(),
	} {
		mux.HandleFunc(pattern, s.play(d))
	}
	for pattern, h := range map[string]func(w http.ResponseWriter, r *http.Request){
		"POST /token": s.fcmToken,
		"GET /alimtalk/v2/services/{service}/messages/{message}": s.alimTalkReceipt,
		"POST /webpush/subscriptions":                            s.subscribe,
		"GET /summary":                                           s.getSummary, "GET /calls": s.getCalls, "DELETE /calls": s.deleteCalls, "PUT /faults": s.putFaults, //sql:allow methods and paths
	} {
		mux.HandleFunc(pattern, h)
	}
	return mux
}
