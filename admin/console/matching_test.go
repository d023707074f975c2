package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// allThatMatch is where a page leads to for an act on all that pass its filter; "": nowhere.
func (p page) allThatMatch(act string) string {
	for _, to := range p.links() {
		if strings.Contains(to, act+"?_matching=") {
			return to
		}
	}
	return ""
}

// An act on all that match is on those that were seen, and on no job that came since. A stop is not bound to
// their number.
func TestLong_ConsoleActsOnAllThatMatch(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	enqueue := func(lane string, n int) {
		h.exec(t, `INSERT INTO belfry.lanes (name) VALUES ($1) ON CONFLICT DO NOTHING`, lane)
		h.exec(t, `INSERT INTO belfry.jobs (type, category, title, lane, requested_by) SELECT 'inbox', 'operator_notice', 'Hello', $1, 'kim' FROM generate_series(1, $2::integer)`, lane, n)
	}
	enqueue("night", 7)
	enqueue("day", 2)
	b := h.as(t, "operator")
	require.Empty(t, b.get(t, "/jobs").allThatMatch("abort"), "everything is not a filter")
	require.Empty(t, h.as(t, "viewer").get(t, "/jobs?lane=night").allThatMatch("abort"))
	p := b.get(t, "/jobs?lane=night&limit=3")
	require.Empty(t, b.get(t, "/jobs?lane=night&status=PENDING").allThatMatch("resume"), "nothing is ABORTED there")
	to := p.allThatMatch("abort")
	require.NotEmpty(t, to)
	require.Contains(t, p.text, "Stop all that match")

	form := b.get(t, to)
	require.Equal(t, http.StatusOK, form.status, form.text)
	require.Contains(t, form.text, "Stop 7 jobs")
	require.Contains(t, form.text, "would be stopped: 7 jobs")
	send := form.hidden()
	require.Empty(t, send.Get("plan"))
	_, parts := within(form.root)
	for _, area := range parts["textarea"] {
		text, _ := within(area)
		send.Set(attr(area, "name"), text)
	}
	require.Len(t, strings.Fields(send.Get("id")), 7)
	enqueue("night", 1)
	h.exec(t, `SELECT belfry.abort(1, 'ann')`)
	at, _, _ := strings.Cut(to, "?")
	done := b.post(t, at, send)
	require.Equal(t, http.StatusOK, done.status, done.text)
	require.Contains(t, done.text, "6 of 7 jobs aborted, 1 over already")
	require.Contains(t, done.text, "1 job of those that match the filter now can still be stopped")
	require.Equal(t, to, done.allThatMatch("abort"))
	done = b.post(t, at, url.Values{"id": send["id"]})
	require.Equal(t, http.StatusOK, done.status, done.text)
	require.Contains(t, done.text, "Over before the stop arrived; nothing was left to stop.")
	var left string
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), `SELECT string_agg(n || ' ' || status || ' in ' || lane, ', ' ORDER BY lane DESC, status)
		FROM (SELECT count(*) AS n, status, lane FROM belfry.jobs GROUP BY status, lane) s`).Scan(&left))
	require.Equal(t, "7 ABORTED in night, 1 PENDING in night, 2 PENDING in day", left)

	require.Contains(t, b.get(t, "/jobs?lane=night&status=ABORTED").text, "Resume all that match")
	gone := b.get(t, at+"?"+url.Values{"_matching": {"lane=nobody"}}.Encode())
	require.Equal(t, http.StatusUnprocessableEntity, gone.status)
	require.Contains(t, gone.text, "no job matches the filter")
	require.Contains(t, b.get(t, at+"?"+url.Values{"_matching": {"status=what"}}.Encode()).text, "PENDING, RUNNING")

	enqueue("crowd", 1001)
	many := b.get(t, at+"?"+url.Values{"_matching": {"lane=crowd"}}.Encode())
	require.Contains(t, many.text, "Stop 1,000 jobs")
	require.Contains(t, many.text, "the newest 1,000 matching jobs")
	require.Contains(t, many.text, "1,000 jobs from 12 to 1011: would be stopped: 1,000 jobs")
}
