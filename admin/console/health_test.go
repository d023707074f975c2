package console_test

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/outbox"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/admin/api"
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

// Now shows how fast messages go and fail, by medium, whether providers are called, and how the server is.
func TestConsole_NowShowsDeliveryAndHealth(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "viewer")
	p := b.get(t, "/")
	require.NotContains(t, p.text, "failed/s", "nobody delivers")
	require.Contains(t, p.text, "relays none live")

	h.relays(t)
	require.Contains(t, p.text, "no pending job and no schedule matches")
	h.exec(t, `INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('night', now(), 'ann') ON CONFLICT (name) DO UPDATE SET paused_at = now(), paused_by = 'ann'`)
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, lane) VALUES ('inbox', 'operator_notice', 'Held', 'night')`)
	require.NotContains(t, b.get(t, "/").text, "Held")
	for n := range 14 { // the one that was made last is the first to run
		h.exec(t, `INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('inbox', 'operator_notice', 'No. ' || $1::int, now() + interval '20 hours' - $1 * interval '1 hour')`, n)
	}
	p = b.get(t, "/")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.text, "push fcm ready 25 1.25 42 sms gate breaker open")
	require.NotContains(t, p.text, "push old", "its relay is dead")
	require.Contains(t, p.text, "2 live, over postgres")
	require.Contains(t, p.text, "connections")
	var due []string
	p.each(func(n *html.Node) {
		if n.Data == "time" && n.Parent.Data == "td" {
			due = append(due, attr(n, "datetime"))
		}
	})
	require.Len(t, due, 12, "what the script counts down to")
	require.True(t, slices.IsSorted(due), "the next is first: %v", due)
	require.Contains(t, p.text, "No. 13")
	require.NotContains(t, p.text, "No. 1 ")
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, lane, schedule_at) SELECT 'inbox', 'operator_notice', 'Held', 'night', now() - interval '1 hour' FROM generate_series(1, 501)`)
	p = b.get(t, "/")
	require.Contains(t, p.text, "No. 13", "held jobs leave room")
	require.Contains(t, p.links(), "/upcoming")
}

// The list of upcoming work links to jobs and schedules, and has its times in the reader's zone.
func TestConsole_UpcomingIsAGenericPage(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "viewer")
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, schedule_at) SELECT 'push', 'operator_notice', 'First "><b>', now() + g * interval '6 hours' FROM generate_series(1, 51) g`)
	h.exec(t, `INSERT INTO belfry.schedules (name, every, template) VALUES ('digest', '5 hours', '{"type": "push", "category": "operator_notice", "title": "Digest"}')`)
	b.post(t, "/time-zone", url.Values{"zone": {"Asia/Kathmandu"}})
	p := b.get(t, "/upcoming")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.links(), "/jobs/1")
	require.Contains(t, p.links(), "/schedules/digest")
	require.Regexp(t, `<time datetime="20[-0-9]+T[0-9:]+\+05:45">`, p.source)
	require.NotRegexp(t, `[0-9]{2}:[0-9]{2}[+-]0[0-46-9]:[0-9]{2}`, p.source, "no time is in another zone")
	next := slices.IndexFunc(p.links(), func(link string) bool {
		return strings.HasPrefix(link, "/upcoming?") && strings.Contains(link, "after=")
	})
	require.GreaterOrEqual(t, next, 0)
	p = b.get(t, p.links()[next])
	require.Contains(t, p.links(), "/jobs/51")
	require.NotContains(t, p.links(), "/jobs/1")
	require.Contains(t, b.get(t, "/upcoming?_form=csv").source, "at,name,lane,job_id")
}

// What relays get their messages from is on Now as well; a carrier that is away hides nothing else.
func TestConsole_NowShowsTheCarrier(t *testing.T) {
	t.Parallel()
	away := false
	h := open(t, func(c *api.Options) {
		c.Env.Carrier = operation.Carrier{Transport: "redislist", Server: "queue.example:6379", Open: func() (outbox.Broker, error) {
			away = true
			return nil, errors.New("no route to queue.example")
		}}
	})
	b := h.as(t, "viewer")
	require.NotContains(t, b.get(t, "/").text, "The carrier", "no relay has one")
	require.False(t, away, "and nobody asks it")
	h.exec(t, `INSERT INTO belfry.relays (name, transport, heartbeat_at) VALUES ('r1', 'redislist', now() + interval '50 seconds')`)
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('inbox', 'operator_notice', 'Later', now() + interval '1 hour')`)
	p := b.get(t, "/")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.True(t, away)
	require.Contains(t, p.text, "1 live, over redislist")
	require.Contains(t, p.text, "The carrier: ")
	require.Contains(t, p.text, "Later")
}

// Acts stand beside senders, and not beside the relays below them.
func TestConsole_ActsAreOfWhatAListIsOf(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.relays(t)
	links := h.as(t, "operator").get(t, "/senders").links()
	require.Contains(t, links, "/senders/fcm/pause")
	for _, relay := range []string{"r1", "r2", "r3"} {
		require.NotContains(t, links, "/senders/"+relay+"/pause")
	}
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
