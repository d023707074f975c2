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
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/child"
)

// cluster is one PostgreSQL cluster and the directory around it: paths, and who
// runs it with which programs.
type cluster struct {
	cfg     Config
	install Install
	account *account
	home    string // DataDir/pg15
	data    string // DataDir/pg15/data
}

// MismatchError reports a durable cluster that no installed PostgreSQL can open:
// only the major version that made it can.
type MismatchError struct {
	DataDir   string
	Clusters  []int     // major versions of the clusters in DataDir
	Installed []Install // what is installed, newest first
}

// Error names both sides and the ways out.
func (e *MismatchError) Error() string {
	var have, need []string
	for _, in := range e.Installed {
		have = append(have, in.Version)
	}
	for _, major := range e.Clusters {
		need = append(need, strconv.Itoa(major))
	}
	return fmt.Sprintf("the data in %s was made by PostgreSQL %s, and only PostgreSQL %s is installed: "+
		"install that version again, move the data with pg_upgrade or pg_dump, or choose another data directory",
		e.DataDir, strings.Join(need, ", "), strings.Join(have, ", "))
}

// locate decides which installation and which cluster to use. A cluster that
// exists goes before a newer PostgreSQL: data that people keep must not seem to
// vanish when they upgrade.
func locate(ctx context.Context, cfg Config, places search) (*cluster, error) {
	acct, err := serverAccount()
	if err != nil {
		return nil, err
	}
	installs := []Install{}
	if cfg.Install != nil {
		installs = append(installs, *cfg.Install)
	} else if installs, err = places.all(ctx, acct); err != nil {
		return nil, err
	}
	majors, err := clusterMajors(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	chosen := installs[0]
	if cfg.Install == nil && len(majors) > 0 {
		match := firstMatch(installs, majors)
		if match == nil && cfg.Durable {
			return nil, &MismatchError{DataDir: cfg.DataDir, Clusters: majors, Installed: installs}
		}
		if match != nil {
			chosen = *match
		}
	}
	c := &cluster{cfg: cfg, install: chosen, account: acct}
	c.home = filepath.Join(cfg.DataDir, "pg"+strconv.Itoa(chosen.Major))
	c.data = filepath.Join(c.home, "data")
	if slices.Contains(majors, chosen.Major) {
		err = c.adoptOwner()
	}
	if err == nil && !c.account.canEnter(cfg.DataDir) {
		err = fmt.Errorf("account %s, which runs the server for root, cannot enter %s: "+
			"choose a data directory that it can reach, such as %s", c.account.name, cfg.DataDir, systemDataDir)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func firstMatch(installs []Install, majors []int) *Install {
	for _, in := range installs {
		for _, major := range majors {
			if in.Major == major {
				return &in
			}
		}
	}
	return nil
}

// clusterMajors lists the major versions of the clusters in dataDir.
func clusterMajors(dataDir string) ([]int, error) {
	entries, err := os.ReadDir(dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read data directory: %w", err)
	}
	var majors []int
	for _, entry := range entries {
		number, ok := strings.CutPrefix(entry.Name(), "pg")
		major, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dataDir, entry.Name(), "data", "PG_VERSION")); err == nil {
			majors = append(majors, major)
		}
	}
	return majors, nil
}

// prepareHome creates the directory around the cluster. Root leaves it open for
// the server's account to pass through; everybody else keeps it private.
func (c *cluster) prepareHome() error {
	mode := os.FileMode(0o700)
	if c.account != nil {
		mode = 0o755
	}
	if err := makeDirs(c.home, mode); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	return nil
}

// makeDirs is MkdirAll whose mode does not depend on the umask, for the
// directories it creates.
func makeDirs(dir string, mode os.FileMode) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
		return nil
	}
	if err := makeDirs(filepath.Dir(dir), mode); err != nil {
		return err
	}
	err := os.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was quicker, and sets the mode
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// ensureCreated creates the cluster if it is absent (P4) and settles which
// account runs it. The caller holds the start lock.
func (c *cluster) ensureCreated(ctx context.Context) error {
	if err := c.sweep(ctx); err != nil {
		return err
	}
	exists, err := c.exists()
	if err == nil && exists {
		exists, err = c.checkVolatile()
	}
	switch {
	case err != nil:
		return err
	case !exists:
		return c.create(ctx)
	default:
		return c.adoptOwner()
	}
}

