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

// Config is the part "delivery.redis" of the configuration.
type Config struct {
	// URL of a Redis or Valkey server, 6.2 or later:
	//
	//	redis://[user:password@]host[:port][/db]      port 6379, db 0
	//	rediss://…                                    the same over TLS; skip_verify=true skips its checks
	//	unix://[user:password@]/path/to/socket[?db=N]
	//
	// User and password are percent-encoded. With Cluster or Sentinel it names one of the
	// nodes or Sentinels, and addr=host:port, as often as need be, the others.
	// sentinel_username and sentinel_password are for the Sentinels, user and password for
	// the server that they name.
	URL string `mapstructure:"url"`
	// Cluster: the server is one of a Redis Cluster. A Cluster has no db but 0.
	Cluster bool `mapstructure:"cluster"`
	// Sentinel is the name under which Sentinels know the master; empty: there are none.
	Sentinel string `mapstructure:"sentinel"`
	// KeyPrefix is what all keys begin with: letters, digits and ._:-. Two installations on one
	// server need different ones. It stands inside the hash tag of a Cluster.
	KeyPrefix string `mapstructure:"key_prefix"`
	// CAFile holds certificates, in PEM, that sign those of the servers; empty: the system's.
	CAFile string `mapstructure:"ca_file"`
	// CertFile and KeyFile are the client's own certificate and key, in PEM, which a server
	// with tls-auth-clients asks for; empty: none.
	CertFile string `mapstructure:"cert_file"`
	KeyFile  string `mapstructure:"key_file"`
	// Timeout bounds each command, and connecting.
	Timeout time.Duration `mapstructure:"timeout"`
}

// DefaultConfig is what config.yaml documents: a server on this machine.
func DefaultConfig() Config {
	return Config{URL: "redis://127.0.0.1:6379", KeyPrefix: "belfry", Timeout: 5 * time.Second}
}

const minTimeout, maxTimeout = 100 * time.Millisecond, time.Minute

var keyPrefix = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// Validate returns every problem at once, each with its key below path, or nil. No message
// repeats the URL.
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
		problem("url", "a socket is one server; allowed with cluster and sentinel are redis:// and rediss://")
	case !several && len(query["addr"]) > 0:
		problem("url", "addr= is for cluster and sentinel; allowed is one server")
	case c.Cluster && options.DB != 0:
		problem("url", "a cluster has one database; allowed is 0")
	case c.Sentinel == "" && (query.Has("sentinel_username") || query.Has("sentinel_password")):
		problem("url", "sentinel_username and sentinel_password are for Sentinels; allowed with sentinel only")
	case options.TLSConfig == nil && c.CAFile+c.CertFile+c.KeyFile != "":
		problem("url", "files of certificates are for TLS; allowed with them is rediss://")
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

// ErrURL says what is allowed and nothing of what was given: a password with a character that
// ought to have been escaped may turn up in any part of a URL.
var ErrURL = errors.New("not a usable URL; allowed are redis://[user:password@]host[:port][/db], " +
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
			return nil, nil, ErrURL // timeouts and pools are decided here, and must not seem to be the URL's
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

// certificates completes what the URL says of TLS. An error names the key.
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

// hosts are the addresses of all servers of the configuration.
func hosts(options *redis.Options, query url.Values) []string {
	return append([]string{options.Addr}, query["addr"]...)
}
