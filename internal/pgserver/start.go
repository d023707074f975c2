package pgserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/child"
	"github.com/belfryhq/belfry/internal/db"
)

// errWatchdogGone ends a wait for a server whose watchdog has ended.
var errWatchdogGone = errors.New("the server ended")

// connectTimeout bounds one attempt to connect through the socket.
const connectTimeout = 5 * time.Second

// endpoint is where a running server is reached.
type endpoint struct {
	socketDir string
	port      int
}

// dsn returns a connection URL that pgx and libpq both understand. libpq does not
// read "+" as a space.
func (e endpoint) dsn(database string) string {
	host := strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(e.socketDir))
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + database,
		RawQuery: fmt.Sprintf("host=%s&port=%d", host, e.port)}
	return u.String()
}

func (c *cluster) usersLock() string    { return filepath.Join(c.home, "users.lock") }
func (c *cluster) startLock() string    { return filepath.Join(c.home, "start.lock") }
func (c *cluster) watchdogLock() string { return filepath.Join(c.home, "watchdog.lock") }

// ensureRunning joins the server or starts it. The caller holds the start lock
// and a shared users lock. The command is the watchdog if this call started it.
func (c *cluster) ensureRunning(ctx context.Context) (endpoint, *exec.Cmd, error) {
	for {
		free, err := c.lockWatchdog()
		if err != nil {
			return endpoint{}, nil, err
		}
		if free == nil {
			at, err := c.await(ctx, true)
			if errors.Is(err, errWatchdogGone) {
				continue // it stopped after a crash of its server; start anew
			}
			return at, nil, err
		}
		pm, up, err := c.running()
		switch {
		case err != nil:
			free.release()
			return endpoint{}, nil, fmt.Errorf("look for a running server: %w", err)
		case up && c.startedHere():
			err := c.stopUnwatched(ctx, pm)
			free.release()
			if err != nil {
				return endpoint{}, nil, err
			}
		case up:
			free.release()
			c.cfg.Logger.Info().Int("pid", pm.pid).Str("data_dir", c.data).
				Msg("joining a database server that was started by hand")
			at, err := c.await(ctx, false)
			return at, nil, err
		default:
			return c.start(ctx, free)
		}
	}
}

// lockWatchdog takes the watchdog lock; nil means that a watchdog has it.
func (c *cluster) lockWatchdog() (*lock, error) {
	l, err := openLock(c.watchdogLock())
	if err != nil {
		return nil, err
	}
	got, err := l.try(syscall.LOCK_EX)
	if err != nil || !got {
		l.release()
		return nil, err
	}
	return l, nil
}

// start starts a watchdog, hands it the lock, and waits for its server.
func (c *cluster) start(ctx context.Context, watchdog *lock) (endpoint, *exec.Cmd, error) {
	started := time.Now()
	cmd, logStart, err := c.spawn(watchdog)
	watchdog.release() // the watchdog's copy keeps it locked
	if err != nil {
		return endpoint{}, nil, fmt.Errorf("start database server: %w", err)
	}
	at, err := c.await(ctx, true)
	if err != nil {
		return endpoint{}, cmd, fmt.Errorf("start database server in %s: %w\nthe end of its log, %s:\n%s",
			c.data, err, c.logPath(), indent(logTail(c.logPath(), logStart)))
	}
	c.cfg.Logger.Info().Str("data_dir", c.data).Str("postgresql", c.install.Version).
		Int64("elapsed_ms", time.Since(started).Milliseconds()).Msg("database server started")
	return at, cmd, nil
}

