package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/relay"
)

func TestConfig_DefaultsAreValid(t *testing.T) {
	t.Parallel()
	require.NoError(t, relay.DefaultConfig().Validate("delivery"))
	s := relay.DefaultSenderConfig()
	s.Name, s.Medium = "fcm", "push"
	require.NoError(t, relay.ValidateSenders("senders", []relay.SenderConfig{s}))
}

// Every key refuses what it does not allow, and names itself.
func TestConfig_EveryKeyIsChecked(t *testing.T) {
	t.Parallel()
	for key, spoil := range map[string]func(*relay.Config){
		"name":              func(c *relay.Config) { c.Name = strings.Repeat("x", 201) },
		"batch":             func(c *relay.Config) { c.Batch = 0 },
		"max_in_flight":     func(c *relay.Config) { c.MaxInFlight = 999 },
		"lease":             func(c *relay.Config) { c.Lease = 0 },
		"poll_interval":     func(c *relay.Config) { c.PollInterval = 0 },
		"statement_timeout": func(c *relay.Config) { c.StatementTimeout = 11 * time.Second },
		"grace_period":      func(c *relay.Config) { c.GracePeriod = -1 },
		"max_crashes":       func(c *relay.Config) { c.MaxCrashes = 0 },
		"activity_share":    func(c *relay.Config) { c.ActivityShare = 1 },
		"receipts.interval": func(c *relay.Config) { c.Receipts.Interval = 0 },
		"receipts.limit":    func(c *relay.Config) { c.Receipts.Limit = 0 },
		"retry.attempts":    func(c *relay.Config) { c.Retry.Attempts = 0 },
		"retry.policy":      func(c *relay.Config) { c.Retry.Policy = "random" },
		"retry.initial":     func(c *relay.Config) { c.Retry.Initial = 0 },
		"retry.max":         func(c *relay.Config) { c.Retry.Max = time.Millisecond },
	} {
		c := relay.DefaultConfig()
		spoil(&c)
		require.ErrorContains(t, c.Validate("delivery"), "delivery."+key+": ")
	}
	for key, spoil := range map[string]func(*relay.SenderConfig){
		"name":             func(c *relay.SenderConfig) { c.Name = "FCM" },
		"medium":           func(c *relay.SenderConfig) { c.Medium = "" },
		"platforms":        func(c *relay.SenderConfig) { c.Platforms = []string{"ios", "ios"} },
		"concurrency":      func(c *relay.SenderConfig) { c.Concurrency = 0 },
		"rate_per_second":  func(c *relay.SenderConfig) { c.RatePerSecond = -1 },
		"burst":            func(c *relay.SenderConfig) { c.Burst = -1 },
		"timeout":          func(c *relay.SenderConfig) { c.Timeout = 0 },
		"retry.attempts":   func(c *relay.SenderConfig) { c.Retry.Attempts = 0 },
		"breaker.failures": func(c *relay.SenderConfig) { c.Breaker.Failures = -1 },
		"breaker.open_for": func(c *relay.SenderConfig) { c.Breaker.OpenFor = 0 },
		"breaker.probes":   func(c *relay.SenderConfig) { c.Breaker.Probes = 0 },
		"abort_after":      func(c *relay.SenderConfig) { c.AbortAfter = -1 },
	} {
		c := relay.DefaultSenderConfig()
		c.Name, c.Medium = "fcm", "push"
		spoil(&c)
		require.ErrorContains(t, relay.ValidateSenders("senders", []relay.SenderConfig{c}), "senders[0]."+key+": ")
	}
}

// All problems come at once; a sender that no message reaches is one.
func TestValidateSenders(t *testing.T) {
	t.Parallel()
	with := func(name, medium string, platforms ...string) relay.SenderConfig {
		c := relay.DefaultSenderConfig()
		c.Name, c.Medium, c.Platforms = name, medium, platforms
		return c
	}
	require.NoError(t, relay.ValidateSenders("senders", []relay.SenderConfig{with("a", "push", "ios"), with("b", "push", "ios", "web"), with("c", "push"), with("d", "sms")}))
	err := relay.ValidateSenders("senders", []relay.SenderConfig{with("a", "push", "ios", "web"), with("a", "sms"), with("c", "push", "web"), with("d", "push"), with("e", "push"), with("", "")})
	for _, problem := range []string{
		`senders[1].name: "a" is the name of senders[0] too`,
		"senders[2].platforms: senders[0] (a) takes every message of medium push",
		"senders[4].platforms: senders[3] (d) takes every message of medium push",
		"senders[5].name: ", "senders[5].medium: ",
	} {
		require.ErrorContains(t, err, problem)
	}
	require.NotContains(t, err.Error(), "senders[3].")
	many := make([]relay.SenderConfig, relay.MaxSenders+1)
	for i := range many {
		many[i] = with(fmt.Sprintf("s%d", i), fmt.Sprintf("m%d", i))
	}
	require.NoError(t, relay.ValidateSenders("senders", many[1:]))
	require.EqualError(t, relay.ValidateSenders("senders", many), "senders: has 101 entries; allowed values: at most 100")
}
