package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/belfryhq/belfry/internal/child"
)

// unfinished is the name prefix of directories in which initdb works.
const unfinished = "init-"

// ensureCreated creates the cluster if it is absent (P4). The caller has the cluster's lock, and no server runs.
func (c *cluster) ensureCreated(ctx context.Context) error {
	if _, err := os.Lstat(c.pidFile()); err == nil && c.Volatile { // its server crashed
		if err := os.RemoveAll(c.DataDir()); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(c.DataDir(), "PG_VERSION")); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(c.Home)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), unfinished) { // from a killed watchdog
			_ = os.RemoveAll(filepath.Join(c.Home, entry.Name())) // if this fails, the next start tries again
		}
	}
	return c.create(ctx)
}

// create runs initdb in a sibling directory and renames the result.
func (c *cluster) create(ctx context.Context) error {
	temp, err := os.MkdirTemp(c.Home, unfinished)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }() // if this fails, the next start tries again
	// C.UTF-8 supports upper() and lower() for all letters. Some systems do not have it.
	out, err := c.initdb(ctx, temp, "C.UTF-8")
	if err != nil && ctx.Err() == nil && strings.Contains(out, "locale") {
		out, err = c.initdb(ctx, temp, "C")
	}
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, child.LastLines(out))
	}
	if err := os.Rename(temp, c.DataDir()); err != nil {
		return err
	}
	home, err := os.Open(c.Home)
	if err != nil {
		return err
	}
	return errors.Join(home.Sync(), home.Close()) // the rename survives a power cut
}

// initdb creates a cluster in dir and returns the program's output. If ctx ends, initdb removes its files.
func (c *cluster) initdb(ctx context.Context, dir, ctype string) (string, error) {
	// Text sorts by its bytes: the fastest order, equal on all systems, and required by keysets over text.
	args := []string{"-D", dir, "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--locale=C", "--lc-ctype=" + ctype, "--no-instructions"}
	if c.Volatile {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, c.Install.initdb(), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = killGrace
	cmd.Dir, cmd.Env = "/", child.Env(os.Environ())
	out, err := cmd.CombinedOutput()
	return string(out), err
}
