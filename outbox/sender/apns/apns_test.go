package apns_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/apns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deviceToken = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

// clock is moved by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

type bundle struct {
	service *httptest.Server
	sender  *sender.OneByOne
	key     *ecdsa.PrivateKey
	clock   *clock
}

func newKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// setup starts a service that speaks HTTP/2 over TLS and a sender that trusts it.
func setup(t *testing.T, handler http.HandlerFunc, adjust func(*apns.Config)) *bundle {
	t.Helper()
	b := &bundle{clock: &clock{now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}}
	b.service = httptest.NewUnstartedServer(handler)
	b.service.EnableHTTP2 = true
	b.service.StartTLS()
	t.Cleanup(b.service.Close)
	cfg := apns.DefaultConfig()
	cfg.Endpoint, cfg.TeamID, cfg.KeyID, cfg.Topic = b.service.URL, "TEAM567890", "KEY4567890", "org.example.app"
	b.key, cfg.Key = newKey(t)
	cfg.HTTP.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(cfg.HTTP.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.service.Certificate().Raw}), 0o600))
	if adjust != nil {
		adjust(&cfg)
	}
	var err error
	b.sender, err = apns.New(cfg, b.clock.Now)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.sender.Close()) })
	return b
}

func delivery() sender.Delivery {
	return sender.Delivery{
		Key: "0190a5c4-0000-8000-8000-000000000001", JobID: 7, ChannelID: 9, Medium: "push", Platform: "ios",
		Address: deviceToken, Title: "Hello", Body: "안녕", Data: []byte(`{"n":1}`), Attempt: 1,
	}
}

func (b *bundle) send(t *testing.T, d sender.Delivery) sender.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	results := b.sender.Send(ctx, []sender.Delivery{d})
	require.Len(t, results, 1)
	return results[0]
}

// verify checks a provider token and returns when it was issued.
func (b *bundle) verify(t *testing.T, header string) time.Time {
	t.Helper()
	parts := strings.Split(strings.TrimPrefix(header, "bearer "), ".")
	require.Len(t, parts, 3)
	decode := func(part string) []byte {
		out, err := base64.RawURLEncoding.DecodeString(part)
		require.NoError(t, err)
		return out
	}
	require.JSONEq(t, `{"alg":"ES256","kid":"KEY4567890"}`, string(decode(parts[0])))
	signature, digest := decode(parts[2]), sha256.Sum256([]byte(parts[0]+"."+parts[1]))
	require.True(t, ecdsa.Verify(&b.key.PublicKey, digest[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])))
	var claims struct {
		Iss string `json:"iss"`
		Iat int64  `json:"iat"`
	}
	require.NoError(t, json.Unmarshal(decode(parts[1]), &claims))
	require.Equal(t, "TEAM567890", claims.Iss)
	return time.Unix(claims.Iat, 0).UTC()
}

// I9: the key is apns-id and apns-collapse-id of every attempt.
func TestSend_SpeaksTheProtocol(t *testing.T) {
	t.Parallel()
	type call struct {
		header http.Header
		line   string
		body   string
	}
	calls := make(chan call, 1)
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls <- call{r.Header, r.Proto + " " + r.Method + " " + r.URL.Path, string(body)}
		w.Header().Set("Apns-Id", r.Header.Get("Apns-Id"))
	}, nil)
	d := delivery()
	d.Data = []byte(`{"n":1,"aps":{"badge":3,"thread-id":"t","alert":"other"}}`)
	for range 2 {
		require.Equal(t, sender.Result{Class: sender.Accepted, Code: "200", Detail: "OK"}, b.send(t, d))
		got := <-calls
		require.Equal(t, "HTTP/2.0 POST /3/device/"+deviceToken, got.line)
		require.Equal(t, b.clock.Now(), b.verify(t, got.header.Get("Authorization")))
		for name, value := range map[string]string{
			"Apns-Id": d.Key, "Apns-Collapse-Id": d.Key, "Apns-Topic": "org.example.app", "Apns-Push-Type": "alert",
			"Apns-Priority": "10", "Apns-Expiration": fmt.Sprint(b.clock.Now().Add(24 * time.Hour).Unix()),
		} {
			require.Equal(t, value, got.header.Get(name), name)
		}
		require.JSONEq(t, `{
			"aps": {"alert": {"title": "Hello", "body": "안녕"}, "sound": "default", "badge": 3, "thread-id": "t"},
			"data": {"n": 1}, "key": "0190a5c4-0000-8000-8000-000000000001"
		}`, got.body)
	}
}

