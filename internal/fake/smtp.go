package fake

import (
	"bufio"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// Bounds of an SMTP session.
const (
	mailLine  = 4096            // bytes of a command
	mailIdle  = 5 * time.Minute // between commands
	mailSize  = maxBody
	mailRcpts = 100
)

// mailServer takes mail by SMTP (RFC 5321) with STARTTLS and AUTH.
type mailServer struct {
	server   *Server
	listener net.Listener
	tls      *tls.Config

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

func newMailServer(s *Server, l net.Listener, c *tls.Config) *mailServer {
	return &mailServer{server: s, listener: l, tls: c.Clone(), conns: make(map[net.Conn]bool)}
}

// serve takes connections until close, and returns when their sessions have ended.
func (m *mailServer) serve(ctx context.Context) {
	var sessions sync.WaitGroup
	defer sessions.Wait()
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || !pause(ctx, 10*time.Millisecond) {
				return
			}
			continue // too many open files, say
		}
		if !m.enter(conn) {
			continue
		}
		sessions.Go(func() {
			defer m.leave(conn)
			newMailSession(m, conn).run(ctx)
		})
	}
}

func (m *mailServer) enter(conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		_ = conn.Close() // nothing was said on it
		return false
	}
	m.conns[conn] = true
	return true
}

func (m *mailServer) leave(conn net.Conn) {
	_ = conn.Close() // closed already if it was reset
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.conns, conn)
}

func (m *mailServer) close() error {
	err := m.listener.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for conn := range m.conns {
		_ = conn.Close() // its session ends with it
	}
	return err
}

// mailSession is one connection.
type mailSession struct {
	mail *mailServer
	raw  net.Conn // under TLS or not
	conn net.Conn
	in   *bufio.Reader

	from     bool // MAIL was given
	to       []string
	finished bool
}

func newMailSession(m *mailServer, conn net.Conn) *mailSession {
	return &mailSession{mail: m, raw: conn, conn: conn, in: bufio.NewReaderSize(conn, mailLine)}
}

// run speaks until one side has enough.
func (m *mailSession) run(ctx context.Context) {
	m.say("220 fake.belfry ESMTP")
	for !m.finished {
		line, err := m.readLine()
		if errors.Is(err, bufio.ErrBufferFull) {
			m.say("500 5.5.6 line too long")
			return
		}
		if err != nil {
			return
		}
		verb, rest, _ := strings.Cut(line, " ")
		m.obey(ctx, strings.ToUpper(verb), strings.TrimSpace(rest))
	}
}

func (m *mailSession) readLine() (string, error) {
	if err := m.conn.SetReadDeadline(time.Now().Add(mailIdle)); err != nil {
		return "", err
	}
	line, err := m.in.ReadSlice('\n')
	return strings.TrimRight(string(line), "\r\n"), err
}

// say writes a reply of one line.
func (m *mailSession) say(line string) { m.write(line + "\r\n") }

func (m *mailSession) write(text string) bool {
	err := m.conn.SetWriteDeadline(time.Now().Add(mailIdle))
	if err == nil {
		_, err = io.WriteString(m.conn, text)
	}
	m.finished = m.finished || err != nil
	return err == nil
}

func (m *mailSession) obey(ctx context.Context, verb, rest string) {
	switch verb {
	case "EHLO":
		m.greet()
	case "HELO":
		m.say("250 fake.belfry")
	case "STARTTLS":
		m.startTLS(ctx)
	case "AUTH":
		m.authenticate(rest)
	case "MAIL":
		m.begin(rest)
	case "RCPT":
		m.recipient(rest)
	case "DATA":
		m.data(ctx)
	case "RSET":
		m.from, m.to = false, nil
		m.say("250 2.0.0 ok")
	case "NOOP":
		m.say("250 2.0.0 ok")
	case "VRFY":
		m.say("252 2.5.0 send some mail, and see")
	case "QUIT":
		m.say("221 2.0.0 bye")
		m.finished = true
	default:
		m.say("502 5.5.2 command not recognized")
	}
}

