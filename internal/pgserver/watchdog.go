package pgserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/belfryhq/belfry/internal/child"
)

// watchdogEnv marks a process as a watchdog; its value is a cluster.
const watchdogEnv = "BELFRY_PGSERVER_WATCHDOG"

// firstUser is where a watchdog finds the connection of the user that started it.
const firstUser = 3

// maxLogSize is from where on a start moves the log aside.
const maxLogSize = 8 << 20

// watchdog runs the server of a cluster as long as it has users.
type watchdog struct {
	*cluster

	lock *os.File // flock: one watchdog at a time
	log  *os.File
	used context.Context //nolint:containedctx // as long as there is a user: the watchdog's life
	end  context.CancelFunc

	mu    sync.Mutex
	users int
	last  net.Conn // of the last user, who waits until it ends with this process

	starting sync.Mutex     // whoever starts or stops the server
	server   *child.Process // nil: not started yet, or by somebody else
}

// Watchdog must be the first call of main, and of TestMain in tests that open a
// server: Open starts the running executable again as the server's watchdog. In
// a watchdog it does not return; in every other process it returns at once.
func Watchdog() {
	text := os.Getenv(watchdogEnv)
	if text == "" {
		return
	}
	if err := watch(text); err != nil {
		fmt.Fprintf(os.Stderr, "watchdog: %v\n", err)
		os.Exit(1) //nolint:revive // a watchdog is a process of its own, see the comment above
	}
	os.Exit(0) //nolint:revive // as above
}

// watch runs a watchdog. What it holds ends with the process.
func watch(text string) error {
	syscall.CloseOnExec(firstUser)
	// A watchdog ends with its users, not when a terminal or a service manager
	// signals every process it can find. Caught rather than ignored, because
	// ignored signals are inherited by the server.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	w := &watchdog{cluster: &cluster{}, users: 1}
	if err := json.Unmarshal([]byte(text), w.cluster); err != nil {
		return err
	}
	if err := w.Account.become(); err != nil {
		return err
	}
	first, err := unixConn(os.NewFile(firstUser, "first user"))
	if err != nil {
		return err
	}
	w.used, w.end = context.WithCancel(context.Background())
	go w.attend(first)
	if err := w.takeOver(); err != nil {
		if errors.Is(err, errOver) {
			send(first, message{What: another})
			return nil
		}
		return err
	}
	listener, err := w.listen()
	if err != nil {
		return err
	}
	go w.accept(listener)
	go w.answer(first)
	<-w.used.Done()
	_ = listener.Close()
	return w.stop()
}

// takeOver takes the cluster's lock. Whoever has it either runs a server, and takes users,
// or is about to end.
func (w *watchdog) takeOver() error {
	var err error
	w.lock, err = os.OpenFile(filepath.Join(w.Home, "cluster.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return child.Poll(w.used, func() (bool, error) {
		err := unix.Flock(int(w.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err == nil, err
		}
		if conn, err := net.Dial("unix", filepath.Join(w.socketDir(), watchdogSocket)); err == nil { //nolint:noctx // local
			return false, errors.Join(errOver, conn.Close())
		}
		return false, nil
	})
}

// listen makes what other users find, and turns to the log.
func (w *watchdog) listen() (net.Listener, error) {
	if info, err := os.Lstat(w.logFile()); err == nil && info.Size() > maxLogSize {
		if err := os.Rename(w.logFile(), w.logFile()+".1"); err != nil {
			return nil, fmt.Errorf("rotate server log: %w", err)
		}
	}
	var err error
	w.log, err = os.OpenFile(w.logFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open server log: %w", err)
	}
	if err := w.makeSocketDir(); err != nil {
		return nil, err
	}
	path := filepath.Join(w.socketDir(), watchdogSocket)
	_ = os.Remove(path)                       // of one that was killed
	listener, err := net.Listen("unix", path) //nolint:noctx // local
	if err != nil {
		return nil, err
	}
	// Standard output and error have belonged to the first user.
	for _, stream := range []*os.File{os.Stdout, os.Stderr} {
		if err := unix.Dup2(int(w.log.Fd()), int(stream.Fd())); err != nil {
			return nil, fmt.Errorf("open server log: %w", err)
		}
	}
	return listener, nil
}

// accept takes further users until the last one has left.
func (w *watchdog) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		if w.users == 0 {
			_ = conn.Close() // the user starts another watchdog, which waits for the end of this one
		} else {
			w.users++
			go w.attend(conn)
			go w.answer(conn)
		}
		w.mu.Unlock()
	}
}

// attend waits until a user leaves or dies.
func (w *watchdog) attend(user net.Conn) {
	_, _ = io.Copy(io.Discard, user)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users--
	if w.users == 0 {
		w.last = user
		w.end()
		return
	}
	send(user, message{What: left})
	_ = user.Close()
}

// answer makes sure for a user that the server runs.
func (w *watchdog) answer(user net.Conn) {
	at, err := w.ensureRunning(func(m message) { send(user, m) })
	if err != nil {
		send(user, message{What: failed, Text: err.Error()})
		return
	}
	send(user, message{What: ready, At: at})
}

// send tells a user something, who may be gone.
func send(user net.Conn, m message) {
	if text, err := json.Marshal(m); err == nil {
		_, _ = user.Write(append(text, '\n'))
	}
}
