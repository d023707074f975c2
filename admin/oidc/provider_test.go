package oidc_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lib "github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/oidc"
	"github.com/belfryhq/belfry/admin/oidc/oidctest"
	"github.com/belfryhq/belfry/admin/operation"
)

const redirect = "https://belfry.example.com/a/api/v1/login/oidc/callback"

// desk is an issuer and its client.
type desk struct {
	issuer   *oidctest.Issuer
	provider *oidc.Provider
	now      atomic.Int64 // ahead of the real clock, in seconds
}

// newDesk makes one; change may be nil.
func newDesk(t *testing.T, change func(*oidc.Config, *oidctest.Issuer)) *desk {
	t.Helper()
	d := &desk{issuer: oidctest.New()}
	t.Cleanup(d.issuer.Close)
	c := oidc.DefaultConfig()
	c.Issuer, c.ClientID, c.ClientSecret = d.issuer.URL, oidctest.ClientID, ""
	c.ClientSecretFile = filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(c.ClientSecretFile, []byte(oidctest.ClientSecret+"\n"), 0o600))
	c.Roles = []string{"staff=viewer", "ops=operator", "root=admin"}
	if change != nil {
		change(&c, d.issuer)
	}
	require.NoError(t, c.Together(redirect))
	var err error
	d.provider, err = oidc.New(c, redirect)
	require.NoError(t, err)
	t.Cleanup(d.provider.Close)
	d.provider.SetClock(func() time.Time { return time.Now().Add(time.Duration(d.now.Load()) * time.Second) }, 20*time.Second)
	return d
}

// begun is a sign-in whose user has agreed at the provider.
func (d *desk) begun(t *testing.T, returnTo string) (cookie string, query url.Values) {
	t.Helper()
	cookie, location, err := d.provider.Begin(t.Context(), returnTo)
	require.NoError(t, err)
	query, err = d.issuer.Authorize(location)
	require.NoError(t, err)
	return cookie, query
}

// Invariant 1, as it should be: once with the secret in a header, once in the body, once without.
func TestProvider_NamesSomebodyWithTheHighestRole(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*oidc.Config, *oidctest.Issuer){
		"header": nil,
		"body": func(_ *oidc.Config, i *oidctest.Issuer) {
			i.Published = func(d map[string]any) { d["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"} }
		},
		"public":              func(c *oidc.Config, i *oidctest.Issuer) { c.ClientSecretFile, i.Public = "", true },
		"its answers name it": promised,
		"a path of claims": func(c *oidc.Config, i *oidctest.Issuer) {
			c.GroupsClaim, c.NameClaim = "realm_access.roles", "https://example.com/who.name"
			i.Claims = func(c map[string]any) {
				c["realm_access"] = map[string]any{"roles": "ops"}
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
			d := newDesk(t, change)
			cookie, query := d.begun(t, "/jobs?id=7")
			query.Set("iss", d.issuer.URL)
			who, err := d.provider.Finish(t.Context(), cookie, query)
			require.NoError(t, err)
			require.Equal(t, query.Get("state"), who.State)
			who.State = ""
			require.Equal(t, oidc.Person{Name: "ann", Role: operation.Operator, Identity: `"` + d.issuer.URL + `" "1"`, ReturnTo: "/jobs?id=7"}, who)
		})
	}
}

// unsigned is a token with the algorithm none.
func unsigned(claims map[string]any) string {
	raw, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	e := base64.RawURLEncoding
	return e.EncodeToString([]byte(`{"alg":"none"}`)) + "." + e.EncodeToString(raw) + "."
}

// attack is a sign-in that is to come to nothing.
type attack struct {
	change func(*oidc.Config, *oidctest.Issuer)                                        // what the provider does
	attack func(t *testing.T, d *desk, cookie string, query url.Values) (other string) // what the browser brings
	why    oidc.Why
	text   string
}

// claim has the ID token say something else; nil: nothing.
func claim(name string, value any) func(*oidc.Config, *oidctest.Issuer) {
	return func(_ *oidc.Config, i *oidctest.Issuer) {
		i.Claims = func(c map[string]any) {
			if c[name] = value; value == nil {
				delete(c, name)
			}
		}
	}
}

