package dbtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/pgserver"
)

func TestMain(m *testing.M) { Main(m) }

// recorder stands in for the test of a user of this package: it fails and ends
// when told to, and remembers what was logged.
type recorder struct {
	testing.TB
	cleanups []func()
	logged   strings.Builder
	failed   bool
}

func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool              { return r.failed }
func (r *recorder) Logf(s string, a ...any)   { fmt.Fprintf(&r.logged, s+"\n", a...) }
func (r *recorder) Errorf(s string, a ...any) { r.failed = true; r.Logf(s, a...) }
func (r *recorder) end() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

func tables(t *testing.T, db *DB) int {
	t.Helper()
	var n int
	require.NoError(t, db.Pool.QueryRow(t.Context(),
		"SELECT count(*) FROM pg_tables WHERE schemaname = 'belfry'").Scan(&n))
	return n
}

// exists asks the server that New uses.
func exists(t *testing.T, name string) bool {
	t.Helper()
	h, err := shared.open(t.Context())
	require.NoError(t, err)
	return existsOn(t, h, name)
}

func existsOn(t *testing.T, h *host, name string) bool {
	t.Helper()
	var found bool
	require.NoError(t, h.admin.QueryRow(t.Context(),
		"SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&found))
	return found
}

func TestNew_IsMigratedAndAlone(t *testing.T) {
	t.Parallel()
	a, b := New(t), New(t)
	require.NotEqual(t, a.Name, b.Name)
	require.Contains(t, a.Name, "testnew_ismigratedandalone")
	require.Positive(t, tables(t, a))
	_, err := a.Pool.Exec(t.Context(), "CREATE TABLE belfry.only_here ()")
	require.NoError(t, err)
	require.Equal(t, tables(t, a)-1, tables(t, b))

	conn, err := pgx.Connect(t.Context(), a.DSN)
	require.NoError(t, err)
	var name string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&name))
	require.Equal(t, a.Name, name)
	require.NoError(t, conn.Close(t.Context()))
}

func TestNewEmpty_HasNoSchema(t *testing.T) {
	t.Parallel()
	require.Zero(t, tables(t, NewEmpty(t)))
}

func TestNew_DropsTheDatabaseOfAPassedTest(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	db := New(r)
	// Processes that a test started and killed may have left connections.
	left, err := pgx.Connect(t.Context(), db.DSN)
	require.NoError(t, err)
	require.True(t, exists(t, db.Name))
	r.end()
	require.False(t, exists(t, db.Name))
	require.Empty(t, r.logged.String())
	_ = left.Close(t.Context())
}

func TestNew_KeepsTheDatabaseOfAFailedTest(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t, failed: true}
	db := New(r)
	r.end()
	require.True(t, exists(t, db.Name))
	require.Contains(t, r.logged.String(), "database retained: "+db.DSN)
	h, err := shared.open(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.drop(t.Context(), db.Name))
}

func TestClosePool_LeakedConnectionFailsTheTest(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	db := New(t)
	conn, err := db.Pool.Acquire(t.Context())
	require.NoError(t, err)
	closePool(r, db.Pool, time.Millisecond)
	require.Contains(t, r.logged.String(), "1 connections of the pool are still in use")
	conn.Release()
}

func TestFault_NewServerCanBeCrashed(t *testing.T) {
	t.Parallel()
	for durable, fsync := range map[bool]string{true: "on", false: "off"} {
		t.Run("fsync="+fsync, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			s := NewServer(t, durable)
			db := NewOn(t, s)
			require.Positive(t, tables(t, db))
			var got string
			require.NoError(t, db.Pool.QueryRow(ctx, "SHOW fsync").Scan(&got))
			require.Equal(t, fsync, got)
			require.NoError(t, s.Stop(ctx, pgserver.Immediate))
			require.Error(t, db.Pool.Ping(ctx))
			require.NoError(t, s.Start(ctx))
			require.NoError(t, db.Pool.Ping(ctx))
			if durable {
				require.Positive(t, tables(t, db))
			}
		})
	}
}

