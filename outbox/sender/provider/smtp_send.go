package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"time"
)

// SMTPTimeout is the maximum duration of a call if the server uses all timeouts of RFC 5321 §4.5.3.2 completely.
const SMTPTimeout = 30 * time.Minute

// smtpLimit contains the timeout of each step (RFC 5321 §4.5.3.2). Shorter timeouts cause duplicates: a server that
// loses its client while it accepts a mail delivers it nevertheless (RFC 1047).
type smtpLimit struct{ dial, open, mail, rcpt, data, content, dot, reset time.Duration }

//nolint:gochecknoglobals // constants
var smtpLimits = smtpLimit{
	dial: 30 * time.Second, open: 5 * time.Minute, // the greeting, EHLO, STARTTLS and AUTH together
	mail: 5 * time.Minute, rcpt: 5 * time.Minute, data: 2 * time.Minute, content: 3 * time.Minute, dot: 10 * time.Minute,
	reset: 30 * time.Second,
}

// The steps of a message.
const (
	smtpMail    = "MAIL"
	smtpRcpt    = "RCPT"
	smtpData    = "DATA"
	smtpContent = "the content"
	smtpDot     = "the final dot"
)

// errNoSMTPUTF8 means that the server cannot accept the mail.
var errNoSMTPUTF8 = errors.New("the server does not offer SMTPUTF8")

// smtpError is the error of a failed step.
type smtpError struct {
	step  string
	ended error // of the step's context: nil, context.Canceled or context.DeadlineExceeded
	err   error
}

func (e *smtpError) Error() string { return fmt.Sprintf("%s: %v", e.step, e.err) }
func (e *smtpError) Unwrap() error { return e.err }

// reply returns the server's error reply, or nil.
func (e *smtpError) reply() *textproto.Error {
	reply, _ := errors.AsType[*textproto.Error](e.err)
	return reply
}

// send sends one message through a session. Its errors are errNoSMTPUTF8 and *smtpError.
func (s *smtpSession) send(ctx context.Context, limits smtpLimit, m *smtpMessage) error {
	if offered, _ := s.client.Extension("SMTPUTF8"); m.utf8 && !offered {
		return errNoSMTPUTF8
	}
	s.sent++
	s.client.SkipSMTPUTF8(!m.utf8) // a next server may not support it
	if err := s.step(ctx, smtpMail, limits.mail, func() error { return s.client.Mail(m.from) }); err != nil {
		return err
	}
	if err := s.step(ctx, smtpRcpt, limits.rcpt, func() error { return s.client.Rcpt(m.to) }); err != nil {
		return err
	}
	content, err := s.data(ctx, limits)
	if err != nil {
		return err
	}
	if err := s.step(ctx, smtpContent, limits.content, func() error {
		_, err := m.WriteTo(content)
		return err
	}); err != nil {
		return err
	}
	return s.step(ctx, smtpDot, limits.dot, content.Close)
}

func (s *smtpSession) data(ctx context.Context, limits smtpLimit) (content io.WriteCloser, err error) {
	err = s.step(ctx, smtpData, limits.data, func() (err error) {
		content, err = s.client.Data()
		return err
	})
	return content, err
}

// step runs one exchange, limited by ctx and by the step's timeout.
func (s *smtpSession) step(ctx context.Context, name string, limit time.Duration, exchange func() error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	free := s.link.bind(limited)
	err := exchange()
	s.late = !free() // the timeout may still interrupt the connection
	if err != nil {
		return &smtpError{step: name, ended: limited.Err(), err: err}
	}
	if s.late && name != smtpDot { // the reply to the final dot is the outcome
		return &smtpError{step: name, ended: limited.Err(), err: context.Cause(limited)}
	}
	return nil
}
