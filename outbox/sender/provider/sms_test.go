package provider

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

// smsCall is a request as the gateway saw it.
type smsCall struct {
	method, uri, body string
	header            http.Header
}

// smsCapture answers ok and keeps the call.
func smsCapture(t *testing.T, got *smsCall) string {
	t.Helper()
	return serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*got = smsCall{r.Method, r.RequestURI, string(body), r.Header}
	}).URL
}

const smsKey = "0193a1b2-0000-8000-8000-000000000001"

func smsNow() time.Time { return time.Unix(1_800_000_000, 0) }

func smsDelivery() sender.Delivery {
	return sender.Delivery{
		Key: smsKey, JobID: -7, ChannelID: 42, ExternalID: "u/42", Category: "operator_notice", Medium: "sms", Locale: "ko",
		Address: "+82 10-1234-5678", Title: `say "hi"`, Body: "a&b=<c>\n안녕", Data: json.RawMessage(`{"n":1.50,"s":"x y","o":{"a": 1},"z":null}`), Attempt: 1,
	}
}

func TestSMS_ByDefault(t *testing.T) {
	t.Parallel()
	var got smsCall
	cfg := DefaultSMS()
	cfg.URL, cfg.From, cfg.Auth, cfg.Secret = smsCapture(t, &got)+"/sms", "+8215881234", "bearer", "s3cret"
	s := open(t, cfg, smsNow)
	require.Equal(t, 1, s.MaxBatch())
	require.Equal(t, sender.Result{Class: sender.Accepted, Code: "200", Detail: "OK"}, send(t, s, smsDelivery(), long))
	require.Equal(t, "POST /sms", got.method+" "+got.uri)
	require.JSONEq(t, `{"to":"+82 10-1234-5678","from":"+8215881234","text":"say \"hi\"\na&b=<c>\n안녕","key":"`+smsKey+`"}`, got.body)
	require.Equal(t, smsKey, got.header.Get("Idempotency-Key"))
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	require.Equal(t, "Bearer s3cret", got.header.Get("Authorization"))
}

func TestSMS_EveryPlaceIsEscaped(t *testing.T) {
	t.Parallel()
	var got smsCall
	base := smsCapture(t, &got)
	with := func(change func(*SMSConfig)) smsCall {
		cfg := DefaultSMS()
		cfg.URL = base
		change(cfg)
		require.Equal(t, sender.Accepted, send(t, open(t, cfg, smsNow), smsDelivery(), long).Class)
		return got
	}
	got = with(func(c *SMSConfig) {
		c.Method, c.Body = http.MethodGet, ""
		c.URL += "/v1/{{.to | digits | path}}/{{.to | path}}?text={{.text | query}}&id={{.external_id|query}}&n={{.data.n | query}}&none={{.data.none | query}}"
		c.IdempotencyHeader = "X-Request-Ref"
		c.Headers = map[string]string{"x-ref": "job {{.job_id}} channel {{.channel_id}} {{.key}}"}
		c.Auth, c.Username, c.Secret = "basic", "me", "s3cret"
	})
	u, err := url.ParseRequestURI(got.uri)
	require.NoError(t, err)
	require.Equal(t, "/v1/821012345678/+82 10-1234-5678", u.Path)
	require.Equal(t, url.Values{"text": {"say \"hi\"\na&b=<c>\n안녕"}, "id": {"u/42"}, "n": {"1.50"}, "none": {""}}, u.Query())
	require.Equal(t, "GET", got.method)
	require.Empty(t, got.body)
	require.Empty(t, got.header.Get("Content-Type"))
	require.Equal(t, smsKey, got.header.Get("X-Request-Ref"))
	require.Empty(t, got.header.Get("Idempotency-Key"))
	require.Equal(t, "job -7 channel 42 "+smsKey, got.header.Get("X-Ref"))
	require.Equal(t, "Basic bWU6czNjcmV0", got.header.Get("Authorization"))

	got = with(func(c *SMSConfig) {
		c.Method, c.ContentType = http.MethodPut, "application/x-www-form-urlencoded; charset=utf-8"
		c.Body = "to={{.to | digits | form}}&text={{.text|form}}&pw={{.secret | form}}&z={{.data.z | form}}"
		c.Secret = "p&q=r"
		c.IdempotencyHeader = ""
	})
	form, err := url.ParseQuery(got.body)
	require.NoError(t, err)
	require.Equal(t, url.Values{"to": {"821012345678"}, "text": {"say \"hi\"\na&b=<c>\n안녕"}, "pw": {"p&q=r"}, "z": {""}}, form)
	require.Empty(t, got.header.Get("Idempotency-Key"))

	got = with(func(c *SMSConfig) {
		c.ContentType, c.Body = "text/xml", `<sms to="{{.to | xml}}"><text>{{.text | xml}}</text></sms>`
	})
	var doc struct {
		To   string `xml:"to,attr"`
		Text string `xml:"text"`
	}
	require.NoError(t, xml.Unmarshal([]byte(got.body), &doc))
	require.Equal(t, "say \"hi\"\na&b=<c>\n안녕", doc.Text)
	require.Equal(t, "+82 10-1234-5678", doc.To)

	got = with(func(c *SMSConfig) {
		c.ContentType, c.Body = "text/plain", "{{.title}}: {{.body}} {{.data.o}}"
	})
	require.Equal(t, "say \"hi\": a&b=<c>\n안녕 {\"a\":1}", got.body)

	// Braces that close a JSON object stay what they are.
	got = with(func(c *SMSConfig) { c.Body = `{"message":{"to":{{.to | json}}}}` })
	require.JSONEq(t, `{"message":{"to":"+82 10-1234-5678"}}`, got.body)

	// A host alone needs no path.
	got = with(func(c *SMSConfig) { c.Body = "" })
	require.Equal(t, "/", got.uri)
	require.Empty(t, got.body)
}

