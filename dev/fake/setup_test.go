package fake_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/dev/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait; nothing normally takes that long.
const patience = 20 * time.Second

// bench is a server and what a caller of it needs.
type bench struct {
	*fake.Server

	t          *testing.T
	settings   map[string]map[string]any // of senders, by kind
	plain, h2c *http.Client
}

func setup(t *testing.T, change ...func(*fake.Config)) *bench {
	t.Helper()
	c := fake.DefaultConfig()
	for _, f := range change {
		f(&c)
	}
	s, err := fake.Start(t.Context(), c)
	require.NoError(t, err)
	b := &bench{Server: s, t: t, settings: make(map[string]map[string]any)}
	for _, sender := range s.Senders() {
		b.settings[sender.Kind] = sender.Settings
	}
	h2c := new(http.Protocols)
	h2c.SetUnencryptedHTTP2(true)
	b.plain = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	b.h2c = &http.Client{Transport: &http.Transport{Protocols: h2c}}
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		b.plain.CloseIdleConnections()
		b.h2c.CloseIdleConnections()
	})
	return b
}

// setting is what a sender of a kind is configured with.
func (b *bench) setting(kind, name string) string { return fmt.Sprint(b.settings[kind][name]) }

// order replaces the faults in force.
func (b *bench) order(texts ...string) { require.NoError(b.t, b.SetFaults(faults(texts...))) }

func faults(texts ...string) []fake.Fault {
	list, err := fake.ParseFaults("[" + strings.Join(texts, ", ") + "]")
	if err != nil {
		panic(err) // texts in tests
	}
	return list
}

// answer is what a caller saw.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

// do makes a call and reads all of the answer, or up to 1 MiB of it.
func (b *bench) do(ctx context.Context, client *http.Client, r *http.Request) answer {
	response, err := client.Do(r.WithContext(ctx))
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return answer{status: response.StatusCode, header: response.Header, body: string(body), err: err}
}

