package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belfryhq/belfry/admin/oidc"
)

// Config says where a process serves the API. DefaultConfig has every default.
type Config struct {
	// Listen is HOST:PORT, or :PORT for all addresses; port 0: any that is free. Empty: the
	// API is not served. Beyond this machine it is served with TLS, or through Proxy, only.
	Listen string `mapstructure:"listen"`
	// ReadOnly refuses whatever changes something, and writes nothing: a standby will do.
	ReadOnly bool `mapstructure:"read_only"`
	// PublicURL is where people reach it: https://HOST[/PATH]. The path begins every path, the
	// origin is trusted, and cookies and links are for there. Empty: wherever a request is sent
	// to.
	PublicURL string `mapstructure:"public_url"`
	// Environment is what the console calls this belfry.
	Environment Environment `mapstructure:"environment"`
	// UnsubscribeKeysFile has the keys, one a line, of the links by which recipients opt out: the
	// first signs, and all of them read. Empty: there are no such links.
	UnsubscribeKeysFile string `mapstructure:"unsubscribe_keys_file"`
	// Proxy stands in front of it.
	Proxy ProxyConfig `mapstructure:"proxy"`
	// TLS is how it is served, if its files are given.
	TLS TLS `mapstructure:"tls"`
	// Sessions says how long people stay signed in.
	Sessions Sessions `mapstructure:"sessions"`
	// OIDC is a provider that signs people in.
	OIDC oidc.Config `mapstructure:"oidc"`
}

// Environment tells one belfry from another where people look at both: a name and a colour on
// every page of the console. The zero value is none.
type Environment struct {
	// Name is in each title as well, as production. Up to 40 characters; empty: nothing is shown.
	Name string `mapstructure:"name"`
	// Colour is one of Colours; empty: the first.
	Colour string `mapstructure:"colour"`
}

// Colours are those that an Environment may have.
func Colours() []string { return []string{"grey", "blue", "green", "amber", "red", "violet"} }

const maxEnvironment = 40

func (e Environment) validate() error {
	var errs []error
	if printable := !strings.ContainsFunc(e.Name, func(r rune) bool { return !unicode.IsPrint(r) }); !printable || utf8.RuneCountInString(e.Name) > maxEnvironment {
		errs = append(errs, fmt.Errorf("api.environment.name: %q is not allowed; allowed values: up to 40 printable characters, as production, or empty for none", e.Name))
	}
	if e.Colour != "" && !slices.Contains(Colours(), e.Colour) {
		errs = append(errs, fmt.Errorf("api.environment.colour: %q is not allowed; allowed values: %s", e.Colour, strings.Join(Colours(), ", ")))
	}
	return errors.Join(errs...)
}

// Sessions are those of people who signed in.
type Sessions struct {
	// Lifetime is how long one lasts at most, 5m to 720h.
	Lifetime time.Duration `mapstructure:"lifetime"`
	// Idle ends one that was not used for so long, 5m to Lifetime.
	Idle time.Duration `mapstructure:"idle"`
}

func (s Sessions) validate() error {
	var errs []error
	if s.Lifetime < minSession || s.Lifetime > maxSession {
		errs = append(errs, fmt.Errorf("api.sessions.lifetime: %s is not allowed; allowed values: 5m to 720h", s.Lifetime))
	}
	if s.Idle < minSession || s.Idle > s.Lifetime {
		errs = append(errs, fmt.Errorf("api.sessions.idle: %s is not allowed; allowed values: 5m to api.sessions.lifetime, which is %s", s.Idle, s.Lifetime))
	}
	return errors.Join(errs...)
}

const (
	minSession = 5 * time.Minute
	maxSession = 720 * time.Hour
)

// TLS names the files of a certificate, in PEM.
type TLS struct {
	// CertFile has the certificate and those between it and its authority.
	CertFile string `mapstructure:"cert_file"`
	// KeyFile has the certificate's key.
	KeyFile string `mapstructure:"key_file"`
}

// DefaultConfig is what config.yaml documents.
func DefaultConfig() Config {
	return Config{
		Proxy:    ProxyConfig{Addresses: []string{}, SecretHeader: "X-Belfry-Proxy", Roles: []string{}},
		Sessions: Sessions{Lifetime: 12 * time.Hour, Idle: time.Hour},
		OIDC:     oidc.DefaultConfig(),
	}
}

