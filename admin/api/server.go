package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // http.Server takes no other logger, and this one is silenced
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belfryhq/belfry/admin/oidc"
)

// Config configures the server of the API. DefaultConfig has the defaults.
type Config struct {
	// Listen is HOST:PORT, or :PORT for all addresses. Port 0 selects a free port. Empty disables the API.
	// Addresses other than loopback require TLS or Proxy.
	Listen string `mapstructure:"listen"`
	// ReadOnly rejects all operations that change something. Nothing is written, so that the database may be
	// a standby.
	ReadOnly bool `mapstructure:"read_only"`
	// PublicURL is the URL that users open: https://HOST[/PATH]. Its path prefixes every path, its origin is
	// trusted, and cookies and links use it. Empty means that each request's own address is used.
	PublicURL string `mapstructure:"public_url"`
	// Environment labels this installation in the console.
	Environment Environment `mapstructure:"environment"`
	// UnsubscribeKeysFile contains the keys of unsubscribe links, one per line. The first key signs, all keys
	// verify. Empty disables unsubscribe links.
	UnsubscribeKeysFile string `mapstructure:"unsubscribe_keys_file"`
	// Proxy is the trusted proxy in front of the API.
	Proxy ProxyConfig `mapstructure:"proxy"`
	// TLS has the certificate. Without one the API is served without TLS.
	TLS TLS `mapstructure:"tls"`
	// Sessions limits the duration of sessions.
	Sessions Sessions `mapstructure:"sessions"`
	// OIDC is the OpenID Connect provider.
	OIDC oidc.Config `mapstructure:"oidc"`
}

// Environment distinguishes installations for users of several: a name and a colour on every page of the
// console. The zero value shows no label.
type Environment struct {
	// Name is part of each page's title, such as production. Up to 40 characters. Empty shows no label.
	Name string `mapstructure:"name"`
	// Colour is one of Colours. Empty selects the first.
	Colour string `mapstructure:"colour"`
}

// Colours returns the allowed colours of an Environment.
func Colours() []string { return []string{"grey", "blue", "green", "amber", "red", "violet"} }

const maxEnvironment = 40

func (e Environment) validate() error {
	var errs []error
	if printable := !strings.ContainsFunc(e.Name, func(r rune) bool { return !unicode.IsPrint(r) }); !printable ||
		utf8.RuneCountInString(e.Name) > maxEnvironment {
		errs = append(errs,
			fmt.Errorf("api.environment.name: %q is not allowed; allowed values: up to 40 printable characters, such as "+
				"production, or empty for none", e.Name))
	}
	if e.Colour != "" && !slices.Contains(Colours(), e.Colour) {
		errs = append(errs, fmt.Errorf("api.environment.colour: %q is not allowed; allowed values: %s", e.Colour, strings.Join(Colours(), ", ")))
	}
	return errors.Join(errs...)
}

// Sessions limits the duration of sessions.
type Sessions struct {
	// Lifetime is the maximum duration of a session, 5m to 720h.
	Lifetime time.Duration `mapstructure:"lifetime"`
	// Idle is the maximum time between two requests of a session, 5m to Lifetime.
	Idle time.Duration `mapstructure:"idle"`
}

func (s Sessions) validate() error {
	var errs []error
	if s.Lifetime < minSession || s.Lifetime > maxSession {
		errs = append(errs, fmt.Errorf("api.sessions.lifetime: %s is not allowed; allowed values: 5m to 720h", s.Lifetime))
	}
	if s.Idle < minSession || s.Idle > s.Lifetime {
		errs = append(errs, fmt.Errorf("api.sessions.idle: %s is not allowed; allowed values: 5m to api.sessions.lifetime, which is %s",
			s.Idle, s.Lifetime))
	}
	return errors.Join(errs...)
}

const (
	minSession = 5 * time.Minute
	maxSession = 720 * time.Hour
)

// TLS names the files of a certificate, in PEM.
type TLS struct {
	// CertFile has the certificate and its intermediate certificates.
	CertFile string `mapstructure:"cert_file"`
	// KeyFile has the certificate's key.
	KeyFile string `mapstructure:"key_file"`
}

