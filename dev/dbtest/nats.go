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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// natsBuild bounds how long the program may take to build, which it does once.
const natsBuild = 10 * time.Minute

// NATS is a server of NATS with JetStream on a loopback port, alone or one of a cluster, that
// keeps its streams on disk as a stock one does: what it has not told the disk yet survives the
// end of its process, which Stop is, and not that of the machine.
type NATS struct {
	*service

	URL   string // "nats://127.0.0.1:12345", the same after a restart
	Name  string // by which the cluster knows it
	Store string // the directory of its streams
}

// StartNATS starts a cluster of so many servers for one test, or one server alone, which takes
// some 30 ms. The program is built from tools/go.mod, once, in half a minute; a test is skipped
// where it cannot be. A cluster has its leader a few seconds later. settings are lines more of
// each server's configuration.
func StartNATS(t testing.TB, servers int, settings ...string) []*NATS {
	t.Helper()
	program := NATSProgram(t)
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
			_ = s.Stop() // it has not started
		}
		if !inUse {
			break
		}
	}
	require.NoError(t, err)
	return nil
}

// startAll starts servers side by side: none of a cluster waits for the others.
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

// NATSProgram is the path of the server, which the go command has built in its cache.
func NATSProgram(t testing.TB) string {
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

// newNATS makes servers that know each other, on ports that may be somebody else's.
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
			// One connection from server to server: with a pool of them, servers that start at the
			// same time on a busy machine may close as duplicates what the others keep, and a
			// server hears no leader for a minute and more.
			config += fmt.Sprintf("cluster { name: belfry_%d, listen: %q, pool_size: -1, routes: [%s] }\n", first, route(i), strings.Join(routes, ", "))
		}
		config += strings.Join(settings, "\n")
		file := filepath.Join(dir, "server.conf")
		require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
		cluster[i] = &NATS{
			URL: "nats://" + addr, Name: name, Store: filepath.Join(dir, "store"),
			service: &service{
				program: program, args: []string{"--config", file}, dir: dir,
				ask: func(ctx context.Context, _ int) error { return askNATS(ctx, addr, name) },
			},
		}
	}
	return cluster
}

// askNATS asks who answers at addr: another server may have taken the port first. A server
// speaks first, and of itself.
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
