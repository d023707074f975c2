package provider

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

	"github.com/belfryhq/belfry/outbox/sender"
)

const apnsDeviceToken = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

type apnsBundle struct {
	service *httptest.Server
	sender  Client
	key     *ecdsa.PrivateKey
	clock   *clock
}

func apnsNewKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// apnsSetup starts a service that speaks HTTP/2 over TLS and a sender that trusts it.
func apnsSetup(t *testing.T, handler http.HandlerFunc, adjust func(*APNsConfig)) *apnsBundle {
	t.Helper()
	b := &apnsBundle{clock: &clock{at: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}}
	b.service = httptest.NewUnstartedServer(handler)
	b.service.EnableHTTP2 = true
	b.service.StartTLS()
	t.Cleanup(b.service.Close)
	cfg := DefaultAPNs()
	cfg.Endpoint, cfg.TeamID, cfg.KeyID, cfg.Topic = b.service.URL, "TEAM567890", "KEY4567890", "org.example.app"
	b.key, cfg.Key = apnsNewKey(t)
	cfg.HTTP.CAFile = httpAuthority(t, b.service)
	if adjust != nil {
		adjust(cfg)
	}
	b.sender = open(t, cfg, b.clock.now)
	return b
}

func apnsDelivery() sender.Delivery {
	return sender.Delivery{
		Key: "0190a5c4-0000-8000-8000-000000000001", JobID: 7, ChannelID: 9, Medium: "push", Platform: "ios",
		Address: apnsDeviceToken, Title: "Hello", Body: "안녕", Data: []byte(`{"n":1}`), Attempt: 1,
	}
}

// verify checks a provider token and returns when it was issued.
func (b *apnsBundle) verify(t *testing.T, header string) time.Time {
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
func TestAPNs_SpeaksTheProtocol(t *testing.T) {
	t.Parallel()
	type call struct {
		header http.Header
		line   string
		body   string
	}
	calls := make(chan call, 1)
	b := apnsSetup(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls <- call{r.Header, r.Proto + " " + r.Method + " " + r.URL.Path, string(body)}
		w.Header().Set("Apns-Id", r.Header.Get("Apns-Id"))
	}, nil)
	d := apnsDelivery()
	d.Data = []byte(`{"n":1,"aps":{"badge":3,"thread-id":"t","alert":"other"}}`)
	for range 2 {
		require.Equal(t, sender.Result{Class: sender.Accepted, Code: "200", Detail: "OK"}, deliver(t, b.sender, d))
		got := <-calls
		require.Equal(t, "HTTP/2.0 POST /3/device/"+apnsDeviceToken, got.line)
		require.Equal(t, b.clock.now(), b.verify(t, got.header.Get("Authorization")))
		for name, value := range map[string]string{
			"Apns-Id": d.Key, "Apns-Collapse-Id": d.Key, "Apns-Topic": "org.example.app", "Apns-Push-Type": "alert",
			"Apns-Priority": "10", "Apns-Expiration": fmt.Sprint(b.clock.now().Add(24 * time.Hour).Unix()),
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
func TestAPNs_SpeaksHTTP2WithoutTLS(t *testing.T) {
	t.Parallel()
	protos := make(chan string, 1)
	plain := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		protos <- r.Proto + " " + r.Header.Get("Apns-Expiration")
	}))
	plain.Config.Protocols = new(http.Protocols)
	plain.Config.Protocols.SetUnencryptedHTTP2(true)
	plain.Start()
	t.Cleanup(plain.Close)
	b := apnsSetup(t, nil, func(c *APNsConfig) { c.Endpoint, c.Expiration = plain.URL+"/", 0 })
	require.Equal(t, sender.Accepted, deliver(t, b.sender, apnsDelivery()).Class)
	require.Equal(t, "HTTP/2.0 0", <-protos)
}

