package provider

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/sender"
)

var fcmPrivateKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func fcmServiceAccount(t *testing.T, tokenURI string) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(fcmPrivateKey())
	require.NoError(t, err)
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "belfry-test", "private_key_id": "key1", "client_email": "push@belfry-test.iam.gserviceaccount.com",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": tokenURI,
	})
	require.NoError(t, err)
	return string(text)
}

// fcmGoogle plays the token endpoint and FCM. Handlers are nil where all goes well.
type fcmGoogle struct {
	*httptest.Server
	clock *clock

	mu      sync.Mutex
	asked   int      // tokens asked for
	posted  []string // bodies of messages, in order
	bearers []string // their tokens
	onToken http.HandlerFunc
	onPost  http.HandlerFunc
}

func fcmStart(t *testing.T) *fcmGoogle {
	t.Helper()
	g := &fcmGoogle{clock: &clock{at: time.Unix(1_800_000_000, 0)}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", g.token)
	mux.HandleFunc("POST /v1/projects/belfry-test/messages:send", g.post)
	g.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		g.CloseClientConnections()
		g.Close()
	})
	return g
}

func (g *fcmGoogle) set(onToken, onPost http.HandlerFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onToken, g.onPost = onToken, onPost
}

func (g *fcmGoogle) counts() (asked, posted int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked, len(g.posted)
}

func (g *fcmGoogle) token(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.asked++
	asked, handler := g.asked, g.onToken
	g.mu.Unlock()
	if handler != nil {
		handler(w, r)
		return
	}
	if err := g.verify(r.FormValue("assertion")); err != nil || r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"error":"invalid_grant","error_description":"%v"}`, err)
		return
	}
	_, _ = fmt.Fprintf(w, `{"access_token":"token%d","expires_in":3599,"token_type":"Bearer"}`, asked)
}

// verify checks an assertion as Google does.
func (g *fcmGoogle) verify(assertion string) error {
	parts := strings.Split(assertion, ".")
	if len(parts) != 3 {
		return fmt.Errorf("%d parts", len(parts))
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&fcmPrivateKey().PublicKey, crypto.SHA256, digest[:], signature); err != nil {
		return err
	}
	header, _ := base64.RawURLEncoding.DecodeString(parts[0])
	if string(header) != `{"alg":"RS256","kid":"key1","typ":"JWT"}` {
		return fmt.Errorf("header %s", header)
	}
	text, _ := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Iss, Scope, Aud string
		Iat, Exp        int64
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		return err
	}
	now := g.clock.now().Unix()
	if claims.Iss != "push@belfry-test.iam.gserviceaccount.com" || claims.Aud != g.URL+"/token" ||
		claims.Scope != "https://www.googleapis.com/auth/firebase.messaging" || claims.Iat > now || claims.Exp <= now || claims.Exp > claims.Iat+3600 {
		return fmt.Errorf("claims %s", text)
	}
	return nil
}

func (g *fcmGoogle) post(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	g.mu.Lock()
	g.posted = append(g.posted, string(body))
	g.bearers = append(g.bearers, r.Header.Get("Authorization"))
	handler := g.onPost
	g.mu.Unlock()
	if handler != nil {
		handler(w, r)
		return
	}
	_, _ = io.WriteString(w, "{\n  \"name\": \"projects/belfry-test/messages/0:1500415314455276%31bd1c9631bd1c96\"\n}\n")
}

func (g *fcmGoogle) config(t *testing.T) *FCMConfig {
	t.Helper()
	cfg := DefaultFCM()
	cfg.Endpoint = g.URL
	cfg.ServiceAccount = fcmServiceAccount(t, g.URL+"/token")
	return cfg
}

func (g *fcmGoogle) sender(t *testing.T, cfg *FCMConfig) Client {
	t.Helper()
	return open(t, cfg, g.clock.now)
}

func fcmDelivery() sender.Delivery {
	return sender.Delivery{
		Key: "0193a1b2-0000-8000-8000-000000000001", JobID: 7, ChannelID: 42, ExternalID: "u42", Category: "operator_notice", Medium: "push",
		Platform: "android", Address: "device-token", Title: "안녕", Body: "two\nlines", Data: json.RawMessage(`{}`), Attempt: 1,
	}
}
