package oidc_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/oidc"
)

func TestConfig_ReportsAllProblems(t *testing.T) {
	t.Parallel()
	require.NoError(t, oidc.DefaultConfig().Validate())
	require.NoError(t, oidc.DefaultConfig().ValidateServed(""))
	bad := oidc.Config{
		Issuer: "http://login.example.com", ClientID: "a b", Scopes: []string{"a b"},
		NameClaim: "", GroupsClaim: "a b", Label: "",
	}
	err := bad.Validate()
	for _, key := range []string{"issuer", "client_id", "scopes", "name_claim", "groups_claim", "label"} {
		require.ErrorContains(t, err, "api.oidc."+key+": ")
	}
	require.Equal(t, 6, strings.Count(err.Error(), "allowed values: "), err)
	for _, issuer := range []string{"https://login.example.com", "https://login.example.com/realms/x/", "http://localhost:8080/x", "http://127.0.0.1", "http://[::1]:80"} {
		c := oidc.DefaultConfig()
		c.Issuer = issuer
		require.NoError(t, c.Validate(), issuer)
	}
	for _, issuer := range []string{"login.example.com", "https://", "https://u:p@login.example.com", "https://login.example.com?x", "https://login.example.com#x", "ftp://login.example.com", "http://10.0.0.1", "http://localhost.example.com", "https://a\r\nb"} {
		c := oidc.DefaultConfig()
		c.Issuer = issuer
		require.ErrorContains(t, c.Validate(), "api.oidc.issuer: ", issuer)
	}

	for _, change := range []func(*oidc.Config){
		func(c *oidc.Config) { c.Scopes = []string{`a"b`} },
		func(c *oidc.Config) { c.Scopes = []string{`a\b`} },
		func(c *oidc.Config) { c.Label = "a\nb" },
		func(c *oidc.Config) { c.Label = strings.Repeat("x", 61) },
		func(c *oidc.Config) { c.Label = " a" },
	} {
		c := oidc.DefaultConfig()
		change(&c)
		require.Error(t, c.Validate(), "%q %q", c.Scopes, c.Label)
		_, err := oidc.New(c, redirect)
		require.Error(t, err, "New validates")
	}

	c := oidc.DefaultConfig()
	c.ClientSecretFile = "x"
	require.ErrorContains(t, c.ValidateServed("https://belfry.example.com"), "api.oidc.issuer: is empty")
	c.Issuer = "https://login.example.com"
	err = c.ValidateServed("")
	for _, problem := range []string{"api.oidc.client_id: is empty", "api.oidc.roles: is empty", "api.public_url is empty"} {
		require.ErrorContains(t, err, problem)
	}
}

func TestConfig_ReadsTheSecretFile(t *testing.T) {
	t.Parallel()
	c := oidc.DefaultConfig()
	check := func() error { _, err := c.Secret(); return err }
	require.NoError(t, check(), "a public client has no secret")
	c.ClientSecretFile = filepath.Join(t.TempDir(), "secret")
	require.ErrorContains(t, check(), "api.oidc.client_secret_file: open ")
	for content, good := range map[string]bool{"": false, "\n": false, "a b\n": false, "s3cret": true, "s3cret\r\nmore": true} {
		require.NoError(t, os.WriteFile(c.ClientSecretFile, []byte(content), 0o600))
		if err := check(); !good {
			require.ErrorContains(t, err, "api.oidc.client_secret_file: the first line of ")
		} else {
			require.NoError(t, err)
		}
	}
}

// Invariant 4.
func TestLocalPath(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"/", "/jobs", "/jobs?id=7&x=%2F#top", "/a/b.c/~d", "/..a", "/?next=https://evil.example"} {
		require.True(t, oidc.LocalPath(text), text)
	}
	for _, text := range []string{
		"", "jobs", "//evil.example", "///evil.example", "/\\evil.example", "\\evil.example", "https://evil.example", "javascript:alert(1)", "@evil.example", ".evil.example", ":80/x",
		"/\r\nSet-Cookie: x", "/a b", "/\t/evil.example", "/../x", "/a/../../x", "/a/..", "/%2e%2e/x", "/a/%2E%2E", "/%5c/x", "/?x=\\evil", "/%zz", "/김", "/" + strings.Repeat("x", 1000),
	} {
		require.False(t, oidc.LocalPath(text), text)
	}
}

func TestClaims_AreSelectedByPath(t *testing.T) {
	t.Parallel()
	all := map[string]any{
		"groups": []any{"a"}, "realm_access": map[string]any{"roles": "r"}, "https://example.com/roles": "u", "a.b": map[string]any{"c": "longest"}, "a": map[string]any{"b": map[string]any{"c": "short", "d": "d"}},
	}
	for path, want := range map[string]any{"groups": []any{"a"}, "realm_access.roles": "r", "https://example.com/roles": "u", "a.b.c": "longest", "a.b.d": "d"} {
		got, has := oidc.Find(all, path)
		require.True(t, has, path)
		require.Equal(t, want, got)
	}
	for _, path := range []string{"", ".", "x", "groups.a", "realm_access.", ".roles", "realm_access.roles.x"} {
		_, has := oidc.Find(all, path)
		require.False(t, has, path)
	}
}

// A parsed cookie has a safe return path.
func FuzzParseCookie(f *testing.F) {
	f.Add("")
	f.Add("..")
	f.Add(strings.Repeat("A", 43) + ".1." + "L2pvYnM")
	f.Add(strings.Repeat("A", 43) + ".+1." + "L2pvYnM")
	f.Fuzz(func(t *testing.T, cookie string) {
		if way, ok := oidc.ParseCookie(cookie); ok {
			require.True(t, way == "" || oidc.LocalPath(way), cookie)
		}
	})
}