func TestSMS_TextOfTitleOrBodyAlone(t *testing.T) {
	t.Parallel()
	var got smsCall
	cfg := DefaultSMS()
	cfg.URL, cfg.ContentType, cfg.Body = smsCapture(t, &got), "text/plain", "{{.text}}"
	s := open(t, cfg, smsNow)
	d := smsDelivery()
	d.Title = ""
	send(t, s, d, long)
	require.Equal(t, d.Body, got.body)
	d = smsDelivery()
	d.Body = ""
	send(t, s, d, long)
	require.Equal(t, d.Title, got.body)
}

// smsAnswers is a gateway with words of its own.
func smsAnswers() SMSConfig {
	cfg := DefaultSMS()
	cfg.MessageIDPath, cfg.CodePath = "messages.0.id", "messages.0.status"
	cfg.Success = SMSMatch{Statuses: []int{200, 201}, Codes: []string{"0"}}
	cfg.InvalidAddress = SMSMatch{Statuses: []int{404}, Codes: []string{"bad_number", "21211"}}
	cfg.Permanent = SMSMatch{Statuses: []int{507}, Codes: []string{"blocked"}}
	cfg.Retryable = SMSMatch{Statuses: []int{520}, Codes: []string{"busy", "true"}}
	cfg.Unknown = SMSMatch{Statuses: []int{500}, Codes: []string{"pending"}}
	return *cfg
}

