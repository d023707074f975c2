package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// answerLimit is how many bytes of an answer's body are read.
const answerLimit = 64 << 10

// callTimeout bounds a call whose context has no deadline.
const callTimeout = 30 * time.Second

// HTTPConfig is what every sender over HTTP lets its operator set.
type HTTPConfig struct {
	// AllowAddresses are prefixes, or single addresses, that the guard lets through
	// although they are private: in-house receivers, and tests.
	AllowAddresses []string `mapstructure:"allow_addresses"`
	// CAFile names a PEM file of certificate authorities that are trusted beside the
	// system's; empty: none.
	CAFile string `mapstructure:"ca_file"`
}

// validate notes what is wrong.
func (c *HTTPConfig) validate(p *sender.Problems) {
	for i, text := range c.AllowAddresses {
		_, err := parsePrefix(text)
		p.Check(err == nil, fmt.Sprintf("allow_addresses[%d]", i), "%q is not allowed; allowed are prefixes such as 10.0.0.0/8 and addresses", text)
	}
}

func parsePrefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, err
		}
		addr = addr.WithZone("").Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return prefix.Masked(), nil
}

// httpOptions is what a sender decides, not its operator.
type httpOptions struct {
	// guard refuses connections to private addresses but those of
	// HTTPConfig.AllowAddresses. It is for URLs that come from users.
	guard bool
	// redirects is how many redirects by 307 and 308 are followed, which keep method and
	// body. Beyond them, and for every other 3xx, the redirect itself is the answer.
	redirects int
	// http2 speaks HTTP/2 only: over TLS, and with prior knowledge where the URL is http.
	http2 bool
	// fresh opens a connection for each call. It is for sends without a body, such as
	// by GET: net/http repeats them by itself when a connection that was kept breaks.
	fresh bool
	// now is the clock by which dates in Retry-After are read; nil: time.Now.
	now func() time.Time
}

// httpClient is the half that clients over HTTP share: one call with a deadline,
// the answer read with a bound, and of every way to get none whether the request may
// have gone out.
//
//	do ─┬─ an answer ────────────────────────► httpAnswer: status, headers, ≤ 64 KiB of body
//	    ├─ none, and the request never began ► retryable: dns, dial, tls, timeout
//	    ├─ none, and it may have gone out ───► unknown: timeout, connection
//	    └─ refused here ─────────────────────► permanent: blocked_address, request
//
// # Invariants
//
//  1. A failure is retryable only when the request surely never began (I9): its headers
//     were not written, or, of a request without a body, it got no connection. See
//     watch.go for why that is sure.
//  2. One do is one request on the wire. net/http repeats by itself a request that bears
//     an Idempotency-Key header, or has no body, when a connection that was kept open
//     breaks; nobody would have recorded that second call. do therefore sends
//     the key under the spelling idempotency-key, which net/http does not look for and
//     which is the same header to a receiver; a send without a body needs httpOptions.fresh.
//     What net/http still repeats are requests of which surely nothing was processed.
//  3. With httpOptions.guard no connection is opened to a private, loopback, link-local or
//     otherwise special address. The address is checked after it was resolved, at every
//     dial, so neither a name that resolves anew nor a redirect gets round it.
//  4. Every call ends with its context, and after 30 seconds if that has no deadline.
//     At most 64 KiB of a body are read, and 64 KiB of headers.
//  5. A failure's text has no address, URL or content in it.
//
// Statuses are read as in classOfStatus; a sender that knows its provider's own words looks at
// the answer first. Proxies of the environment are not used. HTTP/2 is spoken where the
// provider offers it, and its connections are pinged, so that one whose peer is gone
// does not swallow call after call.
//
// # Not promised
//
// That a retryable status, such as 500, was not acted upon: the provider said that it
// failed, and is believed.
//
// It is safe for concurrent use.
type httpClient struct {
	transport *http.Transport
	redirects int
	now       func() time.Time
}

