package console_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// dialog is the text of the dialog of an act.
func (p page) dialog(t *testing.T) (said string) {
	t.Helper()
	found := 0
	p.each(func(n *html.Node) {
		for _, a := range n.Attr {
			if a.Key == "data-act" {
				said, _ = within(n)
				found++
			}
		}
	})
	require.Equal(t, 1, found, p.text)
	return said
}

// halfway makes a push job that has stopped in the middle of 2,000 channels: of 1,000 messages 600 are sent and 10
// have failed.
func (h *house) halfway(t *testing.T) string {
	t.Helper()
	h.exec(t, `INSERT INTO belfry.channels (id, external_id, platform) SELECT g, 'kim-' || g, 'ios' FROM generate_series(1, 2000) g`)
	id := h.text(t, `INSERT INTO belfry.jobs (type, category, title, body, route, variants) VALUES ('push', 'operator_notice', 'Closed on Tuesday', 'All day.', '{push}', '{"ko": {"title": "화요일"}}') RETURNING id::text`)
	h.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now() WHERE id = $1::bigint`, id)
	h.exec(t, `UPDATE belfry.jobs SET "cursor" = '1000', bound = '2000', chunks = 1, channels_read = 1000, channels_matched = 1000, channels_total = 2000, rows_written = 1000 WHERE id = $1::bigint`, id)
	h.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, reason, last_error, sent_at)
		SELECT $1::bigint, g, now(), CASE WHEN g <= 600 THEN 'SENT' WHEN g <= 610 THEN 'DEAD' ELSE 'PENDING' END, CASE WHEN g BETWEEN 601 AND 610 THEN 'permanent' END,
			CASE WHEN g BETWEEN 601 AND 610 THEN 'unknown' END, CASE WHEN g <= 600 THEN now() END FROM generate_series(1, 1000) g`, id)
	h.exec(t, `INSERT INTO belfry.job_deliveries (job_id, relay, written, sent, dead, cancelled) VALUES ($1::bigint, '', 1000, 600, 10, 0) ON CONFLICT (job_id, relay) DO UPDATE SET written = 1000, sent = 600, dead = 10`, id)
	return id
}

// text queries one text.
func (h *house) text(t *testing.T, sql string, args ...any) (one string) {
	t.Helper()
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), sql, args...).Scan(&one))
	return one
}

