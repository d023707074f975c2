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

// maxBody is the maximum size of a call's body, in bytes.
const maxBody = 1 << 20

// reply is an HTTP response.
type reply struct {
	status int
	code   string // the key in Tally.Refused of a refusal
	header http.Header
	body   []byte
}

// jsonReply returns a response with a JSON body.
func jsonReply(status int, code string, body any) reply {
	return reply{status: status, code: code, header: http.Header{"Content-Type": {"application/json"}}, body: must(json.Marshal(body))}
}

// write writes the response. An error means that the client has disconnected.
func (a reply) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

// dialect is the protocol of one provider.
type dialect struct {
	provider Provider
	// read parses a call. A reply with a status is the provider's own refusal without a fault. A
	// call that cannot be parsed counts as one message.
	read func(r *http.Request, body []byte) ([]message, reply)
	// accept returns the response for accepted messages.
	accept func(r *http.Request, taken []message) reply
	// refuse returns the response for the HTTP status of a fault.
	refuse func(status int) reply
	// invalid is the response for an invalid address. Without a status, a later result reports it.
	invalid reply
}

// ofOne returns the results of read for a call of one message.
func ofOne(m message, refused reply) ([]message, reply) { return []message{m}, refused }

// exchange is one call to a provider.
type exchange struct {
	dialect

	server   *Server
	arrived  time.Time
	messages []message
}

// play returns the handler of a provider's calls.
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

// answer applies a fault to a call, or refuses the call, or accepts its messages.
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

// settle records the outcome of every message.
func (x *exchange) settle(k kind, v verdict) {
	for i := range x.messages {
		x.server.ledger.record(x.provider, &x.messages[i], x.arrived, k, v)
	}
}

// take accepts the messages, except messages with a fault of their own.
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

// pause waits for d, and reports whether it was not interrupted.
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

// abandon ends a call without an answer: it resets the connection, or the stream of HTTP/2.
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
		_ = t.SetLinger(0) // after an error the connection is closed without a reset
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
		"GET /summary":                                           s.getSummary, "GET /calls": s.getCalls,
		"DELETE /calls": s.deleteCalls, "PUT /faults": s.putFaults, //sql:allow methods and paths
	} {
		mux.HandleFunc(pattern, h)
	}
	return mux
}