// Validate returns every problem at once, each with its key path, or nil.
func (c Config) Validate() error {
	_, err := publicOf(c.PublicURL)
	_, noRoles := parseGroupRoles("api.oidc.roles", c.OIDC.Roles)
	errs := []error{err, c.validateListen(), c.Proxy.validate(), c.Sessions.validate(), c.Environment.validate(), c.OIDC.Validate(), noRoles}
	if c.Listen != "" {
		errs = append(errs, c.OIDC.ValidateServed(c.PublicURL))
	}
	return errors.Join(errs...)
}

// validateListen is about the address, and who may reach it.
func (c Config) validateListen() error {
	if c.Listen == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 0 || n > 65535 {
		return fmt.Errorf("api.listen: %q is not allowed; allowed values: HOST:PORT with a port of 0 to 65535, as 127.0.0.1:8470 or :8470, or empty for none", c.Listen)
	}
	switch {
	case c.Proxy.together(c.PublicURL) != nil:
		return c.Proxy.together(c.PublicURL)
	case c.TLS.CertFile != "" && c.TLS.KeyFile == "":
		return errors.New("api.tls.key_file: is empty; allowed values: the file with the key of api.tls.cert_file")
	case c.TLS.CertFile == "" && c.TLS.KeyFile != "":
		return errors.New("api.tls.cert_file: is empty; allowed values: the file with the certificate of api.tls.key_file")
	case c.TLS.CertFile == "" && len(c.Proxy.Addresses) == 0 && !loopback(host):
		return fmt.Errorf("api.tls.cert_file: is empty, and api.listen %s is beyond this machine, where tokens do not travel in the clear; allowed values: the file with a certificate, and api.tls.key_file with its key, the proxy in front of it (api.proxy.addresses), or an api.listen of 127.0.0.1:PORT or [::1]:PORT", c.Listen)
	}
	return nil
}

// loopback reports whether only this machine reaches a host. A name may be anything, but for
// the one that never leaves it (RFC 6761).
func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// Limits of a server. What an operation may take is beside them: operate moves the end of
// writing.
const (
	headerTime  = 5 * time.Second
	readTime    = 20 * time.Second
	writeTime   = time.Minute
	idleTime    = 2 * time.Minute
	stopTime    = 40 * time.Second
	headerBytes = 32 << 10
)

// Server serves the API at one address.
type Server struct {
	listener    net.Listener
	http        *http.Server
	config      Config
	certificate atomic.Pointer[tls.Certificate]
}

// Listen opens the address and reads the certificate. Run serves; who does not run it closes it.
func Listen(ctx context.Context, c Config, h http.Handler) (*Server, error) {
	s := &Server{config: c, http: &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime,
		IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
	}}
	if streams, has := h.(interface{ EndStreams() }); has {
		s.http.RegisterOnShutdown(streams.EndStreams)
	}
	if c.TLS.CertFile != "" {
		if err := s.Reload(); err != nil {
			return nil, err
		}
		s.http.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.certificate.Load(), nil
		}}
	}
	var err error
	var config net.ListenConfig
	if s.listener, err = config.Listen(ctx, "tcp", c.Listen); err != nil {
		return nil, fmt.Errorf("api.listen: %w", err)
	}
	return s, nil
}

// URL is where the API is, as this machine sees it.
func (s *Server) URL() string {
	scheme := "http"
	if s.config.TLS.CertFile != "" {
		scheme = "https"
	}
	return scheme + "://" + s.listener.Addr().String() + Prefix
}

// Reload reads the certificate again. When that does not work, the one before stays.
func (s *Server) Reload() error {
	if s.config.TLS.CertFile == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(s.config.TLS.CertFile, s.config.TLS.KeyFile)
	if err != nil {
		return fmt.Errorf("api.tls: %w", err)
	}
	s.certificate.Store(&pair)
	return nil
}

// Run serves until ctx is cancelled and the requests in progress have ended, for which they
// have some time.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() {
		if s.config.TLS.CertFile != "" {
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
		err = s.http.Close() // what still runs has had its time
	}
	return errors.Join(err, served(<-ended))
}

func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Close cuts off whatever is in progress.
func (s *Server) Close() error {
	return errors.Join(s.http.Close(), served(s.listener.Close()))
}
