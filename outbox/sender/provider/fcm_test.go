package provider

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

var fcmAccepted = sender.Result{Class: sender.Accepted, Code: "200", Detail: "OK", Receipt: "projects/belfry-test/messages/0:1500415314455276%31bd1c9631bd1c96"}

func TestFCM_PostsAsDocumented(t *testing.T) {
	t.Parallel()
	g := fcmStart(t)
	cfg := g.config(t)
	cfg.TTL, cfg.Priority = 90*time.Second, "normal"
	s := g.sender(t, cfg)
	require.Equal(t, 1, s.MaxBatch())
	d := fcmDelivery()
	d.Data = json.RawMessage(`{"s":"text","n":12.50,"b":true,"z":null,"o":{"a": [1, "x"]},"q":"a \"quoted\" one","belfry_key":"forged"}`)
	require.Equal(t, fcmAccepted, send(t, s, d, long))
	require.JSONEq(t, `{"message":{"token":"device-token","notification":{"title":"안녕","body":"two\nlines"},
		"data":{"s":"text","n":"12.50","b":"true","z":"null","o":"{\"a\":[1,\"x\"]}","q":"a \"quoted\" one","belfry_key":"0193a1b2-0000-8000-8000-000000000001"},
		"android":{"priority":"normal","ttl":"90s","notification":{"tag":"0193a1b2-0000-8000-8000-000000000001"}},
		"apns":{"headers":{"apns-collapse-id":"0193a1b2-0000-8000-8000-000000000001","apns-priority":"5","apns-expiration":"1800000090"}},
		"webpush":{"headers":{"TTL":"90"}}}}`, g.posted[0])
	require.Equal(t, "Bearer token1", g.bearers[0])

	// Every attempt bears the same key; by default there is no time to live, and no hurry
	// is held back.
	g2 := fcmStart(t)
	require.Equal(t, fcmAccepted, send(t, g2.sender(t, g2.config(t)), fcmDelivery(), long))
	require.JSONEq(t, `{"message":{"token":"device-token","notification":{"title":"안녕","body":"two\nlines"},
		"data":{"belfry_key":"0193a1b2-0000-8000-8000-000000000001"},
		"android":{"priority":"high","notification":{"tag":"0193a1b2-0000-8000-8000-000000000001"}},
		"apns":{"headers":{"apns-collapse-id":"0193a1b2-0000-8000-8000-000000000001"}}}}`, g2.posted[0])
}

// fcmFailure is an error as FCM words it.
func fcmFailure(status int, message, name, details string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"error":{"code":%d,"message":%q,"status":%q,"details":[%s]}}`, status, message, name, details)
	}
}

func fcmFcmError(code string) string {
	return fmt.Sprintf(`{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":%q}`, code)
}

func fcmViolation(field string) string {
	return fmt.Sprintf(`{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":%q,"description":"device-token"}]}`, field)
}

// fcmOne is one call and its result.
type fcmOne struct {
	name    string
	handler http.HandlerFunc
	timeout time.Duration
	want    sender.Result
}

func (o fcmOne) run(t *testing.T) {
	t.Helper()
	g := fcmStart(t)
	g.set(nil, o.handler)
	s := g.sender(t, g.config(t))
	got := send(t, s, fcmDelivery(), o.timeout)
	require.Equal(t, o.want, got)
	require.NotContains(t, got.Detail, "device-token")
	asked, posted := g.counts()
	require.Equal(t, []int{1, 1}, []int{asked, posted})
}

