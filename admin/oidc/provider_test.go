package oidc_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	lib "github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/oidc"
	"github.com/belfryhq/belfry/admin/oidc/oidctest"
)

const redirect = "https://belfry.example.com/a/api/v1/login/oidc/callback"

// fixture is an issuer and a provider that uses it.
type fixture struct {
	issuer   *oidctest.Issuer
	provider *oidc.Provider
	now      atomic.Int64 // seconds that the clock is ahead
}

// newFixture starts an issuer; change may be nil.
func newFixture(t *testing.T, change func(*oidc.Config, *oidctest.Issuer)) *fixture {
	t.Helper()
	d := &fixture{issuer: oidctest.New()}
	t.Cleanup(d.issuer.Close)
	c := oidc.DefaultConfig()
	c.Issuer, c.ClientID = d.issuer.URL, oidctest.ClientID
	c.ClientSecretFile = filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(c.ClientSecretFile, []byte(oidctest.ClientSecret+"\n"), 0o600))
	c.Roles = []string{"staff=viewer", "ops=operator", "root=admin"}
	if change != nil {
		change(&c, d.issuer)
	}
	require.NoError(t, c.ValidateServed(redirect))
	var err error
	d.provider, err = oidc.New(c, redirect)
	require.NoError(t, err)
	t.Cleanup(d.provider.Close)
	d.provider.SetClock(func() time.Time { return time.Now().Add(time.Duration(d.now.Load()) * time.Second) }, 20*time.Second)
	return d
}

// begin returns the cookie and the redirect of a sign-in whose user has agreed at the provider.
func (d *fixture) begin(t *testing.T, returnTo string) (cookie string, query url.Values) {
	t.Helper()
	cookie, location, err := d.provider.Begin(t.Context(), returnTo)
	require.NoError(t, err)
	query, err = d.issuer.Authorize(location)
	require.NoError(t, err)
	return cookie, query
}

// Invariant 1: valid sign-ins, with the secret in a header, in the body and without a secret.
func TestProvider_ReturnsNameAndGroups(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*oidc.Config, *oidctest.Issuer){
		"header": nil,
		"body": func(c *oidc.Config, i *oidctest.Issuer) {
			i.SecretInBody = true
			published("token_endpoint_auth_methods_supported", []string{"client_secret_post"})(c, i)
		},
		"public":              func(c *oidc.Config, i *oidctest.Issuer) { c.ClientSecretFile, i.Public = "", true },
		"its answers name it": promised,
		"a path of claims": func(c *oidc.Config, i *oidctest.Issuer) {
			c.GroupsClaim, c.NameClaim = "realm_access.roles", "https://example.com/who.name"
			i.Claims = func(c map[string]any) {
				c["realm_access"] = map[string]any{"roles": []any{"staff", "ops", 7}}
				c["https://example.com/who"] = map[string]any{"name": "ann"}
				delete(c, "groups")
			}
		},
		"a clock that is behind": func(_ *oidc.Config, i *oidctest.Issuer) {
			i.Claims = func(c map[string]any) { c["exp"] = time.Now().Add(-30 * time.Second).Unix() }
		},
		"several audiences, and belfry the party": func(_ *oidc.Config, i *oidctest.Issuer) {
			i.Claims = func(c map[string]any) { c["aud"], c["azp"] = []string{"other", oidctest.ClientID}, oidctest.ClientID }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t, change)
			cookie, query := d.begin(t, "/jobs?id=7")
			query.Set("iss", d.issuer.URL)
			who, err := d.provider.Finish(t.Context(), cookie, query)
			require.NoError(t, err)
			require.Equal(t, query.Get("state"), who.State)
			who.State = ""
			require.Equal(t, oidc.Person{Name: "ann", Groups: []string{"staff", "ops"}, Identity: `"` + d.issuer.URL + `" "1"`, ReturnTo: "/jobs?id=7"}, who)
		})
	}
}

// unsigned returns a token with the algorithm none.
func unsigned(claims map[string]any) string {
	raw, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	e := base64.RawURLEncoding
	return e.EncodeToString([]byte(`{"alg":"none"}`)) + "." + e.EncodeToString(raw) + "."
}

// attack is a sign-in that must fail.
type attack struct {
	change func(*oidc.Config, *oidctest.Issuer)                                             // by the provider
	attack func(t *testing.T, d *fixture, cookie string, query url.Values) (changed string) // by the browser
	status int
	text   string
	cause  string // part of the error in the log
}

