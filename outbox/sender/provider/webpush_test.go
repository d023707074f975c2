package provider

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

// webpushPrivateKey is the scalar of RFC 8291's example; any will do.
const webpushPrivateKey = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"

// webpushPublicKey is its other half, as browsers get it for applicationServerKey.
const webpushPublicKey = "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8"

var webpushB64 = base64.RawURLEncoding

// webpushBrowser is the other end of a subscription.
type webpushBrowser struct {
	key    *ecdh.PrivateKey
	secret []byte
}

func webpushNewBrowser(t *testing.T) webpushBrowser {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	require.NoError(t, err)
	secret := make([]byte, 16)
	_, err = rand.Read(secret)
	require.NoError(t, err)
	return webpushBrowser{key: key, secret: secret}
}

func (b webpushBrowser) subscription(t *testing.T, endpoint string) string {
	t.Helper()
	out, err := json.Marshal(map[string]any{
		"endpoint": endpoint, "expirationTime": nil,
		"keys": map[string]string{"p256dh": webpushB64.EncodeToString(b.key.PublicKey().Bytes()), "auth": webpushB64.EncodeToString(b.secret)},
	})
	require.NoError(t, err)
	return string(out)
}

// decrypt is a browser's half of RFC 8291, written apart from the sender's.
func (b webpushBrowser) decrypt(t *testing.T, body []byte) []byte {
	t.Helper()
	salt, keyID, record := body[:16], body[21:21+int(body[20])], body[21+int(body[20]):]
	peer, err := ecdh.P256().NewPublicKey(keyID)
	require.NoError(t, err)
	shared, err := b.key.ECDH(peer)
	require.NoError(t, err)
	ikm, err := hkdf.Key(sha256.New, shared, b.secret, "WebPush: info\x00"+string(b.key.PublicKey().Bytes())+string(keyID), 32)
	require.NoError(t, err)
	cek, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: aes128gcm\x00", 16)
	require.NoError(t, err)
	nonce, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: nonce\x00", 12)
	require.NoError(t, err)
	block, err := aes.NewCipher(cek)
	require.NoError(t, err)
	gcm, err := cipher.NewGCM(block)
	require.NoError(t, err)
	plain, err := gcm.Open(nil, nonce, record, nil)
	require.NoError(t, err)
	require.Equal(t, byte(2), plain[len(plain)-1])
	return plain[:len(plain)-1]
}

// webpushSetup starts a push service and a sender that trusts and may reach it.
func webpushSetup(t *testing.T, handler http.HandlerFunc, adjust func(*WebPushConfig), now func() time.Time) (*httptest.Server, Client) {
	t.Helper()
	service := httptest.NewTLSServer(handler)
	t.Cleanup(service.Close)
	cfg := DefaultWebPush()
	cfg.PrivateKey, cfg.Subject = webpushPrivateKey, "mailto:ops@example.org"
	cfg.Hosts = []string{"*"}
	cfg.HTTP.AllowAddresses = []string{"127.0.0.0/8"}
	cfg.HTTP.CAFile = httpAuthority(t, service)
	if adjust != nil {
		adjust(cfg)
	}
	s := open(t, cfg, now)
	return service, s
}

func webpushDelivery(address string) sender.Delivery {
	return sender.Delivery{
		Key: "0190a5c4-0000-8000-8000-000000000001", JobID: 7, ChannelID: 9, Medium: "push", Platform: "web",
		Address: address, Title: "Hello <b>", Body: "안녕", Data: []byte(`{"url":"/a?b=1&c=2"}`), Attempt: 1,
	}
}

