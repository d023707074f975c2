package httpcall

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

// BodyLimit is how many bytes of an answer's body are read.
const BodyLimit = 64 << 10

// callTimeout bounds a call whose context has no deadline.
const callTimeout = 30 * time.Second

// Config is what every sender over HTTP lets its operator set.
type Config struct {
	// AllowAddresses are prefixes, or single addresses, that the guard lets through
	// although they are private: in-house receivers, and tests.
	AllowAddresses []string `mapstructure:"allow_addresses"`
	// CAFile names a PEM file of certificate authorities that are trusted beside the
	// system's; empty: none.
	CAFile string `mapstructure:"ca_file"`
}

// Validate returns every problem at once, each with its key under path, or nil.
func (c Config) Validate(path string) error {
	var problems []error
	for i, text := range c.AllowAddresses {
		if _, err := parsePrefix(text); err != nil {
			problems = append(problems, fmt.Errorf("%s.allow_addresses[%d]: %q is not allowed; allowed are prefixes such as 10.0.0.0/8 and addresses", path, i, text))
		}
	}
	return errors.Join(problems...)
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

// Options is what a sender decides, not its operator.
type Options struct {
	// Guard refuses connections to private addresses but those of
	// Config.AllowAddresses. It is for URLs that come from users.
	Guard bool
	// Redirects is how many redirects by 307 and 308 are followed, which keep method and
	// body. Beyond them, and for every other 3xx, the redirect itself is the answer.
	Redirects int
	// HTTP2 speaks HTTP/2 only: over TLS, and with prior knowledge where the URL is http.
	HTTP2 bool
	// Fresh opens a connection for each call. It is for sends without a body, such as
	// by GET: net/http repeats them by itself when a connection that was kept breaks.
	Fresh bool
	// Now is the clock by which dates in Retry-After are read; nil: time.Now.
	Now func() time.Time
}

// Client makes calls. It is safe for concurrent use.
type Client struct {
	transport *http.Transport
	redirects int
	now       func() time.Time
}

// New returns a Client, or an error that names the key of the problem.
func New(cfg Config, o Options) (*Client, error) {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	if o.Guard {
		g := guard{}
		for i, text := range cfg.AllowAddresses {
			prefix, err := parsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("allow_addresses[%d]: %w", i, err)
			}
			g.allowed = append(g.allowed, prefix)
		}
		dialer.Control = g.control
	}
	roots, err := rootCAs(cfg.CAFile)
	if err != nil {
		return nil, err
	}
	c := &Client{redirects: o.Redirects, now: o.Now, transport: &http.Transport{
		Proxy:                  nil,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    10 * time.Second,
		DisableKeepAlives:      o.Fresh,
		DisableCompression:     true,
		MaxIdleConns:           512,
		MaxIdleConnsPerHost:    128,
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
	}}
	if o.HTTP2 {
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
func (c *Client) Close() error {
	c.transport.CloseIdleConnections()
	return nil
}

// Do makes the call, within the request's context. An error means that there was no
// answer; Failure says what that amounts to. An answer whose body could not be read is
// an answer: see Answer.Whole. The request is not changed; a body must be rewindable, as
// http.NewRequestWithContext makes it of a bytes.Reader, bytes.Buffer or strings.Reader.
func (c *Client) Do(req *http.Request) (Answer, error) {
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
func (c *Client) exchange(ctx context.Context, original *http.Request, target *url.URL, host string, header http.Header) (Answer, error) {
	w := &watch{}
	req, err := w.request(ctx, original)
	if err != nil {
		return Answer{}, &callError{class: sender.Permanent, code: "request", detail: "the body cannot be read again"}
	}
	req.URL, req.Host, req.Header = target, host, header
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return Answer{}, failure(ctx, err, w.tried.Load(), w.begun.Load())
	}
	defer func() { _ = resp.Body.Close() }() // nothing of it is needed any more
	body, err := io.ReadAll(io.LimitReader(resp.Body, BodyLimit+1))
	whole := err == nil && len(body) <= BodyLimit
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: body[:min(len(body), BodyLimit)], Whole: whole, now: c.now()}, nil
}

// redirect is where the answer sends the same request, if that is a place to go.
func (a Answer) redirect(from *url.URL) (*url.URL, bool) {
	if a.Status != http.StatusTemporaryRedirect && a.Status != http.StatusPermanentRedirect {
		return nil, false
	}
	location := a.Header.Get("Location")
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
