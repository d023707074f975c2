package pgserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// patience bounds every wait of these tests; they expect to wait far less. They look every
// poll.
const (
	patience = 60 * time.Second
	poll     = 5 * time.Millisecond
)

const (
	// userEnv makes the test executable a user process (see runUser); its value
	// is the data directory.
	userEnv = "PGSERVER_TEST_USER"

	// careless makes the test executable one whose main forgets to call Watchdog.
	// It has to reach the watchdog too, hence a variable that child.Env lets pass.
	careless = "TZDIR=/careless"
)

func TestMain(m *testing.M) {
	forgetful := slices.Contains(os.Environ(), careless)
	if !forgetful {
		Watchdog()
	}
	if dir := os.Getenv(userEnv); dir != "" || forgetful {
		os.Exit(runUser(dir, os.Stdin, os.Stdout))
	}
	code := m.Run()
	templates.remove()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// templates are clusters to copy, one for each person. Copying takes a tenth of
// the time of initdb, and most tests are about something else.
var templates = clusterTemplates{dirs: map[string]string{}}

type clusterTemplates struct {
	mu   sync.Mutex
	dirs map[string]string
}

func (c *clusterTemplates) remove() {
	for _, dir := range c.dirs {
		_ = os.RemoveAll(filepath.Dir(dir))
	}
}

// get returns a data directory with a cluster of that person, made on first use.
func (c *clusterTemplates) get(t *testing.T, p person) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dirs[p.name] == "" {
		root := makeTempDir(t, p)
		c.dirs[p.name] = filepath.Join(root, "belfry")
		startUser(t, p, c.dirs[p.name]).close()
	}
	return c.dirs[p.name]
}

// madeDir is newDir with a cluster for tests in it.
func madeDir(t *testing.T, p person) string {
	t.Helper()
	dir := newDir(t, p)
	copyCluster(t, p, dir)
	return dir
}

func copyCluster(t *testing.T, p person, dir string) {
	t.Helper()
	out, err := exec.Command("cp", "-Rp", templates.get(t, p), dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// runUser is a process that opens a server, says so on stdout, and closes it when
// its stdin ends. Control-C ends it also where the tests run in a shell's background,
// which makes its programs ignore that.
func runUser(dir string, in io.Reader, out io.Writer) int {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT)
	go func() { <-interrupted; _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := Open(ctx, Config{DataDir: dir})
	if err != nil {
		fmt.Fprintf(out, "error %q\n", err)
		return 1
	}
	fmt.Fprintf(out, "open %d %s\n", s.PID(), s.DSN("postgres"))
	if _, err := io.Copy(io.Discard, in); err != nil {
		return 1
	}
	if err := s.Close(ctx); err != nil {
		fmt.Fprintf(out, "error %q\n", err)
		return 1
	}
	fmt.Fprintln(out, "closed")
	return 0
}

// person is whom a test runs as: the tests' own user, or nobody when that is root.
type person struct {
	name    string
	account *account // nil: the tests' own user
}

// give makes the person the owner of path.
func (p person) give(t *testing.T, path string) {
	t.Helper()
	if p.account != nil {
		require.NoError(t, os.Lchown(path, p.account.UID, p.account.GID))
	}
}

// forEachPerson runs a test as the current user and, when that is root, as an
// unprivileged user too, since the two take different ways through the package.
func forEachPerson(t *testing.T, test func(t *testing.T, p person)) {
	t.Helper()
	people := []person{{name: "self"}}
	if os.Geteuid() == 0 {
		people = []person{{name: "root"}, {name: "nobody", account: nobody(t)}}
	}
	for _, p := range people {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

func nobody(t *testing.T) *account {
	t.Helper()
	a, err := lookupAccount("nobody")
	require.NoError(t, err)
	return a
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: changes the owner of files")
	}
}

// newDir is a short directory that the person and the server's account can enter.
func newDir(t *testing.T, p person) string {
	t.Helper()
	dir := makeTempDir(t, p)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return filepath.Join(dir, "belfry")
}

// clusterRoot is a memory file system where there is one with room: a cluster is
// a thousand files, and these tests make and remove dozens of them.
func clusterRoot() string {
	const memory, room = "/dev/shm", 2 << 30
	var stat syscall.Statfs_t
	if err := syscall.Statfs(memory, &stat); err != nil || stat.Bavail*uint64(stat.Bsize) < room {
		return "/tmp"
	}
	return memory
}

func makeTempDir(t *testing.T, p person) string {
	t.Helper()
	dir, err := os.MkdirTemp(clusterRoot(), "belfry-test-")
	require.NoError(t, err)
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	p.give(t, dir)
	return dir
}

// process is one that runs runUser.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
	pid   int    // of the postmaster
	dsn   string // of the database postgres
}

// spawnUser starts a user process without waiting for its server.
func spawnUser(t *testing.T, p person, dir string, env ...string) *process {
	t.Helper()
	exe, err := executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	cmd := exec.CommandContext(ctx, exe)
	cmd.Args = []string{"pgserver-test-user"}
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), append(env, userEnv+"="+dir, "GORACE=atexit_sleep_ms=0")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account.credential(), Setpgid: true}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	u := &process{t: t, cmd: cmd, stdin: stdin, out: bufio.NewReader(stdout)}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		cancel()
		if u.pid != 0 {
			awaitGone(t, u.pid)
		}
	})
	return u
}

