package pgserver

import (
	"context"
	"os"
)

// bootID changes with every start of the machine; empty if it is not known: then the
// cluster of tests is not made anew by itself.
func bootID() string {
	if text, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		return string(text)
	}
	id, err := output(context.Background(), "sysctl", "-n", "kern.bootsessionuuid") // macOS
	if err != nil {
		return ""
	}
	return id
}
