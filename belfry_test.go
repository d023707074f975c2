package belfry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox/redislist"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// patience is a limit that only a hang reaches.
const patience = 2 * time.Minute

// phone is a sender of one's own: it remembers what it was given.
type phone struct {
	mu     sync.Mutex
	titles []string
	hold   chan struct{} // not nil: a call lasts until it is closed, or cut short
	called chan struct{} // gets one for each call
}

func newPhone() *phone { return &phone{called: make(chan struct{}, 100)} }

func (p *phone) MaxBatch() int { return 1 }

func (p *phone) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	p.called <- struct{}{}
	if p.hold != nil {
		select {
		case <-p.hold:
		case <-ctx.Done():
			return []sender.Result{{Class: sender.Unknown}}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.titles = append(p.titles, batch[0].Title)
	return []sender.Result{{Class: sender.Accepted}}
}

func (p *phone) sent() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.titles
}

// by is the sender of a phone.
func (p *phone) by() relay.Sender {
	c := relay.DefaultSenderConfig()
	c.Name, c.Medium = "phone", "push"
	return relay.Sender{SenderConfig: c, Client: p}
}

// coupons is a job type of one's own.
func coupons(t *testing.T) job.Type {
	t.Helper()
	who, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	return job.NewType("coupons", "a coupon for each recipient", job.Recipients(who), job.WriterFunc[channels.Channel](
		func(ctx context.Context, tx pgx.Tx, j job.Job, recipients []channels.Channel) (int64, error) {
			return tx.CopyFrom(ctx, pgx.Identifier{"coupons"}, []string{"job_id", "user_id"},
				pgx.CopyFromSlice(len(recipients), func(n int) ([]any, error) { return []any{j.ID, recipients[n].ExternalID}, nil }))
		}))
}

// quick is a configuration that looks often.
func quick() belfry.Config {
	c := belfry.DefaultConfig()
	c.Runner.PollInterval = 100 * time.Millisecond
	return c
}

// runs starts an instance, which runs until stop; stop returns what Run did.
func runs(t *testing.T, i *belfry.Instance) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-ended
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// pooled is a pool as a service has it.
func pooled(t *testing.T, db *dbtest.DB) *pgxpool.Pool {
	t.Helper()
	c := db.Pool.Config()
	c.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// becomes waits until a query's answer is true.
func becomes(t *testing.T, db *dbtest.DB, query string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool {
		var yes bool
		return db.Pool.QueryRow(t.Context(), query, args...).Scan(&yes) == nil && yes
	}, patience, 20*time.Millisecond, query)
}

func execute(t *testing.T, db *dbtest.DB, query string, args ...any) {
	t.Helper()
	_, err := db.Pool.Exec(t.Context(), query, args...)
	require.NoError(t, err)
}

// One instance on the program's pool runs jobs of the program's types and of belfry's, fires
// schedules, and delivers through the program's senders; it stops softly and leaves the pool
// open.
func TestInstance_RunsTheWholeOfBelfry(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	execute(t, db, "CREATE TABLE coupons (job_id bigint, user_id text, PRIMARY KEY (job_id, user_id))")
	execute(t, db, "INSERT INTO belfry.channels (external_id, platform, addresses) VALUES ('ann', 'ios', '{\"push\": \"a\"}'), ('ben', 'android', '{\"push\": \"b\"}')")

	c := quick()
	c.Schedules = []schedule.Definition{{Name: "often", Every: "1s", Template: schedule.Template{Type: "inbox", Category: "popular_content", Title: "Ten things"}}}
	calls := newPhone()
	var log dbtest.Buffer
	pool := pooled(t, db)
	i, err := belfry.New(c, belfry.WithPool(pool), belfry.WithTypes(coupons(t)), belfry.WithSenders(calls.by()), belfry.WithLogger(zerolog.New(&log)))
	require.NoError(t, err)
	stop := runs(t, i)

	becomes(t, db, "SELECT EXISTS (SELECT FROM belfry.job_types WHERE name = 'coupons')")
	tx, err := db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = job.EnqueueTx(t.Context(), tx, job.Spec{Type: "coupons", Category: "operator_notice", Title: "Spring"})
	require.NoError(t, err)
	_, err = job.EnqueueTx(t.Context(), tx, job.Spec{Type: "push", Category: "operator_notice", Title: "Hello"})
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))

	becomes(t, db, "SELECT count(*) = 2 FROM coupons")
	becomes(t, db, "SELECT count(*) = 2 FROM belfry.messages WHERE status = 'SENT'")
	becomes(t, db, "SELECT count(*) >= 1 FROM belfry.jobs WHERE title = 'Ten things' AND status = 'PROCESSED'")
	require.Equal(t, []string{"Hello", "Hello"}, calls.sent())
	require.ErrorContains(t, i.Run(t.Context()), "runs already")

	require.NoError(t, stop())
	require.Contains(t, log.String(), `"message":"belfry stopped"`)
	require.NoError(t, pool.Ping(t.Context()), "the pool is the program's")
}

