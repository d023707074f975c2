package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// exitAborted is belfry's exit code for "a job it ran was aborted".
const exitAborted = 4

// drainDelay bounds how long the end of a dead runner's output is waited for.
const drainDelay = 5 * time.Second

// runner is one belfry process.
type runner struct {
	name  string
	cmd   *exec.Cmd
	log   *runLog
	ended chan struct{} // closed when the process was waited for
	at    time.Time     // when it ended; before ended is closed
	err   error         // of Wait, other than the exit status; before ended is closed
}

// start starts belfry with the given arguments and settings of the runner (key
// below runner to value). The process ends with ctx at the latest, by SIGKILL.
func (s *stage) start(ctx context.Context, settings map[string]string, args ...string) (*runner, error) {
	r := &runner{
		name: fmt.Sprintf("runner-%d", len(s.runners)+1),
		log:  newRunLog(), ended: make(chan struct{}),
	}
	r.cmd = exec.CommandContext(ctx, s.Executable) //nolint:gosec // belfry's own binary
	// The user's configuration file must not change what is demonstrated.
	r.cmd.Args = append([]string{"belfry", "--config", "/dev/null"}, args...)
	r.cmd.Env = s.environment(r.name, settings)
	r.cmd.Stderr = r.log
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

// environment is the demo's own without belfry's variables, but for those that only
// its tests use, and then those of the runner.
func (s *stage) environment(name string, settings map[string]string) []string {
	env := slices.DeleteFunc(slices.Clone(s.Environ), func(e string) bool {
		return strings.HasPrefix(e, "BELFRY_") && !strings.HasPrefix(e, "BELFRY_TEST_")
	})
	all := map[string]string{
		"name": name, "poll_interval": pollInterval.String(), "stale_after": staleAfter.String(),
		"statement_timeout": statementTimeout.String(), "retry.max": retryMax.String(),
		"load.health.enabled": "false", // the demo's own looks would be somebody to give way to
	}
	maps.Copy(all, settings)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		env = append(env, "BELFRY_RUNNER_"+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))+"="+all[key])
	}
	env = append(env, s.extra...)
	return append(env, "BELFRY_DATABASE_URL="+s.dsn, "BELFRY_LOG_LEVEL=debug", "BELFRY_LOG_FORMAT=json")
}

// smallChunks are the settings of a runner whose job is to be hit in its middle.
func smallChunks(rows int64) map[string]string {
	n := strconv.FormatInt(rows, 10)
	return map[string]string{"chunk.initial_rows": n, "chunk.min_rows": strconv.FormatInt(min(rows, 100), 10), "chunk.max_rows": n}
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

// kill is kill -9: the process gets no chance to tidy up. It returns when the
// process is gone and everything it wrote was read, and reports whether it was the
// signal that ended it.
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

// wantSuccess waits for the end of the process and wants exit code 0.
func (r *runner) wantSuccess(ctx context.Context) error {
	got, err := r.exit(ctx)
	if err != nil {
		return err
	}
	if got != 0 {
		return r.complaint(fmt.Sprintf("ended with exit status %d instead of 0", got))
	}
	return nil
}

// firstChunk waits for the first chunk that this runner commits of a job.
func (r *runner) firstChunk(ctx context.Context, job int64) (chunk, error) {
	for {
		ended := r.gone() // before the look, which then sees everything it wrote
		c, more := r.log.first(job)
		if more == nil {
			return c, nil
		}
		if ended {
			return chunk{}, r.complaint(fmt.Sprintf("ended without a chunk of job %d", job))
		}
		select {
		case <-more:
		case <-r.ended:
		case <-ctx.Done():
			return chunk{}, fmt.Errorf("wait for a chunk of job %d from %s: %w", job, r.name, context.Cause(ctx))
		}
	}
}

// complaint is an error with the end of the runner's output.
func (r *runner) complaint(what string) error {
	text := r.name + " " + what
	if lines := r.log.end(); len(lines) > 0 {
		text += "; it said last:\n  " + strings.Join(lines, "\n  ")
	}
	return errors.New(text)
}
