package fake

import (
	"bytes"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"log" //nolint:depguard // smtp.Server takes no other logger, and this one is silenced
	"mime"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/mail"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// mailIdle bounds the wait for a command, and for a client that takes an answer.
const mailIdle = 5 * time.Minute

// serveMail takes mail on l until it is closed, and returns when all its sessions have
// ended. The end of ctx ends them.
func (s *Server) serveMail(ctx context.Context, l net.Listener, config *tls.Config) {
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &mailSession{server: s, conn: c}, nil
	}))
	server.Domain, server.TLSConfig = "fake.belfry", config.Clone()
	server.MaxMessageBytes, server.MaxRecipients, server.MaxLineLength = maxBody, 100, 4096
	server.ReadTimeout, server.WriteTimeout = mailIdle, mailIdle
	server.AllowInsecureAuth, server.EnableSMTPUTF8 = true, true
	server.ErrorLog = log.New(io.Discard, "", 0)
	_ = server.Serve(watchedListener{l, func(f func()) func() bool { return context.AfterFunc(ctx, f) }}) // ends with the listener
	_ = server.Shutdown(context.WithoutCancel(ctx))                                                       // waits for the sessions
}

// watchedListener has connections end with the server, and their clients' leaving be seen.
type watchedListener struct {
	net.Listener

	atEnd func(f func()) (stop func() bool)
}

func (l watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	stop := l.atEnd(func() { _ = conn.Close() }) // its session ends with it
	return &watchedConn{Conn: conn, stop: stop}, nil
}

// watchedConn reads ahead where that is the only way to see that a client has left.
type watchedConn struct {
	net.Conn

	stop  func() bool
	mu    sync.Mutex
	ahead []byte
}

// Close ends the connection.
func (c *watchedConn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// Read returns first what was read ahead.
func (c *watchedConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	c.mu.Unlock()
	if n > 0 {
		return n, nil
	}
	return c.Conn.Read(p)
}

// wait waits and reports whether the client is still there. Nothing else reads meanwhile.
func (c *watchedConn) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	if err := c.Conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return false
	}
	for buffer := make([]byte, 512); ; {
		n, err := c.Conn.Read(buffer)
		c.mu.Lock()
		c.ahead = append(c.ahead, buffer[:n]...)
		c.mu.Unlock()
		if timeout := net.Error(nil); err != nil {
			return errors.As(err, &timeout) && timeout.Timeout()
		}
	}
}

// mailSession is one connection, or what follows STARTTLS on it.
type mailSession struct {
	server *Server
	conn   *smtp.Conn
	to     string // the first recipient; a message of belfry's has one
}

// AuthMechanisms returns the only one.
func (m *mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }

// Auth verifies a password.
func (m *mailSession) Auth(mechanism string) (sasl.Server, error) {
	if mechanism != sasl.Plain {
		return nil, smtp.ErrAuthUnknownMechanism
	}
	return sasl.NewPlainServer(func(_, user, password string) error {
		want := m.server.vault.text("smtp", 18)
		if user != smtpUser || subtle.ConstantTimeCompare([]byte(password), []byte(want)) != 1 {
			return smtp.ErrAuthFailed
		}
		return nil
	}), nil
}

// Mail takes any sender.
func (m *mailSession) Mail(string, *smtp.MailOptions) error { return nil }

// Reset forgets the mail that was begun.
func (m *mailSession) Reset() { m.to = "" }

// Logout ends nothing that is left.
func (m *mailSession) Logout() error { return nil }

// Rcpt takes an address, or says that it is none if that was ordered.
func (m *mailSession) Rcpt(address string, _ *smtp.RcptOptions) error {
	s := m.server
	drawn := s.plan.draw(string(SMTP), ofMessage, subject{address: address})
	if drawn.fault.kind() != kindInvalid {
		if m.to == "" {
			m.to = address
		}
		return nil
	}
	s.ledger.request(SMTP, drawn)
	s.ledger.record(SMTP, newMail(address), s.config.Now(), kindInvalid, verdict{code: "550"})
	return mailError(550, "no such mailbox")
}

// mailError is a reply with the usual enhanced code.
func mailError(code int, text string) error {
	return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 3, 0}, Message: text}
}

