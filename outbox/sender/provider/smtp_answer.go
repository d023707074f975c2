package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/outbox/sender"
)

// smtpReplied reports whether err is a server's reply to a command of a message, after which the connection can be
// used.
func smtpReplied(err error) bool {
	failed, ok := errors.AsType[*smtpError](err)
	return ok && failed.reply() != nil && failed.reply().Code != 421
}

// smtpStale reports whether err means that an idle connection was lost before a message began.
func smtpStale(err error) bool {
	failed, ok := errors.AsType[*smtpError](err)
	return ok && failed.step == smtpMail && (failed.reply() == nil || failed.reply().Code == 421)
}

// smtpUnknownAddress are the enhanced codes of invalid addresses (RFC 3463 §3.2, RFC 5321, RFC 7505): no such
// mailbox, no such system, not an address, moved without a new address, a domain that accepts no mail.
var smtpUnknownAddress = []string{"5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10"}

// enhancedCode matches the beginning of a reply's text. Servers write the code even without announcing
// ENHANCEDSTATUSCODES, and some write a number sign before it.
var enhancedCode = regexp.MustCompile(`^#?([245]\.[0-9]{1,3}\.[0-9]{1,3})(?:\s|$)`)

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
	r := sender.Result{Class: sender.Permanent, Code: strconv.Itoa(reply.Code), Detail: "the server refused " + failed.step}
	if failed.step == smtpDot {
		r.Detail = "the server refused the content"
	}
	enhanced := ""
	if found := enhancedCode.FindStringSubmatch(reply.Msg); found != nil {
		enhanced = found[1]
		r.Code += " " + enhanced
	}
	switch {
	case reply.Code < 400 && failed.step == smtpDot:
		r.Class, r.Detail = sender.Unknown, "the server answered the content with an unexpected code"
	case reply.Code < 500:
		r.Class = sender.Retryable
	case failed.step == smtpRcpt && slices.Contains(smtpUnknownAddress, enhanced):
		r.Class = sender.InvalidAddress
	}
	return r
}

// smtpLost returns the result of a message whose connection broke. After the final dot the server may have accepted
// it.
func smtpLost(failed *smtpError) sender.Result {
	r := sender.Result{Class: sender.Retryable, Code: "connection", Detail: "the connection was lost at " + failed.step}
	if failed.ended != nil {
		r.Code, r.Detail = smtpEnded(failed.ended), "no answer to "+failed.step+" in time"
	}
	if failed.step == smtpDot {
		r.Class = sender.Unknown
	}
	return r
}

// smtpUnopened returns the result of a failed connection. No message was begun, so it is retryable.
func smtpUnopened(err error) sender.Result {
	r := sender.Result{Class: sender.Retryable, Code: "connection", Detail: "the connection to the server could not be prepared"}
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
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		r.Code, r.Detail = smtpEnded(err), "the server was not ready for a message in time"
	case errors.As(err, &name):
		r.Code, r.Detail = "dns", "the server name was not resolved"
	case errors.As(err, &verify), errors.As(err, &host), errors.As(err, &record):
		r.Code, r.Detail = "tls", fmt.Sprintf("the connection could not be encrypted: %v", err)
	case errors.As(err, &dial) && dial.Op == "dial":
		r.Code, r.Detail = "dial", fmt.Sprintf("the server was not reached: %v", dial.Err)
	case strings.Contains(err.Error(), "STARTTLS"):
		r.Code, r.Detail = "tls", "the server does not offer STARTTLS"
	case strings.Contains(err.Error(), "AUTH"):
		r.Code, r.Detail = "auth", "the server does not offer the configured authentication mechanism"
	}
	return r
}

func smtpEnded(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "canceled"
}