// spawn starts this executable again as the watchdog of a new server. It also
// says where the server's part of the log begins.
func (c *cluster) spawn(watchdog *lock) (*exec.Cmd, int64, error) {
	sock, err := c.socketDir()
	if err != nil {
		return nil, 0, err
	}
	if err := sweepSocket(sock); err != nil {
		return nil, 0, err
	}
	spec, err := json.Marshal(c.watchdogSpec(sock))
	if err != nil {
		return nil, 0, err
	}
	exe, err := executable()
	if err != nil {
		return nil, 0, err
	}
	log, logStart, err := c.openLog()
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = log.Close() }() // the watchdog writes to its own copy
	cmd := exec.Command(exe)           //nolint:noctx // outlives this call and perhaps this process
	cmd.Args = []string{"belfry-watchdog", c.home}
	cmd.Dir = "/" // so that no directory of the caller stays in use
	cmd.Env = append(child.Env(os.Environ()), watchdogEnv+"="+string(spec),
		"GORACE=atexit_sleep_ms=0") // built with -race it would otherwise stay for a second after its end
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{watchdog.file} // becomes watchdogFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, 0, fmt.Errorf("start watchdog: %w", err)
	}
	return cmd, logStart, nil
}

// executable is the running program, even if its file was replaced meanwhile.
func executable() (string, error) {
	const self = "/proc/self/exe"
	if runtime.GOOS == "linux" {
		if _, err := os.Stat(self); err == nil {
			return self, nil
		}
	}
	return os.Executable()
}

func (c *cluster) watchdogSpec(socketDir string) watchdogSpec {
	args := []string{"-D", c.data,
		"-c", "unix_socket_directories=" + socketDir,
		"-c", "unix_socket_permissions=0700",
		"-c", "port=5432", "-c", "logging_collector=off"}
	settings := c.cfg.settings()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	spec := watchdogSpec{
		Postgres: c.install.postgres(), Args: args, DataDir: c.data,
		UsersLock: c.usersLock(), Log: c.logPath(),
		StartTimeout: c.cfg.StartTimeout, StopTimeout: c.cfg.StopTimeout,
	}
	if filepath.Dir(socketDir) != c.home {
		spec.SocketDir = socketDir
	}
	if c.account != nil {
		spec.Account, spec.UID, spec.GID = true, c.account.uid, c.account.gid
	}
	return spec
}

// await waits until the server accepts a connection. With watched set it returns
// errWatchdogGone when there is no watchdog any more. StartTimeout counts while
// the server says nothing; while it says that it is starting or recovering, only
// ctx ends the wait, since giving up on a recovery would make the next start
// begin it anew.
func (c *cluster) await(ctx context.Context, watched bool) (endpoint, error) {
	lastSign := time.Now()
	lastReport := lastSign
	for {
		at, err := c.connect(ctx)
		switch code := db.Code(err); {
		case err == nil:
			return at, nil
		case ctx.Err() != nil:
			return endpoint{}, context.Cause(ctx)
		case code == db.StartingUp:
			lastSign = time.Now()
		case code != "":
			return at, nil // it is up; that it has no room for us now is another matter
		case time.Since(lastSign) > c.cfg.StartTimeout:
			return endpoint{}, fmt.Errorf("no answer in %s: %w", c.cfg.StartTimeout, err)
		}
		if time.Since(lastReport) > reportInterval {
			lastReport = time.Now()
			c.cfg.Logger.Warn().Str("data_dir", c.data).AnErr("error", err).Msg("waiting for the database server to start")
		}
		if watched {
			if free, err := c.lockWatchdog(); err != nil || free != nil {
				if free != nil {
					free.release()
					err = errWatchdogGone
				}
				return endpoint{}, err
			}
		}
		if err := pause(ctx); err != nil {
			return endpoint{}, err
		}
	}
}

const reportInterval = 10 * time.Second

// connect tries once to connect to the server that postmaster.pid describes.
func (c *cluster) connect(ctx context.Context) (endpoint, error) {
	pm, ok, err := c.readPostmaster()
	if err != nil {
		return endpoint{}, err
	}
	if !ok || pm.port == 0 {
		return endpoint{}, errors.New("the server has not said where it listens")
	}
	if pm.socketDir == "" {
		return endpoint{}, fmt.Errorf("the server (process %d) has no Unix socket", pm.pid)
	}
	at := endpoint{socketDir: pm.socketDir, port: pm.port}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgconn.Connect(ctx, at.dsn("postgres"))
	if err != nil {
		return at, err
	}
	return at, conn.Close(ctx)
}
