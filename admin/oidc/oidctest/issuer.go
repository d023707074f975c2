// Package oidctest is an OpenID Connect provider for tests. It signs real tokens and enforces PKCE: a
// code is valid once, for the client, the redirect URI and the verifier of its authorization request.
package oidctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"time"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	lib "github.com/coreos/go-oidc/v3/oidc/oidctest"

	"github.com/belfryhq/belfry/internal/text"
)

// The issuer's only client.
const (
	ClientID     = "belfry"
	ClientSecret = "the-client's-secret,100%+of=it"
)

const accessToken = "an-access-token"

// Issuer is a provider. The fields are set before its first request.
type Issuer struct {
	*httptest.Server

	// Public makes the client a public client without a secret.
	Public bool
	// SecretInBody rejects a secret in the Authorization header.
	SecretInBody bool
	// Lax accepts a code more than once.
	Lax bool
	// Claims changes the claims of a token.
	Claims func(claims map[string]any)
	// Userinfo returns the claims of the userinfo endpoint. Nil disables the endpoint.
	Userinfo func() map[string]any
	// Sign replaces Signed.
	Sign func(claims map[string]any) string
	// Published changes the discovery document.
	Published func(document map[string]any)
	// Answer may respond in place of the issuer and then returns true.
	Answer func(w http.ResponseWriter, req *http.Request) bool

	key *ecdsa.PrivateKey

	mu    sync.Mutex
	codes map[string]url.Values // the authorization request of each code
	calls map[string]int        // by path
}

// New starts an issuer. The caller closes it.
func New() *Issuer {
	i := &Issuer{key: text.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
	i.codes, i.calls = make(map[string]url.Values), make(map[string]int)
	i.Server = httptest.NewServer(http.HandlerFunc(i.serve))
	return i
}

// Calls returns the number of requests to a path, such as /keys or /token.
func (i *Issuer) Calls(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.calls[path]
}

// Signed returns a token with claims, signed with the issuer's key.
func (i *Issuer) Signed(claims map[string]any) string {
	return lib.SignIDToken(i.key, "k", goidc.ES256, encoded(claims))
}

// Authorize plays a browser that is redirected to location and whose user signs in. It returns the
// query of the redirect to the client.
func (i *Issuer) Authorize(location string) (url.Values, error) {
	at, err := url.Parse(location)
	if err != nil {
		return nil, err
	}
	request := at.Query()
	if !strings.HasPrefix(location, i.URL+"/auth?") || request.Get("response_type") != "code" || request.Get("client_id") != ClientID ||
		request.Get("code_challenge_method") != "S256" || len(request.Get("code_challenge")) != 43 || len(request.Get("state")) < 32 ||
		len(request.Get("nonce")) < 32 {
		return nil, fmt.Errorf("invalid authorization request: %s", location)
	}
	code := rand.Text()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.codes[code] = request
	return url.Values{"code": {code}, "state": {request.Get("state")}}, nil
}

func (i *Issuer) serve(w http.ResponseWriter, req *http.Request) {
	i.mu.Lock()
	i.calls[req.URL.Path]++
	i.mu.Unlock()
	if i.Answer != nil && i.Answer(w, req) {
		return
	}
	switch req.URL.Path {
	case "/token":
		i.token(w, req)
	case "/.well-known/openid-configuration":
		document := map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/auth", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
			"userinfo_endpoint":                     i.URL + "/userinfo",
			"id_token_signing_alg_values_supported": []string{goidc.ES256, "HS256", "none"},
		}
		if i.Userinfo == nil {
			delete(document, "userinfo_endpoint")
		}
		if i.Published != nil {
			i.Published(document)
		}
		answer(w, http.StatusOK, document)
	case "/userinfo":
		if i.Userinfo == nil || req.Header.Get("Authorization") != "Bearer "+accessToken {
			answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_token"})
			return
		}
		answer(w, http.StatusOK, i.Userinfo())
	default:
		(&lib.Server{PublicKeys: []lib.PublicKey{{PublicKey: i.key.Public(), KeyID: "k", Algorithm: goidc.ES256}}}).ServeHTTP(w, req)
	}
}

// token exchanges a code.
func (i *Issuer) token(w http.ResponseWriter, req *http.Request) {
	id, secret, basic := req.BasicAuth()
	if basic {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	} else {
		id, secret = req.PostFormValue("client_id"), req.PostFormValue("client_secret")
	}
	if want := map[bool]string{false: ClientSecret}[i.Public]; id != ClientID || secret != want || basic && i.SecretInBody {
		answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	i.mu.Lock()
	request, known := i.codes[req.PostFormValue("code")]
	if !i.Lax {
		delete(i.codes, req.PostFormValue("code"))
	}
	i.mu.Unlock()
	sum := sha256.Sum256([]byte(req.PostFormValue("code_verifier")))
	if !known || request.Get("redirect_uri") != req.PostFormValue("redirect_uri") ||
		request.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{
		"iss": i.URL, "aud": ClientID, "sub": "1", "nonce": request.Get("nonce"), "iat": time.Now().Unix(),
		"exp":                time.Now().Add(time.Hour).Unix(),
		"preferred_username": "ann", "groups": []string{"staff", "ops"},
	}
	if i.Claims != nil {
		i.Claims(claims)
	}
	sign := i.Signed
	if i.Sign != nil {
		sign = i.Sign
	}
	answer(w, http.StatusOK, map[string]any{"access_token": accessToken, "token_type": "Bearer", "id_token": sign(claims)})
}

func answer(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(encoded(document)))
}

func encoded(v any) string { return string(text.Must(json.Marshal(v))) }
