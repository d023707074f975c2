package settings

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/outbox/relay"
)

// Mail waits minutes and is tried for hours, whatever delivery.retry is; other kinds have
// seconds and delivery.retry. A sender's own settings come first.
func TestSenders_HaveDefaultsByKind(t *testing.T) {
	t.Parallel()
	retry := relay.RetryConfig{Attempts: 2, Policy: relay.Linear, Initial: time.Second, Max: time.Second}
	var items []any
	for _, kind := range Kinds() {
		items = append(items, map[string]any{"name": kind, "kind": kind})
	}
	items = append(items, map[string]any{"name": "own", "kind": "smtp", "timeout": "20s", "retry": map[string]any{"attempts": 3}})
	list, err := DecodeSenders(items, retry)
	require.NoError(t, err)
	for _, s := range list {
		switch s.Name {
		case "smtp":
			require.Equal(t, 30*time.Minute, s.Timeout)
			require.Equal(t, relay.RetryConfig{Attempts: 10, Policy: relay.Exponential, Initial: time.Minute, Max: time.Hour, Jitter: 0.5}, s.Retry)
		case "own":
			require.Equal(t, []any{20 * time.Second, 3, time.Minute}, []any{s.Timeout, s.Retry.Attempts, s.Retry.Initial})
		default:
			require.Equal(t, 5*time.Second, s.Timeout, s.Name)
			require.Equal(t, retry, s.Retry, s.Name)
		}
	}
}
