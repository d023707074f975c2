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

// pollInterval is the pause between two tries of Poll. A failed attempt to connect takes
// less than a millisecond.
const pollInterval = 5 * time.Millisecond

// freezeTimeout bounds the time until a signalled process has obeyed.
const freezeTimeout = 10 * time.Second

// ErrEnded reports a program that ended while something was expected of it.
var ErrEnded = errors.New("it ended")

// Process is a program that Start has started. A nil Process is a program that somebody
// else runs: it is not known to end. All methods may be called concurrently.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd.ProcessState says how it ended
}

// Step is a signal to a program that is to end, and how long it may take to do so.
type Step struct {
	Signal syscall.Signal
	Wait   time.Duration
}

// Start starts a program in a process group of its own, so that a terminal's Ctrl-C
// reaches this process alone, and with the environment of Env. It works in cmd.Dir, or in
// the root directory. When this process ends the program gets the signal orphaned
// (Linux).
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
		// The kernel takes the end of the thread that started the program for that of the
		// process, so the thread has to last as long as the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // Err tells
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

// Err is ErrEnded with how the program ended, and nil while it runs.
func (p *Process) Err() error {
	if !p.Over() {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrEnded, p.cmd.ProcessState)
}

// EndedBy reports whether a signal ended the program, rather than something before it.
func (p *Process) EndedBy(signal syscall.Signal) bool {
	if !p.Over() {
		return false
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == signal
}

// signal sends a signal; to a program that has ended it is none.
func (p *Process) signal(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to process %d: %w", signal, p.PID(), err)
	}
	return nil
}

// Stop sends one signal after the other until the program has ended.
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

// Freeze makes the program stand still, or go on, and returns when it does.
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
			return true, nil // it went on to its end, by a signal that it had before
		}
		return strings.HasPrefix(state, "T") == still, err
	})
	if err != nil {
		return fmt.Errorf("process %d after %s: %w", p.PID(), signal, err)
	}
	return nil
}

// Await asks until the program answers. The error is ErrEnded if it ended first, and
// otherwise tells the cause of the context's end and what the last answer was.
func Await(ctx context.Context, p *Process, ask func(context.Context) error) error {
	var last error
	err := Poll(ctx, func() (bool, error) {
		last = ask(ctx)
		return last == nil, p.Err() // once it has ended, whoever answers is somebody else
	})
	if err != nil && ctx.Err() != nil && last != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// Poll calls try, with short pauses, until it is done or fails, or ctx ends.
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
