package provider

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

func webhookSecret(fill string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 32)))
}

func webhookConfig() *WebhookConfig {
	return &WebhookConfig{AllowHTTP: true, Secrets: []string{webhookSecret("a")}, HTTP: HTTPConfig{AllowAddresses: []string{"127.0.0.0/8"}}}
}

func webhookDelivery(address string) sender.Delivery {
	return sender.Delivery{
		Key: "0193a1b2-0000-8000-8000-000000000001", JobID: -7, ChannelID: 42, ExternalID: "u42", Category: "operator_notice",
		Medium: "webhook", Platform: "web", Locale: "ko", Address: address, Title: "안녕 <b>", Body: "two\nlines",
		Data: json.RawMessage(`{"n":1,"deep":{"a":[1,2]}}`), Attempt: 2,
	}
}

func TestWebhook_CallsAsDocumented(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 5)
	cfg := webhookConfig()
	file := filepath.Join(t.TempDir(), "secrets")
	require.NoError(t, os.WriteFile(file, []byte(webhookSecret("b")+"\n\n"+webhookSecret("c")+"\n"), 0o600))
	cfg.SecretFile = file
	var header http.Header
	var body []byte
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusNoContent)
	})
	d := webhookDelivery(server.URL + "/hooks?x=1#fragment")
	result := send(t, open(t, cfg, func() time.Time { return now }), d, long)
	require.Equal(t, sender.Result{Class: sender.Accepted, Code: "204", Detail: "No Content"}, result)

	require.Equal(t, "application/json", header.Get("Content-Type"))
	require.Equal(t, d.Key, header.Get("Idempotency-Key"))
	require.Equal(t, d.Key, header.Get("webhook-id"))
	require.Equal(t, "1800000000", header.Get("webhook-timestamp"))
	require.JSONEq(t, `{"key":"0193a1b2-0000-8000-8000-000000000001","job_id":-7,"channel_id":42,"external_id":"u42",
		"category":"operator_notice","medium":"webhook","locale":"ko","title":"안녕 <b>","body":"two\nlines",
		"data":{"n":1,"deep":{"a":[1,2]}},"attempt":2}`, string(body))
	// Any one of the secrets verifies, while they are rotated.
	for _, fill := range []string{"a", "b", "c"} {
		require.NoError(t, VerifyWebhook(header, body, now, WebhookTolerance, webhookSecret("z"), webhookSecret(fill)))
	}
	require.ErrorIs(t, VerifyWebhook(header, body, now, WebhookTolerance, webhookSecret("z")), ErrWebhookSignature)
}

