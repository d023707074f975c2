package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/belfryhq/belfry/outbox/sender"
)

// codeBlocked is the code of a call that the guard refused.
const codeBlocked = "blocked_address"

// codeLate is the code of a call that was not made because of sender.ErrLate.
const codeLate = "late"

// callError is a call without an answer.
type callError struct {
	class        sender.Class
	code, detail string
	refusal      sender.Refusal
	untried      bool
}

// errCallLate is the error of a call that was not made because of sender.ErrLate.
var errCallLate = &callError{class: sender.Retryable, code: codeLate, detail: "not sent: " + sender.ErrLate.Error(), untried: true}

func (e *callError) Error() string { return e.code + ": " + e.detail }

// failureOf returns the result of an error of do: retryable if the request certainly never began, unknown if it
// may have been sent, permanent if it can never be sent. Codes: dns, dial, tls, timeout, canceled, connection,
// blocked_address, request, late.
func failureOf(err error) sender.Result {
	if e, ok := errors.AsType[*callError](err); ok {
		return sender.Result{Class: e.class, Code: e.code, Detail: e.detail, Refusal: e.refusal, Untried: e.untried}
	}
	return sender.Result{Class: sender.Unknown, Code: "connection", Detail: "no answer"}
}

// readFailure classifies the transport's error. It drops the error's text, which may contain addresses, except
// for the operating system's text of an errno.
func readFailure(ctx context.Context, err error, tried, begun bool) *callError {
	e := &callError{class: sender.Retryable}
	if begun {
		e.class = sender.Unknown
	}
	var (
		dns    *net.DNSError
		op     *net.OpError
		errno  syscall.Errno
		expiry net.Error
	)
	switch {
	case errors.Is(err, errBlocked):
		e.class, e.code, e.detail = sender.Permanent, codeBlocked, "the address is private; permit it with allow_addresses"
		e.refusal = sender.RefusedAddress
	case !tried && ctx.Err() == nil:
		e.class, e.code, e.detail = sender.Permanent, "request", "the request is not valid HTTP"
		e.refusal = sender.RefusedContent
	case errors.As(err, &dns):
		e.code, e.detail = "dns", "the host name was not resolved"
	case describeTLS(err) != "":
		e.code, e.detail = "tls", describeTLS(err)
	case errors.As(err, &errno):
		e.code, e.detail = "connection", errno.Error()
		if errors.As(err, &op) && op.Op == "dial" {
			e.code = "dial"
		}
	case errors.Is(ctx.Err(), context.Canceled):
		e.code, e.detail = "canceled", "the call was canceled"
	case ctx.Err() != nil, errors.As(err, &expiry) && expiry.Timeout():
		e.code, e.detail = "timeout", "no answer in time"
		if !begun {
			e.detail = "no connection in time"
		}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e.code, e.detail = "connection", "closed without an answer"
	default:
		e.code, e.detail = "connection", "the connection broke, or the server did not speak HTTP"
	}
	return e
}

func describeTLS(err error) string {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		op        *net.OpError
	)
	switch {
	case errors.As(err, &authority):
		return "the certificate is signed by an unknown authority"
	case errors.As(err, &host):
		return "the certificate is for another host"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate has expired or is not valid yet"
	case errors.As(err, &invalid), errors.As(err, &verify):
		return "the certificate is not valid"
	case errors.As(err, &record):
		return "the server does not speak TLS"
	case errors.As(err, &op) && op.Op == "remote error":
		return "the server ended the handshake"
	}
	return ""
}
