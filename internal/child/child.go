package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// pollInterval is the pause between two attempts of Poll. A failed attempt to connect takes
// less than a millisecond.
const pollInterval = 5 * time.Millisecond

// freezeTimeout limits the time until a signalled process has stopped or resumed.
const freezeTimeout = 10 * time.Second

// ErrEnded reports that a program ended while the caller waited for it.
var ErrEnded = errors.New("it ended")

// Process is a program that Start has started. A nil Process is a program of another parent, whose end is
// unknown. All methods may be called concurrently.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd.ProcessState is set
}

// Step is a signal that ends a program, and the time to wait for its end.
type Step struct {
	Signal syscall.Signal
	Wait   time.Duration
}

// Start starts a program in a process group of its own, so that a terminal's Ctrl-C
// reaches only this process, and with the environment of Env. Its working directory is cmd.Dir, or
// the root directory. On Linux the program receives the signal orphaned when this process ends.
func Start(cmd *exec.Cmd, orphaned syscall.Signal) (*Process, error) {
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	cmd.Env = Env(os.Environ())
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	signalWhenOrphaned(cmd.SysProcAttr, orphaned)
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the signal when the thread that started the program ends, so the
		// thread must live as long as the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // Err returns the result
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// PID returns the process id, also after the program's end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended returns a channel that is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.ended
}

// Over reports whether the program has ended.
func (p *Process) Over() bool {
	select {
	case <-p.Ended():
		return true
	default:
		return false
	}
}

// Err returns ErrEnded with the state of an ended program, and nil while it runs.
func (p *Process) Err() error {
	if !p.Over() {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrEnded, p.cmd.ProcessState)
}

// EndedBy reports whether the given signal ended the program.
func (p *Process) EndedBy(signal syscall.Signal) bool {
	if !p.Over() {
		return false
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == signal
}

// signal sends a signal. It has no effect after the program has ended.
func (p *Process) signal(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to process %d: %w", signal, p.PID(), err)
	}
	return nil
}

// Stop sends one signal after another until the program has ended.
func (p *Process) Stop(steps ...Step) error {
	for _, step := range steps {
		if err := p.signal(step.Signal); err != nil {
			return err
		}
		timer := time.NewTimer(step.Wait)
		select {
		case <-p.ended:
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return fmt.Errorf("process %d does not end", p.PID())
}

// Freeze stops or resumes the program, and returns when it has stopped or resumed.
func (p *Process) Freeze(still bool) error {
	signal := syscall.SIGCONT
	if still {
		signal = syscall.SIGSTOP
	}
	if err := p.signal(signal); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), freezeTimeout)
	defer cancel()
	err := Poll(ctx, func() (bool, error) {
		state, err := processState(p.PID())
		if err != nil && !still {
			return true, nil // it ended by an earlier signal
		}
		return strings.HasPrefix(state, "T") == still, err
	})
	if err != nil {
		return fmt.Errorf("process %d after %s: %w", p.PID(), signal, err)
	}
	return nil
}

// Await repeats a request until the program answers. The error is ErrEnded if the program ended first. Otherwise
// it contains the cause of the context's end and the last error.
func Await(ctx context.Context, p *Process, ask func(context.Context) error) error {
	var last error
	err := Poll(ctx, func() (bool, error) {
		last = ask(ctx)
		return last == nil, p.Err() // after its end, another process may answer
	})
	if err != nil && ctx.Err() != nil && last != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// Poll calls try, with short pauses, until try is done or fails, or ctx ends.
func Poll(ctx context.Context, try func() (done bool, err error)) error {
	for {
		if done, err := try(); done || err != nil {
			return err
		}
		timer := time.NewTimer(pollInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}
