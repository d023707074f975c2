package abortcache_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job/abortcache"
)

func TestConfig_DefaultIsValidAndOff(t *testing.T) {
	t.Parallel()
	require.NoError(t, abortcache.DefaultConfig().Validate())
	_, err := abortcache.Open(abortcache.DefaultConfig())
	require.ErrorContains(t, err, "abort.cache: ")
}

func TestConfig_ValidateNamesEveryProblem(t *testing.T) {
	t.Parallel()
	err := abortcache.Config{URL: "localhost", TTL: time.Millisecond, Timeout: time.Hour}.Validate()
	require.ErrorContains(t, err, "abort.cache: not a usable URL; allowed values: redis://")
	require.ErrorContains(t, err, "abort.ttl: 1ms is not allowed; allowed are 1s to 720h0m0s")
	require.ErrorContains(t, err, "abort.timeout: 1h0m0s is not allowed; allowed are 10ms to 10s")
}

func TestConfig_URLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://localhost", "redis://:s3cret@host:6380/2", "rediss://me:s3cret@host?skip_verify=true",
		"redis://[::1]:6379", "unix:///run/redis.sock?db=1", "unix://me:s3cret@/run/redis.sock",
	} {
		config := abortcache.DefaultConfig()
		config.URL = url
		require.NoError(t, config.Validate(), url)
		cache, err := abortcache.Open(config)
		require.NoError(t, err, url) // nobody is asked
		require.NoError(t, cache.Close())
	}
}

// A password with characters that ought to have been escaped ends up in the host,
// the port, the path or the query. It must not end up in a log.
func TestConfig_BadURLIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"s3cret", "http://:s3cret@host", "redis:s3cret", "redis://", "redis:///s3cret", "unix://", "redis://host/s3cret",
		"redis://host/1/s3cret", "redis://:s3cret/x@host", "redis://:s3cret?x@host", "redis://host?s3cret=1",
		"redis://host?db=s3cret", "redis://host?db=-1", "redis://:%s3cret@host", "redis://:s3cret#x@host",
		"redis://host?read_timeout=5s", "redis://host:s3cret", "redis://host?skip_verify=s3cret", " redis://host",
	} {
		config := abortcache.DefaultConfig()
		config.URL = url
		err := config.Validate()
		require.ErrorContains(t, err, "abort.cache: not a usable URL", url)
		require.NotContains(t, err.Error(), "s3cret", url)
		_, err = abortcache.Open(config)
		require.EqualError(t, err, config.Validate().Error())
	}
}
