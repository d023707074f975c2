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

// cluster is one PostgreSQL cluster and the directory around it: who runs it, with which
// programs and settings. A user decides these, and a watchdog is told them.
type cluster struct {
	Install  Install
	Account  *account
	Home     string // DataDir/pg15
	Durable  bool
	Settings map[string]string
}

func (c *cluster) data() string    { return filepath.Join(c.Home, "data") }
func (c *cluster) logFile() string { return filepath.Join(c.Home, "postgresql.log") }

// volatileMark is in the names of clusters that run without fsync. The rest of such a name
// is that of the boot during which it was made: after a restart of the machine nobody
// knows which of its pages had reached the disk.
const volatileMark = "-volatile-"

// home names the directory of a cluster.
func home(cfg Config, major int) string {
	dir := filepath.Join(cfg.DataDir, "pg"+strconv.Itoa(major))
	if !cfg.Durable {
		dir += volatileMark + shortHash(bootID())
	}
	return dir
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

// locate decides which installation and which cluster to use, and as whom.
func locate(ctx context.Context, cfg Config, places search) (*cluster, error) {
	acct, err := serverAccount()
	if err != nil {
		return nil, err
	}
	chosen, err := choose(ctx, cfg, places, acct)
	if err != nil {
		return nil, err
	}
	c := &cluster{Install: chosen, Account: acct, Home: home(cfg, chosen.Major), Durable: cfg.Durable, Settings: cfg.settings()}
	if err := c.adoptOwner(); err != nil {
		return nil, err
	}
	if !c.Account.canEnter(cfg.DataDir) {
		return nil, fmt.Errorf("account %s, which runs the server for root, cannot enter %s: "+
			"choose a data directory that it can reach, such as %s", c.Account.Name, cfg.DataDir, systemDataDir)
	}
	return c, nil
}

// choose decides which installation to use. A cluster that exists goes before a newer
// PostgreSQL: data that people keep must not seem to vanish when they upgrade.
func choose(ctx context.Context, cfg Config, places search, acct *account) (Install, error) {
	if cfg.Install != nil {
		return *cfg.Install, nil
	}
	installs, err := places.all(ctx, acct)
	if err != nil {
		return Install{}, err
	}
	majors, err := clusterMajors(cfg.DataDir)
	if err != nil {
		return Install{}, err
	}
	if !cfg.Durable || len(majors) == 0 {
		return installs[0], nil
	}
	for _, in := range installs {
		if slices.Contains(majors, in.Major) {
			return in, nil
		}
	}
	return Install{}, &MismatchError{DataDir: cfg.DataDir, Clusters: majors, Installed: installs}
}

// clusterMajors lists the major versions of the durable clusters in dataDir.
func clusterMajors(dataDir string) (majors []int, err error) {
	entries, err := os.ReadDir(dataDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read data directory: %w", err)
	}
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

// adoptOwner makes the account that owns an existing cluster run it: PostgreSQL insists.
func (c *cluster) adoptOwner() error {
	owner, err := ownerOf(c.data())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("open cluster: %w", err)
	case c.Account != nil && owner.UID == 0:
		return fmt.Errorf("the cluster in %s belongs to root, as whom PostgreSQL refuses to run: "+
			"give it to an account with chown -R", c.data())
	case c.Account != nil:
		c.Account = owner
	case owner.UID != os.Geteuid():
		return fmt.Errorf("the cluster in %s belongs to %s: only that user and root can run it", c.data(), owner.Name)
	}
	return nil
}

// prepareHome makes the directory around the cluster. Root gives it to the account, and
// leaves those above open for the account to pass through; everybody else keeps all private.
func (c *cluster) prepareHome() error {
	mode := os.FileMode(0o700)
	if c.Account != nil {
		mode = 0o755
	}
	if err := makeDirs(c.Home, mode); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	if c.Account == nil {
		return nil
	}
	dir, err := os.OpenFile(c.Home, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	if err := errors.Join(dir.Chown(c.Account.UID, c.Account.GID), dir.Close()); err != nil {
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

// sweepVolatile removes the clusters of tests that earlier boots of the machine left.
func (c *cluster) sweepVolatile() error {
	if c.Durable {
		return nil
	}
	dataDir := filepath.Dir(c.Home)
	entries, err := os.ReadDir(dataDir)
	if err != nil {
		return fmt.Errorf("sweep test clusters: %w", err)
	}
	_, current, _ := strings.Cut(filepath.Base(c.Home), volatileMark)
	for _, entry := range entries {
		if _, boot, ok := strings.Cut(entry.Name(), volatileMark); ok && boot != current {
			if err := os.RemoveAll(filepath.Join(dataDir, entry.Name())); err != nil {
				return fmt.Errorf("sweep test clusters: %w", err)
			}
		}
	}
	return nil
}
