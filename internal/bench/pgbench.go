package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/pgserver"
)

// errNoPgbench reports that this machine has no pgbench.
var errNoPgbench = errors.New("pgbench is not there; it comes with the PostgreSQL server's packages (on some systems with postgresql-contrib)")

// pgbench is PostgreSQL's own load generator, set on the bench's database.
type pgbench struct {
	program string
	conn    *pgx.ConnConfig
	dir     string // where its logs go
}

// findPgbench looks beside the server's programs, then on PATH.
func findPgbench(ctx context.Context) (string, error) {
	if in, err := pgserver.Find(ctx); err == nil {
		program := filepath.Join(in.BinDir, "pgbench")
		if _, err := exec.LookPath(program); err == nil {
			return program, nil
		}
	}
	program, err := exec.LookPath("pgbench")
	if err != nil {
		return "", errNoPgbench
	}
	return program, nil
}

// command runs pgbench in its directory. The password, if there is one, is not among
// the arguments, which every user of the machine can read.
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

// initialize makes pgbench's tables.
func (p pgbench) initialize(ctx context.Context, scale int) error {
	out, err := p.command(ctx, "--initialize", "--quiet", "--scale", strconv.Itoa(scale)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("pgbench --initialize: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// foreground is a running pgbench.
type foreground struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // once ended is closed
	output *bytes.Buffer
	dir    string
}

// start starts pgbench with a log of every transaction.
func (p pgbench) start(ctx context.Context, args []string) (*foreground, error) {
	dir, err := os.MkdirTemp(p.dir, "log-")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	all := append([]string{"--no-vacuum", "--protocol", "prepared", "--log", "--time", strconv.Itoa(int(deadline.Seconds()))}, args...)
	cmd := p.command(ctx, all...)
	cmd.Dir = dir
	f := &foreground{cancel: cancel, ended: make(chan struct{}), output: &bytes.Buffer{}, dir: dir}
	cmd.Stdout, cmd.Stderr = f.output, f.output
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start pgbench: %w", err)
	}
	go func() {
		defer close(f.ended)
		f.err = cmd.Wait()
	}()
	return f, nil
}

// pgbench writes its log in blocks, and the block that it is filling when it is ended is
// lost: it goes on until each of its threads has logged a transaction from after what is
// measured. logPause is between two looks; on a server that does nothing the wait is over
// after logPatience.
const (
	logPause    = 100 * time.Millisecond
	logPatience = 30 * time.Second
)

// kill ends pgbench; how it ends, interrupted as it is, says nothing.
func (f *foreground) kill() {
	f.cancel()
	<-f.ended
}

// stop ends pgbench and returns the transactions that ended within the window.
func (f *foreground) stop(ctx context.Context, from, to time.Time) (transactions, error) {
	for began := time.Now(); ; {
		select {
		case <-f.ended:
			f.cancel()
			if ctx.Err() != nil { // an interrupt reaches pgbench, too
				return transactions{}, context.Cause(ctx)
			}
			return transactions{}, fmt.Errorf("pgbench ended by itself: %w: %s", f.err, bytes.TrimSpace(f.output.Bytes()))
		case <-ctx.Done():
			f.kill()
			return transactions{}, context.Cause(ctx)
		case <-time.After(logPause):
		}
		all, err := loggedSince(f.dir, to)
		if err != nil {
			f.kill()
			return transactions{}, err
		}
		if all || time.Since(began) > logPatience {
			f.kill()
			return readLogs(f.dir, from, to)
		}
	}
}

// loggedSince reports whether each log of one pgbench has a transaction that ended at t or
// later.
func loggedSince(dir string, t time.Time) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "pgbench_log.*"))
	for _, name := range files {
		var later transactions
		if err := later.readFile(name, t, t.Add(time.Hour)); err != nil {
			return false, err
		}
		if len(later.ms) == 0 {
			return false, nil
		}
	}
	return len(files) > 0, err
}

// transactions are what pgbench logged in a window.
type transactions struct {
	ms     []float64 // latency of each, from when it was due where there is a rate
	window time.Duration
}

func (t transactions) perSecond() float64 { return perSecond(int64(len(t.ms)), t.window) }

// readLogs reads the logs of one pgbench, one file per thread.
func readLogs(dir string, from, to time.Time) (transactions, error) {
	t := transactions{window: to.Sub(from)}
	files, err := filepath.Glob(filepath.Join(dir, "pgbench_log.*"))
	if err != nil {
		return t, err
	}
	for _, name := range files {
		if err := t.readFile(name, from, to); err != nil {
			return t, err
		}
	}
	if len(t.ms) == 0 {
		return t, errors.New("pgbench logged no transaction")
	}
	return t, os.RemoveAll(dir)
}

func (t *transactions) readFile(name string, from, to time.Time) (err error) {
	file, err := os.Open(name) //nolint:gosec // of the bench's own directory
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return t.read(file, from, to)
}

// read reads lines of client, transaction, latency in µs, script, and the end in
// seconds and µs; more may follow. The last line may be cut.
func (t *transactions) read(r io.Reader, from, to time.Time) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		fields := strings.Fields(line)
		if len(fields) < 6 {
			return fmt.Errorf("pgbench logged %q", line)
		}
		var numbers [6]int64
		for i := range numbers {
			if numbers[i], err = strconv.ParseInt(fields[i], 10, 64); err != nil {
				return fmt.Errorf("pgbench logged %q: %w", line, err)
			}
		}
		end := time.Unix(numbers[4], numbers[5]*int64(time.Microsecond))
		if !end.Before(from) && end.Before(to) {
			t.ms = append(t.ms, float64(numbers[2])/1000)
		}
	}
}
