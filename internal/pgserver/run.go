package pgserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/internal/child"
	"github.com/belfryhq/belfry/internal/db"
)

const (
	// startTimeout bounds the time to the first sign of life of a starting server. One
	// that says it is recovering is waited for as long as it has users: to give up on a
	// recovery would make the next start begin it anew.
	startTimeout = time.Minute
	// connectTimeout bounds one attempt to connect through the socket.
	connectTimeout = 5 * time.Second
	// reportInterval is how often users hear that they wait.
	reportInterval = 10 * time.Second
	// orphanPause is the pause before another start after a crash.
	orphanPause = 50 * time.Millisecond

	// stopTimeout is how long a fast shutdown may take before it is made an immediate one,
	// which loses nothing but makes the next start recover.
	stopTimeout = 30 * time.Second
	// killGrace is how long a postmaster that was told to stop at once may take: it
	// kills its own children after five seconds.
	killGrace = 15 * time.Second
	// stopLimit is how long it takes at most until a server without users is gone.
	stopLimit = stopTimeout + 3*killGrace
)

// endings are the ways to end a server: fast, at once if that takes too long, and at last
// without asking it.
func endings() []child.Step {
	return []child.Step{{Signal: syscall.SIGINT, Wait: stopTimeout}, {Signal: syscall.SIGQUIT, Wait: killGrace},
		{Signal: syscall.SIGKILL, Wait: killGrace}}
}

// ensureRunning returns where the server is that runs, or else starts it. The user is told
// what happens meanwhile.
func (w *watchdog) ensureRunning(tell func(message)) (endpoint, error) {
	w.starting.Lock()
	defer w.starting.Unlock()
	if w.server != nil {
		at, err := w.await(tell)
		if !errors.Is(err, child.ErrEnded) {
			return at, err
		}
		w.server = nil
	}
	pm, up, err := w.running()
	switch {
	case err != nil:
		return endpoint{}, err
	case up && w.startedHere():
		tell(message{What: delayed, Text: "stopping a database server without a watchdog"})
		ctx, cancel := context.WithTimeout(w.used, stopTimeout)
		defer cancel()
		if err := w.stopPostmaster(ctx, pm.pid, syscall.SIGINT); err != nil {
			return endpoint{}, err
		}
	case up:
		tell(message{What: happened, Text: "joining a database server that was started by hand"})
		return w.await(tell)
	}
	began := time.Now()
	created, err := w.ensureCreated(w.used)
	if err != nil {
		return endpoint{}, fmt.Errorf("create cluster in %s: %w", w.data(), err)
	}
	if created {
		tell(message{What: happened, Text: "database cluster created", ElapsedMS: time.Since(began).Milliseconds()})
	}
	return w.start(tell)
}

// start starts the server, once more as long as backends of a crashed one are still
// ending. They do so by themselves, within moments unless one of them is in the middle of
// a statement.
func (w *watchdog) start(tell func(message)) (endpoint, error) {
	for began := time.Now(); ; <-time.After(orphanPause) {
		info, err := w.log.Stat()
		if err != nil {
			return endpoint{}, fmt.Errorf("server log: %w", err)
		}
		at, err := w.startOnce(tell)
		if err == nil {
			tell(message{What: happened, Text: "database server started", ElapsedMS: time.Since(began).Milliseconds()})
			return at, nil
		}
		said := child.Tail(w.logFile(), info.Size())
		orphans := errors.Is(err, child.ErrEnded) && strings.Contains(said, "pre-existing shared memory block")
		if !orphans || time.Since(began) > startTimeout {
			return endpoint{}, fmt.Errorf("start database server in %s: %w\nthe end of its log, %s:\n%s",
				w.data(), err, w.logFile(), indent(said))
		}
	}
}

func (w *watchdog) startOnce(tell func(message)) (endpoint, error) {
	if err := errors.Join(w.disownPidFile(), w.makeSocketDir()); err != nil {
		return endpoint{}, err
	}
	args := []string{"-D", w.data()}
	for _, name := range slices.Sorted(maps.Keys(w.Settings)) {
		args = append(args, "-c", name+"="+w.Settings[name])
	}
	args = append(args, "-c", "cluster_name="+clusterName, "-c", "listen_addresses=", "-c", "port="+serverPort,
		"-c", "unix_socket_directories="+w.socketDir(), "-c", "unix_socket_permissions=0700", "-c", "logging_collector=off")
	cmd := exec.Command(w.Install.postgres(), args...) //nolint:noctx // ended by stop, in PostgreSQL's own order
	cmd.Stdout, cmd.Stderr = w.log, w.log
	var err error
	w.server, err = child.Start(cmd, syscall.SIGINT) // a fast shutdown
	if err != nil {
		return endpoint{}, err
	}
	return w.await(tell)
}

// await waits until the server accepts a connection.
func (w *watchdog) await(tell func(message)) (at endpoint, err error) {
	ctx, cancel := context.WithCancelCause(w.used)
	defer cancel(nil)
	silence := time.AfterFunc(startTimeout, func() { cancel(fmt.Errorf("no answer in %s", startTimeout)) })
	defer silence.Stop()
	report := time.Now().Add(reportInterval)
	err = child.Await(ctx, w.server, func(ctx context.Context) error {
		var err error
		at, err = w.connect(ctx)
		switch db.Code(err) {
		case db.StartingUp:
			silence.Reset(startTimeout)
		case "":
		default:
			return nil // it is up; that it has no room for us now is another matter
		}
		if err != nil && time.Now().After(report) {
			report = time.Now().Add(reportInterval)
			tell(message{What: delayed, Text: "waiting for the database server to start"})
		}
		return err
	})
	return at, err
}

// connect tries once to connect to the server that postmaster.pid describes.
func (c *cluster) connect(ctx context.Context) (endpoint, error) {
	pm, up, err := c.running()
	switch {
	case err != nil:
		return endpoint{}, err
	case !up || pm.at.Port == 0:
		return endpoint{}, errors.New("the server has not said where it listens")
	case pm.at.SocketDir == "":
		return endpoint{}, fmt.Errorf("the server (process %d) has no Unix socket", pm.pid)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgconn.Connect(ctx, pm.at.dsn("postgres"))
	if err != nil {
		return pm.at, err
	}
	return pm.at, conn.Close(ctx)
}

// stop ends the server after its last user has left. A socket directory in /tmp goes too,
// unless the server crashed: then its successor sweeps it.
func (w *watchdog) stop() error {
	w.starting.Lock() // and never unlocked
	if w.server != nil && !w.server.Over() {
		fmt.Fprintln(os.Stderr, "watchdog: the last user is gone; stopping the server")
		if err := w.server.Stop(endings()...); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "watchdog: the server: %v\n", w.server.Err())
	}
	if !strings.HasPrefix(w.socketDir(), w.Home) {
		_ = os.Remove(w.socketDir())
	}
	return nil
}