// inOrder is t.Run for a subtest that does not run beside the others.
func inOrder(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, test)
}

// The hosts of these have a server to themselves, one after the other, and reach it as they
// would one that BELFRY_TEST_DATABASE_URL names. At last the server's own test fails, which
// shows the log.
func TestLong_Host(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	s := NewServer(r, false)
	t.Cleanup(func() {
		_, err := pgx.Connect(context.WithoutCancel(t.Context()), s.DSN("last_words"))
		require.Error(t, err)
		r.failed = true
		r.end()
		require.Contains(t, r.logged.String(), `database "last_words" does not exist`)
		require.NoDirExists(t, s.DataDir())
	})
	open := func(t *testing.T) *host {
		t.Helper()
		h, err := openHost(t.Context(), s.DSN("anything"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.close(context.WithoutCancel(t.Context()))) })
		return h
	}
	inOrder(t, "ConcurrentProcessesMakeOneTemplate", func(t *testing.T) { concurrentProcessesMakeOneTemplate(t, s) })
	inOrder(t, "VanishedTemplateIsMadeAgain", func(t *testing.T) { vanishedTemplateIsMadeAgain(t, open(t)) })
	inOrder(t, "PrunesWhatNobodyUsedForADay", func(t *testing.T) { prunesWhatNobodyUsedForADay(t, open) })
	inOrder(t, "TakesURLsAndKeywords", func(t *testing.T) { takesURLsAndKeywords(t, s) })
}

func concurrentProcessesMakeOneTemplate(t *testing.T, s *pgserver.Server) {
	t.Helper()
	var wg sync.WaitGroup
	hosts := make([]*host, 5)
	errs := make([]error, len(hosts))
	for i := range hosts {
		wg.Go(func() { hosts[i], errs[i] = openHost(t.Context(), s.DSN("x")) })
	}
	wg.Wait()
	for i, h := range hosts {
		require.NoError(t, errs[i])
		name := databasePrefix + "1_" + strconv.Itoa(i)
		require.NoError(t, h.clone(t.Context(), name))
		require.NoError(t, h.close(t.Context()))
	}
}

// vanishedTemplateIsMadeAgain also where another process was at it.
func vanishedTemplateIsMadeAgain(t *testing.T, h *host) {
	t.Helper()
	ctx := t.Context()
	_, err := h.admin.Exec(ctx, "DROP DATABASE "+quote(h.template))
	require.NoError(t, err)
	// As left by a process that was killed in mid-migration, with its connection
	// still there.
	require.NoError(t, h.create(ctx, h.template+"_new", "template0"))
	dsn, err := h.dsn(h.template + "_new")
	require.NoError(t, err)
	stuck, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	require.NoError(t, h.clone(ctx, databasePrefix+"1_x"))
	require.True(t, existsOn(t, h, h.template))
	require.False(t, existsOn(t, h, h.template+"_new"))
	require.Error(t, stuck.Ping(ctx))
}

func prunesWhatNobodyUsedForADay(t *testing.T, open func(*testing.T) *host) {
	t.Helper()
	h := open(t)
	ctx := t.Context()
	at := func(age time.Duration) string { return strconv.FormatInt(time.Now().Add(-age).Unix(), 10) }
	old, young, busy := databasePrefix+at(25*time.Hour)+"_a", databasePrefix+at(23*time.Hour)+"_b", databasePrefix+at(48*time.Hour)+"_c"
	oldTemplate, youngTemplate, foreign := templatePrefix+"old", templatePrefix+"young", databasePrefix+"mine"
	for _, name := range []string{old, young, busy, oldTemplate, youngTemplate, foreign} {
		require.NoError(t, h.create(ctx, name, "template0"))
	}
	note := func(name, age string) {
		_, err := h.admin.Exec(ctx, "COMMENT ON DATABASE "+quote(name)+" IS '"+usedNote+age+"'")
		require.NoError(t, err)
	}
	note(oldTemplate, at(25*time.Hour))
	note(youngTemplate, at(23*time.Hour))
	note(h.template, at(72*time.Hour)) // the one in use stays, and is noted as used
	dsn, err := h.dsn(busy)
	require.NoError(t, err)
	user, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)

	h = open(t)
	for name, want := range map[string]bool{
		old: false, young: true, busy: true, oldTemplate: false, youngTemplate: true, foreign: true, h.template: true,
	} {
		require.Equal(t, want, existsOn(t, h, name), name)
	}
	var comment string
	require.NoError(t, h.admin.QueryRow(ctx, queries.templateFind,
		pgx.StrictNamedArgs{"name": h.template}).Scan(&comment))
	used, err := usedAt(comment)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), used, time.Hour)
	require.NoError(t, user.Close(ctx))
}

