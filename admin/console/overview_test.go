package console_test

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

// part is the text of the section with a label, or "" if the page has none.
func (p page) part(label string) (text string) {
	p.each(func(n *html.Node) {
		if attr(n, "aria-label") == label {
			text, _ = within(n)
		}
	})
	return text
}

func TestOverview_OfAnEmptyInstallationNamesTheFirstSteps(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	p := h.as(t, "operator").get(t, "/")
	require.Contains(t, p.text, "Nothing has been sent yet")
	require.Contains(t, p.links(), "/enqueue")
	require.Contains(t, p.part("Health"), "All is well")
	require.NotContains(t, h.as(t, "viewer").get(t, "/").links(), "/enqueue")
}

func TestOverview_ShowsTheRunningJobLarge(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.deliveredPercent(t)
	h.exec(t, `UPDATE belfry.jobs SET throttle = 'foreground', throttle_detail = '12 other active connections', channels_total = 80 WHERE id = $1`, id)
	h.exec(t, `INSERT INTO belfry.job_deliveries (job_id, relay, written, sent, dead, cancelled) VALUES ($1, '', 40, 30, 10, 0) ON CONFLICT (job_id, relay) DO UPDATE SET written = 40, sent = 30, dead = 10, cancelled = 0`, id)
	p := h.as(t, "operator").get(t, "/")
	require.Equal(t, http.StatusOK, p.status, p.text)
	running := p.part("In progress")
	for _, words := range []string{"Hello", "Running, slowed", "Slowed: other work keeps the database busy (12 other active connections)", "sent 30 38 %", "failed 10", "left 40 50 %", "Stop job " + id} {
		require.Contains(t, running, words)
	}
	require.NotContains(t, h.as(t, "viewer").get(t, "/").part("In progress"), "Stop job")
	require.Regexp(t, `data-bar="`+id+`\.bar"`, p.source)
}

// Upcoming work is grouped by day; a schedule is one entry, whose repetition is in words.
func TestOverview_GroupsUpcomingWork(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "viewer")
	b.post(t, "/time-zone", url.Values{"zone": {"UTC"}})
	h.exec(t, `INSERT INTO belfry.lanes (name, paused_at, paused_by) VALUES ('night', now(), 'ann') ON CONFLICT (name) DO UPDATE SET paused_at = now(), paused_by = 'ann'`)
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, lane) SELECT 'inbox', 'operator_notice', 'Held', 'night' FROM generate_series(1, 30)`)
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('inbox', 'operator_notice', 'First', date_trunc('day', now(), 'UTC') + interval '1 day 1 hour'),
		('inbox', 'operator_notice', 'Second', date_trunc('day', now(), 'UTC') + interval '1 day 2 hours'), ('inbox', 'operator_notice', 'Overdue', now() - interval '1 minute')`)
	h.exec(t, `INSERT INTO belfry.schedules (name, cron, time_zone, template) VALUES ('daily', '0 9 * * *', 'Asia/Seoul', '{"type": "inbox", "category": "operator_notice", "title": "Popular today"}')`)
	p := b.get(t, "/")
	next := p.part("Next")
	require.NotContains(t, next, "Held", "held jobs leave room")
	require.Equal(t, 1, strings.Count(next, "Popular today"))
	require.Contains(t, next, "every day at 09:00, Asia/Seoul")
	require.Contains(t, next, "01:00 First")
	var days []string
	p.each(func(n *html.Node) {
		if n.Data == "h3" {
			days = append(days, n.FirstChild.Data)
		}
	})
	require.Equal(t, "Due", days[0])
	require.Contains(t, days, "Tomorrow")
	require.Less(t, strings.Index(next, "First"), strings.Index(next, "Second"))
	require.Contains(t, p.part("Health"), "Lane night is paused")
	require.NotContains(t, p.links(), "/lanes/night/resume", "which a viewer may not")
	require.Contains(t, h.as(t, "operator").get(t, "/").links(), "/lanes/night/resume")
}

