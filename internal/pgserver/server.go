package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/db"
)

// ErrClosed reports the use of a Server after Close.
var ErrClosed = errors.New("database server: already closed")

// StopMode is how Stop ends a server.
type StopMode string

// The two ways to stop a server.
const (
	Fast      StopMode = "fast"      // roll open transactions back, write a checkpoint
	Immediate StopMode = "immediate" // end like a crash: the next start recovers from the log
)

// Server is one user of a private server. The server runs at least until Close,
// unless it crashes or is stopped with Stop. All methods may be called
// concurrently; Close, Start and Stop of one Server exclude each other.
type Server struct {
	cluster *cluster

	mu       sync.Mutex
	users    *lock     // shared; nil once closed
	watchdog *exec.Cmd // the watchdog, if this Server started it and has not reaped it
	at       endpoint
}

// Open creates the cluster if it is absent, starts its server if it does not
// run, joins it if it does, and returns when it accepts connections. Several
// processes may do this at once. Whether or not Close is called, the server
// stops once no process uses it.
//
// The error is a *NotInstalledError when there is no PostgreSQL, and a
// *MismatchError when a durable cluster needs another version. One about a
// server that does not start ends with the last lines of its log. The main
// function must have called Watchdog.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	if os.Getenv(watchdogEnv) != "" {
		return nil, errors.New("open database server: main has to call pgserver.Watchdog first")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open database server: %w", err)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open database server: %w", err)
	}
	c, err := locate(ctx, cfg, localSearch())
	if err != nil {
		return nil, err
	}
	s := &Server{cluster: c}
	if err := s.join(ctx); err != nil {
		return nil, fmt.Errorf("open database server: %w", err)
	}
	return s, nil
}

// join becomes a user of the cluster and makes sure that its server runs. If it
// cannot, it leaves nothing behind.
func (s *Server) join(ctx context.Context) error {
	c := s.cluster
	if err := c.prepareHome(); err != nil {
		return err
	}
	starting, err := c.exclude(ctx)
	if err != nil {
		return err
	}
	defer starting.release()
	s.users, err = openLock(c.usersLock())
	if err != nil {
		return err
	}
	err = s.users.acquire(ctx, syscall.LOCK_SH)
	if err == nil {
		err = c.ensureCreated(ctx)
	}
	if err == nil {
		s.at, s.watchdog, err = c.ensureRunning(ctx)
	}
	if err != nil {
		// The caller's context may be what ended; the server has to go all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.StopTimeout+2*killGrace)
		defer cancel()
		return errors.Join(err, s.leave(ctx))
	}
	return nil
}

// exclude takes the start lock.
func (c *cluster) exclude(ctx context.Context) (*lock, error) {
	l, err := openLock(c.startLock())
	if err != nil {
		return nil, err
	}
	if err := l.acquire(ctx, syscall.LOCK_EX); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// Close gives the server up. If this was its last user, Close returns when the
// server and its watchdog are gone (P3). When ctx ends before that, the server is
// given up nevertheless, the watchdog goes on stopping it, and the error is that
// of ctx. A second Close does nothing.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == nil {
		return nil
	}
	starting, err := s.cluster.exclude(ctx)
	if err != nil {
		s.users.release()
		s.users = nil
		return fmt.Errorf("close database server: %w", err)
	}
	defer starting.release()
	if err := s.leave(ctx); err != nil {
		return fmt.Errorf("close database server: %w", err)
	}
	return nil
}

// leave releases the users lock and, if nobody else holds it, waits for the end
// of server and watchdog. The caller holds the start lock, so that two users who
// leave at once do so one after the other, and nobody joins meanwhile.
func (s *Server) leave(ctx context.Context) error {
	last, err := s.isLast()
	s.users.release()
	s.users = nil
	if err != nil {
		return err
	}
	if !last {
		s.reap(false)
		return nil
	}
	return s.awaitEnd(ctx)
}

// isLast tries to turn the shared users lock into an exclusive one. That gives
// the shared lock up for a moment; if the watchdog takes the exclusive one in
// that moment, not even a shared lock can be had, and there was no other user.
func (s *Server) isLast() (bool, error) {
	alone, err := s.users.try(syscall.LOCK_EX)
	if err != nil || alone {
		return alone, err
	}
	shared, err := s.users.try(syscall.LOCK_SH)
	return !shared, err
}