// Every class by status, by code and by accident. I9, I11.
func TestSMS_Classes(t *testing.T) {
	t.Parallel()
	say := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	coded := func(status int, code string) http.HandlerFunc {
		return say(status, fmt.Sprintf(`{"messages":[{"id":"m-1","status":%s}]}`, code))
	}
	plain := *DefaultSMS()
	for _, test := range []struct {
		name    string
		cfg     SMSConfig
		handler http.HandlerFunc
		timeout time.Duration
		want    sender.Result
	}{
		{"accepted", smsAnswers(), coded(201, `0`), long, sender.Result{Class: sender.Accepted, Code: "201 0", Detail: "Created", Receipt: "m-1"}},
		{"a good code, a bad status", smsAnswers(), coded(400, `"0"`), long, sender.Result{Class: sender.Permanent, Code: "400 0", Detail: "Bad Request"}},
		{"200 and a bad number", smsAnswers(), coded(200, `"bad_number"`), long, sender.Result{Class: sender.InvalidAddress, Code: "200 bad_number", Detail: "OK"}},
		{"a number as code", smsAnswers(), coded(400, `21211`), long, sender.Result{Class: sender.InvalidAddress, Code: "400 21211", Detail: "Bad Request"}},
		{"200 and blocked", smsAnswers(), coded(200, `"blocked"`), long, sender.Result{Class: sender.Permanent, Code: "200 blocked", Detail: "OK"}},
		{"200 and busy", smsAnswers(), func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "9")
			coded(200, `"busy"`)(w, r)
		}, long, sender.Result{Class: sender.Retryable, Code: "200 busy", Detail: "OK", RetryAfter: 9 * time.Second}},
		{"200 and a truth value", smsAnswers(), coded(200, `true`), long, sender.Result{Class: sender.Retryable, Code: "200 true", Detail: "OK"}},
		{"200 and who knows", smsAnswers(), coded(200, `"pending"`), long, sender.Result{Class: sender.Unknown, Code: "200 pending", Detail: "OK"}},
		{"200 and a new code", smsAnswers(), coded(200, `"new"`), long, sender.Result{Class: sender.Unknown, Code: "200 new", Detail: "OK"}},
		{"a code that may be a number", smsAnswers(), coded(200, `"+821012345678"`), long, sender.Result{Class: sender.Unknown, Code: "200", Detail: "OK"}},
		{"200 without a code", smsAnswers(), say(200, `{}`), long, sender.Result{Class: sender.Unknown, Code: "200", Detail: "OK"}},
		{"garbage", smsAnswers(), say(200, `{"messages":[{`), long, sender.Result{Class: sender.Unknown, Code: "200", Detail: "OK"}},
		{"a status that is no success here", smsAnswers(), say(202, ``), long, sender.Result{Class: sender.Unknown, Code: "202", Detail: "Accepted"}},
		{"status: invalid address", smsAnswers(), say(404, `gone`), long, sender.Result{Class: sender.InvalidAddress, Code: "404", Detail: "Not Found"}},
		{"status: permanent", smsAnswers(), say(507, ``), long, sender.Result{Class: sender.Permanent, Code: "507", Detail: "Insufficient Storage"}},
		{"status: retryable", smsAnswers(), say(520, ``), long, sender.Result{Class: sender.Retryable, Code: "520"}},
		{"status: unknown", smsAnswers(), say(500, ``), long, sender.Result{Class: sender.Unknown, Code: "500", Detail: "Internal Server Error"}},
		{"huge body", smsAnswers(), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"messages":[{"id":"m-1","status":0}]}`)
			for {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}, long, sender.Result{Class: sender.Unknown, Code: "200", Detail: "OK"}},

		{"throttled, in the gateway's words", smsAnswers(), coded(429, `"too_many_requests"`), long, sender.Result{Class: sender.Retryable, Code: "429 too_many_requests", Detail: "Too Many Requests"}},
		{"refused credentials, in the gateway's words", smsAnswers(), coded(401, `"invalid_key"`), long, sender.Result{Class: sender.Retryable, Code: "401 invalid_key", Detail: "Unauthorized"}},

		{"nothing configured, accepted", plain, say(202, `garbage`), long, sender.Result{Class: sender.Accepted, Code: "202", Detail: "Accepted"}},
		{"400", plain, say(400, ``), long, sender.Result{Class: sender.Permanent, Code: "400", Detail: "Bad Request"}},
		{"408", plain, say(408, ``), long, sender.Result{Class: sender.Retryable, Code: "408", Detail: "Request Timeout"}},
		{"429", plain, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusTooManyRequests)
		}, long, sender.Result{Class: sender.Retryable, Code: "429", Detail: "Too Many Requests", RetryAfter: 30 * time.Second}},
		{"500", plain, say(500, ``), long, sender.Result{Class: sender.Retryable, Code: "500", Detail: "Internal Server Error"}},
		{"502", plain, say(502, ``), long, sender.Result{Class: sender.Unknown, Code: "502", Detail: "Bad Gateway"}},
		{"redirect", plain, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusPermanentRedirect) }, long,
			sender.Result{Class: sender.Permanent, Code: "308", Detail: "Permanent Redirect (not followed)"}},
		{"hangs", plain, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // a 200 in the moment in which the caller hangs up would be an answer
		}, short, sender.Result{Class: sender.Unknown, Code: "timeout", Detail: "no answer in time"}},
		{"slow body", plain, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, short, sender.Result{Class: sender.Accepted, Code: "200", Detail: "OK"}},
		{"reset after accepting", plain, reset, long, sender.Result{Class: sender.Unknown, Code: "connection", Detail: "connection reset by peer"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.cfg.URL = serve(t, test.handler).URL
			require.Equal(t, test.want, send(t, open(t, &test.cfg, smsNow), smsDelivery(), test.timeout))
		})
	}
}

// A gateway that answers 200 to everything and has codes for errors only: an answer that cannot be read may be an error.
func TestSMS_AnswersThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		status int
		body   string
		cut    bool
		want   sender.Result
	}{
		{"no code", 200, `{}`, false, sender.Result{Class: sender.Accepted, Code: "200", Detail: "OK"}},
		{"no body", 204, ``, false, sender.Result{Class: sender.Accepted, Code: "204", Detail: "No Content"}},
		{"an empty body", 200, ``, false, sender.Result{Class: sender.Unknown, Code: "200", Detail: "OK"}},
		{"a second value", 200, `{"id":"m1"} {"error":"blocked"}`, false, sender.Result{Class: sender.Unknown, Code: "200", Detail: "OK"}},
		{"a page", 200, `<html>maintenance</html>`, false, sender.Result{Class: sender.Unknown, Code: "200", Detail: "OK"}},
		{"a byte order mark", 200, "\xef\xbb\xbf" + `{"error":"blocked"}`, false, sender.Result{Class: sender.Permanent, Code: "200 blocked", Detail: "OK"}},
		{"cut off", 200, `{"error":"blo`, true, sender.Result{Class: sender.Unknown, Code: "200", Detail: "OK"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := DefaultSMS()
			cfg.CodePath, cfg.Permanent.Codes = "error", []string{"blocked"}
			cfg.URL = serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if test.cut {
					w.Header().Set("Content-Length", "100")
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}).URL
			require.Equal(t, test.want, send(t, open(t, cfg, smsNow), smsDelivery(), long))
		})
	}
}

