//go:build !linux

package bench

import (
	"fmt"
	"runtime"
	"syscall"
)

// peakResident is the most memory this process ever had resident, in bytes.
func peakResident() (int64, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("peak memory: %w", err)
	}
	if runtime.GOOS == "darwin" {
		return usage.Maxrss, nil // bytes there, KiB elsewhere
	}
	return usage.Maxrss << 10, nil
}
