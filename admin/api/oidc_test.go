package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/oidc/oidctest"
)

const callback = "/login/oidc/callback"

// door is an API with a provider, at a public URL, and what the provider says of who comes.
type door struct {
	*bundle

	issuer *oidctest.Issuer
	claims map[string]any
}

func newDoor(t *testing.T, change func(*api.Options)) *door {
	t.Helper()
	d := &door{issuer: oidctest.New(), claims: make(map[string]any)}
	t.Cleanup(d.issuer.Close)
	d.issuer.Claims = func(c map[string]any) {
		for name, value := range d.claims {
			c[name] = value
		}
	}
	c := api.DefaultConfig()
	c.PublicURL = "http://localhost:8470/a/b/"
	c.OIDC.Issuer, c.OIDC.ClientID, c.OIDC.Roles, c.OIDC.Label = d.issuer.URL, oidctest.ClientID, []string{"ops=operator", "staff=viewer", "root=admin"}, "A & B"
	c.OIDC.ClientSecretFile = filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(c.OIDC.ClientSecretFile, []byte(oidctest.ClientSecret), 0o600))
	provider, err := c.Provider()
	require.NoError(t, err)
	t.Cleanup(provider.Close)
	d.bundle = setup(t, func(o *api.Options) {
		if o.OIDC, o.PublicURL = provider, c.PublicURL; change != nil {
			change(o)
		}
	})
	return d
}

// begun is a sign-in whose user has agreed: the cookie of the browser, and the path that it is
// sent back to.
func (d *door) begun(t *testing.T, query string, headers ...string) (cookie, path string) {
	t.Helper()
	a := d.call(t, "", "GET", "/login/oidc"+query, "", headers...)
	require.Equal(t, http.StatusFound, a.status, a.text)
	list := (&http.Response{Header: a.header}).Cookies()
	require.Len(t, list, 1)
	c := list[0]
	require.Equal(t, []any{"belfry-oidc", "/a/b", false, true, http.SameSiteLaxMode, ""}, []any{c.Name, c.Path, c.Secure, c.HttpOnly, c.SameSite, c.Domain})
	location, err := url.Parse(a.header.Get("Location"))
	require.NoError(t, err)
	require.Equal(t, "http://localhost:8470/a/b/api/v1"+callback, location.Query().Get("redirect_uri"), "whatever Host says")
	require.NotContains(t, a.header.Get("Location"), c.Value)
	back, err := d.issuer.Authorize(a.header.Get("Location"))
	require.NoError(t, err)
	return c.Name + "=" + c.Value, callback + "?" + back.Encode()
}

// signedIn is the session of somebody who signs in.
func (d *door) signedIn(t *testing.T) (session string, who api.SignedIn) {
	t.Helper()
	cookie, path := d.begun(t, "")
	a := d.call(t, "", "GET", path, "", "Cookie", cookie)
	require.Equal(t, http.StatusOK, a.status, "%s\n%s", a.text, d.log)
	require.NoError(t, json.Unmarshal([]byte(a.text), &who))
	return d.sessionOf(t, a), who
}

// sessionOf is the session of an answer, beside which the cookie of the sign-in is taken back.
func (d *door) sessionOf(t *testing.T, a answer) string {
	t.Helper()
	list := (&http.Response{Header: a.header}).Cookies()
	require.Len(t, list, 2)
	require.Equal(t, []string{"belfry-oidc", "", "belfry"}, []string{list[0].Name, list[0].Value, list[1].Name})
	require.True(t, list[0].Expires.Before(list[1].Expires))
	return "belfry=" + list[1].Value
}

func (d *door) status(t *testing.T, session, method, path string) int {
	t.Helper()
	return d.call(t, "", method, path, "", "Cookie", session).status
}