// sign has it signed otherwise.
func sign(how func(i *oidctest.Issuer, claims map[string]any) string) func(*oidc.Config, *oidctest.Issuer) {
	return func(_ *oidc.Config, i *oidctest.Issuer) {
		i.Sign = func(claims map[string]any) string { return how(i, claims) }
	}
}

// at has a path answered otherwise.
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

// moved has a path answered at another, to which it leads.
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

// promised is a provider whose answers all name it.
func promised(_ *oidc.Config, i *oidctest.Issuer) {
	i.Published = func(d map[string]any) { d["authorization_response_iss_parameter_supported"] = true }
}

// Invariant 2: what a browser brings that is not the answer to its own question.
func TestProvider_RefusesWhatBelongsToNoSignIn(t *testing.T) {
	t.Parallel()
	query := func(name string, values ...string) func(*testing.T, *desk, string, url.Values) string {
		return func(_ *testing.T, _ *desk, cookie string, query url.Values) string {
			query[name] = values
			return cookie
		}
	}
	way := func(path string) func(*testing.T, *desk, string, url.Values) string {
		return func(_ *testing.T, _ *desk, c string, _ url.Values) string {
			return c[:strings.LastIndexByte(c, '.')+1] + base64.RawURLEncoding.EncodeToString([]byte(path))
		}
	}
	refuses(t, map[string]attack{
		"forged state":    {attack: query("state", strings.Repeat("A", 43)), why: oidc.Stray, text: "another sign-in"},
		"no state":        {attack: query("state"), why: oidc.Stray, text: "another sign-in"},
		"empty state":     {attack: query("state", ""), why: oidc.Stray, text: "another sign-in"},
		"two codes":       {attack: query("code", "a", "b"), why: oidc.Stray, text: "has code twice"},
		"no code":         {attack: query("code"), why: oidc.Stray, text: "has no code"},
		"code of nobody":  {attack: query("code", "x"), why: oidc.Stray, text: "does not take the code"},
		"mixed-up issuer": {attack: query("iss", "https://evil.example"), why: oidc.Stray, text: "another provider"},
		"issuer in errors": {attack: func(_ *testing.T, _ *desk, c string, q url.Values) string {
			q["iss"], q["error"] = []string{"https://evil.example"}, []string{"x"}
			return c
		}, why: oidc.Stray, text: "another provider"},
		"no issuer where it is promised": {change: promised, why: oidc.Stray, text: "does not say whose it is"},
		"no cookie":                      {attack: func(*testing.T, *desk, string, url.Values) string { return "" }, why: oidc.Stray, text: "not begun in this browser"},
		"another cookie":                 {attack: func(t *testing.T, d *desk, _ string, _ url.Values) string { c, _ := d.begun(t, ""); return c }, why: oidc.Stray, text: "another sign-in"},
		"another way back":               {attack: way("/evil"), why: oidc.Stray, text: "another sign-in"},
		"a way out":                      {attack: way("//evil.example"), why: oidc.Stray, text: "not begun in this browser"},
		"late":                           {attack: func(_ *testing.T, d *desk, c string, _ url.Values) string { d.now.Store(601); return c }, why: oidc.Stray, text: "longer than 10 minutes"},
		"replayed": {attack: func(t *testing.T, d *desk, c string, q url.Values) string {
			_, err := d.provider.Finish(t.Context(), c, q)
			require.NoError(t, err)
			return c
		}, why: oidc.Stray, text: "does not take the code"},
		"stolen code": {attack: func(t *testing.T, d *desk, _ string, q url.Values) string {
			c, own := d.begun(t, "")
			q.Set("state", own.Get("state"))
			return c
		}, why: oidc.Stray, text: "another browser's"},
		"given up": {attack: query("error", "access_denied"), why: oidc.Denied, text: "given up"},
		"refused":  {attack: query("error", "login_required"), why: oidc.Denied, text: "login_required"},
	})
}

