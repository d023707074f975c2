package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/mail"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	gosmtp "github.com/wneessen/go-mail/smtp"
	"golang.org/x/net/idna"

	"github.com/belfryhq/belfry/outbox/sender"
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
	if err := s.step(ctx, smtpMail, limits.mail, func() error {
		if err := sender.Check(ctx); err != nil {
			return err
		}
		return s.client.Mail(m.from)
	}); err != nil {
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
		if _, err := m.WriteTo(content); err != nil {
			return err
		}
		return sender.Check(ctx) // without the final dot the server discards the message
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

// smtpNotBegun reports whether err means that the message could no longer be sent before its first command.
func smtpNotBegun(err error) bool {
	failed, ok := errors.AsType[*smtpError](err)
	return ok && failed.step == smtpMail && errors.Is(err, sender.ErrLate)
}

// smtpReplied reports whether err is a server's reply to a command of a message, after which the connection can be
// used.
func smtpReplied(err error) bool {
	failed, ok := errors.AsType[*smtpError](err)
	return ok && failed.reply() != nil && failed.reply().Code != 421
}

// smtpStale reports whether err may mean that an idle connection was lost before a message began. A permanent refusal
// of MAIL may be a late reply to an earlier command. A temporary one, such as 452 4.5.3, may be a limit of messages per
// session, if the session has delivered some.
func smtpStale(s *smtpSession, err error) bool {
	failed, ok := errors.AsType[*smtpError](err)
	if !ok || failed.step != smtpMail || errors.Is(err, sender.ErrLate) {
		return false
	}
	reply := failed.reply()
	return reply == nil || reply.Code == 421 || reply.Code >= 500 || s.delivered
}

// smtpUnknownAddress are the enhanced codes of invalid addresses (RFC 3463 §3.2, RFC 5321, RFC 7505): no such
// mailbox, no such system, not an address, moved without a new address, a domain that accepts no mail.
var smtpUnknownAddress = []string{"5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10"}

// enhancedCode matches the beginning of a reply's text. Servers write the code even without announcing
// ENHANCEDSTATUSCODES, and some write a number sign before it.
var enhancedCode = regexp.MustCompile(`^#?([245]\.[0-9]{1,3}\.[0-9]{1,3})(?:\s|$)`)

// smtpBusyAddress are the enhanced codes of temporary refusals of one address: its domain or mailbox is not known yet, or
// the mailbox is full, disabled or greylisted. 4.1.7 and 4.1.8 concern the sender's address.
var smtpBusyAddress = []string{"4.1.1", "4.1.2", "4.1.3", "4.1.6", "4.1.10", "4.2.0", "4.2.1", "4.2.2", "4.2.3", "4.2.4"}

// greylisted matches the text of greylisting servers, which refuse an unknown sender and recipient for some minutes. Their
// enhanced code may be that of any policy, such as 4.7.1.
var greylisted = regexp.MustCompile(`(?i)gr[ae]y-?list`)

// classifySMTP returns the result of a message whose transaction ended with err. Only the codes of the server's text
// are stored, because it may repeat the address.
func classifySMTP(err error) sender.Result {
	if err == nil {
		return sender.Result{Class: sender.Accepted, Code: "250"}
	}
	if errors.Is(err, errNoSMTPUTF8) {
		return refuseAddress("smtputf8", "the server does not accept non-ASCII addresses")
	}
	failed, ok := errors.AsType[*smtpError](err)
	if !ok {
		return sender.Result{Class: sender.Unknown, Code: "internal", Detail: "the mail library failed without a reason"}
	}
	reply := failed.reply()
	if reply == nil {
		return smtpLost(failed)
	}
	r := sender.Result{Class: sender.Permanent, Code: smtpCode(reply), Detail: "the server refused " + failed.step}
	if failed.step == smtpDot {
		r.Detail = "the server refused the content"
	}
	_, enhanced, _ := strings.Cut(r.Code, " ")
	switch {
	case reply.Code < 400 && failed.step == smtpDot:
		r.Class, r.Detail = sender.Unknown, "the server answered the content with an unexpected code"
	case reply.Code < 500:
		r.Class = sender.Retryable
		r.AboutAddress = slices.Contains(smtpBusyAddress, enhanced) || greylisted.MatchString(reply.Msg)
	case failed.step == smtpRcpt && slices.Contains(smtpUnknownAddress, enhanced):
		r.Class = sender.InvalidAddress
	}
	return r
}

// smtpLost returns the result of a message whose connection broke. After the final dot the server may have accepted
// it.
func smtpLost(failed *smtpError) sender.Result {
	r := sender.Result{Class: sender.Retryable, Code: "connection", Detail: "the connection was lost at " + failed.step}
	if errors.Is(failed, sender.ErrLate) {
		return failureOf(errCallLate)
	} else if failed.ended != nil {
		r.Code, r.Detail = smtpEnded(failed.ended), "no answer to "+failed.step+" in time"
	}
	if failed.step == smtpDot {
		r.Class = sender.Unknown
	}
	return r
}

// smtpRefusedMore reports whether err may mean that the server limits connections.
func smtpRefusedMore(err error) bool {
	failed, ok := errors.AsType[*smtpError](err)
	switch {
	case !ok || failed.ended != nil:
		return false
	case failed.reply() != nil:
		return failed.reply().Code < 500
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	// a refusal before the handshake is not encrypted
	return failed.step == smtpGreeting || failed.step == smtpHello || failed.step == smtpHandshake && !untrusted
}

// smtpUnopened returns the result of a failed connection. No message was begun, so it is retryable.
func smtpUnopened(err error) sender.Result {
	r := sender.Result{Class: sender.Retryable, Code: "connection"}
	if errors.Is(err, sender.ErrLate) {
		return failureOf(errCallLate)
	}
	if errors.Is(err, errSMTPCrowded) {
		r.Code, r.Detail, r.Untried = smtpEnded(err), errSMTPCrowded.Error(), true
		return r
	}
	failed, ok := errors.AsType[*smtpError](err)
	if !ok {
		r.Detail = "the connection to the server could not be prepared"
		return r
	}
	var (
		name   *net.DNSError
		dial   *net.OpError
		record tls.RecordHeaderError
		verify *tls.CertificateVerificationError
		host   x509.HostnameError
	)
	switch reply := failed.reply(); {
	case reply != nil && failed.step == smtpGreeting:
		r.Code, r.Detail = smtpCode(reply), "the server refused the connection"
	case reply != nil && failed.step == smtpAuth:
		r.Code, r.Detail = smtpCode(reply), "the server refused the account"
	case reply != nil:
		r.Code, r.Detail = smtpCode(reply), "the server refused "+failed.step
	case failed.ended != nil:
		r.Code, r.Detail = smtpEnded(failed.ended), "no answer to "+failed.step+" in time"
	case errors.As(err, &name):
		r.Code, r.Detail = "dns", "the server name was not resolved"
	case errors.As(err, &verify), errors.As(err, &host), errors.As(err, &record):
		r.Code, r.Detail = "tls", fmt.Sprintf("the connection could not be encrypted: %v", failed.err)
	case errors.As(err, &dial) && dial.Op == "dial":
		r.Code, r.Detail = "dial", fmt.Sprintf("the server was not reached: %v", dial.Err)
	case errors.Is(err, errNoSTARTTLS):
		r.Code, r.Detail = "tls", errNoSTARTTLS.Error()
	case errors.Is(err, errNoMechanism):
		r.Code, r.Detail = "auth", errNoMechanism.Error()
	case errors.Is(err, gosmtp.ErrUnencrypted):
		r.Code, r.Detail = "auth", "plain and login require an encrypted connection"
	default:
		r.Detail = "the connection was lost at " + failed.step
	}
	return r
}

// smtpCode returns a reply's code, with its enhanced code if it has one.
func smtpCode(reply *textproto.Error) string {
	code := strconv.Itoa(reply.Code)
	if found := enhancedCode.FindStringSubmatch(reply.Msg); found != nil {
		code += " " + found[1]
	}
	return code
}

func smtpEnded(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "canceled"
}

// smtpMaxMailbox is the maximum length of an address in bytes: a path of RFC 5321 §4.5.3.1.3 without angle brackets.
const smtpMaxMailbox = 254

// smtpAllowed is appended to the errors of parseMailbox.
const smtpAllowed = "; allowed values: user@host of up to 254 bytes"

var (
	errNoMailbox = errors.New("is not a mail address")
	errLiteral   = errors.New("has an IP address instead of a domain")
)

// parseMailbox parses one address, with or without a name. It converts a non-ASCII domain to A-labels, which every
// server supports (RFC 5891). An error continues the words "the address" and does not quote the text.
func parseMailbox(text string) (*mail.Address, error) {
	parsed, err := mail.ParseAddress(text)
	switch {
	case strings.ContainsFunc(text, unicode.IsControl): // a comment may contain them
		return nil, errNoMailbox
	case err != nil && strings.Contains(text, "@[IPv6:"): // the library parses only IPv4 literals
		return nil, errLiteral
	case err != nil:
		return nil, errNoMailbox
	}
	if _, err := mail.ParseAddress("x:" + text + ";"); err != nil { // a group in a group
		return nil, errors.New("is a group")
	}
	at := strings.LastIndexByte(parsed.Address, '@')
	local, domain := parsed.Address[:at], parsed.Address[at+1:]
	switch {
	case strings.HasPrefix(domain, "["):
		return nil, errLiteral
	case strings.ContainsFunc(local, unseen), strings.ContainsFunc(domain, func(r rune) bool { return unseen(r) && !joins(r) }):
		return nil, errors.New("has a blank or an invisible character")
	}
	if !isASCII(domain) {
		if domain, err = idna.Lookup.ToASCII(domain); err != nil {
			return nil, errors.New("has a domain that is not an international domain name")
		}
		parsed.Address = local + "@" + domain
	}
	if len(parsed.Address) > smtpMaxMailbox {
		return nil, errors.New("is too long")
	}
	return parsed, nil
}

// unseen reports whether a character of an address is invisible, so that the address differs from the displayed
// text. An ASCII space is allowed; it is within quotation marks.
func unseen(r rune) bool {
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// joins reports whether r is U+200C or U+200D, which words of some languages require; idna permits them in a domain
// only in such words.
func joins(r rune) bool { return unicode.Is(unicode.Join_Control, r) }

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

// encodedTitle encodes a title that mail programs would decode as encoded words (RFC 2047 §5), and returns any other
// title unchanged. The mail library encodes only non-ASCII titles.
func encodedTitle(title string) string {
	if !isASCII(title) || !strings.Contains(title, "=?") {
		return title
	}
	var words []string
	const most = 42 // bytes per word, which has at most 75 characters after encoding
	for title != "" {
		part := title[:min(len(title), most)]
		words = append(words, "=?UTF-8?b?"+base64.StdEncoding.EncodeToString([]byte(part))+"?=")
		title = title[len(part):]
	}
	return strings.Join(words, " ")
}