// Console returns the URL of the console, such as http://127.0.0.1:8470, or "" if it is not served. The host of a
// listener on all addresses is localhost.
func (c Config) Console() string {
	host, port, err := net.SplitHostPort(c.Listen)
	switch {
	case c.PublicURL != "":
		return strings.TrimSuffix(c.PublicURL, "/")
	case err != nil:
		return ""
	case host == "" || net.ParseIP(host).IsUnspecified():
		host = "localhost"
	}
	scheme := "http"
	if c.TLS.CertFile != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// DefaultConfig returns the defaults that config.yaml documents.
func DefaultConfig() Config {
	return Config{
		Proxy:    ProxyConfig{Addresses: []string{}, SecretHeader: "X-Belfry-Proxy", Roles: []string{}},
		Sessions: Sessions{Lifetime: 12 * time.Hour, Idle: time.Hour},
		OIDC:     oidc.DefaultConfig(),
	}
}

// Validate returns all problems, each with its key path, or nil.
func (c Config) Validate() error {
	_, err := publicOf(c.PublicURL)
	_, noRoles := parseGroupRoles("api.oidc.roles", c.OIDC.Roles)
	errs := []error{err, c.validateListen(), c.Proxy.validate(), c.Sessions.validate(), c.Environment.validate(), c.OIDC.Validate(), noRoles}
	if c.Listen != "" {
		errs = append(errs, c.OIDC.ValidateServed(c.PublicURL))
	}
	return errors.Join(errs...)
}

// validateListen checks the address and its protection.
func (c Config) validateListen() error {
	if problem := c.Proxy.together(c.PublicURL); c.Listen != "" && isAddress(c.Listen) && problem != nil {
		return problem
	}
	return c.endpoint().Validate()
}

// endpoint returns the address of the API.
func (c Config) endpoint() Endpoint {
	return Endpoint{Section: "api", ProxyKey: "api.proxy.addresses", Path: Prefix, Listen: c.Listen, TLS: c.TLS, Proxies: c.Proxy.Addresses}
}

// Limits of a server. The deadline of an operation is added to them: operate extends the write deadline.
const (
	headerTime  = 5 * time.Second
	readTime    = 20 * time.Second
	writeTime   = time.Minute
	idleTime    = 2 * time.Minute
	stopTime    = 40 * time.Second
	headerBytes = 32 << 10
	// http2Streams is the number of concurrent requests of an HTTP/2 connection: more than the streams of one
	// identity, so that a browser with many open pages has requests left.
	http2Streams = 40
)

// Server serves a handler at one address.
type Server struct {
	listener    net.Listener
	http        *http.Server
	endpoint    Endpoint
	connections *connections
	certificate atomic.Pointer[tls.Certificate]
}

// Listen opens the address of the API and reads the certificate. The caller must call Run or Close.
func Listen(ctx context.Context, c Config, h http.Handler) (*Server, error) {
	return c.endpoint().Serve(ctx, h)
}

// Serve opens the address and reads the certificate. The caller must call Run or Close.
func (e Endpoint) Serve(ctx context.Context, h http.Handler) (*Server, error) {
	limit := newConnections(e)
	s := &Server{endpoint: e, connections: limit, http: &http.Server{
		ConnState: limit.changed,

		ErrorLog: log.New(io.Discard, "", 0), // it names faults of clients, without the log's format and without a limit
		Handler:  h, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime,
		IdleTimeout: idleTime, MaxHeaderBytes: headerBytes, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: http2Streams},
	}}
	if streams, has := h.(interface{ EndStreams() }); has {
		s.http.RegisterOnShutdown(streams.EndStreams)
	}
	if e.TLS.CertFile != "" {
		if err := s.Reload(); err != nil {
			return nil, err
		}
		s.http.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.certificate.Load(), nil
		}}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", e.Listen)
	if err != nil {
		return nil, fmt.Errorf("%s.listen: %w; allowed values: HOST:PORT of this machine that is free", e.Section, err)
	}
	s.listener = countedListener{l.(*net.TCPListener), limit} //nolint:forcetypeassert // of tcp
	return s, nil
}

// URL returns the URL of the paths on this machine.
func (s *Server) URL() string {
	scheme := "http"
	if s.endpoint.TLS.CertFile != "" {
		scheme = "https"
	}
	return scheme + "://" + s.listener.Addr().String() + s.endpoint.Path
}

// Reload reads the certificate again. After an error the previous certificate remains in use.
func (s *Server) Reload() error {
	if s.endpoint.TLS.CertFile == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(s.endpoint.TLS.CertFile, s.endpoint.TLS.KeyFile)
	if err != nil {
		return fmt.Errorf("%s.tls: %w", s.endpoint.Section, err)
	}
	s.certificate.Store(&pair)
	return nil
}

// Run serves until ctx is cancelled and the requests in progress have ended. It aborts requests that still
// run after stopTime.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() {
		if s.endpoint.TLS.CertFile != "" {
			ended <- s.http.ServeTLS(s.listener, "", "")
		} else {
			ended <- s.http.Serve(s.listener)
		}
	}()
	select {
	case err := <-ended:
		return served(err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	err := s.http.Shutdown(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close() // aborts the remaining requests
	}
	return errors.Join(err, served(<-ended))
}

func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Close aborts all requests in progress.
func (s *Server) Close() error {
	return errors.Join(s.http.Close(), served(s.listener.Close()))
}
