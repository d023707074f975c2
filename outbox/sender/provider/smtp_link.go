package provider

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// smtpReadBytes bounds what one message, or the opening of a connection, reads from the
// server: certificates, greetings, replies.
const smtpReadBytes = 256 << 10

var errSMTPTooMuch = errors.New("the server sent too much")

// smtpLink is a connection whose deadline follows the context that it is bound to. The
// library's own deadlines are ignored: it sets them without knowing of a context.
type smtpLink struct {
	net.Conn
	mu     sync.Mutex
	budget int
}

// bind has the connection's reads and writes end with ctx and allows readBytes anew.
// free must be called; it reports whether ctx has not ended.
func (l *smtpLink) bind(ctx context.Context) (free func() bool) {
	l.mu.Lock()
	l.budget = smtpReadBytes
	l.mu.Unlock()
	_ = l.Conn.SetDeadline(time.Time{}) // fails on a closed connection only, as the next call will
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
