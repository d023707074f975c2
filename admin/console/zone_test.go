package console_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// Who has chosen a zone reads and says all times in it: those of tables, of sentences, and of
// forms, which show the instant that was understood.
func TestConsole_ObeysTheZoneThatWasChosen(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b, other := h.as(t, "operator"), h.as(t, "operator")
	at := time.Date(2040, 7, 1, 12, 0, 0, 0, time.UTC)
	id, err := h.jobs.Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: "Later", ScheduleAt: &at})
	require.NoError(t, err)
	show := "/jobs/" + text.Int(id) + "?tab=settings"
	require.Contains(t, b.get(t, show).text, text.LocalClock(at))
	require.Contains(t, b.get(t, show).text, "Times are in the server's zone, "+time.Now().Format("-07:00"))

	p := b.post(t, "/time-zone", url.Values{"zone": {" Asia/Kathmandu "}, "return_to": {show}})
	require.Equal(t, http.StatusSeeOther, p.status)
	require.Equal(t, show, p.header.Get("Location"))
	require.Regexp(t, `^belfry_time_zone=Asia/Kathmandu; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax$`, p.header.Get("Set-Cookie"))
	p = b.get(t, show)
	require.Contains(t, p.source, `<time datetime="2040-07-01T17:45:00+05:45">2040-07-01 17:45:00+05:45</time>`)
	require.NotRegexp(t, `[0-9]{2}:[0-9]{2}[+-]0[0-46-9]:[0-9]{2}<`, p.source, "no time is in another zone")
	require.Contains(t, p.text, "Times are in Asia/Kathmandu.")
	require.Contains(t, p.source, `value="Asia/Kathmandu"`)
	require.Contains(t, other.get(t, show).text, text.LocalClock(at), "what one chooses is no matter of another")

	require.Contains(t, b.get(t, "/events?since=2026-07-02T06:45").source, `value="2026-07-02 06:45:00&#43;05:45"`, "what was understood")
	p = b.post(t, "/jobs/"+text.Int(id)+"/set", url.Values{"schedule_at": {"2040-07-02 06:45"}})
	require.Equal(t, http.StatusOK, p.status, p.text)
	j, err := h.jobs.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, time.Date(2040, 7, 2, 1, 0, 0, 0, time.UTC), j.ScheduleAt.UTC())

	require.Equal(t, http.StatusSeeOther, b.post(t, "/time-zone", url.Values{"zone": {"Europe/Berlin"}}).status)
	p = b.post(t, "/jobs/"+text.Int(id)+"/set", url.Values{"schedule_at": {"2040-03-25 02:30"}})
	require.Equal(t, http.StatusBadRequest, p.status)
	require.Contains(t, p.text, "schedule_at: 2040-03-25 02:30 does not exist in the time zone Europe/Berlin")

	for _, wrong := range []string{"Mars/Base", "Local", "../etc/passwd", "+09:00"} {
		p = b.post(t, "/time-zone", url.Values{"zone": {wrong}})
		require.Equal(t, http.StatusUnprocessableEntity, p.status, wrong)
		require.Contains(t, p.text, "allowed values: UTC, a name as Asia/Seoul or Europe/Berlin, or nothing for the server's")
	}
	require.Contains(t, b.get(t, show).text, "Times are in Europe/Berlin.", "what is wrong changes nothing")
	require.Equal(t, "/", b.post(t, "/time-zone", url.Values{"zone": {""}, "return_to": {"https://elsewhere.example/"}}).header.Get("Location"))
	require.Contains(t, b.get(t, show).text, "Times are in the server's zone")
	require.Equal(t, http.StatusUnauthorized, h.as(t, "").post(t, "/time-zone", url.Values{"zone": {"UTC"}}).status)
}