func (b *bench) request(method, url, body string, headers ...string) *http.Request {
	r, err := http.NewRequestWithContext(b.t.Context(), method, url, strings.NewReader(body))
	require.NoError(b.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func sign(key string, text string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// token makes a JSON Web Token.
func token(t *testing.T, key crypto.Signer, header, claims map[string]any) string {
	t.Helper()
	part := func(v any) string {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(header) + "." + part(claims)
	digest := sha256.Sum256([]byte(text))
	var signature []byte
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
		require.NoError(t, err)
		signature = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	case *rsa.PrivateKey:
		var err error
		signature, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
		require.NoError(t, err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func privateKey(t *testing.T, text string) crypto.Signer {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	require.NotNil(t, block)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	require.NoError(t, err)
	return key.(crypto.Signer)
}

func (b *bench) webhook(ctx context.Context, key, address string) answer {
	secret, err := base64.StdEncoding.DecodeString(strings.Trim(b.setting("webhook", "secrets"), "[]")[len("whsec_"):])
	require.NoError(b.t, err)
	body, now := `{"title":"Hello","body":"there"}`, strconv.FormatInt(time.Now().Unix(), 10)
	return b.do(ctx, b.plain, b.request("POST", b.URL()+"/webhook/"+address, body,
		"webhook-id", key, "webhook-timestamp", now, "webhook-signature", "v1,"+sign(string(secret), key+"."+now+"."+body)))
}

func (b *bench) sms(ctx context.Context, key, address string) answer {
	body := fmt.Sprintf(`{"to":%q,"text":"there"}`, address)
	return b.do(ctx, b.plain, b.request("POST", b.URL()+"/sms", body, "Idempotency-Key", key, "Authorization", "Bearer "+b.setting("sms", "secret")))
}

// fcmToken asks for an access token as a service account does.
func (b *bench) fcmToken(ctx context.Context) answer {
	var account struct {
		PrivateKey  string `json:"private_key"`
		ClientEmail string `json:"client_email"`
		TokenURI    string `json:"token_uri"`
	}
	require.NoError(b.t, json.Unmarshal([]byte(b.setting("fcm", "service_account")), &account))
	now := time.Now().Unix()
	assertion := token(b.t, privateKey(b.t, account.PrivateKey), map[string]any{"alg": "RS256", "typ": "JWT"}, map[string]any{
		"iss": account.ClientEmail, "scope": "https://www.googleapis.com/auth/firebase.messaging", "aud": account.TokenURI, "iat": now, "exp": now + 3600,
	})
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}}
	return b.do(ctx, b.plain, b.request("POST", account.TokenURI, form.Encode(), "Content-Type", "application/x-www-form-urlencoded"))
}

func (b *bench) fcm(ctx context.Context, key, address string) answer {
	return b.fcmData(ctx, address, fmt.Sprintf(`{"belfry_key":%q}`, key))
}

func (b *bench) fcmData(ctx context.Context, address, data string) answer {
	var grant struct {
		Token string `json:"access_token"`
	}
	require.NoError(b.t, json.Unmarshal([]byte(b.fcmToken(b.t.Context()).body), &grant))
	body := fmt.Sprintf(`{"message":{"token":%q,"notification":{"title":"Hello","body":"there"},"data":%s}}`, address, data)
	return b.do(ctx, b.plain, b.request("POST", b.URL()+"/v1/projects/belfry-fake/messages:send", body, "Authorization", "Bearer "+grant.Token))
}

func (b *bench) apns(ctx context.Context, key, address string) answer {
	proof := token(b.t, privateKey(b.t, b.setting("apns", "key")), map[string]any{"alg": "ES256", "kid": b.setting("apns", "key_id")},
		map[string]any{"iss": b.setting("apns", "team_id"), "iat": time.Now().Unix()})
	return b.do(ctx, b.h2c, b.request("POST", b.URL()+"/3/device/"+address, `{"aps":{"alert":{"title":"Hello","body":"there"}}}`,
		"Authorization", "bearer "+proof, "apns-topic", "app", "apns-id", key))
}

// encrypt is RFC 8291's sending side; tail is the delimiter and padding.
func encrypt(t *testing.T, p256dh, auth string, plain []byte, tail ...byte) []byte {
	t.Helper()
	point, err := base64.RawURLEncoding.DecodeString(p256dh)
	require.NoError(t, err)
	secret, err := base64.RawURLEncoding.DecodeString(auth)
	require.NoError(t, err)
	receiver, err := ecdh.P256().NewPublicKey(point)
	require.NoError(t, err)
	sender, err := ecdh.P256().GenerateKey(rand.Reader)
	require.NoError(t, err)
	shared, err := sender.ECDH(receiver)
	require.NoError(t, err)
	salt := []byte("sixteen bytes of")
	input, err := hkdf.Key(sha256.New, shared, secret, "WebPush: info\x00"+string(point)+string(sender.PublicKey().Bytes()), 32)
	require.NoError(t, err)
	key, err := hkdf.Key(sha256.New, input, salt, "Content-Encoding: aes128gcm\x00", 16)
	require.NoError(t, err)
	nonce, err := hkdf.Key(sha256.New, input, salt, "Content-Encoding: nonce\x00", 12)
	require.NoError(t, err)
	block, err := aes.NewCipher(key)
	require.NoError(t, err)
	gcm, err := cipher.NewGCM(block)
	require.NoError(t, err)
	var body bytes.Buffer
	body.Write(salt)
	body.Write(binary.BigEndian.AppendUint32(nil, 4096))
	body.WriteByte(65)
	body.Write(sender.PublicKey().Bytes())
	body.Write(gcm.Seal(nil, nonce, append(bytes.Clone(plain), tail...), nil))
	return body.Bytes()
}

func (b *bench) webpush(ctx context.Context, key, address string) answer {
	var sub struct {
		Endpoint string
		Keys     struct{ P256DH, Auth string }
	}
	require.NoError(b.t, json.Unmarshal([]byte(b.Subscription(address)), &sub))
	body := encrypt(b.t, sub.Keys.P256DH, sub.Keys.Auth, fmt.Appendf(nil, `{"title":"Hello","body":"there","key":%q}`, key), 2, 0)
	return b.pushFor(ctx, sub.Endpoint, string(body))
}

// push posts an encrypted body to an endpoint, with VAPID.
func (b *bench) push(endpoint, body string) answer { return b.pushFor(b.t.Context(), endpoint, body) }

func (b *bench) pushFor(ctx context.Context, endpoint, body string) answer {
	scalar, err := base64.RawURLEncoding.DecodeString(b.setting("webpush", "private_key"))
	require.NoError(b.t, err)
	signer, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar)
	require.NoError(b.t, err)
	public, err := signer.PublicKey.Bytes()
	require.NoError(b.t, err)
	proof := token(b.t, signer, map[string]any{"alg": "ES256"}, map[string]any{
		"aud": b.URL(), "exp": time.Now().Add(time.Hour).Unix(), "sub": "mailto:ops@example.com",
	})
	return b.do(ctx, b.plain, b.request("POST", endpoint, body, "TTL", "60", "Content-Encoding", "aes128gcm",
		"Authorization", "vapid t="+proof+", k="+base64.RawURLEncoding.EncodeToString(public)))
}

// sens makes a signed call of Naver Cloud SENS.
func (b *bench) sens(ctx context.Context, method, path, body string) answer {
	path = "/alimtalk/v2/services/" + b.setting("alimtalk", "service_id") + "/messages" + path
	now := strconv.FormatInt(time.Now().UnixMilli(), 10)
	return b.do(ctx, b.plain, b.request(method, b.URL()+path, body, "x-ncp-apigw-timestamp", now, "x-ncp-iam-access-key", b.setting("alimtalk", "access_key"),
		"x-ncp-apigw-signature-v2", sign(b.setting("alimtalk", "secret_key"), method+" "+path+"\n"+now+"\n"+b.setting("alimtalk", "access_key"))))
}

func (b *bench) alimtalk(ctx context.Context, _, address string) answer {
	return b.sens(ctx, "POST", "", fmt.Sprintf(`{"plusFriendId":"@us","templateCode":"t1","messages":[{"to":%q,"content":"there"}]}`, address))
}

// senders are the HTTP providers' callers.
func (b *bench) senders() map[fake.Provider]func(context.Context, string, string) answer {
	senders := make(map[fake.Provider]func(context.Context, string, string) answer)
	senders[fake.Webhook], senders[fake.SMS], senders[fake.FCM] = b.webhook, b.sms, b.fcm
	senders[fake.APNs], senders[fake.WebPush], senders[fake.AlimTalk] = b.apns, b.webpush, b.alimtalk
	return senders
}

// until waits until a condition holds.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, time.Millisecond)
}

// balanced wants the sums that a Tally states.
func balanced(t *testing.T, all fake.Tally) {
	t.Helper()
	require.Equal(t, all.Calls, all.Accepted+all.Refusals()+all.Dropped, "%+v", all)
	require.Equal(t, all.Accepted, all.DistinctKeys+all.Duplicates+all.Repeats+all.Keyless, "%+v", all)
}
