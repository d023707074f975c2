package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"

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

// Child must be called by main right after pgserver.Watchdog, and by TestMain in
// tests that run benchmarks: memory and takeover start the running executable
// again as a runner. In such a process it does not return: it runs what is due and
// exits 0, or 1 on an error. In every other process it returns at once.
func Child() {
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
	pool, err := pgxpool.New(ctx, spec.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := channels.New(channels.Config{Relation: spec.Relation})
	if err != nil {
		return err
	}
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
	if err != nil {
		return err
	}
	return errors.Join(broken, lines.Encode(childReport{Ended: true, PeakBytes: peak}))
}

// child is a runner process.
type child struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr *strings.Builder
}

// startChild starts a runner process. It is killed when ctx ends; the caller waits
// for it in any case.
func (e *env) startChild(ctx context.Context, relation string, config job.Config) (*child, error) {
	if os.Getenv(childEnv) != "" {
		// Otherwise a main that forgets Child would start processes without end.
		return nil, errors.New("start runner process: main has to call bench.Child first")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(childSpec{DSN: e.dsn, Relation: relation, Runner: config})
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self), stderr: &strings.Builder{}}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(spec))
	c.cmd.Stderr = c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.lines = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start runner process: %w", err)
	}
	return c, nil
}

// next returns the next line; io.EOF after the last.
func (c *child) next() (childReport, error) {
	var line childReport
	if !c.lines.Scan() {
		return line, errors.Join(io.EOF, c.lines.Err())
	}
	if err := json.Unmarshal(c.lines.Bytes(), &line); err != nil {
		return line, fmt.Errorf("runner process wrote %q: %w", c.lines.Text(), err)
	}
	return line, nil
}

// end reads to the end and waits for the process; the last line it wrote counts.
func (c *child) end() (last childReport, err error) {
	for {
		line, lineErr := c.next()
		if lineErr != nil {
			break
		}
		last = line
	}
	if err := c.cmd.Wait(); err != nil {
		return last, fmt.Errorf("runner process: %w: %s", err, strings.TrimSpace(c.stderr.String()))
	}
	return last, nil
}