// Who signs in through the provider has a session like any other, under a name that nobody else
// has, and with the role of today.
func TestOIDC_ASessionLikeAnyOther(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	session, who := d.signedIn(t)
	require.Equal(t, []any{"oidc:ann", operation.Operator}, []any{who.Name, who.Role})
	a := d.call(t, "", "POST", "/lanes/night/pause", `{"reason": "x"}`, "Cookie", session)
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.Contains(t, a.text, `"paused_by":"oidc:ann"`)
	require.Equal(t, http.StatusForbidden, d.call(t, "", "PATCH", "/limits", `{"priority": 1}`, "Cookie", session).status)
	require.Equal(t, http.StatusForbidden, d.call(t, "", "POST", "/lanes/x/pause", "", "Cookie", session, "Sec-Fetch-Site", "cross-site").status)

	d.claims["preferred_username"] = "Ann Lee"
	again, who := d.signedIn(t)
	require.Equal(t, "oidc:ann", who.Name, "the identity is the same, and so is the user")
	require.Equal(t, http.StatusOK, d.status(t, session, "GET", "/lanes"), "a second browser")

	d.claims["groups"] = []string{"staff"}
	lower, who := d.signedIn(t)
	require.Equal(t, operation.Viewer, who.Role)
	require.Equal(t, http.StatusOK, d.status(t, lower, "GET", "/lanes"))
	for _, old := range []string{session, again} {
		require.Equal(t, http.StatusUnauthorized, d.status(t, old, "GET", "/lanes"), "another role ends the sessions")
	}
	require.Contains(t, d.call(t, "viewer", "GET", "/sessions?user=oidc:ann", "").text, `"via":"oidc"`)
	require.Contains(t, d.call(t, "viewer", "GET", "/users", "").text, `"password_at":null`)
	events := d.call(t, "operator", "GET", "/users/events?name=oidc:ann", "").text
	for _, want := range []string{`"via":"oidc"`, `"kind":"created"`, `"role":"viewer"`, `"by the provider"`, `"actor":"oidc:ann"`} {
		require.Contains(t, strings.ReplaceAll(events, `": "`, `":"`), want)
	}
	require.Equal(t, http.StatusOK, d.status(t, lower, "POST", "/logout"))
	require.Equal(t, http.StatusUnauthorized, d.status(t, lower, "GET", "/lanes"))

	next, _ := d.signedIn(t)
	require.Equal(t, http.StatusOK, d.call(t, "admin", "POST", "/sessions/revoke", `{"user": "oidc:ann"}`).status)
	require.Equal(t, http.StatusUnauthorized, d.status(t, next, "GET", "/lanes"))
	require.NotContains(t, d.log.String(), oidctest.ClientSecret)
}

// The way back is belfry's own, below its public URL; a browser is told in words.
func TestOIDC_LeadsBack(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	cookie, path := d.begun(t, "?return_to="+url.QueryEscape("/api/v1/lanes?x=1#y"), "Host", "evil.example", "X-Forwarded-Host", "evil.example")
	a := d.call(t, "", "GET", path, "", "Cookie", cookie, "Accept", "text/html")
	require.Equal(t, http.StatusSeeOther, a.status, a.text)
	require.Equal(t, "http://localhost:8470/a/b/api/v1/lanes?x=1#y", a.header.Get("Location"))
	first := d.sessionOf(t, a)
	cookie, path = d.begun(t, "")
	a = d.call(t, "", "GET", path, "", "Cookie", cookie+"; "+first, "Accept", "text/html,*/*")
	require.Equal(t, http.StatusOK, a.status)
	require.Contains(t, a.text, "As oidc:ann, operator, until ")
	require.Equal(t, http.StatusUnauthorized, d.status(t, first, "GET", "/lanes"), "the session that the browser had has ended")
	for _, query := range []string{"return_to=//evil.example", "return_to=https://evil.example", "return_to=/a&return_to=/b", "return_to=/a&x=1", "x=1", "return_to=%zz", "return_to=/a/../../x", "return_to=" + strings.Repeat("/x", 600)} {
		a := d.call(t, "", "GET", "/login/oidc?"+query, "")
		require.Equal(t, http.StatusUnprocessableEntity, a.status, query)
		require.Equal(t, "query.return_to", a.problem(t).Errors[0].Location)
		require.Empty(t, a.header.Get("Location"))
		require.Empty(t, a.header.Get("Set-Cookie"))
	}
}

