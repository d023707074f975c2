package pgserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/belfryhq/belfry/internal/child"
	"github.com/belfryhq/belfry/internal/db"
)

const (
	// Fast rolls back open transactions and writes a checkpoint.
	Fast = syscall.SIGINT
	// Immediate ends without a checkpoint, so that the next start recovers.
	Immediate = syscall.SIGQUIT

	// reportTime is the time after which Open logs that it waits.
	reportTime = 10 * time.Second
)

// Server is one client of a private server. The server runs at least until Close, unless it crashes or Stop stops
// it. The kernel releases the client's lock when the process ends. Start, Stop and Close must not be called
// concurrently.
type Server struct {
	*cluster

	logger   zerolog.Logger
	home     *os.File  // has a shared lock; nil once closed
	watchdog *exec.Cmd // nil unless this client started one
}

// Open creates the cluster if it is absent, starts its server or joins the running one, and returns when the
// server accepts connections. Several processes may call it at once. The server stops when no process uses it,
// even without Close.
//
// The error wraps ErrNotInstalled if there is no PostgreSQL. If the server does not start, the error contains the
// end of its log. The main function must have called Watchdog.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	if os.Getenv(watchdogEnv) != "" {
		return nil, errors.New("open database server: main has to call pgserver.Watchdog first")
	}
	var err error
	if cfg.DataDir, err = DataDir(cfg.DataDir); err != nil {
		return nil, fmt.Errorf("open database server: %w", err)
	}
	c, err := locate(ctx, cfg, localDirs())
	if err != nil {
		return nil, err
	}
	s := &Server{cluster: c, logger: cfg.Logger}
	if err := s.join(ctx); err != nil {
		return nil, fmt.Errorf("open database server: %w", err)
	}
	return s, nil
}

// join locks the cluster's directory and makes sure that the server runs. On failure, it undoes both.
func (s *Server) join(ctx context.Context) (err error) {
	if s.home, err = s.openHome(); err != nil {
		return err
	}
	// A watchdog that stops its server has an exclusive lock.
	err = child.Poll(ctx, func() (bool, error) { return tryLock(s.home, unix.LOCK_SH) })
	if err != nil {
		return errors.Join(fmt.Errorf("wait for the server in %s: %w", s.Home, err), s.home.Close())
	}
	if err = s.Start(ctx); err != nil {
		// ctx may have ended, but the server must stop anyway.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout+3*killGrace)
		defer cancel()
		err = errors.Join(err, s.Close(ctx))
	}
	return err
}

// Start starts the server after Stop or after a crash, and returns when it accepts connections. It does not
// restart a running server, unless its watchdog was killed.
func (s *Server) Start(ctx context.Context) error {
	if s.connect(ctx) == nil && s.watched() {
		return nil
	}
	if s.watchdog != nil {
		_ = s.watchdog.Process.Release() // it ends with its server
	}
	began := time.Now()
	waiting := time.AfterFunc(reportTime, func() {
		s.logger.Warn().Str("data_dir", s.DataDir()).Msg("waiting for the database server to start")
	})
	defer waiting.Stop()
	output, err := s.startWatchdog()
	if err != nil {
		return fmt.Errorf("start watchdog: %w", err)
	}
	defer func() { _ = output.Close() }() // only read
	stop := context.AfterFunc(ctx, func() { _ = output.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	text, err := io.ReadAll(output)
	switch {
	case err != nil:
		return fmt.Errorf("wait for the server in %s: %w", s.Home, cmp.Or(context.Cause(ctx), err))
	case len(text) > 0:
		return errors.New(strings.TrimSpace(string(text)))
	}
	s.logger.Info().Int64("elapsed_ms", time.Since(began).Milliseconds()).Str("data_dir", s.DataDir()).
		Str("postgresql", s.cluster.Install.Version).Msg("database server started")
	return nil
}

// startWatchdog starts this executable again as a watchdog in its own session, and returns its output: the error if
// it fails, nothing if the server accepts connections.
func (s *Server) startWatchdog() (output *os.File, err error) {
	spec, err := json.Marshal(s.cluster)
	if err != nil {
		return nil, err
	}
	exe, err := executable()
	if err != nil {
		return nil, err
	}
	output, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe) //nolint:noctx // ends after the last client
	cmd.Args = []string{"belfry-watchdog", s.Home}
	cmd.Dir = "/" // keeps no directory of the caller in use
	cmd.Env = append(child.Env(os.Environ()), watchdogEnv+"="+string(spec),
		"GORACE=atexit_sleep_ms=0") // the race detector would delay the end by a second
	cmd.Stdout, cmd.Stderr = theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = theirs.Close() // the watchdog has a copy
	if err != nil {
		return nil, errors.Join(err, output.Close())
	}
	s.watchdog = cmd
	return output, nil
}

// executable returns the running program, on Linux even if its file was replaced.
func executable() (string, error) {
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// watched reports whether a watchdog has the cluster's lock.
func (c *cluster) watched() bool {
	lock, err := os.OpenFile(c.lockFile(), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer func() { _ = lock.Close() }() // releases the lock
	free, err := tryLock(lock, unix.LOCK_SH)
	return err == nil && !free
}

// Close releases the lock. If no other client has one, Close returns after the end of server and watchdog (P3). If
// ctx ends before that, Close returns its error, and the watchdog continues to stop the server. If two clients
// close at the same moment, one of them waits. A second Close does nothing.
func (s *Server) Close(ctx context.Context) error {
	if s.home == nil {
		return nil
	}
	home, others := s.home, false
	s.home = nil
	defer func() { _ = home.Close() }() // releases the lock
	err := unix.Flock(int(home.Fd()), unix.LOCK_UN)
	if err == nil {
		err = child.Poll(ctx, func() (bool, error) {
			if !s.watched() {
				return true, nil
			}
			// An exclusive lock is possible if there are no clients, and a shared one if there are other clients.
			// Neither is possible while the watchdog stops its server.
			for _, how := range []int{unix.LOCK_EX, unix.LOCK_SH} {
				if locked, err := tryLock(home, how); err != nil || locked {
					others = how == unix.LOCK_SH
					return others, errors.Join(err, unix.Flock(int(home.Fd()), unix.LOCK_UN))
				}
			}
			return false, nil
		})
	}
	switch {
	case s.watchdog == nil:
	case err != nil || others:
		_ = s.watchdog.Process.Release() // another client sees its end
	default:
		_ = s.watchdog.Wait() // its error is in the server's log
	}
	return err
}

// EnsureDatabase creates a database unless it exists. Several processes may call it at once.
func (s *Server) EnsureDatabase(ctx context.Context, name string) error {
	conn, err := pgconn.Connect(ctx, s.DSN(name))
	if db.Code(err) == db.NoSuchDatabase {
		if conn, err = pgconn.Connect(ctx, s.DSN("postgres")); err == nil {
			_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()).ReadAll()
		}
	}
	if conn != nil {
		_ = conn.Close(ctx) // all statements were answered
	}
	if err != nil && !db.MadeMeanwhile(err) {
		return fmt.Errorf("database %s: %w", name, err)
	}
	return nil
}

// Install returns the server's PostgreSQL installation.
func (s *Server) Install() Install { return s.cluster.Install }
