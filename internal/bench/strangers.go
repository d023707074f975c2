package bench

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// quietShare is how much of the CPUs others may use before figures are doubtful.
	quietShare = 0.1
	quietTime  = time.Second
)

// strangersShare is the share of the CPUs that is used while the bench does nothing;
// 0 where the system does not tell (it does on Linux).
func strangersShare(ctx context.Context) (float64, error) {
	busyBefore, totalBefore := cpuTimes()
	if err := wait(ctx, quietTime); err != nil {
		return 0, err
	}
	busy, total := cpuTimes()
	if total <= totalBefore {
		return 0, nil
	}
	return (busy - busyBefore) / (total - totalBefore), nil
}

func cpuTimes() (busy, total float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	return parseCPUTimes(string(text))
}

// parseCPUTimes reads the first line of /proc/stat: user, nice, system, idle, iowait,
// irq, softirq, steal, and guest times that the first two contain.
func parseCPUTimes(text string) (busy, total float64) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	const idle, iowait, guest = 3, 4, 8
	for i, field := range fields[min(1, len(fields)):] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil || i >= guest {
			break
		}
		total += ticks
		if i != idle && i != iowait {
			busy += ticks
		}
	}
	return busy, total
}