// A job is stopped, corrected, resumed and recalled in dialogs that have its numbers before and after.
func TestJobAct_HasTheNumbersBeforeAndAfter(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.halfway(t)
	boss := h.as(t, "operator")
	at := "/jobs/" + id
	require.Contains(t, boss.get(t, at).links(), at+"/stop")
	p := boss.get(t, at+"/stop")
	require.Contains(t, p.dialog(t), "Stops now. 1,000 of about 2,000 recipients have a message, 600 messages were sent, 10 failed, 1,390 people will not get it.")
	form := p.hidden()
	form.Set("reason", "it is Wednesday")
	for range 2 { // a second click
		p = boss.post(t, at+"/stop", form)
		require.Equal(t, http.StatusOK, p.status, p.text)
		require.Contains(t, p.dialog(t), "Stopped. 1,000 of about 2,000 recipients have a message, 600 messages were sent, 10 failed, 1,390 people did not get it.")
	}
	require.Subset(t, p.links(), []string{at + "/resume", at + "/correct", at + "/recall"}, "what can be done next")
	require.Equal(t, []string{"the-operator"}, h.actions(t, mustInt(t, id), job.EventAborted))
	p = boss.get(t, at)
	require.Contains(t, p.text, "Stopped by the-operator just now : it is Wednesday")
	require.Contains(t, p.text, "1,390 people did not get it.")
	require.NotContains(t, p.links(), at+"/stop")

	p = boss.get(t, at+"/correct")
	require.Contains(t, p.dialog(t), "600 people already have the earlier text; 1,390 people will get the corrected one.")
	form = p.typed()
	require.Equal(t, "Closed on Tuesday", form.Get("title"))
	require.Equal(t, "화요일", form.Get("title.ko"))
	require.Equal(t, http.StatusUnprocessableEntity, boss.post(t, at+"/correct", form).status, "no text was changed")
	form.Set("title", "Closed on Wednesday")
	form.Set("title.ko", "수요일")
	require.Contains(t, boss.post(t, at+"/correct", form).dialog(t), "Corrected. 600 people already have the earlier text")
	require.Equal(t, `Closed on Wednesday|All day.|{"ko": {"title": "수요일"}}`, h.text(t, `SELECT title || '|' || body || '|' || variants FROM belfry.jobs WHERE id = $1::bigint`, id))

	p = boss.get(t, at+"/resume")
	require.Contains(t, p.dialog(t), "1,390 people will still get it.")
	require.Contains(t, p.dialog(t), "Type 1,390 to confirm")
	form = p.hidden()
	require.NotEmpty(t, form.Get("plan"), "it is bound to the job as it was shown")
	p = boss.post(t, at+"/resume", form)
	require.Equal(t, http.StatusUnprocessableEntity, p.status, "the number is not typed")
	require.Equal(t, "ABORTED", h.text(t, `SELECT status FROM belfry.jobs WHERE id = $1::bigint`, id))
	form.Set("_count", "1,390")
	require.Contains(t, boss.post(t, at+"/resume", form).dialog(t), "Continues. 1,390 people will still get it.")
	require.Equal(t, "PENDING", h.text(t, `SELECT status FROM belfry.jobs WHERE id = $1::bigint`, id))

	require.Contains(t, boss.post(t, at+"/stop", url.Values{}).dialog(t), "Stopped.", "it needs neither a reason nor a preview")
	p = boss.get(t, at+"/recall")
	require.Contains(t, p.dialog(t), "Cancels 390 unsent messages. 600 messages were sent and cannot be taken back.")
	require.Contains(t, boss.post(t, at+"/recall", p.hidden()).dialog(t), "390 messages were cancelled; 600 had been sent.")
	require.Equal(t, "390", h.text(t, `SELECT count(*)::text FROM belfry.messages WHERE status = 'CANCELLED'`))
}

// A correction can add a language, or the missing text of one.
func TestJobAct_CorrectionAddsALanguage(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id, err := h.jobs.Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: "Closed on Tuesday", Body: "All day."})
	require.NoError(t, err)
	boss := h.as(t, "operator")
	at := "/jobs/" + text.Int(id) + "/correct"
	add := func(locale, title, body string) page {
		form := boss.get(t, at).typed()
		form.Set("_locale", locale)
		form.Set("_title", title)
		form.Set("_body", body)
		return boss.post(t, at, form)
	}
	p := add("ko", "화요일 휴무", "")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.dialog(t), "Corrected.")
	require.Equal(t, "화요일 휴무", boss.get(t, at).typed().Get("title.ko"))
	require.Equal(t, http.StatusOK, add(" ko ", "", "하루 종일").status)
	require.Equal(t, http.StatusOK, add("pt-BR", "Fechado", "O dia todo").status)
	all := `{"ko": {"body": "하루 종일", "title": "화요일 휴무"}, "pt-BR": {"body": "O dia todo", "title": "Fechado"}}`
	require.JSONEq(t, all, h.text(t, `SELECT variants::text FROM belfry.jobs`))
	for _, c := range []struct{ locale, title, body, fault string }{
		{"ko", "수요일", "", "the language ko has this text already; change it above"},
		{"", "수요일", "", "a language needs its name and a title or a text"},
		{"de", " ", "", "a language needs its name and a title or a text"},
		{"no language!", "x", "", "no language!"},
	} {
		p := add(c.locale, c.title, c.body)
		require.Equal(t, http.StatusUnprocessableEntity, p.status, c.fault)
		require.Contains(t, p.dialog(t), c.fault)
		require.Equal(t, c.title, p.typed().Get("_title"), "what was typed is not lost")
		require.Contains(t, p.source, "<details open>")
	}
	require.JSONEq(t, all, h.text(t, `SELECT variants::text FROM belfry.jobs`))
	require.Equal(t, http.StatusUnprocessableEntity, add("", "", "").status, "no text was changed")
}

