package provider

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

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
	s.sayQuit()
	s.close()
}

// sayQuit sends QUIT. The connection's reads and writes then end within a second.
func (s *smtpSession) sayQuit() {
	_ = s.link.Conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = s.client.Text.Cmd("QUIT")
}

// smtpPool limits and opens sessions, and stores idle ones. Servers limit the connections of a client: if one refuses a
// further connection temporarily, calls wait for one of the sessions in use, and no further connection is tried for
// smtpCrowded. Lock order: no other lock is taken while mu is held.
type smtpPool struct {
	cfg    SMTPConfig
	tls    *tls.Config
	auth   func() gosmtp.Auth // nil without authentication
	limits smtpLimit

	mu      sync.Mutex
	idle    []*smtpSession // ordered by last use
	closed  bool
	inUse   int             // sessions in use or being opened
	opened  int             // sessions in use
	limit   int             // of inUse, or 0
	waiting []chan struct{} // calls that wait for inUse to be below limit, in order
}

// smtpCrowded is the time for which no further connection is tried after one was refused.
const smtpCrowded = time.Minute

// errSMTPCrowded means that a call has ended while it waited for a session.
var errSMTPCrowded = errors.New("the server accepts no further connection, and none was free in time")

// acquire returns an idle session, or a new one. With fresh it prefers a new one. The caller must call release.
func (p *smtpPool) acquire(ctx context.Context, fresh bool) (s *smtpSession, reused bool, err error) {
	for {
		if err := p.enter(ctx); err != nil {
			return nil, false, err
		}
		if !fresh {
			if s = p.take(); s != nil {
				return s, true, nil
			}
		}
		if s, err = p.open(ctx); err == nil {
			p.countOpened()
			return s, false, nil
		}
		if !p.giveUp(smtpRefusedMore(err)) {
			return nil, false, err
		}
		fresh = false // an idle session does not prevent that another connection is refused
	}
}

// release stores a session if it can be used again, and otherwise closes it.
func (p *smtpPool) release(s *smtpSession, usable bool) {
	if usable && p.keep(s) {
		return
	}
	if usable {
		s.sayQuit()
		_, _ = io.Copy(io.Discard, s.client.Text.R) // until the server no longer counts the connection
	}
	s.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave()
}

// keep stores a session after a message, unless there are enough.
func (p *smtpPool) keep(s *smtpSession) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= p.cfg.MaxIdle || s.sent >= p.cfg.MaxPerConnection {
		return false
	}
	s.expiry = time.AfterFunc(p.cfg.IdleTimeout, func() { p.drop(s) })
	p.idle = append(p.idle, s)
	p.leave()
	return true
}

// leave ends the use of a session. p.mu is held.
func (p *smtpPool) leave() {
	p.inUse--
	p.opened--
	p.admit()
}

// giveUp ends the use of a session that was not opened. If its connection was refused, giveUp reports whether another
// one is in use, being opened or idle.
func (p *smtpPool) giveUp(refused bool) (others bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inUse--
	others = refused && p.inUse+len(p.idle) > 0
	if others {
		if p.limit == 0 {
			time.AfterFunc(smtpCrowded, p.unlimit)
		}
		p.limit = max(p.opened+len(p.idle), 1)
	}
	p.admit()
	return others
}

// enter waits until a session may be used.
func (p *smtpPool) enter(ctx context.Context) error {
	turn := make(chan struct{})
	p.mu.Lock()
	p.waiting = append(p.waiting, turn)
	p.admit()
	p.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, turn); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	} else { // admitted at the same time
		p.inUse--
		p.admit()
	}
	return errors.Join(errSMTPCrowded, ctx.Err())
}

// admit lets calls in that wait. p.mu is held.
func (p *smtpPool) admit() {
	for len(p.waiting) > 0 && (p.limit == 0 || p.inUse < p.limit) {
		p.inUse++
		close(p.waiting[0])
		p.waiting = p.waiting[1:]
	}
}

func (p *smtpPool) unlimit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = 0
	p.admit()
}