// Of an instance without a pool the pool ends with Run, which may begin again: it then lets go
// of what is over its retention.
func TestInstance_OpensItsPoolAsTheConfigurationSays(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	path := filepath.Join(t.TempDir(), "belfry.yaml")
	require.NoError(t, os.WriteFile(path, []byte(fmt.Sprintf("database: {url: %q}\nrunner: {poll_interval: 100ms}\nretention: {jobs: 720h, notifications: 720h, messages: 720h}\n", db.DSN)), 0o600))
	s, err := settings.Read(path)
	require.NoError(t, err)
	i, err := belfry.New(s.Node())
	require.NoError(t, err)
	for _, title := range []string{"first", "second"} {
		stop := runs(t, i)
		execute(t, db, "INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', $1)", title)
		becomes(t, db, "SELECT count(*) = 1 FROM belfry.jobs WHERE status = 'PROCESSED' AND title = $1", title)
		becomes(t, db, "SELECT $1 = 'first' OR NOT EXISTS (SELECT FROM belfry.jobs WHERE title = 'first')", title)
		require.NoError(t, stop())
		execute(t, db, "UPDATE belfry.jobs SET finished_at = finished_at - interval '90 days'")
		becomes(t, db, "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'belfry'")
	}
}

// A program that imports only belfry links no carrier, no provider client, no reader of configuration
// files, no metrics and no HTTP API.
func TestImports_OnlyTheEngine(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	require.NoError(t, err)
	linked := strings.Fields(string(out))
	require.Contains(t, linked, "github.com/belfryhq/belfry/outbox/relay")
	for _, path := range linked {
		require.NotRegexp(t, "redis|nats|/provider|viper|prometheus|huma|oidc|belfry/admin/api|belfry/node/", path)
	}
}

// The longest chain of imports from the command has 9 edges at most: more of them make the program hard to follow.
func TestImports_AreNotDeep(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./cmd/belfry").Output()
	require.NoError(t, err)
	chains := make(map[string][]string) // go list names a package after all that it imports
	for line := range strings.Lines(string(out)) {
		of := strings.Fields(line)
		if !strings.HasPrefix(of[0], "github.com/belfryhq/belfry/") {
			continue
		}
		var longest []string
		for _, path := range of[1:] {
			if chain := chains[path]; len(chain) > len(longest) {
				longest = chain
			}
		}
		chains[of[0]] = append([]string{of[0]}, longest...)
	}
	chain := chains["github.com/belfryhq/belfry/cmd/belfry"]
	require.Contains(t, chain, "github.com/belfryhq/belfry/job")
	require.LessOrEqual(t, len(chain)-1, 9, "%s", strings.Join(chain, "\n"))
}

// Relays exchange ids through the carrier that the program gives, which stays open between runs.
func TestWithCarrier_DeliversThroughIt(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	execute(t, db, "INSERT INTO belfry.channels (external_id, platform, addresses) VALUES ('ann', 'ios', '{\"push\": \"a\"}')")
	rc := redislist.DefaultConfig()
	redis := dbtest.StartRedis(t)
	rc.URL = redis.URL
	carrier, err := redislist.New(rc, redislist.Options{MaxQueued: 1000, Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, carrier.Close()) })
	calls := newPhone()
	i, err := belfry.New(quick(), belfry.WithPool(pooled(t, db)), belfry.WithSenders(calls.by()), belfry.WithCarrier(carrier))
	require.NoError(t, err)
	for n := 1; n <= 2; n++ {
		stop := runs(t, i)
		execute(t, db, "INSERT INTO belfry.activities (channel_id, title) SELECT id, 'Hello' FROM belfry.channels")
		becomes(t, db, "SELECT count(*) = $1 FROM belfry.messages WHERE status = 'SENT'", n)
		require.NoError(t, stop())
	}
	require.NotEqual(t, ":0", redis.Do(t, "DBSIZE"))
}

