package pgserver

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/db"
)

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// openServer opens a server in this process and closes it when the test ends.
func openServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Open(testContext(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		require.NoError(t, s.Close(ctx))
	})
	return s
}

func connectTo(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), dsn)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

func show(t *testing.T, conn *pgx.Conn, setting string) string {
	t.Helper()
	var value string
	require.NoError(t, conn.QueryRow(testContext(t), "SELECT current_setting($1)", setting).Scan(&value))
	return value
}

func TestOpen_ColdThenWarmKeepsData(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	cfg := Config{DataDir: newDir(t, person{}), Settings: map[string]string{"work_mem": "5MB"}}

	began := time.Now()
	s := openServer(t, cfg)
	require.NoError(t, s.EnsureDatabase(ctx, "belfry"))
	t.Logf("cold start: %s", time.Since(began))
	require.NoError(t, s.EnsureDatabase(ctx, "belfry"), "twice is once")
	conn := connectTo(t, s.DSN("belfry"))
	require.Equal(t, "on", show(t, conn, "fsync"))
	require.Equal(t, "on", show(t, conn, "synchronous_commit"))
	require.Equal(t, "on", show(t, conn, "full_page_writes"))
	require.Equal(t, "5MB", show(t, conn, "work_mem"))
	require.Equal(t, "UTF8", show(t, conn, "server_encoding"))
	require.Empty(t, show(t, conn, "listen_addresses"))
	require.Equal(t, s.Install().Version, strings.Fields(show(t, conn, "server_version"))[0])
	_, err := conn.Exec(ctx, "CREATE TABLE kept AS SELECT 'Ä'::text AS v")
	require.NoError(t, err)
	requirePrivate(t, s)
	pid := s.PID()
	require.NotZero(t, pid)
	require.NoError(t, s.Close(ctx), "with a connection open")
	require.True(t, gone(pid), "P3")
	require.Zero(t, s.PID())
	require.NoError(t, s.Close(ctx), "a second Close does nothing")

	began = time.Now()
	s = openServer(t, cfg)
	conn = connectTo(t, s.DSN("belfry"))
	t.Logf("warm start: %s", time.Since(began))
	var lower string
	require.NoError(t, conn.QueryRow(ctx, "SELECT lower(v) FROM kept").Scan(&lower))
	require.Equal(t, "ä", lower)
	require.NoError(t, s.Close(ctx))
}

// requirePrivate proves that only the server's account and root can connect.
func requirePrivate(t *testing.T, s *Server) {
	t.Helper()
	info, err := os.Stat(filepath.Join(s.Home, socket))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	if os.Geteuid() != 0 {
		info, err = os.Stat(s.Home)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	}
	text, err := os.ReadFile(filepath.Join(s.DataDir(), "postmaster.pid"))
	require.NoError(t, err)
	require.Empty(t, strings.Split(string(text), "\n")[5], "the address it listens on")
}

// Paths appear on the command line and in URLs.
func TestOpen_PathsWithUnusualCharacters(t *testing.T) {
	t.Parallel()
	s := openServer(t, Config{DataDir: filepath.Join(newDir(t, person{}), "Ünï code+%41*[b]?")})
	query(t, s.DSN("postgres"))
	require.NoError(t, s.EnsureDatabase(testContext(t), "odd name/%?&'\""))
	query(t, s.DSN("odd name/%?&'\""))
}

func TestOpen_PathsThatNoSocketCanHaveAreRejected(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("long/", 30), "it's", "a,b"} {
		dir := filepath.Join(newDir(t, person{}), name)
		_, err := Open(testContext(t), Config{DataDir: dir})
		require.ErrorContains(t, err, "the data directory "+dir+" is not allowed")
		require.NoDirExists(t, dir)
	}
}

func TestLong_OpenFailureShowsTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	dir := madeDir(t, person{})
	_, err := Open(testContext(t), Config{DataDir: dir, Settings: map[string]string{"shared_buffers": "a lot"}})
	require.ErrorContains(t, err, `invalid value for parameter "shared_buffers": "a lot"`)
	require.ErrorContains(t, err, "postgresql.log")
	// Nothing stays behind, and the next one is not impressed.
	s := openServer(t, Config{DataDir: dir})
	query(t, s.DSN("postgres"))
}

