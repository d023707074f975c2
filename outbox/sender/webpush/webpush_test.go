package webpush_test

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
	"encoding/pem"
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
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/webpush"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// privateKey is the scalar of RFC 8291's example; any will do.
const privateKey = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"

// publicKey is its other half, as browsers get it for applicationServerKey.
const publicKey = "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8"

var b64 = base64.RawURLEncoding

// browser is the other end of a subscription.
type browser struct {
	key    *ecdh.PrivateKey
	secret []byte
}

func newBrowser(t *testing.T) browser {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	require.NoError(t, err)
	secret := make([]byte, 16)
	_, err = rand.Read(secret)
	require.NoError(t, err)
	return browser{key: key, secret: secret}
}

func (b browser) subscription(t *testing.T, endpoint string) string {
	t.Helper()
	out, err := json.Marshal(map[string]any{
		"endpoint": endpoint, "expirationTime": nil,
		"keys": map[string]string{"p256dh": b64.EncodeToString(b.key.PublicKey().Bytes()), "auth": b64.EncodeToString(b.secret)},
	})
	require.NoError(t, err)
	return string(out)
}

// decrypt is a browser's half of RFC 8291, written apart from the sender's.
func (b browser) decrypt(t *testing.T, body []byte) []byte {
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

// setup starts a push service and a sender that trusts and may reach it.
func setup(t *testing.T, handler http.HandlerFunc, adjust func(*webpush.Config), now func() time.Time) (*httptest.Server, *sender.OneByOne) {
	t.Helper()
	service := httptest.NewTLSServer(handler)
	t.Cleanup(service.Close)
	cfg := webpush.DefaultConfig()
	cfg.PrivateKey, cfg.Subject = privateKey, "mailto:ops@example.org"
	cfg.HTTP.AllowAddresses = []string{"127.0.0.0/8"}
	cfg.HTTP.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(cfg.HTTP.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw}), 0o600))
	if adjust != nil {
		adjust(&cfg)
	}
	s, err := webpush.New(cfg, now)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return service, s
}

func delivery(address string) sender.Delivery {
	return sender.Delivery{
		Key: "0190a5c4-0000-8000-8000-000000000001", JobID: 7, ChannelID: 9, Medium: "push", Platform: "web",
		Address: address, Title: "Hello <b>", Body: "안녕", Data: []byte(`{"url":"/a?b=1&c=2"}`), Attempt: 1,
	}
}

func send(t *testing.T, s *sender.OneByOne, d sender.Delivery) sender.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	results := s.Send(ctx, []sender.Delivery{d})
	require.Len(t, results, 1)
	return results[0]
}

// claims verifies an Authorization header of VAPID and returns its claims (RFC 8292 §2).
func claims(t *testing.T, header string) map[string]any {
	t.Helper()
	token, key, found := strings.Cut(strings.TrimPrefix(header, "vapid t="), ", k=")
	require.True(t, found, header)
	point, err := b64.DecodeString(key)
	require.NoError(t, err)
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	require.NoError(t, err)
	parts := strings.Split(token, ".")
	require.Len(t, parts, 3)
	signature, err := b64.DecodeString(parts[2])
	require.NoError(t, err)
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	require.True(t, ecdsa.Verify(public, digest[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])))
	body, err := b64.DecodeString(parts[1])
	require.NoError(t, err)
	var out map[string]any
	require.NoError(t, json.Unmarshal(body, &out))
	return out
}

// I9: every attempt bears the same key, in the payload and in Topic; no two bodies share
// a salt. The browser can read what arrives.
func TestSend_SpeaksTheProtocol(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	type call struct {
		header http.Header
		path   string
		body   []byte
	}
	calls := make(chan call, 2)
	service, s := setup(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls <- call{r.Header, r.Method + " " + r.URL.Path, body}
		w.Header().Set("Location", "/message/1")
		w.WriteHeader(http.StatusCreated)
	}, nil, func() time.Time { return now })
	b := newBrowser(t)
	d := delivery(b.subscription(t, service.URL+"/push/abc"))
	salts, keys := map[string]bool{}, map[string]bool{}
	for range 2 {
		require.Equal(t, sender.Result{Class: sender.Accepted, Code: "201", Detail: "Created"}, send(t, s, d))
		got := <-calls
		require.Equal(t, "POST /push/abc", got.path)
		require.Equal(t, "aes128gcm", got.header.Get("Content-Encoding"))
		require.Equal(t, "86400", got.header.Get("TTL"))
		require.Equal(t, "normal", got.header.Get("Urgency"))
		require.Equal(t, "0190a5c4000080008000000000000001", got.header.Get("Topic"))
		require.JSONEq(t, `{"title":"Hello <b>","body":"안녕","data":{"url":"/a?b=1&c=2"},"key":"0190a5c4-0000-8000-8000-000000000001"}`, string(b.decrypt(t, got.body)))
		require.Equal(t, map[string]any{
			"aud": service.URL, "sub": "mailto:ops@example.org", "exp": float64(now.Add(12 * time.Hour).Unix()),
		}, claims(t, got.header.Get("Authorization")))
		require.True(t, strings.HasSuffix(got.header.Get("Authorization"), "k="+publicKey))
		salts[string(got.body[:16])], keys[string(got.body[21:86])] = true, true
	}
	require.Len(t, salts, 2)
	require.Len(t, keys, 2)
}