// Every class: Apple's "Handling notification responses from APNs".
func TestAPNs_ClassifiesAnswers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		reason string
		class  sender.Class
	}{
		{400, "BadCollapseId", sender.Permanent},
		{400, "BadDeviceToken", sender.InvalidAddress},
		{400, "BadTopic", sender.Permanent},
		{400, "DeviceTokenNotForTopic", sender.Permanent},
		{400, "IdleTimeout", sender.Retryable},
		{400, "PayloadEmpty", sender.Permanent},
		{400, "TopicDisallowed", sender.Permanent},
		{400, "", sender.Permanent},
		{403, "BadCertificateEnvironment", sender.Permanent},
		{403, "InvalidProviderToken", sender.Retryable},
		{403, "MissingProviderToken", sender.Retryable},
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
			b := apnsSetup(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "9")
				w.WriteHeader(test.status)
				if test.reason != "" {
					_, _ = fmt.Fprintf(w, `{"reason":%q,"timestamp":1770000000000}`, test.reason)
				}
			}, nil)
			got := deliver(t, b.sender, apnsDelivery())
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

func TestAPNs_BodiesThatAreNoAnswer(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"garbage": "<html>", "huge": strings.Repeat(`{"reason":"`, 1<<17), "address": `{"reason":"` + apnsDeviceToken + `"}`,
	} {
		b := apnsSetup(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, body)
		}, nil)
		require.Equal(t, sender.Result{Class: sender.Permanent, Code: "400", Detail: "Bad Request"}, deliver(t, b.sender, apnsDelivery()), name)
	}
}

// unknown once the request may have gone out, retryable before.
func TestAPNs_WithoutAnAnswer(t *testing.T) {
	t.Parallel()
	b := apnsSetup(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}, nil)
	got := deliver(t, b.sender, apnsDelivery())
	require.Equal(t, sender.Unknown, got.Class, got)

	b = apnsSetup(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // a 200 in the moment in which the caller hangs up would be an answer
	}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	got = b.sender.Send(ctx, []sender.Delivery{apnsDelivery()})[0]
	require.Equal(t, sender.Unknown, got.Class, got)
	require.Equal(t, "timeout", got.Code)

	b = apnsSetup(t, nil, func(c *APNsConfig) { c.Endpoint = "https://127.0.0.1:1" })
	got = deliver(t, b.sender, apnsDelivery())
	require.Equal(t, sender.Retryable, got.Class, got)
	require.NotContains(t, got.Detail, apnsDeviceToken)

	b = apnsSetup(t, nil, func(c *APNsConfig) { c.HTTP.CAFile = "" })
	got = deliver(t, b.sender, apnsDelivery())
	require.Equal(t, sender.Retryable, got.Class, got)
	require.Equal(t, "tls", got.Code)
}

// The provider token: one for all calls, replaced after 40 minutes.
func TestAPNs_KeepsTheProviderToken(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 1)
	b := apnsSetup(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("Authorization") }, nil)
	token := func() string {
		require.Equal(t, sender.Accepted, deliver(t, b.sender, apnsDelivery()).Class)
		return <-seen
	}
	first := token()
	b.clock.advance(40*time.Minute - time.Second)
	require.Equal(t, first, token())
	b.clock.advance(time.Second)
	second := token()
	require.NotEqual(t, first, second)
	require.Equal(t, b.clock.now(), b.verify(t, second))
}

