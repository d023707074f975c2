package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

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
	logger  zerolog.Logger

	mu  sync.Mutex
	use *use // nil once closed
	at  endpoint
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
	cfg, err := cfg.withDataDir()
	if err != nil {
		return nil, fmt.Errorf("open database server: %w", err)
	}
	c, err := locate(ctx, cfg, localSearch())
	if err != nil {
		return nil, err
	}
	s := &Server{cluster: c, logger: cfg.Logger}
	if err := errors.Join(c.prepareHome(), c.sweepVolatile()); err != nil {
		return nil, fmt.Errorf("open database server: %w", err)
	}
	if s.use, err = c.join(ctx, s.logger); err != nil {
		return nil, fmt.Errorf("open database server: %w", err)
	}
	s.at = s.use.at
	return s, nil
}

// Close gives the server up. If this was its last user, Close returns when the
// server and its watchdog are gone (P3). When ctx ends before that, the server is
// given up nevertheless, the watchdog goes on stopping it, and the error is that
// of ctx. A second Close does nothing.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.use == nil {
		return nil
	}
	u := s.use
	s.use = nil
	if err := u.leave(ctx); err != nil {
		return fmt.Errorf("close database server: %w", err)
	}
	return nil
}

// Stop stops the server under all of its users, who stay its users: for tests of
// what happens then. It returns when the server is gone.
func (s *Server) Stop(ctx context.Context, mode StopMode) error {
	signal, ok := map[StopMode]syscall.Signal{Fast: syscall.SIGINT, Immediate: syscall.SIGQUIT}[mode]
	if !ok {
		return fmt.Errorf("stop database server: unknown mode %q", mode)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.use == nil {
		return ErrClosed
	}
	pm, up, err := s.cluster.running()
	if err != nil || !up {
		return err
	}
	return s.cluster.stopPostmaster(ctx, pm.pid, signal)
}

// Start starts the server again after Stop or after it died, and returns when it
// accepts connections. If it runs, Start only makes sure that it answers.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.use == nil {
		return ErrClosed
	}
	u, err := s.cluster.join(ctx, s.logger) // each new user is given a server that runs
	if err != nil {
		return err
	}
	before := s.use
	if u.watchdog == nil {
		u.watchdog = before.watchdog
		before.watchdog = nil
	}
	s.use, s.at = u, u.at
	return before.leave(ctx)
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
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
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
func (s *Server) Install() Install { return s.cluster.Install }

// DataDir returns the cluster's own directory, as in "pg_ctl -D".
func (s *Server) DataDir() string { return s.cluster.data() }

// LogFile returns the path of the server's log.
func (s *Server) LogFile() string { return s.cluster.logFile() }
