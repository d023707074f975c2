package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// clusterName marks the servers that this package starts: it is on their
// command line, in postmaster.opts and in the process list.
const clusterName = "belfry"

// postmaster is what a server writes into postmaster.pid. The lines appear one
// after the other while it starts, so all but pid may be zero.
type postmaster struct {
	pid       int
	port      int
	socketDir string
}

// readPostmaster reads postmaster.pid; ok is false when there is none, or when
// it does not begin with a process id.
func (c *cluster) readPostmaster() (pm postmaster, ok bool, err error) {
	text, err := os.ReadFile(filepath.Join(c.data, "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return postmaster{}, false, nil
	}
	if err != nil {
		return postmaster{}, false, err
	}
	pm, ok = parsePostmaster(string(text))
	return pm, ok, nil
}

func parsePostmaster(text string) (pm postmaster, ok bool) {
	lines := strings.Split(text, "\n")
	line := func(i int) string {
		if i < len(lines) {
			return strings.TrimSpace(lines[i])
		}
		return ""
	}
	pid, err := strconv.Atoi(line(0))
	if err != nil || pid <= 0 {
		return postmaster{}, false
	}
	pm = postmaster{pid: pid, socketDir: line(4)}
	if port, err := strconv.Atoi(line(3)); err == nil {
		pm.port = port
	}
	return pm, true
}

// running returns the postmaster of the cluster if it is alive. A postmaster.pid
// whose process id now belongs to another program, as after a restart of the
// machine or a container, is not a running server.
func (c *cluster) running() (postmaster, bool, error) {
	pm, ok, err := c.readPostmaster()
	if err != nil || !ok {
		return postmaster{}, false, err
	}
	return pm, c.isPostmaster(pm.pid), nil
}

// isPostmaster tells whether a process is this cluster's postmaster. A
// postmaster's working directory is its data directory. Where /proc does not
// show that, any process named like one counts: mistaking a stranger for the
// server ends in an error message, the opposite mistake in two servers.
func (c *cluster) isPostmaster(pid int) bool {
	if !alive(pid) {
		return false
	}
	if _, err := os.Stat("/proc/self/cwd"); err == nil {
		dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
		if err != nil {
			return false // ended meanwhile, a zombie, or another user's
		}
		return sameFile(dir, c.data)
	}
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false
	}
	name := filepath.Base(strings.TrimSpace(string(out)))
	return name == "postgres" || name == "postmaster"
}

func sameFile(a, b string) bool {
	ia, errA := os.Stat(a)
	ib, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(ia, ib)
}

// alive reports whether there is a process with this id, zombies included.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// startedHere tells a server that this package started from one that somebody
// started by hand, by the command line PostgreSQL keeps in postmaster.opts.
func (c *cluster) startedHere() bool {
	text, err := os.ReadFile(filepath.Join(c.data, "postmaster.opts"))
	return err == nil && bytes.Contains(text, []byte("cluster_name="+clusterName))
}

// disownPidFile makes a postmaster.pid acceptable whose process id is in use by
// a stranger, for which PostgreSQL would refuse to start. The id is replaced by
// that of the calling process, which must be about to become the new server's
// parent: PostgreSQL takes its parent's id in that file for a stale one. The
// file is not removed because the rest of it lets the server notice backends
// that outlived their postmaster.
func disownPidFile(dataDir string) error {
	path := filepath.Join(dataDir, "postmaster.pid")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stale postmaster.pid: %w", err)
	}
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	pid, err := strconv.Atoi(strings.TrimSpace(string(first)))
	if err == nil && pid > 0 && !alive(pid) {
		return nil // PostgreSQL sees that by itself
	}
	if len(bytes.TrimSpace(rest)) == 0 {
		// Written in part, by a server that had not come as far as backends.
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("stale postmaster.pid: %w", err)
		}
		return nil
	}
	text = append([]byte(strconv.Itoa(os.Getpid())+"\n"), rest...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("stale postmaster.pid: %w", err)
	}
	return nil
}
