package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/api"
)

// Config says which server works for a command line. DefaultConfig has every default.
type Config struct {
	// Server is the URL of a belfry that serves its API, with the path of its api.public_url.
	// Beyond this machine it is https. Empty: none, the database is at hand.
	Server string `mapstructure:"server" variable:"SERVER"`
	// TokenFile has the token in its first line. Empty: the token is given otherwise.
	TokenFile string `mapstructure:"token_file" variable:"TOKEN_FILE"`
	// CAFile has the certificates of authorities, in PEM, that are trusted beside the system's.
	CAFile string `mapstructure:"ca_file" variable:"CA_FILE"`
	// NoInput has the command line ask nothing, also at a terminal: what it would ask is refused.
	NoInput bool `mapstructure:"no_input" variable:"NO_INPUT"`
}

// DefaultConfig is what config.yaml documents.
func DefaultConfig() Config { return Config{} }

// allowedServers says what Server may be.
const allowedServers = "https://HOST[:PORT][/PATH], or http:// with localhost or an address of this machine, as http://127.0.0.1:8470"

// Validate returns the problem with its key path, or nil.
func (c Config) Validate() error {
	if c.Server == "" {
		return nil
	}
	_, err := root(c.Server)
	return err
}

// root is the URL of a server up to where api.Prefix begins.
func root(text string) (string, error) {
	at, err := url.Parse(text)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" || at.User != nil || at.RawQuery != "" || at.ForceQuery || at.Fragment != "" || at.Hostname() == "" {
		return "", fmt.Errorf("client.server: is not allowed; allowed values: %s", allowedServers)
	}
	if at.Scheme == "http" && !loopback(at.Hostname()) {
		return "", fmt.Errorf("client.server: %s is beyond this machine, where a token does not travel in the clear; allowed values: %s", at.Host, allowedServers)
	}
	return strings.TrimSuffix(strings.TrimSuffix(at.Scheme+"://"+at.Host+strings.TrimSuffix(at.EscapedPath(), "/"), api.Prefix), "/"), nil
}

// loopback reports whether only this machine is reached by a host. A name may be anything, but
// for the one that never leaves it (RFC 6761).
func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.Unmap().IsLoopback()
}

// maxToken bounds a file with a token.
const maxToken = 4096

// tokenOf is the token: the given one, or that of the file.
func (c Config) tokenOf(token string) (string, error) {
	if c.TokenFile != "" && token == "" {
		text, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return "", fmt.Errorf("client.token_file: %w", err)
		}
		first, _, _ := strings.Cut(string(text[:min(len(text), maxToken)]), "\n")
		token = strings.TrimSpace(first)
	}
	switch {
	case token == "":
		return "", errors.New("client.token_file: there is no token; allowed values: BELFRY_TOKEN, or a file with the token in its first line; `belfry tokens create` makes one")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New("client.token_file: what is given is no token; allowed values: a token as `belfry tokens create` shows it")
	}
	return token, nil
}

// transport connects as Config says. Only https goes through a proxy of the environment: it
// sees no token then.
func (c Config) transport() (*http.Transport, error) {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: connectTime}).DialContext,
		TLSHandshakeTimeout: connectTime,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true,
		Proxy: func(req *http.Request) (*url.URL, error) {
			if req.URL.Scheme != "https" {
				return nil, nil //nolint:nilnil // no proxy
			}
			return http.ProxyFromEnvironment(req)
		},
	}
	if c.CAFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("client.ca_file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("client.ca_file: %s has no certificate; allowed values: a file with certificates in PEM", c.CAFile)
	}
	t.TLSClientConfig.RootCAs = pool
	return t, nil
}

// connectTime bounds a connection, and its handshake.
const connectTime = 10 * time.Second
