//go:build unix && !linux

package demo

import "syscall"

// runnerProcAttr returns nil: only Linux can end a runner with the demo. On other systems a runner
// whose demo was killed with SIGKILL ends when it next writes to its log.
func runnerProcAttr() *syscall.SysProcAttr { return nil }
