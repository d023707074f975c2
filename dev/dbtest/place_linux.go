package dbtest

import (
	"os"
	"path/filepath"
	"syscall"
)

// tmpfsMagic is TMPFS_MAGIC of linux/magic.h, the type of a file system in memory in statfs(2).
const tmpfsMagic = 0x01021994

// roomInMemory reports whether a directory is writable, in memory, and has the given free bytes.
func roomInMemory(dir string, free uint64) bool {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Type != tmpfsMagic || fs.Bavail*uint64(fs.Bsize) < free {
		return false
	}
	probe, err := os.MkdirTemp(dir, "belfry-probe-")
	return err == nil && os.Remove(filepath.Clean(probe)) == nil
}
