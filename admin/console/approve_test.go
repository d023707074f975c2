package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

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

// An approval and a test message are dialogs on the page of the job, and pages without a script. The approver reads
// each text, the audience and its number.
func TestConsole_ApprovesAndTestsInDialogs(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.exec(t, `INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, 30) n`)
	id := h.text(t, `INSERT INTO belfry.jobs (type, category, title, body, route, variants, needs_approval, requested_by)
		VALUES ('push', 'operator_notice', 'Maintenance', 'At night.', '{push}', '{"ko": {"title": "점검", "body": "밤에"}}', true, 'kim') RETURNING id::text`)
	at := "/jobs/" + id
	boss := h.as(t, "operator")
	p := boss.get(t, at)
	approve, test := p.dialogLink("Approve job "+id+"…"), p.dialogLink("Send a test…")
	require.NotEmpty(t, approve)
	require.NotEmpty(t, test)

	p = boss.get(t, approve)
	for _, part := range []string{"Approve job " + id, "Maintenance", "At night.", "title, ko 점검", "body, ko 밤에", "everyone", "would be approved: 30 recipients"} {
		require.Contains(t, p.dialog(t), part)
	}
	require.NotContains(t, p.source, "data-done")
	form := p.hidden()
	form.Set("plan", "")
	p = boss.post(t, at+"/approve", form)
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.Contains(t, p.dialog(t), "requires", "a fault is in the dialog, too")
	form = p.hidden()
	form.Set("_plan", "on")
	p = boss.post(t, at+"/approve", form)
	require.Contains(t, p.dialog(t), "would be approved: 30 recipients")
	p = boss.post(t, at+"/approve", p.hidden())
	require.Contains(t, p.dialog(t), "approved")
	require.Contains(t, p.source, "data-act data-done")

	p = boss.get(t, test)
	require.Contains(t, p.dialog(t), "Test send")
	form = p.hidden()
	form.Set("to", "nobody")
	require.Contains(t, boss.post(t, test, form).dialog(t), "nobody")
	form = boss.get(t, test).hidden()
	form.Set("to", "u7")
	p = boss.post(t, test, form)
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.dialog(t), "a test of job")
	require.Contains(t, p.source, "data-act data-done")
	require.Equal(t, "1", h.text(t, `SELECT count(*)::text FROM belfry.activities WHERE test_of = $1::bigint`, id))
	require.NotContains(t, boss.get(t, at+"/report").source, "data-act", "a result is no act")
}

// dialogLink returns the address of the link with a name that opens a dialog, or "".
func (p page) dialogLink(name string) (to string) {
	p.each(func(n *html.Node) {
		href, opens := "", false
		for _, a := range n.Attr {
			if a.Key == "href" {
				href = a.Val
			}
			opens = opens || a.Key == "data-dialog"
		}
		if said, _ := within(n); opens && said == name {
			to = href
		}
	})
	return to
}