func (m *mailSession) greet() {
	lines := []string{"fake.belfry", "PIPELINING", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES", fmt.Sprintf("SIZE %d", mailSize)}
	if m.conn == m.raw {
		lines = append(lines, "STARTTLS")
	}
	lines = append(lines, "AUTH PLAIN LOGIN")
	var b strings.Builder
	for i, line := range lines {
		separator := "-"
		if i == len(lines)-1 {
			separator = " "
		}
		b.WriteString("250" + separator + line + "\r\n")
	}
	m.write(b.String())
}

func (m *mailSession) startTLS(ctx context.Context) {
	if m.conn != m.raw {
		m.say("503 5.5.1 TLS is on")
		return
	}
	m.say("220 2.0.0 go ahead")
	secure := tls.Server(m.raw, m.mail.tls)
	if err := errors.Join(m.raw.SetDeadline(time.Now().Add(mailIdle)), secure.HandshakeContext(ctx)); err != nil {
		m.finished = true
		return
	}
	// What came before TLS does not count (RFC 3207).
	m.conn, m.in = secure, bufio.NewReaderSize(secure, mailLine)
	m.from, m.to = false, nil
}

// authenticate takes PLAIN and LOGIN.
func (m *mailSession) authenticate(rest string) {
	mechanism, initial, _ := strings.Cut(rest, " ")
	var user, password string
	switch strings.ToUpper(mechanism) {
	case "PLAIN":
		text, ok := m.ask(initial, "")
		parts := strings.Split(text, "\x00")
		if !ok || len(parts) != 3 {
			m.say("501 5.5.2 malformed")
			return
		}
		user, password = parts[1], parts[2]
	case "LOGIN":
		var ok, also bool
		if user, ok = m.ask(initial, "Username:"); ok {
			password, also = m.ask("", "Password:")
		}
		if !ok || !also {
			m.say("501 5.5.2 malformed")
			return
		}
	default:
		m.say("504 5.5.4 mechanism not known")
		return
	}
	want := m.mail.server.vault.text("smtp", 18)
	if user != smtpUser || subtle.ConstantTimeCompare([]byte(password), []byte(want)) != 1 {
		m.say("535 5.7.8 authentication failed")
		return
	}
	m.say("235 2.7.0 authenticated")
}

// ask returns base64 text that was given already, or that a prompt asks for.
func (m *mailSession) ask(given, prompt string) (string, bool) {
	if given == "" {
		m.say("334 " + base64.StdEncoding.EncodeToString([]byte(prompt)))
		var err error
		if given, err = m.readLine(); err != nil {
			m.finished = true
			return "", false
		}
	}
	text, ok := decode64(given)
	return string(text), ok
}

func (m *mailSession) begin(rest string) {
	if _, ok := envelope(rest, "FROM:"); !ok {
		m.say("501 5.5.4 MAIL FROM:<address>")
		return
	}
	if m.from {
		m.say("503 5.5.1 one mail after the other")
		return
	}
	m.from = true
	m.say("250 2.1.0 ok")
}

// envelope returns the address of MAIL or RCPT.
func envelope(rest, word string) (string, bool) {
	if len(rest) < len(word) || !strings.EqualFold(rest[:len(word)], word) {
		return "", false
	}
	rest = strings.TrimSpace(rest[len(word):])
	end := strings.IndexByte(rest, '>')
	if !strings.HasPrefix(rest, "<") || end < 0 {
		return "", false
	}
	return rest[1:end], true
}

// recipient takes an address, or says that it is none if that was ordered.
func (m *mailSession) recipient(rest string) {
	address, ok := envelope(rest, "TO:")
	switch {
	case !ok || address == "":
		m.say("501 5.5.4 RCPT TO:<address>")
		return
	case !m.from:
		m.say("503 5.5.1 MAIL comes first")
		return
	case len(m.to) >= mailRcpts:
		m.say("452 4.5.3 too many recipients")
		return
	}
	s := m.mail.server
	drawn := s.plan.draw(string(SMTP), ofMessage, subject{address: address})
	if drawn.fault.kind != kindInvalid {
		m.to = append(m.to, address)
		m.say("250 2.1.5 ok")
		return
	}
	s.ledger.request(SMTP, drawn)
	s.ledger.record(SMTP, newMail(address), s.config.Now(), kindInvalid, verdict{code: "550"})
	m.say("550 5.1.1 no such mailbox")
}
