package child

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// signalWhenOrphaned has the kernel send a signal to the program when the thread that
// starts it ends.
func signalWhenOrphaned(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }

// processState begins with T for a process that stands still, with Z for one that has ended.
func processState(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// After the name, which is in parentheses and may hold anything.
	return strings.TrimSpace(string(text[strings.LastIndexByte(string(text), ')')+1:])), nil
}
