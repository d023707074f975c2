package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// childEnv marks a process as a runner or relay of the benchmarks. Its value is a childSpec.
const childEnv = "BELFRY_BENCH_CHILD"

// childSpec configures a child process.
type childSpec struct {
	DSN       string
	Relation  string
	Transport string // of a relay; a runner has none
	Servers   servers
}

// child is a running child process. It writes one number per line.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startChild starts a process, which ends with ctx.
func (e *env) startChild(ctx context.Context, spec childSpec) *child {
	self, err := os.Executable()
	require.NoError(e, err)
	text, err := json.Marshal(spec)
	require.NoError(e, err)
	c := &child{cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.Stderr = os.Stderr
	c.in, err = c.cmd.StdinPipe()
	require.NoError(e, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(e, err)
	c.out = bufio.NewScanner(out)
	require.NoError(e, c.cmd.Start())
	return c
}

// next reads the child's next number; false if the child has closed its output.
func (c *child) next() (n int64, ok bool) {
	if !c.out.Scan() {
		return 0, false
	}
	_, err := fmt.Sscan(c.out.Text(), &n)
	return n, err == nil
}

// must returns the value, and ends a child process that has an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// runAsChild runs due jobs or delivers messages and exits if this process is a child.
func runAsChild() {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	ctx := context.Background()
	var spec childSpec
	must(0, json.Unmarshal([]byte(text), &spec))
	store := must(channels.New(channels.Config{Relation: spec.Relation}))
	pool := must(pgxpool.New(ctx, spec.DSN))
	if spec.Transport != "" {
		deliverAsChild(ctx, pool, store, spec)
	} else {
		runJobsAsChild(ctx, pool, store)
	}
	pool.Close()
	os.Exit(0) //nolint:revive // it ends like this
}

// runJobsAsChild runs the due jobs and writes the process's peak of resident memory in bytes.
func runJobsAsChild(ctx context.Context, pool *pgxpool.Pool, store *channels.Store) {
	debug.SetGCPercent(50) // like cmd/belfry
	must(must(job.NewRunner(pool, job.DefaultConfig(), outbox.Types(store))).RunDue(ctx))
	// VmHWM is the process's own peak. On Linux a child inherits its parent's ru_maxrss.
	_, value, _ := strings.Cut(string(must(os.ReadFile("/proc/self/status"))), "VmHWM:")
	var kib int64
	must(fmt.Sscanf(value, "%d kB", &kib))
	fmt.Fprintln(os.Stdout, kib<<10)
}

// deliverAsChild writes 0 when it is ready, delivers from the first line of its
// input until the input ends, and writes each increase of its count of sent messages.
func deliverAsChild(ctx context.Context, pool *pgxpool.Pool, store *channels.Store, spec childSpec) {
	debug.SetGCPercent(gcRelay)
	var broker outbox.Broker
	if open := spec.Servers.brokers()[spec.Transport]; open != nil {
		broker = must(open())
	}
	r := newRelay(pool, store, provider{}, calls, broker)
	fmt.Fprintln(os.Stdout, 0)
	input := bufio.NewScanner(os.Stdin)
	input.Scan()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		input.Scan()
		cancel()
	}()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for reported := int64(0); lifecycle.Pause(ctx, 2*time.Millisecond) == nil; {
		if sent := r.Stats().Sent; sent > reported {
			fmt.Fprintln(os.Stdout, sent-reported)
			reported = sent
		}
	}
	must(0, <-ended)
	if broker != nil {
		must(0, broker.Close())
	}
}

// memory compares the peak memory of runner processes with a tenth of the
// channels and with twice as many.
func (e *env) memory() {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		e.Skip("memory is read from /proc")
	}
	peaks := make(map[string]float64)
	for name, n := range map[string]int64{"small": e.size / 10, "large": e.size * 2} {
		relation := "public.channels_" + name
		for _, sql := range []string{queries.relationCreate, queries.relationFill} {
			_, err := e.pool.Exec(e.Context(), strings.ReplaceAll(sql, "{{relation}}", relation), pgx.NamedArgs{"n": n})
			require.NoError(e, err)
		}
		e.clear()
		id := e.enqueue(everyone(outbox.TypeInbox))
		c := e.startChild(e.Context(), childSpec{DSN: e.dsn, Relation: relation})
		peak, _ := c.next()
		require.NoError(e, c.cmd.Wait())
		e.requireRows(id, n)
		peaks[name] = float64(peak) / (1 << 20)
		e.report(peaks[name], name+"-MiB", atMost(64))
	}
	e.report(peaks["large"]/peaks["small"], "large-to-small", atMost(1.2))
}
