package redisdb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/redisdb"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const path = "delivery.redis"

func with(change func(*redisdb.Config)) redisdb.Config {
	c := redisdb.DefaultConfig()
	c.URL = "redis://localhost"
	if change != nil {
		change(&c)
	}
	return c
}

func TestConfig_URLs(t *testing.T) {
	t.Parallel()
	for _, c := range []redisdb.Config{
		with(nil),
		with(func(c *redisdb.Config) { c.URL = "rediss://me:p%40ss@host:6380/2?skip_verify=true" }),
		with(func(c *redisdb.Config) { c.URL = "unix://me:s3cret@/run/redis.sock?db=1" }),
		with(func(c *redisdb.Config) { c.URL, c.Cluster = "redis://a:1?addr=b:2&addr=[::1]:3", true }),
		with(func(c *redisdb.Config) {
			c.URL, c.Sentinel = "rediss://me:s3cret@a:26379/3?addr=b:26379&sentinel_password=x", "belfry"
		}),
	} {
		require.NoError(t, c.Validate(path), c.URL)
		db, err := redisdb.Open(c, path, 1) // nobody is asked
		require.NoError(t, err, c.URL)
		require.NoError(t, db.Close())
	}
}

func TestConfig_ValidateNamesEveryProblem(t *testing.T) {
	t.Parallel()
	err := redisdb.Config{Cluster: true, Sentinel: "m", KeyPrefix: "a{b}", CertFile: "c.pem"}.Validate(path)
	for _, message := range []string{
		"delivery.redis.url: not a usable URL; allowed values: redis://",
		"delivery.redis.sentinel: a cluster has no Sentinels",
		`delivery.redis.key_prefix: "a{b}" is not allowed; allowed are up to 64 letters, digits and ._:-`,
		"delivery.redis.cert_file: a certificate needs its key",
		"delivery.redis.timeout: 0s is not allowed; allowed are 100ms to 1m0s",
	} {
		require.ErrorContains(t, err, message)
	}
	for message, c := range map[string]redisdb.Config{
		"allowed is one server":                  with(func(c *redisdb.Config) { c.URL = "redis://a?addr=b:1" }),
		"allowed is 0":                           with(func(c *redisdb.Config) { c.URL, c.Cluster = "redis://a/1", true }),
		"a socket names one server":              with(func(c *redisdb.Config) { c.URL, c.Cluster = "unix:///a", true }),
		"allowed with sentinel only":             with(func(c *redisdb.Config) { c.URL = "redis://a?sentinel_password=x" }),
		"allowed values: rediss://":              with(func(c *redisdb.Config) { c.CAFile = "ca.pem" }),
		"delivery.redis.url: not a usable":       with(func(c *redisdb.Config) { c.URL, c.Cluster = "redis://a?addr=b", true }),
		"timeout: 2m0s is not allowed":           with(func(c *redisdb.Config) { c.Timeout = 2 * time.Minute }),
		"not a usable URL; allowed values: redi": with(func(c *redisdb.Config) { c.URL = "redis://a?pool_size=3" }),
	} {
		require.ErrorContains(t, c.Validate(path), message)
	}
}

// A password with characters that ought to have been escaped ends up in the host, the port,
// the path or the query. It must not end up in a log.
func TestConfig_BadURLIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"s3cret", "http://:s3cret@host", "redis:///s3cret", "redis://host/s3cret", "redis://:s3cret/x@host",
		"redis://host?addr=s3cret", "redis://host:s3cret", "redis://:%s3cret@host", "redis://host?s3cret=1",
	} {
		c := with(func(c *redisdb.Config) { c.URL, c.Cluster = url, true })
		err := c.Validate(path)
		require.ErrorContains(t, err, "delivery.redis.url: not a usable URL", url)
		require.NotContains(t, err.Error(), "s3cret", url)
	}
}

func TestOpen_NamesTheKeyOfAMissingFile(t *testing.T) {
	t.Parallel()
	c := with(func(c *redisdb.Config) { c.URL, c.CAFile = "rediss://a", "/nowhere/ca.pem" })
	_, err := redisdb.Open(c, path, 1)
	require.ErrorContains(t, err, "delivery.redis.ca_file: open /nowhere/ca.pem")
	c.CAFile, c.CertFile, c.KeyFile = "", "/nowhere/cert.pem", "/nowhere/key.pem"
	_, err = redisdb.Open(c, path, 1)
	require.ErrorContains(t, err, "delivery.redis.cert_file: open /nowhere/cert.pem")
}
