package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/child"
	"github.com/belfryhq/belfry/internal/db"
)

const (
	port   = "5432"
	socket = ".s.PGSQL." + port
	// maxSocketPath is the longest path of a Unix socket on macOS. Linux allows 107 bytes.
	maxSocketPath = 103
)

// DSN returns a connection URL for one database of the server, for its superuser through the Unix socket. pgx and
// libpq accept it. libpq does not decode "+" as a space.
func (c *cluster) DSN(database string) string {
	host := strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(c.Home))
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + database, RawQuery: "host=" + host + "&port=" + port}
	return u.String()
}

// connect tries once to connect. A server that refuses the connection, for example because it is full, is up.
func (c *cluster) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgconn.Connect(ctx, c.DSN("postgres"))
	if err == nil {
		return conn.Close(ctx)
	}
	if code := db.Code(err); code != "" && code != db.StartingUp {
		return nil
	}
	return err
}

// PID returns the process id of the running server, or 0 if none runs. After a restart of the machine or the
// container, the process id in postmaster.pid may belong to another program. A postmaster's working directory is
// its data directory. Without /proc, any process with PostgreSQL's name counts: to mistake another process for
// the server ends in an error message, but the opposite mistake would end in two servers.
func (c *cluster) PID() int {
	text, err := os.ReadFile(c.pidFile())
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 0 {
		return 0
	}
	if _, err := os.Stat("/proc/self/cwd"); err == nil {
		theirs, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "cwd")) // fails for zombies and other users' processes
		ours, err2 := os.Stat(c.DataDir())
		if err != nil || err2 != nil || !os.SameFile(theirs, ours) {
			return 0
		}
		return pid
	}
	name, err := output(context.Background(), "ps", "-o", "comm=", "-p", strconv.Itoa(pid))
	if name = filepath.Base(strings.TrimSpace(name)); err != nil || name != "postgres" && name != "postmaster" {
		return 0
	}
	return pid
}

// Stop stops the server for all of its clients, for tests of outages. The signal is Fast or Immediate. Stop returns
// when the server has ended. Without a running server, it does nothing.
func (c *cluster) Stop(ctx context.Context, signal syscall.Signal) error {
	pid := c.PID()
	if pid == 0 {
		return nil
	}
	err := syscall.Kill(pid, signal)
	if err == nil {
		err = child.Poll(ctx, func() (bool, error) { return c.PID() != pid, nil })
	}
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop database server (process %d): %w", pid, err)
	}
	return nil
}

// disownFiles prepares the files of a crashed server for its successor. PostgreSQL refuses to start if the process
// id in postmaster.pid or in the socket's lock file belongs to a live process, unless it is the id of its parent:
// the watchdog. The other lines of postmaster.pid stay, because they enable the new server to detect backends
// of its predecessor.
func (c *cluster) disownFiles() error {
	for _, name := range []string{socket, socket + ".lock"} {
		if err := os.Remove(filepath.Join(c.Home, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	text, err := os.ReadFile(c.pidFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, rest, _ := bytes.Cut(text, []byte("\n"))
	if err != nil || len(bytes.TrimSpace(rest)) == 0 { // the server had no backends yet
		return errors.Join(err, os.Remove(c.pidFile()))
	}
	return os.WriteFile(c.pidFile(), append([]byte(strconv.Itoa(os.Getpid())+"\n"), rest...), 0o600)
}
