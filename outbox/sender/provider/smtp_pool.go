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

	"github.com/belfryhq/belfry/outbox/sender"
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

// quit sends QUIT, and closes the connection when the server has, or after a second: until then the server counts it.
func (s *smtpSession) quit() {
	_ = s.link.Conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = s.client.Text.Cmd("QUIT")
	_, _ = io.Copy(io.Discard, s.client.Text.R)
	s.close()
}

// smtpPool limits and opens sessions, and stores idle ones. A call takes an idle session, or waits for the first of two: the
// session that is opened for it, and one that another call gives back. A server may accept connections and greet late. If
// it refuses a further connection temporarily, no other one is opened for smtpCrowded. Lock order: no other lock is taken
// while mu is held.
//
//	waiting ─► a session comes ─► in use ─► given back: to the first that waits, or idle
//	   └─ being opened ─┘              └──► closed: another one may be opened
type smtpPool struct {
	cfg    SMTPConfig
	tls    *tls.Config
	auth   func() gosmtp.Auth // nil without authentication
	limits smtpLimit

	mu       sync.Mutex
	idle     []*smtpSession // ordered by last use
	closed   bool
	sessions int       // in use or idle
	opening  int       // being opened
	limit    int       // of both together, or 0
	parted   time.Time // when a session was closed last
	waiting  []*smtpWaiter
	orphans  map[*smtpWaiter]struct{} // that got another session than the one that is being opened
}

// smtpWaiter is a call that waits for a session.
type smtpWaiter struct {
	open   func() (cancel context.CancelFunc) // begins to open a session
	cancel context.CancelFunc                 // while one is being opened
	pause  time.Duration                      // after the last refusal
	paused bool
	came   chan smtpAnswer // receives one answer
}

// smtpAnswer is a session or an error.
type smtpAnswer struct {
	s   *smtpSession
	err error
}

const (
	// smtpCrowded is the time for which no further connection is opened after one was refused.
	smtpCrowded = time.Minute
	// smtpParting is the time after the end of a connection for which a server may count it: if it is the only one,
	// a refusal is no answer, and the call tries again after a pause of smtpPause, or twice the last one.
	smtpParting, smtpPause = 10 * time.Second, 100 * time.Millisecond
)

// errSMTPCrowded means that a call has ended while it waited for a session.
var errSMTPCrowded = errors.New("the server accepts no further connection, and none was free in time")

// acquire returns an idle session, or a new one. With fresh it prefers a new one. The caller must call release.
func (p *smtpPool) acquire(ctx context.Context, fresh bool) (s *smtpSession, reused bool, err error) {
	for {
		if s, err = p.wait(ctx, fresh); err != nil {
			return nil, false, err
		}
		// The server may have closed it, or sent more than its replies: the next command would get a reply that is not
		// its own.
		if reused = s.sent > 0 || s.expiry != nil; !reused || s.quiet() {
			return s, reused, nil
		}
		p.release(s, false)
	}
}

func (p *smtpPool) wait(ctx context.Context, fresh bool) (*smtpSession, error) {
	w := &smtpWaiter{came: make(chan smtpAnswer, 1)}
	w.open = func() context.CancelFunc {
		at, ok := ctx.Deadline()
		if !ok {
			at = time.Now().Add(p.limits.open)
		}
		opening, cancel := context.WithDeadline(context.WithoutCancel(ctx), at) // it goes on when another session comes first
		go func() {
			defer cancel()
			p.openFor(opening, w)
		}()
		return cancel
	}
	p.mu.Lock()
	if !fresh {
		if s := p.pop(); s != nil {
			p.mu.Unlock()
			return s, nil
		}
	}
	p.waiting = append(p.waiting, w)
	p.admit()
	p.mu.Unlock()
	select {
	case answer := <-w.came:
		return answer.s, answer.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	i, cancel := slices.Index(p.waiting, w), w.cancel
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 || cancel != nil {
		if cancel != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) { // which ends it by itself
			cancel()
		}
		answer := <-w.came
		if answer.err != nil {
			return nil, answer.err
		}
		p.release(answer.s, true)
	}
	return nil, errors.Join(errSMTPCrowded, ctx.Err())
}