// newHTTPClient returns a Client, or an error that names the key of the problem.
func newHTTPClient(cfg HTTPConfig, o httpOptions) (*httpClient, error) {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	if o.guard {
		g, err := newGuard(cfg.AllowAddresses)
		if err != nil {
			return nil, err
		}
		dialer.Control = g.control
	}
	roots, err := rootCAs(cfg.CAFile)
	if err != nil {
		return nil, err
	}
	c := &httpClient{redirects: o.redirects, now: o.now, transport: &http.Transport{
		Proxy:                  nil,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    10 * time.Second,
		DisableKeepAlives:      o.fresh,
		DisableCompression:     true,
		MaxIdleConns:           512,
		MaxIdleConnsPerHost:    128,
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
	}}
	if o.http2 {
		c.transport.Protocols = new(http.Protocols)
		c.transport.Protocols.SetHTTP2(true)
		c.transport.Protocols.SetUnencryptedHTTP2(true)
	}
	if c.now == nil {
		c.now = time.Now
	}
	return c, nil
}

func rootCAs(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // nil are the system's own
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("ca_file: has no PEM certificate")
	}
	return roots, nil
}

// Close closes the connections that are idle. Calls under way go on.
func (c *httpClient) Close() error {
	c.transport.CloseIdleConnections()
	return nil
}

// do makes the call, within the request's context. An error means that there was no
// answer; failureOf says what that amounts to. An answer whose body could not be read is
// an answer: see httpAnswer.whole. The request is not changed; a body must be rewindable, as
// http.NewRequestWithContext makes it of a bytes.Reader, bytes.Buffer or strings.Reader.
func (c *httpClient) do(req *http.Request) (httpAnswer, error) {
	ctx := req.Context()
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	header := maps.Clone(req.Header)
	for _, key := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := header[key]; ok {
			delete(header, key)
			header[strings.ToLower(key)] = values // see invariant 2
		}
	}
	if header == nil {
		header = http.Header{}
	}
	if _, ok := header["User-Agent"]; !ok {
		header["User-Agent"] = []string{"belfry"}
	}
	target, host := req.URL, req.Host
	for hop := 0; ; hop++ {
		answer, err := c.exchange(ctx, req, target, host, header)
		if err != nil || hop == c.redirects {
			return answer, err
		}
		next, ok := answer.redirect(target)
		if !ok {
			return answer, nil
		}
		if next.Host != target.Host {
			delete(header, "Authorization")
			delete(header, "Cookie")
		}
		target, host = next, ""
	}
}

// exchange is one request and its answer.
func (c *httpClient) exchange(ctx context.Context, original *http.Request, target *url.URL, host string, header http.Header) (httpAnswer, error) {
	w := &watch{}
	req, err := w.request(ctx, original)
	if err != nil {
		return httpAnswer{}, &callError{class: sender.Permanent, code: "request", detail: "the body cannot be read again", refusal: sender.RefusedContent}
	}
	req.URL, req.Host, req.Header = target, host, header
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return httpAnswer{}, readFailure(ctx, err, w.tried.Load(), w.begun.Load())
	}
	defer func() { _ = resp.Body.Close() }() // nothing of it is needed any more
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit+1))
	whole := err == nil && len(body) <= answerLimit
	return httpAnswer{status: resp.StatusCode, header: resp.Header, body: body[:min(len(body), answerLimit)], whole: whole, now: c.now()}, nil
}

// redirect is where the answer sends the same request, if that is a place to go.
func (a httpAnswer) redirect(from *url.URL) (*url.URL, bool) {
	if a.status != http.StatusTemporaryRedirect && a.status != http.StatusPermanentRedirect {
		return nil, false
	}
	location := a.header.Get("Location")
	if location == "" || len(location) > maxURL {
		return nil, false
	}
	next, err := from.Parse(location)
	if err != nil || next.Host == "" || next.User != nil {
		return nil, false
	}
	// Never from https down to http.
	if !slices.Contains([]string{"https", from.Scheme}, next.Scheme) {
		return nil, false
	}
	next.Fragment = ""
	return next, true
}
