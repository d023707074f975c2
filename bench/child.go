package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// childEnv marks a process as a runner of the bench; its value is a childSpec.
const childEnv = "BELFRY_BENCH_CHILD"

// childSpec tells a runner process what to run.
type childSpec struct {
	DSN      string     `json:"dsn"`
	Relation string     `json:"relation"`
	Runner   job.Config `json:"runner"`
}

// childReport is a line on a runner process's standard output.
type childReport struct {
	Chunks    int64 `json:"chunks,omitempty"`     // committed so far
	Ended     bool  `json:"ended,omitempty"`      // the last line
	PeakBytes int64 `json:"peak_bytes,omitempty"` // resident memory, in the last line
}

// runAsChild runs what is due and exits, if this process was started as a runner; main and
// TestMain call it first.
func runAsChild() {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // as cmd/belfry does
	}
	if err := runChild(text, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "runner process: %v\n", err)
		os.Exit(1) //revive:disable-line:deep-exit // this call is the whole of such a process
	}
	os.Exit(0) //revive:disable-line:deep-exit // this call is the whole of such a process
}

func runChild(text string, out io.Writer) error {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return fmt.Errorf("%s: %w", childEnv, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	store, err := channels.New(channels.Config{Relation: spec.Relation})
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, spec.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	lines := json.NewEncoder(out)
	var broken error
	runner, err := job.NewRunner(pool, spec.Runner, outbox.Types(store), job.WithObserver(func(p job.Progress) {
		if p.Event == "chunk" {
			broken = errors.Join(broken, lines.Encode(childReport{Chunks: p.Job.Chunks}))
		}
	}))
	if err != nil {
		return err
	}
	if _, err := runner.RunDue(ctx); err != nil {
		return err
	}
	peak, err := peakResident()
	return errors.Join(broken, err, lines.Encode(childReport{Ended: true, PeakBytes: peak}))
}

// peakResident is the most memory this process ever had resident, in bytes. Linux hands
// ru_maxrss of the parent on through fork and exec: a runner started by a process that once
// held 300 MiB would report 300 MiB. VmHWM is the process's own.
func peakResident() (kept int64, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if _, value, ok := strings.Cut(string(status), "VmHWM:"); ok {
		_, err = fmt.Sscanf(value, "%d kB", &kept)
		return kept << 10, err
	}
	if runtime.GOOS == "linux" {
		return 0, errors.Join(errors.New("/proc/self/status has no VmHWM"), err)
	}
	var usage syscall.Rusage // in bytes on macOS
	err = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Maxrss, err
}

// child is a runner process.
type child struct {
	cmd    *exec.Cmd
	lines  *json.Decoder
	stderr strings.Builder
}

// startChild starts a runner process. It is killed when ctx ends; the caller waits for it in
// any case.
func (e *env) startChild(ctx context.Context, relation string, config job.Config) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(childSpec{DSN: e.dsn, Relation: relation, Runner: config})
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(spec))
	c.cmd.Stderr = &c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.lines = json.NewDecoder(out)
	return c, c.cmd.Start()
}

var errMissedKill = errors.New("the job was done before its runner was killed")

// awaitChunks reads the process's lines until it has committed n chunks.
func (c *child) awaitChunks(n int64) error {
	for {
		var line childReport
		if err := c.lines.Decode(&line); err != nil {
			return fmt.Errorf("runner process before chunk %d: %w", n, err)
		}
		if line.Ended {
			return errMissedKill
		}
		if line.Chunks >= n {
			return nil
		}
	}
}

// end reads to the end and waits for the process; the last line it wrote counts.
func (c *child) end() (last childReport, err error) {
	for line := last; c.lines.Decode(&line) == nil; line = (childReport{}) {
		last = line
	}
	if err := c.cmd.Wait(); err != nil {
		return last, fmt.Errorf("runner process: %w: %s", err, strings.TrimSpace(c.stderr.String()))
	}
	return last, nil
}
