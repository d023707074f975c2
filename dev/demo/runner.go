package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// exitAborted is belfry's exit code after an aborted job.
const exitAborted = 4

// drainDelay limits the wait for the end of a dead runner's output.
const drainDelay = 5 * time.Second

// runner is one belfry process.
type runner struct {
	name  string
	cmd   *exec.Cmd
	log   bytes.Buffer  // its standard error; readable when ended is closed
	ended chan struct{} // closed after Wait
	at    time.Time     // when it ended; before ended is closed
	err   error         // of Wait, other than the exit status; before ended is closed
}

// start starts belfry with the given arguments. The end of ctx kills the process with SIGKILL.
func (s *stage) start(ctx context.Context, args ...string) (*runner, error) {
	r := &runner{name: fmt.Sprintf("runner-%d", len(s.runners)+1), ended: make(chan struct{})}
	r.cmd = exec.CommandContext(ctx, s.Executable)
	// The user's configuration file must not change the demo.
	r.cmd.Args = append([]string{"belfry", "--config", "/dev/null"}, args...)
	r.cmd.Env = s.environment(r.name)
	r.cmd.Stderr = &r.log
	r.cmd.WaitDelay = drainDelay
	r.cmd.SysProcAttr = runnerProcAttr()

	started := make(chan error)
	go func() {
		defer close(r.ended)
		runtime.LockOSThread() // see runnerProcAttr
		defer runtime.UnlockOSThread()
		err := r.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = r.cmd.Wait()
		r.at = time.Now()
		var exit *exec.ExitError
		if !errors.As(err, &exit) && ctx.Err() == nil {
			r.err = err
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", r.name, err)
	}
	s.runners = append(s.runners, r)
	return r, nil
}

// environment returns the demo's environment without belfry's variables, except those of its tests,
// and with the variables of the runner.
func (s *stage) environment(name string) []string {
	env := slices.DeleteFunc(slices.Clone(s.Environ), func(e string) bool {
		return strings.HasPrefix(e, "BELFRY_") && !strings.HasPrefix(e, "BELFRY_TEST_")
	})
	env = append(env,
		"BELFRY_RUNNER_NAME="+name, "BELFRY_RUNNER_POLL_INTERVAL="+pollInterval.String(), "BELFRY_RUNNER_STALE_AFTER="+staleAfter.String(),
		"BELFRY_RUNNER_STATEMENT_TIMEOUT="+statementTimeout.String(), "BELFRY_RUNNER_RETRY_MAX="+retryMax.String(),
		"BELFRY_RUNNER_LOAD_HEALTH_ENABLED=false") // the runner would yield to the demo's own queries
	env = append(env, "BELFRY_DATABASE_URL="+s.dsn, "BELFRY_LOG_LEVEL=info", "BELFRY_LOG_FORMAT=json")
	return append(env, s.extra...) // the last of two equal names applies
}

// gone reports whether the process has ended.
func (r *runner) gone() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// kill kills the process with SIGKILL. It returns when the process has ended and its output was
// read, and reports whether the signal ended it.
func (r *runner) kill(ctx context.Context) (bool, error) {
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, fmt.Errorf("kill %s: %w", r.name, err)
	}
	if _, err := r.exit(ctx); err != nil {
		return false, err
	}
	status, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL, nil
}

// exit waits for the end of the process and returns its exit code.
func (r *runner) exit(ctx context.Context) (int, error) {
	select {
	case <-r.ended:
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for the end of %s: %w", r.name, context.Cause(ctx))
	}
	if r.err != nil {
		return 0, fmt.Errorf("%s: %w", r.name, r.err)
	}
	return r.cmd.ProcessState.ExitCode(), nil
}

// wantExit waits for the end of the process and returns an error for another exit code.
func (r *runner) wantExit(ctx context.Context, want int) error {
	got, err := r.exit(ctx)
	if err == nil && got != want {
		err = r.complaint(fmt.Sprintf("ended with exit status %d instead of %d", got, want))
	}
	return err
}

// stop sends SIGTERM and waits for exit code 0.
func (r *runner) stop(ctx context.Context) error {
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", r.name, err)
	}
	return r.wantExit(ctx, 0)
}

// tailLines is the number of a runner's last lines in an error.
const tailLines = 8

// complaint returns an error with the last lines of a runner that has ended.
func (r *runner) complaint(problem string) error {
	text := r.name + " " + problem
	if lines := strings.Split(strings.TrimSpace(r.log.String()), "\n"); lines[0] != "" {
		text += "; its last output:\n  " + strings.Join(lines[max(len(lines)-tailLines, 0):], "\n  ")
	}
	return errors.New(text)
}
