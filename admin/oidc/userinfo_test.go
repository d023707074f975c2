package oidc_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/oidc"
	"github.com/belfryhq/belfry/admin/oidc/oidctest"
	"github.com/belfryhq/belfry/admin/operation"
)

// informed is a provider whose ID token lacks claims, and whose userinfo endpoint says something.
func informed(lacks []string, says map[string]any) func(*oidc.Config, *oidctest.Issuer) {
	return func(c *oidc.Config, i *oidctest.Issuer) {
		c.Userinfo = true
		i.Claims = func(all map[string]any) {
			for _, name := range lacks {
				delete(all, name)
			}
		}
		i.Userinfo = func() map[string]any { return says }
	}
}

// then does one thing after the other to a provider.
func then(all ...func(*oidc.Config, *oidctest.Issuer)) func(*oidc.Config, *oidctest.Issuer) {
	return func(c *oidc.Config, i *oidctest.Issuer) {
		for _, change := range all {
			change(c, i)
		}
	}
}

// What the ID token lacks of the two claims is taken from the userinfo endpoint, once it is asked
// for; what the token says counts.
func TestUserinfo_SaysWhatTheTokenLacks(t *testing.T) {
	t.Parallel()
	groups := []string{"groups"}
	for name, test := range map[string]struct {
		change func(*oidc.Config, *oidctest.Issuer)
		asked  int
		role   operation.Role
	}{
		"the groups":   {informed(groups, map[string]any{"sub": "1", "groups": []string{"root"}}), 1, operation.Admin},
		"the name":     {informed([]string{"preferred_username"}, map[string]any{"sub": "1", "preferred_username": "ann", "groups": "root"}), 1, operation.Operator},
		"both":         {informed([]string{"preferred_username", "groups"}, map[string]any{"sub": "1", "preferred_username": "ann", "groups": "root"}), 1, operation.Admin},
		"another name": {informed(groups, map[string]any{"sub": "1", "preferred_username": "boss", "groups": "root"}), 1, operation.Admin},
		"nothing":      {informed(nil, map[string]any{"sub": "1", "groups": "root"}), 0, operation.Operator},
		"a path into an object that the token has too": {then(informed(groups, map[string]any{"sub": "1", "realm_access": map[string]any{"roles": "root"}}), func(c *oidc.Config, i *oidctest.Issuer) {
			c.GroupsClaim = "realm_access.roles"
			i.Claims = func(all map[string]any) { all["realm_access"] = map[string]any{"verify": true} }
		}), 1, operation.Admin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, test.change)
			cookie, query := d.begun(t, "")
			who, err := d.provider.Finish(t.Context(), cookie, query)
			require.NoError(t, err)
			require.Equal(t, "ann", who.Name)
			require.Equal(t, test.role, who.Role)
			require.Equal(t, test.asked, d.issuer.Calls("/userinfo"))
		})
	}
}

// Invariants 1, 3 and 4: an answer that is of somebody else, or none, signs nobody in.
func TestUserinfo_OfSomebodyElseSignsNobodyIn(t *testing.T) {
	t.Parallel()
	lacks := []string{"groups"}
	good := map[string]any{"sub": "1", "groups": "root"}
	with := func(change func(*oidc.Config, *oidctest.Issuer)) func(*oidc.Config, *oidctest.Issuer) {
		return then(informed(lacks, good), change)
	}
	refuses(t, map[string]attack{
		"another subject": {change: informed(lacks, map[string]any{"sub": "2", "groups": "root"}), why: oidc.Untrusted, text: "of somebody else than its ID token (sub)"},
		"no subject":      {change: informed(lacks, map[string]any{"groups": "root"}), why: oidc.Untrusted, text: "of somebody else than its ID token (sub)"},
		"nor has it them": {change: informed(lacks, map[string]any{"sub": "1"}), why: oidc.Nobody, text: `neither the ID token nor the userinfo endpoint has a claim "groups" to give you a role by (api.oidc.groups_claim)`},
		"not asked for":   {change: with(func(c *oidc.Config, _ *oidctest.Issuer) { c.Userinfo = false }), why: oidc.Nobody, text: "or the provider's userinfo endpoint has it (api.oidc.userinfo)"},
		"no endpoint":     {change: with(func(_ *oidc.Config, i *oidctest.Issuer) { i.Userinfo = nil }), why: oidc.Unset, text: "has no userinfo endpoint to ask for what its ID token lacks (api.oidc.userinfo)"},
		"forbidden":       {change: with(at("/userinfo", http.StatusForbidden, `{"error": "insufficient_scope"}`)), why: oidc.Away, text: "the provider's userinfo endpoint does not answer as it should (api.oidc.userinfo)"},
		"an error page":   {change: with(at("/userinfo", http.StatusBadGateway, "<html>")), why: oidc.Away, text: "userinfo endpoint does not answer"},
		"no JSON":         {change: with(at("/userinfo", http.StatusOK, "<html>")), why: oidc.Away, text: "userinfo endpoint does not answer"},
		"a list":          {change: with(at("/userinfo", http.StatusOK, "[]")), why: oidc.Away, text: "userinfo endpoint does not answer"},
		"endless":         {change: with(at("/userinfo", http.StatusOK, `{"sub": "1", "groups": "root", "x": "`+strings.Repeat("x", 2<<20)+`"}`)), why: oidc.Away, text: "userinfo endpoint does not answer"},
		"redirected":      {change: with(moved("/userinfo")), why: oidc.Away, text: "userinfo endpoint does not answer"},
		"an address that is not verified": {change: then(informed([]string{"preferred_username"}, map[string]any{"sub": "1", "email": "boss@example.com", "email_verified": "false"}), func(c *oidc.Config, _ *oidctest.Issuer) {
			c.NameClaim = "email"
		}), why: oidc.Nobody, text: "not verified"},
	})
}

// Invariant 3: the access token is shown to nobody in the clear, and an endpoint that is not asked
// may be anything.
func TestUserinfo_IsAskedByTLS(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{true, false} {
		d := newDesk(t, func(c *oidc.Config, i *oidctest.Issuer) {
			c.Userinfo = asked
			i.Published = func(d map[string]any) { d["userinfo_endpoint"] = "http://login.example.com/userinfo" }
		})
		_, _, err := d.provider.Begin(t.Context(), "")
		if !asked {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "the provider's userinfo_endpoint is \"http://login.example.com/userinfo\"; allowed values: https://")
	}
}

// A userinfo endpoint that goes silent is given up.
func TestUserinfo_SilenceHasADeadline(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	d := newDesk(t, then(informed([]string{"groups"}, nil), func(_ *oidc.Config, i *oidctest.Issuer) {
		i.Answer = func(_ http.ResponseWriter, req *http.Request) bool {
			if req.URL.Path != "/userinfo" {
				return false
			}
			<-end
			return true
		}
	}))
	defer close(end)
	refused := new(oidc.RefusedError)
	for within := 500 * time.Millisecond; !strings.Contains(refused.Text, "userinfo"); within *= 2 { // until it comes that far in time
		require.Less(t, within, time.Minute, refused.Text)
		d.provider.SetClock(time.Now, time.Minute)
		cookie, query := d.begun(t, "")
		d.provider.SetClock(time.Now, within)
		_, err := d.provider.Finish(t.Context(), cookie, query)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, oidc.Away, refused.Why)
	}
	require.Contains(t, refused.Text, "the provider's userinfo endpoint does not answer")
}