func TestOpen_InitdbFailureShowsItsOutput(t *testing.T) {
	t.Parallel()
	bin := newDir(t, person{})
	fakeInstall(t, bin, "postgres (PostgreSQL) 17.2", "echo disk is made of cheese >&2; exit 1")
	dir := newDir(t, person{})
	_, err := Open(testContext(t), Config{DataDir: dir, BinDir: bin})
	require.ErrorContains(t, err, "disk is made of cheese")
	left, err := filepath.Glob(filepath.Join(dir, "pg17", "*init-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestFault_StoppedServerStartsAgain(t *testing.T) {
	t.Parallel()
	for _, mode := range []syscall.Signal{Fast, Immediate} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			s := openServer(t, Config{DataDir: madeDir(t, person{})})
			conn := connectTo(t, s.DSN("postgres"))
			_, err := conn.Exec(ctx, "CREATE TABLE committed (id int)")
			require.NoError(t, err)
			pid := s.PID()
			require.NoError(t, s.Stop(ctx, mode))
			awaitGone(t, pid)
			require.Zero(t, s.PID())
			require.Error(t, conn.Ping(ctx))
			require.NoError(t, s.Stop(ctx, mode), "stopped is stopped")

			require.NoError(t, s.Start(ctx))
			require.NotEqual(t, pid, s.PID())
			require.NoError(t, s.Start(ctx), "a running server stays")
			conn = connectTo(t, s.DSN("postgres"))
			_, err = conn.Exec(ctx, "SELECT FROM committed")
			require.NoError(t, err)
		})
	}
}

// The users of a server stay its users while it is down.
func TestProcess_StopLeavesTheOtherUsers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir := madeDir(t, person{})
	s := openServer(t, Config{DataDir: dir})
	other := startUser(t, person{}, dir)
	require.NoError(t, s.Stop(ctx, Immediate))
	require.NoError(t, s.Start(ctx))
	query(t, other.dsn)
	require.NoError(t, s.Close(ctx))
	query(t, other.dsn)
	watchdog := parent(t, other.pidNow(s))
	other.close()
	awaitGone(t, watchdog)
}

func (u *process) pidNow(s *Server) int { u.pid = s.PID(); return u.pid }

func TestLong_CloseGivesUpWaitingButTheServerStops(t *testing.T) {
	t.Parallel()
	s, err := Open(testContext(t), Config{DataDir: madeDir(t, person{})})
	require.NoError(t, err)
	pid, watchdog := s.PID(), s.watchdog
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("in a hurry")
	cancel(reason)
	require.ErrorIs(t, s.Close(ctx), reason)
	awaitGone(t, pid)
	awaitGone(t, watchdog.Process.Pid)
	_ = watchdog.Wait()
}

// The one before may still be stopping its server.
func TestLong_OpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := madeDir(t, person{})
	c, err := locate(testContext(t), Config{DataDir: dir}, localDirs())
	require.NoError(t, err)
	busy, err := os.OpenFile(filepath.Join(c.Home, "cluster.lock"), os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(busy.Fd()), syscall.LOCK_EX))
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("operator left")
	cancel(reason)
	err = (&Server{cluster: c}).join(ctx)
	require.ErrorIs(t, err, reason)
	require.ErrorContains(t, err, "wait for the server in "+c.Home)

	next := spawnUser(t, person{}, dir)
	require.NoError(t, busy.Close())
	next.awaitOpen()
	next.close()
}

