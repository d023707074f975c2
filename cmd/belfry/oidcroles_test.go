package main

import (
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/oidc/oidctest"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// A server whose database role has what docs/roles.md says of operate, and no more, signs people in
// through a provider: it makes the user and the session, keeps an act with its key, changes the user's
// role, and ends the session.
func TestRoles_OperateIsEnoughToSignInThroughAProvider(t *testing.T) {
	t.Parallel()
	empty := dbtest.NewEmpty(t)
	owner := withProfiles(t, empty, "", "migrate")
	r := command(t, []string{"BELFRY_DATABASE_URL=" + owner.DSN}, "migrate", "up")
	require.Equal(t, codeDone, r.code, r.stderr)
	operator := withProfiles(t, empty, owner.User, "operate")

	issuer := oidctest.New()
	t.Cleanup(issuer.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(oidctest.ClientSecret), 0o600))
	groups := []string{"ops"}
	issuer.Claims = func(claims map[string]any) { claims["groups"] = groups }
	p := start(t, []string{
		"BELFRY_DATABASE_URL=" + operator.DSN, "BELFRY_API_PUBLIC_URL=http://127.0.0.1:8470/",
		"BELFRY_API_OIDC_ISSUER=" + issuer.URL, "BELFRY_API_OIDC_CLIENT_ID=" + oidctest.ClientID, "BELFRY_API_OIDC_CLIENT_SECRET_FILE=" + secret,
		"BELFRY_API_OIDC_ROLES=ops=operator,staff=viewer",
	}, "serve", "--listen", "127.0.0.1:0")
	at := p.served(t)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := http.Client{Jar: jar, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ask := func(method, path string) (status int, location string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, at+path, nil)
		require.NoError(t, err)
		req.Header.Set("Idempotency-Key", "k-"+strings.Join(groups, ""))
		res, err := browser.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode, res.Header.Get("Location")
	}
	status := func(method, path string) int {
		t.Helper()
		got, _ := ask(method, path)
		return got
	}
	signIn := func() {
		t.Helper()
		found, location := ask("GET", "/login/oidc")
		require.Equal(t, http.StatusFound, found, p.stderr.String())
		back, err := issuer.Authorize(location)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status("GET", "/login/oidc/callback?"+back.Encode()), p.stderr.String())
	}

	signIn()
	require.Equal(t, http.StatusOK, status("POST", "/lanes/night/pause"), p.stderr.String())
	require.EqualValues(t, 1, count(t, empty, `(SELECT FROM belfry.lanes WHERE paused_by = 'oidc:ann') l`))
	groups = []string{"staff"}
	signIn()
	require.Equal(t, http.StatusForbidden, status("POST", "/lanes/night/resume"))
	require.Equal(t, http.StatusOK, status("POST", "/logout"), p.stderr.String())
	require.Equal(t, http.StatusUnauthorized, status("GET", "/lanes"))
	require.EqualValues(t, 1, count(t, empty, `(SELECT FROM belfry.users WHERE name = 'oidc:ann' AND role = 'viewer') u`))
	require.NotContains(t, p.stderr.String(), "permission denied")
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
}
