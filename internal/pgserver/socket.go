package pgserver

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// maxSocketPath is the longest path of a Unix socket that works on every
	// supported system: macOS allows 103 bytes, Linux 107.
	maxSocketPath = 103

	serverPort     = "5432"
	serverSocket   = ".s.PGSQL." + serverPort
	watchdogSocket = ".s.watchdog"
)

// endpoint is where a running server is reached.
type endpoint struct {
	SocketDir string
	Port      int
}

// dsn returns a connection URL that pgx and libpq both understand. libpq does not
// read "+" as a space.
func (e endpoint) dsn(database string) string {
	host := strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(e.SocketDir))
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + database,
		RawQuery: fmt.Sprintf("host=%s&port=%d", host, e.Port)}
	return u.String()
}

// socketDir is the directory of the sockets of server and watchdog: in the cluster's home
// if the path is short and free of characters that have a meaning in a connection string,
// otherwise one named after the home in /tmp.
func (c *cluster) socketDir() string {
	dir := filepath.Join(c.Home, "sock")
	if len(filepath.Join(dir, serverSocket)) > maxSocketPath || strings.ContainsAny(dir, ",\"'\\\n") {
		return filepath.Join("/tmp", "belfry-"+strconv.Itoa(c.Account.effectiveUID())+"-"+shortHash(c.Home))
	}
	return dir
}

// ownsSocketDir checks that a socket directory is ours. In /tmp anybody may have made it
// first, and whoever owns it could put a socket of his own there.
func (c *cluster) ownsSocketDir() error {
	dir := c.socketDir()
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("socket directory: %w", err)
	}
	owner, err := ownerOf(dir)
	switch {
	case err != nil:
		return fmt.Errorf("socket directory: %w", err)
	case !info.IsDir():
		return fmt.Errorf("socket directory: %s exists and is not a directory", dir)
	case owner.UID != c.Account.effectiveUID():
		return fmt.Errorf("socket directory: %s belongs to user id %d, not to %d: remove it", dir, owner.UID, c.Account.effectiveUID())
	}
	return nil
}

// makeSocketDir makes the directory, and removes the sockets that a crash left in it:
// PostgreSQL refuses to start when the process id in its socket's lock file is in use
// again, by whatever process. The caller has made sure that nobody listens.
func (c *cluster) makeSocketDir() error {
	dir := c.socketDir()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("socket directory: %w", err)
	}
	if err := c.ownsSocketDir(); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("socket directory: %w", err)
	}
	for _, name := range []string{serverSocket, serverSocket + ".lock"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove stale socket: %w", err)
		}
	}
	return nil
}
