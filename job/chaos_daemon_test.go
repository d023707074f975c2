package job_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// daemonMain is Runner.Run in a process of its own, until that is killed. It prints
// "ready" when its connection stands and then each event of its runs: the kind, the
// job's id, and the fence in the row it knows. Its log goes to standard error.
func daemonMain(spec childSpec) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, spec.DSN)
	if err != nil {
		return fail(err)
	}
	defer pool.Close()
	who, err := channels.New(channels.DefaultConfig())
	if err != nil {
		return fail(err)
	}
	log := zerolog.New(os.Stderr).Level(zerolog.InfoLevel).With().Timestamp().Str("run", spec.Config.Name).Logger()
	r, err := job.NewRunner(pool, spec.Config, outbox.Types(who), job.WithLogger(log), job.WithObserver(func(p job.Progress) {
		fmt.Fprintln(os.Stdout, p.Event, p.Job.ID, p.Job.Fence)
	}))
	if err != nil {
		return fail(err)
	}
	for began := time.Now(); ; { // a pooler says for a while that the server it lost is away
		err := pool.Ping(ctx)
		if err == nil {
			break
		}
		if time.Since(began) > patience/2 {
			return fail(err)
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // the test has gone
	}()
	fmt.Fprintln(os.Stdout, "ready")
	if err := r.Run(ctx); err != nil {
		return fail(err)
	}
	return 0
}

// daemon is a running daemonMain.
type daemon struct {
	name    string
	cmd     *exec.Cmd
	log     string // file of its standard error
	started time.Time
	stopped bool          // by SIGSTOP
	ended   chan struct{} // its output is read up to its end

	mu   sync.Mutex
	said []string
}

// spawn starts one over a DSN, the database's own or a pooler's, and waits until
// it is connected.
func (b *bundle) spawn(t *testing.T, dsn string, c job.Config) *daemon {
	t.Helper()
	p := b.launch(t, dsn, c)
	p.await(t, "ready")
	return p
}

// launch does not wait.
func (b *bundle) launch(t *testing.T, dsn string, c job.Config) *daemon {
	t.Helper()
	text, err := json.Marshal(childSpec{DSN: dsn, Config: c, Daemon: true})
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	logFile, err := os.CreateTemp(t.TempDir(), "daemon-*.log")
	require.NoError(t, err)
	p := &daemon{name: c.Name, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), self), log: logFile.Name(), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = logFile
	_, err = p.cmd.StdinPipe() // closed with this process
	require.NoError(t, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.started = time.Now()
	require.NoError(t, p.cmd.Start())
	require.NoError(t, logFile.Close())
	go func() {
		defer close(p.ended)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			p.mu.Lock()
			p.said = append(p.said, scanner.Text())
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		lived := !p.dead()
		p.kill(t)
		if lived && t.Failed() {
			text, err := os.ReadFile(p.log)
			require.NoError(t, err)
			const most = 6 << 10
			t.Logf("%s logged:\n%s", p.name, text[max(0, len(text)-most):])
		}
	})
	return p
}

func (p *daemon) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
	if s == syscall.SIGSTOP {
		p.stopped = true
	} else if s == syscall.SIGCONT {
		p.stopped = false
	}
}

// dead reports whether it was killed, and reaped.
func (p *daemon) dead() bool { return p.cmd.ProcessState != nil }

// kill is kill -9; it returns when the process is gone.
func (p *daemon) kill(t *testing.T) {
	t.Helper()
	if p.dead() {
		return
	}
	require.NoError(t, p.cmd.Process.Kill())
	<-p.ended
	require.Error(t, p.cmd.Wait())
}

// lines is how many lines it has said that are equal to text, or begin with it and
// a blank.
func (p *daemon) lines(text string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.said {
		if line == text || strings.HasPrefix(line, text+" ") {
			n++
		}
	}
	return n
}

// await waits until it has said the text.
func (p *daemon) await(t *testing.T, text string) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); p.lines(text) == 0; <-tick.C {
		if time.Since(began) > patience {
			log, _ := os.ReadFile(p.log)
			require.FailNow(t, "the daemon never said "+text, string(log))
		}
	}
}

// count is a number of repetitions: as the environment says, or few.
func count(t *testing.T, env string, few int) int {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, env)
	return n
}

// rest lets a random part of a schedule pass; it waits for nothing.
func rest(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
