package dbtest

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Ports of servers: above the privileged and well-known ports, below the range of outgoing
// connections.
const (
	firstPort = 10000
	lastPort  = 32767
	// portTries is the number of ports to try; other processes may use some.
	portTries = 20
)

// Redis is a Redis or Valkey server on a loopback port, without a password, that
// stores nothing on disk by default.
type Redis struct {
	*service

	Addr string // "127.0.0.1:12345", the same after a restart
	URL  string // "redis://127.0.0.1:12345/0"
}

// Dir returns the directory of the server's files.
func (r *Redis) Dir() string { return r.dir }

// AppendOnlyFile is the file that a server started with "--appendonly", "yes" appends to. Since
// Redis 7 it has a directory of its own.
func (r *Redis) AppendOnlyFile(t testing.TB) string {
	t.Helper()
	for _, pattern := range []string{filepath.Join(r.dir, "appendonlydir", "*.incr.aof"), filepath.Join(r.dir, "appendonly.aof")} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		if len(files) == 1 {
			return files[0]
		}
	}
	require.Fail(t, "no append-only file in "+r.dir)
	return ""
}

// Do runs one command on a connection of its own and returns the first line of the answer as
// it comes: "+OK", ":1", "$5", "-ERR …".
func (r *Redis) Do(t testing.TB, command ...string) string {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", r.Addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }() // everything was answered
	require.NoError(t, conn.SetDeadline(time.Now().Add(startTimeout)))
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(command))
	for _, word := range command {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word), word)
	}
	_, err = conn.Write([]byte(text.String()))
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// StartRedis starts a server for one test, which is skipped if none is installed.
// settings are arguments of its command line, such as "--maxmemory", "5mb". It takes about 20 ms.
func StartRedis(t testing.TB, settings ...string) *Redis {
	t.Helper()
	return startRedis(t, makeDir(t, "redis", nil), settings...)
}

// StartSentinel starts a single Sentinel, which detects within 300 ms that the master is down.
func StartSentinel(t testing.TB, name string, master *Redis) *Redis {
	t.Helper()
	dir := makeDir(t, "sentinel", nil)
	host, port, err := net.SplitHostPort(master.Addr)
	require.NoError(t, err)
	config := filepath.Join(dir, "sentinel.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil,
		"sentinel monitor %s %s %s 1\nsentinel down-after-milliseconds %[1]s 300\nsentinel failover-timeout %[1]s 2000\n", name, host,
		port), 0o600))
	return startRedis(t, dir, config, "--sentinel")
}

// slotOfSecond is the first slot of a cluster's second node. {belfry:bulk} and {belfry:activities}
// are on different nodes, also with prefixes such as test1.
const slotOfSecond = 10_000

// StartCluster starts a cluster of two nodes and returns its URL, with the other node in it.
func StartCluster(t testing.TB) (url string, nodes [2]*Redis) {
	t.Helper()
	const slots = 16_384
	for i, of := range [][2]int{{0, slotOfSecond}, {slotOfSecond, slots}} {
		nodes[i] = StartRedis(t, "--cluster-enabled", "yes")
		add := []string{"CLUSTER", "ADDSLOTS"} // ADDSLOTSRANGE needs Redis 7
		for slot := of[0]; slot < of[1]; slot++ {
			add = append(add, strconv.Itoa(slot))
		}
		require.Equal(t, "+OK", nodes[i].Do(t, add...))
	}
	host, port, err := net.SplitHostPort(nodes[1].Addr)
	require.NoError(t, err)
	require.Equal(t, "+OK", nodes[0].Do(t, "CLUSTER", "MEET", host, port))
	for i, other := range []string{"{belfry:bulk}", "{belfry:activities}"} { // until each node redirects the other's keys
		require.Eventually(t, func() bool { return strings.HasPrefix(nodes[i].Do(t, "GET", other), "-MOVED ") }, startTimeout,
			10*time.Millisecond, other)
	}
	return fmt.Sprintf("redis://%s?addr=%s", nodes[0].Addr, nodes[1].Addr), nodes
}

func startRedis(t testing.TB, dir string, settings ...string) *Redis {
	t.Helper()
	program := redisProgram(t)
	var err error
	for range portTries {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort+1)))
		r := newRedis(program, dir, addr, settings...)
		if err = r.Start(t.Context()); err == nil {
			r.endWith(t)
			return r
		}
		if !strings.Contains(r.logTail(), "Address already in use") {
			break
		}
	}
	require.NoError(t, err)
	return nil
}

// newRedis moves a file in settings to the front, as the program requires.
func newRedis(program, dir, addr string, settings ...string) *Redis {
	_, port, _ := net.SplitHostPort(addr) // made by JoinHostPort
	var file []string
	if len(settings) > 0 && !strings.HasPrefix(settings[0], "-") {
		file, settings = settings[:1], settings[1:]
	}
	return &Redis{
		Addr: addr,
		URL:  "redis://" + addr + "/0",
		service: &service{
			program: program,
			args: slices.Concat(file, []string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--daemonize", "no",
				"--save", "", "--appendonly", "no"}, settings),
			dir: dir,
			ask: func(ctx context.Context, pid int) error { return askRedis(ctx, addr, pid) },
		},
	}
}

// askRedis checks that this server answers at addr: another server may have taken the port first.
func askRedis(ctx context.Context, addr string, pid int) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // everything was answered
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("INFO server\r\n")); err != nil {
		return err
	}
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "process_id:"); ok {
			if id != strconv.Itoa(pid) {
				return fmt.Errorf("process %s answers at %s, not process %d", id, addr, pid)
			}
			return nil
		}
		if strings.HasPrefix(line, "-") {
			return fmt.Errorf("answer at %s: %s", addr, strings.TrimSpace(line))
		}
	}
}

// redisProgram returns the path of a server, and skips the test if none is installed.
func redisProgram(t testing.TB) string {
	t.Helper()
	return findService(t, "redis", "redis-server", "valkey-server")
}