// claim changes a claim of the ID token; nil deletes it.
func claim(name string, value any) func(*oidc.Config, *oidctest.Issuer) {
	return func(_ *oidc.Config, i *oidctest.Issuer) {
		i.Claims = func(c map[string]any) {
			if c[name] = value; value == nil {
				delete(c, name)
			}
		}
	}
}

// sign replaces the signature.
func sign(how func(i *oidctest.Issuer, claims map[string]any) string) func(*oidc.Config, *oidctest.Issuer) {
	return func(_ *oidc.Config, i *oidctest.Issuer) {
		i.Sign = func(claims map[string]any) string { return how(i, claims) }
	}
}

// at replaces the response of a path; "" is every path.
func at(path string, status int, body string) func(*oidc.Config, *oidctest.Issuer) {
	return func(_ *oidc.Config, i *oidctest.Issuer) {
		i.Answer = func(w http.ResponseWriter, req *http.Request) bool {
			if path != "" && req.URL.Path != path {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
}

// moved redirects a path to itself with a query.
func moved(path string) func(*oidc.Config, *oidctest.Issuer) {
	return func(_ *oidc.Config, i *oidctest.Issuer) {
		i.Answer = func(w http.ResponseWriter, req *http.Request) bool {
			if req.URL.Path != path || req.URL.RawQuery != "" {
				return false
			}
			w.Header().Set("Location", path+"?x=1")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return true
		}
	}
}

// promised is a provider that promises its issuer in each response.
func promised(c *oidc.Config, i *oidctest.Issuer) {
	published("authorization_response_iss_parameter_supported", true)(c, i)
}

// Invariant 2: redirects that do not belong to the browser's sign-in.
func TestProvider_RefusesForeignRedirects(t *testing.T) {
	t.Parallel()
	query := func(name string, values ...string) func(*testing.T, *fixture, string, url.Values) string {
		return func(_ *testing.T, _ *fixture, cookie string, query url.Values) string {
			query[name] = values
			return cookie
		}
	}
	way := func(path string) func(*testing.T, *fixture, string, url.Values) string {
		return func(_ *testing.T, _ *fixture, c string, _ url.Values) string {
			return c[:strings.LastIndexByte(c, '.')+1] + base64.RawURLEncoding.EncodeToString([]byte(path))
		}
	}
	refuses(t, map[string]attack{
		"forged state":    {attack: query("state", strings.Repeat("A", 43)), status: http.StatusBadRequest, text: "another sign-in"},
		"no state":        {attack: query("state"), status: http.StatusBadRequest, text: "another sign-in"},
		"empty state":     {attack: query("state", ""), status: http.StatusBadRequest, text: "another sign-in"},
		"no code":         {attack: query("code"), status: http.StatusForbidden, text: "refused the sign-in"},
		"code of nobody":  {attack: query("code", "x"), status: http.StatusBadRequest, text: "refused the code"},
		"mixed-up issuer": {attack: query("iss", "https://evil.example"), status: http.StatusBadRequest, text: "not from the provider of api.oidc.issuer"},
		"issuer in errors": {attack: func(_ *testing.T, _ *fixture, c string, q url.Values) string {
			q["iss"], q["error"] = []string{"https://evil.example"}, []string{"x"}
			return c
		}, status: http.StatusBadRequest, text: "not from the provider of api.oidc.issuer"},
		"no issuer where it is promised": {change: promised, status: http.StatusBadRequest, text: "not from the provider of api.oidc.issuer"},
		"no cookie":                      {attack: func(*testing.T, *fixture, string, url.Values) string { return "" }, status: http.StatusBadRequest, text: "no pending sign-in"},
		"another cookie":                 {attack: func(t *testing.T, d *fixture, _ string, _ url.Values) string { c, _ := d.begin(t, ""); return c }, status: http.StatusBadRequest, text: "another sign-in"},
		"another way back":               {attack: way("/evil"), status: http.StatusBadRequest, text: "another sign-in"},
		"a way out":                      {attack: way("//evil.example"), status: http.StatusBadRequest, text: "no pending sign-in"},
		"late":                           {attack: func(_ *testing.T, d *fixture, c string, _ url.Values) string { d.now.Store(601); return c }, status: http.StatusBadRequest, text: "longer than 10 minutes"},
		"from the future":                {attack: func(_ *testing.T, d *fixture, c string, _ url.Values) string { d.now.Store(-601); return c }, status: http.StatusBadRequest, text: "longer than 10 minutes"},
		"replayed": {attack: func(t *testing.T, d *fixture, c string, q url.Values) string {
			_, err := d.provider.Finish(t.Context(), c, q)
			require.NoError(t, err)
			return c
		}, status: http.StatusBadRequest, text: "refused the code"},
		"stolen code": {attack: func(t *testing.T, d *fixture, _ string, q url.Values) string {
			c, own := d.begin(t, "")
			q.Set("state", own.Get("state"))
			return c
		}, status: http.StatusBadRequest, text: "another browser;"},
		"refused": {attack: query("error", "access_denied"), status: http.StatusForbidden, text: "refused the sign-in: access_denied"},
	})
}

// Invariants 1 and 3: invalid responses to a code.
func TestProvider_RefusesInvalidTokens(t *testing.T) {
	t.Parallel()
	refuses(t, map[string]attack{
		"no token":        {change: sign(func(*oidctest.Issuer, map[string]any) string { return "" }), status: http.StatusForbidden, text: "is missing or cannot be verified"},
		"no token at all": {change: at("/token", 200, `{"access_token": "x"}`), status: http.StatusForbidden, text: "is missing or cannot be verified"},
		"garbage":         {change: sign(func(*oidctest.Issuer, map[string]any) string { return "a.b.c" }), status: http.StatusForbidden, text: "cannot be verified"},
		"alg none":        {change: sign(func(_ *oidctest.Issuer, c map[string]any) string { return unsigned(c) }), status: http.StatusForbidden, text: "cannot be verified"},
		"another's key": {change: sign(func(_ *oidctest.Issuer, c map[string]any) string {
			other := oidctest.New()
			defer other.Close()
			return other.Signed(c)
		}), status: http.StatusForbidden, text: "cannot be verified"},
		"the client's secret": {change: sign(func(_ *oidctest.Issuer, c map[string]any) string {
			raw, err := json.Marshal(c)
			if err != nil {
				panic(err)
			}
			return lib.SignIDToken([]byte(strings.Repeat(oidctest.ClientSecret, 2)), "k", "HS256", string(raw))
		}), status: http.StatusForbidden, text: "cannot be verified"},
		"a changed token": {change: sign(func(i *oidctest.Issuer, c map[string]any) string {
			good := strings.Split(i.Signed(c), ".")
			c["groups"] = []string{"root"}
			return good[0] + "." + strings.Split(unsigned(c), ".")[1] + "." + good[2]
		}), status: http.StatusForbidden, text: "cannot be verified"},
		"another issuer":         {change: claim("iss", "https://evil.example"), status: http.StatusForbidden, text: "cannot be verified"},
		"another audience":       {change: claim("aud", "other"), status: http.StatusForbidden, text: "cannot be verified"},
		"no audience":            {change: claim("aud", nil), status: http.StatusForbidden, text: "cannot be verified"},
		"another party":          {change: claim("azp", "other"), status: http.StatusForbidden, text: "another client"},
		"audiences and no party": {change: claim("aud", []string{"other", oidctest.ClientID}), status: http.StatusForbidden, text: "another client"},
		"expired":                {change: claim("exp", time.Now().Add(-2*time.Minute).Unix()), status: http.StatusForbidden, text: "one of the clocks may be wrong"},
		"no expiry":              {change: claim("exp", nil), status: http.StatusForbidden, text: "expired"},
		"of the future":          {change: claim("nbf", time.Now().Add(time.Hour).Unix()), status: http.StatusForbidden, text: "cannot be verified"},
		"another nonce":          {change: claim("nonce", "x"), status: http.StatusForbidden, text: "(nonce)"},
		"no nonce":               {change: claim("nonce", nil), status: http.StatusForbidden, text: "(nonce)"},
		"a subject of 256":       {change: claim("sub", strings.Repeat("s", 256)), status: http.StatusForbidden, text: "a subject (sub) of more than 255 characters"},
		"nobody":                 {change: claim("sub", ""), status: http.StatusForbidden, text: "has no subject"},
		"a wrong secret": {change: func(c *oidc.Config, _ *oidctest.Issuer) {
			c.ClientSecretFile = filepath.Join(filepath.Dir(c.ClientSecretFile), "wrong")
			if err := os.WriteFile(c.ClientSecretFile, []byte("x"), 0o600); err != nil {
				panic(err)
			}
		}, status: http.StatusInternalServerError, text: "invalid_client (api.oidc.client_id, client_secret_file)"},
		"a redirected code":  {change: moved("/token"), status: http.StatusServiceUnavailable, text: "does not respond as expected"},
		"an error page":      {change: at("/token", 502, `<html>`), status: http.StatusServiceUnavailable, text: "does not respond as expected"},
		"no keys":            {change: at("/keys", 503, ""), status: http.StatusForbidden, text: "cannot be verified"},
		"keys in the clear":  {change: published("jwks_uri", "http://login.example.com/keys"), status: http.StatusForbidden, text: "cannot be verified", cause: insecure},
		"token in the clear": {change: published("token_endpoint", "http://login.example.com/token"), status: http.StatusServiceUnavailable, text: "does not respond as expected", cause: insecure},
	})
}

// insecure is the cause of a refused request without TLS.
const insecure = "the URL is not allowed; allowed values: https://"

func TestProvider_RefusesUsersWithoutNameOrGroups(t *testing.T) {
	t.Parallel()
	refuses(t, map[string]attack{
		"no name":                       {change: claim("preferred_username", nil), status: http.StatusForbidden, text: `no claim "preferred_username" for your name (api.oidc.name_claim)`},
		"a name that is a number":       {change: claim("preferred_username", 7), status: http.StatusForbidden, text: "is not a name"},
		"a name that looks like others": {change: claim("preferred_username", "аnn"), status: http.StatusForbidden, text: "is not a name"},
		"a name with a line":            {change: claim("preferred_username", "ann\nroot"), status: http.StatusForbidden, text: "is not a name"},
		"a long name":                   {change: claim("preferred_username", strings.Repeat("x", 101)), status: http.StatusForbidden, text: "is not a name"},
		"an address of somebody else": {change: func(c *oidc.Config, i *oidctest.Issuer) {
			c.NameClaim = "email"
			i.Claims = func(c map[string]any) { c["email"], c["email_verified"] = "boss@example.com", false }
		}, status: http.StatusForbidden, text: "has not verified your email address"},
		"an address of somebody else, as text": {change: func(c *oidc.Config, i *oidctest.Issuer) {
			c.NameClaim = "email"
			i.Claims = func(c map[string]any) { c["email"], c["email_verified"] = "boss@example.com", "false" }
		}, status: http.StatusForbidden, text: "has not verified your email address"},
		"no groups": {change: claim("groups", nil), status: http.StatusForbidden, text: `no claim "groups" for your groups (api.oidc.groups_claim)`},
	})
}

// refuses runs each attack.
func refuses(t *testing.T, attacks map[string]attack) {
	t.Helper()
	for name, test := range attacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t, test.change)
			cookie, query := d.begin(t, "")
			if test.attack != nil {
				cookie = test.attack(t, d, cookie, query)
			}
			who, err := d.provider.Finish(t.Context(), cookie, query)
			require.Error(t, err, "%v", who)
			refused := new(oidc.RefusedError)
			require.ErrorAs(t, err, &refused)
			require.Contains(t, refused.Text, test.text)
			require.ErrorContains(t, err, test.cause)
			require.Equal(t, test.status, refused.Status, err)
			require.Equal(t, strings.Contains(refused.Text, "_claim"), refused.Identity != "", "the user is known: %v", err)
			require.Empty(t, who)
			require.NotContains(t, err.Error(), oidctest.ClientSecret)
		})
	}
}

