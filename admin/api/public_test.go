package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
)

func TestConfig_PublicURL(t *testing.T) {
	t.Parallel()
	validate := func(text string) error {
		c := api.DefaultConfig()
		c.PublicURL = text
		return c.Validate()
	}
	for _, text := range []string{
		"", "https://belfry.example.com", "https://belfry.example.com/", "https://example.com:8443/a/b/", "http://localhost:8470", "http://127.0.0.1:8470/belfry", "http://[::1]:1", "HTTPS://Example.com/A_b~c.d-e",
	} {
		require.NoError(t, validate(text), text)
	}
	for _, text := range []string{
		"example.com", "//example.com", "/a/b", "ftp://example.com", "javascript:alert(1)", "http://example.com", "https://", "https://:443", "https://u:p@example.com", "https://example.com?x", "https://example.com/#a",
		"https://example.com/a?", "https://example.com/../a", "https://example.com/a//b", "https://example.com/a/./b", "https://example.com/%2e%2e", "https://example.com/a b", "https://example.com\r\nX: y", "https://ex\\ample.com",
		"https://example.com/;Domain=evil", "https://a,b", "https://-a", "https://example.com:port", "https://example.com//",
	} {
		err := validate(text)
		require.ErrorContains(t, err, "api.public_url: ", text)
		require.ErrorContains(t, err, "allowed values: https://HOST[:PORT][/PATH]", text)
	}
}

// One setting is prefix, trusted origin and where links lead to, whether or not the proxy in
// front takes the path off and writes its own Host.
func TestLong_APIWorksUnderAPublicPath(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ public, path string }{
		{"", ""}, {"https://belfry.example.com", ""}, {"https://belfry.example.com:443/", ""}, {"https://belfry.example.com/a/b/", "/a/b"}, {"http://localhost/a/b", "/a/b"},
	} {
		b := setup(t, func(c *api.Options) { c.PublicURL = test.public })
		root := strings.TrimSuffix(b.url, api.Prefix)
		for _, below := range []string{"", test.path} {
			b.url = root + below + api.Prefix
			for range 2 {
				require.Equal(t, http.StatusOK, b.call(t, "operator", "POST", "/lanes/night/pause", "").status, test)
				require.Equal(t, http.StatusOK, b.call(t, "operator", "POST", "/lanes/night/resume", "").status, test)
			}
			a := b.call(t, "viewer", "GET", "/lanes/events?limit=1", "")
			require.True(t, strings.HasPrefix(a.header.Get("Link"), "<"+test.path+"/api/v1/lanes/events?"), a.header)
			require.Equal(t, strings.HasPrefix(test.public, "https"), a.header.Get("Strict-Transport-Security") != "")
			if below != "" { // which each server makes, and takes its time for
				require.Equal(t, http.StatusOK, b.call(t, "", "GET", "/openapi.json", "").status)
			}
		}
		for _, odd := range []string{"/a", "/a/bapi/v1/lanes", "/a/b", "/a/b/..", "/a/b/../b/api/v1/lanes", "/a/b//api/v1/lanes", "/a/b/a/b/api/v1/lanes", "/%61/b/api/v1/lanes", "/a%2fb/api/v1/lanes"} {
			b.url = root
			require.Equal(t, http.StatusNotFound, b.call(t, "viewer", "GET", odd, "").status, "%v %s", test, odd)
		}
	}
}

// The public URL leads to the first page with and without its last slash.
func TestAPI_FirstPageOfThePublicURL(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Options) {
		c.PublicURL = "https://belfry.example.com/a/b"
		c.Pages = func(*api.Handler, string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = io.WriteString(w, req.URL.Path) })
		}
	})
	root := strings.TrimSuffix(b.url, api.Prefix)
	for at, want := range map[string]string{"/a/b": "/", "/a/b/": "/", "/a/b/jobs": "/jobs", "/a/bc": "/a/bc", "/jobs": "/jobs"} {
		b.url = root + at
		require.Equal(t, want, b.call(t, "", "GET", "", "").text, at)
	}
}

// A page of api.public_url is belfry's own, whatever Host the proxy in front writes; any other
// is refused by the name of the setting.
func TestAPI_TrustsThePublicOriginAlone(t *testing.T) {
	t.Parallel()
	public := "https://belfry.example.com/a/b"
	for _, test := range []struct {
		public string
		header []string
		status int
	}{
		{public, []string{"Origin", "https://belfry.example.com"}, 200},
		{public, []string{"Origin", "https://belfry.example.com", "Sec-Fetch-Site", "same-origin"}, 200},
		{public, []string{"Origin", "http://belfry.example.com"}, 403},
		{public, []string{"Host", "belfry.example.com", "Origin", "https://belfry.example.com"}, 200},
		{public, []string{"Host", "belfry.example.com", "Origin", "http://belfry.example.com"}, 403},
		{public, []string{"Origin", "https://belfry.example.com.evil.example"}, 403},
		{public, []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, 403},
		{public, []string{"Origin", "https://x.example.com", "Sec-Fetch-Site", "same-site"}, 403},
		{public, []string{"Origin", "null"}, 403},
		{"", []string{"Origin", "https://belfry.example.com"}, 403},
	} {
		b := setup(t, func(c *api.Options) { c.PublicURL = test.public })
		a := b.call(t, "operator", "POST", "/lanes/night/pause", "", test.header...)
		require.Equal(t, test.status, a.status, "%v: %s", test, a.text)
		if a.status == http.StatusForbidden {
			require.Contains(t, a.problem(t).Detail, "api.public_url")
			require.Equal(t, "[]", b.call(t, "viewer", "GET", "/lanes", "").text, "nothing was done")
		}
	}
}