// I9: a GET on a connection that was kept open would be repeated by net/http itself.
func TestSMS_ByGETIsNeverRepeatedUnseen(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	cfg := DefaultSMS()
	cfg.Method, cfg.Body = http.MethodGet, ""
	cfg.URL = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > 1 {
			reset(w, r)
		}
	}).URL
	s := open(t, cfg, smsNow)
	require.Equal(t, sender.Accepted, send(t, s, smsDelivery(), long).Class)
	require.Equal(t, sender.Unknown, send(t, s, smsDelivery(), long).Class)
	require.EqualValues(t, 2, calls.Load())
}

func TestSMS_NotWorthACall(t *testing.T) {
	t.Parallel()
	cfg := DefaultSMS()
	cfg.URL, cfg.ContentType, cfg.Body = "http://127.0.0.1:1", "text/plain", "{{.data.a}}"
	s := open(t, cfg, smsNow)
	for _, address := range []string{"", "me", "1", "+82\n1012345678", "0101234567801012345678010123456780"} {
		d := smsDelivery()
		d.Address = address
		require.Equal(t, refuseAddress("address", notNumber), send(t, s, d, long), address)
	}
	d := smsDelivery()
	d.Data = json.RawMessage(`[]`)
	require.Equal(t, sender.Result{Class: sender.Permanent, Code: "content", Detail: "data is not a JSON object", Refusal: sender.RefusedContent}, send(t, s, d, long))
	require.Equal(t, sender.Result{Class: sender.Retryable, Code: "dial", Detail: "connection refused"}, send(t, s, smsDelivery(), long))
}

func TestSMS_ReadsTheSecretFile(t *testing.T) {
	t.Parallel()
	var got smsCall
	cfg := DefaultSMS()
	cfg.URL, cfg.Auth, cfg.SecretFile = smsCapture(t, &got), "bearer", filepath.Join(t.TempDir(), "secret")
	_, err := New(cfg, time.Now)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(cfg.SecretFile, []byte("a\nb"), 0o600))
	_, err = New(cfg, time.Now)
	require.EqualError(t, err, "secret_file: has control characters; none are allowed")
	require.NoError(t, os.WriteFile(cfg.SecretFile, []byte("from-file\n"), 0o600))
	send(t, open(t, cfg, smsNow), smsDelivery(), long)
	require.Equal(t, "Bearer from-file", got.header.Get("Authorization"))
}
