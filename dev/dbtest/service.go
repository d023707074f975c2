package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/child"
	"github.com/belfryhq/belfry/internal/pgserver"
)

const (
	// startTimeout limits the time until a started server answers.
	startTimeout = 30 * time.Second
	// answerTimeout limits one request.
	answerTimeout = 2 * time.Second
	// stopTimeout limits the time until a killed server has ended.
	stopTimeout = 10 * time.Second
)

// service is a server of one test in addition to PostgreSQL: Redis (or Valkey), NATS or PgBouncer.
// Any goroutine can query, stop, freeze and restart it. Package child runs the process; service has
// its command line and its readiness check.
//
//	func TestCache_ServerGone(t *testing.T) {
//		t.Parallel()
//		redis := dbtest.StartRedis(t)
//		… redis.URL …
//		require.NoError(t, redis.Stop())
//	}
//
// # States
//
//	          StartRedis, StartPgBouncer
//	                      │
//	                      ▼   ── Pause ──▶
//	stopped ── Start ──▶ running          frozen
//	   ▲                  │   ◀─ Continue ─  │
//	   └───────── Stop ───┴──────────────────┘
//
// # Invariants
//
//  1. After Start has returned, exactly this process answers at the address.
//  2. After Pause has returned, the server runs no instruction until Continue.
//     The kernel still accepts connections and bytes for it.
//  3. Stop is SIGKILL: a crash. Clients get no message, sockets stay, and a Redis
//     starts again empty.
//  4. A server ends with its test, and on Linux with the test's process.
//  5. A restarted server has the same address.
//
// # Failure
//
// Without the program the test is skipped by name; .ci/install installs
// it. A server that ended by itself fails its test, which shows the end of the
// server's log.
//
// # Limits
//
// When the test's process is killed, a directory of a few kilobytes stays in the
// temporary directory; on systems other than Linux the server stays too. Another
// listener may take the port of a stopped Redis; ports are below the range of
// outgoing connections.
type service struct {
	program    string
	args       []string
	dir        string              // its own, and its working directory
	credential *syscall.Credential // nil: as the test itself
	ask        func(ctx context.Context, pid int) error

	mu      sync.Mutex
	current *child.Process // nil while stopped
}

// makeDir creates a directory for one server, owned by the account of the server. The path of
// t.TempDir is too long for a socket, and closed to other accounts.
func makeDir(t testing.TB, name string, credential *syscall.Credential) string {
	t.Helper()
	root, err := pgserver.ReachableDir(os.TempDir())
	if err != nil || root != os.TempDir() {
		root = "/tmp"
	}
	dir, err := os.MkdirTemp(root, "belfry-"+name+"-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	give(t, credential, dir)
	return dir
}

// give makes the account of the server the owner of path.
func give(t testing.TB, credential *syscall.Credential, path string) {
	t.Helper()
	if credential != nil {
		require.NoError(t, os.Chown(path, int(credential.Uid), int(credential.Gid)))
	}
}

// endWith stops the server when the test ends, and shows its log if that failed.
func (s *service) endWith(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("%v", err)
		}
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", filepath.Base(s.program), s.logTail())
		}
	})
}

// Start starts a stopped server and waits until it answers. It is an error if the
// server has not been stopped, or does not answer within 30 seconds.
func (s *service) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return fmt.Errorf("start %s: it was not stopped", s.program)
	}
	log, err := os.OpenFile(s.logPath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.program, err)
	}
	defer func() { _ = log.Close() }()        // the server writes to its own copy
	cmd := exec.Command(s.program, s.args...) //nolint:noctx // ended by Stop, or with this process
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.credential}
	p, err := child.Start(cmd, syscall.SIGKILL) // SIGKILL also ends a frozen server
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = child.Await(ctx, p, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		return s.ask(ctx, p.PID())
	})
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w\nthe end of its log:\n%s", s.program, err, s.logTail()), kill(p))
	}
	s.current = p
	return nil
}

func kill(p *child.Process) error {
	return p.Stop(child.Step{Signal: syscall.SIGKILL, Wait: stopTimeout})
}

// Stop kills the server and waits until it has ended. It returns no error for a stopped server, and
// an error for a server that had ended by itself.
func (s *service) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.current
	s.current = nil
	if p == nil {
		return nil
	}
	if err := kill(p); err != nil {
		return fmt.Errorf("stop %s: %w", s.program, err)
	}
	if !p.EndedBy(syscall.SIGKILL) {
		return fmt.Errorf("%s had ended by itself: %w\nthe end of its log:\n%s", s.program, p.Err(), s.logTail())
	}
	return nil
}

// Pause freezes the server with SIGSTOP and returns when it stands still.
func (s *service) Pause() error { return s.freeze("pause", true) }

// Continue resumes a frozen server.
func (s *service) Continue() error { return s.freeze("continue", false) }

func (s *service) freeze(name string, still bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return fmt.Errorf("%s %s: it does not run", name, s.program)
	}
	if err := s.current.Freeze(still); err != nil {
		return fmt.Errorf("%s %s: %w", name, s.program, err)
	}
	return nil
}

// PID returns the process id of the running server, 0 while it is stopped.
func (s *service) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return 0
	}
	return s.current.PID()
}

func (s *service) logPath() string { return filepath.Join(s.dir, "server.log") }

func (s *service) logTail() string { return child.Tail(s.logPath(), 0) }
