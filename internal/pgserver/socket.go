package pgserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxSocketPath is the longest path of a Unix socket that works on every
// supported system: macOS allows 103 bytes, Linux 107.
const maxSocketPath = 103

const socketFile = ".s.PGSQL.5432"

// socketDir returns a directory for the server's socket, made with mode 0700 for
// the account: inside the cluster's home if the path is short and free of
// characters that have a meaning in a connection string, otherwise one named
// after the home in the temporary directory.
func (c *cluster) socketDir() (string, error) {
	dir := filepath.Join(c.home, "sock")
	if !socketPathFits(dir) {
		dir = c.temporarySocketDir()
		if !socketPathFits(dir) {
			return "", fmt.Errorf("socket directory: path too long for a Unix socket: %s", dir)
		}
	}
	if err := c.makeSocketDir(dir); err != nil {
		return "", fmt.Errorf("socket directory: %w", err)
	}
	return dir, nil
}

func (c *cluster) temporarySocketDir() string {
	name := "belfry-" + strconv.Itoa(c.account.effectiveUID()) + "-" + shortHash(c.home)
	dir := filepath.Join(os.TempDir(), name)
	if !socketPathFits(dir) || !c.account.canEnter(os.TempDir()) {
		dir = filepath.Join("/tmp", name)
	}
	return dir
}

func socketPathFits(dir string) bool {
	return len(filepath.Join(dir, socketFile)) <= maxSocketPath && !strings.ContainsAny(dir, ",\"'\\\n")
}

// makeSocketDir creates dir or checks that it is ours. In a temporary directory
// anybody may have made it first, and whoever owns it could put a socket of his
// own there.
func (c *cluster) makeSocketDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		return c.account.give(dir)
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s exists and is not a directory", dir)
	}
	uid, _, err := owner(dir)
	if err != nil {
		return err
	}
	switch uid {
	case c.account.effectiveUID():
	case os.Geteuid(): // root made it and was killed before it gave it away
		if err := c.account.give(dir); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s belongs to user id %d, not to %d: remove it, or set TMPDIR to a directory of your own",
			dir, uid, c.account.effectiveUID())
	}
	return os.Chmod(dir, 0o700)
}

// sweepSocket removes what a crashed server left in dir. PostgreSQL refuses to
// start when the process id in the socket's lock file is in use again, by
// whatever process. The caller has made sure that no server runs.
func sweepSocket(dir string) error {
	for _, name := range []string{socketFile, socketFile + ".lock"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove stale socket: %w", err)
		}
	}
	return nil
}
