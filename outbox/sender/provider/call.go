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
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/outbox/sender"
)

// answerLimit is the maximum number of bytes read from an answer's body.
const answerLimit = 64 << 10

// callTimeout is the timeout of a call whose context has no deadline.
const callTimeout = 30 * time.Second

// HTTPConfig contains the settings that all HTTP senders share.
type HTTPConfig struct {
	// AllowAddresses are prefixes or single addresses that the guard permits although they are private, for
	// in-house receivers and tests.
	AllowAddresses []string `mapstructure:"allow_addresses"`
	// CAFile names a PEM file of trusted certificate authorities, in addition to the system's. It may be empty.
	CAFile string `mapstructure:"ca_file"`
}

// validate adds the problems of the settings.
func (c *HTTPConfig) validate(p *sender.ValidationErrors) {
	for i, text := range c.AllowAddresses {
		_, err := parsePrefix(text)
		p.Check(err == nil, fmt.Sprintf("allow_addresses[%d]", i),
			"%q is not allowed; allowed values: prefixes such as 10.0.0.0/8 and addresses", text)
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

// httpOptions contains the options that a sender sets, and operators cannot.
type httpOptions struct {
	// guard refuses connections to private addresses, except HTTPConfig.AllowAddresses, and HTTP/2. It is for URLs
	// from users.
	guard bool
	// redirects is the maximum number of redirects by 307 and 308, which preserve method and body. Any other
	// redirect is returned as the answer.
	redirects int
	// http2 uses HTTP/2 only, with prior knowledge if the URL is http. It is for requests with a body.
	http2 bool
	// now is the clock for dates in Retry-After. Nil means time.Now.
	now func() time.Time
}

// httpClient is the common part of HTTP clients: one call with a deadline, a limited read of the answer, and for
// each failure, whether the request may have been sent.
//
//	do ─┬─ an answer ────────────────────────► httpAnswer: status, headers, ≤ 64 KiB of body
//	    ├─ none, and the request never began ► retryable: dns, dial, tls, timeout
//	    ├─ none, and it may have been sent ──► unknown: timeout, connection
//	    └─ refused here ─────────────────────► permanent: blocked_address, request
//
// # Invariants
//
//  1. A failure is retryable only if the request certainly never began (I9): its headers were not written, or a
//     request without a body had no connection. watch.go explains why.
//  2. One do is one request on the wire. net/http automatically repeats a request that has an Idempotency-Key
//     header, or no body, if a kept-alive connection breaks; that second call would not be recorded. Therefore
//     do spells the header idempotency-key, which net/http does not recognize and receivers do, and makes each
//     request without a body by HTTP/1 on a connection of its own. With HTTP/2 net/http also repeats a request that
//     the server has reset with PROTOCOL_ERROR, perhaps after it was processed; watch.go prevents that. It still
//     repeats requests of which nothing was written.
//  3. With httpOptions.guard no connection is opened to a private, loopback, link-local or otherwise special
//     address. The address is checked after resolution, at every dial, which covers changed names and
//     redirects.
//  4. Every call ends with its context, or two seconds later if net/http is in a deadlock, and after 30 seconds without
//     a deadline. At most 64 KiB of the body and 64 KiB of headers are read.
//  5. A failure's text contains no address, URL or content.
//
// Statuses are classified by classOfStatus, unless a sender recognizes its provider's own codes. Proxies of the
// environment are not used. HTTP/2 is used if the provider supports it, but not with httpOptions.guard: all hosts of a
// client share a lock of net/http, in which one that overflows the window of a stream stops all of them permanently
// (Go 1.26, processWindowUpdate). Its connections are pinged, so that a dead connection fails few calls.
//
// # Not guaranteed
//
// That a provider did not act before a retryable status such as 500: its report is trusted.
//
// It is safe for concurrent use.
type httpClient struct {
	transport atomic.Pointer[http.Transport] // of requests with a body
	bodiless  *http.Transport                // of requests without one: invariant 2
	http2     bool                           // only
	redirects int
	now       func() time.Time
}

// newHTTPClient returns a client, or an error that names the key of the problem.
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
	c := &httpClient{http2: o.http2, redirects: o.redirects, now: o.now}
	transport := func() *http.Transport {
		return &http.Transport{
			Proxy:                  nil,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    10 * time.Second,
			DisableCompression:     true,
			MaxIdleConns:           512,
			MaxIdleConnsPerHost:    128,
			IdleConnTimeout:        60 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
			Protocols:              new(http.Protocols),
		}
	}
	c.bodiless = transport()
	c.bodiless.DisableKeepAlives = true
	c.bodiless.Protocols.SetHTTP1(true)
	usual := transport()
	usual.Protocols.SetHTTP1(!o.http2)
	usual.Protocols.SetHTTP2(!o.guard)
	usual.Protocols.SetUnencryptedHTTP2(o.http2)
	c.transport.Store(usual)
	if c.now == nil {
		c.now = time.Now
	}
	return c, nil
}

func rootCAs(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // nil means the system's authorities
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

// Close closes idle connections. Calls in progress continue.
func (c *httpClient) Close() error {
	c.transport.Load().CloseIdleConnections()
	return nil
}

// do makes the call within the request's context. An error means that there was no answer; failureOf classifies
// it. If the body could not be read, do returns an answer with httpAnswer.whole false. The request is not
// changed. Its body must be rewindable, such as one that http.NewRequestWithContext creates from a bytes.Reader,
// bytes.Buffer or strings.Reader.
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
		answer.redirected = hop > 0
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

// stuckAfter is the time after the end of its context at which a call is abandoned. net/http ends it long before, unless it
// is in a deadlock.
const stuckAfter = 2 * time.Second

// exchange is one request and its answer. If net/http does not end it with its context, its connections are abandoned
// with it (invariant 4).
func (c *httpClient) exchange(ctx context.Context, original *http.Request, target *url.URL, host string,
	header http.Header) (httpAnswer, error) {
	type result struct {
		answer httpAnswer
		err    error
	}
	w, transport, ended := &watch{}, c.transport.Load(), make(chan result, 1)
	if !hasBody(original) {
		transport = c.bodiless
	}
	go func() {
		answer, err := c.request(ctx, w, transport, original, target, host, header)
		ended <- result{answer, err}
	}()
	select {
	case r := <-ended:
		return r.answer, r.err
	case <-ctx.Done():
	}
	stuck := time.NewTimer(stuckAfter)
	defer stuck.Stop()
	select {
	case r := <-ended:
		return r.answer, r.err
	case <-stuck.C:
		c.transport.CompareAndSwap(transport, transport.Clone())
		return httpAnswer{}, readFailure(ctx, ctx.Err(), w.tried.Load(), w.begun.Load())
	}
}

// request makes the call of exchange.
func (c *httpClient) request(ctx context.Context, w *watch, transport *http.Transport, original *http.Request, target *url.URL,
	host string, header http.Header) (httpAnswer, error) {
	w.http2.Store(c.http2)
	req, err := w.request(ctx, original)
	if err != nil {
		return httpAnswer{},
			&callError{class: sender.Permanent, code: "request", detail: "the body cannot be read again", refusal: sender.RefusedContent}
	}
	req.URL, req.Host, req.Header = target, host, header
	if sender.Check(ctx) != nil {
		return httpAnswer{}, errCallLate
	}
	resp, err := transport.RoundTrip(req)
	if err != nil && w.late.Load() {
		return httpAnswer{}, errCallLate
	}
	if err != nil {
		return httpAnswer{}, readFailure(ctx, err, w.tried.Load(), w.begun.Load())
	}
	defer func() { _ = resp.Body.Close() }() // the answer was read
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The body is the connection, which outlasts the context.
		return httpAnswer{status: resp.StatusCode, header: resp.Header, whole: true, now: c.now()}, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit+1))
	whole := err == nil && len(body) <= answerLimit
	return httpAnswer{status: resp.StatusCode, header: resp.Header, body: body[:min(len(body), answerLimit)], whole: whole, now: c.now()}, nil
}

// redirect returns the target of a redirect that may be followed.
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
