package pgserver

import (
	"os"
	"strings"
	"syscall"
)

// serverProcAttr describes a child that must not outlive its parent, however
// that one ends. SIGINT is a fast shutdown to postgres; initdb cleans up after
// itself. The kernel sends it when the thread that started the child ends, so
// that thread has to be locked for as long as the child is to run.
func serverProcAttr(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential, Pdeathsig: syscall.SIGINT}
}

// bootID changes with every start of the machine; empty if it is not known.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
