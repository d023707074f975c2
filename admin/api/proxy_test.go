package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/admin/access"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
)

const (
	proxySecret = "0123456789abcdef0123456789abcdef"
	inner       = "10.0.0.7:4321" // the proxy
)

// proxied is a configuration with a proxy at 10.0.0.7 and in 10.1.0.0/16.
func proxied(t *testing.T) api.Config {
	t.Helper()
	c := api.DefaultConfig()
	c.Listen, c.PublicURL = "127.0.0.1:0", "https://belfry.example.com"
	c.Proxy = api.ProxyConfig{
		Addresses: []string{"10.0.0.7", "10.1.0.0/16", "2001:db8:1::/48"}, SecretHeader: "X-Belfry-Proxy", SecretFile: filepath.Join(t.TempDir(), "secret"),
		UserHeader: "X-Forwarded-User", RoleHeader: "X-Forwarded-Groups", Roles: []string{"ops=operator", "all staff=viewer", "root=admin"},
	}
	require.NoError(t, os.WriteFile(c.Proxy.SecretFile, []byte(proxySecret+"\r\nnot this\n"), 0o600))
	return c
}

// behind serves behind that proxy. ask sends a request from an address, with pairs of a header
// and its value.
func behind(t *testing.T) (ask func(from, method, path string, headers ...string) answer, b *bundle) {
	t.Helper()
	config := proxied(t)
	require.NoError(t, config.Validate())
	trusted, err := config.TrustedProxy()
	require.NoError(t, err)
	var handler http.Handler
	b = setup(t, func(c *api.Options) {
		c.Proxy, c.PublicURL = trusted, config.PublicURL
		handler = api.New(*c)
	})
	return func(from, method, path string, headers ...string) answer {
		t.Helper()
		req := httptest.NewRequestWithContext(t.Context(), method, api.Prefix+path, nil)
		req.RemoteAddr = from
		for i := 0; i < len(headers); i += 2 {
			req.Header.Add(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		text, err := io.ReadAll(w.Body)
		require.NoError(t, err)
		return answer{w.Code, w.Header(), strings.TrimSpace(string(text))}
	}, b
}

// Who a proxy names has the highest role of their groups, and is the actor; nobody else can say
// so, from elsewhere, without the secret, or by adding to the proxy's headers.
func TestProxy_NamesWhoAsks(t *testing.T) {
	t.Parallel()
	ask, _ := behind(t)
	secret := []string{"X-Belfry-Proxy", proxySecret}
	ann := []string{"X-Forwarded-User", "ann@example.com", "X-Forwarded-Groups", "others, ops ,all staff"}
	a := ask(inner, "POST", "/lanes/night/pause", append(secret, ann...)...)
	require.Equal(t, http.StatusOK, a.status, a.text)
	require.Contains(t, a.text, `"paused_by":"ann@example.com"`)
	require.Equal(t, http.StatusOK, ask("[2001:db8:1:2::9]:1", "GET", "/lanes", append(secret, ann...)...).status, "a network of IPv6")
	require.Equal(t, http.StatusOK, ask("[::ffff:10.1.2.3]:1", "GET", "/lanes", append(secret, ann...)...).status)
	require.Equal(t, http.StatusForbidden, ask(inner, "POST", "/lanes/night/pause", append(secret, "X-Forwarded-User", "kim", "X-Forwarded-Groups", "all staff")...).status, "a viewer")

	wrong := strings.Repeat("x", 32)
	for name, test := range map[string]struct {
		from    string
		headers []string
		status  int
	}{
		"another peer with the secret":  {"10.0.0.8:1", append(secret, ann...), http.StatusForbidden},
		"another peer":                  {"192.0.2.1:1", ann, http.StatusForbidden},
		"this machine without it":       {"127.0.0.1:1", append(secret, ann...), http.StatusUnauthorized},
		"no secret":                     {inner, ann, http.StatusForbidden},
		"a wrong secret":                {inner, append([]string{"X-Belfry-Proxy", wrong}, ann...), http.StatusForbidden},
		"a part of the secret":          {inner, append([]string{"X-Belfry-Proxy", proxySecret[:31]}, ann...), http.StatusForbidden},
		"more than the secret":          {inner, append([]string{"X-Belfry-Proxy", proxySecret + "0"}, ann...), http.StatusForbidden},
		"an empty secret":               {inner, append([]string{"X-Belfry-Proxy", ""}, ann...), http.StatusForbidden},
		"two secrets":                   {inner, append([]string{"X-Belfry-Proxy", wrong}, append(secret, ann...)...), http.StatusForbidden},
		"two secrets, the right first":  {inner, append(append([]string{}, secret...), append([]string{"X-Belfry-Proxy", wrong}, ann...)...), http.StatusForbidden},
		"the address of the proxy said": {"192.0.2.1:1", append([]string{"X-Forwarded-For", "10.0.0.7"}, append(secret, ann...)...), http.StatusForbidden},
		"nobody named":                  {inner, secret, http.StatusUnauthorized},
		"an empty name":                 {inner, append(secret, "X-Forwarded-User", "", "X-Forwarded-Groups", "ops"), http.StatusForbidden},
		"two names":                     {inner, append(append(secret, "X-Forwarded-User", "root"), ann...), http.StatusForbidden},
		"groups twice":                  {inner, append(append(secret, ann...), "X-Forwarded-Groups", "root"), http.StatusForbidden},
		"no groups":                     {inner, append(secret, "X-Forwarded-User", "ann"), http.StatusForbidden},
		"groups without a role":         {inner, append(secret, "X-Forwarded-User", "ann", "X-Forwarded-Groups", "OPS,opsx"), http.StatusForbidden},
		"a name of two lines":           {inner, append(secret, "X-Forwarded-User", "ann\nroot", "X-Forwarded-Groups", "ops"), http.StatusForbidden},
		"a name that hides":             {inner, append(secret, "X-Forwarded-User", "ann\u202e", "X-Forwarded-Groups", "ops"), http.StatusForbidden},
		"the name of a schedule":        {inner, append(secret, "X-Forwarded-User", "Schedule night", "X-Forwarded-Groups", "ops"), http.StatusForbidden},
		"a long name":                   {inner, append(secret, "X-Forwarded-User", strings.Repeat("a", 101), "X-Forwarded-Groups", "ops"), http.StatusForbidden},
		"other names of the headers":    {inner, append(secret, "X_Forwarded_User", "ann", "X_Forwarded_Groups", "ops"), http.StatusUnauthorized},
	} {
		a := ask(test.from, "GET", "/lanes", test.headers...)
		require.Equal(t, test.status, a.status, "%s: %s", name, a.text)
		require.NotContains(t, a.text, proxySecret, name)
	}
	require.Contains(t, ask(inner, "GET", "/lanes", append(secret, "X-Forwarded-User", "ann", "X-Forwarded-Groups", "none")...).text, "no role is mapped to any of the proxy's groups (api.proxy.roles)")
	require.Equal(t, http.StatusOK, ask(inner, "GET", "/lanes", append(secret, "Authorization", "Bearer viewer")...).status, "a token through the proxy")
	require.Equal(t, http.StatusForbidden, ask(inner, "POST", "/lanes/night/resume", append(append(secret, ann...), "Authorization", "Bearer viewer")...).status, "a token decides")
	require.Equal(t, http.StatusForbidden, ask("192.0.2.1:1", "GET", "/lanes", "Authorization", "Bearer admin").status, "past the proxy a token was read on the way")
	require.Equal(t, http.StatusForbidden, ask(inner, "POST", "/lanes/night/resume", append(append(secret, ann...), "Sec-Fetch-Site", "cross-site")...).status, "a page of another site")
}

// Lockouts count the address that the proxy has a request from, as the proxy alone says it.
func TestProxy_LockoutsAreOfItsClients(t *testing.T) {
	t.Parallel()
	ask, _ := behind(t)
	locked := func(from string, headers ...string) bool {
		t.Helper()
		for range 25 {
			if ask(from, "GET", "/lanes", append(headers, "Authorization", "Bearer none")...).status == http.StatusTooManyRequests {
				return true
			}
		}
		return false
	}
	once := func(from string, headers ...string) int {
		return ask(from, "GET", "/lanes", append(headers, "Authorization", "Bearer none")...).status
	}
	secret := []string{"X-Belfry-Proxy", proxySecret}
	require.True(t, locked(inner, append(secret, "X-Forwarded-For", "9.9.9.9, 198.51.100.1:1234, 10.1.0.5")...))
	require.Equal(t, http.StatusTooManyRequests, once(inner, append(secret, "X-Forwarded-For", "1.2.3.4", "X-Forwarded-For", "198.51.100.1")...), "what a client says before is not believed")
	require.Equal(t, http.StatusUnauthorized, once(inner, append(secret, "X-Forwarded-For", "198.51.100.2")...), "others are not locked out")
	require.Equal(t, http.StatusUnauthorized, once(inner, append(secret, "X-Forwarded-For", "9.9.9.9")...))
	require.Equal(t, http.StatusUnauthorized, once(inner, append(secret, "X-Forwarded-For", "unknown")...), "the proxy itself")
	require.True(t, locked(inner, append(secret, "X-Forwarded-For", "[2001:db8:2:3::1]:9")...))
	require.Equal(t, http.StatusTooManyRequests, once(inner, append(secret, "X-Forwarded-For", "2001:db8:2:3::2")...), "one network")

	require.True(t, locked("127.0.0.1:1", "X-Forwarded-For", "198.51.100.3"), "of a peer that is no proxy it is not visited at")
	require.Equal(t, http.StatusTooManyRequests, once("127.0.0.1:2", "X-Forwarded-For", "198.51.100.4"))
	require.Equal(t, http.StatusUnauthorized, once(inner, append(secret, "X-Forwarded-For", "198.51.100.3")...))
}

// Each wrong setting says what is allowed.
func TestProxy_SettingsAreChecked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*api.Config)
		want   string
	}{
		"an address":      {func(c *api.Config) { c.Proxy.Addresses = []string{"proxy.example"} }, `api.proxy.addresses: "proxy.example" is not allowed; allowed values: addresses and networks`},
		"everybody":       {func(c *api.Config) { c.Proxy.Addresses = []string{"0.0.0.0/0"} }, `api.proxy.addresses: "0.0.0.0/0" is not allowed`},
		"everybody of 6":  {func(c *api.Config) { c.Proxy.Addresses = []string{"::/0"} }, `api.proxy.addresses: "::/0" is not allowed`},
		"no address":      {func(c *api.Config) { c.Proxy.Addresses = nil }, "api.proxy.addresses: is empty; allowed values"},
		"no secret":       {func(c *api.Config) { c.Proxy.SecretFile = "" }, "api.proxy.secret_file: is empty; allowed values: the file with the secret that the proxy sends in X-Belfry-Proxy"},
		"no header":       {func(c *api.Config) { c.Proxy.SecretHeader = "" }, "api.proxy.secret_header: is empty; allowed values"},
		"a bad header":    {func(c *api.Config) { c.Proxy.UserHeader = "X User" }, `api.proxy.user_header: "X User" is not allowed; allowed values: the name of a header`},
		"a header twice":  {func(c *api.Config) { c.Proxy.RoleHeader = "x-forwarded-USER" }, `api.proxy.role_header: "x-forwarded-USER" is not allowed`},
		"a taken header":  {func(c *api.Config) { c.Proxy.UserHeader = "authorization" }, `api.proxy.user_header: "authorization" is not allowed`},
		"no roles":        {func(c *api.Config) { c.Proxy.Roles = nil }, "api.proxy.user_header: user_header, role_header and roles require each other; allowed values"},
		"a role":          {func(c *api.Config) { c.Proxy.Roles = []string{"ops=boss"} }, `api.proxy.roles: "ops=boss" is not allowed; allowed values: GROUP=ROLE, without a comma, and ROLE one of viewer, author, operator, admin`},
		"no group":        {func(c *api.Config) { c.Proxy.Roles = []string{"=admin"} }, `api.proxy.roles: "=admin" is not allowed`},
		"no public URL":   {func(c *api.Config) { c.PublicURL = "" }, "api.public_url: is empty; allowed values: the URL of the proxy"},
		"beyond, without": {func(c *api.Config) { c.Listen, c.Proxy = ":0", api.DefaultConfig().Proxy }, "api.tls.cert_file: is empty, and api.listen :0 is beyond this machine, where tokens do not travel in the clear; allowed values: the file with a certificate, and api.tls.key_file with its key, the proxy in front of it (api.proxy.addresses), or an api.listen of"},
	} {
		c := proxied(t)
		test.change(&c)
		require.ErrorContains(t, c.Validate(), test.want, name)
	}
	c := proxied(t)
	c.Listen = ":0"
	require.NoError(t, c.Validate(), "a declared proxy is beyond this machine")
	for _, content := range []string{"", "short\n", strings.Repeat("x", 31), "\n" + proxySecret, proxySecret + " \n", strings.Repeat("ü", 40)} {
		require.NoError(t, os.WriteFile(c.Proxy.SecretFile, []byte(content), 0o600))
		_, err := c.TrustedProxy()
		require.ErrorContains(t, err, "is not a secret; allowed values: 32 or more visible ASCII characters", "%q", content)
	}
	c.Proxy.SecretFile += "x"
	_, err := c.TrustedProxy()
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A name that a proxy says is another identity than a token or a user of that name.
func TestProxy_IdentitiesHaveTheirOwnKeys(t *testing.T) {
	t.Parallel()
	keys := make(map[string]bool)
	for _, who := range []access.Identity{{Name: "ann"}, {Name: "ann", User: true}, {Name: "ann", Proxy: true}} {
		keys[who.Key()] = true
	}
	require.Len(t, keys, 3)
}
