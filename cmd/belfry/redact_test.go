package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/node/settings"
)

func TestConfig_SecretsOfSendersAreNotShown(t *testing.T) {
	t.Parallel()
	environ := []string{`BELFRY_SENDERS=[{"name": "hook", "kind": "webhook", "webhook": {"url": "https://example.com/topsecret", "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}}]`}
	r := command(t, environ, "config", "show", "--json")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Contains(t, r.stdout, `"url": "https://example.com"`)
	require.Contains(t, r.stdout, `"secrets": "(1 set)"`)
	require.Contains(t, r.stdout, `"concurrency": 16`)
	require.NotContains(t, r.stdout, "topsecret")
	require.NotContains(t, r.stdout, "whsec")
	r = command(t, environ, "config", "show")
	require.Regexp(t, `(?m)^senders +\[hook\] +BELFRY_SENDERS$`, r.stdout)
}

// A sender without a retry of its own takes that of delivery, wherever each was given.
func TestConfig_SendersTakeTheRetryOfDelivery(t *testing.T) {
	t.Parallel()
	s, err := settings.Load(config.Input{Environ: []string{
		`BELFRY_SENDERS=[{"name": "a", "kind": "webhook", "retry": {"attempts": 7}, "webhook": {"url": "https://example.com", "secret_file": "/etc/hook"}}, {"name": "b", "kind": "webhook", "medium": "push", "webhook": {"url": "https://example.com", "secret_file": "/etc/hook"}}]`,
		"BELFRY_DELIVERY_RETRY_ATTEMPTS=5", "BELFRY_DELIVERY_RETRY_MAX=1h",
	}}, nil)
	require.NoError(t, err)
	require.Equal(t, 7, s.Senders[0].Retry.Attempts)
	require.Equal(t, 5, s.Senders[1].Retry.Attempts)
	require.Equal(t, "1h0m0s", s.Senders[0].Retry.Max.String())
}
