package dbtest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/belfryhq/belfry/internal/pgserver"
)

const (
	// dirEnv names the directory of private servers, instead of the place found here.
	dirEnv = "BELFRY_TEST_DIR"
	// memoryRoot is where Linux keeps files in memory.
	memoryRoot = "/dev/shm"
	// memoryFree is how much room there has to be, in bytes. The suite takes a quarter of
	// it; containers have far less, unless they are told.
	memoryFree = 4 << 30
)

// privateDir is where the server of all tests has its data: a cache, since it can be made
// anew. A suite makes and drops many databases of some hundred files each. In memory that
// takes half the time: ext4 searches past every inode that was freed in the last minute.
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
		return filepath.Join(tempRoot(), own), nil //nolint:nilerr // without a home directory there is still a temporary one
	}
	return pgserver.ReachableDir(filepath.Join(cache, "belfry", "test"))
}

// serverRoot is where a test's own server has its data. One that is to lose nothing is on
// the disk, as in life.
func serverRoot(durable bool) string {
	if !durable && os.Getenv(dirEnv) == "" && roomInMemory(memoryRoot, memoryFree) {
		return memoryRoot
	}
	return tempRoot()
}

// tempRoot is the temporary directory, unless that of root is closed to others.
func tempRoot() string {
	dir, err := pgserver.ReachableDir(os.TempDir())
	if err != nil || dir != os.TempDir() {
		return "/tmp"
	}
	return dir
}
