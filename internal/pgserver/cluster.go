package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// cluster is one PostgreSQL cluster: its directory, account, programs and settings. A client fills it in and
// passes it to the watchdog.
type cluster struct {
	Install  Install
	Account  *account
	Home     string // DataDir/pg15
	Volatile bool
	Settings map[string]string
}

func (c *cluster) lockFile() string { return filepath.Join(c.Home, "cluster.lock") }
func (c *cluster) pidFile() string  { return filepath.Join(c.DataDir(), "postmaster.pid") }

// DataDir returns the cluster's directory for "pg_ctl -D".
func (c *cluster) DataDir() string { return filepath.Join(c.Home, "data") }

// LogFile returns the path of the server's log.
func (c *cluster) LogFile() string { return filepath.Join(c.Home, "postgresql.log") }

// volatileSuffix separates tests' clusters from durable clusters.
const volatileSuffix = "-volatile"

// locate chooses the installation, the cluster and its account.
func locate(ctx context.Context, cfg Config, places dirs) (*cluster, error) {
	acct, err := serverAccount()
	if err != nil {
		return nil, err
	}
	chosen, err := choose(ctx, cfg, places, acct)
	if err != nil {
		return nil, err
	}
	home := filepath.Join(cfg.DataDir, "pg"+strconv.Itoa(chosen.Major))
	if cfg.Volatile {
		home += volatileSuffix
	}
	// The server listens in Home. Its socket's path has a limit of 103 bytes on macOS, 107 on Linux.
	if len(filepath.Join(home, socket)) > maxSocketPath || strings.ContainsAny(home, ",\"'\\\n") {
		return nil, fmt.Errorf("the data directory %s is not allowed, because a Unix socket in it would have a path of more than %d "+
			"characters, or a quote, comma or backslash in it: choose another data directory", cfg.DataDir, maxSocketPath)
	}
	c := &cluster{Install: chosen, Account: acct, Home: home, Volatile: cfg.Volatile, Settings: cfg.settings()}
	if owner, err := ownerOf(c.DataDir()); err == nil && acct != nil {
		c.Account = owner // PostgreSQL accepts no other
	}
	if !c.Account.canEnter(cfg.DataDir) {
		return nil, fmt.Errorf("account %s, which runs the server for root, cannot enter %s: "+
			"choose a data directory that it can enter, such as %s", c.Account.Name, cfg.DataDir, systemDataDir)
	}
	return c, nil
}

// choose prefers the version of an existing durable cluster to a newer PostgreSQL, so that an upgrade of
// PostgreSQL does not hide the user's data.
func choose(ctx context.Context, cfg Config, places dirs, acct *account) (Install, error) {
	if cfg.BinDir != "" {
		return inspect(ctx, cfg.BinDir)
	}
	installs, err := places.all(ctx, acct)
	if err != nil {
		return Install{}, err
	}
	made, err := madeIn(cfg.DataDir)
	if err != nil || cfg.Volatile || len(made) == 0 {
		return installs[0], err
	}
	var versions []string
	for _, in := range installs {
		if slices.Contains(made, fmt.Sprintf("pg%d/data/PG_VERSION", in.Major)) {
			return in, nil
		}
		versions = append(versions, in.Version)
	}
	for i := range made {
		made[i] = made[i][len("pg"):len("pg15")]
	}
	return Install{}, fmt.Errorf("the data in %s was made by PostgreSQL %s, and only PostgreSQL %s is installed: "+
		"install that version again, move the data with pg_upgrade or pg_dump, or choose another data directory",
		cfg.DataDir, strings.Join(made, ", "), strings.Join(versions, ", "))
}

// openHome creates the directory around the cluster if necessary and opens it. For root, the directory belongs
// to the account and its parents are readable. For other users, all created directories are private.
func (c *cluster) openHome() (*os.File, error) {
	mode := os.FileMode(0o700)
	if c.Account != nil {
		mode = 0o755
	}
	if err := makeDirs(c.Home, mode); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	dir, err := os.OpenFile(c.Home, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err == nil && c.Account != nil {
		err = dir.Chown(c.Account.UID, c.Account.GID)
	}
	if err != nil {
		_ = dir.Close() // accepts nil
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	return dir, nil
}

// makeDirs is MkdirAll with a mode that does not depend on the umask.
func makeDirs(dir string, mode os.FileMode) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := makeDirs(filepath.Dir(dir), mode); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); errors.Is(err, fs.ErrExist) {
		return nil // another process was quicker, and sets the mode
	} else if err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}
