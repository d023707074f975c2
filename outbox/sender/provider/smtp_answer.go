package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"strconv"
	"strings"

	gomail "github.com/wneessen/go-mail"

	"github.com/belfryhq/belfry/outbox/sender"
)

// smtpStep names what the server was answering, in the protocol's words; empty: the
// library refused the message before it spoke.
func smtpStep(reason gomail.SendErrReason) string {
	switch reason {
	case gomail.ErrSMTPMailFrom:
		return "MAIL"
	case gomail.ErrSMTPRcptTo:
		return "RCPT"
	case gomail.ErrSMTPData:
		return "DATA"
	case gomail.ErrWriteContent:
		return "the content"
	case gomail.ErrSMTPDataClose:
		return "the final dot"
	case gomail.ErrConnCheck:
		return "the check of the connection"
	case gomail.ErrGetSender, gomail.ErrGetRcpts, gomail.ErrNoUnencoded, gomail.ErrAmbiguous, gomail.ErrSMTPReset:
	}
	return ""
}

// smtpReplied reports whether err is a server's reply to a message's command, after which
// the connection may go on.
func smtpReplied(err error) bool {
	var failed *gomail.SendError
	return errors.As(err, &failed) && failed.ErrorCode() != 0 && failed.ErrorCode() != 421
}

// smtpStale reports whether err says that a kept connection was gone before a message was
// begun.
func smtpStale(err error) bool {
	var failed *gomail.SendError
	if !errors.As(err, &failed) {
		return false
	}
	begun := failed.Reason != gomail.ErrSMTPMailFrom && failed.Reason != gomail.ErrConnCheck
	return !begun && (failed.ErrorCode() == 0 || failed.ErrorCode() == 421)
}

// classifySMTP says what became of a message whose transaction ended with err. Nothing of
// the server's text is kept but the codes: it may repeat the address.
func classifySMTP(ctx context.Context, err error) sender.Result {
	if err == nil {
		return sender.Result{Class: sender.Accepted, Code: "250"}
	}
	var failed *gomail.SendError
	if !errors.As(err, &failed) {
		return sender.Result{Class: sender.Unknown, Code: "internal", Detail: "the mail library failed in a way it does not explain"}
	}
	if failed.Reason == gomail.ErrSMTPReset { // comes after the server has taken the mail
		return sender.Result{Class: sender.Accepted, Code: "250"}
	}
	command := smtpStep(failed.Reason)
	if command == "" {
		return refuseContent("message", "the mail cannot be made: "+failed.Reason.String())
	}
	code := failed.ErrorCode()
	if code == 0 {
		return smtpLost(ctx, failed.Reason, command)
	}
	r := sender.Result{Class: sender.Permanent, Code: strconv.Itoa(code), Detail: "the server refused " + command}
	if failed.Reason == gomail.ErrSMTPDataClose {
		r.Detail = "the server refused the content"
	}
	enhanced := failed.EnhancedStatusCode()
	if enhanced != "" {
		r.Code += " " + enhanced
	}
	switch {
	case code < 500:
		r.Class = sender.Retryable
	case failed.Reason == gomail.ErrSMTPRcptTo && (code == 550 || code == 551 || code == 553) && !strings.HasPrefix(enhanced, "5.7."):
		r.Class = sender.InvalidAddress
	}
	return r
}

// smtpLost says what became of a message whose connection broke. From the final dot on
// the server may have taken it.
func smtpLost(ctx context.Context, at gomail.SendErrReason, command string) sender.Result {
	r := sender.Result{Class: sender.Retryable, Code: "connection", Detail: "the connection was lost at " + command}
	if ctx.Err() != nil {
		r.Code, r.Detail = smtpEnded(ctx), "no answer to "+command+" in time"
	}
	if at == gomail.ErrSMTPDataClose {
		r.Class = sender.Unknown
	}
	return r
}

// smtpUnopened says why no connection could be made ready. No message was begun, so all
// of it is retryable.
func smtpUnopened(ctx context.Context, err error) sender.Result {
	r := sender.Result{Class: sender.Retryable, Code: "connection", Detail: "no connection to the server could be made ready"}
	var (
		reply  *textproto.Error
		name   *net.DNSError
		dial   *net.OpError
		record tls.RecordHeaderError
		verify *tls.CertificateVerificationError
		host   x509.HostnameError
	)
	switch {
	case errors.As(err, &reply):
		r.Code, r.Detail = strconv.Itoa(reply.Code), "the server refused the connection, its encryption or the account"
	case ctx.Err() != nil:
		r.Code, r.Detail = smtpEnded(ctx), "the server was not ready for a message in time"
	case errors.As(err, &name):
		r.Code, r.Detail = "dns", "the server's name was not resolved"
	case errors.As(err, &verify), errors.As(err, &host), errors.As(err, &record):
		r.Code, r.Detail = "tls", fmt.Sprintf("the connection could not be encrypted: %v", err)
	case errors.As(err, &dial) && dial.Op == "dial":
		r.Code, r.Detail = "dial", fmt.Sprintf("the server was not reached: %v", dial.Err)
	case strings.Contains(err.Error(), "STARTTLS"):
		r.Code, r.Detail = "tls", "the server does not offer STARTTLS"
	case strings.Contains(err.Error(), "AUTH"):
		r.Code, r.Detail = "auth", "the server does not offer the configured way to authenticate"
	}
	return r
}

func smtpEnded(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "timeout"
	}
	return "canceled"
}