func (p *smtpPool) countOpened() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
	if p.limit > 0 {
		p.limit = max(p.limit, p.opened+len(p.idle))
	}
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
		p.mu.Lock()
		p.opened--
		p.mu.Unlock()
	}
}

func (p *smtpPool) pop() *smtpSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		last := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if last.expiry.Stop() {
			p.opened++
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

// The steps of a connection.
const (
	smtpConnect   = "the connection"
	smtpHandshake = "the TLS handshake"
	smtpGreeting  = "the greeting"
	smtpHello     = "EHLO"
	smtpStartTLS  = "STARTTLS"
	smtpAuth      = "AUTH"
)

// Errors of a server that does not offer what the configuration requires.
var (
	errNoSTARTTLS  = errors.New("the server does not offer STARTTLS")
	errNoMechanism = errors.New("the server does not offer the configured authentication mechanism")
)

// open connects and runs the protocol until a message can begin. Its errors are *smtpError.
func (p *smtpPool) open(ctx context.Context) (*smtpSession, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limits.open)
	defer cancel()
	raw, err := (&net.Dialer{Timeout: p.limits.dial}).DialContext(ctx, "tcp", net.JoinHostPort(p.cfg.Host, strconv.Itoa(p.cfg.Port)))
	if err != nil {
		return nil, &smtpError{step: smtpConnect, ended: ctx.Err(), err: err}
	}
	s := &smtpSession{link: &smtpLink{Conn: raw}}
	if err := p.prepare(ctx, s); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// prepare runs the protocol over a new connection.
func (p *smtpPool) prepare(ctx context.Context, s *smtpSession) error {
	step := func(name string, exchange func() error) error { return s.step(ctx, name, p.limits.open, exchange) }
	var conn net.Conn = s.link
	if p.cfg.TLS == "implicit" {
		secured := tls.Client(s.link, p.tls)
		if err := step(smtpHandshake, func() error { return secured.HandshakeContext(ctx) }); err != nil {
			return err
		}
		conn = secured
	}
	if err := step(smtpGreeting, func() (err error) {
		s.client, err = gosmtp.NewClient(conn, p.cfg.Host)
		return err
	}); err != nil {
		return err
	}
	if err := step(smtpHello, func() error { return s.client.Hello(p.cfg.Hello) }); err != nil {
		return err
	}
	readBareReplies(s.client)
	if offered, _ := s.client.Extension("STARTTLS"); p.cfg.TLS == "starttls" || p.cfg.TLS == "opportunistic" && offered {
		if err := step(smtpStartTLS, func() error {
			if !offered {
				return errNoSTARTTLS
			}
			return s.client.StartTLS(p.tls)
		}); err != nil {
			return err
		}
		readBareReplies(s.client)
	}
	if p.auth == nil {
		return nil
	}
	return step(smtpAuth, func() error {
		_, offered := s.client.Extension("AUTH")
		if !slices.Contains(strings.Fields(strings.ToUpper(offered)), strings.ToUpper(p.cfg.Auth)) {
			return errNoMechanism
		}
		return s.client.Auth(p.auth())
	})
}

// bareReplies adds a space to a reply that consists of its code, such as "250", which RFC 5321 §4.2 allows, and
// net/textproto does not.
type bareReplies struct {
	r      *bufio.Reader
	column int
}

func readBareReplies(client *gosmtp.Client) {
	client.Text.R = bufio.NewReader(&bareReplies{r: client.Text.R})
}

// Read reads one byte.
func (b *bareReplies) Read(p []byte) (int, error) {
	next, err := b.r.Peek(1)
	if err != nil || len(p) == 0 {
		return 0, err
	}
	switch p[0] = next[0]; {
	case b.column == len("250") && (p[0] == '\r' || p[0] == '\n'):
		p[0] = ' '
		b.column++
		return 1, nil
	case p[0] == '\n':
		b.column = 0
	default:
		b.column++
	}
	_, err = b.r.Discard(1)
	return 1, err
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
