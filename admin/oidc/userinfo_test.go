package oidc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/oidc"
	"github.com/belfryhq/belfry/admin/oidc/oidctest"
)

// informed is a provider whose ID token lacks claims and whose userinfo endpoint returns others.
func informed(lacks []string, returns map[string]any) func(*oidc.Config, *oidctest.Issuer) {
	return func(c *oidc.Config, i *oidctest.Issuer) {
		c.Userinfo = true
		i.Claims = func(all map[string]any) {
			for _, name := range lacks {
				delete(all, name)
			}
		}
		i.Userinfo = func() map[string]any { return returns }
	}
}

// then combines changes.
func then(all ...func(*oidc.Config, *oidctest.Issuer)) func(*oidc.Config, *oidctest.Issuer) {
	return func(c *oidc.Config, i *oidctest.Issuer) {
		for _, change := range all {
			change(c, i)
		}
	}
}

func TestUserinfo_AddsClaimsThatTheTokenLacks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lacks  []string
		info   map[string]any
		groups []string
	}{
		"the groups":   {[]string{"groups"}, map[string]any{"sub": "1", "groups": []string{"root"}}, []string{"root"}},
		"the name":     {[]string{"preferred_username"}, map[string]any{"sub": "1", "preferred_username": "ann", "groups": "root"}, []string{"staff", "ops"}},
		"both":         {[]string{"preferred_username", "groups"}, map[string]any{"sub": "1", "preferred_username": "ann", "groups": "root"}, []string{"root"}},
		"another name": {[]string{"groups"}, map[string]any{"sub": "1", "preferred_username": "boss", "groups": "root"}, []string{"root"}},
		"nothing":      {nil, map[string]any{"sub": "1", "groups": "root"}, []string{"staff", "ops"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t, informed(test.lacks, test.info))
			cookie, query := d.begin(t, "")
			who, err := d.provider.Finish(t.Context(), cookie, query)
			require.NoError(t, err)
			require.Equal(t, "ann", who.Name)
			require.Equal(t, test.groups, who.Groups)
		})
	}
}

// Invariants 1 and 3.
func TestUserinfo_RefusesInvalidResponses(t *testing.T) {
	t.Parallel()
	lacks := []string{"groups"}
	good := map[string]any{"sub": "1", "groups": "root"}
	with := func(change func(*oidc.Config, *oidctest.Issuer)) func(*oidc.Config, *oidctest.Issuer) {
		return then(informed(lacks, good), change)
	}
	refuses(t, map[string]attack{
		"another subject": {change: informed(lacks, map[string]any{"sub": "2", "groups": "root"}), status: http.StatusForbidden, text: "another subject than its ID token (sub)"},
		"no subject":      {change: informed(lacks, map[string]any{"groups": "root"}), status: http.StatusForbidden, text: "another subject than its ID token (sub)"},
		"nor has it them": {change: informed(lacks, map[string]any{"sub": "1"}), status: http.StatusForbidden, text: `no claim "groups" for your groups (api.oidc.groups_claim)`},
		"not enabled":     {change: with(func(c *oidc.Config, _ *oidctest.Issuer) { c.Userinfo = false }), status: http.StatusForbidden, text: "or api.oidc.userinfo"},
		"no endpoint":     {change: with(func(_ *oidc.Config, i *oidctest.Issuer) { i.Userinfo = nil }), status: http.StatusServiceUnavailable, text: "userinfo endpoint (api.oidc.userinfo) does not respond as expected"},
		"forbidden":       {change: with(at("/userinfo", http.StatusForbidden, `{"error": "insufficient_scope"}`)), status: http.StatusServiceUnavailable, text: "userinfo endpoint (api.oidc.userinfo) does not respond as expected"},
		"an error page":   {change: with(at("/userinfo", http.StatusBadGateway, "<html>")), status: http.StatusServiceUnavailable, text: "userinfo endpoint (api.oidc.userinfo) does not respond"},
		"no JSON":         {change: with(at("/userinfo", http.StatusOK, "<html>")), status: http.StatusServiceUnavailable, text: "userinfo endpoint (api.oidc.userinfo) does not respond"},
		"a list":          {change: with(at("/userinfo", http.StatusOK, "[]")), status: http.StatusServiceUnavailable, text: "userinfo endpoint (api.oidc.userinfo) does not respond"},
		"endless":         {change: with(at("/userinfo", http.StatusOK, `{"sub": "1", "groups": "root", "x": "`+strings.Repeat("x", 2<<20)+`"}`)), status: http.StatusServiceUnavailable, text: "userinfo endpoint (api.oidc.userinfo) does not respond"},
		"in the clear":    {change: with(published("userinfo_endpoint", "http://login.example.com/userinfo")), status: http.StatusServiceUnavailable, text: "userinfo endpoint (api.oidc.userinfo) does not respond", cause: insecure},
		"redirected":      {change: with(moved("/userinfo")), status: http.StatusServiceUnavailable, text: "userinfo endpoint (api.oidc.userinfo) does not respond"},
		"an address that is not verified": {change: then(informed([]string{"preferred_username"}, map[string]any{"sub": "1", "email": "boss@example.com", "email_verified": "false"}), func(c *oidc.Config, _ *oidctest.Issuer) {
			c.NameClaim = "email"
		}), status: http.StatusForbidden, text: "has not verified your email address"},
	})
}