// ExpiredProviderToken: one new token for everybody, one more call, and never a token
// sooner than 20 minutes after the last.
func TestAPNs_ReplacesAnExpiredProviderToken(t *testing.T) {
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
	b := apnsSetup(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		token := r.Header.Get("Authorization")
		calls = append(calls, token)
		if refused[token] {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"reason":"ExpiredProviderToken"}`)
		}
	}, nil)
	require.Equal(t, sender.Accepted, deliver(t, b.sender, apnsDelivery()).Class)
	mu.Lock()
	refused[calls[0]] = true
	mu.Unlock()

	b.clock.advance(15 * time.Minute) // too early for another token
	require.Equal(t, sender.Result{
		Class: sender.Retryable, Code: "403 ExpiredProviderToken", Detail: "APNs returned ExpiredProviderToken", RetryAfter: 5 * time.Minute,
	}, deliver(t, b.sender, apnsDelivery()))
	require.Len(t, seen(), 2)

	b.clock.advance(5 * time.Minute)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got := b.sender.Send(t.Context(), []sender.Delivery{apnsDelivery()})[0]; got.Class != sender.Accepted {
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
	b.clock.advance(20 * time.Minute)
	require.Equal(t, sender.Accepted, deliver(t, b.sender, apnsDelivery()).Class)
	require.Len(t, seen(), 2)
}

// What cannot be sent makes no call.
func TestAPNs_RefusesWithoutACall(t *testing.T) {
	t.Parallel()
	b := apnsSetup(t, func(http.ResponseWriter, *http.Request) { t.Error("called") }, nil)
	for _, address := range []string{"", "../../evil", "a b", "token\r\nX: y", "%2e%2e", strings.Repeat("a", 513)} {
		d := apnsDelivery()
		d.Address = address
		require.Equal(t, refuseAddress("token", "the address is not a device token; allowed values: hexadecimal digits"), deliver(t, b.sender, d), address)
	}
	for data, detail := range map[string]string{`[]`: "data is not a JSON object", `{"aps":1}`: "data.aps is not a JSON object"} {
		d := apnsDelivery()
		d.Data = []byte(data)
		require.Equal(t, sender.Result{Class: sender.Permanent, Code: "payload", Detail: detail, Refusal: sender.RefusedContent}, deliver(t, b.sender, d))
	}
	d := apnsDelivery()
	d.Body = strings.Repeat("x", 4096)
	got := deliver(t, b.sender, d)
	require.Equal(t, sender.Permanent, got.Class)
	require.Equal(t, "payload_too_large", got.Code)
	require.Contains(t, got.Detail, "the maximum is 4096")
}

func TestAPNs_Validate(t *testing.T) {
	t.Parallel()
	require.EqualError(t, Validate("senders[1].apns", DefaultAPNs()), strings.Join([]string{
		`senders[1].apns.team_id: "" is not allowed; allowed values: 10 letters and digits`,
		`senders[1].apns.key_id: "" is not allowed; allowed values: 10 letters and digits`,
		`senders[1].apns.key: is empty; set the content of a .p8 file, or its name in key_file`,
		`senders[1].apns.topic: "" is not allowed; allowed values: a bundle id: letters, digits, dots and hyphens`,
	}, "\n"))
	valid := DefaultAPNs()
	valid.TeamID, valid.KeyID, valid.Topic = "TEAM567890", "KEY4567890", "org.example.app"
	_, valid.Key = apnsNewKey(t)
	refuses(t, valid, map[string]func(*APNsConfig){
		"endpoint":        func(c *APNsConfig) { c.Endpoint = "api.push.apple.com" },
		"key: is not PEM": func(c *APNsConfig) { c.Key = "topsecret" },
		"key: holds no":   func(c *APNsConfig) { c.Key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" },
		"key: is set":     func(c *APNsConfig) { c.KeyFile = "topsecret" },
		"key: holds another": func(c *APNsConfig) {
			key, err := rsa.GenerateKey(rand.Reader, 2048)
			require.NoError(t, err)
			der, err := x509.MarshalPKCS8PrivateKey(key)
			require.NoError(t, err)
			c.Key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
		},
		"topic":              func(c *APNsConfig) { c.Topic = "a b" },
		"priority":           func(c *APNsConfig) { c.Priority = 7 },
		"expiration":         func(c *APNsConfig) { c.Expiration = -1 },
		"sound":              func(c *APNsConfig) { c.Sound = strings.Repeat("x", 101) },
		"allow_addresses[0]": func(c *APNsConfig) { c.HTTP.AllowAddresses = []string{"anywhere"} },
	})
}

func TestAPNs_ReadsTheKeyFromAFile(t *testing.T) {
	t.Parallel()
	_, text := apnsNewKey(t)
	path := filepath.Join(t.TempDir(), "key.p8")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	b := apnsSetup(t, func(http.ResponseWriter, *http.Request) {}, func(c *APNsConfig) { c.Key, c.KeyFile = "", path })
	require.Equal(t, sender.Accepted, deliver(t, b.sender, apnsDelivery()).Class)

	cfg := DefaultAPNs()
	cfg.TeamID, cfg.KeyID, cfg.Topic, cfg.KeyFile = "TEAM567890", "KEY4567890", "org.example.app", path+".none"
	_, err := New(cfg, time.Now)
	require.ErrorContains(t, err, "apns.key_file")
	cfg.KeyFile = path
	require.NoError(t, os.WriteFile(path, []byte("topsecret"), 0o600))
	_, err = New(cfg, time.Now)
	require.EqualError(t, err, "apns.key_file: is not PEM; allowed values: a .p8 file with a P-256 private key")
}
