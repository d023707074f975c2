package main

import (
	"bufio"
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
)

// childEnv marks a process as a runner or a relay of the bench; its value is a childSpec.
const childEnv = "BELFRY_BENCH_CHILD"

// childSpec tells a runner process what to run, or a relay process.
type childSpec struct {
	DSN       string     `json:"dsn"`
	Relation  string     `json:"relation"`
	Runner    job.Config `json:"runner"`
	Transport string     `json:"transport,omitempty"` // of a relay; "": it is a runner
	Servers   servers    `json:"servers,omitzero"`    // of the transport
}

// runAsChild runs what is due and exits, if this process was started as a runner, or delivers,
// as a relay; main and TestMain call it first.
func runAsChild() {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // as cmd/belfry does
	}
	if err := runChild(text, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "runner process: %v\n", err)
		os.Exit(1) //revive:disable-line:deep-exit // this call is the whole of such a process
	}
	os.Exit(0) //revive:disable-line:deep-exit // this call is the whole of such a process
}

// runChild writes a line for each committed chunk, with how many they are and 0, and a last
// one with the process's peak of resident memory instead of the 0. A relay is deliverForParent.
func runChild(text string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	e := &env{failure: &failure{}}
	return e.attempt(func() {
		var spec childSpec
		err := json.Unmarshal([]byte(text), &spec)
		e.demand(err == nil, "%s: %w", childEnv, err)
		e.store, err = channels.New(channels.Config{Relation: spec.Relation})
		e.check(err)
		e.pool, err = pgxpool.New(ctx, spec.DSN)
		e.check(err)
		defer e.pool.Close()
		if spec.Transport != "" {
			e.deliverForParent(ctx, spec, in, out)
			return
		}
		e.runDue(ctx, spec.Runner, job.WithObserver(func(p job.Progress) {
			if p.Event == "chunk" {
				fmt.Fprintln(out, p.Job.Chunks, 0) // when nobody reads, SIGPIPE ends the process
			}
		}))
		peak, err := peakResident()
		e.check(err)
		fmt.Fprintln(out, 0, peak)
	})
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

// runApart runs what is due in a process of its own and returns its peak of resident memory
// in bytes, 0 when it did not come to its end. seen, unless nil, is called with each chunk that
// the process has committed, and may kill it.
func (e *env) runApart(ctx context.Context, relation string, config job.Config, seen func(chunks int64, p *os.Process)) (peak int64, err error) {
	self, err := os.Executable()
	e.check(err)
	spec, err := json.Marshal(childSpec{DSN: e.dsn, Relation: relation, Runner: config})
	e.check(err)
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(spec))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	e.check(err)
	e.check(cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait() // it ends here only when seen has failed
	}()
	for lines := bufio.NewScanner(out); peak == 0 && lines.Scan(); {
		var chunks int64
		_, err := fmt.Sscan(lines.Text(), &chunks, &peak)
		e.check(err)
		if peak == 0 && seen != nil {
			seen(chunks, cmd.Process)
		}
	}
	if err := cmd.Wait(); err != nil {
		return peak, fmt.Errorf("runner process: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return peak, nil
}
