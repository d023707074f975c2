//go:build !linux

package dbtest

// roomInMemory reports false: only Linux has a directory in memory at a place one knows.
func roomInMemory(string, uint64) bool { return false }
