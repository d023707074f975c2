package abortcache

import (
	"errors"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/redisdb"
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
	// TTL is the lifetime of a flag.
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
		if _, err := redisdb.Single(c.URL, c.Timeout); err != nil {
			problems = append(problems, errURL(err))
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

// errURL names the key.
func errURL(err error) error { return fmt.Errorf("abort.cache: %w", err) }
