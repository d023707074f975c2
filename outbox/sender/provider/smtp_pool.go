package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	gomail "github.com/wneessen/go-mail"
	gosmtp "github.com/wneessen/go-mail/smtp"
)

// smtpSession is one connection, ready for a message.
type smtpSession struct {
	link   *smtpLink
	client *gosmtp.Client
	sent   int
	late   bool        // the last step timed out
	expiry *time.Timer // while idle
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

// take returns an idle session, or nil.
func (p *smtpPool) take() *smtpSession {
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
