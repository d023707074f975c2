package console_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/outbox"
)

// form is a form of a page: its address and its fields as a browser would submit them.
func (p page) form(t *testing.T, action string) url.Values {
	t.Helper()
	var fields url.Values
	p.each(func(n *html.Node) {
		if to, _, _ := strings.Cut(attr(n, "action"), "#"); n.Data != "form" || to != action {
			return
		}
		fields = make(url.Values)
		page{root: n}.each(func(n *html.Node) {
			if attr(n, "name") != "" && n.Data == "input" {
				fields.Set(attr(n, "name"), attr(n, "value"))
			}
		})
	})
	require.NotNil(t, fields, "no form posts to %s: %s", action, p.text)
	return fields
}

// actions are the addresses of the forms of a page.
func (p page) actions() (all []string) {
	p.each(func(n *html.Node) {
		if n.Data == "form" && attr(n, "method") == "post" {
			to, _, _ := strings.Cut(attr(n, "action"), "#")
			all = append(all, to)
		}
	})
	return all
}

// follow posts a form of a page and returns the page that the browser is led to.
func (b *browser) follow(t *testing.T, path string, form url.Values) page {
	t.Helper()
	p := b.post(t, path, form)
	require.Equal(t, http.StatusSeeOther, p.status, p.text)
	for _, cookie := range (&http.Response{Header: p.header}).Cookies() {
		require.True(t, cookie.HttpOnly)
	}
	return b.get(t, p.header.Get("Location"))
}

func TestDelivery_IsEmptyAtFirst(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	p := h.as(t, "operator").get(t, "/senders")
	require.Equal(t, http.StatusOK, p.status)
	require.Contains(t, p.text, "No sender is configured")
	require.Contains(t, p.part("Errors"), "No message has failed.")
	require.NotContains(t, p.text, "Carrier")
}

// A sender has its state, its figures and its limits, and only the acts that are possible.
func TestDelivery_ShowsSendersWithTheirActs(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.relays(t)
	h.exec(t, `INSERT INTO belfry.senders (name, rate_per_second, paused_at, paused_by, pause_reason) VALUES ('mail', 12.5, now(), 'ann', 'the bill is not paid')`)
	b := h.as(t, "operator")
	p := b.get(t, "/senders")
	require.Equal(t, http.StatusOK, p.status, p.text)
	senders := p.part("Senders")
	for _, words := range []string{"fcm push Sending", "Sent 25/s Failed 4.9 % Queue 42 Calls 0 Relays 2", "500/s, 8 at once on each relay", "gate sms Blocked after failures", "No limit, 4 at once on each relay",
		"mail Paused", "Paused by ann just now ; its messages wait. Reason: the bill is not paid", "12.5/s, concurrency as configured set by an operator"} {
		require.Contains(t, senders, words)
	}
	require.Contains(t, p.part("Relays"), "r3 Silent 3")
	require.NotContains(t, p.part("Senders"), "old", "its relay is dead")
	require.Subset(t, p.actions(), []string{"/senders/fcm/pause", "/senders/fcm/set", "/senders/gate/pause", "/senders/mail/resume", "/senders/mail/set"})
	require.NotContains(t, p.actions(), "/senders/fcm/resume")
	require.NotContains(t, p.actions(), "/senders/mail/pause")
	require.NotContains(t, p.links(), "/senders/r1/pause", "acts are of senders, not of relays")
	require.Contains(t, p.links(), "/senders?_form=csv")
	require.Contains(t, b.get(t, "/senders?_form=csv").source, "name,rate_per_second")

	viewer := h.as(t, "viewer").get(t, "/senders")
	require.Contains(t, viewer.part("Senders"), "fcm push Sending")
	for _, to := range viewer.actions() {
		require.NotContains(t, to, "/senders/")
	}
	require.Empty(t, viewer.part("Errors"), "which contain names")
}