// An act is refused for callers who may not run it, and for a job that does not allow it.
func TestJobAct_IsRefused(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := text.Int(h.enqueue(t, "Hello"))
	at := "/jobs/" + id
	for _, act := range []string{"stop", "resume", "correct", "recall"} {
		require.Equal(t, http.StatusForbidden, h.as(t, "viewer").get(t, at+"/"+act).status, act)
		require.Equal(t, http.StatusForbidden, h.as(t, "viewer").post(t, at+"/"+act, url.Values{}).status, act)
	}
	require.Equal(t, "PENDING", h.text(t, `SELECT status FROM belfry.jobs`))
	boss := h.as(t, "operator")
	require.Contains(t, boss.get(t, at+"/resume").dialog(t), "Only a stopped job can be resumed.")
	p := boss.post(t, at+"/resume", url.Values{})
	require.Equal(t, http.StatusConflict, p.status, p.text)
	require.Equal(t, http.StatusNotFound, boss.get(t, at+"/fly").status)
	require.Equal(t, http.StatusNotFound, boss.get(t, "/jobs/99/stop").status)
	stale := boss.get(t, at+"/correct").typed()
	_, err := h.jobs.Abort(t.Context(), job.One(mustInt(t, id)), job.Act{Actor: "ann", Reason: "first"})
	require.NoError(t, err)
	stale.Set("title", "Other")
	p = boss.post(t, at+"/correct", stale)
	require.Equal(t, http.StatusPreconditionFailed, p.status)
	require.Contains(t, p.text, "was changed since: aborted by ann")
	require.Contains(t, p.source, `value="Other"`, "what was typed is not lost")
	require.Equal(t, "Hello", h.text(t, `SELECT title FROM belfry.jobs`))
}

// The tabs of a job: speed, results, one person, timeline and settings.
func TestJob_HasTabs(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.deliveredPercent(t)
	h.exec(t, `UPDATE belfry.jobs SET status = 'PROCESSED', runner = NULL, heartbeat_at = NULL WHERE id = $1::bigint`, id)
	h.exec(t, `UPDATE belfry.jobs SET started_at = date_trunc('minute', now()) - interval '5 minutes' WHERE id = $1::bigint`, id)
	h.exec(t, `INSERT INTO belfry.samples (at, kind, name, rows_written, sent, failed, deferred, queue_depth)
		SELECT date_trunc('minute', now()) - make_interval(mins => 5 - g), 'job', $1, 10 * g, g, 0, 0, 0 FROM generate_series(0, 2) g`, id)
	h.exec(t, `INSERT INTO belfry.job_deliveries (job_id, relay, written, sent, dead, cancelled) VALUES ($1::bigint, '', 40, 30, 10, 0) ON CONFLICT (job_id, relay) DO UPDATE SET written = 40, sent = 30, dead = 10`, id)
	b := h.as(t, "operator")
	at := "/jobs/" + id
	p := b.get(t, at)
	require.Equal(t, []string{"Overview", "Delivery", "Recipients", "Timeline", "Settings"}, p.tabs())
	said, parts := within(p.section(t, "Speed"))
	require.Contains(t, said, "recipients written at most 20 a minute")
	require.Contains(t, said, "messages sent at most 2 a minute")
	require.Len(t, parts["tr"], 1+3, "the table has the minutes of the samples, and none after the last")
	require.Contains(t, p.text, "10 messages failed. See why")
	require.Contains(t, p.links(), at+"/report?_form=csv")
	require.NotContains(t, p.text, "no message yet")
	bad := 0
	for _, n := range p.drawn("bad") {
		if n.Data == "rect" && n.Parent != nil && attr(n.Parent, "class") == "segments" && attr(n, "width") == "25%" {
			bad++
		}
	}
	require.Equal(t, 1, bad, "a job with failed messages has no fully green bar")

	p = b.get(t, at+"?tab=recipients&external_id=kim-35")
	require.Contains(t, p.text, "Failed, permanent kim-35 has a message that could not be sent")
	require.Contains(t, b.get(t, at+"?tab=recipients&external_id=kim-1").text, "Sent kim-1 was sent the message")
	require.Contains(t, b.get(t, at+"?tab=recipients&external_id=none").text, "none")
	p = b.get(t, at+"?tab=recipients&reason=dead")
	require.Equal(t, 10, strings.Count(p.text, "Failed, permanent"))
	require.Contains(t, b.get(t, at+"?tab=timeline").text, "Started by r")
	require.Contains(t, b.get(t, at+"?tab=settings").text, "Speed limit as configured for all jobs")
	p = b.get(t, at+"?tab=report")
	require.Subset(t, p.headings(), []string{"Speed", "Audience", "Results", "Delivery over time", "Timeline", "Times"})
}

