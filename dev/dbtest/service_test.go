package dbtest

import (
	"context"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/pgserver"
)

// How long a test waits for what must happen, and between two looks.
const (
	patience = 30 * time.Second
	poll     = 5 * time.Millisecond
)

// ping sends PING on a new connection and returns the answer.
func ping(addr string, timeout time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return "", err
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	return strings.TrimSpace(string(answer[:n])), err
}

// session connects and closes the connection when the test ends.
func session(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// backend runs one transaction and returns the process that served it.
func backend(t *testing.T, conn *pgx.Conn) (pid int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	return pid
}

func TestRedis_StopPauseAndRestart(t *testing.T) {
	t.Parallel()
	r := StartRedis(t)
	answer, err := ping(r.Addr, patience)
	require.NoError(t, err)
	require.Equal(t, "+PONG", answer)
	require.Equal(t, "redis://"+r.Addr+"/0", r.URL)
	require.ErrorContains(t, r.Start(t.Context()), "it was not stopped")

	require.NoError(t, r.Pause())
	_, err = ping(r.Addr, 50*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded) // connected, not answered
	require.NoError(t, r.Continue())
	_, err = ping(r.Addr, patience)
	require.NoError(t, err)

	pid := r.PID()
	require.NoError(t, r.Stop())
	require.NoError(t, r.Stop())
	require.Zero(t, r.PID())
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	_, err = ping(r.Addr, patience)
	require.Error(t, err)
	require.ErrorContains(t, r.Pause(), "it does not run")

	require.NoError(t, r.Start(t.Context()))
	require.NotEqual(t, pid, r.PID())
	_, err = ping(r.Addr, patience)
	require.NoError(t, err)

	require.NoError(t, r.Pause()) // a frozen server is stopped like any other
	require.NoError(t, r.Stop())
}

// A server that crashes on its own must not look like one that the test stopped.
func TestRedis_EndedByItselfIsAnError(t *testing.T) {
	t.Parallel()
	r := StartRedis(t)
	pid := r.PID()
	require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil }, patience, poll)
	err := r.Stop()
	require.ErrorContains(t, err, "had ended by itself")
	require.ErrorContains(t, err, "User requested shutdown") // its log
	require.NoError(t, r.Start(t.Context()))
}

func TestRedis_TwoAtOnceAreTwo(t *testing.T) {
	t.Parallel()
	a, b := StartRedis(t), StartRedis(t)
	require.NotEqual(t, a.Addr, b.Addr)
	require.NotEqual(t, a.PID(), b.PID())
}

func TestPgBouncer_QueriesStopsAndRestarts(t *testing.T) {
	t.Parallel()
	db := New(t)
	b := StartPgBouncer(t, db.DSN, nil)
	conn := session(t, b.DSN(db.Name))
	var name string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&name))
	require.Equal(t, db.Name, name)
	require.Regexp(t, `^1\.\d+`, b.Version)

	pid := b.PID()
	require.NoError(t, b.Stop())
	require.Error(t, conn.Ping(t.Context()))
	require.NoError(t, b.Start(t.Context())) // over the socket that the crash left
	require.NotEqual(t, pid, b.PID())
	require.Positive(t, backend(t, session(t, b.DSN(db.Name))))
}

func TestPgBouncer_FrozenAnswersNobody(t *testing.T) {
	t.Parallel()
	db := New(t)
	b := StartPgBouncer(t, db.DSN, nil)
	conn := session(t, b.DSN(db.Name))
	require.NoError(t, b.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, conn.Ping(ctx), context.DeadlineExceeded)
	require.NoError(t, b.Continue())
	require.Positive(t, backend(t, session(t, b.DSN(db.Name))))
}

// What makes a pooler in transaction mode different: a session's statements run in
// whatever backend is free, and a SET of one client is met by another.
func TestPgBouncer_SharesOneBackendByTransaction(t *testing.T) {
	t.Parallel()
	db := New(t)
	b := StartPgBouncer(t, db.DSN, map[string]string{"default_pool_size": "1"})
	one, other := session(t, b.DSN(db.Name)), session(t, b.DSN(db.Name))
	require.Equal(t, backend(t, one), backend(t, other))
	_, err := one.Exec(t.Context(), "SET lock_timeout = '1234ms'")
	require.NoError(t, err)
	var timeout string
	require.NoError(t, other.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&timeout))
	require.Equal(t, "1234ms", timeout)
}

func TestPgBouncer_ChurnGivesEachTransactionItsOwnBackend(t *testing.T) {
	t.Parallel()
	db := New(t)
	b := StartPgBouncer(t, db.DSN, Churn())
	conn := session(t, b.DSN(db.Name))
	seen := map[int]bool{}
	for range 10 {
		pid := backend(t, conn)
		require.False(t, seen[pid], "backend %d served two transactions", pid)
		seen[pid] = true
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		var first, second int
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&first))
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&second))
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, first, second)
		seen[first] = true
	}
	var left int
	require.Eventually(t, func() bool {
		err := db.Pool.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1)", slices.Collect(maps.Keys(seen))).Scan(&left)
		return err == nil && left == 0
	}, patience, poll)
}

// By default every version behaves like those that carry no prepared statements.
func TestPgBouncer_CarriesNoPreparedStatements(t *testing.T) {
	t.Parallel()
	db := New(t)
	b := StartPgBouncer(t, db.DSN, Churn())
	conn := session(t, b.DSN(db.Name))
	_, err := conn.Prepare(t.Context(), "mine", "SELECT 1")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "mine")
	require.ErrorContains(t, err, "does not exist")
}

// A restarted PostgreSQL is found again without waiting for the pooler's usual
// fifteen seconds.
func TestFault_PgBouncerOutlivesTheServersRestart(t *testing.T) {
	t.Parallel()
	server := NewServer(t, false)
	b := StartPgBouncer(t, server.DSN("postgres"), nil)
	query := func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, b.DSN("postgres")+"&default_query_exec_mode=exec")
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		return conn.Ping(ctx)
	}
	require.NoError(t, query(t.Context()))
	require.NoError(t, server.Stop(t.Context(), pgserver.Immediate))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, query(ctx)) // and the pooler has noticed
	require.NoError(t, server.Start(t.Context()))
	started := time.Now()
	require.Eventually(t, func() bool { return query(t.Context()) == nil }, patience, poll)
	require.Less(t, time.Since(started), 12*time.Second)
}
