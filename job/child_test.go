package job_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// childEnv makes the test binary a runner process; its value is a childSpec.
const childEnv = "BELFRY_TEST_CHILD_RUNNER"

// pointCopying is a failpoint of the job type copying: COPY has begun, most of a
// chunk's rows are with the server, and the statement has not ended.
const pointCopying = "copying"

type childSpec struct {
	DSN    string
	Config job.Config
	Point  string // where it stops and says so
	Nth    int    // at the how manieth arrival; 0: nowhere
	Daemon bool   // see daemonMain
}

// childMain is a runner in a process of its own. At its point it prints "reached"
// and waits for a line on standard input; at its end it prints what it did as JSON.
func childMain(text string) int {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if spec.Daemon {
		return daemonMain(spec)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	pool, err := pgxpool.New(ctx, spec.DSN)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer pool.Close()
	who, err := channels.New(channels.DefaultConfig())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	lines := bufio.NewReader(os.Stdin)
	at := func(_ context.Context, point string) error {
		if point != spec.Point {
			return nil
		}
		if spec.Nth--; spec.Nth != 0 {
			return nil
		}
		fmt.Fprintln(os.Stdout, "reached")
		if _, err := lines.ReadString('\n'); err != nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // the test has gone
		}
		return nil
	}
	r, err := job.NewRunner(pool, spec.Config, append(outbox.Types(who), copying(who, at)), job.WithFailpoint(at))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	out, err := r.RunDue(ctx)
	for err != nil && len(out.Jobs) == 0 && ctx.Err() == nil { // a claim that took too long
		fmt.Fprintln(os.Stderr, err)
		out, err = r.RunDue(ctx)
	}
	if err != nil && len(out.Jobs) == 0 {
		return 1
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return 1
	}
	return 0
}

// copying is a job type whose COPY can be stopped in the middle.
func copying(who *channels.Store, at func(context.Context, string) error) job.Type {
	return job.NewType("copying", "of a test", job.RecipientIDs(who), job.WriterFunc[int64](
		func(ctx context.Context, tx pgx.Tx, j job.Job, ids []int64) (int64, error) {
			i := -1
			return tx.CopyFrom(ctx, pgx.Identifier{"belfry", "notifications"}, []string{"channel_id", "arrival"}, pgx.CopyFromFunc(func() ([]any, error) {
				if i++; i == len(ids) {
					return nil, nil
				}
				if i == len(ids)*9/10 {
					if err := at(ctx, pointCopying); err != nil {
						return nil, err
					}
				}
				return []any{ids[i], j.Arrival}, nil
			}))
		}))
}

// child is a running runner process.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // of standard output; closed at its end
	errs  dbtest.Buffer
	done  bool
}

func (b *bundle) child(t *testing.T, c job.Config, point string, nth int) *child {
	t.Helper()
	text, err := json.Marshal(childSpec{DSN: b.db.DSN, Config: c, Point: point, Nth: nth})
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	p := &child{cmd: exec.CommandContext(context.WithoutCancel(t.Context()), self), lines: make(chan string, 16)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = &p.errs
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		if !p.done {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		<-read
	})
	return p
}

// line is the next line the child prints; empty at its end.
func (p *child) line(t *testing.T) string {
	t.Helper()
	select {
	case text := <-p.lines:
		return text
	case <-time.After(patience):
		require.FailNow(t, "the child says nothing", p.errs.String())
		return ""
	}
}

func (p *child) await(t *testing.T) {
	t.Helper()
	require.Equal(t, "reached", p.line(t), p.errs.String())
}

func (p *child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// kill is kill -9, and waits until the process is gone.
func (p *child) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	for range p.lines {
		continue // up to its end
	}
	err := p.cmd.Wait()
	p.done = true
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit) && !exit.Exited(), "%v", err)
}

// proceed lets the child go on from its point.
func (p *child) proceed(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(p.stdin, "go\n")
	require.NoError(t, err)
}

// end waits for the child's ordinary end and returns what it did.
func (p *child) end(t *testing.T) (out job.Outcome) {
	t.Helper()
	text := p.line(t)
	for p.line(t) != "" {
		continue // up to its end
	}
	require.NoError(t, p.cmd.Wait(), p.errs.String())
	p.done = true
	require.NoError(t, json.Unmarshal([]byte(text), &out), text)
	return out
}
