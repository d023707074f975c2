package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
)

// tlsError is a certificate that was refused: nothing was sent.
type tlsError struct{ err error }

func (e *tlsError) Error() string { return e.err.Error() }
func (e *tlsError) Unwrap() error { return e.err }

// reason is why there is no answer, without the URL, which may be long, and what to do.
func reason(err error) error {
	var sent *url.Error
	if errors.As(err, &sent) {
		err = sent.Err
	}
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return &tlsError{fmt.Errorf("%w; --ca-file names the authority's certificate", err)}
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return &tlsError{err}
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("no answer in time")
	}
	return err
}
