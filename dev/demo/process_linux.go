package demo

import "syscall"

// runnerProcAttr ends a runner with the demo, also with a demo that is killed. The kernel sends the
// signal when the thread that started the runner ends. The thread therefore stays locked until the
// runner has ended.
func runnerProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