// awaitEnd waits until there is neither a watchdog nor a server of ours.
func (s *Server) awaitEnd(ctx context.Context) error {
	free, err := openLock(s.cluster.watchdogLock())
	if err != nil {
		return err
	}
	defer free.release()
	if err := free.acquire(ctx, syscall.LOCK_EX); err != nil {
		return fmt.Errorf("wait for the server to stop: %w", err)
	}
	s.reap(true)
	pm, up, err := s.cluster.running()
	if err != nil || !up || !s.cluster.startedHere() {
		return err
	}
	return s.cluster.stopUnwatched(ctx, pm)
}

// stopUnwatched stops a server of ours that lost its watchdog. The caller holds
// the watchdog lock.
func (c *cluster) stopUnwatched(ctx context.Context, pm postmaster) error {
	c.cfg.Logger.Warn().Int("pid", pm.pid).Str("data_dir", c.data).Msg("stopping a database server without a watchdog")
	if err := syscall.Kill(pm.pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop database server (process %d): %w", pm.pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.StopTimeout)
	defer cancel()
	for c.isPostmaster(pm.pid) {
		if err := pause(ctx); err != nil {
			return fmt.Errorf("stop database server (process %d): %w", pm.pid, err)
		}
	}
	return nil
}

// reap collects the exit status of the watchdog if it is a child of this
// process. With ended set the watchdog has released its lock, which is the last
// thing it does; otherwise it may well live on, for other users.
func (s *Server) reap(ended bool) {
	if s.watchdog == nil {
		return
	}
	if ended {
		_ = s.watchdog.Wait() // its error is in the server's log
	} else {
		var status syscall.WaitStatus
		_, _ = syscall.Wait4(s.watchdog.Process.Pid, &status, syscall.WNOHANG, nil)
		_ = s.watchdog.Process.Release()
	}
	s.watchdog = nil
}

// Stop stops the server under all of its users, who stay its users: for tests of
// what happens then. It returns when server and watchdog are gone.
func (s *Server) Stop(ctx context.Context, mode StopMode) error {
	signal, ok := map[StopMode]syscall.Signal{Fast: syscall.SIGINT, Immediate: syscall.SIGQUIT}[mode]
	if !ok {
		return fmt.Errorf("stop database server: unknown mode %q", mode)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == nil {
		return ErrClosed
	}
	starting, err := s.cluster.exclude(ctx)
	if err != nil {
		return fmt.Errorf("stop database server: %w", err)
	}
	defer starting.release()
	pm, up, err := s.cluster.running()
	if err != nil {
		return fmt.Errorf("stop database server: %w", err)
	}
	if up {
		if err := syscall.Kill(pm.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop database server (process %d): %w", pm.pid, err)
		}
	}
	if err := s.awaitEnd(ctx); err != nil {
		return fmt.Errorf("stop database server: %w", err)
	}
	return nil
}

// Start starts the server again after Stop or after it died, and returns when it
// accepts connections. If it runs, Start only makes sure that it answers.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == nil {
		return ErrClosed
	}
	starting, err := s.cluster.exclude(ctx)
	if err != nil {
		return fmt.Errorf("start database server: %w", err)
	}
	defer starting.release()
	at, watchdog, err := s.cluster.ensureRunning(ctx)
	if watchdog != nil {
		s.reap(true) // the one before it has ended, or this one could not have started
		s.watchdog = watchdog
	}
	if err != nil {
		return err
	}
	s.at = at
	return nil
}

// DSN returns a connection URL for a database of the server, as its superuser
// through the Unix socket. pgx and libpq both understand it.
func (s *Server) DSN(database string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at.dsn(database)
}

// EnsureDatabase creates a database unless it exists. Several processes may do
// this at once.
func (s *Server) EnsureDatabase(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, s.cluster.cfg.StartTimeout)
	defer cancel()
	conn, err := pgconn.Connect(ctx, s.DSN(name))
	if err == nil {
		return conn.Close(ctx)
	}
	if db.Code(err) != db.NoSuchDatabase {
		return fmt.Errorf("database %s: %w", name, err)
	}
	conn, err = pgconn.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	defer func() { _ = conn.Close(ctx) }() // everything was already sent and answered
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()).ReadAll()
	if err != nil && !db.MadeMeanwhile(err) {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// PID returns the process id of the postmaster, or 0 when no server runs.
func (s *Server) PID() int {
	pm, up, err := s.cluster.running()
	if err != nil || !up {
		return 0
	}
	return pm.pid
}

// Install returns the PostgreSQL the server belongs to.
func (s *Server) Install() Install { return s.cluster.install }

// DataDir returns the cluster's own directory, as in "pg_ctl -D".
func (s *Server) DataDir() string { return s.cluster.data }

// LogFile returns the path of the server's log.
func (s *Server) LogFile() string { return s.cluster.logPath() }
