package demo

import "syscall"

// runnerProcAttr has a runner end when the demo does, even by SIGKILL. The kernel
// sends the signal when the thread that started the runner ends, so that thread
// has to be locked for as long as the runner lives.
func runnerProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
