package bench

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
)

// peakResident is the most memory this process ever had resident, in bytes. Linux
// hands ru_maxrss of the parent on through fork and exec: a runner started by a
// process that once held 300 MiB would report 300 MiB. VmHWM is the process's own.
func peakResident() (int64, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("peak memory: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			var kib int64
			if _, err := fmt.Sscanf(value, "%d kB", &kib); err != nil {
				return 0, fmt.Errorf("peak memory: %q: %w", lines.Text(), err)
			}
			return kib << 10, nil
		}
	}
	return 0, errors.Join(errors.New("peak memory: /proc/self/status has no VmHWM"), lines.Err())
}
