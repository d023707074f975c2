package walk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/job"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// password is everybody's.
const password = "correct horse battery"

// house is a belfry daemon with the console, and what surrounds it.
type house struct {
	*testing.T

	db    *dbtest.DB
	jobs  *job.Store
	fakes *fake.Server
	url   string // of the console, without a slash at its end
	log   dbtest.Buffer
	run   func(args ...string) string // belfry's command line, on the same database
}

// built is the program, of the packages that make build has compiled.
var built = sync.OnceValues(func() (string, error) {
	program, err := filepath.Abs("../../../bin/belfry-walk")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/belfryhq/belfry/cmd/belfry")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
})

// options are what differs from a house to the next.
type options struct {
	channels int
	faults   string         // of the providers, as fake.ParseFaults takes them
	port     int            // where it is served; 0: any
	limit    map[string]any // settings of the senders
	config   map[string]any // sections of the configuration that are not live's
	on       *dbtest.DB     // the database; nil: one of its own on the server of all tests
}

// live starts a daemon with somebody of each role: viewer, author, operator and admin.
func live(t *testing.T, o options) *house {
	t.Helper()
	h := &house{T: t, db: o.on}
	if h.db == nil {
		h.db = dbtest.New(t)
	}
	h.jobs = job.NewStore(h.db.Pool)
	faults, err := fake.ParseFaults("[" + o.faults + "]")
	require.NoError(t, err)
	c := fake.DefaultConfig()
	c.Faults, c.RecentCalls = faults, 100_000
	h.fakes, err = fake.Start(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.fakes.Close()) })
	h.exec(`INSERT INTO belfry.channels (external_id, platform, locale, location, addresses)
		SELECT 'u' || n, CASE WHEN n % 3 = 0 THEN 'ios' ELSE 'android' END, CASE WHEN n % 4 = 0 THEN 'ko' ELSE 'en' END,
			point(126.8 + (n % 997) / 2500.0, 37.4 + (n % 1000) / 2500.0), jsonb_build_object('push', 'token-' || n, 'sms', '+8210' || (10000000 + n))
		FROM generate_series(1, $1::int) n`, o.channels)
	h.exec("ANALYZE belfry.channels") // as autovacuum does, of which totals are told

	program, err := built()
	require.NoError(t, err)
	dir := t.TempDir()
	environ := append(os.Environ(), "BELFRY_CONFIG="+h.config(dir, o), "BELFRY_DATABASE_URL="+h.db.DSN, "BELFRY_LOG_FORMAT=json")
	h.run = func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = environ
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, "belfry %s: %s", strings.Join(args, " "), &stderr)
		return string(out)
	}
	secret := filepath.Join(dir, "password")
	require.NoError(t, os.WriteFile(secret, []byte(password), 0o600))
	for _, role := range []string{"viewer", "author", "operator", "admin"} {
		h.run("users", "add", "the-"+role, "--role", role, "--password-file", secret)
	}

	daemon := exec.CommandContext(context.WithoutCancel(t.Context()), program, "daemon", "--listen", "127.0.0.1:"+strconv.Itoa(o.port))
	daemon.Env, daemon.Stderr = environ, &h.log
	require.NoError(t, daemon.Start())
	t.Cleanup(func() {
		require.NoError(t, daemon.Process.Signal(syscall.SIGTERM))
		late := time.AfterFunc(patience, func() { _ = daemon.Process.Kill() })
		_ = daemon.Wait() // its code says what is asked next
		late.Stop()
		require.Zero(t, daemon.ProcessState.ExitCode(), "%s", &h.log)
		require.NotContains(t, h.log.String(), "panic")
	})
	h.url = h.served()
	return h
}

// config writes the configuration file of the daemon.
func (h *house) config(dir string, o options) string {
	h.Helper()
	var senders []map[string]any
	for _, s := range h.fakes.Senders() {
		if s.Kind == "fcm" || s.Kind == "sms" {
			sender := map[string]any{
				"name": s.Kind, "kind": s.Kind, s.Kind: s.Settings, "breaker": map[string]any{"failures": 0},
				"retry": map[string]any{"initial": "10ms", "max": "100ms"},
			}
			maps.Copy(sender, o.limit)
			senders = append(senders, sender)
		}
	}
	all := map[string]any{
		"senders": senders,
		"api":     map[string]any{"environment": map[string]any{"name": "the walk", "colour": "violet"}},
		// The server is shared with other tests, whose load is not to slow this one down.
		"runner": map[string]any{"load": map[string]any{"health": map[string]any{"enabled": false}}},
	}
	maps.Copy(all, o.config)
	text, err := json.Marshal(all) // which is YAML, too
	require.NoError(h, err)
	file := filepath.Join(dir, "config.yaml")
	require.NoError(h, os.WriteFile(file, text, 0o600))
	return file
}

// served waits until the daemon serves, and returns its address.
func (h *house) served() string {
	h.Helper()
	var at *url.URL
	until(h.T, func() bool {
		for line := range strings.Lines(h.log.String()) {
			var entry struct{ Message, Detail string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Message == "the HTTP API is served" {
				var err error
				at, err = url.Parse(entry.Detail)
				require.NoError(h, err)
			}
		}
		return at != nil
	}, h.log.String)
	return at.Scheme + "://" + at.Host
}

// freePort is a port of this machine that nobody has.
func freePort(t *testing.T) int {
	t.Helper()
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // it has served its purpose
	return l.Addr().(*net.TCPAddr).Port
}

func (h *house) exec(sql string, args ...any) {
	h.Helper()
	_, err := h.db.Pool.Exec(h.Context(), sql, args...)
	require.NoError(h, err)
}

// number asks the database for one.
func (h *house) number(sql string, args ...any) (n int64) {
	h.Helper()
	require.NoError(h, h.db.Pool.QueryRow(h.Context(), sql, args...).Scan(&n))
	return n
}

// text asks the database for one.
func (h *house) text(sql string, args ...any) (text string) {
	h.Helper()
	require.NoError(h, h.db.Pool.QueryRow(h.Context(), sql, args...).Scan(&text))
	return text
}

// becomes waits until the database says yes.
func (h *house) becomes(sql string, args ...any) {
	h.Helper()
	until(h.T, func() (is bool) {
		require.NoError(h, h.db.Pool.QueryRow(h.Context(), sql, args...).Scan(&is))
		return is
	}, func() string { return fmt.Sprint(sql, " ", args, " never became true") })
}

func (h *house) enqueue(spec job.Spec) int64 {
	h.Helper()
	id, err := h.jobs.Enqueue(h.Context(), spec)
	require.NoError(h, err)
	return id
}
