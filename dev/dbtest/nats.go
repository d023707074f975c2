package dbtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// natsBuild limits the time of the program's only build.
const natsBuild = 10 * time.Minute

// NATS is a NATS server with JetStream on a loopback port, alone or in a cluster. It stores its streams
// on disk with the default settings: data without fsync survives Stop, but no crash of the machine.
type NATS struct {
	*service

	URL   string // "nats://127.0.0.1:12345", the same after a restart
	Name  string // in the cluster
	Store string // the directory of its streams

	file, config string // of the configuration, and its text without settings
}

// Reload gives a running server other settings, as an operator does who edits its configuration. It returns
// before the server has read them.
func (n *NATS) Reload(settings ...string) error {
	if err := os.WriteFile(n.file, []byte(n.config+strings.Join(settings, "\n")), 0o600); err != nil {
		return err
	}
	return syscall.Kill(n.PID(), syscall.SIGHUP)
}

// StartNATS starts a cluster of n servers for one test, or one server in about 30 ms. The program is
// built from tools/go.mod, once, in half a minute; the test is skipped if the build fails. A cluster
// elects its leader within a few seconds. settings are additional lines of each server's configuration.
func StartNATS(t testing.TB, servers int, settings ...string) []*NATS {
	t.Helper()
	program := natsProgram(t)
	dirs := make([]string, servers)
	for i := range dirs {
		dirs[i] = makeDir(t, "nats", nil)
	}
	var err error
	for range portTries {
		cluster := newNATS(t, program, dirs, settings...)
		if err = startAll(t.Context(), cluster); err == nil {
			for _, s := range cluster {
				s.endWith(t)
			}
			return cluster
		}
		inUse := false
		for _, s := range cluster {
			inUse = inUse || strings.Contains(s.logTail(), "address already in use")
			_ = s.Stop() // it did not start
		}
		if !inUse {
			break
		}
	}
	require.NoError(t, err)
	return nil
}

// startAll starts servers concurrently.
func startAll(ctx context.Context, cluster []*NATS) error {
	errs := make(chan error, len(cluster))
	for _, s := range cluster {
		go func() { errs <- s.Start(ctx) }()
	}
	var err error
	for range cluster {
		err = errors.Join(err, <-errs)
	}
	return err
}

// natsProgram returns the path of the server in the cache of the go command.
func natsProgram(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "tools", "go.mod")); err == nil {
			break
		}
		require.NotEqual(t, filepath.Dir(dir), dir, "tools/go.mod is not above the test")
	}
	ctx, cancel := context.WithTimeout(t.Context(), natsBuild)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "tool", "-modfile=tools/go.mod", "-n", "nats-server")
	cmd.Dir = dir
	path, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		t.Skipf("nats: no server (go tool -modfile=tools/go.mod nats-server): %v", err)
	}
	return strings.TrimSpace(string(path))
}

// newNATS configures servers of one cluster, on ports that other processes may use.
func newNATS(t testing.TB, program string, dirs []string, settings ...string) []*NATS {
	t.Helper()
	first := firstPort + rand.IntN(lastPort-firstPort-2*len(dirs))
	route := func(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(first+len(dirs)+i)) }
	routes := make([]string, len(dirs))
	for i := range dirs {
		routes[i] = strconv.Quote("nats-route://" + route(i))
	}
	cluster := make([]*NATS, len(dirs))
	for i, dir := range dirs {
		addr, name := net.JoinHostPort("127.0.0.1", strconv.Itoa(first+i)), fmt.Sprintf("n%d_%d_%x", i+1, first, rand.Uint32())
		config := fmt.Sprintf("server_name: %q\nlisten: %q\njetstream { store_dir: %q }\n", name, addr, filepath.Join(dir, "store"))
		if len(dirs) > 1 {
			// One connection from server to server: with a pool, servers that start at the same time on a
			// busy machine may each close the connections that the other retains, and have no leader for
			// more than a minute.
			config += fmt.Sprintf("cluster { name: belfry_%d, listen: %q, pool_size: -1, routes: [%s] }\n", first, route(i),
				strings.Join(routes, ", "))
		}
		file := filepath.Join(dir, "server.conf")
		require.NoError(t, os.WriteFile(file, []byte(config+strings.Join(settings, "\n")), 0o600))
		cluster[i] = &NATS{
			URL: "nats://" + addr, Name: name, Store: filepath.Join(dir, "store"), file: file, config: config,
			service: &service{
				program: program, args: []string{"--config", file}, dir: dir,
				ask: func(ctx context.Context, _ int) error { return askNATS(ctx, addr, name) },
			},
		}
	}
	return cluster
}

// askNATS checks that this server answers at addr: another server may have taken the port first. A
// server sends its name first.
func askNATS(ctx context.Context, addr, name string) error {
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
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	var info struct {
		Name string `json:"server_name"`
	}
	told, ok := strings.CutPrefix(line, "INFO ")
	if err := json.Unmarshal([]byte(told), &info); !ok || err != nil {
		return fmt.Errorf("answer at %s: %.40q", addr, line)
	}
	if info.Name != name {
		return fmt.Errorf("server %s answers at %s, not %s", info.Name, addr, name)
	}
	return nil
}