// Invariant 2: the state, which is part of URLs, reveals neither the nonce nor the verifier.
func TestProvider_DerivesDifferentSecrets(t *testing.T) {
	t.Parallel()
	d := newFixture(t, nil)
	_, location, err := d.provider.Begin(t.Context(), "")
	require.NoError(t, err)
	u, err := url.Parse(location)
	require.NoError(t, err)
	state, nonce := u.Query().Get("state"), u.Query().Get("nonce")
	require.Len(t, state, 43)
	require.Len(t, nonce, 43)
	require.NotEqual(t, state, nonce)
	challenge := sha256.Sum256([]byte(state))
	require.NotEqual(t, base64.RawURLEncoding.EncodeToString(challenge[:]), u.Query().Get("code_challenge"))
}

// Invariant 3: the discovery document is the issuer's, bounded and not redirected.
func TestProvider_RefusesInvalidDiscovery(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*oidc.Config, *oidctest.Issuer){
		"another issuer":     published("issuer", "https://evil.example"),
		"in the clear":       published("authorization_endpoint", "http://login.example.com/auth"),
		"a script":           published("authorization_endpoint", "javascript:alert(1)"),
		"redirected":         moved(discovery),
		"an endless answer":  published("padding", strings.Repeat("x", 2<<20)),
		"no document at all": at("", http.StatusNotFound, strings.Repeat("<html>", 1000)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t, change)
			_, location, err := d.provider.Begin(t.Context(), "")
			refused := new(oidc.RefusedError)
			require.ErrorAs(t, err, &refused, location)
			require.Equal(t, http.StatusServiceUnavailable, refused.Status)
			require.Error(t, refused.Err, "the log has the cause")
			require.LessOrEqual(t, len(err.Error()), 700)
		})
	}
}

