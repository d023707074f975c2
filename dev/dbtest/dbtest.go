package dbtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/migrations"
)

const (
	// setupTimeout bounds setup and cleanup of one test, including the first start of the server and the first
	// migration.
	setupTimeout = 3 * time.Minute

	// releaseTimeout bounds the time until a test's connections are back in the pool after the test.
	releaseTimeout = 30 * time.Second

	// poolSize is the size of a test's pool. A test may open another pool with the DSN.
	poolSize = 10
	// checks is the default number of tries of a property, because a try on a database takes a hundred times longer
	// than in memory. checksEnv overrides it. CI and make test-fault use 100.
	checks    = "10"
	checksEnv = "BELFRY_TEST_CHECKS"
)

// DB is a database of one test.
type DB struct {
	Pool *pgxpool.Pool // of ten connections, except from Reused; closed when the test ends
	DSN  string        // connection URL, for pgx, libpq and other processes
	Name string        // begins with belfry_test_
	User string        // of Role: the role's name; otherwise empty
}

// Main runs the tests of a package. TestMain calls it and nothing else. It ends the process with the tests' status, or
// with 1 if the server could not be stopped or goroutines were left over. Each option is an exception from the
// second rule and needs a comment.
func Main(m *testing.M, options ...goleak.Option) {
	pgserver.Watchdog()
	if f := flag.Lookup("rapid.checks"); f != nil { // the command line is read later and overrides it
		if err := f.Value.Set(cmp.Or(os.Getenv(checksEnv), checks)); err != nil {
			fmt.Fprintf(os.Stderr, "dbtest: %s: %v\n", checksEnv, err)
			os.Exit(1) //nolint:revive // TestMain ends like this
		}
	}
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	if err := shared.close(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "dbtest: %v\n", err)
		code = max(code, 1)
	}
	cancel()
	if code == 0 {
		if err := goleak.Find(options...); err != nil {
			fmt.Fprintf(os.Stderr, "dbtest: the tests left goroutines behind: %v\n", err)
			code = 1
		}
	}
	os.Exit(code) //nolint:revive // TestMain ends like this
}

// New returns a fresh database with all migrations applied.
func New(t testing.TB) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	h, err := shared.open(ctx)
	require.NoError(t, err)
	name := databaseName(t)
	require.NoError(t, h.clone(ctx, name))
	db := h.use(ctx, t, name, poolSize)
	require.NoError(t, adopt(ctx, db.Pool))
	return db
}

// CopyOf returns a copy of a test's database by CREATE DATABASE … TEMPLATE. Relays refuse to send from such a copy. It
// closes the pool of db.
func CopyOf(t testing.TB, db *DB) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	h, err := shared.open(ctx)
	require.NoError(t, err)
	closePool(t, db.Pool, releaseTimeout)
	name := databaseName(t)
	require.NoError(t, h.create(ctx, name, db.Name))
	return h.use(ctx, t, name, poolSize)
}

// NewEmpty returns a fresh database without belfry's schema.
func NewEmpty(t testing.TB) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	h, err := shared.open(ctx)
	require.NoError(t, err)
	name := databaseName(t)
	require.NoError(t, h.create(ctx, name, "template0"))
	return h.use(ctx, t, name, poolSize)
}

// NewServer returns a private server for one test, which may stop, crash and start it. It takes about a second. A
// durable server has the settings of a stock server, and an immediate stop loses no commits. Another one loses
// the latest commits. Server and data are removed when the test ends. If the test failed, the end of the
// server's log is logged.
func NewServer(t testing.TB, durable bool) *pgserver.Server {
	t.Helper()
	return newServer(t, durable, func(context.Context, string) {})
}

// newServer starts a server. fill may put a cluster into its directory.
func newServer(t testing.TB, durable bool, fill func(ctx context.Context, dir string)) *pgserver.Server {
	t.Helper()
	// Not t.TempDir: its path is long for a socket, and the account that runs the server for root cannot enter it.
	dir, err := os.MkdirTemp(serverRoot(durable), "belfry-pg-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	if os.Geteuid() == 0 { // for the server's account
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	fill(ctx, dir)
	server, err := pgserver.Open(ctx, serverConfig(dir, durable))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), setupTimeout)
		defer cancel()
		if t.Failed() {
			logTail(t, server.LogFile())
		}
		require.NoError(t, server.Close(ctx))
	})
	return server
}

// NewOn returns a fresh database with all migrations applied on the given server. It is removed with the server. Its
// pool must not have connections in use when the test ends.
func NewOn(t testing.TB, server *pgserver.Server) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	name := databaseName(t)
	require.NoError(t, server.EnsureDatabase(ctx, name))
	db := &DB{DSN: server.DSN(name), Name: name}
	_, err := migrations.Up(ctx, db.DSN)
	require.NoError(t, err)
	db.Pool, err = openPool(ctx, db.DSN, poolSize)
	require.NoError(t, err)
	t.Cleanup(func() { closePool(t, db.Pool, releaseTimeout) })
	return db
}

// use connects a test to its database. After the test, it closes the pool and drops the database.
func (h *host) use(ctx context.Context, t testing.TB, name string, connections int32) *DB {
	t.Helper()
	db := &DB{Name: name}
	var err error
	db.DSN, err = h.dsn(name)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("database retained: %s%s", db.DSN, h.howToStart())
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), setupTimeout)
		defer cancel()
		require.NoError(t, h.drop(ctx, name))
	})
	db.Pool, err = openPool(ctx, db.DSN, connections)
	require.NoError(t, err)
	t.Cleanup(func() { closePool(t, db.Pool, releaseTimeout) })
	return db
}

func openPool(ctx context.Context, dsn string, size int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = size
	config.ConnConfig.ConnectTimeout = releaseTimeout
	return pgxpool.NewWithConfig(ctx, config)
}

// closePool closes the pool. If a connection was never released, it fails the test instead of hanging.
func closePool(t testing.TB, pool *pgxpool.Pool, patience time.Duration) {
	t.Helper()
	closed := make(chan struct{})
	go func() { defer close(closed); pool.Close() }()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Errorf("%d connections of the pool are still in use %s after the test",
			pool.Stat().AcquiredConns(), patience)
	}
}

// Names of databases contain the time of their creation, for pruning, and the test's name, cut to PostgreSQL's limit of 63
// bytes.
const (
	databasePrefix = "belfry_test_"
	maxIdentifier  = 63
)

func databaseName(t testing.TB) string {
	t.Helper()
	name := newName(plain(t.Name()))
	return name[:min(len(name), maxIdentifier)]
}

func newName(of string) string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // documented never to fail
	return databasePrefix + strconv.FormatInt(time.Now().Unix(), 10) + "_" + hex.EncodeToString(random[:]) + "_" + of
}

// plain replaces all characters that would require quotes.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '_'
		}
	}, name)
}

// madeAt returns the time of creation in a database's name.
func madeAt(name string) (time.Time, error) {
	seconds, _, ok := strings.Cut(strings.TrimPrefix(name, databasePrefix), "_")
	if !ok {
		return time.Time{}, errors.New("no time in the name")
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	return time.Unix(unix, 0), err
}

// logTail logs the last lines of a server's log.
func logTail(t testing.TB, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Logf("server log: %v", err)
		return
	}
	const most = 4 << 10
	t.Logf("end of the server log:\n%s", text[max(0, len(text)-most):])
}
