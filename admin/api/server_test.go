package api_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/text"
)

// patience bounds every wait for a condition; nothing normally takes that long.
const patience = time.Minute

// sleeper is an operation whose statement does not end by itself.
func sleeper(name string, changes bool) operation.Operation {
	o := operation.Operation{Name: name, Short: "Sleep", Role: operation.Viewer, Changes: changes, Deadline: 10 * time.Minute}
	return operation.Define(o, func(ctx context.Context, env *operation.Env, _ operation.None) (operation.None, error) {
		_, err := env.DB.Exec(ctx, `SELECT pg_sleep(600)`)
		return operation.None{}, err
	}, func(*text.Doc, operation.None, operation.None) {})
}

// Clients that give up leave no query behind, be it that theirs run or that they wait for a
// connection: all that may look at once do, and every connection is taken.
func TestAPI_GivenUpRequestsLeaveNoQueryRunning(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Options) { c.Operations = []operation.Operation{sleeper("sleep", false)} })
	aside, err := pgx.Connect(t.Context(), b.db.DSN)
	require.NoError(t, err)
	defer aside.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // it only visited
	running := func() (n int) {
		t.Helper()
		require.NoError(t, aside.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%' AND state = 'active'`).Scan(&n))
		return n
	}
	defer func() { // what a failure leaves keeps the server from closing
		for b.handler.LimitedIdentities() > 0 {
			_, err := aside.Exec(context.WithoutCancel(t.Context()), `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
			require.NoError(t, err)
		}
	}()
	const identities, requests = 10, 40
	require.Equal(t, requests/identities, b.handler.MaxOwn(), "so that no request waits for its turn")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for i := range requests {
		clients.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/sleep", nil)
			if err != nil {
				return
			}
			req.Header.Set("Authorization", "Bearer viewer-"+strconv.Itoa(i%identities))
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			if res, err := client.Do(req); err == nil {
				_ = res.Body.Close()
			}
		})
	}
	connections := int(b.db.Pool.Config().MaxConns)
	require.Eventually(t, func() bool { return running() == connections && b.handler.RunningRequests() == requests }, patience, 10*time.Millisecond)
	cancel()
	clients.Wait()
	require.Eventually(t, func() bool {
		return running() == 0 && b.handler.LimitedIdentities() == 0 && b.db.Pool.Stat().AcquiredConns() == 0
	}, patience, 20*time.Millisecond)
}

// listening serves at an address of its own, as processes do, and tells with which status a
// text is answered. within is a part of the time that a request may take to be read.
func listening(t *testing.T, h http.Handler, within int) (answered func(text string, more ...func(net.Conn)) string) {
	t.Helper()
	server, err := api.Listen(t.Context(), api.Config{Listen: "127.0.0.1:0"}, h)
	require.NoError(t, err)
	server.Hurry(within)
	at, err := url.Parse(server.URL())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return func(text string, more ...func(net.Conn)) string {
		t.Helper()
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", at.Host)
		require.NoError(t, err)
		defer conn.Close() //nolint:errcheck // it was cut off
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, _ = io.WriteString(conn, text) // cut off before the end, maybe
		for _, send := range more {
			go send(conn)
		}
		line, _ := bufio.NewReader(conn).ReadString('\n')
		return line
	}
}

// A client that sends its headers slowly, or too many, does not hold a connection.
func TestFault_SlowAndLargeHeadersAreCutOff(t *testing.T) {
	t.Parallel()
	answered := listening(t, api.New(api.Options{Authenticate: tokens}), 1)
	require.NotContains(t, answered("GET /api/v1/lanes HTTP/1.1\r\nHost: x\r\nX-Slow: "), "200", "it ends by itself")
	require.Contains(t, answered("GET /api/v1/lanes HTTP/1.1\r\nHost: x\r\nX-Large: "+strings.Repeat("x", 64<<10)+"\r\n\r\n"), "431")
	require.Contains(t, answered("GET /api/v1/lanes HTTP/1.1\r\nHost: x\r\n\r\n"), "401")
	require.Contains(t, answered("GET /api/v1/lanes HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"), "400")
	require.Contains(t, answered("POST /api/v1/lanes HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked, x\r\n\r\n"), "501")
}

// A body that stalls, or comes a byte at a time, ends with 408 when its time is over, and nothing
// is done.
func TestAPI_SlowBodiesAreCutOff(t *testing.T) {
	t.Parallel()
	var done atomic.Int64
	o := operation.Define(operation.Operation{Name: "lanes pause", Short: "Pause", Role: operation.Operator, Changes: true},
		func(context.Context, *operation.Env, operation.None) (map[string]bool, error) {
			done.Add(1)
			return map[string]bool{}, nil
		}, func(*text.Doc, operation.None, map[string]bool) {})
	answered := listening(t, api.New(api.Options{Operations: []operation.Operation{o}, Authenticate: tokens}), 60)
	const head = "POST /api/v1/lanes/pause HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer operator\r\nContent-Type: application/json\r\n"
	drips := func(piece string) func(net.Conn) {
		return func(conn net.Conn) {
			for range time.Tick(20 * time.Millisecond) {
				if _, err := io.WriteString(conn, piece); err != nil {
					return
				}
			}
		}
	}
	require.Contains(t, answered(head+"Content-Length: 2\r\n\r\n{}"), "200")
	require.Contains(t, answered(head+"Content-Length: 2\r\n\r\n{"), "408", "it stalls")
	require.Contains(t, answered(head+"Content-Length: 9999\r\n\r\n{", drips(" ")), "408")
	require.Contains(t, answered(head+"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", drips("1\r\n \r\n")), "408")
	require.EqualValues(t, 1, done.Load())
}

// A stop lets the request in progress end, and takes no other.
func TestServer_StopLetsARequestEnd(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	o := operation.Define(operation.Operation{Name: "wait", Short: "Wait", Role: operation.Operator, Changes: true},
		func(context.Context, *operation.Env, operation.None) (map[string]bool, error) {
			close(began)
			<-release
			return map[string]bool{"done": true}, nil
		}, func(*text.Doc, operation.None, map[string]bool) {})
	server, err := api.Listen(t.Context(), api.Config{Listen: "127.0.0.1:0"}, api.New(api.Options{Operations: []operation.Operation{o}, Authenticate: tokens}))
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