// Every class, by status and by accident. I9, I11.
func TestWebhook_Classes(t *testing.T) {
	t.Parallel()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		timeout time.Duration
		want    sender.Result
	}{
		{"ok", status(200), 0, sender.Result{Class: sender.Accepted, Code: "200", Detail: "OK"}},
		{"accepted", status(202), 0, sender.Result{Class: sender.Accepted, Code: "202", Detail: "Accepted"}},
		{"bad request", status(400), 0, sender.Result{Class: sender.Permanent, Code: "400", Detail: "Bad Request"}},
		{"unauthorized", status(401), 0, sender.Result{Class: sender.Retryable, Code: "401", Detail: "Unauthorized"}},
		{"not found", status(404), 0, sender.Result{Class: sender.Permanent, Code: "404", Detail: "Not Found"}},
		{"timeout", status(408), 0, sender.Result{Class: sender.Retryable, Code: "408", Detail: "Request Timeout"}},
		{"gone", status(410), 0, sender.Result{Class: sender.InvalidAddress, Code: "410", Detail: "the receiver answers 410 Gone"}},
		{"too many", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusTooManyRequests)
		}, 0, sender.Result{Class: sender.Retryable, Code: "429", Detail: "Too Many Requests", RetryAfter: 30 * time.Second}},
		{"error", status(500), 0, sender.Result{Class: sender.Retryable, Code: "500", Detail: "Internal Server Error"}},
		{"bad gateway", status(502), 0, sender.Result{Class: sender.Unknown, Code: "502", Detail: "Bad Gateway"}},
		{"unavailable", status(503), 0, sender.Result{Class: sender.Retryable, Code: "503", Detail: "Service Unavailable"}},
		{"gateway timeout", status(504), 0, sender.Result{Class: sender.Unknown, Code: "504", Detail: "Gateway Timeout"}},
		{"redirect by GET", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }, 0,
			sender.Result{Class: sender.Permanent, Code: "302", Detail: "Found (not followed)"}},
		{"a redirect to what is gone", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/gone" {
				w.WriteHeader(http.StatusGone)
				return
			}
			http.Redirect(w, r, "/gone", http.StatusTemporaryRedirect)
		}, 0, sender.Result{Class: sender.Permanent, Code: "410", Detail: "Gone"}},
		{"redirects without end", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusTemporaryRedirect) }, 0,
			sender.Result{Class: sender.Permanent, Code: "307", Detail: "Temporary Redirect (not followed)"}},
		{"redirect to where nobody may go", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusTemporaryRedirect)
		}, 0, sender.Result{Class: sender.Permanent, Code: "blocked_address", Detail: "the address is private; permit it with allow_addresses", Refusal: sender.RefusedAddress}},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // a 200 in the moment in which the caller hangs up would be an answer
		}, short,
			sender.Result{Class: sender.Unknown, Code: "timeout", Detail: "no answer in time"}},
		{"reset after accepting", reset, 0, sender.Result{Class: sender.Unknown, Code: "connection", Detail: "connection reset by peer"}},
		{"slow body", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write([]byte("."))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, short, sender.Result{Class: sender.Accepted, Code: "200", Detail: "OK"}},
		{"huge body", func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}, 0, sender.Result{Class: sender.Accepted, Code: "200", Detail: "OK"}},
		{"garbage", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{\x00")) }, 0, sender.Result{Class: sender.Accepted, Code: "200", Detail: "OK"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.timeout == 0 {
				test.timeout = long
			}
			require.Equal(t, test.want, send(t, open(t, webhookConfig(), time.Now), webhookDelivery(serve(t, test.handler).URL), test.timeout))
		})
	}
}

func TestWebhook_Addresses(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	server := serve(t, func(http.ResponseWriter, *http.Request) { calls.Add(1) })
	plain := webhookConfig()
	plain.AllowHTTP = false
	guarded := webhookConfig()
	guarded.HTTP.AllowAddresses = nil
	for _, test := range []struct {
		name    string
		cfg     *WebhookConfig
		address string
		class   sender.Class
		code    string
	}{
		{"no URL", webhookConfig(), "somebody", sender.Permanent, "address"},
		{"nothing", webhookConfig(), "", sender.Permanent, "address"},
		{"http", plain, server.URL, sender.Permanent, "address"},
		{"user name", webhookConfig(), "http://me:pw@example.com", sender.Permanent, "address"},
		{"private", guarded, server.URL, sender.Permanent, "blocked_address"}, // invariant 1
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			result := send(t, open(t, test.cfg, time.Now), webhookDelivery(test.address), long)
			require.Equal(t, test.class, result.Class)
			require.Equal(t, test.code, result.Code)
			require.Equal(t, sender.RefusedAddress, result.Refusal)
			require.NotContains(t, result.Detail, "127.0.0.1")
		})
	}
	t.Cleanup(func() { require.Zero(t, calls.Load()) })
}

func TestWebhook_FixedURL(t *testing.T) {
	t.Parallel()
	status, path := 200, ""
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		w.WriteHeader(status)
	})
	cfg := webhookConfig()
	cfg.URL = server.URL + "/all"
	s := open(t, cfg, time.Now)
	require.Equal(t, sender.Accepted, send(t, s, webhookDelivery("whatever"), long).Class)
	require.Equal(t, "/all", path)
	// 410 speaks of the endpoint, not of the recipient.
	status = 410
	require.Equal(t, sender.Permanent, send(t, s, webhookDelivery("whatever"), long).Class)
	// So does the guard: no recipient is condemned for where an operator's name leads.
	away := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/", http.StatusTemporaryRedirect)
	})
	cfg.URL = away.URL
	got := send(t, open(t, cfg, time.Now), webhookDelivery("whatever"), long)
	require.Equal(t, sender.Retryable, got.Class)
	require.Equal(t, "blocked_address", got.Code)
	require.Empty(t, got.Refusal)
}

