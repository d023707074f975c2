package services

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// procAttr describes a server that must not outlive its test. The kernel kills it
// when the thread that started it ends; SIGKILL reaches a frozen one too. It is in
// a group of its own, so that a terminal's Ctrl-C reaches the test alone.
func procAttr(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential, Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// frozen reports whether a process stands still after SIGSTOP.
func frozen(pid int) (bool, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	// After the name, which is in parentheses and may hold anything.
	state := string(text[strings.LastIndexByte(string(text), ')')+1:])
	return strings.HasPrefix(strings.TrimSpace(state), "T"), nil
}