// One token for each push service, replaced in time, and never valid for a day.
func TestSend_KeepsTokensPerAudience(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC).Unix())
	tokens := make(chan string, 1)
	handler := func(w http.ResponseWriter, r *http.Request) {
		tokens <- r.Header.Get("Authorization")
		w.WriteHeader(http.StatusCreated)
	}
	one, s := setup(t, handler, func(c *webpush.Config) { c.AllowHTTP = true }, func() time.Time { return time.Unix(now.Load(), 0) })
	two := httptest.NewServer(http.HandlerFunc(handler))
	t.Cleanup(two.Close)
	b := newBrowser(t)
	token := func(base string) string {
		require.Equal(t, sender.Accepted, send(t, s, delivery(b.subscription(t, base+"/x"))).Class)
		return <-tokens
	}
	first := token(one.URL)
	require.Equal(t, first, token(one.URL))
	other := token(two.URL)
	require.Equal(t, one.URL, claims(t, first)["aud"])
	require.Equal(t, two.URL, claims(t, other)["aud"])
	now.Add(int64((6*time.Hour - time.Second) / time.Second))
	require.Equal(t, first, token(one.URL))
	now.Add(1)
	renewed := token(one.URL)
	require.NotEqual(t, first, renewed)
	require.Less(t, claims(t, renewed)["exp"].(float64)-float64(now.Load()), float64(24*3600))
}

// Every class: what push services answer (RFC 8030 §5, §7.3, §8.4; RFC 8292 §4.2).
func TestSend_ClassifiesAnswers(t *testing.T) {
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
		"not authorised":  {status: 401, want: sender.Result{Class: sender.Permanent, Code: "401", Detail: "Unauthorized"}},
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
			service, s := setup(t, func(w http.ResponseWriter, _ *http.Request) {
				for key, value := range test.header {
					w.Header().Set(key, value)
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}, nil, time.Now)
			require.Equal(t, test.want, send(t, s, delivery(newBrowser(t).subscription(t, service.URL+"/secret"))))
		})
	}
}

// unknown once the request may have gone out, retryable before.
func TestSend_WithoutAnAnswer(t *testing.T) {
	t.Parallel()
	reset := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}
	service, s := setup(t, reset, nil, time.Now)
	b := newBrowser(t)
	got := send(t, s, delivery(b.subscription(t, service.URL+"/secret")))
	require.Equal(t, sender.Unknown, got.Class, got)
	require.Equal(t, "connection", got.Code)

	hang, s2 := setup(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // a 200 in the moment in which the caller hangs up would be an answer
	}, nil, time.Now)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // enough to send it beside any load
	defer cancel()
	got = s2.Send(ctx, []sender.Delivery{delivery(b.subscription(t, hang.URL+"/secret"))})[0]
	require.Equal(t, sender.Unknown, got.Class, got)
	require.Equal(t, "timeout", got.Code)

	got = send(t, s, delivery(b.subscription(t, "https://127.0.0.1:1/secret")))
	require.Equal(t, sender.Retryable, got.Class, got)
	require.NotContains(t, got.Detail, "secret")
}

