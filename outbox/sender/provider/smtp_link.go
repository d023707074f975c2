package provider

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// smtpReadBytes is the maximum number of bytes read from the server per message and per opening of a connection:
// certificates, greetings and replies.
const smtpReadBytes = 256 << 10

var errSMTPTooMuch = errors.New("the server sent too much")

// smtpLink is a connection whose deadline follows the bound context. It ignores the library's deadlines, which are
// unaware of the context.
type smtpLink struct {
	net.Conn
	mu     sync.Mutex
	budget int
}

// bind makes the connection's reads and writes end with ctx, and resets the limit of bytes. The caller must call free,
// which reports whether ctx has not ended.
func (l *smtpLink) bind(ctx context.Context) (free func() bool) {
	l.mu.Lock()
	l.budget = smtpReadBytes
	l.mu.Unlock()
	_ = l.Conn.SetDeadline(time.Time{}) // fails only if the connection is closed, like the next call
	return context.AfterFunc(ctx, func() { _ = l.Conn.SetDeadline(time.Unix(1, 0)) })
}

func (l *smtpLink) Read(b []byte) (int, error) {
	l.mu.Lock()
	left := l.budget
	l.mu.Unlock()
	if left <= 0 {
		return 0, errSMTPTooMuch
	}
	n, err := l.Conn.Read(b[:min(len(b), left)])
	l.mu.Lock()
	l.budget -= n
	l.mu.Unlock()
	return n, err
}

func (l *smtpLink) SetDeadline(time.Time) error      { return nil }
func (l *smtpLink) SetReadDeadline(time.Time) error  { return nil }
func (l *smtpLink) SetWriteDeadline(time.Time) error { return nil }