// A hard stop cuts a call short, whose outcome is then unknown.
func TestInstance_StopNowCutsCallsShort(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	execute(t, db, "INSERT INTO belfry.channels (external_id, platform, addresses) VALUES ('ann', 'ios', '{\"push\": \"a\"}')")
	calls := newPhone()
	calls.hold = make(chan struct{})
	c := quick()
	c.Delivery.Relay.GracePeriod = time.Hour // a soft stop waits for the call
	i, err := belfry.New(c, belfry.WithPool(pooled(t, db)), belfry.WithSenders(calls.by()))
	require.NoError(t, err)
	i.StopNow(errors.New("nothing runs")) // and nothing happens
	stop := runs(t, i)
	execute(t, db, "INSERT INTO belfry.activities (channel_id, title) SELECT id, 'Hello' FROM belfry.channels")
	select {
	case <-calls.called:
	case <-time.After(patience):
		require.Fail(t, "no call")
	}
	i.StopNow(errors.New("fire in the house"))
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		close(calls.hold)
		require.Fail(t, "Run waits for the call")
	}
	require.Empty(t, calls.sent())
	becomes(t, db, "SELECT status <> 'PROCESSING' FROM belfry.messages")
}

func TestInstance_ReloadsWhatMayChangeLive(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	var log dbtest.Buffer
	i, err := belfry.New(quick(), belfry.WithPool(pooled(t, db)), belfry.WithLogger(zerolog.New(&log)))
	require.NoError(t, err)
	stop := runs(t, i)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "belfry started") }, patience, 10*time.Millisecond)
	next := quick()
	next.Runner.MaxSkips = 7
	next.Runner.Name = "other"
	next.Schedules = []schedule.Definition{{Name: "yearly", Cron: "@yearly", Template: schedule.Template{Type: "inbox", Category: "popular_content", Title: "A year"}}}
	waiting, err := i.Reload(t.Context(), next)
	require.NoError(t, err)
	require.Equal(t, []string{"runner.name"}, waiting)
	becomes(t, db, "SELECT EXISTS (SELECT FROM belfry.schedules WHERE name = 'yearly')")
	next.Runner.MaxSkips = -2
	_, err = i.Reload(t.Context(), next)
	require.ErrorContains(t, err, "runner.max_skips: -2")
	require.NoError(t, stop())
}

// A name is one living instance's.
func TestInstance_ANameIsOneInstances(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	c := quick()
	c.Runner.Name = "one"
	first, err := belfry.New(c, belfry.WithPool(pooled(t, db)))
	require.NoError(t, err)
	stop := runs(t, first)
	becomes(t, db, "SELECT EXISTS (SELECT FROM belfry.names WHERE name = 'one')")
	second, err := belfry.New(c, belfry.WithPool(pooled(t, db)))
	require.NoError(t, err)
	var held *belfry.NameHeldError
	require.ErrorAs(t, second.Run(t.Context()), &held)
	require.Equal(t, "one", held.Name)
	require.NoError(t, stop())
}

