package console_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// relays are two that live and one that does not.
func (h *house) relays(t *testing.T) {
	t.Helper()
	h.exec(t, `INSERT INTO belfry.relays (name, senders, media, in_flight, limits, heartbeat_at) VALUES
		('r1', '{fcm,gate}', '{push,sms}', 7, '[{"name": "fcm", "rate_per_second": 500, "concurrency": 8, "medium": "push", "breaker": "closed", "waiting": 40, "sent_per_second": 20.5, "failed_per_second": 1.25},
			{"name": "gate", "rate_per_second": 0, "concurrency": 4, "medium": "sms", "breaker": "open", "waiting": 3}]', now() + interval '50 seconds'),
		('r2', '{fcm}', '{push}', 0, '[{"name": "fcm", "rate_per_second": 500, "concurrency": 8, "medium": "push", "breaker": "closed", "waiting": 2, "sent_per_second": 4}]', now() + interval '50 seconds'),
		('r3', '{old}', '{push}', 3, '[{"name": "old", "rate_per_second": 7, "concurrency": 8, "medium": "push"}]', now() - interval '1 minute')`)
}

// The form of a change says what there is now.
func TestConsole_AChangeShowsWhatThereIs(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.exec(t, `INSERT INTO belfry.senders (name, rate_per_second) VALUES ('fcm', 12.5), ('gate', 3)`)
	h.exec(t, `UPDATE belfry.limits SET max_recipients = 4000`)
	b := h.as(t, "admin")
	placeholder := func(path, field string) (text string) {
		b.get(t, path).each(func(n *html.Node) {
			if attr(n, "name") == field {
				text = attr(n, "placeholder")
			}
		})
		return text
	}
	require.Equal(t, "now 12.5", placeholder("/senders/fcm/set", "rate_per_second"))
	require.Empty(t, placeholder("/senders/other/set", "rate_per_second"))
	require.Equal(t, "now 4000", placeholder("/limits/set", "max_recipients"))
}