func startUser(t *testing.T, p person, dir string, env ...string) *process {
	t.Helper()
	u := spawnUser(t, p, dir, env...)
	u.awaitOpen()
	return u
}

func (u *process) line() string {
	u.t.Helper()
	line, err := u.out.ReadString('\n')
	require.NoError(u.t, err, "user process said %q", line)
	return strings.TrimSpace(line)
}

func (u *process) awaitOpen() {
	u.t.Helper()
	line := u.line()
	_, err := fmt.Sscanf(line, "open %d %s", &u.pid, &u.dsn)
	require.NoError(u.t, err, line)
	require.NotZero(u.t, u.pid)
}

// close lets the user close its server and end.
func (u *process) close() {
	u.t.Helper()
	require.NoError(u.t, u.stdin.Close())
	require.Equal(u.t, "closed", u.line())
	require.NoError(u.t, u.cmd.Wait())
}

// kill is kill -9.
func (u *process) kill() {
	u.t.Helper()
	require.NoError(u.t, u.cmd.Process.Kill())
	_ = u.cmd.Wait()
}

// query proves that the server answers.
func query(t *testing.T, dsn string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	var one int
	require.NoError(t, conn.QueryRow(ctx, "SELECT 1").Scan(&one))
	require.NoError(t, conn.Close(ctx))
}

// alive reports whether a process exists. Zombies count.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// gone reports whether a process has ended, reaped or not.
func gone(pid int) bool {
	if !alive(pid) {
		return true
	}
	if text, err := os.ReadFile("/proc/" + itoa(pid) + "/stat"); err == nil {
		_, state, _ := strings.Cut(string(text), ") ") // after the name, which may hold anything
		return strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
	}
	out, err := exec.Command("ps", "-o", "stat=", "-p", itoa(pid)).Output()
	return err != nil || strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}

// awaitGone is for processes that others have not reaped: the last user hears of the end of a
// watchdog, and Server.Stop of that of a server, while the kernel still takes it apart. Where
// a watchdog has ended, it has reaped its server before.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return gone(pid) }, patience, poll, "process %d still runs", pid)
}

// parent returns the watchdog of a postmaster.
func parent(t *testing.T, pid int) int {
	t.Helper()
	out, err := exec.Command("ps", "-o", "ppid=", "-p", itoa(pid)).Output()
	require.NoError(t, err)
	ppid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	require.Greater(t, ppid, 1)
	return ppid
}

func TestProcess_SecondUserJoinsAndLastCloseStops(t *testing.T) {
	t.Parallel()
	forEachPerson(t, func(t *testing.T, p person) {
		dir := madeDir(t, p)
		a := startUser(t, p, dir)
		b := startUser(t, p, dir)
		require.Equal(t, a.pid, b.pid, "P1: one server")
		require.Equal(t, a.dsn, b.dsn)
		watchdog := parent(t, a.pid)

		a.close() // the one that started it
		require.False(t, gone(a.pid))
		query(t, b.dsn)
		b.close()
		// P3: no waiting here.
		require.True(t, gone(b.pid), "server left over")
		awaitGone(t, watchdog)

		c := startUser(t, p, dir)
		require.NotEqual(t, a.pid, c.pid)
		c.close()
	})
}

func TestProcess_KillOfTheOnlyUserStopsTheServer(t *testing.T) {
	t.Parallel()
	forEachPerson(t, func(t *testing.T, p person) {
		u := startUser(t, p, madeDir(t, p))
		watchdog := parent(t, u.pid)
		u.kill()
		awaitGone(t, u.pid) // P2
		awaitGone(t, watchdog)
	})
}