func takesURLsAndKeywords(t *testing.T, s *pgserver.Server) {
	t.Helper()
	u, err := url.Parse(s.DSN("whatever"))
	require.NoError(t, err)
	for _, databaseURL := range []string{
		s.DSN("whatever"),
		strings.Replace(s.DSN("whatever"), "postgres://", "postgresql://", 1),
		"host=" + u.Query().Get("host") + " port=5432 user=postgres dbname=whatever",
	} {
		h, err := openHost(t.Context(), databaseURL)
		require.NoError(t, err, databaseURL)
		require.NoError(t, h.create(t.Context(), "made_here", "template0"))
		dsn, err := h.dsn("made_here")
		require.NoError(t, err)
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err, dsn)
		require.NoError(t, conn.Close(t.Context()))
		require.NoError(t, h.drop(t.Context(), "made_here"))
		require.Empty(t, h.howToStart())
		require.NoError(t, h.close(t.Context()))
	}
	_, err = openHost(t.Context(), "postgres:///x?host=/nowhere")
	require.ErrorContains(t, err, "connect to the test server")
}

func TestDatabaseName_FitsAndTellsItsAge(t *testing.T) {
	t.Parallel()
	t.Run(strings.Repeat("Long/ünd sonderbar ", 10), func(t *testing.T) {
		t.Parallel()
		name := databaseName(t)
		require.Len(t, name, maxIdentifier)
		require.Regexp(t, `^[a-z0-9_]+$`, name)
		at, err := madeAt(name)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), at, time.Minute)
	})
}

// What follows runs in a process of its own: see TestMain_ReportsLeaks.

const helperEnv = "DBTEST_HELPER"

func TestHelper_Leaks(t *testing.T) {
	if os.Getenv(helperEnv) == "" {
		return // does something only when the tests below call it
	}
	t.Parallel()
	if os.Getenv(helperEnv) == "database" {
		New(t)
	}
	started := make(chan struct{})
	go func() { close(started); select {} }()
	<-started
}

func TestMain_ReportsLeaks(t *testing.T) {
	t.Parallel()
	requireReportsLeaks(t, "goroutine", t.TempDir())
}

func TestProcess_MainReportsLeaksAndLeavesNoServer(t *testing.T) {
	t.Parallel()
	cache, err := os.MkdirTemp(tempRoot(), "belfry-cache-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(cache)) })
	require.NoError(t, os.Chmod(cache, 0o755))
	requireReportsLeaks(t, "database", cache)
	// The server went with the process.
	left, err := exec.CommandContext(t.Context(), "ps", "-eo", "args").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(left)) {
		require.NotContains(t, line, cache)
	}
}

// requireReportsLeaks runs TestHelper_Leaks, with a database or with a goroutine only.
func requireReportsLeaks(t *testing.T, what, dir string) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, "-test.run=^TestHelper_Leaks$", "-test.v")
	cmd.Env = append(os.Environ(), helperEnv+"="+what, dirEnv+"="+dir, databaseURLEnv+"=")
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestHelper_Leaks")
	require.Contains(t, string(out), "the tests left goroutines behind")
}
