package pgserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/internal/child"
)

// watchdogEnv marks a process as a watchdog; its value is a watchdogSpec.
const watchdogEnv = "BELFRY_PGSERVER_WATCHDOG"

// watchdogFD is where a watchdog finds the file that holds its lock.
const watchdogFD = 3

// killGrace is how long a postmaster that was told to stop at once may take: it
// kills its own children after five seconds.
const killGrace = 15 * time.Second

// watchdogSpec tells a watchdog what to start and what to watch.
type watchdogSpec struct {
	Postgres     string        `json:"postgres"`
	Args         []string      `json:"args"`
	DataDir      string        `json:"data_dir"`
	UsersLock    string        `json:"users_lock"`
	Log          string        `json:"log"`
	SocketDir    string        `json:"socket_dir"` // to remove at the end; empty if it is to stay
	StartTimeout time.Duration `json:"start_timeout"`
	StopTimeout  time.Duration `json:"stop_timeout"`
	Account      bool          `json:"account"` // run the server as UID and GID
	UID          int           `json:"uid"`
	GID          int           `json:"gid"`
}

// Watchdog must be the first call of main, and of TestMain in tests that open a
// server: Open starts the running executable again as the server's watchdog. In
// a watchdog it does not return; in every other process it returns at once.
func Watchdog() {
	text := os.Getenv(watchdogEnv)
	if text == "" {
		return
	}
	// The server dies with the thread that starts it (see serverProcAttr).
	runtime.LockOSThread()
	var spec watchdogSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = spec.run()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "watchdog: %v\n", err)
		os.Exit(1) //nolint:revive // a watchdog is a process of its own, see the comment above
	}
	os.Exit(0) //nolint:revive // as above
}

// run starts the server, waits for it to end or for its last user to leave, and
// in the second case stops it. The locks end with the process.
func (spec *watchdogSpec) run() error {
	syscall.CloseOnExec(watchdogFD)
	// A watchdog ends with its users, not when a terminal or a service manager
	// signals every process it can find. Caught rather than ignored, because
	// ignored signals are inherited by the server.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)

	users, err := openLock(spec.UsersLock)
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(users) // closed with the process, not when it becomes garbage
	alone := make(chan error, 1)
	go func() { alone <- flock(users.file, syscall.LOCK_EX) }()

	deadline := time.Now().Add(spec.StartTimeout)
	for {
		server, logStart, err := spec.start()
		if err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- server.Wait() }()
		select {
		case err := <-ended:
			if retry := spec.orphans(logStart) && time.Now().Before(deadline); !retry {
				spec.removeSocketDir()
				if err != nil {
					return fmt.Errorf("server ended: %w", err)
				}
				return nil
			}
		case err := <-alone:
			err = errors.Join(err, spec.stop(server.Process, ended))
			spec.removeSocketDir()
			return err
		}
	}
}

// removeSocketDir leaves nothing in the temporary directory. A directory that is
// not empty stays: the server crashed, and its successor sweeps it.
func (spec *watchdogSpec) removeSocketDir() {
	if spec.SocketDir != "" {
		_ = os.Remove(spec.SocketDir)
	}
}

// start starts postgres with the log as its output.
func (spec *watchdogSpec) start() (*exec.Cmd, int64, error) {
	if err := disownPidFile(spec.DataDir); err != nil {
		return nil, 0, err
	}
	info, err := os.Stderr.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("server log: %w", err)
	}
	cmd := exec.Command(spec.Postgres, spec.Args...) //nolint:noctx // ended by stop, in PostgreSQL's own order
	cmd.Dir = "/"
	cmd.Env = child.Env(os.Environ())
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	var credential *syscall.Credential
	if spec.Account {
		credential = (&account{uid: spec.UID, gid: spec.GID}).credential()
	}
	cmd.SysProcAttr = serverProcAttr(credential)
	if err := cmd.Start(); err != nil {
		return nil, 0, fmt.Errorf("start %s: %w", spec.Postgres, err)
	}
	return cmd, info.Size(), nil
}

// orphans reports whether the server refused to start because backends of a
// crashed one are still ending. They do so by themselves, within moments unless
// one of them is in the middle of a statement.
func (spec *watchdogSpec) orphans(logStart int64) bool {
	if !strings.Contains(logTail(spec.Log, logStart), "pre-existing shared memory block") {
		return false
	}
	<-time.After(10 * pollInterval)
	return true
}

// stop ends the server: fast, at once if that takes too long, and at last
// without asking it.
func (spec *watchdogSpec) stop(server *os.Process, ended <-chan error) error {
	fmt.Fprintln(os.Stderr, "watchdog: the last user is gone; stopping the server")
	steps := []struct {
		signal syscall.Signal
		wait   time.Duration
	}{
		{syscall.SIGINT, spec.StopTimeout},
		{syscall.SIGQUIT, killGrace},
		{syscall.SIGKILL, killGrace},
	}
	for _, step := range steps {
		if err := server.Signal(step.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("send %s to the server: %w", step.signal, err)
		}
		timer := time.NewTimer(step.wait)
		select {
		case err := <-ended:
			timer.Stop()
			if err != nil { // an immediate shutdown does not end with status 0
				fmt.Fprintf(os.Stderr, "watchdog: server ended: %v\n", err)
			}
			return nil
		case <-timer.C:
			fmt.Fprintf(os.Stderr, "watchdog: server still runs %s after %s\n", step.wait, step.signal)
		}
	}
	return errors.New("server does not end")
}