// Invariants 1 and 3: what the provider, or who stands in its place, answers a code with.
func TestProvider_RefusesTokensThatProveNothing(t *testing.T) {
	t.Parallel()
	refuses(t, map[string]attack{
		"no token":        {change: sign(func(*oidctest.Issuer, map[string]any) string { return "" }), why: oidc.Untrusted, text: "has no ID token"},
		"no token at all": {change: at("/token", 200, `{"access_token": "x"}`), why: oidc.Untrusted, text: "has no ID token"},
		"garbage":         {change: sign(func(*oidctest.Issuer, map[string]any) string { return "a.b.c" }), why: oidc.Untrusted, text: "is not good"},
		"alg none":        {change: sign(func(_ *oidctest.Issuer, c map[string]any) string { return unsigned(c) }), why: oidc.Untrusted, text: "is not good"},
		"another's key": {change: sign(func(_ *oidctest.Issuer, c map[string]any) string {
			other := oidctest.New()
			defer other.Close()
			return other.Signed(c)
		}), why: oidc.Untrusted, text: "is not good"},
		"the client's secret": {change: sign(func(_ *oidctest.Issuer, c map[string]any) string {
			raw, err := json.Marshal(c)
			if err != nil {
				panic(err)
			}
			return lib.SignIDToken([]byte(strings.Repeat(oidctest.ClientSecret, 2)), "k", "HS256", string(raw))
		}), why: oidc.Untrusted, text: "is not good"},
		"a changed token": {change: sign(func(i *oidctest.Issuer, c map[string]any) string {
			good := strings.Split(i.Signed(c), ".")
			c["groups"] = []string{"root"}
			return good[0] + "." + strings.Split(unsigned(c), ".")[1] + "." + good[2]
		}), why: oidc.Untrusted, text: "is not good"},
		"another issuer":         {change: claim("iss", "https://evil.example"), why: oidc.Untrusted, text: "is not good"},
		"another audience":       {change: claim("aud", "other"), why: oidc.Untrusted, text: "is not good"},
		"no audience":            {change: claim("aud", nil), why: oidc.Untrusted, text: "is not good"},
		"another party":          {change: claim("azp", "other"), why: oidc.Untrusted, text: "another client"},
		"audiences and no party": {change: claim("aud", []string{"other", oidctest.ClientID}), why: oidc.Untrusted, text: "another client"},
		"expired":                {change: claim("exp", time.Now().Add(-2*time.Minute).Unix()), why: oidc.Untrusted, text: "one of the clocks may be wrong"},
		"no expiry":              {change: claim("exp", nil), why: oidc.Untrusted, text: "expired"},
		"of the future":          {change: claim("nbf", time.Now().Add(time.Hour).Unix()), why: oidc.Untrusted, text: "is not good"},
		"another nonce":          {change: claim("nonce", "x"), why: oidc.Untrusted, text: "(nonce)"},
		"no nonce":               {change: claim("nonce", nil), why: oidc.Untrusted, text: "(nonce)"},
		"nobody":                 {change: claim("sub", ""), why: oidc.Untrusted, text: "names nobody"},
		"a wrong secret":         {change: func(c *oidc.Config, _ *oidctest.Issuer) { c.ClientSecretFile, c.ClientSecret = "", "x" }, why: oidc.Unset, text: "invalid_client (api.oidc.client_id, client_secret)"},
		"a redirected code":      {change: moved("/token"), why: oidc.Away, text: "does not answer as it should"},
		"an error page":          {change: at("/token", 502, `<html>`), why: oidc.Away, text: "does not answer as it should"},
		"keys away":              {change: at("/keys", 503, ""), why: oidc.Away, text: "does not answer as it should"},
	})
}

