package api_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/printer"
)

// patience bounds every wait for a condition; nothing normally takes that long.
const patience = time.Minute

// sleeper is an operation whose statement does not end by itself.
func sleeper(name string, changes bool) admin.Operation {
	o := admin.Operation{Name: name, Short: "Sleep", Role: admin.Viewer, Changes: changes, Deadline: 10 * time.Minute}
	return admin.Define(o, func(ctx context.Context, env *admin.Env, _ admin.None) (admin.None, error) {
		_, err := env.DB.Exec(ctx, `SELECT pg_sleep(600)`)
		return admin.None{}, err
	}, func(*printer.Page, admin.None, admin.None) {})
}

// Clients that give up leave no query behind.
func TestAPI_GivenUpRequestsLeaveNoQueryRunning(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Options) { c.Operations = []admin.Operation{sleeper("sleep", false)} })
	running := func() (n int) {
		t.Helper()
		require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%' AND state = 'active'`).Scan(&n))
		return n
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for range 40 {
		clients.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/sleep", nil)
			if err != nil {
				return
			}
			req.Header.Set("Authorization", "Bearer viewer")
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			if res, err := client.Do(req); err == nil {
				_ = res.Body.Close()
			}
		})
	}
	require.Eventually(t, func() bool { return b.db.Pool.Stat().AcquiredConns() > 0 }, patience, 10*time.Millisecond)
	cancel()
	clients.Wait()
	require.Eventually(t, func() bool { return running() == 0 }, patience, 20*time.Millisecond)
}

// listening serves at an address of its own, as processes do.
func listening(t *testing.T, h http.Handler) (address string, stop func()) {
	t.Helper()
	server, err := api.Listen(t.Context(), api.Config{Listen: "127.0.0.1:0"}, h)
	require.NoError(t, err)
	at, err := url.Parse(server.URL())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	return at.Host, func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

// A client that sends its headers slowly, or too many, does not hold a connection.
func TestFault_SlowAndLargeHeadersAreCutOff(t *testing.T) {
	t.Parallel()
	address, stop := listening(t, api.New(api.Options{Authenticate: tokens}))
	defer stop()
	var dialer net.Dialer
	dial := func(text string) string {
		conn, err := dialer.DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, _ = io.WriteString(conn, text) // cut off before the end, maybe
		line, _ := bufio.NewReader(conn).ReadString('\n')
		return line
	}
	require.NotContains(t, dial("GET /api/v1/lanes HTTP/1.1\r\nHost: x\r\nX-Slow: "), "200", "it ends by itself")
	require.Contains(t, dial("GET /api/v1/lanes HTTP/1.1\r\nHost: x\r\nX-Large: "+strings.Repeat("x", 64<<10)+"\r\n\r\n"), "431")
	require.Contains(t, dial("GET /api/v1/lanes HTTP/1.1\r\nHost: x\r\n\r\n"), "401")
	require.Contains(t, dial("GET /api/v1/lanes HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"), "400")
	require.Contains(t, dial("POST /api/v1/lanes HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked, x\r\n\r\n"), "501")
}

// A stop lets the request in progress end, and takes no other.
func TestServer_StopLetsARequestEnd(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	o := admin.Define(admin.Operation{Name: "wait", Short: "Wait", Role: admin.Operator, Changes: true},
		func(context.Context, *admin.Env, admin.None) (map[string]bool, error) {
			close(began)
			<-release
			return map[string]bool{"done": true}, nil
		}, func(*printer.Page, admin.None, map[string]bool) {})
	server, err := api.Listen(t.Context(), api.Config{Listen: "127.0.0.1:0"}, api.New(api.Options{Operations: []admin.Operation{o}, Authenticate: tokens}))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL()+"/wait", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer operator")
	answers := make(chan string, 1)
	go func() {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := client.Do(req)
		if err != nil {
			answers <- err.Error()
			return
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		answers <- strings.TrimSpace(string(text))
	}()
	select {
	case <-began:
	case a := <-answers:
		t.Fatal("answered before it began: " + a)
	case <-time.After(patience):
		t.Fatal("the request does not begin")
	}
	cancel()
	close(release)
	require.NoError(t, <-ended)
	require.Regexp(t, `^\{"done":true,"receipt":\{"asked_at":"[^"]+","in_force_since":null,"concerned":1\}\}$`, <-answers)
}

func TestConfig_TellsOneEnvironmentFromAnother(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]api.Environment{
		`api.environment.name: "a\nb" is not allowed; allowed values: up to 40 printable characters`:           {Name: "a\nb"},
		`is not allowed; allowed values: up to 40 printable characters`:                                        {Name: strings.Repeat("é", 41)},
		`api.environment.colour: "pink" is not allowed; allowed values: grey, blue, green, amber, red, violet`: {Name: "production", Colour: "pink"},
	} {
		c := api.DefaultConfig()
		c.Environment = e
		require.ErrorContains(t, c.Validate(), want)
	}
	for _, e := range []api.Environment{{}, {Name: strings.Repeat("é", 40), Colour: "red"}, {Name: "production"}} {
		c := api.DefaultConfig()
		c.Environment = e
		require.NoError(t, c.Validate())
	}
}