func TestOverview_ShowsSendersAndErrors(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "operator")
	require.Empty(t, b.get(t, "/").part("Delivery"))
	h.relays(t)
	h.deliveredPercent(t)
	p := b.get(t, "/")
	delivery := p.part("Delivery")
	require.Contains(t, delivery, "fcm push Sending Sent 25/s Failed 4.9 % Queue 42")
	require.Contains(t, delivery, "gate sms Blocked after failures Sent 0/s Failed 0 % Queue 3")
	require.NotContains(t, delivery, "old", "its relay is dead")
	require.Contains(t, p.part("Health"), "Sender gate is blocked after failures")
	require.NotContains(t, p.part("Health"), "All is well")
	require.Empty(t, p.part("Most frequent errors"), "these are older than an hour")
	h.exec(t, `UPDATE belfry.message_rows SET next_attempt_at = now() - interval '5 minutes' WHERE status = 'DEAD'`)
	p = b.get(t, "/")
	require.Contains(t, p.part("Most frequent errors"), "# is unknown")
	require.Contains(t, p.part("Most frequent errors"), "5 messages")
	require.True(t, slices.ContainsFunc(p.links(), func(to string) bool { return strings.HasPrefix(to, "/dead-letters?dead_reason=permanent&error=") }))
	require.Empty(t, h.as(t, "viewer").get(t, "/").part("Most frequent errors"), "which contain names")
}

// A sender with samples has a chart of its last hour, and the day has one by medium.
func TestOverview_DrawsSamples(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.relays(t)
	b := h.as(t, "viewer")
	require.NotContains(t, b.get(t, "/").source, "sparkline", "there are no samples yet")
	h.exec(t, `INSERT INTO belfry.samples (kind, name, at, sent, failed) SELECT 'sender', 'fcm', date_trunc('minute', now()) - g * interval '1 minute', 100 + g, 3 FROM generate_series(1, 50) g`)
	h.exec(t, `INSERT INTO belfry.samples (kind, name, at, sent, failed) VALUES ('sender', 'gate', date_trunc('minute', now()) - interval '5 hours', 40, 2)`)
	p := b.get(t, "/")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Equal(t, 1, strings.Count(p.source, `class="sparkline"`), "gate sent nothing in the last hour")
	require.Contains(t, p.source, `aria-label="Sent by fcm, messages a minute: lowest 0, highest 150, last 0"`)
	require.Contains(t, p.part("Delivery"), "6,275 push sent and 40 sms sent and 152 failed in all")
}

func TestOverview_ShowsTheLastJobs(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.exec(t, `SELECT belfry.abort(belfry.enqueue('inbox', 'operator_notice', 'No. ' || g), 'ann') FROM generate_series(1, 12) g`)
	p := h.as(t, "viewer").get(t, "/")
	last := p.part("Last jobs")
	require.Contains(t, p.part("Stopped jobs"), "No. 12 Stopped", "not to be forgotten")
	require.NotContains(t, last, "No. 12")
	require.Contains(t, last, "No. 5 ")
	require.NotContains(t, last, "No. 4 ")
	require.Contains(t, p.part("In progress"), "Nothing is running")
}

// A carrier that does not answer hides nothing else.
func TestOverview_NamesACarrierThatIsAway(t *testing.T) {
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
	require.Contains(t, p.part("Health"), "1 relay")
	require.Contains(t, p.part("Health"), "The carrier does not answer: ")
	require.Contains(t, p.text, "Later")
}

// A health that cannot be read is a problem on the overview; the rest is shown.
func TestOverview_WithoutTheServersHealth(t *testing.T) {
	t.Parallel()
	h := openOn(t, dbtest.New(t), nil) // not one whose plans other tests have prepared
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('inbox', 'operator_notice', 'Later', now() + interval '1 hour')`)
	h.exec(t, `ALTER TABLE belfry.relays DROP CONSTRAINT relays_transport_check, ALTER transport DROP DEFAULT, ALTER transport TYPE json USING to_json(transport)`) // not to be grouped by
	p := h.as(t, "viewer").get(t, "/")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.part("Health"), "The health of the server cannot be read")
	require.Contains(t, p.text, "Later")
}