// Invariant 4: whom nothing gives a name or a role.
func TestProvider_RefusesWhoIsNobodyHere(t *testing.T) {
	t.Parallel()
	refuses(t, map[string]attack{
		"no name":                       {change: claim("preferred_username", nil), why: oidc.Nobody, text: `no claim "preferred_username" to call you by (api.oidc.name_claim)`},
		"a name that is a number":       {change: claim("preferred_username", 7), why: oidc.Nobody, text: "is no name"},
		"a name that looks like others": {change: claim("preferred_username", "аnn"), why: oidc.Nobody, text: "is no name"},
		"a name with a line":            {change: claim("preferred_username", "ann\nroot"), why: oidc.Nobody, text: "is no name"},
		"a long name":                   {change: claim("preferred_username", strings.Repeat("x", 101)), why: oidc.Nobody, text: "is no name"},
		"an address of somebody else": {change: func(c *oidc.Config, i *oidctest.Issuer) {
			c.NameClaim = "email"
			i.Claims = func(c map[string]any) { c["email"], c["email_verified"] = "boss@example.com", false }
		}, why: oidc.Nobody, text: "not verified"},
		"an address of somebody else, as text": {change: func(c *oidc.Config, i *oidctest.Issuer) {
			c.NameClaim = "email"
			i.Claims = func(c map[string]any) { c["email"], c["email_verified"] = "boss@example.com", "false" }
		}, why: oidc.Nobody, text: "not verified"},
		"no groups":              {change: claim("groups", nil), why: oidc.Nobody, text: `no claim "groups" to give you a role by (api.oidc.groups_claim)`},
		"empty groups":           {change: claim("groups", []string{}), why: oidc.Nobody, text: "it has: nothing"},
		"groups without a role":  {change: claim("groups", []any{"sales", 7, nil}), why: oidc.Nobody, text: "has a role here (api.oidc.roles); it has: sales"},
		"groups that look alike": {change: claim("groups", []string{"OPS", " ops", "ops,root"}), why: oidc.Nobody, text: "has a role here"},
	})
}

// refuses tries each attack.
func refuses(t *testing.T, attacks map[string]attack) {
	t.Helper()
	for name, test := range attacks {

		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, test.change)
			cookie, query := d.begun(t, "")
			if test.attack != nil {
				cookie = test.attack(t, d, cookie, query)
			}
			who, err := d.provider.Finish(t.Context(), cookie, query)
			require.Error(t, err, "%v", who)
			refused := new(oidc.RefusedError)
			require.ErrorAs(t, err, &refused)
			require.Contains(t, refused.Text, test.text)
			require.Equal(t, test.why, refused.Why, err)
			require.Equal(t, test.why == oidc.Nobody, refused.Identity != "", "somebody was named: %v", err)
			require.Empty(t, who)
			require.NotContains(t, err.Error(), oidctest.ClientSecret)
		})
	}
}

// Invariant 3: nothing is sent to where somebody on the way reads it along, or to another issuer.
func TestProvider_IsHeldToItsOwnDocument(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*oidctest.Issuer){
		"another issuer": func(i *oidctest.Issuer) {
			i.Published = func(d map[string]any) { d["issuer"] = "https://evil.example" }
		},
		"token in the clear": func(i *oidctest.Issuer) {
			i.Published = func(d map[string]any) { d["token_endpoint"] = "http://login.example.com/token" }
		},
		"keys in the clear": func(i *oidctest.Issuer) {
			i.Published = func(d map[string]any) { d["jwks_uri"] = "http://login.example.com/keys" }
		},
		"a script": func(i *oidctest.Issuer) {
			i.Published = func(d map[string]any) { d["authorization_endpoint"] = "javascript:alert(1)" }
		},
		"no token endpoint": func(i *oidctest.Issuer) { i.Published = func(d map[string]any) { delete(d, "token_endpoint") } },
		"redirected":        func(i *oidctest.Issuer) { moved(discovery)(nil, i) },
		"an endless answer": func(i *oidctest.Issuer) {
			i.Published = func(d map[string]any) { d["padding"] = strings.Repeat("x", 2<<20) }
		},
		"no document at all": func(i *oidctest.Issuer) { at("", http.StatusNotFound, "")(nil, i) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, func(_ *oidc.Config, i *oidctest.Issuer) { change(i) })
			_, location, err := d.provider.Begin(t.Context(), "")
			refused := new(oidc.RefusedError)
			require.ErrorAs(t, err, &refused, location)
			require.Equal(t, oidc.Away, refused.Why)
			require.Error(t, refused.Err, "the log says what")
			require.LessOrEqual(t, len(err.Error()), 700)
		})
	}
}

