package console_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/internal/text"
)

// exec runs SQL.
func (h *house) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := h.db.Pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// headings are those of a page's sections.
func (p page) headings() (all []string) {
	p.each(func(n *html.Node) {
		if n.Data == "h2" && n.FirstChild != nil {
			all = append(all, n.FirstChild.Data)
		}
	})
	return all
}

// A person is found by external id, and from wherever a channel's id is shown.
func TestConsole_APersonHasAPage(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.exec(t, `INSERT INTO belfry.channels (id, external_id, platform) VALUES (3, 'kim@example.org', 'ios')`)
	var id int64
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), `INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', 'Hello') RETURNING id`).Scan(&id))
	h.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now() WHERE id = $1`, id)
	h.exec(t, `UPDATE belfry.jobs SET "cursor" = '3', bound = '3', chunks = 1, channels_read = 1, channels_matched = 1, rows_written = 1 WHERE id = $1`, id)
	h.exec(t, `UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = $1`, id)
	h.exec(t, `INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at, status, reason, last_error) VALUES ($1, 3, now(), 'DEAD', 'permanent', 'no such token')`, id)
	h.exec(t, `SELECT belfry.send(3, 'activity', 'Lee likes it')`)
	h.enqueue(t, "Later")

	b := h.as(t, "operator")
	const person = "/channels/show?channel=3"
	p := b.get(t, "/channels/show")
	require.Equal(t, http.StatusOK, p.status, "it asks whom, and finds no fault yet")
	require.Contains(t, p.source, `name="external_id"`)
	require.NotContains(t, p.source, `role="alert"`)
	require.Contains(t, b.get(t, "/").links(), "/channels/show", "it is among the pages")

	p = b.get(t, "/channels/show?external_id=kim%40example.org")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.source, "<h1>Person kim@example.org</h1>")
	require.Equal(t, []string{"Does not want", "Upcoming", "Jobs and single messages"}, p.headings())
	require.Contains(t, p.source, `data-tone="bad">dead, permanent</span>`)
	require.Contains(t, p.text, "Lee likes it")
	require.Contains(t, p.links(), "/jobs/"+text.Int(id))
	require.NotContains(t, p.links(), "/jobs/-1", "a single message is no job")
	require.Contains(t, p.links(), "/channels/opt-out?external_id=kim%40example.org")
	require.NotContains(t, p.links(), "/channels/forget?external_id=kim%40example.org", "which an operator may not")
	require.Contains(t, h.as(t, "admin").get(t, person).links(), "/channels/forget?channel=3")
	require.Contains(t, b.get(t, person+"&limit=1").links(), "/channels/show?before=0%3A-1&channel=3&limit=1", "the next page")
	require.Equal(t, http.StatusNotFound, b.get(t, "/channels/show?channel=99").status)

	viewer := h.as(t, "viewer").get(t, person)
	require.Contains(t, viewer.source, "<h1>Person 3</h1>")
	for _, words := range []string{"kim@example.org", "Lee likes it", "no such token"} {
		require.NotContains(t, viewer.source, words)
	}

	for _, at := range []string{"/jobs/" + text.Int(id) + "/recipients", "/dead-letters"} {
		require.Contains(t, b.get(t, at).links(), person, at)
	}
	require.Contains(t, b.get(t, "/dead-letters").links(), "/jobs/"+text.Int(id))
}
