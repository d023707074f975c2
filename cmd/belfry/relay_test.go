package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/job"
)

// courierTest is a database with messages to deliver, and providers to deliver them to.
type courierTest struct {
	*testing.T

	db    *dbtest.DB
	fakes *fake.Server

	limit   map[string]any // settings of both senders
	lessSMS bool           // only the first of them
}

// deliverable returns a database with a push job to n channels that has run: route push,
// then sms.
func deliverable(t *testing.T, db *dbtest.DB, n int, faults ...string) *courierTest {
	t.Helper()
	c := fake.DefaultConfig()
	c.RecentCalls = 1_000_000
	list, err := fake.ParseFaults("[" + strings.Join(faults, ", ") + "]")
	require.NoError(t, err)
	c.Faults = list
	return deliverableTo(t, db, n, c)
}

func deliverableTo(t *testing.T, db *dbtest.DB, n int, c fake.Config) *courierTest {
	t.Helper()
	fakes, err := fake.Start(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fakes.Close()) })
	d := &courierTest{T: t, db: db, fakes: fakes, limit: map[string]any{
		"timeout": "1m", "retry": map[string]any{"initial": "10ms", "max": "100ms"}, "breaker": map[string]any{"failures": 0},
	}}
	d.exec(`INSERT INTO belfry.channels (external_id, platform, addresses)
		SELECT 'u' || n, 'android', jsonb_build_object('push', 'token-' || n, 'sms', '+8210' || (10000000 + n)) FROM generate_series(1, $1::int) n`, n)
	d.enqueue()
	return d
}

func (d *courierTest) exec(sql string, args ...any) {
	d.Helper()
	_, err := d.db.Pool.Exec(d.Context(), sql, args...)
	require.NoError(d, err)
}

// enqueue writes another job's messages.
func (d *courierTest) enqueue() {
	d.Helper()
	d.enqueueIn("default")
}

func (d *courierTest) enqueueIn(lane string) {
	d.Helper()
	_, err := job.NewStore(d.db.Pool).Enqueue(d.Context(), job.Spec{Type: "push", Category: "operator_notice", Title: "Hello", Route: []string{"push", "sms"}, Lane: lane})
	require.NoError(d, err)
	r := command(d.T, []string{"BELFRY_DATABASE_URL=" + d.db.DSN, regardless}, "run", "--quiet")
	require.Equal(d, codeDone, r.code, r.stderr)
}

