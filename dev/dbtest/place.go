package dbtest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/belfryhq/belfry/internal/pgserver"
)

const (
	// dirEnv is the variable with the directory of private servers.
	dirEnv = "BELFRY_TEST_DIR"
	// memoryRoot is Linux's file system in memory.
	memoryRoot = "/dev/shm"
	// memoryFree is the required free space, in bytes. The suite uses a quarter of it. Containers
	// have less by default.
	memoryFree = 4 << 30
)

// privateDir returns the data directory of the server for all tests, which is a cache. A suite creates
// and drops many databases of some hundred files each. In memory this takes half the time: ext4 skips
// every inode that was freed in the last minute.
func privateDir() (string, error) {
	if dir := os.Getenv(dirEnv); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", errors.New(dirEnv + ": " + strconv.Quote(dir) + " is not an absolute path")
		}
		return dir, nil
	}
	own := "belfry-test-" + strconv.Itoa(os.Geteuid())
	if roomInMemory(memoryRoot, memoryFree) {
		return filepath.Join(memoryRoot, own), nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return filepath.Join(tempRoot(), own), nil //nolint:nilerr // the fallback without a home directory
	}
	return pgserver.ReachableDir(filepath.Join(cache, "belfry", "test"))
}

// serverRoot returns the data directory of a test's own server. A durable server uses the disk.
func serverRoot(durable bool) string {
	if !durable && os.Getenv(dirEnv) == "" && roomInMemory(memoryRoot, memoryFree) {
		return memoryRoot
	}
	return tempRoot()
}

// tempRoot returns the temporary directory, or /tmp if root's is closed to other accounts.
func tempRoot() string {
	dir, err := pgserver.ReachableDir(os.TempDir())
	if err != nil || dir != os.TempDir() {
		return "/tmp"
	}
	return dir
}
