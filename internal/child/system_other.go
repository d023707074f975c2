//go:build unix && !linux

package child

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// signalWhenOrphaned does nothing: only Linux can tie a program's life to its parent's.
func signalWhenOrphaned(*syscall.SysProcAttr, syscall.Signal) {}

// processState begins with T for a process that stands still, with Z for one that has ended.
func processState(pid int) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), freezeTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return strings.TrimSpace(string(out)), err
}