// A test's or a proxy's plain HTTP/2 is spoken with prior knowledge.
func TestSend_SpeaksHTTP2WithoutTLS(t *testing.T) {
	t.Parallel()
	protos := make(chan string, 1)
	plain := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		protos <- r.Proto + " " + r.Header.Get("Apns-Expiration")
	}))
	plain.Config.Protocols = new(http.Protocols)
	plain.Config.Protocols.SetUnencryptedHTTP2(true)
	plain.Start()
	t.Cleanup(plain.Close)
	b := setup(t, nil, func(c *apns.Config) { c.Endpoint, c.Expiration = plain.URL+"/", 0 })
	require.Equal(t, sender.Accepted, b.send(t, delivery()).Class)
	require.Equal(t, "HTTP/2.0 0", <-protos)
}

// Every class: Apple's "Handling notification responses from APNs".
func TestSend_ClassifiesAnswers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		reason string
		class  sender.Class
	}{
		{400, "BadCollapseId", sender.Permanent},
		{400, "BadDeviceToken", sender.InvalidAddress},
		{400, "BadTopic", sender.Permanent},
		{400, "DeviceTokenNotForTopic", sender.InvalidAddress},
		{400, "IdleTimeout", sender.Retryable},
		{400, "PayloadEmpty", sender.Permanent},
		{400, "TopicDisallowed", sender.Permanent},
		{400, "", sender.Permanent},
		{403, "BadCertificateEnvironment", sender.Permanent},
		{403, "InvalidProviderToken", sender.Permanent},
		{403, "MissingProviderToken", sender.Permanent},
		{404, "BadPath", sender.Permanent},
		{405, "MethodNotAllowed", sender.Permanent},
		{410, "ExpiredToken", sender.InvalidAddress},
		{410, "Unregistered", sender.InvalidAddress},
		{410, "", sender.InvalidAddress},
		{413, "PayloadTooLarge", sender.Permanent},
		{429, "TooManyProviderTokenUpdates", sender.Retryable},
		{429, "TooManyRequests", sender.Retryable},
		{500, "InternalServerError", sender.Retryable},
		{500, "BadDeviceToken", sender.Retryable}, // a provider in trouble condemns no address
		{502, "", sender.Unknown},
		{503, "ServiceUnavailable", sender.Retryable},
		{503, "Shutdown", sender.Retryable},
	} {
		t.Run(fmt.Sprint(test.status, test.reason), func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "9")
				w.WriteHeader(test.status)
				if test.reason != "" {
					_, _ = fmt.Fprintf(w, `{"reason":%q,"timestamp":1770000000000}`, test.reason)
				}
			}, nil)
			got := b.send(t, delivery())
			require.Equal(t, test.class, got.Class, got)
			require.Equal(t, strings.TrimSpace(fmt.Sprint(test.status, " ", test.reason)), got.Code)
			require.NotEmpty(t, got.Detail)
			if test.class == sender.Retryable {
				require.Equal(t, 9*time.Second, got.RetryAfter)
			} else if test.class != sender.Unknown {
				require.Zero(t, got.RetryAfter)
			}
		})
	}
}

