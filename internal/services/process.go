package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/pgserver"
)

const (
	// startTimeout bounds the time until a started server answers.
	startTimeout = 30 * time.Second
	// signalTimeout bounds the time until a signalled process has obeyed.
	signalTimeout = 10 * time.Second
	// pollInterval is the pause between two looks at a server.
	pollInterval = 5 * time.Millisecond
	// tailBytes is how much of a log an error shows.
	tailBytes = 4 << 10
)

// process is a server program under supervision. Its exported methods are those
// of every server here; they may be called from any goroutine.
type process struct {
	program    string
	args       []string
	dir        string              // its own, and its working directory
	credential *syscall.Credential // nil: as the test itself
	answers    func(ctx context.Context, pid int) error

	mu      sync.Mutex
	current *lifetime // nil while stopped
}

// lifetime is one life of the program, from a Start to its end.
type lifetime struct {
	process *os.Process
	ended   chan struct{} // closed at its end
	state   error         // how it ended; set before ended is closed
}

func (l *lifetime) over() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// killed reports whether SIGKILL ended the program, rather than something before.
func (l *lifetime) killed() bool {
	var exit *exec.ExitError
	if !errors.As(l.state, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// makeDir makes a directory for one server, owned by whom it runs as. Not
// t.TempDir: its path is long for a socket, and closed to other accounts.
func makeDir(t testing.TB, name string, credential *syscall.Credential) string {
	t.Helper()
	root, err := pgserver.ReachableDir(os.TempDir())
	if err != nil || root != os.TempDir() {
		root = "/tmp"
	}
	dir, err := os.MkdirTemp(root, "belfry-"+name+"-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	if credential != nil {
		require.NoError(t, os.Chown(dir, int(credential.Uid), int(credential.Gid)))
	}
	return dir
}

// endWith stops the server when the test ends, and shows its log if that failed.
func (p *process) endWith(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("%v", err)
		}
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", filepath.Base(p.program), p.logTail())
		}
	})
}

// Start starts a stopped server and waits until it answers. It is an error if the
// server has not been stopped, or does not answer within 30 seconds.
func (p *process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		return fmt.Errorf("start %s: it was not stopped", p.program)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	life, err := p.launch()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.program, err)
	}
	p.current = life
	if err := p.await(ctx, life); err != nil {
		err = fmt.Errorf("start %s: %w\nthe end of its log:\n%s", p.program, err, p.logTail())
		if !life.over() {
			err = errors.Join(err, p.end(life))
		}
		p.current = nil
		return err
	}
	return nil
}

// launch starts the program and leaves a goroutine that waits for its end.
func (p *process) launch() (*lifetime, error) {
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()        // the server writes to its own copy
	cmd := exec.Command(p.program, p.args...) //nolint:noctx // ended by Stop, or with this process
	cmd.Dir = p.dir
	cmd.Env = []string{"LC_ALL=C", "HOME=" + p.dir, "PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = procAttr(p.credential)
	life := &lifetime{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ends the server with the thread that started it, so that
		// thread has to last exactly as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		life.process = cmd.Process
		started <- err
		if err != nil {
			return
		}
		life.state = cmd.Wait()
		close(life.ended)
	}()
	return life, <-started
}

// await waits for the first answer.
func (p *process) await(ctx context.Context, life *lifetime) error {
	for {
		err := p.answers(ctx, life.process.Pid)
		switch {
		case life.over():
			return fmt.Errorf("it ended: %w", ended(life.state))
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("no answer: %w", err)
		}
		select {
		case <-life.ended:
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// ended is the reason of an end that nobody asked for.
func ended(state error) error {
	if state == nil {
		return errors.New("exit status 0")
	}
	return state
}

// Stop ends the server at once, as a crash would, and waits until it is gone. A
// stopped server stays stopped without error; one that had ended by itself is an
// error.
func (p *process) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	life := p.current
	if life == nil {
		return nil
	}
	p.current = nil
	if !life.over() {
		if err := p.end(life); err != nil {
			return err
		}
		if life.killed() {
			return nil
		}
	}
	return fmt.Errorf("%s had ended by itself: %w\nthe end of its log:\n%s", p.program, ended(life.state), p.logTail())
}

// end kills the program and waits for its end.
func (p *process) end(life *lifetime) error {
	if err := life.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.program, err)
	}
	select {
	case <-life.ended:
		return nil
	case <-time.After(signalTimeout):
		return fmt.Errorf("stop %s: process %d still runs after %s", p.program, life.process.Pid, signalTimeout)
	}
}

// Pause freezes the server with SIGSTOP and returns when it stands still.
func (p *process) Pause() error {
	return p.freeze("pause", syscall.SIGSTOP, true)
}

// Continue lets a frozen server go on.
func (p *process) Continue() error {
	return p.freeze("continue", syscall.SIGCONT, false)
}

func (p *process) freeze(name string, signal syscall.Signal, want bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return fmt.Errorf("%s %s: it does not run", name, p.program)
	}
	pid := p.current.process.Pid
	if err := p.current.process.Signal(signal); err != nil {
		return fmt.Errorf("%s %s: %w", name, p.program, err)
	}
	for deadline := time.Now().Add(signalTimeout); ; {
		is, err := frozen(pid)
		switch {
		case err != nil:
			return fmt.Errorf("%s %s: %w", name, p.program, err)
		case is == want:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s %s: process %d did not obey in %s", name, p.program, pid, signalTimeout)
		}
		<-time.After(pollInterval)
	}
}

// PID returns the process id of the running server, 0 while it is stopped.
func (p *process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return 0
	}
	return p.current.process.Pid
}

func (p *process) logPath() string { return filepath.Join(p.dir, "server.log") }

func (p *process) logTail() string {
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-tailBytes):]))
}
