package inbox_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/inbox"
)

// Invariants 1 to 3: a token opens its own channel, by the algorithm of its key, and a bad one opens nothing.
func TestToken_MisuseIsRefused(t *testing.T) { //nolint:funlen // a table
	t.Parallel()
	b := setup(t)
	_, foreign, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	ed := func(changes ...func(jwt.MapClaims)) string {
		return signed(t, jwt.SigningMethodEdDSA, "ed", b.ed, claims("2", changes...))
	}
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	body := strings.Split(ed(), ".")[1]
	unsigned := func(header string) string { return part(header) + "." + body + "." }
	critical := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims("2"))
	critical.Header["kid"], critical.Header["crit"] = "ed", []string{"b64"}
	extended, err := critical.SignedString(b.ed)
	require.NoError(t, err)
	parts := strings.Split(ed(), ".")

	for name, c := range map[string]struct{ token, want string }{
		"none":                        {signed(t, jwt.SigningMethodNone, "ed", jwt.UnsafeAllowNoneSignatureType, claims("2")), "alg"},
		"none without a signature":    {unsigned(`{"alg":"none","kid":"hs"}`), "alg"},
		"None in capitals":            {unsigned(`{"alg":"NONE","kid":"hs"}`), "alg"},
		"no alg":                      {unsigned(`{"kid":"hs"}`), "alg"},
		"HMAC with the public key":    {signed(t, jwt.SigningMethodHS256, "ed", []byte(b.pem), claims("2")), "alg"},
		"HMAC with the key's bytes":   {signed(t, jwt.SigningMethodHS256, "ed", []byte(b.ed.Public().(ed25519.PublicKey)), claims("2")), "alg"},
		"HMAC with a public EC key":   {signed(t, jwt.SigningMethodHS256, "ec", []byte(pemOf(t, b.ec.Public())), claims("2")), "alg"},
		"another HMAC, right secret":  {signed(t, jwt.SigningMethodHS512, "hs", []byte(secret), claims("2")), "alg"},
		"another curve":               {signed(t, jwt.SigningMethodES384, "ec", p384, claims("2")), "alg"},
		"key of another id":           {signed(t, jwt.SigningMethodEdDSA, "ec", b.ed, claims("2")), "alg"},
		"wrong Ed25519 key":           {signed(t, jwt.SigningMethodEdDSA, "ed", foreign, claims("2")), "signature"},
		"wrong secret":                {signed(t, jwt.SigningMethodHS256, "hs", []byte(strings.ToUpper(secret)), claims("2")), "signature"},
		"another channel's claims":    {parts[0] + "." + part(`{"aud":"`+audience+`","sub":"3","exp":`+fmt.Sprint(in(time.Minute))+`}`) + "." + parts[2], "signature"},
		"unknown kid":                 {signed(t, jwt.SigningMethodEdDSA, "other", b.ed, claims("2")), "kid"},
		"no kid":                      {signed(t, jwt.SigningMethodEdDSA, "", b.ed, claims("2")), "kid"},
		"expired":                     {ed(set("exp", in(-time.Minute))), "expired"},
		"no exp":                      {ed(set("exp", nil)), "no exp"},
		"exp too far":                 {ed(set("exp", in(time.Hour+2*time.Minute))), "later than in an hour"},
		"exp absurdly far":            {ed(set("exp", 1e300)), ""},
		"exp a text":                  {ed(set("exp", "soon")), ""},
		"nbf in the future":           {ed(set("nbf", in(2*time.Minute))), "not valid yet"},
		"iat in the future":           {ed(set("iat", in(2*time.Minute))), "not valid yet"},
		"no aud":                      {ed(set("aud", nil)), "aud"},
		"another aud":                 {ed(set("aud", "https://api.example.com")), "aud"},
		"several auds":                {ed(set("aud", []string{audience, "https://api.example.com"})), "aud"},
		"no sub":                      {ed(set("sub", nil)), "sub"},
		"external id":                 {ed(set("sub", "u-2")), "sub"},
		"another spelling of the id":  {ed(set("sub", "+2")), "sub"},
		"sub a number":                {ed(set("sub", 2)), ""},
		"critical extension":          {extended, "not a signed JWT"},
		"longer than 4 KiB":           {ed(set("x", strings.Repeat("x", 4000))), "not a signed JWT"},
		"garbage":                     {"belfry_" + secret, "not a signed JWT"},
		"empty parts":                 {"..", "not a signed JWT"},
		"signature in another base64": {parts[0] + "." + parts[1] + "." + parts[2] + "=", ""},
	} {
		a := b.call(c.token, "GET", "/v1/inbox", "")
		require.Equal(t, http.StatusUnauthorized, a.status, "%s: %s", name, a.text)
		require.Equal(t, `Bearer error="invalid_token"`, a.header.Get("WWW-Authenticate"), name)
		require.Contains(t, a.detail(t), c.want, name)
		require.NotContains(t, a.text, "x509", name)
	}
	for _, path := range []string{"/v1/inbox", "/v1/inbox/count", "/v1/inbox/preferences"} {
		a := b.call("", "GET", path, "")
		require.Equal(t, http.StatusUnauthorized, a.status)
		require.Equal(t, "Bearer", a.header.Get("WWW-Authenticate"))
		require.Contains(t, a.detail(t), "token is required")
	}
	require.Equal(t, http.StatusUnauthorized, b.call("", "GET", "/v1/inbox", "", "Authorization", "Basic "+ed()).status)
	require.Empty(t, b.log.String())

	for name, token := range map[string]string{
		"EdDSA":              ed(),
		"ES256":              signed(t, jwt.SigningMethodES256, "ec", b.ec, claims("2")),
		"HS256":              signed(t, jwt.SigningMethodHS256, "hs", []byte(secret), claims("2")),
		"aud in a list":      ed(set("aud", []string{audience})),
		"exp in an hour":     ed(set("exp", in(time.Hour))),
		"a slow clock":       ed(set("exp", in(-3*time.Second))),
		"a fast clock":       ed(set("iat", in(20*time.Second)), set("nbf", in(20*time.Second))),
		"issued before now":  ed(set("iat", in(-time.Minute)), set("nbf", in(-time.Minute))),
		"unknown claims too": ed(set("name", "Kim")),
	} {
		a := b.call(token, "GET", "/v1/inbox", "")
		require.Equal(t, http.StatusOK, a.status, "%s: %s", name, a.text)
		require.Contains(t, a.text, "second", name)
		require.NotContains(t, a.text, "other", name)
	}
}

