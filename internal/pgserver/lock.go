package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// pollInterval is how often a lock, a connection or a process is tried again
// while waiting for it. A try costs some microseconds, a failed connection
// attempt less than a millisecond.
const pollInterval = 5 * time.Millisecond

// lock is a flock on a file. It belongs to the open file: it ends with Close or
// with the process, and programs started from here do not inherit it unless the
// file is handed to them.
type lock struct{ file *os.File }

// openLock opens the lock file at path, creating it if need be, without locking.
func openLock(path string) (*lock, error) {
	f, err := openOwned(path, os.O_RDWR)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	return &lock{file: f}, nil
}

// try takes the lock in mode how (LOCK_SH or LOCK_EX) if nobody is in the way.
// When this lock was already held in another mode and the answer is false, it
// may be held in neither.
func (l *lock) try(how int) (bool, error) {
	err := flock(l.file, how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// acquire takes the lock in mode how, waiting until ctx ends.
func (l *lock) acquire(ctx context.Context, how int) error {
	for {
		got, err := l.try(how)
		if err != nil || got {
			return err
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("wait for %s, held while another process starts or stops the server: %w",
				l.file.Name(), err)
		}
	}
}

// release ends the lock. Closing a lock file has no error worth reporting.
func (l *lock) release() { _ = l.file.Close() }

// flock is the system call with its name in the error, repeated when a signal
// interrupts it.
func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		default:
			return nil
		}
	}
}

// openOwned opens a file of the cluster's home, creating it with mode 0600. A
// file that root creates is given to the owner of the home, who may be somebody
// else and has to be able to open it later. Symbolic links are refused, since
// that owner could point one anywhere.
func openOwned(path string, flag int) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW, 0)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		f, err = os.OpenFile(path, flag|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue // somebody else was quicker
		}
		if err != nil {
			return nil, err
		}
		if os.Geteuid() == 0 {
			uid, gid, err := owner(filepath.Dir(path))
			if err == nil {
				err = f.Chown(uid, gid)
			}
			if err != nil {
				_ = f.Close()
				return nil, err
			}
		}
		return f, nil
	}
}

// pause waits before another try, or returns the cause when ctx ends.
func pause(ctx context.Context) error {
	timer := time.NewTimer(pollInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
