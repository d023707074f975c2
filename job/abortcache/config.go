package abortcache

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config is the part "abort" of the configuration.
type Config struct {
	// URL of a Redis or Valkey server:
	//
	//	redis://[user:password@]host[:port][/db]      port 6379, db 0
	//	rediss://…                                    the same over TLS; skip_verify=true skips its checks
	//	unix://[user:password@]/path/to/socket[?db=N]
	//
	// Empty: no cache, abort flags are in the database alone.
	URL string `mapstructure:"cache"`
	// TTL is how long a flag that nobody clears stays.
	TTL time.Duration `mapstructure:"ttl"`
	// Timeout bounds each call, connecting included.
	Timeout time.Duration `mapstructure:"timeout"`
}

// DefaultConfig is what config.yaml documents: no cache.
func DefaultConfig() Config {
	return Config{TTL: time.Hour, Timeout: 200 * time.Millisecond}
}

// Bounds of Config.
const (
	minTTL, maxTTL         = time.Second, 30 * 24 * time.Hour
	minTimeout, maxTimeout = 10 * time.Millisecond, 10 * time.Second
)

// Validate returns every problem at once, each with its key path, or nil. No
// message repeats the URL.
func (c Config) Validate() error {
	var problems []error
	if c.URL != "" {
		if _, err := parse(c.URL); err != nil {
			problems = append(problems, err)
		}
	}
	between := func(key string, d, low, high time.Duration) {
		if d < low || d > high {
			problems = append(problems, fmt.Errorf("abort.%s: %s is not allowed; allowed are %s to %s", key, d, low, high))
		}
	}
	between("ttl", c.TTL, minTTL, maxTTL)
	between("timeout", c.Timeout, minTimeout, maxTimeout)
	return errors.Join(problems...)
}

// errURL says what is allowed and nothing of what was given: a password with a
// character that ought to have been escaped may turn up in any part of a URL.
var errURL = errors.New("abort.cache: not a usable URL; allowed are redis://[user:password@]host[:port][/db], " +
	"rediss:// (?skip_verify=true) and unix://[user:password@]/path[?db=N], with user and password percent-encoded")

func parse(text string) (*redis.Options, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errURL
	}
	for name := range u.Query() {
		if name != "db" && name != "skip_verify" {
			return nil, errURL // timeouts and pool are decided here, and must not seem to be the URL's
		}
	}
	options, err := redis.ParseURL(text)
	if err != nil || options.DB < 0 || u.Scheme != "unix" && u.Hostname() == "" {
		return nil, errURL
	}
	return options, nil
}
