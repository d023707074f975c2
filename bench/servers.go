package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/internal/child"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// redis starts a server that keeps what it has as one of its users would, and ends with the
// run; "": none is installed.
func (e *env) redis(ctx context.Context) (addr string) {
	defer e.within("private Redis")
	var program string
	for _, name := range []string{"redis-server", "valkey-server"} {
		if found, err := exec.LookPath(name); err == nil && program == "" {
			program = found
		}
	}
	if program == "" {
		return ""
	}
	// The port may be somebody else's a moment later; then the server ends and says so.
	var ports net.ListenConfig
	free, err := ports.Listen(ctx, "tcp", "127.0.0.1:0")
	e.check(err)
	addr = free.Addr().String()
	e.check(free.Close())
	_, port, err := net.SplitHostPort(addr)
	e.check(err)
	dir := e.tempDir("belfry-bench-redis-")
	said, err := os.Create(filepath.Join(dir, "log"))
	e.check(err)
	defer func() { _ = said.Close() }()
	cmd := exec.Command(program, "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes") //nolint:noctx // child ends it
	cmd.Stdout, cmd.Stderr = said, said
	server, err := child.Start(cmd, syscall.SIGKILL)
	e.check(err)
	e.onClose(func(context.Context) error {
		return server.Stop(child.Step{Signal: syscall.SIGKILL, Wait: closeTimeout})
	})
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			e.check(conn.Close())
			e.check(server.Err())
			return addr
		}
		e.check(server.Err())
		e.check(lifecycle.Pause(ctx, 5*time.Millisecond))
	}
}

// nats starts a cluster of three servers, and returns their URLs; nil: the go command, which
// builds the program from tools/go.mod above the working directory, cannot do so.
func (e *env) nats(ctx context.Context) (urls []string) {
	defer e.within("private NATS")
	dir, err := os.Getwd()
	e.check(err)
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "tools", "go.mod")); err == nil {
			break
		}
	}
	find := exec.CommandContext(ctx, "go", "tool", "-modfile=tools/go.mod", "-n", "nats-server")
	find.Dir = dir
	program, err := find.Output()
	if err != nil {
		e.check(ctx.Err())
		return nil
	}
	const servers = 3
	var addrs, routes, peers []string
	for range servers {
		addrs = append(addrs, e.freeAddr(ctx))
		routes = append(routes, e.freeAddr(ctx))
	}
	for _, route := range routes {
		peers = append(peers, strconv.Quote("nats-route://"+route))
	}
	for i, addr := range addrs {
		dir := e.tempDir("belfry-bench-nats-")
		config := filepath.Join(dir, "server.conf")
		e.check(os.WriteFile(config, fmt.Appendf(nil, "server_name: n%d\nlisten: %q\njetstream { store_dir: %q }\ncluster { name: bench, listen: %q, routes: [%s] }\n",
			i+1, addr, filepath.Join(dir, "store"), routes[i], strings.Join(peers, ", ")), 0o600))
		e.serve(ctx, addr, dir, strings.TrimSpace(string(program)), "--config", config)
		urls = append(urls, "nats://"+addr)
	}
	return urls
}

// freeAddr is an address where nobody listens. It may be somebody else's a moment later; then
// the server that is started there ends, and the run with it.
func (e *env) freeAddr(ctx context.Context) string {
	var ports net.ListenConfig
	free, err := ports.Listen(ctx, "tcp", "127.0.0.1:0")
	e.check(err)
	defer func() { e.check(free.Close()) }()
	return free.Addr().String()
}

// serve starts a server that ends with the run, and waits until somebody listens at addr.
func (e *env) serve(ctx context.Context, addr, dir, program string, args ...string) {
	said, err := os.Create(filepath.Join(dir, "log"))
	e.check(err)
	defer func() { _ = said.Close() }()
	cmd := exec.Command(program, args...) //nolint:noctx // child ends it
	cmd.Stdout, cmd.Stderr = said, said
	server, err := child.Start(cmd, syscall.SIGKILL)
	e.check(err)
	e.onClose(func(context.Context) error {
		return server.Stop(child.Step{Signal: syscall.SIGKILL, Wait: closeTimeout})
	})
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		e.check(server.Err())
		if err == nil {
			e.check(conn.Close())
			return
		}
		e.check(lifecycle.Pause(ctx, 5*time.Millisecond))
	}
}
