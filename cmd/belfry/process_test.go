package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// process is belfry in a process of its own.
type process struct {
	*exec.Cmd

	stdout, stderr dbtest.Buffer
	ended          chan struct{}
}

// quickExit has a process under the race detector end at once: by default it waits a
// second for reports of other goroutines, which is most of a short command's time.
const quickExit = "atexit_sleep_ms=10"

// start runs belfry with only the given environment; it is killed if it still
// runs when the test ends.
func start(t *testing.T, environ []string, args ...string) *process {
	t.Helper()
	return startOn(t, nil, environ, args...)
}

// startOn is start with a terminal as standard input and error, unless it is nil.
func startOn(t *testing.T, terminal *os.File, environ []string, args ...string) *process {
	t.Helper()
	return startProgram(t, binary(t), terminal, environ, args...)
}

// startProgram is startOn of another belfry.
func startProgram(t *testing.T, program string, terminal *os.File, environ []string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), program, args...), ended: make(chan struct{})}
	p.Dir, p.Env = t.TempDir(), append([]string{"PATH=" + os.Getenv("PATH"), mainVariable + "=1", "GORACE=" + quickExit}, environ...)
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	if terminal != nil {
		p.Stdin, p.Stderr = terminal, terminal
	}
	require.NoError(t, p.Start())
	go func() {
		defer close(p.ended)
		_ = p.Wait() // the exit code is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // usually gone already
		<-p.ended
	})
	return p
}

// exit waits for the process to end and returns its exit code.
func (p *process) exit(t *testing.T) code {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("belfry does not end; stderr so far:\n%s", p.stderr.String())
	}
	return code(p.ProcessState.ExitCode())
}

// says waits until standard error has the text.
func (p *process) says(t *testing.T, text string) {
	t.Helper()
	p.has(t, &p.stderr, text)
}

// prints waits until standard output has the text.
func (p *process) prints(t *testing.T, text string) {
	t.Helper()
	p.has(t, &p.stdout, text)
}

func (p *process) has(t *testing.T, out *dbtest.Buffer, text string) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for began := time.Now(); !strings.Contains(out.String(), text); <-look.C {
		require.Less(t, time.Since(began), patience, "never said %q; so far:\n%s\nstderr:\n%s", text, out.String(), p.stderr.String())
	}
}

func (p *process) terminate(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM), p.stderr.String())
}

