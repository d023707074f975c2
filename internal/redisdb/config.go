package redisdb

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config is the section "delivery.redis" of the configuration.
type Config struct {
	// URL of a Redis or Valkey server, 6.2 or later:
	//
	//	redis://[user:password@]host[:port][/db]      port 6379, db 0
	//	rediss://…                                    the same over TLS; skip_verify=true skips its checks
	//	unix://[user:password@]/path/to/socket[?db=N]
	//
	// User and password are percent-encoded. With Cluster or Sentinel the URL names one of the nodes or
	// Sentinels; addr=host:port, which can be repeated, names further ones. sentinel_username and
	// sentinel_password are for the Sentinels, user and password for the master.
	URL string `mapstructure:"url"`
	// Cluster means that the server belongs to a Redis Cluster, which has only db 0.
	Cluster bool `mapstructure:"cluster"`
	// Sentinel is the name of the master at the Sentinels. Empty means no Sentinels.
	Sentinel string `mapstructure:"sentinel"`
	// KeyPrefix is the prefix of all keys: letters, digits and ._:-. Two installations on one server
	// need different prefixes. In a Cluster the prefix is part of the hash tag.
	KeyPrefix string `mapstructure:"key_prefix"`
	// CAFile contains the certificates, in PEM, of the servers' authorities. Empty means the system's.
	CAFile string `mapstructure:"ca_file"`
	// CertFile and KeyFile are the client's certificate and key, in PEM, for servers with
	// tls-auth-clients. Empty means none.
	CertFile string `mapstructure:"cert_file"`
	KeyFile  string `mapstructure:"key_file"`
	// Timeout limits each command and each connection attempt.
	Timeout time.Duration `mapstructure:"timeout"`
}

// DefaultConfig returns the defaults documented in config.yaml: a server on this machine.
func DefaultConfig() Config {
	return Config{URL: "redis://127.0.0.1:6379", KeyPrefix: "belfry", Timeout: 5 * time.Second}
}

const minTimeout, maxTimeout = 100 * time.Millisecond, time.Minute

var keyPrefix = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// Validate returns all problems, each with its key below path, or nil. No message contains the URL.
func (c Config) Validate(path string) error {
	var problems []error
	problem := func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf(path+"."+key+": "+format, args...))
	}
	options, query, err := parse(c.URL, "addr", "sentinel_username", "sentinel_password")
	several := c.Cluster || c.Sentinel != ""
	switch {
	case err != nil:
		problem("url", "%w", err)
	case several && options.Network == "unix":
		problem("url", "a socket names one server; allowed values with cluster and sentinel: redis:// and rediss://")
	case !several && len(query["addr"]) > 0:
		problem("url", "addr= is for cluster and sentinel; allowed is one server")
	case c.Cluster && options.DB != 0:
		problem("url", "a cluster has one database; allowed is 0")
	case c.Sentinel == "" && (query.Has("sentinel_username") || query.Has("sentinel_password")):
		problem("url", "sentinel_username and sentinel_password are for Sentinels; allowed with sentinel only")
	case options.TLSConfig == nil && c.CAFile+c.CertFile+c.KeyFile != "":
		problem("url", "certificate files require TLS; allowed values: rediss://")
	}
	if c.Cluster && c.Sentinel != "" {
		problem("sentinel", "a cluster has no Sentinels; allowed is one of cluster and sentinel")
	}
	if !keyPrefix.MatchString(c.KeyPrefix) {
		problem("key_prefix", "%q is not allowed; allowed are up to 64 letters, digits and ._:-", c.KeyPrefix)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		problem("cert_file", "a certificate needs its key; allowed are both cert_file and key_file, or neither")
	}
	if c.Timeout < minTimeout || c.Timeout > maxTimeout {
		problem("timeout", "%s is not allowed; allowed are %s to %s", c.Timeout, minTimeout, maxTimeout)
	}
	return errors.Join(problems...)
}

// ErrURL lists the allowed forms without the given value: a password with an unescaped character may
// end up in any part of a URL.
var ErrURL = errors.New("not a usable URL; allowed values: redis://[user:password@]host[:port][/db], " +
	"rediss:// (?skip_verify=true) and unix://[user:password@]/path[?db=N], with user and password percent-encoded")

// parse reads the URL of one server, and parameters of the names more.
func parse(text string, more ...string) (*redis.Options, url.Values, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, nil, ErrURL
	}
	query, own := u.Query(), url.Values{}
	for _, name := range more {
		if values, given := query[name]; given {
			own[name] = values
			query.Del(name)
		}
	}
	for name := range query {
		if name != "db" && name != "skip_verify" {
			return nil, nil, ErrURL // timeouts and pools cannot be set by the URL
		}
	}
	for _, addr := range own["addr"] {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, nil, ErrURL
		}
	}
	if len(own) > 0 {
		u.RawQuery = query.Encode()
		text = u.String()
	}
	options, err := redis.ParseURL(text)
	if err != nil || options.DB < 0 || u.Scheme != "unix" && u.Hostname() == "" {
		return nil, nil, ErrURL
	}
	return options, own, nil
}

// certificates adds the configured certificates to the TLS settings. Errors name the key.
func (c Config) certificates(path string, t *tls.Config) error {
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return fmt.Errorf("%s.ca_file: %w", path, err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s.ca_file: %s holds no certificate in PEM", path, c.CAFile)
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return fmt.Errorf("%s.cert_file: %w", path, err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// hosts returns the addresses of all configured servers.
func hosts(options *redis.Options, query url.Values) []string {
	return append([]string{options.Addr}, query["addr"]...)
}
