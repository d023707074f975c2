package dbtest

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ports of servers: above the privileged ones and the well-known, below those that
// systems give to outgoing connections.
const (
	firstPort = 10000
	lastPort  = 32767
	// portTries is how many ports are tried; each may be somebody else's.
	portTries = 20
)

// Redis is a Redis or Valkey server on a loopback port, without a password, that
// keeps nothing on disk.
type Redis struct {
	*service

	Addr string // "127.0.0.1:12345", the same after a restart
	URL  string // "redis://127.0.0.1:12345/0"
}

// StartRedis starts a server for one test, which is skipped if none is installed.
// It takes some 20 ms.
func StartRedis(t testing.TB) *Redis {
	t.Helper()
	program := findService(t, "redis", "redis-server", "valkey-server")
	dir := makeDir(t, "redis", nil)
	var err error
	for range portTries {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort+1)))
		r := newRedis(program, dir, addr)
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

func newRedis(program, dir, addr string) *Redis {
	_, port, _ := net.SplitHostPort(addr) // made by JoinHostPort
	return &Redis{
		Addr: addr,
		URL:  "redis://" + addr + "/0",
		service: &service{
			program: program,
			args: []string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--daemonize", "no",
				"--save", "", "--appendonly", "no"},
			dir: dir,
			ask: func(ctx context.Context, pid int) error { return askRedis(ctx, addr, pid) },
		},
	}
}

// askRedis asks who answers at addr: another server may have taken the port first.
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
