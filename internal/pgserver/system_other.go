//go:build unix && !linux && !darwin

package pgserver

import "syscall"

// serverProcAttr describes a child. Only Linux can tie its life to that of its
// parent; elsewhere a server without a watchdog is dealt with by the next Open.
func serverProcAttr(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential}
}

// bootID is not known here: a test cluster is not made anew by itself.
func bootID() string { return "" }
