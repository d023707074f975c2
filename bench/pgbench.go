package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/pgserver"
)

// pgbench is PostgreSQL's own load generator, set on the bench's database.
type pgbench struct {
	*env

	program string
	home    string // where it works
}

// newPgbench looks beside the server's programs, then on PATH, and makes pgbench's tables.
// nil: it is not there.
func (e *env) newPgbench(ctx context.Context) *pgbench {
	p := &pgbench{env: e, program: "pgbench"}
	if in, err := pgserver.Find(ctx); err == nil {
		if beside, err := exec.LookPath(filepath.Join(in.BinDir, p.program)); err == nil {
			p.program = beside
		}
	}
	if _, err := exec.LookPath(p.program); err != nil {
		return nil
	}
	scale := pgbenchScale
	if e.quick {
		scale = 1
	}
	e.say("  pgbench: %d accounts", scale*100_000)
	p.home = e.tempDir("belfry-pgbench-")
	out, err := p.command(ctx, p.home, "--initialize", "--quiet", "--scale", strconv.Itoa(scale)).CombinedOutput()
	e.demand(err == nil, "pgbench --initialize: %w: %s", err, bytes.TrimSpace(out))
	return p
}

// command runs pgbench in a directory. The password, if there is one, is not among the
// arguments, which every user of the machine can read.
func (p *pgbench) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.program, args...)
	cmd.Dir = dir
	c, ssl := p.pool.Config().ConnConfig, "disable"
	if c.TLSConfig != nil {
		ssl = "require"
	}
	cmd.Env = append(os.Environ(), "PGHOST="+c.Host, "PGPORT="+strconv.Itoa(int(c.Port)), "PGUSER="+c.User,
		"PGPASSWORD="+c.Password, "PGDATABASE="+c.Database, "PGSSLMODE="+ssl)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it tells its backends to end
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// pgbench writes its log in blocks, and the block that it is filling when it is ended is
// lost: it goes on until each of its threads has logged a transaction from after what is
// measured. logPause is between two looks; on a server that does nothing the wait is over
// after logPatience.
const (
	logPause    = 100 * time.Millisecond
	logPatience = 30 * time.Second
)

// during runs pgbench with a log of every transaction, warms up, acts, and returns the
// latencies, in ms, of the transactions that ended while act ran, and how long that was.
func (p *pgbench) during(ctx context.Context, args []string, warmUp, act func(context.Context)) (ms []float64, took time.Duration) {
	dir, err := os.MkdirTemp(p.home, "log-")
	p.check(err)
	ctx, end := context.WithCancelCause(ctx)
	cmd := p.command(ctx, dir, append([]string{"--no-vacuum", "--protocol", "prepared", "--log", "--time", strconv.Itoa(int(deadline.Seconds()))}, args...)...)
	output := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = output, output
	p.check(cmd.Start())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		end(fmt.Errorf("pgbench ended by itself: %w: %s", cmd.Wait(), bytes.TrimSpace(output.Bytes())))
	}()
	defer func() {
		cause := context.Cause(ctx) // why act could not go on; an interrupt reaches pgbench, too
		if cause != nil {
			p.err = nil
		}
		end(nil)
		<-gone // how it ended, interrupted as it is, says nothing
		p.check(errors.Join(cause, os.RemoveAll(dir)))
	}()
	warmUp(ctx)
	from := time.Now()
	act(ctx)
	to := time.Now()
	for complete := false; !complete && time.Since(to) < logPatience; {
		p.check(lifecycle.Pause(ctx, logPause))
		ms, complete, err = readLogs(dir, from, to)
		p.check(err)
	}
	p.demand(len(ms) > 0, "pgbench logged no transaction")
	return ms, to.Sub(from)
}

// readLogs reads the logs of one pgbench, one file per thread: lines of client, transaction,
// latency in µs, script, and the end in seconds and µs; more may follow. It returns the
// latencies, in ms, of the transactions that ended from one moment on and before another,
// and whether each thread has logged one that ended later. A line that is cut is not read.
func readLogs(dir string, from, to time.Time) (ms []float64, complete bool, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "pgbench_log.*"))
	complete = len(files) > 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, false, err
		}
		later := false
		for line := range strings.Lines(string(text)) {
			if !strings.HasSuffix(line, "\n") {
				break
			}
			var n [6]int64
			if _, err := fmt.Sscan(line, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5]); err != nil {
				return nil, false, fmt.Errorf("pgbench logged %q: %w", line, err)
			}
			end := time.Unix(n[4], n[5]*int64(time.Microsecond))
			if !end.Before(from) && end.Before(to) {
				ms = append(ms, float64(n[2])/1000)
			}
			later = later || !end.Before(to)
		}
		complete = complete && later
	}
	return ms, complete, err
}
