package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// What waits for a second person says so where it stands, and is approved as it was shown, by
// somebody else, once.
func TestConsole_ApprovesWhatWasShown(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.exec(t, `INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, 30) n`)
	boss := h.as(t, "operator")
	require.NotContains(t, boss.get(t, "/").text, "Waits for approval")
	id, err := h.jobs.Enqueue(t.Context(), job.Spec{Type: "push", Category: "operator_notice", Title: "Maintenance", NeedsApproval: true, RequestedBy: "kim"})
	require.NoError(t, err)
	at := "/jobs/" + text.Int(id)
	now := boss.get(t, "/")
	require.Contains(t, now.text, "Waits for approval")
	require.Contains(t, now.links(), at)
	approve := ""
	for _, to := range boss.get(t, at).links() {
		if strings.HasPrefix(to, at+"/approve") {
			approve = to
		}
	}
	require.NotEmpty(t, approve)
	require.Contains(t, boss.get(t, at).text, "Waits for approval")
	require.NotContains(t, h.as(t, "author").get(t, at).text, "Approve job", "who may not is shown no act")

	form := boss.get(t, approve).hidden()
	require.NotEmpty(t, form.Get("plan"), "it is bound to its plan")
	_, err = h.jobs.Set(t.Context(), id, job.Changes{"title": "Other"}, job.Act{Actor: "kim"})
	require.NoError(t, err)
	p := boss.post(t, at+"/approve", form)
	require.Equal(t, http.StatusPreconditionFailed, p.status)
	require.Contains(t, p.text, "was changed since: changed title by kim")

	p = boss.get(t, approve)
	require.Contains(t, p.text, "Other")
	require.Contains(t, p.text, "would be approved: 30 recipients")
	require.Contains(t, p.text, "nothing is done if the job has changed, or the number by more than 5 %, by then")
	form = p.hidden()
	h.exec(t, `INSERT INTO belfry.channels (external_id, platform) SELECT 'more' || n, 'ios' FROM generate_series(1, 3) n`)
	require.Contains(t, boss.post(t, at+"/approve", form).text, "33 recipients would be approved")
	form = boss.get(t, approve).hidden()
	for range 2 { // a second click
		p = boss.post(t, at+"/approve", form)
		require.Equal(t, http.StatusOK, p.status, p.text)
	}
	require.Equal(t, []string{"the-operator"}, h.actions(t, id, job.EventApproved))
	require.NotContains(t, boss.get(t, "/").text, "Waits for approval")
	require.NotContains(t, boss.get(t, at).text, "Approve job")
}

// What a job is called, and who requested it, turns no text of a page; a form sends it back as it is.
func TestConsole_TurnsNoText(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.exec(t, `INSERT INTO belfry.channels (external_id, platform) VALUES ('u', 'ios')`)
	boss, evil := h.as(t, "operator"), "a\u202eb\u2066c"
	id, err := h.jobs.Enqueue(t.Context(), job.Spec{Type: "push", Category: "operator_notice", Title: evil, Body: evil, NeedsApproval: true, RequestedBy: evil})
	require.NoError(t, err)
	at := "/jobs/" + text.Int(id)
	for _, path := range []string{"/", "/jobs", at, at + "/approve", "/events"} {
		p := boss.get(t, path)
		require.Equal(t, http.StatusOK, p.status, path)
		require.Contains(t, p.text, "a b c", path)
		require.NotContains(t, p.text, "\u202e", path)
		require.NotContains(t, p.text, "\u2066", path)
	}
}