// webpushClaims verifies an Authorization header of VAPID and returns its claims (RFC
// 8292 §2).
func webpushClaims(t *testing.T, header string) map[string]any {
	t.Helper()
	token, key, found := strings.Cut(strings.TrimPrefix(header, "vapid t="), ", k=")
	require.True(t, found, header)
	point, err := webpushB64.DecodeString(key)
	require.NoError(t, err)
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	require.NoError(t, err)
	parts := strings.Split(token, ".")
	require.Len(t, parts, 3)
	signature, err := webpushB64.DecodeString(parts[2])
	require.NoError(t, err)
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	require.True(t, ecdsa.Verify(public, digest[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])))
	body, err := webpushB64.DecodeString(parts[1])
	require.NoError(t, err)
	var out map[string]any
	require.NoError(t, json.Unmarshal(body, &out))
	return out
}

// I9: every attempt bears the same key, in the payload and in Topic; no two bodies share
// a salt. The browser can read what arrives.
func TestWebPush_SpeaksTheProtocol(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	type call struct {
		header http.Header
		path   string
		body   []byte
	}
	calls := make(chan call, 2)
	service, s := webpushSetup(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls <- call{r.Header, r.Method + " " + r.URL.Path, body}
		w.Header().Set("Location", "/message/1")
		w.WriteHeader(http.StatusCreated)
	}, nil, func() time.Time { return now })
	b := webpushNewBrowser(t)
	d := webpushDelivery(b.subscription(t, service.URL+"/push/abc"))
	salts, keys := map[string]bool{}, map[string]bool{}
	for range 2 {
		require.Equal(t, sender.Result{Class: sender.Accepted, Code: "201", Detail: "Created"}, deliver(t, s, d))
		got := <-calls
		require.Equal(t, "POST /push/abc", got.path)
		require.Equal(t, "aes128gcm", got.header.Get("Content-Encoding"))
		require.Equal(t, "86400", got.header.Get("TTL"))
		require.Equal(t, "normal", got.header.Get("Urgency"))
		require.Equal(t, "0190a5c4000080008000000000000001", got.header.Get("Topic"))
		require.JSONEq(t, `{"title":"Hello <b>","body":"안녕","data":{"url":"/a?b=1&c=2"},"key":"0190a5c4-0000-8000-8000-000000000001"}`, string(b.decrypt(t, got.body)))
		require.Equal(t, map[string]any{
			"aud": service.URL, "sub": "mailto:ops@example.org", "exp": float64(now.Add(12 * time.Hour).Unix()),
		}, webpushClaims(t, got.header.Get("Authorization")))
		require.True(t, strings.HasSuffix(got.header.Get("Authorization"), "k="+webpushPublicKey))
		salts[string(got.body[:16])], keys[string(got.body[21:86])] = true, true
	}
	require.Len(t, salts, 2)
	require.Len(t, keys, 2)
}

// One token for each push service, replaced in time, and never valid for a day.
func TestWebPush_KeepsTokensPerAudience(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC).Unix())
	tokens := make(chan string, 1)
	handler := func(w http.ResponseWriter, r *http.Request) {
		tokens <- r.Header.Get("Authorization")
		w.WriteHeader(http.StatusCreated)
	}
	one, s := webpushSetup(t, handler, func(c *WebPushConfig) { c.AllowHTTP = true }, func() time.Time { return time.Unix(now.Load(), 0) })
	two := httptest.NewServer(http.HandlerFunc(handler))
	t.Cleanup(two.Close)
	b := webpushNewBrowser(t)
	token := func(base string) string {
		require.Equal(t, sender.Accepted, deliver(t, s, webpushDelivery(b.subscription(t, base+"/x"))).Class)
		return <-tokens
	}
	first := token(one.URL)
	require.Equal(t, first, token(one.URL))
	other := token(two.URL)
	require.Equal(t, one.URL, webpushClaims(t, first)["aud"])
	require.Equal(t, two.URL, webpushClaims(t, other)["aud"])
	now.Add(int64((6*time.Hour - time.Second) / time.Second))
	require.Equal(t, first, token(one.URL))
	now.Add(1)
	renewed := token(one.URL)
	require.NotEqual(t, first, renewed)
	require.Less(t, webpushClaims(t, renewed)["exp"].(float64)-float64(now.Load()), float64(24*3600))
}