func TestFault_PostmasterKilled(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := openServer(t, Config{DataDir: newDir(t, person{})})
	conn := connectTo(t, s.DSN("postgres"))
	_, err := conn.Exec(ctx, "CREATE TABLE kept (id int)")
	require.NoError(t, err)
	// A backend that does not notice the end of its postmaster keeps the shared
	// memory in use for a while.
	busy := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "DO $$ DECLARE until timestamptz := clock_timestamp() + '1s'; "+
			"BEGIN WHILE clock_timestamp() < until LOOP END LOOP; END $$")
		busy <- err
	}()
	watch := connectTo(t, s.DSN("postgres"))
	require.Eventually(t, func() bool {
		var active bool
		err := watch.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'DO%' AND state = 'active')").Scan(&active)
		return err == nil && active
	}, patience, poll)

	require.NoError(t, syscall.Kill(s.PID(), syscall.SIGKILL))
	require.NoError(t, s.Start(ctx))
	if err := <-busy; err != nil {
		t.Log("the statement of the orphaned backend: ", err) // it may or may not get its answer out
	}
	query(t, s.DSN("postgres"))
	_, err = connectTo(t, s.DSN("postgres")).Exec(ctx, "SELECT FROM kept")
	require.NoError(t, err)
}

// Whoever connects while the server stops is refused by a process of its own, which is not
// told to end and first waits for what the client has to say. A client that is stopped
// says nothing.
func TestFault_SilentClientDoesNotKeepTheServer(t *testing.T) {
	t.Parallel()
	s := openServer(t, Config{DataDir: newDir(t, person{})})
	conn := connectTo(t, s.DSN("postgres"))
	// The server waits for this one until it kills it, and accepts connections meanwhile.
	require.NoError(t, syscall.Kill(int(conn.PgConn().PID()), syscall.SIGSTOP))
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		stopped <- s.Stop(ctx, Immediate)
	}()
	require.Eventually(t, func() bool {
		log, err := os.ReadFile(s.LogFile())
		return err == nil && strings.Contains(string(log), "received immediate shutdown request")
	}, patience, poll)
	var d net.Dialer
	silent, err := d.DialContext(testContext(t), "unix", filepath.Join(conn.Config().Host, ".s.PGSQL."+strconv.Itoa(int(conn.Config().Port))))
	if err == nil { // else this machine took longer than the server waits for its children
		defer func() { require.NoError(t, silent.Close()) }()
	}
	require.NoError(t, <-stopped)
}

// After a restart of the machine or container the process id in postmaster.pid
// can belong to anything.
func TestFault_StalePostmasterPid(t *testing.T) {
	t.Parallel()
	forEachPerson(t, func(t *testing.T, p person) {
		dir := madeDir(t, p)
		u := startUser(t, p, dir)
		cfg := Config{DataDir: dir}
		c, err := locate(testContext(t), cfg, localDirs())
		require.NoError(t, err)
		pidFile := c.pidFile()
		text, err := os.ReadFile(pidFile)
		require.NoError(t, err)
		socketLock := filepath.Join(c.Home, socket+".lock")
		u.close()

		// A stranger with the id, of the same account: that is the hard case,
		// PostgreSQL disregards processes it cannot signal.
		as, err := ownerOf(c.DataDir())
		require.NoError(t, err)
		stranger := exec.Command("sleep", "600")
		if os.Geteuid() == 0 {
			stranger.SysProcAttr = &syscall.SysProcAttr{Credential: as.credential()}
		}
		require.NoError(t, stranger.Start())
		t.Cleanup(func() { _ = stranger.Process.Kill(); _ = stranger.Wait() })
		_, rest, _ := strings.Cut(string(text), "\n")
		stale := itoa(stranger.Process.Pid) + "\n" + rest
		writeOwned(t, pidFile, stale, as)
		writeOwned(t, socketLock, stale, as)

		again := startUser(t, p, dir)
		require.NotEqual(t, stranger.Process.Pid, again.pid)
		require.False(t, gone(stranger.Process.Pid), "a process that is none of ours was stopped")
		query(t, again.dsn)
		again.close()

		// Written in part, or not at all.
		for _, text := range []string{"", itoa(stranger.Process.Pid) + "\n", "rubbish\n"} {
			writeOwned(t, pidFile, text, as)
			again := startUser(t, p, dir)
			again.close()
		}
	})
}

func writeOwned(t *testing.T, path, text string, as *account) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	if os.Geteuid() == 0 {
		person{account: as}.give(t, path)
	}
}

