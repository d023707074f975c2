//go:build unix && !linux

package demo

import "syscall"

// runnerProcAttr asks for nothing: only Linux can tie a runner's life to that of
// the demo. Elsewhere the runners of a demo that was itself killed with SIGKILL
// finish what is due.
func runnerProcAttr() *syscall.SysProcAttr { return nil }