func TestSend_BodiesThatAreNoAnswer(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"garbage": "<html>", "huge": strings.Repeat(`{"reason":"`, 1<<17), "address": `{"reason":"` + deviceToken + `"}`,
	} {
		b := setup(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, body)
		}, nil)
		require.Equal(t, sender.Result{Class: sender.Permanent, Code: "400", Detail: "Bad Request"}, b.send(t, delivery()), name)
	}
}

// unknown once the request may have gone out, retryable before.
func TestSend_WithoutAnAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}, nil)
	got := b.send(t, delivery())
	require.Equal(t, sender.Unknown, got.Class, got)

	b = setup(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // a 200 in the moment in which the caller hangs up would be an answer
	}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // enough to send it beside any load
	defer cancel()
	got = b.sender.Send(ctx, []sender.Delivery{delivery()})[0]
	require.Equal(t, sender.Unknown, got.Class, got)
	require.Equal(t, "timeout", got.Code)

	b = setup(t, nil, func(c *apns.Config) { c.Endpoint = "https://127.0.0.1:1" })
	got = b.send(t, delivery())
	require.Equal(t, sender.Retryable, got.Class, got)
	require.NotContains(t, got.Detail, deviceToken)

	b = setup(t, nil, func(c *apns.Config) { c.HTTP.CAFile = "" })
	got = b.send(t, delivery())
	require.Equal(t, sender.Retryable, got.Class, got)
	require.Equal(t, "tls", got.Code)
}

// The provider token: one for all calls, replaced after 40 minutes.
func TestSend_KeepsTheProviderToken(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	b := setup(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("Authorization") }, nil)
	token := func() string {
		require.Equal(t, sender.Accepted, b.send(t, delivery()).Class)
		return <-seen
	}
	first := token()
	b.clock.Add(40*time.Minute - time.Second)
	require.Equal(t, first, token())
	b.clock.Add(time.Second)
	second := token()
	require.NotEqual(t, first, second)
	require.Equal(t, b.clock.Now(), b.verify(t, second))
}