// A finished inbox job is delivered; it has no message, and nothing to stop.
func TestJob_AFinishedInboxJobIsDelivered(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := text.Int(h.enqueue(t, "Hello"))
	h.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now()`)
	h.exec(t, `UPDATE belfry.jobs SET "cursor" = '40', bound = '40', chunks = 1, channels_read = 40, channels_matched = 40, rows_written = 40`)
	h.exec(t, `UPDATE belfry.jobs SET status = 'PROCESSED', runner = NULL, heartbeat_at = NULL`)
	p := h.as(t, "operator").get(t, "/jobs/"+id)
	require.Contains(t, p.text, "Delivered")
	require.Contains(t, p.text, "40 people have it in their inbox.")
	require.NotContains(t, p.links(), "/jobs/"+id+"/stop")
	require.NotContains(t, p.text, "message yet")
	p = h.as(t, "operator").post(t, "/jobs/"+id+"/stop", url.Values{}) // from a page that was rendered while it ran
	require.Equal(t, http.StatusOK, p.status)
	require.Contains(t, p.dialog(t), "It finished before the stop arrived; nothing was left to stop.")
	require.NotContains(t, p.text, "PROCESSED")
}

// tabs are the names of the tabs of a page.
func (p page) tabs() (names []string) {
	p.each(func(n *html.Node) {
		if n.Data == "a" && attr(n.Parent, "class") == "tabs" {
			names = append(names, n.FirstChild.Data)
		}
	})
	return names
}

func mustInt(t *testing.T, s string) (n int64) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(s), &n))
	return n
}

// The content of a job is shown as a phone and as an inbox entry, and an open page has a link to the result when
// the job ends.
func TestJob_ShowsItsContentAndItsEnd(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := text.Int(h.enqueue(t, "Hello"))
	p := h.as(t, "operator").get(t, "/jobs/"+id)
	for _, class := range []string{"phone", "inbox"} {
		require.Len(t, p.drawn(class), 1, class)
		said, _ := within(p.drawn(class)[0])
		require.Contains(t, said, "Hello It says more.", class)
	}
	after := 0
	p.each(func(n *html.Node) {
		if attr(n, "data-after") == id {
			after++
		}
	})
	require.Equal(t, 1, after)
	_, err := h.jobs.Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: "Later", ScheduleAt: new(time.Now().Add(time.Hour))})
	require.NoError(t, err)
	require.Contains(t, h.as(t, "operator").get(t, "/jobs/2").text, "Begins in 60 min .")
}

// The figures and the recipients of a radius would reveal who is inside: a viewer sees the page without them.
func TestJob_ToARadiusHasNoFiguresForViewers(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id, err := h.jobs.Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: "Near", Audience: channels.Within(37.5, 127, 5000)})
	require.NoError(t, err)
	h.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now()`)
	h.exec(t, `UPDATE belfry.jobs SET started_at = date_trunc('minute', now()) - interval '5 minutes'`)
	h.exec(t, `INSERT INTO belfry.samples (at, kind, name, rows_written) SELECT date_trunc('minute', now()) - make_interval(mins => 5 - g), 'job', $1, 10 FROM generate_series(0, 4) g`, text.Int(id))
	at := "/jobs/" + text.Int(id)
	require.Contains(t, h.as(t, "operator").get(t, at).text, "recipients written at most 10 a minute")
	p := h.as(t, "viewer").get(t, at)
	require.Contains(t, p.text, "Active channels within 5 km")
	require.NotContains(t, p.text, "a minute")
	require.Empty(t, p.drawn("fault"), p.text)
	require.Len(t, h.as(t, "viewer").get(t, at+"?tab=recipients&external_id=kim").drawn("fault"), 1)
}