// Data takes a mail and answers as a fault has it.
func (m *mailSession) Data(r io.Reader) error {
	s := m.server
	text, err := io.ReadAll(r)
	arrived := s.config.Now()
	var refused int
	switch {
	case errors.Is(err, smtp.ErrDataTooLarge):
		refused = 552
	case err != nil: // before the final dot: no mail at all
		return err
	}
	msg, err := readMail(m.to, text)
	if err != nil && refused == 0 {
		refused = 554
	}
	drawn := s.plan.draw(string(SMTP), ofCall, msg.subject())
	s.ledger.request(SMTP, drawn)
	f := drawn.fault
	k := f.kind()
	settle := func(v verdict) int64 { return s.ledger.record(SMTP, msg, arrived, k, v) }
	taken := f.taken() && refused == 0
	switch {
	case !m.wait(drawn.late):
		settle(verdict{})
		return m.reset()
	case k == kindStatus:
		code := mailCode(f)
		settle(verdict{accepted: taken, lost: taken, code: strconv.Itoa(code)})
		return mailError(code, "by order")
	case k == kindHang || k == kindReset:
		settle(verdict{accepted: taken, lost: taken})
		if k == kindHang {
			m.wait(mailIdle)
		}
		return m.reset()
	case refused != 0:
		k = kindNone
		settle(verdict{code: strconv.Itoa(refused)})
		return mailError(refused, "the mail is too large or malformed")
	}
	n := settle(verdict{accepted: true, lost: k == kindGarbage})
	if !m.spoil(f) {
		s.ledger.unanswered(SMTP, 1)
	}
	return mailError(250, "queued as "+msg.name(n))
}

// mailCode is a status as SMTP has it: HTTP's, ordered for all providers, become
// the codes that mean as much.
func mailCode(f Fault) int {
	switch {
	case f.For == string(SMTP):
		return f.Status
	case f.Status >= http.StatusInternalServerError || f.Status == http.StatusTooManyRequests || f.Status == http.StatusRequestTimeout:
		return 451
	}
	return 554
}

// spoil writes what a fault has come before the last line of the answer, and reports
// whether it went out.
func (m *mailSession) spoil(f Fault) bool {
	write := func(text string) bool {
		_, err := io.WriteString(m.conn.Conn(), text)
		return err == nil
	}
	switch k := f.kind(); {
	case k == kindGarbage:
		write("\x00\xffgarbage\r\n")
		_ = m.conn.Close() // or the library would answer
	case k == kindSlow:
		const line = "250-2.0.0 wait\r\n"
		for _, b := range []byte(line) {
			if !write(string(b)) || !m.wait(f.Slow/time.Duration(len(line))) {
				return false
			}
		}
	case k == kindHuge:
		line := "250-" + strings.Repeat(" ", 1018) + "\r\n"
		for range f.Huge * megabyte / int64(len(line)) {
			if !write(line) {
				return false
			}
		}
	}
	return true
}

// watched is the connection below TLS.
func (m *mailSession) watched() *watchedConn {
	conn := m.conn.Conn()
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	w, _ := conn.(*watchedConn)
	return w
}

// wait waits, and reports whether the client is still there.
func (m *mailSession) wait(d time.Duration) bool { return m.watched().wait(d) }

// reset ends the connection without an answer.
func (m *mailSession) reset() error {
	resetConn(m.watched().Conn)
	return net.ErrClosed
}

// newMail is a mail of which only the recipient is known.
func newMail(address string) *message {
	m := &message{address: address}
	m.seal(SMTP)
	return m
}

// readMail understands a mail. Its key is the local part of its Message-ID.
func readMail(address string, text []byte) (*message, error) {
	m := newMail(address)
	parsed, err := mail.ReadMessage(bytes.NewReader(text))
	if err != nil {
		return m, err
	}
	id := strings.Trim(strings.TrimSpace(parsed.Header.Get("Message-ID")), "<>")
	m.key, _, _ = strings.Cut(id, "@")
	m.seal(SMTP)
	m.title = parsed.Header.Get("Subject")
	if decoded, err := new(mime.WordDecoder).DecodeHeader(m.title); err == nil {
		m.title = decoded
	}
	body := parsed.Body
	switch strings.ToLower(parsed.Header.Get("Content-Transfer-Encoding")) {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	content, err := io.ReadAll(body)
	m.body = strings.TrimSpace(string(content))
	return m, err
}
