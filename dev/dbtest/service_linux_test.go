package dbtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// childEnv makes TestProcess_ServersDieWithTheTest the process that is to be
// killed; its value is the DSN of a database.
const childEnv = "BELFRY_TEST_SERVICES_CHILD"

// A test process that is killed leaves no server behind, not even a frozen one.
func TestProcess_ServersDieWithTheTest(t *testing.T) {
	t.Parallel()
	if dsn := os.Getenv(childEnv); dsn != "" {
		serve(t, dsn)
		return
	}
	db := New(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), childEnv+"="+db.DSN)
	in, err := cmd.StdinPipe() // open until the child is gone
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	var pids [3]int
	_, err = fmt.Fscanf(lines, "serving %d %d %d\n", &pids[0], &pids[1], &pids[2])
	if err != nil {
		rest, _ := io.ReadAll(lines)
		_ = cmd.Wait()
		require.NoError(t, err, "the child said %q", rest)
	}
	var watched []*os.File
	for _, pid := range pids {
		dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		proc, err := os.Open(fmt.Sprintf("/proc/%d", pid)) // of this process, not of a later one
		require.NoError(t, err)
		watched = append(watched, proc)
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	for i, proc := range watched {
		require.Eventually(t, func() bool { return gone(proc) }, patience, poll, "process %d still runs", pids[i])
		require.NoError(t, proc.Close())
	}
}

// serve starts servers, says so and waits to be killed.
func serve(t *testing.T, dsn string) {
	t.Helper()
	running, still := StartRedis(t), StartRedis(t)
	require.NoError(t, still.Pause())
	pooler := StartPgBouncer(t, dsn, nil)
	fmt.Fprintf(os.Stdout, "serving %d %d %d\n", running.PID(), still.PID(), pooler.PID())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// gone reports whether the process of an open /proc directory has ended, whether
// or not its new parent has reaped it.
func gone(proc *os.File) bool {
	var text [512]byte
	fd, err := syscall.Openat(int(proc.Fd()), "stat", syscall.O_RDONLY, 0)
	if err != nil {
		return true
	}
	defer func() { _ = syscall.Close(fd) }()
	n, err := syscall.Read(fd, text[:])
	if err != nil {
		return true
	}
	var pid int
	var name string
	var state rune
	_, err = fmt.Sscanf(string(text[:n]), "%d %s %c", &pid, &name, &state)
	return err == nil && (state == 'Z' || state == 'X')
}