// Every class: what push services answer (RFC 8030 §5, §7.3, §8.4; RFC 8292 §4.2).
func TestWebPush_ClassifiesAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		header map[string]string
		body   string
		want   sender.Result
	}{
		"created":         {status: 201, want: sender.Result{Class: sender.Accepted, Code: "201", Detail: "Created"}},
		"accepted":        {status: 202, want: sender.Result{Class: sender.Accepted, Code: "202", Detail: "Accepted"}},
		"bad request":     {status: 400, body: `{"errno":110}`, want: sender.Result{Class: sender.Permanent, Code: "400", Detail: "Bad Request"}},
		"not authorised":  {status: 401, want: sender.Result{Class: sender.Retryable, Code: "401", Detail: "Unauthorized"}},
		"another's key":   {status: 403, want: sender.Result{Class: sender.Permanent, Code: "403", Detail: "Forbidden"}},
		"not found":       {status: 404, want: sender.Result{Class: sender.InvalidAddress, Code: "404", Detail: "the push service does not know the subscription"}},
		"gone":            {status: 410, want: sender.Result{Class: sender.InvalidAddress, Code: "410", Detail: "the push service does not know the subscription"}},
		"too large":       {status: 413, want: sender.Result{Class: sender.Permanent, Code: "413", Detail: "Request Entity Too Large"}},
		"too many":        {status: 429, header: map[string]string{"Retry-After": "17"}, want: sender.Result{Class: sender.Retryable, Code: "429", Detail: "Too Many Requests", RetryAfter: 17 * time.Second}},
		"failed":          {status: 500, want: sender.Result{Class: sender.Retryable, Code: "500", Detail: "Internal Server Error"}},
		"gateway":         {status: 502, want: sender.Result{Class: sender.Unknown, Code: "502", Detail: "Bad Gateway"}},
		"unavailable":     {status: 503, header: map[string]string{"Retry-After": "3"}, want: sender.Result{Class: sender.Retryable, Code: "503", Detail: "Service Unavailable", RetryAfter: 3 * time.Second}},
		"gateway timeout": {status: 504, want: sender.Result{Class: sender.Unknown, Code: "504", Detail: "Gateway Timeout"}},
		"moved":           {status: 307, header: map[string]string{"Location": "https://169.254.169.254/"}, want: sender.Result{Class: sender.Permanent, Code: "307", Detail: "Temporary Redirect (not followed)"}},
		"huge body":       {status: 201, body: strings.Repeat("x", 1<<20), want: sender.Result{Class: sender.Accepted, Code: "201", Detail: "Created"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service, s := webpushSetup(t, func(w http.ResponseWriter, _ *http.Request) {
				for key, value := range test.header {
					w.Header().Set(key, value)
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}, nil, time.Now)
			require.Equal(t, test.want, deliver(t, s, webpushDelivery(webpushNewBrowser(t).subscription(t, service.URL+"/secret"))))
		})
	}
}

// unknown once the request may have gone out, retryable before.
func TestWebPush_WithoutAnAnswer(t *testing.T) {
	t.Parallel()
	reset := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}
	service, s := webpushSetup(t, reset, nil, time.Now)
	b := webpushNewBrowser(t)
	got := deliver(t, s, webpushDelivery(b.subscription(t, service.URL+"/secret")))
	require.Equal(t, sender.Unknown, got.Class, got)
	require.Equal(t, "connection", got.Code)

	hang, s2 := webpushSetup(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // a 200 in the moment in which the caller hangs up would be an answer
	}, nil, time.Now)
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	got = s2.Send(ctx, []sender.Delivery{webpushDelivery(b.subscription(t, hang.URL+"/secret"))})[0]
	require.Equal(t, sender.Unknown, got.Class, got)
	require.Equal(t, "timeout", got.Code)

	got = deliver(t, s, webpushDelivery(b.subscription(t, "https://127.0.0.1:1/secret")))
	require.Equal(t, sender.Retryable, got.Class, got)
	require.NotContains(t, got.Detail, "secret")
}