// No watchdog would stop this server.
func TestLong_OpenReplacesAServerWithoutWatchdog(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	cfg := Config{DataDir: madeDir(t, person{})}
	first := openServer(t, cfg)
	c := first.cluster
	require.NoError(t, first.Close(ctx))

	byHand := exec.Command(c.Install.postgres(), "-D", c.DataDir(), "-c", "listen_addresses=",
		"-c", "unix_socket_directories="+c.Home, "-p", port)
	byHand.Dir = "/"
	byHand.SysProcAttr = &syscall.SysProcAttr{Credential: c.Account.credential()}
	require.NoError(t, byHand.Start())
	ended := make(chan error, 1)
	go func() { ended <- byHand.Wait() }()
	require.Eventually(t, func() bool { return c.connect(ctx) == nil }, patience, poll)

	s := openServer(t, cfg)
	require.NoError(t, <-ended)
	require.NotEqual(t, byHand.Process.Pid, s.PID())
	query(t, s.DSN("postgres"))
}

// Root may run a command on a user's cluster; the user goes on using it.
func TestProcess_RootUsesTheClusterOfAUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	p := person{name: "nobody", account: nobody(t)}
	dir := madeDir(t, p)
	startUser(t, p, dir).close()
	logs, err := filepath.Glob(filepath.Join(dir, "pg*", "*.log"))
	require.NoError(t, err)
	require.Len(t, logs, 1)
	require.NoError(t, os.Remove(logs[0])) // root is to create it
	s := openServer(t, Config{DataDir: dir})
	as, err := ownerOf(filepath.Join("/proc", itoa(s.PID())))
	require.NoError(t, err)
	require.Equal(t, p.account.UID, as.UID)
	u := startUser(t, p, dir)
	require.Equal(t, s.PID(), u.pid)
	require.NoError(t, s.Close(testContext(t)))
	u.close()
	startUser(t, p, dir).close()
}

// P2: killing the watchdog must not leave a server that nobody watches.
func TestFault_WatchdogKilled(t *testing.T) {
	t.Parallel()
	forEachPerson(t, func(t *testing.T, p person) {
		dir := madeDir(t, p)
		u := startUser(t, p, dir)
		watchdog := parent(t, u.pid)
		require.NoError(t, syscall.Kill(watchdog, syscall.SIGKILL))
		next := startUser(t, p, dir)
		require.NotEqual(t, u.pid, next.pid)
		require.NotEqual(t, watchdog, parent(t, next.pid))
		awaitGone(t, u.pid)
		query(t, next.dsn)
		u.pid = 0
		u.close()
		query(t, next.dsn)
		next.close()
	})
}

// pkill -9 by name takes users and watchdog alike.
func TestFault_UserAndWatchdogKilled(t *testing.T) {
	t.Parallel()
	dir := madeDir(t, person{})
	u := startUser(t, person{}, dir)
	watchdog := parent(t, u.pid)
	require.NoError(t, syscall.Kill(watchdog, syscall.SIGKILL))
	u.kill()
	next := startUser(t, person{}, dir) // where nothing stopped the server, this does
	require.NotEqual(t, u.pid, next.pid)
	next.close()
}

func TestLong_FullServerIsUp(t *testing.T) {
	t.Parallel()
	dir := madeDir(t, person{})
	s := openServer(t, Config{DataDir: dir, Settings: map[string]string{
		"max_connections": "2", "superuser_reserved_connections": "0", "max_worker_processes": "2",
	}})
	first := connectTo(t, s.DSN("postgres"))
	require.Eventually(t, func() (alone bool) { // the connection that found it up may not be gone yet
		err := first.QueryRow(testContext(t), `SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend'`).Scan(&alone)
		return err == nil && alone
	}, patience, 5*time.Millisecond)
	connectTo(t, s.DSN("postgres"))
	_, err := pgconn.Connect(testContext(t), s.DSN("postgres"))
	require.Equal(t, db.TooManyConnections, db.Code(err), "%v", err)
	second := openServer(t, Config{DataDir: dir})
	require.Equal(t, s.PID(), second.PID())
}