func TestWebhook_ContentThatIsNoJSON(t *testing.T) {
	t.Parallel()
	d := webhookDelivery("http://127.0.0.1:1")
	d.Data = json.RawMessage(`{`)
	require.Equal(t, sender.Result{Class: sender.Permanent, Code: "content", Detail: "data is not JSON", Refusal: sender.RefusedContent}, send(t, open(t, webhookConfig(), time.Now), d, long))
}

func TestWebhook_ABatchHasAResultForEach(t *testing.T) {
	t.Parallel()
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	s := open(t, webhookConfig(), time.Now)
	require.Equal(t, 1, s.MaxBatch())
	results := s.Send(t.Context(), []sender.Delivery{webhookDelivery(server.URL), webhookDelivery("?"), webhookDelivery(server.URL)})
	require.Len(t, results, 3)
	require.Equal(t, []sender.Class{sender.Accepted, sender.Permanent, sender.Accepted}, []sender.Class{results[0].Class, results[1].Class, results[2].Class})
}

func TestWebhook_Validate(t *testing.T) {
	t.Parallel()
	require.NoError(t, Validate("senders[0].webhook", webhookConfig()))
	require.EqualError(t, Validate("senders[0].webhook", DefaultWebhook()),
		"senders[0].webhook.secrets: is missing; set a secret here or in secret_file")
	err := Validate("senders[0].webhook", &WebhookConfig{
		URL: "http://example.com", Secrets: []string{webhookSecret("a"), "s3cret", "whsec_c2hvcnQ="},
		HTTP: HTTPConfig{AllowAddresses: []string{"x"}},
	})
	require.EqualError(t, err, `senders[0].webhook.url: an http URL; allowed values: https URLs, and http with allow_http
senders[0].webhook.secrets[1]: is not a secret; allowed values: whsec_ followed by the base64 of 24 to 64 bytes
senders[0].webhook.secrets[2]: is not a secret; allowed values: whsec_ followed by the base64 of 24 to 64 bytes
senders[0].webhook.allow_addresses[0]: "x" is not allowed; allowed values: prefixes such as 10.0.0.0/8 and addresses`)
	require.NotContains(t, err.Error(), "s3cret")

	// Where nothing would be sent is said before the first message, as far as the URL tells.
	for host, allowed := range map[string]string{
		"localhost": "127.0.0.1", "127.0.0.1:8080": "127.0.0.0/8", "[::1]": "::1", "10.1.2.3": "10.0.0.0/8", "169.254.169.254": "169.254.169.254",
	} {
		cfg := &WebhookConfig{URL: "https://" + host + "/x", Secrets: []string{webhookSecret("a")}}
		err := Validate("w", cfg)
		require.ErrorContains(t, err, "w.url: its host ", host)
		require.ErrorContains(t, err, "allow_addresses", host)
		cfg.HTTP.AllowAddresses = []string{allowed}
		require.NoError(t, Validate("w", cfg), host)
	}
	require.NoError(t, Validate("w", &WebhookConfig{URL: "https://in-house", Secrets: []string{webhookSecret("a")}}), "who that is, is known when it is called")
}

func TestWebhook_ReadsTheSecretFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secrets")
	cfg := webhookConfig()
	cfg.SecretFile = file
	_, err := New(cfg, time.Now)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(file, []byte(webhookSecret("b")+"\nhunter2\n"), 0o600))
	_, err = New(cfg, time.Now)
	require.EqualError(t, err, "secret_file: line 2: is not a secret; allowed values: whsec_ followed by the base64 of 24 to 64 bytes")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat(webhookSecret("b")+"\n", 8)), 0o600))
	_, err = New(cfg, time.Now)
	require.EqualError(t, err, "secrets: there are 9, including secret_file; allowed values: 1 to 8")
}
