package main

import (
	"bufio"
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

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/pgserver"
)

var errNoPgbench = errors.New("pgbench is not there; it comes with the PostgreSQL server's packages (on some systems with postgresql-contrib)")

// pgbench is PostgreSQL's own load generator, set on the bench's database.
type pgbench struct {
	program string
	conn    *pgx.ConnConfig
	dir     string // where its logs go
}

// newPgbench looks beside the server's programs, then on PATH, and makes pgbench's tables.
func (e *env) newPgbench(ctx context.Context) (p pgbench, err error) {
	p = pgbench{program: "pgbench", conn: e.pool.Config().ConnConfig}
	if in, err := pgserver.Find(ctx); err == nil {
		if beside, err := exec.LookPath(filepath.Join(in.BinDir, p.program)); err == nil {
			p.program = beside
		}
	}
	if _, err := exec.LookPath(p.program); err != nil {
		return p, errNoPgbench
	}
	if p.dir, err = e.tempDir("belfry-pgbench-"); err != nil {
		return p, err
	}
	scale := pgbenchScale
	if e.quick {
		scale = 1
	}
	e.say("  pgbench: %d accounts", scale*100_000)
	out, err := p.command(ctx, "--initialize", "--quiet", "--scale", strconv.Itoa(scale)).CombinedOutput()
	if err != nil {
		return p, fmt.Errorf("pgbench --initialize: %w: %s", err, bytes.TrimSpace(out))
	}
	return p, nil
}

// command runs pgbench in its directory. The password, if there is one, is not among the
// arguments, which every user of the machine can read.
func (p pgbench) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.program, args...) //nolint:gosec // found above
	cmd.Dir = p.dir
	ssl := "disable"
	if p.conn.TLSConfig != nil {
		ssl = "require"
	}
	cmd.Env = append(os.Environ(),
		"PGHOST="+p.conn.Host, "PGPORT="+strconv.Itoa(int(p.conn.Port)), "PGUSER="+p.conn.User,
		"PGPASSWORD="+p.conn.Password, "PGDATABASE="+p.conn.Database, "PGSSLMODE="+ssl,
	)
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
// latencies, in ms, of the transactions that ended while act ran.
func (p pgbench) during(ctx context.Context, args []string, warmUp, act func(context.Context) error) (ms []float64, err error) {
	dir, err := os.MkdirTemp(p.dir, "log-")
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	cmd := p.command(running, append([]string{"--no-vacuum", "--protocol", "prepared", "--log", "--time", strconv.Itoa(int(deadline.Seconds()))}, args...)...)
	cmd.Dir = dir
	output := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		stop()
		return nil, fmt.Errorf("start pgbench: %w", err)
	}
	acting, ended := context.WithCancelCause(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		ended(fmt.Errorf("pgbench ended by itself: %w: %s", cmd.Wait(), bytes.TrimSpace(output.Bytes())))
	}()
	defer func() {
		if cause := context.Cause(acting); cause != nil {
			err = cause // why act could not go on; an interrupt reaches pgbench, too
		}
		stop()
		<-gone // how it ended, interrupted as it is, says nothing
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	if err := warmUp(acting); err != nil {
		return nil, err
	}
	from := time.Now()
	if err := act(acting); err != nil {
		return nil, err
	}
	to := time.Now()
	for complete := false; !complete && time.Since(to) < logPatience; {
		if err := pause(acting, logPause); err != nil {
			return nil, err
		}
		if ms, complete, err = readLogs(dir, from, to); err != nil {
			return nil, err
		}
	}
	if len(ms) == 0 {
		return nil, errors.New("pgbench logged no transaction")
	}
	return ms, nil
}

// readLogs reads the logs of one pgbench, one file per thread: lines of client, transaction,
// latency in µs, script, and the end in seconds and µs; more may follow. It returns the
// latencies, in ms, of the transactions that ended from one moment on and before another,
// and whether each thread has logged one that ended later. A line that is cut is not read.
func readLogs(dir string, from, to time.Time) (ms []float64, complete bool, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "pgbench_log.*"))
	complete = len(files) > 0
	for _, name := range files {
		text, errRead := os.ReadFile(name)
		if errRead != nil {
			return nil, false, errRead
		}
		later := false
		for lines := bufio.NewReader(bytes.NewReader(text)); ; {
			line, errEnd := lines.ReadString('\n')
			if errEnd != nil {
				break
			}
			var n [6]int64
			fields := strings.Fields(line)
			for i := range n {
				if len(fields) < len(n) {
					return nil, false, fmt.Errorf("pgbench logged %q", line)
				}
				if n[i], err = strconv.ParseInt(fields[i], 10, 64); err != nil {
					return nil, false, fmt.Errorf("pgbench logged %q: %w", line, err)
				}
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