func TestDelivery_ChangesASenderInPlace(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.relays(t)
	b := h.as(t, "operator")
	const set = "/senders/fcm/set"
	form := b.get(t, "/senders").form(t, set)
	require.Equal(t, "0", form.Get("if_version"))
	stale := b.get(t, "/senders").form(t, set)
	form.Set("rate_per_second", "200")
	form.Set("reason", "asked for")
	p := b.follow(t, set, form)
	require.Contains(t, p.part("Senders"), "fcm: 200/s, 8 at once on each relay. Relays follow within about a second.")
	require.NotContains(t, b.get(t, "/senders").text, "Relays follow", "it is said once")
	form = p.form(t, set)
	require.Equal(t, "200", form.Get("rate_per_second"))
	require.Equal(t, http.StatusSeeOther, b.post(t, set, form).status, "nothing is changed, and nothing is wrong")

	// A form of an older page changes nothing, and the page names the change.
	stale.Set("rate_per_second", "900")
	p = b.post(t, set, stale)
	require.Equal(t, http.StatusPreconditionFailed, p.status, p.text)
	require.Contains(t, p.part("Senders"), "changed rate_per_second by the-operator")
	require.Equal(t, "900", p.form(t, set).Get("rate_per_second"), "what was typed stays")
	require.NotEqual(t, stale.Get("if_version"), p.form(t, set).Get("if_version"))

	form = b.get(t, "/senders").form(t, set)
	form.Set("concurrency", "many")
	p = b.post(t, set, form)
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.Contains(t, p.part("Senders"), "Concurrency: ")
	require.Contains(t, p.part("Senders"), "allowed values")

	// An emptied field follows the configuration.
	form = b.get(t, "/senders").form(t, set)
	form.Set("rate_per_second", "")
	require.Contains(t, b.follow(t, set, form).part("Senders"), "fcm: 500/s, 8 at once")
	var rate *float64
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), `SELECT rate_per_second FROM belfry.senders WHERE name = 'fcm'`).Scan(&rate))
	require.Nil(t, rate)
}

func TestDelivery_PausesASenderInPlace(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.relays(t)
	b := h.as(t, "operator")
	form := b.get(t, "/senders?since=24h").form(t, "/senders/gate/pause")
	form.Set("reason", "<b>down</b>")
	for range 2 { // a form that is sent twice is done once
		p := b.follow(t, "/senders/gate/pause", form)
		require.Contains(t, p.part("Senders"), "gate is paused.")
		require.Contains(t, p.part("Senders"), "Paused by the-operator just now ; 3 messages wait. Reason: <b>down</b>")
	}
	var acts int
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.events WHERE subject = 'sender'`).Scan(&acts))
	require.Equal(t, 1, acts)
	require.Contains(t, b.follow(t, "/senders/gate/resume", b.get(t, "/senders").form(t, "/senders/gate/resume")).text, "gate sends again.")
	require.Equal(t, http.StatusForbidden, h.as(t, "viewer").post(t, "/senders/gate/pause", form).status)

	// A cookie that another site of the domain has set contains no HTML.
	at, err := url.Parse(h.url)
	require.NoError(t, err)
	content := `{"Place": "sender pause gate", "Text": "<i>text</i>", "Fault": "<i>fault</i>"}`
	b.client.Jar.SetCookies(at, []*http.Cookie{{Name: "belfry_outcome", Path: "/", Value: base64.RawURLEncoding.EncodeToString([]byte(content))}})
	p := b.get(t, "/senders")
	require.Contains(t, p.source, "&lt;i&gt;text")
	require.NotContains(t, p.source, "fault</i>")

	// The generated form of the act has its own page, and a form leads to pages of belfry only.
	p = b.post(t, "/senders/gate/pause", url.Values{"_back": {"https://example.org/senders"}})
	require.Equal(t, http.StatusOK, p.status)
	require.Contains(t, p.text, "done at")
	p = b.post(t, "/senders/gate/pause", url.Values{"_back": {"//example.org/senders"}})
	require.Equal(t, http.StatusOK, p.status)
	p = b.post(t, "/senders/gate/pause", url.Values{"_back": {"/operations/../senders"}})
	require.Equal(t, http.StatusOK, p.status)
}

// While a sender is paused, its cards and its job say what waits for it, and not that relays send.
func TestDelivery_SaysWhatWaitsForAPause(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.relays(t)
	id := h.deliveredPercent(t)
	h.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT $1, g, now() FROM generate_series(1001, 2204) g`, id)
	h.exec(t, `INSERT INTO belfry.job_deliveries (job_id, relay, written, sent, dead, cancelled) VALUES ($1, '', 1244, 30, 10, 0) ON CONFLICT (job_id, relay) DO UPDATE SET written = 1244, sent = 30, dead = 10, cancelled = 0`, id)
	h.exec(t, `INSERT INTO belfry.senders (name, paused_at, paused_by, pause_reason) VALUES ('fcm', now() - interval '5 minutes', 'ann', 'credentials')`)
	b := h.as(t, "operator")
	for _, path := range []string{"/senders", "/"} {
		p := b.get(t, path)
		require.Contains(t, p.text, "Paused by ann 5 min ago ; 1,204 messages wait. Reason: credentials", path)
		require.NotContains(t, p.text, "relays are sending", path)
	}
	p := b.get(t, "/jobs/"+id)
	require.Contains(t, p.part("Progress"), "held, sender fcm is paused by ann")
	require.Contains(t, p.links(), "/senders/fcm/resume")
	h.exec(t, `UPDATE belfry.senders SET paused_at = NULL, paused_by = NULL, pause_reason = ''`)
	require.NotContains(t, b.get(t, "/senders").text, "wait. ")
}

