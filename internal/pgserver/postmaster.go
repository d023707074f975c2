package pgserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/belfryhq/belfry/internal/child"
)

// clusterName marks the servers that this package starts: it is on their
// command line, in postmaster.opts and in the process list.
const clusterName = "belfry"

// postmaster is what a server writes into postmaster.pid. The lines appear one
// after the other while it starts, so all but pid may be zero.
type postmaster struct {
	pid int
	at  endpoint
}

// running returns the postmaster of the cluster if it is alive. A postmaster.pid
// whose process id now belongs to another program, as after a restart of the
// machine or a container, is not a running server.
func (c *cluster) running() (pm postmaster, up bool, err error) {
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return postmaster{}, false, nil
	}
	if err != nil {
		return postmaster{}, false, fmt.Errorf("look for a running server: %w", err)
	}
	pm = parsePostmaster(string(text))
	return pm, pm.pid > 0 && c.isPostmaster(pm.pid), nil
}

func parsePostmaster(text string) (pm postmaster) {
	lines := append(strings.Split(text, "\n"), make([]string, 5)...)
	number := func(line string) int {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return 0
		}
		return max(n, 0)
	}
	return postmaster{number(lines[0]), endpoint{Port: number(lines[3]), SocketDir: strings.TrimSpace(lines[4])}}
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
		theirs, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
		if err != nil {
			return false // ended meanwhile, a zombie, or another user's
		}
		ours, err := os.Stat(c.data())
		return err == nil && os.SameFile(theirs, ours)
	}
	out, err := output(context.Background(), "ps", "-o", "comm=", "-p", strconv.Itoa(pid))
	name := filepath.Base(strings.TrimSpace(out))
	return err == nil && (name == "postgres" || name == "postmaster")
}

// alive reports whether there is a process with this id, zombies included.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// startedHere tells a server that this package started from one that somebody
// started by hand, by the command line PostgreSQL keeps in postmaster.opts.
func (c *cluster) startedHere() bool {
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.opts"))
	return err == nil && bytes.Contains(text, []byte("cluster_name="+clusterName))
}

// disownPidFile makes a stale postmaster.pid acceptable to PostgreSQL, which refuses to
// start when the process id in it is in use, by whatever process. The id is replaced by
// that of the calling process, which must be about to become the new server's parent:
// PostgreSQL takes its parent's id in that file for a stale one. The file is not removed
// because the rest of it lets the server notice backends that outlived their postmaster.
func (c *cluster) disownPidFile() error {
	path := filepath.Join(c.data(), "postmaster.pid")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, rest, _ := bytes.Cut(text, []byte("\n"))
	switch {
	case err != nil:
	case len(bytes.TrimSpace(rest)) == 0: // of a server that had not come as far as backends
		err = os.Remove(path)
	default:
		err = os.WriteFile(path, append([]byte(strconv.Itoa(os.Getpid())+"\n"), rest...), 0o600)
	}
	if err != nil {
		return fmt.Errorf("stale postmaster.pid: %w", err)
	}
	return nil
}

// stopPostmaster sends a signal to a postmaster that is no child of this process, and
// waits for its end.
func (c *cluster) stopPostmaster(ctx context.Context, pid int, signal syscall.Signal) error {
	err := syscall.Kill(pid, signal)
	if err == nil {
		err = child.Poll(ctx, func() (bool, error) { return !c.isPostmaster(pid), nil })
	}
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop database server (process %d): %w", pid, err)
	}
	return nil
}