// Whoever runs belfry from cron hears of a job that was aborted because a sender fails it.
func TestRun_SaysThatItAborted(t *testing.T) {
	t.Parallel()
	d := deliverable(t, newKept(t), 300, "{for: fcm, do: invalid-address}", "{for: sms, do: invalid-address}")
	d.limit["abort_after"], d.limit["concurrency"] = 20, 1
	r := command(t, d.environ(), "run", "--deliver", "-o", "json")
	require.Equal(t, codeAborted, r.code, r.stderr)
	require.Contains(t, r.stderr, "belfry: job 1 was ABORTED, a sender failed too many of its messages in a row: `belfry jobs show 1`")
	var report struct {
		Delivery struct{ Aborted []int64 }
		Unsent   []struct{ Why string }
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	require.Equal(t, []int64{1}, report.Delivery.Aborted)
	require.Len(t, report.Unsent, 1)
	require.Positive(t, d.statuses()["PENDING"])
}

// senders is the setting senders, as JSON.
func (d *courierTest) senders() string {
	d.Helper()
	var list []map[string]any
	for _, s := range d.fakes.Senders() {
		if s.Kind == "fcm" || s.Kind == "sms" {
			list = append(list, map[string]any{"name": map[string]string{"fcm": "fcm", "sms": "text"}[s.Kind], "kind": s.Kind, s.Kind: s.Settings})
		}
	}
	if d.lessSMS {
		list = list[:1]
	}
	for _, s := range list {
		for key, value := range d.limit {
			s[key] = value
		}
	}
	text, err := json.Marshal(list)
	require.NoError(d, err)
	return string(text)
}

// environ is that of a relay which looks often, and which no pause of a busy machine makes
// lose a call, a statement or a lease.
func (d *courierTest) environ(more ...string) []string {
	d.Helper()
	return append([]string{
		"BELFRY_DATABASE_URL=" + d.db.DSN, "BELFRY_SENDERS=" + d.senders(), regardless, "BELFRY_LOG_FORMAT=json",
		"BELFRY_DELIVERY_LEASE=12s", "BELFRY_DELIVERY_STATEMENT_TIMEOUT=4s", "BELFRY_DELIVERY_POLL_INTERVAL=20ms",
	}, more...)
}

// left are the messages that are not finished.
const left = "belfry.messages WHERE status NOT IN ('SENT', 'DEAD', 'CANCELLED')"

// statuses counts messages.
func (d *courierTest) statuses() map[string]int64 {
	d.Helper()
	counts := make(map[string]int64)
	rows, err := d.db.Pool.Query(d.Context(), "SELECT status, count(*) FROM belfry.messages GROUP BY 1")
	require.NoError(d, err)
	for rows.Next() {
		var status string
		var n int64
		require.NoError(d, rows.Scan(&status, &n))
		counts[status] = n
	}
	require.NoError(d, rows.Err())
	return counts
}

// What is due is sent once; what has to be tried again, or goes by the next medium, is
// left and said.
func TestRun_DeliversOnce(t *testing.T) {
	t.Parallel()
	d := deliverable(t, newKept(t), 200, "{for: fcm, do: invalid-address, address: ^token-1$}", "{for: fcm, status: 503, address: ^token-2$}", "{for: all, status: 400, address: (token-|0000)3$}")
	d.exec(`SELECT belfry.opt_out(4, medium => '*')`)
	r := command(t, d.environ(), "run", "--deliver", "--json")
	require.Equal(t, codeDone, r.code, r.stderr)
	var report struct {
		Delivery struct {
			Sent       int64 `json:"sent"`
			Dead       int64 `json:"dead"`
			Refused    int64 `json:"refused"`
			FailedOver int64 `json:"failed_over"`
		} `json:"delivery"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report), r.stdout)
	require.EqualValues(t, 1, report.Delivery.Refused)
	require.GreaterOrEqual(t, report.Delivery.FailedOver, int64(2))
	require.Contains(t, r.stderr, "messages: ")
	require.Zero(t, count(t, d.db, "belfry.messages WHERE status = 'PROCESSING'"))
	require.Zero(t, count(t, d.db, "belfry.leases"))

	// The next runs finish it.
	require.Eventually(t, func() bool {
		r := command(t, d.environ(), "run", "--deliver", "--quiet")
		require.Equal(t, codeDone, r.code, r.stderr)
		return count(t, d.db, left) == 0
	}, patience, 10*time.Millisecond)
	require.Equal(t, map[string]int64{"SENT": 198, "DEAD": 1, "CANCELLED": 1}, d.statuses())
	require.EqualValues(t, 2, d.fakes.Summary().Of(fake.SMS).Accepted)
	r = command(t, d.environ(), "run", "--deliver")
	require.Equal(t, "no message is due\n", lastLine(r.stderr))
}

func lastLine(text string) string {
	lines := []byte(text)
	for i := len(lines) - 2; i >= 0; i-- {
		if lines[i] == '\n' {
			return text[i+1:]
		}
	}
	return text
}

// Without senders, with too few connections or without a sender's file, nothing begins.
func TestRelay_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"relay"}, {"run", "--deliver"}} {
		r := command(t, []string{"BELFRY_DATABASE_URL=postgres://127.0.0.1:1/x", "BELFRY_DATABASE_MAX_CONNECTIONS=3"}, args...)
		require.Equal(t, codeConfiguration, r.code)
		require.Contains(t, r.stderr, "senders: none is configured")
		require.Contains(t, r.stderr, "database.max_connections: 3 is too few to deliver; allowed values: 9 to 1000")
	}
	r := command(t, []string{
		"BELFRY_DATABASE_URL=postgres://127.0.0.1:1/x",
		`BELFRY_SENDERS=[{"name": "hook", "kind": "webhook", "webhook": {"url": "https://example.com", "secret_file": "/no/such/file"}}]`,
	}, "relay")
	require.Equal(t, codeConfiguration, r.code, "files are tried before anything connects")
	require.Contains(t, r.stderr, "/no/such/file")
}

// I8: SIGTERM lets the calls in flight end and records what came of them; nothing is
// left in flight, and nothing is sent twice when the next relay goes on. A drain has left
// work, and says so with its code.
func TestProcess_TermEndsDeliverySoftly(t *testing.T) {
	t.Parallel()
	for name, exit := range map[string]code{"relay": codeDone, "run --deliver": codeFailure} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testTerm(t, exit, strings.Fields(name)...)
		})
	}
}

func testTerm(t *testing.T, exit code, args ...string) {
	t.Helper()
	d := deliverable(t, dbtest.New(t), 300, "{for: all, latency: 100ms}")
	p := start(t, d.environ(), args...)
	waitUntil(t, d.db.Pool, "SELECT count(*) >= 20 FROM belfry.messages WHERE status = 'SENT'")
	waitUntil(t, d.db.Pool, "SELECT count(*) = 1 FROM belfry.relays WHERE senders = '{fcm,text}' AND media = '{push,sms}'")
	p.terminate(t)
	require.Equal(t, exit, p.exit(t), p.stderr.String())
	p.says(t, "stopping after the calls in flight; a second signal stops at once")
	require.Zero(t, count(t, d.db, "belfry.relays"))
	require.Zero(t, count(t, d.db, "belfry.leases"))
	require.Zero(t, count(t, d.db, "belfry.messages WHERE status = 'PROCESSING'"))
	sent := count(t, d.db, "belfry.messages WHERE status = 'SENT'")
	require.Equal(t, sent, d.fakes.Summary().Total().Accepted)
	require.Less(t, sent, int64(300))

	start(t, d.environ(), "relay")
	waitUntil(t, d.db.Pool, "SELECT count(*) = 0 FROM "+left)
	sum := d.fakes.Summary().Total()
	require.EqualValues(t, 300, sum.Accepted)
	require.Zero(t, sum.Duplicates)
}

// I9: a 200 whose reply is lost is asked for again under the same key: a provider that
// does not know keys has it twice, one that honours them once.
func TestProcess_ALostReplyComesAgainUnderItsKey(t *testing.T) {
	t.Parallel()
	for _, honour := range []bool{false, true} {
		t.Run(fmt.Sprintf("honour_keys=%t", honour), func(t *testing.T) {
			t.Parallel()
			c := fake.DefaultConfig()
			c.HonourKeys = honour
			c.Faults = []fake.Fault{{For: "fcm", Do: "reset", Count: 5}}
			d := deliverableTo(t, dbtest.New(t), 20, c)
			start(t, d.environ(), "relay")
			waitUntil(t, d.db.Pool, "SELECT count(*) = 0 FROM "+left)
			require.Equal(t, map[string]int64{"SENT": 20}, d.statuses())
			require.EqualValues(t, 5, count(t, d.db, "belfry.attempts WHERE outcome = 'unknown'"))
			sum := d.fakes.Summary().Of(fake.FCM)
			require.EqualValues(t, 20, sum.DistinctKeys)
			want := [2]int64{5, 0}
			if honour {
				want = [2]int64{0, 5}
			}
			require.Equal(t, want, [2]int64{sum.Duplicates, sum.Repeats})
			require.Zero(t, sum.Keyless)
			require.Zero(t, d.fakes.Summary().Of(fake.SMS).Calls, "an unknown outcome is no failure")
		})
	}
}

// I11: a provider that asks for time gets it, to the moment, through the whole of the
// program.
func TestProcess_RetryAfterIsNeverEarly(t *testing.T) {
	t.Parallel()
	d := deliverable(t, dbtest.New(t), 60, "{for: fcm, status: 429, retry_after: 1s, count: 40}", "{for: fcm, status: 503, retry_after: 2s, count: 10}")
	start(t, d.environ(), "relay")
	start(t, d.environ(), "relay")
	waitUntil(t, d.db.Pool, "SELECT count(*) = 0 FROM "+left)
	require.Equal(t, map[string]int64{"SENT": 60}, d.statuses())
	sum := d.fakes.Summary().Of(fake.FCM)
	require.EqualValues(t, 50, count(t, d.db, "belfry.attempts WHERE outcome = 'retryable'"))
	require.EqualValues(t, 50, sum.Refusals())
	require.Zero(t, sum.Early)
	require.Zero(t, sum.Duplicates)
}

// A daemon delivers beside its jobs, unless it is told not to.
func TestProcess_DaemonDelivers(t *testing.T) {
	t.Parallel()
	d := deliverable(t, dbtest.New(t), 50)
	p := start(t, d.environ(), "daemon", "--no-deliver")
	p.says(t, "daemon started")
	_, err := job.NewStore(d.db.Pool).Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: "Meanwhile"})
	require.NoError(t, err)
	waitUntil(t, d.db.Pool, "SELECT count(*) = 2 FROM belfry.jobs WHERE status = 'PROCESSED'")
	require.Zero(t, count(t, d.db, "belfry.relays"))
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	require.Empty(t, p.logged(t, "relay started"))
	require.EqualValues(t, 50, count(t, d.db, left))

	p = start(t, d.environ("BELFRY_LOG_LEVEL=info"), "daemon", "--relay-name", "d")
	waitUntil(t, d.db.Pool, "SELECT count(*) = 0 FROM "+left)
	_, err = job.NewStore(d.db.Pool).Enqueue(t.Context(), job.Spec{Type: "push", Category: "operator_notice", Title: "Again", Route: []string{"sms"}})
	require.NoError(t, err)
	waitUntil(t, d.db.Pool, "SELECT count(*) = 100 FROM belfry.messages WHERE status = 'SENT'")
	waitUntil(t, d.db.Pool, "SELECT count(*) = 2 FROM belfry.jobs WHERE type = 'push' AND delivered_at IS NOT NULL")
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	require.Equal(t, int64(50), d.fakes.Summary().Of(fake.SMS).Accepted)
	require.Zero(t, count(t, d.db, "belfry.relays"))
}

// SIGHUP brings a sender's new limits into force in a relay that runs, alone or in a
// daemon; what cannot change while it runs is said, and a file with a problem changes
// nothing.
func TestProcess_HangupReloadsARelay(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"relay", "daemon"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testHangup(t, name)
		})
	}
}

func testHangup(t *testing.T, name string) {
	t.Helper()
	d := deliverable(t, dbtest.New(t), 400)
	path := filepath.Join(t.TempDir(), "belfry.yaml")
	file := func(rate int, timeZone, more string) string {
		d.limit["rate_per_second"], d.limit["burst"] = rate, 1
		return fmt.Sprintf("log: {format: json}\ndelivery: {poll_interval: 10ms, time_zone: %s}\nsenders: %s\n%s", timeZone, d.senders(), more)
	}
	require.NoError(t, os.WriteFile(path, []byte(file(2, "UTC", "")), 0o600))
	p := start(t, []string{"BELFRY_DATABASE_URL=" + d.db.DSN, "BELFRY_CONFIG=" + path}, name)
	waitUntil(t, d.db.Pool, "SELECT count(*) >= 2 FROM belfry.messages WHERE status = 'SENT'")

	p.reloaded(t, path, file(100_000, "UTC", "delivry: {}\n"), "configuration refused; nothing changed")
	require.Less(t, count(t, d.db, "belfry.messages WHERE status = 'SENT'"), int64(200))

	// At two a second this would take longer than the test waits.
	p.reloaded(t, path, file(100_000, "Asia/Seoul", "channels: {relation: app.users}\n"), "changed, and takes effect at the next start")
	require.Equal(t, []any{"senders"}, p.logged(t, "configuration reloaded")[0]["keys"])
	require.Equal(t, []any{"channels.relation", "delivery.time_zone"}, p.logged(t, "changed, and takes effect at the next start")[0]["keys"])
	waitUntil(t, d.db.Pool, "SELECT count(*) = 400 FROM belfry.messages WHERE status = 'SENT'")

	// A sender that is gone stays until the next start.
	d.lessSMS = true
	require.NoError(t, os.WriteFile(path, []byte(file(100_000, "Asia/Seoul", "channels: {relation: app.users}\n")), 0o600))
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return len(p.logged(t, "changed, and takes effect at the next start")) == 2 }, patience, 5*time.Millisecond)
	require.Equal(t, []any{"channels.relation", "delivery.time_zone", "senders"}, p.logged(t, "changed, and takes effect at the next start")[1]["keys"])
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
}

// The second signal does not wait for a provider: what became of the calls is unknown,
// and recorded as such.
func TestProcess_SecondTermCutsCallsShort(t *testing.T) {
	t.Parallel()
	d := deliverable(t, dbtest.New(t), 40, "{for: fcm, do: hang, accepted: true}")
	d.limit["timeout"] = "5m"
	p := start(t, d.environ("BELFRY_DELIVERY_GRACE_PERIOD=10m"), "relay")
	require.Eventually(t, func() bool { return d.fakes.Summary().Of(fake.FCM).Accepted >= 10 }, patience, 5*time.Millisecond)
	p.terminate(t)
	p.says(t, "a second signal stops at once") // or the two signals could arrive as one
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	require.Positive(t, count(t, d.db, "belfry.attempts WHERE outcome = 'unknown'"))
	require.EqualValues(t, 40, count(t, d.db, "belfry.messages WHERE status = 'PENDING'"))
	require.Zero(t, count(t, d.db, "belfry.leases"))
	require.LessOrEqual(t, d.fakes.Summary().Of(fake.FCM).Accepted, count(t, d.db, "belfry.attempts WHERE outcome = 'unknown'"))
}

// Without a terminal a relay refuses the private server, and names the directory it would be in.
func TestRelay_WithoutDatabaseURL(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	r := start(t, []string{"HOME=" + dir, "XDG_DATA_HOME=" + dir,
		`BELFRY_SENDERS=[{"name": "hook", "kind": "webhook", "webhook": {"url": "https://example.com/x", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}}]`}, "relay")
	require.Equal(t, codeConfiguration, r.exit(t), r.stderr.String())
	require.Equal(t, "belfry: database.url is not set: set BELFRY_DATABASE_URL or database.url of the configuration file; or --private, to work on the private PostgreSQL in "+
		filepath.Join(dir, "belfry")+"\n", r.stderr.String())
}