// bulk returns a database with n channels and a job for all of them.
func bulk(t *testing.T, n int) *dbtest.DB {
	t.Helper()
	db := dbtest.New(t)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, $1::int) n`, n)
	require.NoError(t, err)
	_, err = job.NewStore(db.Pool).Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: "Hello"})
	require.NoError(t, err)
	return db
}

// small makes chunks of ten, so that a run can be caught in its middle.
func small(db *dbtest.DB) []string {
	return []string{
		"BELFRY_DATABASE_URL=" + db.DSN, "BELFRY_RUNNER_CHUNK_MIN_ROWS=1",
		"BELFRY_RUNNER_CHUNK_INITIAL_ROWS=10", "BELFRY_RUNNER_CHUNK_MAX_ROWS=10",
		// Longer than the tests' patience: nothing ends by itself.
		"BELFRY_RUNNER_GRACE_PERIOD=2m", "BELFRY_RUNNER_STATEMENT_TIMEOUT=2m", "BELFRY_RUNNER_STALE_AFTER=5m",
		regardless,
	}
}

// regardless has runs go on at full speed beside the tests, which ask the server
// hundreds of times a second how far they are.
const regardless = "BELFRY_RUNNER_LOAD_HEALTH_ENABLED=false"

func waitUntil(t *testing.T, pool *pgxpool.Pool, condition string) {
	t.Helper()
	require.NoError(t, until(t.Context(), pool, condition))
}

// only returns the only job.
func only(t *testing.T, db *dbtest.DB) job.Job {
	t.Helper()
	j, err := job.NewStore(db.Pool).Get(t.Context(), 1)
	require.NoError(t, err)
	return j
}

func count(t *testing.T, db *dbtest.DB, what string) (n int64) {
	t.Helper()
	require.NoError(t, db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM "+what).Scan(&n))
	return n
}

// I3: the chunk in progress is finished and its job handed back, and what was
// written is exactly what the cursor says.
func TestProcess_TermHandsTheJobBackAtItsCursor(t *testing.T) {
	t.Parallel()
	db := bulk(t, 100_000)
	p := start(t, small(db), "run", "--json")
	waitUntil(t, db.Pool, "SELECT chunks >= 3 FROM belfry.jobs")
	p.terminate(t)
	require.Equal(t, codeFailure, p.exit(t), p.stderr.String())
	require.Contains(t, p.stderr.String(), "job 1 (inbox): handed back at cursor ")
	require.Contains(t, p.stderr.String(), "belfry: interrupted by a signal; run again to resume\n")
	require.Contains(t, p.stdout.String(), `"interrupted":true`)

	j := only(t, db)
	require.Equal(t, job.Pending, j.Status)
	require.Less(t, j.RowsWritten, int64(100_000))
	require.Equal(t, j.RowsWritten, count(t, db, "belfry.notifications"))
	require.Equal(t, j.RowsWritten, count(t, db, "belfry.notifications WHERE channel_id <= (SELECT cursor::bigint FROM belfry.jobs)"))

	again := start(t, []string{"BELFRY_DATABASE_URL=" + db.DSN, regardless}, "run")
	require.Equal(t, codeDone, again.exit(t), again.stderr.String())
	require.Contains(t, again.stderr.String(), "job 1 (inbox): claimed, from cursor "+j.Cursor)
	require.Equal(t, int64(100_000), count(t, db, "belfry.notifications"))
}

// The first signal waits for the chunk in progress, the second one does not: the
// chunk is rolled back, though the statement it hangs in would go on.
func TestProcess_SecondTermRollsTheChunkBack(t *testing.T) {
	t.Parallel()
	db := bulk(t, 100)
	holder, err := db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = holder.Exec(t.Context(), "LOCK TABLE belfry.notifications IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)

	p := start(t, small(db), "run")
	const hangs = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'belfry job %' AND wait_event_type = 'Lock'"
	waitUntil(t, db.Pool, hangs)
	p.terminate(t)
	p.says(t, "a second signal rolls it back") // or the two signals could arrive as one
	waitUntil(t, db.Pool, hangs)               // the chunk is still in progress
	select {
	case <-p.ended:
		t.Fatalf("one signal ended the chunk in progress: %s", p.stderr.String())
	default:
	}
	p.terminate(t)
	require.Equal(t, codeFailure, p.exit(t), p.stderr.String())
	require.NoError(t, holder.Rollback(t.Context()))
	j := only(t, db)
	require.Equal(t, job.Pending, j.Status)
	require.Empty(t, j.Cursor)
	require.Zero(t, count(t, db, "belfry.notifications"))
}

// A daemon that is told to stop has done what it should.
func TestProcess_DaemonHandsTheJobBackAndTellsSystemd(t *testing.T) {
	t.Parallel()
	db := bulk(t, 100_000)
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	told, ended := make(chan string, 10_000), make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, 100)
		for n, err := manager.Read(buffer); err == nil; n, err = manager.Read(buffer) {
			told <- string(buffer[:n])
		}
	}()
	defer func() {
		require.NoError(t, manager.Close())
		<-ended
	}()
	next := func() string {
		select {
		case state := <-told:
			return state
		case <-time.After(patience):
			return "nothing"
		}
	}
	p := start(t, append(small(db), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=20000"), "daemon")
	require.Equal(t, "READY=1", next())
	require.Equal(t, "WATCHDOG=1", next())
	waitUntil(t, db.Pool, "SELECT chunks >= 3 FROM belfry.jobs")
	p.terminate(t)
	state := next()
	for state == "WATCHDOG=1" {
		state = next()
	}
	require.Equal(t, "STOPPING=1", state)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	require.Empty(t, p.stdout.String())
	require.Contains(t, p.stderr.String(), `"message":"daemon stopped"`)
	j := only(t, db)
	require.Equal(t, job.Pending, j.Status)
	require.Equal(t, j.RowsWritten, count(t, db, "belfry.notifications"))
}

// A command that waits for the database ends when it is asked to.
func TestProcess_TermEndsAnyCommand(t *testing.T) {
	t.Parallel()
	db := bulk(t, 1)
	holder, err := db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = holder.Exec(t.Context(), "LOCK TABLE belfry.jobs IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	p := start(t, small(db), "jobs", "list")
	waitUntil(t, db.Pool, "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
	p.terminate(t)
	require.Equal(t, codeFailure, p.exit(t))
	require.Equal(t, "belfry: interrupted by a signal\n", p.stderr.String())
}

// To a service manager that stops what it has only just started nothing has failed.
func TestProcess_TermWhileStartingIsNoFailure(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"relay", "daemon"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deliverable(t, dbtest.New(t), 1)
			holder, err := d.db.Pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
			_, err = holder.Exec(t.Context(), "LOCK TABLE belfry.schema_migrations IN ACCESS EXCLUSIVE MODE")
			require.NoError(t, err)
			p := start(t, d.environ(), name)
			waitUntil(t, d.db.Pool, "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
			p.terminate(t)
			require.Equal(t, codeDone, p.exit(t), p.stderr.String())
		})
	}
}

// Without database.url belfry brings its own PostgreSQL, migrates it, and leaves
// nothing running.
func TestProcess_PrivateServer(t *testing.T) {
	t.Parallel()
	if _, err := pgserver.Find(t.Context()); err != nil {
		t.Skipf("no PostgreSQL on this machine: %v", err)
	}
	dir := privateDir(t)
	environ := []string{"BELFRY_SERVER_DATA_DIR=" + dir, "HOME=" + dir}
	p := start(t, environ, "enqueue", "--type", "inbox", "--category", "operator_notice", "--title", "Hello", "--everyone")
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	require.Equal(t, "1\n", p.stdout.String())
	const named = "on the private PostgreSQL in %s (database.url is not set)\n"
	require.True(t, strings.HasPrefix(p.stderr.String(), fmt.Sprintf(named, dir)), p.stderr.String())
	require.Empty(t, postmasters(t, dir), "a server was left running")

	p = start(t, environ, "jobs", "list")
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	require.Contains(t, p.stdout.String(), "PENDING", "what was enqueued is kept")
	require.Empty(t, p.stderr.String(), "it changes nothing")
	require.Empty(t, postmasters(t, dir))

	// cron has no variable of a shell: nothing would ever be sent.
	for _, args := range [][]string{{"run"}, {"daemon"}, {"serve", "--listen", "127.0.0.1:0"}} {
		p = start(t, environ, args...)
		require.Equal(t, codeConfiguration, p.exit(t), "%s: %s", args, p.stderr.String())
		require.Equal(t, "belfry: database.url is not set: set BELFRY_DATABASE_URL or database.url of the configuration file; or --private, to work on the private PostgreSQL in "+dir+"\n", p.stderr.String(), args)
	}
	p = start(t, environ, "run", "--private", "--quiet")
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	require.Empty(t, postmasters(t, dir))
}

// An operator whose shell lacks the URL of the real database does not stop an empty private one.
func TestPrivateServer_OnlyCommandsThatCreateDataCreateIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	environ := []string{"BELFRY_SERVER_DATA_DIR=" + dir}
	for _, line := range []string{
		"halt --reason x", "unhalt", "abort 1", "resume 1", "recall 1", "send 1 --title x", "lanes pause default",
		"jobs set 1 max_rows_per_second=5", "migrate down --to 0 --yes", "jobs list", "status", "migrate status",
	} {
		r := command(t, environ, strings.Fields(line)...)
		require.Equal(t, result{"", "belfry: database.url is not set: set BELFRY_DATABASE_URL or database.url of the configuration file; " +
			"or `belfry migrate up`, to create a private PostgreSQL in " + dir + "\n", codeConfiguration}, r, line)
	}
	r := command(t, environ, "doctor")
	require.Equal(t, codeFailure, r.code)
	require.Contains(t, r.stdout, "connection     database.url is not set")
	made, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, made, "a private server was created")

	root := newRootCommand(newApp(io.Discard, io.Discard, nil))
	for path := range creatingCommands {
		cmd, _, err := root.Find(strings.Fields(path)[1:])
		require.NoError(t, err, path)
		require.Equal(t, path, cmd.CommandPath())
		require.False(t, onlyReads(cmd), path)
	}
}

// A command that changes something names the existing server first, also if it does not start.
func TestPrivateServer_IsNamedByCommandsThatChangeSomething(t *testing.T) {
	t.Parallel()
	if _, err := pgserver.Find(t.Context()); err != nil {
		t.Skipf("no PostgreSQL on this machine: %v", err)
	}
	dir := privateDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pg99", "data"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pg99", "data", "PG_VERSION"), []byte("99\n"), 0o600))
	const failure = "belfry: private PostgreSQL (database.url is not set): the data in "
	for line, first := range map[string]string{
		"halt --reason x":     "on the private PostgreSQL in " + dir + " (database.url is not set)\n",
		"channels generate 1": "on the private PostgreSQL in " + dir + " (database.url is not set)\n",
		"jobs list":           "",
	} {
		r := command(t, []string{"BELFRY_SERVER_DATA_DIR=" + dir}, strings.Fields(line)...)
		require.Equal(t, codeUnavailable, r.code, "%s: %s", line, r.stderr)
		require.True(t, strings.HasPrefix(r.stderr, first+failure), "%s: %s", line, r.stderr)
		require.Empty(t, r.stdout)
	}
}

// privateDir is a short directory that the server's account can enter.
func privateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "belfry-cmd-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// postmasters lists the pid files of servers below a directory.
func postmasters(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", "data", "postmaster.pid"))
	require.NoError(t, err)
	return found
}

func TestProcess_NoPostgreSQL(t *testing.T) {
	t.Parallel()
	require.Equal(t, codeUnavailable, codeOf(pgserver.ErrNotInstalled))
	require.Equal(t, codeUnavailable, codeOf(&exitError{codeUnavailable, pgserver.ErrNotInstalled}))
}

// Who has seen enough leaves; the jobs go on.
func TestProcess_WatchEndsWithASignal(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	id, err := job.NewStore(db.Pool).Enqueue(t.Context(), job.Spec{Type: "push", Category: "operator_notice", Title: "Hello"})
	require.NoError(t, err)
	p := start(t, []string{"BELFRY_DATABASE_URL=" + db.DSN}, "jobs", "watch", text.Int(id))
	p.prints(t, "job 1 (push): PENDING, due ")
	p.terminate(t)
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	require.Empty(t, p.stderr.String())
	require.Equal(t, job.Pending, only(t, db).Status)
}

// A runner that died a moment ago holds its lane until the server has noticed: run
// waits that second before it says that the lane is held, and none when it is told so.
func TestRun_GivesUpAHeldLaneOnlyWhenADeadHolderWouldHaveBeenNoticed(t *testing.T) {
	t.Parallel()
	db := bulk(t, 10)
	_, err := db.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET status = 'RUNNING', runner = 'elsewhere:1', heartbeat_at = now(), fence = 1`)
	require.NoError(t, err)
	began := time.Now()
	r := command(t, small(db), "run")
	require.Equal(t, codeHeld, r.code, r.stderr)
	require.GreaterOrEqual(t, time.Since(began), noticing)
}

// The same with a holder whose connection goes while run waits.
func TestRun_TakesOverFromAHolderThatDies(t *testing.T) {
	t.Parallel()
	db := bulk(t, 10)
	dying, err := pgx.Connect(t.Context(), db.DSN)
	require.NoError(t, err)
	_, err = dying.Exec(t.Context(), `UPDATE belfry.jobs SET status = 'RUNNING', runner = 'elsewhere:1', heartbeat_at = now(), fence = 1,
		(backend_pid, backend_start) = (SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())`)
	require.NoError(t, err)
	p := start(t, small(db), "run", "--wait", "2m")
	looks := make(map[time.Time]bool) // it does nothing else any more
	require.Eventually(t, func() bool {
		var at *time.Time
		err := db.Pool.QueryRow(t.Context(), `SELECT max(query_start) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'belfry'`).Scan(&at)
		if err == nil && at != nil {
			looks[*at] = true
		}
		return len(looks) > 10
	}, patience, 10*time.Millisecond)
	require.NoError(t, dying.Close(t.Context()))
	require.Equal(t, codeDone, p.exit(t), p.stderr.String())
	require.Contains(t, p.stderr.String(), "job 1 (inbox): taken over")
}
