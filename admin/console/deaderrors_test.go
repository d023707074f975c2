package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What dead letters died of stands beside their list, and each error leads to an example, to its
// letters, and for who may to the plan of their redrive, as the page is narrowed.
func TestConsole_DeadLettersAreCountedByError(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	require.Contains(t, h.as(t, "operator").get(t, "/dead-letters/errors").text, "no failed messages: every message is sent, cancelled, or still to be sent")
	id := h.deliveredPercent(t)
	h.exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, sender, outcome, code) SELECT job_id, channel_id, step, 1, 'push', 'fcm', 'permanent', '404' FROM belfry.messages WHERE status = 'DEAD' AND step = 0`)

	b := h.as(t, "operator")
	p := b.get(t, "/dead-letters/errors?job="+id+"&since=2026-11-26T02:00:00Z")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Equal(t, 1, strings.Count(p.source, `<td role="cell" data-name="sender">fcm</td>`), p.text)
	require.Contains(t, p.text, "# is unknown")
	require.NotContains(t, p.text, "kim-3")
	require.NotContains(t, p.text, "belfry dead-letters redrive", "a page has a link in place of the command")
	var errID string
	for _, one := range p.links() {
		if _, after, found := strings.Cut(one, "&error="); found && strings.Contains(one, "medium=push") {
			errID, _, _ = strings.Cut(after, "&")
		}
	}
	of := "dead_reason=permanent&error=" + errID + "&job=" + id + "&medium=push&since=2026-11-26T02%3A00%3A00Z"
	for _, to := range []string{"/dead-letters", "/dead-letters/show?channel=35&job=" + id, "/dead-letters?" + of, "/dead-letters/redrive?" + of} {
		require.Contains(t, p.links(), to)
	}
	require.Contains(t, p.source, `value="2026-11-26T02:00:00Z"`, "the form says how the page is narrowed")
	plan := b.get(t, "/dead-letters/redrive?"+of)
	require.Equal(t, http.StatusOK, plan.status, plan.text)
	require.Contains(t, plan.text, "failed messages of job "+id+" at push with error "+errID+" for permanent since 2026-11-26T02:00:00Z: would be sent again: 5 messages")
	require.Contains(t, b.get(t, "/dead-letters").links(), "/dead-letters/errors")

	for _, role := range []string{"viewer", "author"} {
		require.Equal(t, http.StatusForbidden, h.as(t, role).get(t, "/dead-letters/errors").status, role)
	}
	sheet := b.get(t, "/dead-letters/errors?_form=csv&limit=1")
	require.Contains(t, sheet.source, "medium,reason,sender,code,error,letters,jobs,first_at,last_at,example_job_id,example_channel_id,others,id\n")
	require.Equal(t, 2, strings.Count(sheet.source, "\n"))
}