// Messages that failed are grouped by error; a group is sent again, or discarded, by its plan.
func TestDelivery_ActsOnErrorsByPlan(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.deliveredPercent(t)
	h.exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, sender, outcome, code) SELECT job_id, channel_id, step, 1, 'push', 'fcm', 'permanent', '404' FROM belfry.messages WHERE status = 'DEAD' AND step = 0`)
	b := h.as(t, "operator")
	p := b.get(t, "/senders")
	require.Equal(t, http.StatusOK, p.status, p.text)
	errs := p.part("Errors")
	for _, words := range []string{"# is unknown", "fcm, code 404 · the provider refused it permanently · in 1 job", "5 messages", "first", "last"} {
		require.Contains(t, errs, words)
	}
	require.NotContains(t, errs, "kim-3")
	require.Contains(t, p.links(), "/dead-letters/show?channel=35&job="+id, "an example")
	require.Regexp(t, `href="/dead-letters\?dead_reason=permanent&amp;error=[0-9a-f]{16}&amp;medium=push"`, p.source)
	require.Contains(t, b.get(t, "/senders?since=1h").part("Errors"), "No message failed in this time.")
	require.Contains(t, b.get(t, "/senders?since=never").part("Errors"), "since: ")

	p = b.get(t, "/senders?_plan=redrive&dead_reason=permanent&medium=push")
	require.Contains(t, p.part("Plan"), "Send 5 messages again?")
	require.Contains(t, p.part("Plan"), "first medium of the route: 5 messages")
	form := p.form(t, "/dead-letters/redrive")
	require.NotEmpty(t, form.Get("plan"))
	h.exec(t, `UPDATE belfry.message_rows SET status = 'CANCELLED', reason = 'discarded' WHERE job_id = $1 AND channel_id = 31`, id)
	p = b.post(t, "/dead-letters/redrive", form)
	require.Equal(t, http.StatusConflict, p.status, "the number has changed")
	require.NotEmpty(t, p.part("Errors"))
	form = b.get(t, "/senders?_plan=redrive&dead_reason=permanent&medium=push").form(t, "/dead-letters/redrive")
	require.Contains(t, b.follow(t, "/dead-letters/redrive", form).part("Errors"), "Due again: 4 messages.")
	form = b.get(t, "/senders?_plan=discard&dead_reason=permanent&medium=sms").form(t, "/dead-letters/discard")
	require.Contains(t, b.follow(t, "/dead-letters/discard", form).part("Errors"), "Discarded: 5 messages.")
	require.Contains(t, b.get(t, "/senders").part("Errors"), "No message has failed.")
	require.Contains(t, b.get(t, "/senders?_plan=discard&dead_reason=permanent&medium=sms").part("Plan"), "There is nothing to do.")
	require.Empty(t, h.as(t, "viewer").get(t, "/senders?_plan=discard&dead_reason=permanent").part("Plan"))
}

// The acts of a row are on the messages of its error only, although others failed for the same reason.
func TestDelivery_ActsOnOneErrorOnly(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.deliveredPercent(t) // 31 to 35: permanent at push
	h.exec(t, `UPDATE belfry.message_rows SET last_error = 'quota of kim-' || channel_id || ' exceeded' WHERE job_id = $1 AND channel_id IN (32, 34)`, id)
	h.exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, sender, outcome, code)
		SELECT job_id, channel_id, step, 1, 'push', 'fcm', 'permanent', CASE channel_id WHEN 35 THEN '404' ELSE '410' END FROM belfry.messages WHERE status = 'DEAD' AND step = 0`)
	b := h.as(t, "operator")
	p := b.get(t, "/senders")
	require.NotContains(t, p.text, "another error")
	acts := make(map[string]string) // by error
	p.each(func(n *html.Node) {
		row := page{root: n}
		if n.Data != "li" || n.Parent == nil || attr(n.Parent, "class") != "rows errors" {
			return
		}
		for _, to := range row.links() {
			if strings.Contains(to, "_plan=redrive") {
				acts[row.read()] = to
			}
		}
	})
	require.Len(t, acts, 4)
	for about, to := range acts {
		if !strings.HasPrefix(about, "# is unknown fcm, code 410") {
			continue
		}
		plan := b.get(t, to)
		require.Contains(t, plan.part("Plan"), "Send 2 messages again? # is unknown fcm, code 410 ·")
		form := plan.form(t, "/dead-letters/redrive")
		require.Contains(t, b.follow(t, "/dead-letters/redrive", form).part("Errors"), "Due again: 2 messages.")
	}
	var again []int64
	rows, err := h.db.Pool.Query(t.Context(), `SELECT channel_id FROM belfry.messages WHERE status = 'PENDING' ORDER BY 1`)
	require.NoError(t, err)
	again, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	require.Equal(t, []int64{31, 33}, again, "messages of other errors stay dead")
}

