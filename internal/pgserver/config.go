package pgserver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"

	"github.com/rs/zerolog"
)

// systemDataDir holds root's clusters, and those whose own place the server's
// account cannot reach.
const systemDataDir = "/var/lib/belfry"

// Config says where a server lives and how it is to run. Only the user that
// starts the server decides Durable, Stock and Settings; those who join take what
// runs.
type Config struct {
	// DataDir is the directory of the cluster and its lock files. Empty means
	// DefaultDataDir.
	DataDir string

	// Install is the PostgreSQL to use. Nil means the newest one that fits: the
	// version of a cluster that exists in DataDir, otherwise what Find returns.
	Install *Install

	// Durable keeps committed data through crashes and power cuts. False is for
	// tests only: about twice as fast, and lost if the machine goes down.
	Durable bool

	// Stock leaves everything but durability as PostgreSQL's defaults have it, as on
	// the servers that people have. Otherwise a durable server is tuned for belfry.
	Stock bool

	// Settings are added to the server's command line, over the ones that
	// Durable and Stock imply. Those that decide where the server is reached have no
	// effect.
	Settings map[string]string

	// Logger reports starts, stops and long waits. The zero value is silent.
	Logger zerolog.Logger
}

// settings returns what goes to the server's command line.
func (c Config) settings() map[string]string {
	s := map[string]string{
		// Text sorts and messages read the same on every machine.
		"timezone":        "UTC",
		"log_timezone":    "UTC",
		"lc_messages":     "C",
		"log_destination": "stderr",
		"log_line_prefix": "%m [%p] %a ",
		// A client that connects to a server that is stopping, and says nothing, keeps it
		// from its end for this time; PostgreSQL's default is a minute.
		"authentication_timeout": "10s",
	}
	switch {
	case !c.Durable:
		maps.Copy(s, volatileSettings())
	case !c.Stock:
		maps.Copy(s, tunedSettings())
		fallthrough
	default:
		maps.Copy(s, durableSettings())
	}
	maps.Copy(s, c.Settings)
	return s
}

// durableSettings: what a commit promises must hold after a power cut.
func durableSettings() map[string]string {
	return map[string]string{
		"fsync":              "on",
		"full_page_writes":   "on",
		"synchronous_commit": "on",
	}
}

// tunedSettings suit one application that writes in bulk on a machine it shares with
// others.
func tunedSettings() map[string]string {
	return map[string]string{
		// Belfry's statements are short; compiling them costs more than it saves.
		"jit": "off",
		// Enough for the hot ends of the tables and their indexes; the rest is
		// the page cache's. The memory is taken as it is touched.
		"shared_buffers": "256MB",
		// A bulk job writes some 150 bytes of WAL a row. With the default of
		// 1 GB its checkpoints come every few million rows, and each one makes
		// every page be logged whole again. 4 GB spreads them out; the price is
		// disk and a longer recovery after a crash.
		"max_wal_size":                 "4GB",
		"min_wal_size":                 "256MB",
		"checkpoint_timeout":           "15min",
		"checkpoint_completion_target": "0.9",
		"wal_buffers":                  "16MB",
		"max_connections":              "100",
	}
}

// volatileSettings suit tests: many small databases, none of them kept. What decides
// plans is as in PostgreSQL's defaults.
func volatileSettings() map[string]string {
	return map[string]string{
		"fsync":              "off",
		"full_page_writes":   "off",
		"synchronous_commit": "off",
		"wal_level":          "minimal",
		"max_wal_senders":    "0",
		// Checkpoints are mere cost here, and so is the disk that old WAL takes.
		"max_wal_size":       "1GB",
		"checkpoint_timeout": "1h",
		"shared_buffers":     "128MB",
		// In the cluster's directory, to go with it: servers that tests kill would
		// fill /dev/shm, which is small in containers.
		"dynamic_shared_memory_type": "mmap",
		// Tests run ANALYZE and VACUUM where they need them; on their own time
		// they would make plans and timings differ from run to run.
		"autovacuum":      "off",
		"max_connections": "200",
	}
}

// withDataDir makes DataDir absolute.
func (c Config) withDataDir() (_ Config, err error) {
	if c.DataDir == "" {
		c.DataDir, err = DefaultDataDir()
	} else {
		c.DataDir, err = filepath.Abs(c.DataDir)
	}
	return c, err
}

// DefaultDataDir is where the user's data is kept:
//
//   - $XDG_DATA_HOME/belfry if that variable is set;
//   - ~/Library/Application Support/belfry on macOS, ~/.local/share/belfry elsewhere;
//   - /var/lib/belfry for root, and a directory in it, named after the place
//     above, when the account that runs the server for root cannot enter that.
func DefaultDataDir() (string, error) {
	acct, err := serverAccount()
	if err != nil {
		return "", err
	}
	dir := os.Getenv("XDG_DATA_HOME")
	switch {
	case dir != "" && !filepath.IsAbs(dir):
		return "", fmt.Errorf("XDG_DATA_HOME: %q is not an absolute path", dir)
	case dir != "":
		dir = filepath.Join(dir, "belfry")
	case acct != nil:
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
	return acct.reachable(dir), nil
}

// ReachableDir returns dir, or for root, when the account that runs the server
// cannot enter it, a directory of its own under /var/lib/belfry instead.
func ReachableDir(dir string) (string, error) {
	acct, err := serverAccount()
	if err != nil {
		return "", err
	}
	return acct.reachable(dir), nil
}

func (a *account) reachable(dir string) string {
	if a.canEnter(dir) {
		return dir
	}
	return filepath.Join(systemDataDir, shortHash(dir))
}

// shortHash names a directory after another one.
func shortHash(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:6])
}
