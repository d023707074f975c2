package metrics

import (
	"context"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/node"
)

// serve returns the base of a server that listens until the test ends.
func serve(t *testing.T, c node.MetricsConfig) (base string, m *Metrics, h *Health) {
	t.Helper()
	m, h = New(Build{}), NewHealth(time.Hour)
	c.Listen = "127.0.0.1:0"
	s, err := Listen(t.Context(), c, m, h)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return "http://" + s.Addr(), m, h
}

// get returns status and body.
func get(t *testing.T, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestServer_ShowsMetricsAndHealth(t *testing.T) {
	t.Parallel()
	base, _, h := serve(t, node.DefaultMetricsConfig())
	status, body := get(t, http.MethodGet, base+"/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "\nbelfry_build_info{")
	require.Contains(t, body, "\ngo_goroutines ")
	status, body = get(t, http.MethodGet, base+"/livez")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "ok\n", body)
	status, body = get(t, http.MethodGet, base+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "the process is starting\nthe database has not answered yet\n", body)

	ctx, stop := context.WithCancel(t.Context())
	runs := make(chan struct{})
	ended := run(ctx, h.Loop("runner", func(ctx context.Context) error { close(runs); <-ctx.Done(); return nil }))
	<-runs
	h.Polled(time.Now(), "", nil)
	status, body = get(t, http.MethodGet, base+"/readyz")
	require.Equal(t, http.StatusOK, status, body)
	stop()
	require.NoError(t, <-ended)

	for _, path := range []string{"/metrics", "/livez", "/readyz"} {
		status, _ = get(t, http.MethodPost, base+path)
		require.Equal(t, http.StatusMethodNotAllowed, status)
	}
	for _, path := range []string{"/", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/profile"} {
		status, _ = get(t, http.MethodGet, base+path)
		require.Equal(t, http.StatusNotFound, status, path)
	}
}

// Profiles are shown where they are asked for, but never the command line.
func TestServer_ShowsProfilesWhereAsked(t *testing.T) {
	t.Parallel()
	base, _, _ := serve(t, node.MetricsConfig{PProf: true, CollectEvery: time.Minute})
	for path, want := range map[string]int{
		"/debug/pprof/": http.StatusOK, "/debug/pprof/goroutine?debug=1": http.StatusOK, "/debug/pprof/cmdline": http.StatusNotFound,
	} {
		status, _ := get(t, http.MethodGet, base+path)
		require.Equal(t, want, status, path)
	}
}

func TestListen_SaysThatAPortIsInUse(t *testing.T) {
	t.Parallel()
	base, m, h := serve(t, node.DefaultMetricsConfig())
	_, err := Listen(t.Context(), node.MetricsConfig{Listen: strings.TrimPrefix(base, "http://")}, m, h)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}

func TestConfig_SaysWhatIsAllowed(t *testing.T) {
	t.Parallel()
	require.NoError(t, node.DefaultMetricsConfig().Validate())
	for _, listen := range []string{"127.0.0.1:9464", ":9464", "[::1]:0", "localhost:65535"} {
		require.NoError(t, node.MetricsConfig{Listen: listen, CollectEvery: time.Second}.Validate(), listen)
	}
	for _, listen := range []string{"9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1", "::1:80"} {
		require.ErrorContains(t, node.MetricsConfig{Listen: listen, CollectEvery: time.Second}.Validate(), "metrics.listen: ", listen)
		require.ErrorContains(t, node.MetricsConfig{Listen: listen, CollectEvery: time.Second}.Validate(), "allowed values: HOST:PORT", listen)
	}
	for _, every := range []time.Duration{0, -1, time.Millisecond, 2 * time.Hour} {
		require.EqualError(t, node.MetricsConfig{CollectEvery: every}.Validate(), "metrics.collect_every: "+every.String()+" is not allowed; allowed values: 1s to 1h0m0s")
	}
}
