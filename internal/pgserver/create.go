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
	"strings"
	"syscall"

	"github.com/belfryhq/belfry/internal/child"
)

// unfinished begins the names of directories in which initdb works.
const unfinished = "init-"

// ensureCreated creates the cluster if it is absent (P4), and says whether it was. The
// caller holds the cluster's lock.
func (c *cluster) ensureCreated(ctx context.Context) (created bool, err error) {
	if _, err := os.Stat(filepath.Join(c.data(), "PG_VERSION")); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	entries, err := os.ReadDir(c.Home)
	if err != nil {
		return false, err
	}
	for _, entry := range entries { // what a watchdog that was killed left behind
		if strings.HasPrefix(entry.Name(), unfinished) {
			_ = os.RemoveAll(filepath.Join(c.Home, entry.Name())) // the next one tries again
		}
	}
	return true, c.create(ctx)
}

// create runs initdb beside the cluster's place and moves the result there.
func (c *cluster) create(ctx context.Context) error {
	temp, err := os.MkdirTemp(c.Home, unfinished)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }() // what stays is swept by the next start
	// C.UTF-8 gives upper() and lower() their meaning; not every system has it.
	out, err := c.initdb(ctx, temp, "C.UTF-8")
	if err != nil && ctx.Err() == nil && strings.Contains(out, "locale") {
		out, err = c.initdb(ctx, temp, "C")
	}
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, indent(child.LastLines(out)))
	}
	if err := os.Rename(temp, c.data()); err != nil {
		return err
	}
	if c.Durable {
		return syncDir(c.Home)
	}
	return nil
}

// initdb creates a cluster in dir and returns what the program printed.
func (c *cluster) initdb(ctx context.Context, dir, ctype string) (string, error) {
	// Text compares by its bytes: the fastest order, the same everywhere, and
	// the one that keysets over text need.
	args := []string{"-D", dir, "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--locale=C", "--lc-ctype=" + ctype, "--no-instructions"}
	if !c.Durable {
		args = append(args, "--no-sync")
	}
	var out bytes.Buffer
	cmd := exec.Command(c.Install.initdb(), args...) //nolint:noctx // see below
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := child.Start(cmd, syscall.SIGINT)
	if err != nil {
		return "", err
	}
	select {
	case <-p.Ended():
	case <-ctx.Done():
		return "", errors.Join(context.Cause(ctx), p.Stop(endings()...)) // it removes what it made
	}
	if !cmd.ProcessState.Success() {
		return out.String(), p.Err()
	}
	return out.String(), nil
}

// syncDir makes a rename in dir survive a power cut.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}