// What is refused opens nothing, takes the cookie of the sign-in back, and says what to do, to
// programs and to people.
func TestOIDC_RefusesAndSaysWhy(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	cookie, path := d.begun(t, "")
	require.Equal(t, http.StatusOK, d.call(t, "", "GET", path, "", "Cookie", cookie).status)
	before, _ := d.signedIn(t)
	for _, test := range []struct {
		name, cookie, query string
		claims              map[string]any
		status              int
		text                string
	}{
		{name: "replayed", cookie: cookie, query: path, status: 400, text: "refused the code"},
		{name: "forged", query: callback + "?state=x&code=y", status: 400, text: "another sign-in"},
		{name: "refused", query: "error=access_denied", status: 403, text: "access_denied"},
		{name: "markup", query: "error=%3Cscript%3E", status: 403, text: "<script>"},
		{name: "another's token", claims: map[string]any{"aud": "other"}, status: 403, text: "cannot be verified"},
		{name: "nobody", claims: map[string]any{"groups": []string{"<b>"}}, status: 403, text: "api.oidc.roles"},
		{name: "somebody else's name", claims: map[string]any{"sub": "2"}, status: 403, text: "another account of the provider has signed in by this name"},
	} {
		for _, accept := range []string{"*/*", "text/html,application/xhtml+xml"} {
			own, at := d.begun(t, "")
			query, err := url.ParseQuery(strings.TrimPrefix(at, callback+"?"))
			require.NoError(t, err)
			switch more, err := url.ParseQuery(test.query); {
			case test.cookie != "":
				own, at = test.cookie, test.query
			case strings.HasPrefix(test.query, callback):
				at = test.query
			default:
				require.NoError(t, err)
				for name := range more {
					query.Set(name, more.Get(name))
				}
				at = callback + "?" + query.Encode()
			}
			d.claims = test.claims
			a := d.call(t, "", "GET", at, "", "Cookie", own, "Accept", accept)
			d.claims = nil
			require.Equal(t, test.status, a.status, "%s: %s", test.name, a.text)
			list := (&http.Response{Header: a.header}).Cookies()
			require.Len(t, list, 1, test.name)
			require.Equal(t, []string{"belfry-oidc", ""}, []string{list[0].Name, list[0].Value})
			require.Empty(t, a.header.Get("Location"))
			if accept == "*/*" {
				require.Contains(t, a.problem(t).Detail, test.text)
				continue
			}
			require.Contains(t, a.header.Get("Content-Type"), "text/html")
			require.Contains(t, a.text, `<a href="/a/b/api/v1/login/oidc">Sign in with A &amp; B</a>`)
			require.NotContains(t, a.text, "<script>")
			require.NotContains(t, a.text, "<b>")
		}
	}
	require.Equal(t, http.StatusUnauthorized, d.status(t, before, "GET", "/lanes"), "who has no role any more keeps no session")
	require.Contains(t, d.log.String(), "sign-in through the provider refused")
}

// A state opens one session, whatever the provider does with codes.
func TestOIDC_AStateIsGoodOnce(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	cookie, path := d.begun(t, "")
	d.issuer.Lax = true
	a := d.call(t, "", "GET", path, "", "Cookie", cookie)
	require.Equal(t, http.StatusOK, a.status, a.text)
	session := d.sessionOf(t, a)
	require.Equal(t, http.StatusOK, d.status(t, session, "POST", "/logout"))
	last := d.call(t, "", "GET", path, "", "Cookie", cookie)
	require.Equal(t, http.StatusBadRequest, last.status, last.text)
	require.Contains(t, last.problem(t).Detail, "finished before")
	require.Len(t, (&http.Response{Header: last.header}).Cookies(), 1)
}