// exists reports whether there is a cluster; it appears complete or not at all.
func (c *cluster) exists() (bool, error) {
	_, err := os.Stat(filepath.Join(c.data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open cluster: %w", err)
	}
	return true, nil
}

// adoptOwner makes the account that owns the cluster run it.
func (c *cluster) adoptOwner() error {
	owned, err := accountOf(c.data)
	if err != nil {
		return fmt.Errorf("open cluster: %w", err)
	}
	switch {
	case c.account != nil && owned.uid == 0:
		return fmt.Errorf("the cluster in %s belongs to root, as whom PostgreSQL refuses to run: "+
			"give it to an account with chown -R", c.data)
	case c.account != nil:
		c.account = owned
	case owned.uid != os.Geteuid():
		return fmt.Errorf("the cluster in %s belongs to %s: only that user and root can run it", c.data, owned.name)
	}
	return nil
}

// sweepTimeout bounds the removal of an unfinished cluster.
const sweepTimeout = 5 * time.Second

// sweep removes what an interrupted initdb left behind. That initdb may still be
// about to end, and put files where others were just removed.
func (c *cluster) sweep(ctx context.Context) error {
	left, err := filepath.Glob(filepath.Join(globEscape(c.home), "init-*"))
	if err != nil {
		return fmt.Errorf("sweep %s: %w", c.home, err)
	}
	deadline := time.Now().Add(sweepTimeout)
	for _, dir := range left {
		for err = os.RemoveAll(dir); err != nil && time.Now().Before(deadline); err = os.RemoveAll(dir) {
			if err := pause(ctx); err != nil {
				return err
			}
		}
		if err != nil { // it does no harm; the next start tries again
			c.cfg.Logger.Warn().Err(err).Msg("unfinished database cluster not removed")
		}
	}
	return nil
}

func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// create runs initdb beside the cluster's place and moves the result there.
func (c *cluster) create(ctx context.Context) error {
	started := time.Now()
	temp, err := os.MkdirTemp(c.home, "init-")
	if err != nil {
		return fmt.Errorf("create cluster: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }() // what stays is swept by the next start
	if err := c.account.give(temp); err != nil {
		return fmt.Errorf("create cluster: %w", err)
	}
	// C.UTF-8 gives upper() and lower() their meaning; not every system has it.
	out, err := c.initdb(ctx, temp, "C.UTF-8")
	if err != nil && ctx.Err() == nil && strings.Contains(out, "locale") {
		out, err = c.initdb(ctx, temp, "C")
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("create cluster in %s: initdb: %w\n%s", c.data, err, indent(lastLines(out, tailLines)))
	}
	if err := c.markVolatile(); err != nil {
		return fmt.Errorf("create cluster: %w", err)
	}
	if err := os.Rename(temp, c.data); err != nil {
		return fmt.Errorf("create cluster: %w", err)
	}
	if c.cfg.Durable {
		if err := syncDir(c.home); err != nil {
			return fmt.Errorf("create cluster: %w", err)
		}
	}
	c.cfg.Logger.Info().Str("data_dir", c.data).Str("postgresql", c.install.Version).
		Int64("elapsed_ms", time.Since(started).Milliseconds()).Msg("database cluster created")
	return nil
}

// initdb creates a cluster in dir and returns what the program printed.
func (c *cluster) initdb(ctx context.Context, dir, ctype string) (string, error) {
	// Text compares by its bytes: the fastest order, the same everywhere, and
	// the one that keysets over text need.
	args := []string{"-D", dir, "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--locale=C", "--lc-ctype=" + ctype, "--no-instructions"}
	if !c.cfg.Durable {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, c.install.initdb(), args...)
	cmd.Dir = "/" // a directory the account can enter
	cmd.Env = child.Env(os.Environ())
	cmd.SysProcAttr = serverProcAttr(c.account.credential())
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// The death signal in serverProcAttr is sent when the starting thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	return out.String(), err
}

// syncDir makes a rename in dir survive a power cut.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
