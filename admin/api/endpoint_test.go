package api_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
)

// Beyond this machine and the proxies a request needs TLS.
func TestEndpoint_RequiresTLS(t *testing.T) {
	t.Parallel()
	e := api.Endpoint{Section: "inbox", ProxyKey: "inbox.proxies", Listen: ":8471", Proxies: []string{"10.1.0.0/16", "2001:db8::7"}}
	require.NoError(t, e.Validate())
	served := e.RequireTLS(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for from, want := range map[string]int{
		"127.0.0.1:1": http.StatusOK, "[::1]:1": http.StatusOK, "10.1.2.3:1": http.StatusOK, "[::ffff:10.1.2.3]:1": http.StatusOK,
		"[2001:db8::7]:1": http.StatusOK, "10.2.0.1:1": http.StatusForbidden, "[2001:db8::8]:1": http.StatusForbidden,
	} {
		w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		req.RemoteAddr = from
		req.Header.Set("X-Forwarded-For", "127.0.0.1")
		req.Header.Set("X-Forwarded-Proto", "https")
		served.ServeHTTP(w, req)
		require.Equal(t, want, w.Code, from)
		w, req.TLS = httptest.NewRecorder(), &tls.ConnectionState{}
		served.ServeHTTP(w, req)
		require.Equal(t, http.StatusOK, w.Code, from)
	}
	e.Proxies = nil
	require.ErrorContains(t, e.Validate(), "(inbox.proxies), or an inbox.listen of 127.0.0.1:PORT or [::1]:PORT")
	e.Proxies = []string{"0.0.0.0/0", "nowhere"}
	require.ErrorContains(t, e.ValidateProxies(), `inbox.proxies: "0.0.0.0/0" is not allowed`)
	require.ErrorContains(t, e.ValidateProxies(), `inbox.proxies: "nowhere" is not allowed`)
}

func TestConfig_Console(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]api.Config{
		"":                           {},
		"http://127.0.0.1:8470":      {Listen: "127.0.0.1:8470"},
		"http://localhost:8470":      {Listen: ":8470"},
		"https://localhost:8470":     {Listen: "0.0.0.0:8470", TLS: api.TLS{CertFile: "cert.pem"}},
		"https://example.com/belfry": {Listen: ":8470", PublicURL: "https://example.com/belfry/"},
		"http://[2001:db8::1]:8470":  {Listen: "[2001:db8::1]:8470"},
	} {
		require.Equal(t, want, c.Console())
	}
}