// What cannot be used is said before anything is connected to, all of it, with what is allowed.
func TestNew_SaysEveryProblem(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/x?pool_max_conns=2")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	twice := newPhone()
	for name, want := range map[string]struct {
		change  func(*belfry.Config)
		options []belfry.Option
		texts   []string
	}{
		"nothing given": {nil, nil, []string{"database.url: is required", "WithPool"}},
		"several": {func(c *belfry.Config) {
			c.Runner.MaxSkips, c.Database.MaxConnections = -2, 1
		}, nil,
			[]string{"runner.max_skips: -2", "database.max_connections: 1"}},
		"a small pool": {nil, []belfry.Option{belfry.WithPool(pool)}, []string{"WithPool: a pool of 2 connections", "allowed values: 3 or more"}},
		"nil pool":     {nil, []belfry.Option{belfry.WithPool(nil)}, []string{"WithPool: nil"}},
		"nil slog":     {nil, []belfry.Option{belfry.WithSlog(nil)}, []string{"WithSlog: nil"}},
		"no client":    {nil, []belfry.Option{belfry.WithSenders(relay.Sender{SenderConfig: twice.by().SenderConfig})}, []string{`WithSenders: sender "phone" has no client`}},
		"one name":     {nil, []belfry.Option{belfry.WithSenders(twice.by(), twice.by())}, []string{`senders[1].name: "phone" is the name of senders[0] too`}},
		"too few":      {func(c *belfry.Config) { c.Database.URL, c.Database.MaxConnections = "postgres://h/d", 3 }, []belfry.Option{belfry.WithSenders(twice.by())}, []string{"database.max_connections: 3 is too few"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := belfry.DefaultConfig()
			if want.change != nil {
				want.change(&c)
			}
			_, err := belfry.New(c, want.options...)
			for _, text := range want.texts {
				require.ErrorContains(t, err, text)
			}
		})
	}
}

// A service's pool has no limit of its own for an attempt to connect.
func TestInstance_StartsOnAPoolAsPgxpoolNewOpensIt(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	pool, err := pgxpool.New(t.Context(), db.DSN)
	require.NoError(t, err)
	defer pool.Close()
	i, err := belfry.New(quick(), belfry.WithPool(pool))
	require.NoError(t, err)
	stop := runs(t, i)
	execute(t, db, "INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'x')")
	becomes(t, db, "SELECT count(*) = 1 FROM belfry.jobs WHERE status = 'PROCESSED'")
	require.NoError(t, stop())
}

// A database that is not fit ends Run with what to do about it.
func TestInstance_RefusesADatabaseThatIsNotFit(t *testing.T) {
	t.Parallel()
	empty := dbtest.NewEmpty(t)
	i, err := belfry.New(quick(), belfry.WithPool(pooled(t, empty)))
	require.NoError(t, err)
	require.ErrorContains(t, i.Run(t.Context()), "no belfry schema yet")

	db := dbtest.New(t)
	config := db.Pool.Config()
	config.ConnConfig.RuntimeParams["standard_conforming_strings"] = "off"
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	odd, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer odd.Close()
	i, err = belfry.New(quick(), belfry.WithPool(odd))
	require.NoError(t, err)
	require.ErrorContains(t, i.Run(t.Context()), "[default_transaction_isolation standard_conforming_strings]")
	var still string
	require.NoError(t, odd.QueryRow(t.Context(), "SHOW default_transaction_isolation").Scan(&still))
	require.Equal(t, "serializable", still, "the sessions are the program's")

	c := belfry.DefaultConfig()
	c.Database.URL, c.Database.ConnectTimeout = "postgres://somebody:secret@127.0.0.1:1/x", time.Second
	i, err = belfry.New(c)
	require.NoError(t, err)
	err = i.Run(t.Context())
	require.ErrorContains(t, err, "the database cannot be reached")
	require.NotContains(t, err.Error(), "secret")
}

// Levels and fields reach slog as they were, in their order, and what it does not enable is not
// written.
func TestWithSlog_CarriesLevelsAndFieldsOver(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	var out dbtest.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})).With("app", "shop")
	c := quick()
	c.Runner.Name = "slogger"
	i, err := belfry.New(c, belfry.WithPool(pooled(t, db)), belfry.WithSlog(log))
	require.NoError(t, err)
	stop := runs(t, i)
	execute(t, db, "INSERT INTO belfry.channels (external_id, platform) VALUES ('ann', 'ios')")
	execute(t, db, "INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'x')")
	becomes(t, db, "SELECT count(*) = 1 FROM belfry.jobs WHERE status = 'PROCESSED'")
	require.NoError(t, stop())
	require.Regexp(t, `"level":"INFO","msg":"belfry started","app":"shop","worker_id":"slogger"`, out.String())
	require.Regexp(t, `"level":"INFO","msg":"[^"]+","app":"shop",.*"job_id":1,`, out.String())
	require.NotContains(t, out.String(), `"level":"DEBUG"`)
	require.False(t, bytes.Contains([]byte(out.String()), []byte(`"message":`)))
}