// ExpiredProviderToken: one new token for everybody, one more call, and never a token
// sooner than 20 minutes after the last.
func TestSend_ReplacesAnExpiredProviderToken(t *testing.T) {
	t.Parallel()
	var (
		mu      sync.Mutex
		refused = map[string]bool{}
		calls   []string
	)
	seen := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(calls)
	}
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		token := r.Header.Get("Authorization")
		calls = append(calls, token)
		if refused[token] {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"reason":"ExpiredProviderToken"}`)
		}
	}, nil)
	require.Equal(t, sender.Accepted, b.send(t, delivery()).Class)
	mu.Lock()
	refused[calls[0]] = true
	mu.Unlock()

	b.clock.Add(15 * time.Minute) // too early for another token
	require.Equal(t, sender.Result{
		Class: sender.Retryable, Code: "403 ExpiredProviderToken", Detail: "APNs says ExpiredProviderToken", RetryAfter: 5 * time.Minute,
	}, b.send(t, delivery()))
	require.Len(t, seen(), 2)

	b.clock.Add(5 * time.Minute)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got := b.sender.Send(t.Context(), []sender.Delivery{delivery()})[0]; got.Class != sender.Accepted {
				t.Error(got)
			}
		})
	}
	all.Wait()
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(seen()))), 2)

	mu.Lock() // every token is called expired: two calls, no more
	for _, token := range calls {
		refused[token] = true
	}
	calls = nil
	mu.Unlock()
	b.clock.Add(20 * time.Minute)
	require.Equal(t, sender.Accepted, b.send(t, delivery()).Class)
	require.Len(t, seen(), 2)
}

// What cannot be sent makes no call.
func TestSend_RefusesWithoutACall(t *testing.T) {
	t.Parallel()
	b := setup(t, func(http.ResponseWriter, *http.Request) { t.Error("called") }, nil)
	for _, address := range []string{"", "../../evil", "a b", "token\r\nX: y", "%2e%2e", strings.Repeat("a", 513)} {
		d := delivery()
		d.Address = address
		require.Equal(t, sender.InvalidAddress, b.send(t, d).Class, address)
	}
	for data, detail := range map[string]string{`[]`: "data is not a JSON object", `{"aps":1}`: "data.aps is not a JSON object"} {
		d := delivery()
		d.Data = []byte(data)
		require.Equal(t, sender.Result{Class: sender.Permanent, Code: "payload", Detail: detail}, b.send(t, d))
	}
	d := delivery()
	d.Body = strings.Repeat("x", 4096)
	got := b.send(t, d)
	require.Equal(t, sender.Permanent, got.Class)
	require.Equal(t, "payload_too_large", got.Code)
	require.Contains(t, got.Detail, "allowed are 4096")
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	require.EqualError(t, apns.DefaultConfig().Validate("senders[1].apns"), strings.Join([]string{
		`senders[1].apns.team_id: "" is not allowed; allowed are 10 letters and digits`,
		`senders[1].apns.key_id: "" is not allowed; allowed are 10 letters and digits`,
		`senders[1].apns.key: is empty; allowed is the content of a .p8 file, or its name in key_file`,
		`senders[1].apns.topic: "" is not allowed; allowed is a bundle id: letters, digits, dots and hyphens`,
	}, "\n"))
	valid := apns.DefaultConfig()
	valid.TeamID, valid.KeyID, valid.Topic = "TEAM567890", "KEY4567890", "org.example.app"
	_, valid.Key = newKey(t)
	require.NoError(t, valid.Validate("x"))
	for key, change := range map[string]func(*apns.Config){
		"endpoint":        func(c *apns.Config) { c.Endpoint = "api.push.apple.com" },
		"key: is not PEM": func(c *apns.Config) { c.Key = "topsecret" },
		"key: holds no":   func(c *apns.Config) { c.Key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" },
		"key: is set":     func(c *apns.Config) { c.KeyFile = "topsecret" },
		"key: holds another": func(c *apns.Config) {
			key, err := rsa.GenerateKey(rand.Reader, 2048)
			require.NoError(t, err)
			der, err := x509.MarshalPKCS8PrivateKey(key)
			require.NoError(t, err)
			c.Key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
		},
		"topic":           func(c *apns.Config) { c.Topic = "a b" },
		"priority":        func(c *apns.Config) { c.Priority = 7 },
		"expiration":      func(c *apns.Config) { c.Expiration = -1 },
		"sound":           func(c *apns.Config) { c.Sound = strings.Repeat("x", 101) },
		"allow_addresses": func(c *apns.Config) { c.HTTP.AllowAddresses = []string{"anywhere"} },
	} {
		c := valid
		change(&c)
		err := c.Validate("x")
		require.ErrorContains(t, err, "x."+key)
		require.ErrorContains(t, err, "allowed")
		require.NotContains(t, err.Error(), "topsecret")
		_, err = apns.New(c, time.Now)
		require.Error(t, err)
	}
}

func TestNew_ReadsTheKeyFromAFile(t *testing.T) {
	t.Parallel()
	_, text := newKey(t)
	path := filepath.Join(t.TempDir(), "key.p8")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	b := setup(t, func(http.ResponseWriter, *http.Request) {}, func(c *apns.Config) { c.Key, c.KeyFile = "", path })
	require.Equal(t, sender.Accepted, b.send(t, delivery()).Class)

	cfg := apns.DefaultConfig()
	cfg.TeamID, cfg.KeyID, cfg.Topic, cfg.KeyFile = "TEAM567890", "KEY4567890", "org.example.app", path+".none"
	_, err := apns.New(cfg, time.Now)
	require.ErrorContains(t, err, "apns.key_file")
	cfg.KeyFile = path
	require.NoError(t, os.WriteFile(path, []byte("topsecret"), 0o600))
	_, err = apns.New(cfg, time.Now)
	require.EqualError(t, err, "apns.key_file: is not PEM; allowed is a .p8 file with a P-256 private key")
}
