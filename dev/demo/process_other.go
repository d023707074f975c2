//go:build unix && !linux

package demo

import "syscall"

// runnerProcAttr asks for nothing: only Linux can tie a runner's life to that of
// the demo. Elsewhere a runner whose demo was killed with SIGKILL ends when it next
// writes to its log, which nobody reads any more.
func runnerProcAttr() *syscall.SysProcAttr { return nil }
