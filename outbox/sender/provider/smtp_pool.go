package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	gomail "github.com/wneessen/go-mail"
	gosmtp "github.com/wneessen/go-mail/smtp"
)

// smtpSession is one connection, ready for a message.
type smtpSession struct {
	link      *smtpLink
	client    *gosmtp.Client
	sent      int
	delivered bool        // a message was accepted
	late      bool        // the last step timed out
	expiry    *time.Timer // while idle
}

// close closes the connection without QUIT.
func (s *smtpSession) close() { _ = s.link.Close() }

// quit sends QUIT and closes the connection without waiting for the reply.
func (s *smtpSession) quit() {
	_ = s.link.Conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = s.client.Text.Cmd("QUIT")
	s.close()
}

// smtpPool stores idle sessions. Lock order: no other lock is taken while mu is held.
type smtpPool struct {
	cfg     SMTPConfig
	tls     *tls.Config
	options []gomail.Option
	limits  smtpLimit

	mu     sync.Mutex
	idle   []*smtpSession // ordered by last use
	closed bool
}

// take returns an idle session, or nil. It closes a session if the server has closed it, or has sent more than its
// replies: the next command would get a reply that is not its own.
func (p *smtpPool) take() *smtpSession {
	for {
		s := p.pop()
		if s == nil || s.quiet() {
			return s
		}
		s.close()
	}
}

func (p *smtpPool) pop() *smtpSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		last := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if last.expiry.Stop() {
			return last
		}
	}
	return nil
}

// quiet reports whether the connection is open and nothing is left to read: in the reader, in the TLS connection or
// in the socket. It does not wait.
func (s *smtpSession) quiet() bool {
	s.link.poll(true)
	defer s.link.poll(false)
	_, err := s.client.Text.R.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// keep returns a session to the pool after a message.
func (p *smtpPool) keep(s *smtpSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= p.cfg.MaxIdle || s.sent >= p.cfg.MaxPerConnection {
		s.quit()
		return
	}
	s.expiry = time.AfterFunc(p.cfg.IdleTimeout, func() { p.drop(s) })
	p.idle = append(p.idle, s)
}

// drop closes an expired session, unless it is in use.
func (p *smtpPool) drop(s *smtpSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.idle {
		if other == s {
			p.idle = slices.Delete(p.idle, i, i+1)
			break
		}
	}
	s.quit()
}

// Close closes idle sessions. Calls in progress continue.
func (p *smtpPool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.idle {
		if s.expiry.Stop() {
			s.quit()
		}
	}
	p.idle = nil
	return nil
}

// open connects and runs the protocol until a message can begin.
func (p *smtpPool) open(ctx context.Context) (*smtpSession, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limits.open)
	defer cancel()
	s := &smtpSession{}
	free := func() bool { return true }
	// The library's context ends after it has connected; ours binds the connection.
	dial := func(_ context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: p.limits.dial}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		s.link = &smtpLink{Conn: conn}
		free = s.link.bind(ctx)
		if p.cfg.TLS != "implicit" {
			return s.link, nil
		}
		secured := tls.Client(s.link, p.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		return secured, nil
	}
	client, err := gomail.NewClient(p.cfg.Host, slices.Concat(p.options, []gomail.Option{gomail.WithDialContextFunc(dial)})...)
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	s.client, err = client.DialToSMTPClientWithContext(ctx)
	alive := free()
	switch {
	case err == nil && alive:
		return s, nil
	case err == nil:
		err = context.Cause(ctx)
	}
	if s.link != nil {
		s.close() // the library does not close an unusable connection
	}
	if ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return nil, err
}

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
	polls  bool // reads do not wait
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
	left, read := l.budget, l.Conn.Read
	if l.polls {
		read = l.readNow
	}
	l.mu.Unlock()
	if left <= 0 {
		return 0, errSMTPTooMuch
	}
	n, err := read(b[:min(len(b), left)])
	l.mu.Lock()
	l.budget -= n
	l.mu.Unlock()
	return n, err
}

// poll makes reads return os.ErrDeadlineExceeded instead of waiting, until it is undone. After that error a TLS
// connection can be read again.
func (l *smtpLink) poll(on bool) {
	l.mu.Lock()
	l.polls = on
	l.mu.Unlock()
}

// readNow reads what has arrived. A deadline cannot do that: one in the past fails even if there is something, and
// one in the future waits.
func (l *smtpLink) readNow(b []byte) (n int, err error) {
	conn, ok := l.Conn.(syscall.Conn)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	closed := raw.Read(func(fd uintptr) bool {
		n, err = syscall.Read(int(fd), b)
		return true
	})
	switch {
	case closed != nil:
		return 0, closed
	case errors.Is(err, syscall.EAGAIN):
		return 0, os.ErrDeadlineExceeded
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (l *smtpLink) SetDeadline(time.Time) error      { return nil }
func (l *smtpLink) SetReadDeadline(time.Time) error  { return nil }
func (l *smtpLink) SetWriteDeadline(time.Time) error { return nil }