// A carrier that does not answer hides nothing else.
func TestDelivery_ShowsTheCarrier(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *api.Options) {
		c.Env.Carrier = operation.Carrier{Transport: "redislist", Server: "queue.example:6379", Open: func() (outbox.Broker, error) {
			return nil, errors.New("no route to queue.example")
		}}
	})
	b := h.as(t, "operator")
	require.Empty(t, b.get(t, "/senders").part("Carrier"), "no relay uses it")
	h.relays(t)
	h.exec(t, `UPDATE belfry.relays SET transport = 'redislist' WHERE name = 'r1'`)
	h.exec(t, `INSERT INTO belfry.queues (name, transport, dispatcher, leads_until) VALUES ('bulk', 'redislist', 'r1', now())`)
	p := b.get(t, "/senders")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.part("Carrier"), "has the error", "the log alone has its text")
	require.Contains(t, p.part("Senders"), "fcm")
	require.NotContains(t, p.links(), "/transport/drain?_back=%2Fsenders", "a relay works on it")
	h.exec(t, `UPDATE belfry.relays SET heartbeat_at = now() - interval '1 hour'`)
	require.Contains(t, b.get(t, "/senders").links(), "/transport/drain?_back=%2Fsenders")
}

// A role that delivers can write any rows of relays. Lists of senders read a bounded part of them.
func TestConsole_ManySendersOfRelaysAreBounded(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.exec(t, `INSERT INTO belfry.relays (name, senders, limits)
		SELECT 'g' || r, array_agg(left(md5(i::text || r), 5)), jsonb_agg(jsonb_build_object('name', left(md5(i::text || r), 5), 'medium', 'push', 'waiting', 1))
		  FROM generate_series(1, 30) r, generate_series(1, 100) i GROUP BY r`)
	h.exec(t, `UPDATE belfry.relays SET heartbeat_at = clock_timestamp() + interval '58 s'`)
	h.exec(t, `INSERT INTO belfry.senders (name, paused_at, paused_by) VALUES ('zz', now(), 'ann')`)
	b := h.as(t, "operator")
	for _, path := range []string{"/", "/senders"} {
		require.Equal(t, http.StatusOK, b.get(t, path).status, path)
	}
	senders, _, err := delivery.SenderStates(t.Context(), h.db.Pool, delivery.RelayAlive)
	require.NoError(t, err)
	require.Len(t, senders, 1000)
	require.Equal(t, "zz", senders[999].Name, "those with settings are first, and then sorted by name")
}