// The provider's users are the provider's: nothing here lets them in otherwise; and an admin
// keeps them out.
func TestOIDC_UsersAreTheProviders(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	session, _ := d.signedIn(t)
	for path, body := range map[string]string{"/users/oidc:ann/set-password": `{"password": "` + annsPassword + `"}`, "/users/oidc:ann/link": ""} {
		a := d.call(t, "admin", "POST", path, body)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, path)
		require.Contains(t, a.text, "users without oidc: before the name")
	}
	a := d.call(t, "admin", "PATCH", "/users/oidc:ann", `{"role": "admin"}`)
	require.Equal(t, http.StatusUnprocessableEntity, a.status, a.text)
	require.Contains(t, a.text, "api.oidc.roles")
	for _, name := range []string{"oidc:bob", "oidc:ann"} {
		require.Equal(t, http.StatusUnprocessableEntity, d.call(t, "admin", "POST", "/users/"+name+"/add", `{"role": "admin", "password": "`+annsPassword+`"}`).status)
		require.Equal(t, http.StatusUnprocessableEntity, d.call(t, "admin", "POST", "/tokens/"+name+"/create", `{"role": "viewer"}`).status)
		require.Equal(t, http.StatusUnauthorized, d.call(t, "", "POST", "/login", `{"name": "`+name+`", "password": "`+annsPassword+`"}`).status)
	}
	require.Equal(t, http.StatusOK, d.call(t, "admin", "POST", "/users/oidc:ann/disable", "").status)
	require.Equal(t, http.StatusUnauthorized, d.status(t, session, "GET", "/lanes"))
	d.claims["groups"], d.claims["preferred_username"] = []string{"root"}, "ann2"
	cookie, path := d.begun(t, "")
	a = d.call(t, "", "GET", path, "", "Cookie", cookie)
	require.Equal(t, http.StatusForbidden, a.status, a.text)
	require.Contains(t, a.problem(t).Detail, "oidc:ann may not sign in here: the user is disabled")
	require.Equal(t, http.StatusOK, d.call(t, "admin", "POST", "/users/oidc:ann/enable", "").status)
	d.signedIn(t)
	require.Equal(t, http.StatusOK, d.call(t, "admin", "POST", "/users/oidc:ann/remove", "").status)
	_, who := d.signedIn(t)
	require.Equal(t, "oidc:ann2", who.Name, "somebody new")
}