const discovery = "/.well-known/openid-configuration"

// The discovery document is fetched at the first sign-in, once an hour and after a token that cannot
// be verified, and a failed fetch is repeated at the next sign-in.
func TestProvider_CachesDiscovery(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	var algorithm atomic.Value
	algorithm.Store("ES256")
	d := newFixture(t, func(_ *oidc.Config, i *oidctest.Issuer) {
		i.Answer = func(w http.ResponseWriter, _ *http.Request) bool {
			if down.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return down.Load()
		}
		i.Claims = func(c map[string]any) { c["exp"] = time.Now().Add(2 * time.Hour).Unix() }
		i.Published = func(d map[string]any) { d["id_token_signing_alg_values_supported"] = []any{algorithm.Load()} }
	})
	finish := func() error {
		cookie, query := d.begin(t, "")
		_, err := d.provider.Finish(t.Context(), cookie, query)
		return err
	}
	require.Zero(t, d.issuer.Calls(discovery))
	down.Store(true)
	_, _, err := d.provider.Begin(t.Context(), "")
	require.ErrorContains(t, err, "does not respond as expected")
	down.Store(false)
	require.NoError(t, finish())
	require.NoError(t, finish())
	require.Equal(t, []int{2, 1}, []int{d.issuer.Calls(discovery), d.issuer.Calls("/keys")})
	d.now.Store(3700)
	algorithm.Store("RS256")
	require.ErrorContains(t, finish(), "cannot be verified")
	require.Equal(t, 3, d.issuer.Calls(discovery))
	algorithm.Store("ES256")
	require.NoError(t, finish())
	require.Equal(t, 4, d.issuer.Calls(discovery))
}