// openFor opens a session for a call that waits.
func (p *smtpPool) openFor(ctx context.Context, w *smtpWaiter) {
	var s *smtpSession
	err := sender.Check(ctx)
	if err == nil {
		s, err = p.open(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.admit()
	p.opening--
	w.cancel = nil
	_, orphan := p.orphans[w]
	delete(p.orphans, w)
	if err == nil {
		p.sessions++
		if p.limit > 0 {
			p.limit = max(p.limit, p.sessions)
		}
	}
	switch {
	case orphan && err == nil && !p.give(s):
		go p.part(s)
	case orphan:
	case err != nil && smtpRefusedMore(err) && p.later(w):
	default:
		p.answer(w, smtpAnswer{s, err})
	}
}

// later reports whether a call goes on waiting after the server has refused a connection: for another session, or for
// the server to forget an earlier one. p.mu is held.
func (p *smtpPool) later(w *smtpWaiter) bool {
	switch {
	case !slices.Contains(p.waiting, w): // the call has ended
		return false
	case p.sessions+p.opening > 0:
		if p.limit == 0 {
			time.AfterFunc(smtpCrowded, p.unlimit)
		}
		p.limit = max(p.sessions, 1)
	case time.Since(p.parted) < smtpParting:
		w.pause, w.paused = max(2*w.pause, smtpPause), true
		time.AfterFunc(w.pause, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			w.paused = false
			p.admit()
		})
	default:
		return false
	}
	return true
}

// answer ends the wait of a call. p.mu is held.
func (p *smtpPool) answer(w *smtpWaiter, a smtpAnswer) {
	p.waiting = slices.DeleteFunc(p.waiting, func(other *smtpWaiter) bool { return other == w })
	if w.cancel != nil {
		p.orphans[w] = struct{}{}
	}
	w.came <- a
}

// admit opens sessions, as many as calls wait, or gives the calls idle ones. p.mu is held.
func (p *smtpPool) admit() {
	for _, w := range slices.Clone(p.waiting) {
		switch {
		case w.cancel != nil || w.paused:
		case p.opening < len(p.waiting) && (p.limit == 0 || p.sessions+p.opening < p.limit):
			p.opening++
			w.cancel = w.open()
		default:
			if s := p.pop(); s != nil {
				p.answer(w, smtpAnswer{s: s})
			}
		}
	}
}

func (p *smtpPool) unlimit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = 0
	p.admit()
}

// release gives a session back if it can be used again, and otherwise closes it.
func (p *smtpPool) release(s *smtpSession, usable bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !usable:
		s.close()
		p.gone()
	case !p.give(s):
		go p.part(s) // the call does not wait for the server
	}
}

// give hands a session to the first call that waits, or stores it. It reports whether the session is wanted. p.mu is held.
func (p *smtpPool) give(s *smtpSession) bool {
	switch {
	case s.sent >= p.cfg.MaxPerConnection:
		return false
	case len(p.waiting) > 0:
		p.answer(p.waiting[0], smtpAnswer{s: s})
		return true
	case p.closed || len(p.idle) >= p.cfg.MaxIdle:
		return false
	}
	s.expiry = time.AfterFunc(p.cfg.IdleTimeout, func() { p.drop(s) })
	p.idle = append(p.idle, s)
	return true
}

// part ends a session with QUIT.
func (p *smtpPool) part(s *smtpSession) {
	s.quit()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone()
}

// gone counts a session that was closed. p.mu is held.
func (p *smtpPool) gone() {
	p.sessions--
	p.parted = time.Now()
	p.admit()
}

// pop returns an idle session, or nil. p.mu is held.
func (p *smtpPool) pop() *smtpSession {
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

// drop closes an expired session.
func (p *smtpPool) drop(s *smtpSession) {
	p.mu.Lock()
	p.idle = slices.DeleteFunc(p.idle, func(other *smtpSession) bool { return other == s })
	p.mu.Unlock()
	p.part(s)
}

// Close closes idle sessions, and those that are being opened for no call. Calls in progress continue.
func (p *smtpPool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for s := p.pop(); s != nil; s = p.pop() {
		go p.part(s)
	}
	for w := range p.orphans {
		w.cancel()
	}
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
