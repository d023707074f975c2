package pgserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belfryhq/belfry/internal/child"
)

const (
	// watchdogEnv marks a process as a watchdog. Its value is a cluster in JSON.
	watchdogEnv = "BELFRY_PGSERVER_WATCHDOG"

	// connectTimeout bounds one attempt to connect.
	connectTimeout = 5 * time.Second
	// orphanTimeout bounds the wait for backends of a crashed server, and orphanPause is the time between two attempts.
	orphanTimeout = time.Minute
	orphanPause   = 50 * time.Millisecond
	// stopTimeout bounds a fast shutdown. An immediate shutdown follows. It loses no data, but the next start
	// has to recover.
	stopTimeout = 30 * time.Second
	// killGrace bounds an immediate shutdown. A postmaster kills its backends after five seconds.
	killGrace = 15 * time.Second
)

// watchdog is the parent process of a server.
type watchdog struct {
	*cluster

	home    *os.File // has an exclusive lock after the last client
	lock    *os.File // has the cluster's lock (P1)
	log     *os.File
	clients context.Context //nolint:containedctx // ends with the last client: the watchdog's own lifetime
	server  *child.Process  // nil means another watchdog's server
}

// Watchdog must be the first call of main, and of TestMain in tests that open a server. Open starts the running
// executable again as a watchdog. In a watchdog, this function does not return.
func Watchdog() {
	spec := os.Getenv(watchdogEnv)
	if spec == "" {
		return
	}
	if err := watch(spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:revive // a watchdog is a process of its own
	}
	os.Exit(0) //nolint:revive // as above
}

// watch starts the server and stops it after the last client's end. Its files are closed with the process.
// Standard output and error belong to the client that started the watchdog, until the server accepts connections.
func watch(spec string) error {
	// Terminals and service managers signal every process, but a watchdog ends with its clients. The signals
	// are caught and not ignored, because the server would inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	w := &watchdog{cluster: &cluster{}}
	defer runtime.KeepAlive(w) // a collected file would be closed, and its lock released
	if err := json.Unmarshal([]byte(spec), w.cluster); err != nil {
		return err
	}
	if err := w.Account.become(); err != nil {
		return err
	}
	if err := w.watchClients(); err != nil {
		return err
	}
	if joined, err := w.lockCluster(); joined || err != nil {
		return err
	}
	err := w.start()
	if err == nil {
		err = errors.Join(unix.Dup2(int(w.log.Fd()), 1), unix.Dup2(int(w.log.Fd()), 2))
	}
	if err == nil {
		select {
		case <-w.clients.Done():
		case <-w.server.Ended():
		}
	}
	if w.server != nil {
		err = errors.Join(err, w.server.Stop(child.Step{Signal: Fast, Wait: stopTimeout},
			child.Step{Signal: Immediate, Wait: killGrace}, child.Step{Signal: syscall.SIGKILL, Wait: killGrace}))
	}
	return err
}

// watchClients ends w.clients after the last client. Each client has a shared lock on the cluster's directory. The
// watchdog then has an exclusive lock until its own end: new clients wait for that.
func (w *watchdog) watchClients() (err error) {
	if w.home, err = os.Open(w.Home); err != nil {
		return err
	}
	var lastEnded context.CancelFunc
	w.clients, lastEnded = context.WithCancel(context.Background())
	go func() {
		_ = unix.Flock(int(w.home.Fd()), unix.LOCK_EX)
		lastEnded()
	}()
	return nil
}

// lockCluster waits until this watchdog has the cluster's lock (P1), or until the server of another watchdog
// accepts connections: then joined is true. The lock ends with the process.
func (w *watchdog) lockCluster() (joined bool, err error) {
	if w.lock, err = os.OpenFile(w.lockFile(), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return false, err
	}
	return joined, child.Poll(w.clients, func() (bool, error) {
		if locked, err := tryLock(w.lock, unix.LOCK_EX); locked || err != nil {
			return true, err
		}
		joined = w.connect(w.clients) == nil
		return joined, nil
	})
}

// tryLock reports whether it has locked an open file or directory. It does not wait.
func tryLock(f *os.File, how int) (bool, error) {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// start creates the cluster if necessary and starts the server. After a crash, it retries until the orphaned
// backends have ended. They end by themselves, at the latest after their current statement.
func (w *watchdog) start() error {
	if err := w.Stop(w.clients, Fast); err != nil { // its watchdog was killed
		return err
	}
	if err := w.ensureCreated(w.clients); err != nil {
		return fmt.Errorf("create cluster in %s: %w", w.DataDir(), err)
	}
	var err error
	w.log, err = os.OpenFile(w.LogFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open server log: %w", err)
	}
	for began := time.Now(); ; <-time.After(orphanPause) {
		offset, err := w.log.Seek(0, io.SeekEnd)
		if err == nil {
			err = w.startServer()
		}
		if err == nil {
			return nil
		}
		log := child.Tail(w.LogFile(), offset)
		orphans := errors.Is(err, child.ErrEnded) && strings.Contains(log, "pre-existing shared memory block")
		if !orphans || time.Since(began) > orphanTimeout {
			return fmt.Errorf("start database server in %s: %w\nthe end of its log, %s:\n%s", w.DataDir(), err, w.LogFile(), log)
		}
	}
}

// startServer starts the server and waits until it accepts connections, however long it recovers.
func (w *watchdog) startServer() error {
	if err := w.disownFiles(); err != nil {
		return fmt.Errorf("files of a crashed server: %w", err)
	}
	args := []string{"-D", w.DataDir()}
	for _, name := range slices.Sorted(maps.Keys(w.Settings)) {
		args = append(args, "-c", name+"="+w.Settings[name])
	}
	args = append(args, "-c", "cluster_name=belfry", "-c", "listen_addresses=", "-c", "port="+port,
		"-c", "unix_socket_directories="+w.Home, "-c", "unix_socket_permissions=0700", "-c", "logging_collector=off")
	cmd := exec.Command(w.Install.postgres(), args...) //nolint:noctx // stopped by watch
	cmd.Stdout, cmd.Stderr = w.log, w.log
	var err error
	w.server, err = child.Start(cmd, syscall.SIGINT) // a fast shutdown if the watchdog is killed
	if err != nil {
		return err
	}
	return child.Await(w.clients, w.server, w.connect)
}