// Whoever subscribes a server of their own could make every call hang.
func TestWebPush_CallsPushServicesOnly(t *testing.T) {
	t.Parallel()
	var called atomic.Int32
	service, s := webpushSetup(t, func(http.ResponseWriter, *http.Request) { called.Add(1) }, func(c *WebPushConfig) { c.Hosts = nil }, time.Now)
	got := deliver(t, s, webpushDelivery(webpushNewBrowser(t).subscription(t, service.URL+"/x")))
	require.Equal(t, sender.Result{Class: sender.Permanent, Code: "blocked_address",
		Detail: "the host of the endpoint is no push service; permit it with hosts", Refusal: sender.RefusedAddress}, got)
	require.Zero(t, called.Load())

	cfg := DefaultWebPush()
	for host, serves := range map[string]bool{
		"fcm.googleapis.com": true, "FCM.googleapis.com": true, "updates.push.services.mozilla.com": true, "web.push.apple.com": true, "wns2-by3p.notify.windows.com": true,
		"push.apple.com": false, "xpush.apple.com": false, "fcm.googleapis.com.example.com": false, "example.com": false, "": false,
	} {
		require.Equal(t, serves, cfg.serves(host), host)
	}
	cfg.Hosts = []string{"Push.example.com"}
	require.True(t, cfg.serves("push.Example.com"))
	require.False(t, cfg.serves("fcm.googleapis.com"))
	cfg.Hosts = []string{"*"}
	require.True(t, cfg.serves("anything"))
}

// Endpoints come from browsers: no call goes to a private address or leaves https.
func TestWebPush_RefusesPrivateAndMalformedAddresses(t *testing.T) {
	t.Parallel()
	var called atomic.Int32
	service, s := webpushSetup(t, func(http.ResponseWriter, *http.Request) { called.Add(1) }, func(c *WebPushConfig) { c.HTTP.AllowAddresses = nil }, time.Now)
	b := webpushNewBrowser(t)
	got := deliver(t, s, webpushDelivery(b.subscription(t, service.URL+"/x")))
	require.Equal(t, sender.Permanent, got.Class, got)
	require.Equal(t, "blocked_address", got.Code)

	good := b.subscription(t, "https://push.example/secret")
	p256dh, auth := webpushB64.EncodeToString(b.key.PublicKey().Bytes()), webpushB64.EncodeToString(b.secret)
	for name, address := range map[string]string{
		"empty":        "",
		"text":         "secret",
		"array":        "[]",
		"http":         strings.Replace(good, "https:", "http:", 1),
		"no endpoint":  strings.Replace(good, "https://push.example/secret", "", 1),
		"file":         strings.Replace(good, "https://push.example/secret", "file:///secret", 1),
		"user":         strings.Replace(good, "https://", "https://user:secret@", 1),
		"no key":       strings.Replace(good, p256dh, "", 1),
		"short key":    strings.Replace(good, p256dh, p256dh[:40], 1),
		"not a point":  strings.Replace(good, p256dh, "B"+strings.Repeat("A", 86), 1),
		"no secret":    strings.Replace(good, auth, "", 1),
		"short secret": strings.Replace(good, auth, "AAAA", 1),
		"not base64":   strings.Replace(good, auth, "!!!!", 1),
	} {
		got := deliver(t, s, webpushDelivery(address))
		require.Equal(t, []any{sender.Permanent, sender.RefusedAddress}, []any{got.Class, got.Refusal}, name)
		require.NotEmpty(t, got.Detail, name)
		require.NotContains(t, got.Detail, "secret@", name)
		require.NotContains(t, got.Detail, "push.example", name)
	}
	require.Zero(t, called.Load())
}