// Every class in FCM's own words. I9, I11.
func TestFCM_Refusals(t *testing.T) {
	t.Parallel()
	after := func(h http.HandlerFunc, wait string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", "Fri, 15 Jan 2027 08:00:00 GMT") // the sender's clock too
			w.Header().Set("Retry-After", wait)
			h(w, r)
		}
	}
	const badToken = "The registration token is not a valid FCM registration token"
	for _, test := range []fcmOne{
		{"unregistered", fcmFailure(404, "Requested entity was not found.", "NOT_FOUND", fcmFcmError("UNREGISTERED")), long,
			sender.Result{Class: sender.InvalidAddress, Code: "UNREGISTERED", Detail: "the app is no longer registered"}},
		{"no such project", fcmFailure(404, "Requested entity was not found.", "NOT_FOUND", ""), long,
			sender.Result{Class: sender.Permanent, Code: "NOT_FOUND", Detail: "Not Found"}},
		{"token, by field", fcmFailure(400, "Request contains an invalid argument.", "INVALID_ARGUMENT", fcmFcmError("INVALID_ARGUMENT")+","+fcmViolation("message.token")), long,
			sender.Result{Class: sender.InvalidAddress, Code: "INVALID_ARGUMENT", Detail: "the registration token is not valid"}},
		{"token, by message", fcmFailure(400, badToken, "INVALID_ARGUMENT", fcmFcmError("INVALID_ARGUMENT")), long,
			sender.Result{Class: sender.InvalidAddress, Code: "INVALID_ARGUMENT", Detail: "the registration token is not valid"}},
		{"data, by field", fcmFailure(400, "Invalid value at 'message.data[0].value' (TYPE_STRING), 12", "INVALID_ARGUMENT", fcmViolation("message.data[0].value")), long,
			sender.Result{Class: sender.Permanent, Code: "INVALID_ARGUMENT", Detail: "FCM refuses the message"}},
		{"title that quotes", fcmFailure(400, "Invalid value at 'message.notification.title' (\""+badToken+"\")", "INVALID_ARGUMENT", ""), long,
			sender.Result{Class: sender.Permanent, Code: "INVALID_ARGUMENT", Detail: "FCM refuses the message"}},
		{"too large", fcmFailure(400, "Request contains an invalid argument.", "INVALID_ARGUMENT", ""), long,
			sender.Result{Class: sender.Permanent, Code: "INVALID_ARGUMENT", Detail: "FCM refuses the message"}},
		{"another project's token", fcmFailure(403, "SenderId mismatch", "PERMISSION_DENIED", fcmFcmError("SENDER_ID_MISMATCH")), long,
			sender.Result{Class: sender.Permanent, Code: "SENDER_ID_MISMATCH", Detail: "the registration token belongs to another project"}},
		{"no right to send", fcmFailure(403, "Permission denied", "PERMISSION_DENIED", ""), long,
			sender.Result{Class: sender.Permanent, Code: "PERMISSION_DENIED", Detail: "Forbidden"}},
		{"APNs certificate", fcmFailure(401, "Auth error from APNS or Web Push Service", "UNAUTHENTICATED", fcmFcmError("THIRD_PARTY_AUTH_ERROR")), long,
			sender.Result{Class: sender.Retryable, Code: "THIRD_PARTY_AUTH_ERROR", Detail: "the project's APNs or Web Push credentials are not valid"}},
		{"quota", after(fcmFailure(429, "Quota exceeded", "RESOURCE_EXHAUSTED", fcmFcmError("QUOTA_EXCEEDED")), "7"), long,
			sender.Result{Class: sender.Retryable, Code: "QUOTA_EXCEEDED", Detail: "Too Many Requests", RetryAfter: 7 * time.Second}},
		{"quota without a time", fcmFailure(429, "Quota exceeded", "RESOURCE_EXHAUSTED", fcmFcmError("QUOTA_EXCEEDED")), long,
			sender.Result{Class: sender.Retryable, Code: "QUOTA_EXCEEDED", Detail: "Too Many Requests", RetryAfter: time.Minute}},
		{"429 by a front end", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, long,
			sender.Result{Class: sender.Retryable, Code: "429", Detail: "Too Many Requests", RetryAfter: time.Minute}},
		{"unavailable", after(fcmFailure(503, "The service is currently unavailable.", "UNAVAILABLE", fcmFcmError("UNAVAILABLE")), "Fri, 15 Jan 2027 08:00:30 GMT"), long,
			sender.Result{Class: sender.Retryable, Code: "UNAVAILABLE", Detail: "Service Unavailable", RetryAfter: 30 * time.Second}},
		{"internal", fcmFailure(500, "Internal error encountered.", "INTERNAL", fcmFcmError("INTERNAL")), long,
			sender.Result{Class: sender.Retryable, Code: "INTERNAL", Detail: "Internal Server Error"}},
		{"bad gateway", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<!DOCTYPE html>\n<title>Error 502 (Server Error)!!1</title>")
		}, long, sender.Result{Class: sender.Unknown, Code: "502", Detail: "Bad Gateway"}},
		{"gateway timeout", fcmFailure(504, "Deadline exceeded", "DEADLINE_EXCEEDED", ""), long,
			sender.Result{Class: sender.Unknown, Code: "DEADLINE_EXCEEDED", Detail: "Gateway Timeout"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}

// Every class by accident: what is not FCM's own answer is no acceptance. I9.
func TestFCM_Accidents(t *testing.T) {
	t.Parallel()
	for _, test := range []fcmOne{
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		}, long,
			sender.Result{Class: sender.Permanent, Code: "307", Detail: "Temporary Redirect (not followed)"}},
		{"garbage", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"name": "proj`) }, long,
			sender.Result{Class: sender.Unknown, Code: "answer", Detail: "not an answer of FCM"}},
		{"somebody else's 200", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `<html>log in</html>`) }, long,
			sender.Result{Class: sender.Unknown, Code: "answer", Detail: "not an answer of FCM"}},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // a 200 in the moment in which the caller hangs up would be an answer
		}, short,
			sender.Result{Class: sender.Unknown, Code: "timeout", Detail: "no answer in time"}},
		{"slow body", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"name":`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, short, sender.Result{Class: sender.Unknown, Code: "answer", Detail: "not an answer of FCM"}},
		{"huge body", func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}, long, sender.Result{Class: sender.Unknown, Code: "answer", Detail: "not an answer of FCM"}},
		{"reset after accepting", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = conn.Close()
		}, long, sender.Result{Class: sender.Unknown, Code: "connection", Detail: "connection reset by peer"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}

// FCM refuses more than 4,096 bytes and reserved names of data, so that no call is made.
func TestFCM_RefusesWhatFCMWouldRefuse(t *testing.T) {
	t.Parallel()
	g := fcmStart(t)
	s := g.sender(t, g.config(t))
	d := fcmDelivery()
	d.Title, d.Data = "", json.RawMessage(`{}`)
	d.Body = strings.Repeat("x", 4096-len("belfry_key")-len(d.Key))
	require.Equal(t, fcmAccepted, send(t, s, d, long))
	d.Body += "x"
	require.Equal(t, refuseContent("payload_too_large", "title, body and data have 4097 bytes; the maximum is 4096"), send(t, s, d, long))
	for _, name := range []string{"from", "message_type", "google.c.a", "gcm.n"} {
		d = fcmDelivery()
		d.Data = json.RawMessage(`{"a":1,"` + name + `":"x"}`)
		got := send(t, s, d, long)
		require.Equal(t, []any{sender.Permanent, "reserved_key", sender.RefusedContent}, []any{got.Class, got.Code, got.Refusal}, name)
		require.Contains(t, got.Detail, "data."+name)
	}
	_, posted := g.counts()
	require.Equal(t, 1, posted)
	d = fcmDelivery()
	d.Data = json.RawMessage(`{"notification":"x","fromage":1,"googled":2}`)
	require.Equal(t, fcmAccepted, send(t, s, d, long))
}

func TestFCM_NotWorthACall(t *testing.T) {
	t.Parallel()
	g := fcmStart(t)
	s := g.sender(t, g.config(t))
	d := fcmDelivery()
	d.Address = ""
	require.Equal(t, sender.Result{Class: sender.Permanent, Code: "address", Detail: "no registration token", Refusal: sender.RefusedAddress}, send(t, s, d, long))
	for _, data := range []string{`[1]`, `{`, `"x"`} {
		d = fcmDelivery()
		d.Data = json.RawMessage(data)
		require.Equal(t, sender.Result{Class: sender.Permanent, Code: "content", Detail: "data is not a JSON object", Refusal: sender.RefusedContent}, send(t, s, d, long))
	}
	asked, posted := g.counts()
	require.Equal(t, []int{0, 0}, []int{asked, posted})
}

func TestFCM_NobodyListens(t *testing.T) {
	t.Parallel()
	g := fcmStart(t)
	cfg := g.config(t)
	cfg.Endpoint = "http://127.0.0.1:1"
	got := send(t, g.sender(t, cfg), fcmDelivery(), long)
	require.Equal(t, sender.Result{Class: sender.Retryable, Code: "dial", Detail: "connection refused"}, got)
}
