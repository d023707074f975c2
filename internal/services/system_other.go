//go:build unix && !linux

package services

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// procAttr describes a server. Only Linux can tie its life to that of its test's
// process; elsewhere it stays when that is killed. It is in a group of its own, so
// that a terminal's Ctrl-C reaches the test alone.
func procAttr(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential, Setpgid: true}
}

// frozen reports whether a process stands still after SIGSTOP.
func frozen(pid int) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), signalTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return false, err
	}
	return strings.HasPrefix(strings.TrimSpace(string(out)), "T"), nil
}
