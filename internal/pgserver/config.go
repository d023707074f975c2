package pgserver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"

	"github.com/rs/zerolog"
)

// systemDataDir contains root's clusters, and clusters whose configured directory the server's account cannot
// enter.
const systemDataDir = "/var/lib/belfry"

// Config specifies a server. Stock and Settings take effect when the server starts. A process that
// joins a running server uses its settings.
type Config struct {
	// DataDir is the directory of the cluster and its lock file. Empty means DefaultDataDir.
	DataDir string

	// BinDir is the directory of the server programs. Empty means the version of an existing cluster in DataDir,
	// or else the result of Find.
	BinDir string

	// Volatile is for tests: a cluster that was not shut down is created anew. It requires Settings without fsync.
	Volatile bool

	// Stock leaves all settings at PostgreSQL's defaults. False tunes the server for belfry.
	Stock bool

	// Settings are added to the server's command line. They override the other settings, but not the server's
	// address.
	Settings map[string]string

	// Logger logs starts, stops and long waits. The zero value discards them.
	Logger zerolog.Logger
}

// settings returns the settings on the server's command line.
func (c Config) settings() map[string]string {
	s := map[string]string{
		// The same order and messages on all machines.
		"timezone":        "UTC",
		"log_timezone":    "UTC",
		"lc_messages":     "C",
		"log_line_prefix": "%m [%p] %a ",
		// A client that connects to a stopping server and sends nothing delays the server's end by this time.
		// PostgreSQL's default is one minute.
		"authentication_timeout": "10s",
	}
	if !c.Stock {
		maps.Copy(s, tunedSettings())
	}
	maps.Copy(s, c.Settings)
	return s
}

// tunedSettings suit one application that writes in bulk on a shared machine.
func tunedSettings() map[string]string {
	return map[string]string{
		// Belfry's statements are short. Compiling them costs more time than it saves.
		"jit": "off",
		// Enough for the hot ends of tables and indexes. The page cache has the rest.
		"shared_buffers": "256MB",
		// A bulk job writes some 150 bytes of WAL a row. With the default of 1 GB, a checkpoint happens every
		// few million rows, and after each one every page is logged in full again. 4 GB costs disk space
		// and a longer recovery.
		"max_wal_size":       "4GB",
		"min_wal_size":       "256MB",
		"checkpoint_timeout": "15min",
		"wal_buffers":        "16MB",
	}
}

// DefaultDataDir returns the directory of the user's data:
//
//   - $XDG_DATA_HOME/belfry if that variable is set;
//   - ~/Library/Application Support/belfry on macOS, ~/.local/share/belfry elsewhere;
//   - /var/lib/belfry for root, or a subdirectory of it if the server's account cannot enter XDG_DATA_HOME.
func DefaultDataDir() (string, error) {
	dir := os.Getenv("XDG_DATA_HOME")
	switch {
	case dir != "" && !filepath.IsAbs(dir):
		return "", fmt.Errorf("XDG_DATA_HOME: %q is not an absolute path", dir)
	case dir != "":
		dir = filepath.Join(dir, "belfry")
	case os.Geteuid() == 0:
		return systemDataDir, nil
	default:
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the data directory: %w (set XDG_DATA_HOME)", err)
		}
		dir = filepath.Join(home, ".local", "share", "belfry")
		if runtime.GOOS == "darwin" {
			dir = filepath.Join(home, "Library", "Application Support", "belfry")
		}
	}
	return ReachableDir(dir)
}

// DataDir returns the absolute path of a Config's DataDir.
func DataDir(configured string) (string, error) {
	if configured == "" {
		return DefaultDataDir()
	}
	return filepath.Abs(configured)
}

// Exists reports whether a Config's DataDir contains a durable cluster. It creates nothing.
func Exists(configured string) bool {
	dir, err := DataDir(configured)
	if err != nil {
		return false
	}
	made, err := madeIn(dir)
	return err == nil && len(made) > 0
}

// madeIn returns the version files of the durable clusters in dir.
func madeIn(dir string) ([]string, error) {
	return fs.Glob(os.DirFS(dir), "pg[0-9][0-9]/data/PG_VERSION")
}

// ReachableDir returns dir. For root, if the server's account cannot enter dir, it returns a subdirectory of
// /var/lib/belfry that belongs to dir.
func ReachableDir(dir string) (string, error) {
	acct, err := serverAccount()
	if err != nil || acct.canEnter(dir) {
		return dir, err
	}
	return filepath.Join(systemDataDir, shortHash(dir)), nil
}

// shortHash returns a name for a directory that belongs to another directory.
func shortHash(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:6])
}