const discovery = "/.well-known/openid-configuration"

// A provider that is away is asked once for all who wait, and again after a while; what it has
// published is kept.
func TestProvider_IsAskedSeldom(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	var broken atomic.Bool
	d.issuer.Answer = func(w http.ResponseWriter, _ *http.Request) bool {
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return broken.Load()
	}
	require.Zero(t, d.issuer.Calls(discovery), "nothing is asked before the first sign-in")
	broken.Store(true)
	all := func() (failed int64) {
		var n atomic.Int64
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				if _, _, err := d.provider.Begin(t.Context(), ""); err != nil {
					n.Add(1)
				}
			})
		}
		group.Wait()
		return n.Load()
	}
	require.EqualValues(t, 20, all())
	require.Equal(t, 1, d.issuer.Calls(discovery), "one asks for all")
	broken.Store(false)
	require.EqualValues(t, 20, all(), "the failure is the answer for a while")
	d.now.Store(6)
	require.Zero(t, all())
	require.Equal(t, 2, d.issuer.Calls(discovery))
	for range 2 {
		cookie, query := d.begun(t, "")
		_, err := d.provider.Finish(t.Context(), cookie, query)
		require.NoError(t, err)
	}
	require.Equal(t, []int{2, 1}, []int{d.issuer.Calls(discovery), d.issuer.Calls("/keys")}, "keys are kept")
	d.now.Store(3700)
	broken.Store(true)
	require.Zero(t, all(), "what was published is good while the provider is away")
	require.Equal(t, 3, d.issuer.Calls(discovery))
}

// Whoever hangs up, or sends codes that are none, keeps nobody else from signing in.
func TestProvider_OneFailureIsNotEverybodys(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(_ *oidc.Config, i *oidctest.Issuer) {
		i.Answer = func(w http.ResponseWriter, req *http.Request) bool {
			if bad := req.PostFormValue("code") == "bad"; bad {
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}
			return false
		}
	})
	gone, hangUp := contextOf(t)
	hangUp()
	_, _, err := d.provider.Begin(gone, "")
	require.NoError(t, err, "the question was asked to its end")
	cookie, query := d.begun(t, "")
	query.Set("code", "bad")
	_, err = d.provider.Finish(t.Context(), cookie, query)
	require.ErrorContains(t, err, "does not answer")
	_, _, err = d.provider.Begin(t.Context(), "")
	require.NoError(t, err)
}

// A provider that goes silent is given up.
func TestProvider_SilenceHasADeadline(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	d := newDesk(t, func(_ *oidc.Config, i *oidctest.Issuer) {
		i.Answer = func(http.ResponseWriter, *http.Request) bool { <-end; return true }
	})
	defer close(end)
	d.provider.SetClock(time.Now, 50*time.Millisecond)
	_, _, err := d.provider.Begin(t.Context(), "")
	refused := new(oidc.RefusedError)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, oidc.Away, refused.Why)
}

// A provider that signs by another algorithm than it published before is asked again, at most once in
// five seconds, and its tokens are good at once.
func TestProvider_IsAskedAgainWhenItSignsOtherwise(t *testing.T) {
	t.Parallel()
	var signs atomic.Value
	signs.Store("RS256")
	d := newDesk(t, func(_ *oidc.Config, i *oidctest.Issuer) {
		i.Published = func(d map[string]any) { d["id_token_signing_alg_values_supported"] = []any{signs.Load()} }
	})
	finish := func() error {
		cookie, query := d.begun(t, "")
		_, err := d.provider.Finish(t.Context(), cookie, query)
		return err
	}
	require.Error(t, finish(), "it was asked a moment ago")
	require.Error(t, finish())
	require.Equal(t, 1, d.issuer.Calls(discovery))
	d.now.Store(6)
	require.Error(t, finish(), "it says the same")
	require.Error(t, finish())
	require.Equal(t, 2, d.issuer.Calls(discovery), "once in five seconds")
	signs.Store("ES256")
	d.now.Store(12)
	require.NoError(t, finish())
	require.NoError(t, finish())
	require.Equal(t, 3, d.issuer.Calls(discovery))
}