func TestProvider_CallsHaveADeadline(t *testing.T) {
	t.Parallel()
	for _, path := range []string{discovery, "/token", "/keys", "/userinfo"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			end, reached := make(chan struct{}), make(chan struct{}, 10)
			d := newFixture(t, func(c *oidc.Config, i *oidctest.Issuer) {
				c.Userinfo = true
				i.Userinfo = func() map[string]any { return nil }
				i.Answer = func(_ http.ResponseWriter, req *http.Request) bool {
					if req.URL.Path == path {
						reached <- struct{}{}
						<-end
					}
					return req.URL.Path == path
				}
			})
			defer close(end)
			var err error
			for timeout := 500 * time.Millisecond; len(reached) == 0; timeout *= 2 { // until the call is reached in time
				d.provider.SetClock(time.Now, timeout)
				var cookie, location string
				if cookie, location, err = d.provider.Begin(t.Context(), ""); err == nil {
					query, failed := d.issuer.Authorize(location)
					require.NoError(t, failed)
					_, err = d.provider.Finish(t.Context(), cookie, query)
				}
			}
			require.ErrorContains(t, err, "context deadline exceeded")
			require.NotContains(t, err.Error(), "Client.Timeout", "the step ended by its own deadline")
			require.Positive(t, d.provider.ClientTimeout(), "the fetch of keys continues in the background without the deadline of the step")
		})
	}
}

// A provider that switches protocols keeps its connection, and no sign-in.
func TestProvider_RefusesASwitchOfProtocols(t *testing.T) {
	t.Parallel()
	for _, path := range []string{discovery, "/token", "/keys", "/userinfo"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t, func(c *oidc.Config, i *oidctest.Issuer) {
				c.Userinfo = true
				i.Userinfo = func() map[string]any { return nil }
				i.Answer = func(w http.ResponseWriter, req *http.Request) bool {
					if req.URL.Path == path {
						w.Header().Set("Connection", "upgrade")
						w.Header().Set("Upgrade", "x")
						w.WriteHeader(http.StatusSwitchingProtocols)
					}
					return req.URL.Path == path
				}
			})
			ended := make(chan error, 1)
			go func() {
				cookie, location, err := d.provider.Begin(t.Context(), "")
				if err == nil {
					var query url.Values
					if query, err = d.issuer.Authorize(location); err == nil {
						_, err = d.provider.Finish(t.Context(), cookie, query)
					}
				}
				ended <- err
			}()
			select {
			case err := <-ended:
				require.ErrorContains(t, err, "101 Switching Protocols")
			case <-time.After(30 * time.Second):
				t.Error("the sign-in outlasts its deadline")
				d.issuer.CloseClientConnections()
				require.Error(t, <-ended)
			}
		})
	}
}

// published changes a field of the discovery document.
func published(name string, value any) func(*oidc.Config, *oidctest.Issuer) {
	return func(_ *oidc.Config, i *oidctest.Issuer) {
		i.Published = func(d map[string]any) { d[name] = value }
	}
}
