package fake

import (
	"bytes"
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
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// mailIdle limits the wait for a command, and for a client that reads an answer.
const mailIdle = 5 * time.Minute

// serveMail accepts mail on a listener until Close.
func (s *Server) serveMail(l net.Listener) {
	s.mail = smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &mailSession{server: s, conn: c}, nil
	}))
	s.mail.Domain, s.mail.MaxMessageBytes, s.mail.MaxRecipients, s.mail.MaxLineLength = "fake.belfry", maxBody, 100, 4096
	s.mail.ReadTimeout, s.mail.WriteTimeout = mailIdle, mailIdle
	s.mail.AllowInsecureAuth, s.mail.EnableSMTPUTF8 = true, true
	s.mail.ErrorLog = log.New(io.Discard, "", 0)
	s.inbox = l
	s.served.Go(func() { _ = s.mail.Serve(l) }) // ends with Close
}

// mailSession is one connection.
type mailSession struct {
	server *Server
	conn   *smtp.Conn
	to     string // the first recipient; messages of belfry have one
}

// AuthMechanisms returns the only mechanism.
func (m *mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }

// Auth verifies a password.
func (m *mailSession) Auth(mechanism string) (sasl.Server, error) {
	if mechanism != sasl.Plain {
		return nil, smtp.ErrAuthUnknownMechanism
	}
	return sasl.NewPlainServer(func(_, user, given string) error {
		if user != smtpUser || given != password("smtp") {
			return smtp.ErrAuthFailed
		}
		return nil
	}), nil
}

// Mail accepts any sender.
func (m *mailSession) Mail(string, *smtp.MailOptions) error { return nil }

// Reset discards the current mail.
func (m *mailSession) Reset() { m.to = "" }

// Logout implements smtp.Session.
func (m *mailSession) Logout() error { return nil }

// Rcpt accepts an address, or refuses it if a fault applies.
func (m *mailSession) Rcpt(address string, _ *smtp.RcptOptions) error {
	s := m.server
	if s.plan.ofMessage(SMTP, address) == kindInvalid {
		s.ledger.record(SMTP, &message{address: address}, s.config.Now(), kindInvalid, verdict{code: "550"})
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such mailbox"}
	}
	m.to = address
	return nil
}

// mailReply returns an answer with the usual enhanced code.
func mailReply(code int, text string) error {
	return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 3, 0}, Message: text}
}

// Data accepts a mail and answers according to the fault.
func (m *mailSession) Data(r io.Reader) error {
	s := m.server
	if !s.enter() {
		return net.ErrClosed
	}
	defer s.leave()
	text, err := io.ReadAll(r)
	arrived := s.config.Now()
	if err != nil && !errors.Is(err, smtp.ErrDataTooLarge) { // before the final dot; there is no mail
		return err
	}
	msg, formErr := readMail(m.to, text)
	late, f := s.plan.ofCall(SMTP, m.to)
	k := f.kind()
	settle := func(v verdict) { s.ledger.record(SMTP, &msg, arrived, k, v) }
	switch taken := f.taken() && err == nil && formErr == nil; {
	case !pause(s.ending, late):
		settle(verdict{})
		return m.reset()
	case k == kindStatus:
		code := mailCode(f)
		settle(verdict{code: strconv.Itoa(code)})
		return mailReply(code, "by order")
	case k == kindHang || k == kindReset:
		settle(verdict{accepted: taken, lost: true})
		if k == kindHang {
			pause(s.ending, mailIdle)
		}
		return m.reset()
	case err != nil || formErr != nil:
		settle(verdict{code: "554"})
		return mailReply(554, "the mail is too large or malformed")
	}
	settle(verdict{accepted: true, lost: k == kindGarbage})
	if k == kindGarbage {
		_, _ = io.WriteString(m.conn.Conn(), "\x00\xffgarbage\r\n")
		_ = m.conn.Close() // otherwise the library would answer
	}
	return nil
}

// mailCode returns a code of SMTP. It maps the HTTP statuses of faults for all providers to the
// corresponding codes.
func mailCode(f Fault) int {
	switch {
	case f.For == string(SMTP):
		return f.Status
	case f.Status >= http.StatusInternalServerError || f.Status == http.StatusTooManyRequests || f.Status == http.StatusRequestTimeout:
		return 451
	}
	return 554
}

// reset ends the connection without an answer.
func (m *mailSession) reset() error {
	resetConn(m.conn.Conn())
	return net.ErrClosed
}

// readMail parses a mail. Its key is the local part of its Message-ID.
func readMail(address string, text []byte) (m message, err error) {
	m.address = address
	parsed, err := mail.ReadMessage(bytes.NewReader(text))
	if err != nil {
		return m, err
	}
	m.key, _, _ = strings.Cut(strings.Trim(parsed.Header.Get("Message-ID"), " <>"), "@")
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