// Refusals count as those of names and passwords do: by address, and by the name that the
// provider has said.
func TestOIDC_RefusalsAreBounded(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	d.signedIn(t)
	d.claims["groups"] = []string{}
	var all []int
	for range 11 {
		cookie, path := d.begun(t, "")
		all = append(all, d.call(t, "", "GET", path, "", "Cookie", cookie).status)
	}
	require.Equal(t, []int{403, 429}, []int{all[9], all[10]})
	var events int
	require.NoError(t, d.db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.events WHERE kind = 'locked out' AND name = 'oidc:ann'`).Scan(&events))
	require.Equal(t, 1, events)
	d = newDoor(t, nil)
	cookie, path := d.begun(t, "")
	back, err := url.ParseQuery(strings.TrimPrefix(path, callback+"?"))
	require.NoError(t, err)
	back.Set("code", "y")
	var last answer
	for i := 0; i < 1000 && last.status != http.StatusTooManyRequests; i++ { // one more is allowed every six seconds
		last = d.call(t, "", "GET", callback+"?"+back.Encode(), "", "Cookie", cookie)
	}
	require.Equal(t, http.StatusTooManyRequests, last.status)
	require.Contains(t, last.problem(t).Detail, "from this address")
}

// A page of another site, which knows no pending sign-in, locks nobody out of its visitor's address.
func TestOIDC_OtherSitesLockNobodyOut(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	d.withAnn(t)
	cookie, _ := d.begun(t, "")
	for i := range 60 {
		var headers []string
		if i%2 > 0 {
			headers = []string{"Cookie", cookie}
		}
		require.Equal(t, http.StatusBadRequest, d.call(t, "", "GET", callback+"?state=x&code=y", "", headers...).status)
	}
	require.Zero(t, d.issuer.Calls("/token"))
	require.Equal(t, http.StatusOK, d.call(t, "", "POST", "/login", login).status)
}

// A provider that is away is said to be, and keeps nobody out who has a password.
func TestOIDC_AwayIsNobodyElsesTrouble(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	d.withAnn(t)
	d.issuer.Close()
	a := d.call(t, "", "GET", "/login/oidc", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status, a.text)
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Contains(t, a.problem(t).Detail, "sign in with a name and password")
	require.Equal(t, http.StatusOK, d.call(t, "", "POST", "/login", login).status)
}

// Who offers people a choice is told what there is.
func TestOIDC_WaysIn(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	require.JSONEq(t, `{"as": null, "password": true, "provider": {"label": "Sign in with A & B", "path": "/a/b/api/v1/login/oidc"}}`, d.call(t, "", "GET", "/login", "").text)
	for _, path := range []string{"/login/oidc", callback} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			a := d.call(t, "admin", method, path, "")
			require.Equal(t, http.StatusMethodNotAllowed, a.status)
			require.Equal(t, "GET", a.header.Get("Allow"))
		}
	}
	without := setup(t, nil)
	require.JSONEq(t, `{"as": {"name": "the-viewer", "role": "viewer"}, "password": true, "provider": null}`, without.call(t, "viewer", "GET", "/login", "").text)
	require.JSONEq(t, `{"as": null, "password": true, "provider": null}`, without.call(t, "nobody", "GET", "/login", "").text, "a token that is not good is nobody's")
	require.JSONEq(t, `{"as": null, "password": true, "provider": null}`, without.call(t, "", "GET", "/login", "").text)
	for _, path := range []string{"/login/oidc", callback} {
		a := without.call(t, "", "GET", path, "")
		require.Equal(t, http.StatusNotFound, a.status)
		require.Contains(t, a.problem(t).Detail, "api.oidc.issuer")
	}
	reads := newDoor(t, func(o *api.Options) { o.ReadOnly, o.Sessions = true, nil })
	require.JSONEq(t, `{"as": null, "password": false, "provider": null}`, reads.call(t, "", "GET", "/login", "").text)
	for _, path := range []string{"/login/oidc", callback} {
		a := reads.call(t, "", "GET", path, "")
		require.Equal(t, http.StatusForbidden, a.status)
		require.Contains(t, a.problem(t).Detail, "api.read_only")
	}
}

// Where people come by TLS, both cookies are bound to it.
func TestOIDC_CookiesAreBoundToThePublicURL(t *testing.T) {
	t.Parallel()
	for public, name := range map[string]string{"https://belfry.example.com": "__Host-belfry-oidc", "https://example.com/a": "__Secure-belfry-oidc"} {
		d := newDoor(t, func(o *api.Options) { o.PublicURL = public })
		a := d.call(t, "", "GET", "/login/oidc", "")
		list := (&http.Response{Header: a.header}).Cookies()
		require.Len(t, list, 1)
		require.Equal(t, []any{name, true}, []any{list[0].Name, list[0].Secure})
	}
}

func TestConfig_OIDCNeedsAPublicURLWhereItIsServed(t *testing.T) {
	t.Parallel()
	c := api.DefaultConfig()
	c.OIDC.Issuer = "https://login.example.com"
	require.NoError(t, c.Validate(), "nothing is served")
	c.Listen = "127.0.0.1:0"
	for _, problem := range []string{"api.public_url is empty", "api.oidc.client_id: is empty", "api.oidc.roles: is empty"} {
		require.ErrorContains(t, c.Validate(), problem)
	}
	c.PublicURL, c.OIDC.ClientID, c.OIDC.Roles, c.OIDC.ClientSecretFile = "https://belfry.example.com", "x", []string{"a=viewer"}, "/nowhere/secret"
	require.NoError(t, c.Validate())
	require.ErrorContains(t, c.CheckSecrets(), "api.oidc.client_secret_file: open ")
	_, err := c.Provider()
	require.ErrorContains(t, err, "api.oidc.client_secret_file: open ")
}
