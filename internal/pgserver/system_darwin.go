package pgserver

import "syscall"

// serverProcAttr describes a child. macOS cannot tie its life to that of its
// parent; a server without a watchdog is dealt with by the next Open.
func serverProcAttr(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential}
}

// bootID changes with every start of the machine; empty if it is not known.
func bootID() string {
	id, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
