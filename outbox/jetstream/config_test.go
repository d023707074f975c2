package jetstream_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/jetstream"
)

func TestConfig_NamesTheKey(t *testing.T) {
	t.Parallel()
	for key, change := range map[string]func(c *jetstream.Config){
		"urls":            func(c *jetstream.Config) { c.URLs = nil },
		"urls[0]":         func(c *jetstream.Config) { c.URLs = []string{"nats://kim:hunter2@127.0.0.1"} },
		"urls[1]":         func(c *jetstream.Config) { c.URLs = append(c.URLs, "http://hunter2/") },
		"password":        func(c *jetstream.Config) { c.Password = "hunter2" },
		"credentials":     func(c *jetstream.Config) { c.Credentials, c.User, c.Password = "config_test.go", "kim", "hunter2" },
		"nkey":            func(c *jetstream.Config) { c.NKey = "not/there" },
		"tls.ca":          func(c *jetstream.Config) { c.TLS.CA = "not/there" },
		"tls.cert":        func(c *jetstream.Config) { c.TLS.Cert = "config_test.go" },
		"prefix":          func(c *jetstream.Config) { c.Prefix = "a.b" },
		"replicas":        func(c *jetstream.Config) { c.Replicas = 2 },
		"max_ack_pending": func(c *jetstream.Config) { c.MaxAckPending = 1 },
		"max_bytes":       func(c *jetstream.Config) { c.MaxBytes = 1 },
		"timeout":         func(c *jetstream.Config) { c.Timeout = time.Hour },
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			c := jetstream.DefaultConfig()
			require.NoError(t, c.Validate("delivery.nats"))
			change(&c)
			_, err := jetstream.New(c, jetstream.Options{MaxQueued: 1, Lease: time.Second})
			require.ErrorContains(t, err, "delivery.nats."+key+": ")
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
	_, err := jetstream.New(jetstream.DefaultConfig(), jetstream.Options{})
	require.ErrorContains(t, err, "delivery.max_queued: 0 is not allowed")
	require.ErrorContains(t, err, "delivery.lease: 0s is not allowed")
	c := jetstream.DefaultConfig()
	c.NKey = "config_test.go"
	_, err = jetstream.New(c, jetstream.Options{MaxQueued: 1, Lease: time.Second})
	require.ErrorContains(t, err, "delivery.nats.nkey: must be a file with the seed")
}
