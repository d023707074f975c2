// Package oidctest is a provider of OpenID Connect for tests, over HTTP on this machine, which
// signs real tokens and holds clients to PKCE: a code is good once, for the client, the redirect
// and the verifier that it was asked for with. A test may change what it publishes and signs.
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
)

// What the issuer knows of its one client.
const (
	ClientID     = "belfry"
	ClientSecret = "the-client's-secret,100%+of=it"
)

// accessToken is what the userinfo endpoint is asked with.
const accessToken = "an-access-token"

// Issuer is a provider. Its fields may be set before it is asked.
type Issuer struct {
	*httptest.Server

	// Public has the client have no secret.
	Public bool
	// Lax has a code taken again.
	Lax bool
	// Claims changes what the next tokens say.
	Claims func(claims map[string]any)
	// Userinfo is what the userinfo endpoint says; nil: there is none.
	Userinfo func() map[string]any
	// Sign makes a token otherwise than by Signed; nil: by Signed.
	Sign func(claims map[string]any) string
	// Published changes the discovery document.
	Published func(document map[string]any)
	// Answer answers in the place of the issuer, if it returns true.
	Answer func(w http.ResponseWriter, req *http.Request) bool

	key *ecdsa.PrivateKey

	mu    sync.Mutex
	codes map[string]url.Values // what each was asked for with
	calls map[string]int        // by path
}

// New starts one; the caller closes it.
func New() *Issuer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	i := &Issuer{key: key, codes: make(map[string]url.Values), calls: make(map[string]int)}
	i.Server = httptest.NewServer(http.HandlerFunc(i.serve))
	return i
}

// Calls is how often a path was asked for: /keys, /token.
func (i *Issuer) Calls(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.calls[path]
}

// Signed signs claims with the issuer's own key.
func (i *Issuer) Signed(claims map[string]any) string {
	return lib.SignIDToken(i.key, "k", goidc.ES256, text(claims))
}

// Authorize is what a browser does that was sent to location, and whose user agrees: it returns
// the query that the browser is sent back with.
func (i *Issuer) Authorize(location string) (url.Values, error) {
	at, err := url.Parse(location)
	if err != nil {
		return nil, err
	}
	asked := at.Query()
	if !strings.HasPrefix(location, i.URL+"/auth?") || asked.Get("response_type") != "code" || asked.Get("client_id") != ClientID ||
		asked.Get("code_challenge_method") != "S256" || len(asked.Get("code_challenge")) != 43 || len(asked.Get("state")) < 32 || len(asked.Get("nonce")) < 32 {
		return nil, fmt.Errorf("not a question that is to be answered: %s", location)
	}
	code := rand.Text()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.codes[code] = asked
	return url.Values{"code": {code}, "state": {asked.Get("state")}}, nil
}

func (i *Issuer) serve(w http.ResponseWriter, req *http.Request) {
	i.mu.Lock()
	i.calls[req.URL.Path]++
	i.mu.Unlock()
	if i.Answer != nil && i.Answer(w, req) {
		return
	}
	switch {
	case req.URL.Path == "/token":
		i.token(w, req)
		return
	case req.URL.Path == "/userinfo" && i.Userinfo != nil:
		i.userinfo(w, req)
		return
	}
	s := &lib.Server{PublicKeys: []lib.PublicKey{{PublicKey: i.key.Public(), KeyID: "k", Algorithm: goidc.ES256}}, Algorithms: []string{goidc.ES256, "HS256", "none"}}
	s.SetIssuer(i.URL)
	if i.Published == nil && i.Userinfo == nil || req.URL.Path != "/.well-known/openid-configuration" {
		s.ServeHTTP(w, req)
		return
	}
	own := httptest.NewRecorder()
	s.ServeHTTP(own, req)
	document := make(map[string]any)
	if err := json.Unmarshal(own.Body.Bytes(), &document); err != nil {
		panic(err)
	}
	if i.Userinfo != nil {
		document["userinfo_endpoint"] = i.URL + "/userinfo"
	}
	if i.Published != nil {
		i.Published(document)
	}
	answer(w, http.StatusOK, document)
}

// token takes a code.
func (i *Issuer) token(w http.ResponseWriter, req *http.Request) {
	id, secret, basic := req.BasicAuth()
	if basic {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	} else {
		id, secret = req.PostFormValue("client_id"), req.PostFormValue("client_secret")
	}
	if want := map[bool]string{false: ClientSecret}[i.Public]; id != ClientID || secret != want {
		answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	i.mu.Lock()
	asked, known := i.codes[req.PostFormValue("code")]
	if !i.Lax {
		delete(i.codes, req.PostFormValue("code"))
	}
	i.mu.Unlock()
	sum := sha256.Sum256([]byte(req.PostFormValue("code_verifier")))
	if !known || asked.Get("redirect_uri") != req.PostFormValue("redirect_uri") || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{
		"iss": i.URL, "aud": ClientID, "sub": "1", "nonce": asked.Get("nonce"), "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
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

// userinfo says more of who has signed in, to whoever has the access token.
func (i *Issuer) userinfo(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Authorization") != "Bearer "+accessToken {
		answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_token"})
		return
	}
	answer(w, http.StatusOK, i.Userinfo())
}

func answer(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text(document)))
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}
