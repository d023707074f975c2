package pgserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/child"
)

// errOver ends a wait for a watchdog that does not, or no longer, run the server.
var errOver = errors.New("another watchdog runs the server")

// what a message is about.
type what string

const (
	happened what = "happened" // Text is for the user's log
	delayed  what = "delayed"  // Text is for the user's log, as a warning
	ready    what = "ready"    // the server At accepts connections
	failed   what = "failed"   // the server does not start: Text says why
	another  what = "another"  // another watchdog runs the server
	left     what = "left"     // goodbye, the server stays for others; the last user hears nothing
)

// message is a line of JSON from a watchdog to one of its users, who say nothing.
type message struct {
	What      what
	Text      string   `json:",omitempty"`
	ElapsedMS int64    `json:",omitempty"`
	At        endpoint `json:",omitzero"`
}

// use is one user's connection to the watchdog. As long as the watchdog can read from it
// the server has a user, and when that process ends, however it does, the kernel closes it.
type use struct {
	conn     *net.UnixConn
	messages chan message
	at       endpoint

	watchdog *exec.Cmd // nil: started by somebody else
	said     *bytes.Buffer
}

// join becomes a user of the cluster, starting the watchdog if there is none, and waits
// for the server. If it cannot, it leaves nothing behind.
func (c *cluster) join(ctx context.Context, logger zerolog.Logger) (u *use, err error) {
	err = child.Poll(ctx, func() (bool, error) {
		if u, err = c.dial(); err != nil {
			if u, err = c.spawn(); err != nil {
				return false, fmt.Errorf("start watchdog: %w", err)
			}
		}
		err = u.await(ctx, c, logger)
		if err == nil {
			return true, nil
		}
		// The caller's context may be what ended; the server has to go all the same.
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		gone := u.leave(patience)
		if errors.Is(err, errOver) {
			return false, nil
		}
		return false, errors.Join(err, gone)
	})
	return u, err
}

// dial joins the watchdog that runs.
func (c *cluster) dial() (*use, error) {
	if err := c.ownsSocketDir(); err != nil {
		return nil, err
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(c.socketDir(), watchdogSocket), Net: "unix"})
	if err != nil {
		return nil, err
	}
	return newUse(conn), nil
}

// spawn starts this executable again as a watchdog whose first user this is.
func (c *cluster) spawn() (*use, error) {
	spec, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	exe, err := executable()
	if err != nil {
		return nil, err
	}
	conn, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	u := newUse(conn)
	u.said = &bytes.Buffer{}
	cmd := exec.Command(exe) //nolint:noctx // outlives this call and perhaps this process
	cmd.Args = []string{"belfry-watchdog", c.Home}
	cmd.Dir = "/" // so that no directory of the caller stays in use
	cmd.Env = append(child.Env(os.Environ()), watchdogEnv+"="+string(spec),
		"GORACE=atexit_sleep_ms=0") // built with -race it would otherwise stay for a second after its end
	cmd.Stdout, cmd.Stderr = u.said, u.said // until it has opened its log
	cmd.ExtraFiles = []*os.File{theirs}     // becomes firstUser
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = theirs.Close() // the watchdog has its own copy
	if err != nil {
		_ = conn.Close() // nobody is at its other end
		return nil, err
	}
	u.watchdog = cmd
	return u, nil
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

// socketpair returns a connection and the file that is its other end. Programs that are
// started meanwhile inherit neither: a copy would keep the server in use.
func socketpair() (*net.UnixConn, *os.File, error) {
	syscall.ForkLock.RLock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(pair[0])
		syscall.CloseOnExec(pair[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "watchdog"), os.NewFile(uintptr(pair[1]), "user")
	conn, err := unixConn(ours)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}

// unixConn makes a connection of a socket's file, which it closes.
func unixConn(f *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s: not a Unix socket", f.Name()), conn.Close())
	}
	return unix, nil
}

// newUse reads what the watchdog says until the connection ends.
func newUse(conn *net.UnixConn) *use {
	u := &use{conn: conn, messages: make(chan message)}
	go func() {
		defer close(u.messages)
		for in := json.NewDecoder(conn); ; {
			var m message
			if err := in.Decode(&m); err != nil {
				return
			}
			u.messages <- m
		}
	}()
	return u
}

// next returns the watchdog's next message, and io.EOF when there is no watchdog any more.
func (u *use) next(ctx context.Context) (message, error) {
	select {
	case m, ok := <-u.messages:
		if !ok {
			return message{}, io.EOF
		}
		return m, nil
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
}

// await waits until the server accepts connections.
func (u *use) await(ctx context.Context, c *cluster, logger zerolog.Logger) error {
	for {
		m, err := u.next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return u.ended()
		case err != nil:
			return fmt.Errorf("wait for the server in %s: %w", c.Home, err)
		}
		switch m.What {
		case ready:
			u.at = m.At
			return nil
		case failed:
			return errors.New(m.Text)
		case another:
			return errOver
		case happened, left:
			c.note(logger.Info(), m)
		case delayed:
			c.note(logger.Warn(), m)
		}
	}
}

// note logs what happens on the way.
func (c *cluster) note(event *zerolog.Event, m message) {
	if m.ElapsedMS > 0 {
		event.Int64("elapsed_ms", m.ElapsedMS)
	}
	event.Str("data_dir", c.data()).Str("postgresql", c.Install.Version).Msg(m.Text)
}

// ended says why there is no watchdog: one that ran before had stopped its server.
func (u *use) ended() error {
	if u.watchdog == nil {
		return errOver
	}
	_ = u.watchdog.Wait() // said comes with its end
	return fmt.Errorf("start watchdog: %s: %s", u.watchdog.ProcessState, strings.TrimSpace(u.said.String()))
}

// leave gives the server up. If nobody else uses it, leave returns when server and
// watchdog are gone (P3), or when ctx ends.
func (u *use) leave(ctx context.Context) error {
	defer func() {
		_ = u.conn.Close() // everything was said
		for range u.messages {
			continue // until its reader has ended
		}
	}()
	_ = u.conn.CloseWrite() // fails when the watchdog is gone, which next says
	for {
		m, err := u.next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			if u.watchdog != nil {
				_ = u.watchdog.Wait() // its error is in the server's log
			}
			return nil
		case err != nil:
			return fmt.Errorf("wait for the server to stop: %w", err)
		case m.What == left:
			if u.watchdog != nil {
				_ = u.watchdog.Process.Release() // somebody else will be the last one
			}
			return nil
		}
	}
}
