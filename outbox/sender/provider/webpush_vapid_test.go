package provider

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// I13: audiences come from addresses, so the cache of tokens has a bound.
func TestVAPID_KeepsABoundedNumberOfTokens(t *testing.T) {
	t.Parallel()
	key, err := parseVAPIDKey("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")
	require.NoError(t, err)
	v, err := newVAPID(key, "mailto:ops@example.org", time.Now)
	require.NoError(t, err)
	for i := range vapidMaxAudiences + 10 {
		_, err := v.authorization(fmt.Sprintf("https://%d.example", i))
		require.NoError(t, err)
		require.LessOrEqual(t, len(v.tokens), vapidMaxAudiences)
	}
}

func TestSubscription_AudienceIsTheOrigin(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{
		"https://Push.Example/a?b=c":  "https://push.example",
		"https://push.example:443/a":  "https://push.example",
		"https://push.example:8443/a": "https://push.example:8443",
		"https://[2001:db8::443]/a":   "https://[2001:db8::443]",
	} {
		u, err := url.Parse(endpoint)
		require.NoError(t, err)
		require.Equal(t, want, subscription{endpoint: u}.audience())
	}
}