// Keys with padding, or in the standard alphabet, are read as well: browsers differ.
func TestWebPush_ReadsKeysInEitherAlphabet(t *testing.T) {
	t.Parallel()
	service, s := webpushSetup(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }, nil, time.Now)
	b := webpushNewBrowser(t)
	address, err := json.Marshal(map[string]any{"endpoint": service.URL, "keys": map[string]string{
		"p256dh": base64.StdEncoding.EncodeToString(b.key.PublicKey().Bytes()), "auth": base64.URLEncoding.EncodeToString(b.secret),
	}})
	require.NoError(t, err)
	require.Equal(t, sender.Accepted, deliver(t, s, webpushDelivery(string(address))).Class)
}

func TestWebPush_TooLargeIsPermanentWithoutACall(t *testing.T) {
	t.Parallel()
	bodies := make(chan int, 1)
	service, s := webpushSetup(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- len(body)
		w.WriteHeader(http.StatusCreated)
	}, nil, time.Now)
	d := webpushDelivery(webpushNewBrowser(t).subscription(t, service.URL))
	d.Title, d.Data = "", []byte("{}")
	frame := len(`{"title":"","body":"","data":{},"key":""}`) + len(d.Key)
	d.Body = strings.Repeat("x", 3993-frame)
	require.Equal(t, sender.Accepted, deliver(t, s, d).Class)
	require.Equal(t, 4096, <-bodies)
	d.Body += "x"
	require.Equal(t, sender.Result{
		Class: sender.Permanent, Code: "payload_too_large", Detail: "payload is too large: it has 3994 bytes; the maximum is 3993", Refusal: sender.RefusedContent,
	}, deliver(t, s, d))
}

func TestWebPush_Validate(t *testing.T) {
	t.Parallel()
	require.EqualError(t, Validate("senders[0].webpush", DefaultWebPush()), strings.Join([]string{
		`senders[0].webpush.private_key: is empty; set a key, or a file in private_key_file`,
		`senders[0].webpush.subject: "" is not allowed; allowed values: mailto:user@host and https://host`,
	}, "\n"))
	valid := DefaultWebPush()
	valid.PrivateKey, valid.Subject = webpushPrivateKey, "https://example.org/contact"
	refuses(t, valid, map[string]func(*WebPushConfig){
		"private_key":                             func(c *WebPushConfig) { c.PrivateKey = "topsecret" },
		"private_key: is set":                     func(c *WebPushConfig) { c.PrivateKeyFile = "topsecret" },
		"subject":                                 func(c *WebPushConfig) { c.Subject = "ops@example.org" },
		`subject: "mailto:g: ops@example.org;"`:   func(c *WebPushConfig) { c.Subject = "mailto:g: ops@example.org;" },
		`subject: "mailto:Ops <ops@example.org>"`: func(c *WebPushConfig) { c.Subject = "mailto:Ops <ops@example.org>" },
		"ttl":                func(c *WebPushConfig) { c.TTL = -time.Second },
		"hosts[1]":           func(c *WebPushConfig) { c.Hosts = []string{"*.push.example.com", "*push.example.com"} },
		"hosts[0]":           func(c *WebPushConfig) { c.Hosts = []string{"https://push.example.com"} },
		"urgency":            func(c *WebPushConfig) { c.Urgency = "now" },
		"allow_addresses[0]": func(c *WebPushConfig) { c.HTTP.AllowAddresses = []string{"anywhere"} },
	})
}

func TestWebPush_ReadsTheKeyFromAFile(t *testing.T) {
	t.Parallel()
	cfg := DefaultWebPush()
	cfg.Subject, cfg.PrivateKeyFile = "mailto:ops@example.org", filepath.Join(t.TempDir(), "vapid")
	_, err := New(cfg, time.Now)
	require.ErrorContains(t, err, "webpush.private_key_file")
	require.NoError(t, os.WriteFile(cfg.PrivateKeyFile, []byte(webpushPrivateKey+"\n"), 0o600))
	_, err = New(cfg, time.Now)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cfg.PrivateKeyFile, []byte("topsecret"), 0o600))
	_, err = New(cfg, time.Now)
	require.EqualError(t, err, "webpush.private_key_file: is not a key; allowed values: 32 bytes in base64url")
}