// A mounted route gets the reader of a request.
func TestHandler_AuthenticatesForMountedRoutes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.handler.Handle("GET /v1/stream", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, expires, err := b.handler.Reader(r)
		if err != nil {
			b.handler.Refuse(w, err)
			return
		}
		_, _ = fmt.Fprint(w, id, " ", time.Until(expires) > 5*time.Minute)
	}))
	require.Equal(t, "3 true", b.call(b.token(3), "GET", "/v1/stream", "").text)
	require.Equal(t, http.StatusUnauthorized, b.call("x", "GET", "/v1/stream", "", "Origin", page).status)
	require.True(t, b.handler.AllowsOrigin(page))
	require.False(t, b.handler.AllowsOrigin("https://evil.example.com"))
}

// With subject external_id a token names a channel by the service's own id.
func TestToken_NamesAChannelByItsExternalID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	external := func(c *inbox.Config) { c.Subject = inbox.SubjectExternalID }
	more := append(grants(t), "GRANT SELECT ON belfry.recipients TO :role", "GRANT SELECT (id, external_id) ON belfry.channels TO :role")
	b.serve(b.DB.Role(t, more...), external)
	sign := func(sub string) string { return signed(t, jwt.SigningMethodEdDSA, "ed", b.ed, claims(sub)) }
	require.Contains(t, b.call(sign("u-3"), "GET", "/v1/inbox", "").text, "other")
	for _, sub := range []string{"u-4", "3", ""} {
		a := b.call(sign(sub), "GET", "/v1/inbox", "")
		require.Equal(t, http.StatusUnauthorized, a.status, sub)
		require.Contains(t, a.detail(t), "sub is not a channel")
	}
	require.Empty(t, b.log.String())
	b.serve(b.DB.Role(t, grants(t)...), external)
	a := b.call(sign("u-3"), "GET", "/v1/inbox", "")
	require.Equal(t, http.StatusInternalServerError, a.status)
	require.Equal(t, "belfry's log has the error", a.detail(t))
	require.Contains(t, b.log.String(), "permission denied")
}

func TestConfig_RefusesBadKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	for want, k := range map[string]inbox.Key{
		"inbox.keys[0].id: ":                           {ID: "a b", Algorithm: "HS256", Key: secret},
		"inbox.keys[0].algorithm: ":                    {ID: "a", Algorithm: "none", Key: secret},
		"inbox.keys[0].key_file: exactly one":          {ID: "a", Algorithm: "HS256"},
		"inbox.keys[0].key: is not a secret of HS256;": {ID: "a", Algorithm: "HS256", Key: secret[1:]},
		"is not a secret of HS256; allowed":            {ID: "a", Algorithm: "HS256", Key: b.pem},
		"or more bytes in one line":                    {ID: "a", Algorithm: "HS256", Key: "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB"},
		"is not a public key":                          {ID: "a", Algorithm: "ES256", Key: b.pem},
		"a public key in PEM (":                        {ID: "a", Algorithm: "ES256", Key: pemOf(t, p384.Public())},
		"is not a public key of the algorithm":         {ID: "a", Algorithm: "EdDSA", Key: secret},
	} {
		c := inbox.DefaultConfig()
		c.Keys = []inbox.Key{k}
		require.ErrorContains(t, c.Validate(), want)
		require.NotContains(t, c.Validate().Error(), secret[1:])
	}
	c := inbox.DefaultConfig()
	require.NoError(t, c.Validate())
	require.ErrorContains(t, c.CheckServed(), "inbox.audience: is empty")
	require.ErrorContains(t, c.CheckServed(), "inbox.keys: is empty")
	c.Keys = []inbox.Key{{ID: "a", Algorithm: "HS256", Key: secret}, {ID: "a", Algorithm: "HS256", Key: secret}}
	require.ErrorContains(t, c.Validate(), "inbox.keys[1].id: \"a\" is given twice")
	c.Keys = []inbox.Key{{ID: "a", Algorithm: "HS256", KeyFile: "/nowhere"}}
	require.ErrorContains(t, c.CheckServed(), "inbox.keys[0].key_file: open /nowhere")
	for _, origin := range []string{"*", "null", "https://*.example.com", "https://www.example.com/", "https://Example.com", "https://www.example.com:443",
		"http://www.example.com", "www.example.com", "https://u@www.example.com", ""} {
		c := inbox.DefaultConfig()
		c.Origins = []string{origin}
		require.ErrorContains(t, c.Validate(), "inbox.origins: ", origin)
	}
	c = inbox.DefaultConfig()
	c.Origins = []string{"https://www.example.com", "https://www.example.com:8443", "http://localhost:3000", "http://127.0.0.1:3000", "http://[::1]:3000"}
	require.NoError(t, c.Validate())
}
