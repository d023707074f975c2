package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/pgserver"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// load compares the latencies of pgbench alone with those beside four INSERT … SELECT
// at once, beside a job without health checks and beside a job with them.
func (e *env) load() {
	program := "pgbench"
	if in, err := pgserver.Find(e.Context()); err == nil {
		if beside, err := exec.LookPath(filepath.Join(in.BinDir, program)); err == nil {
			program = beside
		}
	}
	if _, err := exec.LookPath(program); err != nil {
		e.Skip("pgbench is not installed; it comes with the PostgreSQL server")
	}
	out, err := e.pgbench(program, "--initialize", "--quiet", "--scale", strconv.Itoa(size(20, 1))).CombinedOutput()
	require.NoError(e, err, string(out))
	e.run("tpcb", func(e *env) { e.foreground(program, "--rate", "1000") })
	e.run("select", func(e *env) { e.foreground(program, "--rate", "4000", "--select-only") })
	e.run("saturating", func(e *env) { e.foreground(program) })
	e.run("none", func(e *env) {
		speeds := sideBySide(
			func() float64 { return e.runEveryone(outbox.TypeInbox, job.DefaultConfig()).speed() },
			func() float64 { return e.runEveryone(outbox.TypeInbox, ungoverned()).speed() })
		e.report(speeds[0]/speeds[1], "governed-to-ungoverned", atLeast(0.95))
	})
}

// pgbench returns a command in a directory of its own. The environment has the
// password, because every user of the machine can read arguments.
func (e *env) pgbench(program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(e.Context(), program, args...)
	cmd.Dir = e.TempDir()
	c, ssl := e.pool.Config().ConnConfig, "disable"
	if c.TLSConfig != nil {
		ssl = "require"
	}
	cmd.Env = append(os.Environ(), "PGHOST="+c.Host, "PGPORT="+strconv.Itoa(int(c.Port)), "PGUSER="+c.User,
		"PGPASSWORD="+c.Password, "PGDATABASE="+c.Database, "PGSSLMODE="+ssl)
	return cmd
}

// foreground measures one kind of pgbench beside each kind of bulk work.
func (e *env) foreground(program string, args ...string) {
	latencies := func(beside func(ctx context.Context) (rows int64)) (p95, p99, speed float64) {
		ms, rows := e.beside(program, args, beside)
		return percentile(ms, 95), percentile(ms, 99), perSecond(rows, besideTime())
	}
	alone95, _, _ := latencies(func(ctx context.Context) int64 { <-ctx.Done(); return 0 })
	_, immediate99, _ := latencies(func(ctx context.Context) int64 { return e.immediate(ctx) })
	free95, _, _ := latencies(func(ctx context.Context) int64 { return e.jobs(ctx, ungoverned()) })
	governed95, governed99, speed := latencies(func(ctx context.Context) int64 { return e.jobs(ctx, job.DefaultConfig()) })
	e.report(alone95, "alone-p95-ms")
	e.report(free95/alone95, "ungoverned-p95-to-alone")
	e.report(governed95/alone95, "governed-p95-to-alone", atMost(1.25))
	e.report(governed99/immediate99, "governed-p99-to-immediate", atMost(1.0/50))
	e.report(speed, "governed-rows/s", atLeast(50_000))
}

// besideTime is the duration of one measurement.
func besideTime() time.Duration { return size(10*time.Second, 2*time.Second) }

// beside runs pgbench with a log of every transaction and, after a second, the
// bulk work. It returns the latencies during the bulk work.
func (e *env) beside(program string, args []string, work func(ctx context.Context) (rows int64)) (ms []float64, rows int64) {
	e.clear()
	cmd := e.pgbench(program, append([]string{"--client", "4", "--jobs", "1", "--protocol", "prepared", "--log",
		"--time", strconv.Itoa(1 + int(besideTime().Seconds()))}, args...)...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(e, cmd.Start())
	from := time.Now().Add(time.Second)
	ctx, cancel := context.WithDeadline(e.Context(), from.Add(besideTime()))
	defer cancel()
	select {
	case <-time.After(time.Until(from)):
	case <-ctx.Done():
	}
	rows = work(ctx)
	require.NoError(e, cmd.Wait(), output.String())
	logs, err := filepath.Glob(filepath.Join(cmd.Dir, "pgbench_log.*"))
	require.NoError(e, err)
	for _, name := range logs {
		text, err := os.ReadFile(name)
		require.NoError(e, err)
		for line := range strings.Lines(string(text)) {
			var client, transaction, micros, script, seconds int64
			_, err := fmt.Sscan(line, &client, &transaction, &micros, &script, &seconds)
			require.NoError(e, err, line)
			if seconds > from.Unix() {
				ms = append(ms, float64(micros)/1000)
			}
		}
	}
	return ms, rows
}

// immediate serves four requests at once, one statement each, until ctx ends.
func (e *env) immediate(ctx context.Context) (rows int64) {
	for id := int64(1); ctx.Err() == nil; id += 4 {
		requests, ctx := errgroup.WithContext(ctx)
		for i := range int64(4) {
			requests.Go(func() error {
				_, err := e.pool.Exec(ctx, queries.notificationInsertAll, pgx.StrictNamedArgs{"job_id": id + i})
				return err
			})
		}
		if err := requests.Wait(); ctx.Err() == nil {
			require.NoError(e, err)
			rows += 4 * e.active
		}
	}
	return rows
}

// jobs runs inbox jobs until ctx ends and returns the rows.
func (e *env) jobs(ctx context.Context, config job.Config) (rows int64) {
	store := job.NewStore(e.pool)
	for ctx.Err() == nil {
		id := e.enqueue(everyone(outbox.TypeInbox))
		e.runDue(ctx, config)
		j, err := store.Get(e.Context(), id)
		if err == nil && j.Status != job.Processed {
			if _, err = store.Abort(e.Context(), job.One(id), job.Act{Actor: "bench", Reason: "the measurement has ended"}); err == nil {
				j, err = store.Get(e.Context(), id)
			}
		}
		require.NoError(e, err)
		e.requireRows(id, j.RowsWritten)
		rows += j.RowsWritten
	}
	return rows
}