func TestProcess_KillOfOneOfTwoUsersLeavesTheServer(t *testing.T) {
	t.Parallel()
	forEachPerson(t, func(t *testing.T, p person) {
		dir := madeDir(t, p)
		starter := startUser(t, p, dir)
		other := startUser(t, p, dir)
		starter.kill()
		// A third one joins under the start lock: had the watchdog taken the kill
		// for the last user's end, it would meet another server.
		third := startUser(t, p, dir)
		require.Equal(t, starter.pid, third.pid)
		query(t, other.dsn)
		third.close()
		other.kill()
		awaitGone(t, starter.pid)
	})
}

func TestProcess_ConcurrentOpensShareOneServer(t *testing.T) {
	t.Parallel()
	forEachPerson(t, func(t *testing.T, p person) {
		dir := newDir(t, p)
		users := make([]*process, 6)
		for i := range users {
			users[i] = spawnUser(t, p, dir)
		}
		for _, u := range users {
			u.awaitOpen()
			require.Equal(t, users[0].pid, u.pid, "P1")
		}
		for i, u := range users {
			if i%2 == 0 {
				u.kill()
			}
		}
		query(t, users[1].dsn)
		// The rest leave at the same moment, and each waits for what it has to.
		for i, u := range users {
			if i%2 == 1 {
				require.NoError(t, u.stdin.Close())
			}
		}
		for i, u := range users {
			if i%2 == 1 {
				require.Equal(t, "closed", u.line())
				require.NoError(t, u.cmd.Wait())
			}
		}
		awaitGone(t, users[0].pid) // P3: the last whose end is noticed may be one that was killed
	})
}

// The last user's end and a new user's start meet in every order; no one ever
// gets a server that is about to stop.
func TestProcess_OpenWhileTheServerStops(t *testing.T) {
	t.Parallel()
	dir := madeDir(t, person{})
	u := startUser(t, person{}, dir)
	for range 5 {
		u.kill()
		u = startUser(t, person{}, dir)
		query(t, u.dsn)
	}
	u.close()
	awaitGone(t, u.pid) // as above
}

func TestProcess_KillInMidInitdbLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	forEachPerson(t, func(t *testing.T, p person) {
		found := func(dir, what string) bool {
			paths, err := filepath.Glob(filepath.Join(dir, "pg*", what))
			require.NoError(t, err)
			return len(paths) > 0
		}
		dir := newDir(t, p)
		for began := time.Now(); ; dir = newDir(t, p) {
			u := spawnUser(t, p, dir)
			tick := time.NewTicker(time.Millisecond)
			for !found(dir, "init-*/PG_VERSION") && !found(dir, "data") {
				require.Less(t, time.Since(began), patience)
				<-tick.C
			}
			tick.Stop()
			u.kill()
			if !found(dir, "data") {
				break // P4
			}
			require.Less(t, time.Since(began), patience, "P4")
			startUser(t, p, dir).close() // initdb was faster than this test
		}

		next := startUser(t, p, dir)
		query(t, next.dsn)
		left, err := filepath.Glob(filepath.Join(dir, "pg*", "init-*"))
		require.NoError(t, err)
		require.Empty(t, left)
		next.close()
	})
}

// A command in a pipeline ends for its reader when the process ends, even though
// server and watchdog live on for somebody else.
func TestProcess_ServerDoesNotHoldTheStreamsOfItsStarter(t *testing.T) {
	t.Parallel()
	dir := madeDir(t, person{})
	starter := startUser(t, person{}, dir)
	other := startUser(t, person{}, dir)
	require.NoError(t, starter.cmd.Process.Kill())
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, starter.out)
		ended <- err
	}()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("stdout of a killed process is still open")
	}
	require.False(t, gone(other.pid))
	_ = starter.cmd.Wait()
	other.close()
}

func TestProcess_SignalsToEveryProcessLeaveTheServerToItsUsers(t *testing.T) {
	t.Parallel()
	dir := madeDir(t, person{})
	starter := startUser(t, person{}, dir)
	other := startUser(t, person{}, dir)
	watchdog := parent(t, starter.pid)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		require.NoError(t, syscall.Kill(watchdog, signal))
	}
	// Control-C on a terminal goes to the whole group of the starter.
	require.NoError(t, syscall.Kill(-starter.cmd.Process.Pid, syscall.SIGINT))
	_ = starter.cmd.Wait()
	query(t, other.dsn)
	require.False(t, gone(watchdog))
	other.close()
	awaitGone(t, watchdog)
}

func TestProcess_MainThatForgetsWatchdogIsTold(t *testing.T) {
	t.Parallel()
	u := spawnUser(t, person{}, newDir(t, person{}), careless)
	line := u.line()
	// The process that was to be the watchdog said why, and started no third one.
	require.Contains(t, line, "main has to call pgserver.Watchdog first")
}