// Endpoints come from browsers: no call goes to a private address or leaves https.
func TestSend_RefusesPrivateAndMalformedAddresses(t *testing.T) {
	t.Parallel()
	var called atomic.Int32
	service, s := setup(t, func(http.ResponseWriter, *http.Request) { called.Add(1) }, func(c *webpush.Config) { c.HTTP.AllowAddresses = nil }, time.Now)
	b := newBrowser(t)
	got := send(t, s, delivery(b.subscription(t, service.URL+"/x")))
	require.Equal(t, sender.Permanent, got.Class, got)
	require.Equal(t, "blocked_address", got.Code)

	good := b.subscription(t, "https://push.example/secret")
	p256dh, auth := b64.EncodeToString(b.key.PublicKey().Bytes()), b64.EncodeToString(b.secret)
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
		got := send(t, s, delivery(address))
		require.Equal(t, sender.InvalidAddress, got.Class, name)
		require.NotEmpty(t, got.Detail, name)
		require.NotContains(t, got.Detail, "secret@", name)
		require.NotContains(t, got.Detail, "push.example", name)
	}
	require.Zero(t, called.Load())
}

// Keys with padding, or in the standard alphabet, are read as well: browsers differ.
func TestSend_ReadsKeysInEitherAlphabet(t *testing.T) {
	t.Parallel()
	service, s := setup(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }, nil, time.Now)
	b := newBrowser(t)
	address, err := json.Marshal(map[string]any{"endpoint": service.URL, "keys": map[string]string{
		"p256dh": base64.StdEncoding.EncodeToString(b.key.PublicKey().Bytes()), "auth": base64.URLEncoding.EncodeToString(b.secret),
	}})
	require.NoError(t, err)
	require.Equal(t, sender.Accepted, send(t, s, delivery(string(address))).Class)
}

func TestSend_TooLargeIsPermanentWithoutACall(t *testing.T) {
	t.Parallel()
	bodies := make(chan int, 1)
	service, s := setup(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- len(body)
		w.WriteHeader(http.StatusCreated)
	}, nil, time.Now)
	d := delivery(newBrowser(t).subscription(t, service.URL))
	d.Title, d.Data = "", []byte("{}")
	frame := len(`{"title":"","body":"","data":{},"key":""}`) + len(d.Key)
	d.Body = strings.Repeat("x", 3993-frame)
	require.Equal(t, sender.Accepted, send(t, s, d).Class)
	require.Equal(t, 4096, <-bodies)
	d.Body += "x"
	require.Equal(t, sender.Result{
		Class: sender.Permanent, Code: "payload_too_large", Detail: "payload is too large: it has 3994 bytes; allowed are 3993",
	}, send(t, s, d))
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	require.EqualError(t, webpush.DefaultConfig().Validate("senders[0].webpush"), strings.Join([]string{
		`senders[0].webpush.private_key: is empty; allowed is a key, or a file in private_key_file`,
		`senders[0].webpush.subject: "" is not allowed; allowed are mailto:user@host and https://host`,
	}, "\n"))
	valid := webpush.DefaultConfig()
	valid.PrivateKey, valid.Subject = privateKey, "https://example.org/contact"
	require.NoError(t, valid.Validate("x"))
	for key, change := range map[string]func(*webpush.Config){
		"private_key":         func(c *webpush.Config) { c.PrivateKey = "topsecret" },
		"private_key: is set": func(c *webpush.Config) { c.PrivateKeyFile = "topsecret" },
		"subject":             func(c *webpush.Config) { c.Subject = "ops@example.org" },
		"ttl":                 func(c *webpush.Config) { c.TTL = -time.Second },
		"urgency":             func(c *webpush.Config) { c.Urgency = "now" },
		"allow_addresses":     func(c *webpush.Config) { c.HTTP.AllowAddresses = []string{"anywhere"} },
	} {
		c := valid
		change(&c)
		err := c.Validate("x")
		require.ErrorContains(t, err, "x."+key)
		require.ErrorContains(t, err, "allowed")
		require.NotContains(t, err.Error(), "topsecret")
		_, err = webpush.New(c, time.Now)
		require.Error(t, err)
	}
}

func TestNew_ReadsTheKeyFromAFile(t *testing.T) {
	t.Parallel()
	cfg := webpush.DefaultConfig()
	cfg.Subject, cfg.PrivateKeyFile = "mailto:ops@example.org", filepath.Join(t.TempDir(), "vapid")
	_, err := webpush.New(cfg, time.Now)
	require.ErrorContains(t, err, "webpush.private_key_file")
	require.NoError(t, os.WriteFile(cfg.PrivateKeyFile, []byte(privateKey+"\n"), 0o600))
	_, err = webpush.New(cfg, time.Now)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cfg.PrivateKeyFile, []byte("topsecret"), 0o600))
	_, err = webpush.New(cfg, time.Now)
	require.EqualError(t, err, "webpush.private_key_file: is not a key; allowed are 32 bytes in base64url")
}
