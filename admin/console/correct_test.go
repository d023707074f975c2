package console_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// typed are the fields of the page's act as a browser sends them, if nobody touches them.
func (p page) typed() url.Values {
	fields := p.hidden()
	p.each(func(n *html.Node) {
		if name := attr(n, "name"); name != "" && n.Data == "textarea" && n.FirstChild != nil {
			fields.Set(name, n.FirstChild.Data)
		} else if name != "" && n.Data == "input" && slices.Contains([]string{"text", "hidden"}, attr(n, "type")) && name != "q" && name != "return_to" && name != "zone" {
			fields.Set(name, attr(n, "value"))
		}
	})
	return fields
}

func TestConsole_ACorrectionAsksOnlyForWhatIsChanged(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	boss := h.as(t, "operator")
	id, err := h.jobs.Enqueue(t.Context(), job.Spec{
		Type: "push", Category: "operator_notice", Title: "Closed on Tuesday", Body: "All day.\nThe side door, too.", Route: []string{"push", "sms"},
		Variants: json.RawMessage(`{"ko": {"title": "화요일 휴무"}}`), Priority: 7,
	})
	require.NoError(t, err)
	path := "/jobs/" + text.Int(id) + "/set"
	was, err := h.jobs.Get(t.Context(), id)
	require.NoError(t, err)

	form := boss.get(t, path).typed()
	require.Equal(t, "Closed on Tuesday", form.Get("title"))
	require.Equal(t, "push,sms", form.Get("route"))
	require.Equal(t, "7", form.Get("priority"))
	require.Equal(t, text.Int(was.Version), form.Get("if_version"), "it is bound to what it shows")
	p := boss.post(t, path, form)
	now, err := h.jobs.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, was, now, "nothing was changed, and nothing is asked for: %s", p.text)

	form.Set("title", "Closed on Wednesday")
	p = boss.post(t, path, form)
	require.Equal(t, http.StatusOK, p.status, p.text)
	now, err = h.jobs.Get(t.Context(), id)
	require.NoError(t, err)
	was.Title, was.Version = "Closed on Wednesday", now.Version
	require.Equal(t, was, now)

	form = boss.get(t, path).typed()
	form.Set("body", "")
	form.Set("priority", "")
	p = boss.post(t, path, form)
	require.Equal(t, http.StatusUnprocessableEntity, p.status, "a priority is not nothing: %s", p.text)
	require.Equal(t, form.Get("_was_body"), p.typed().Get("_was_body"), "a form that is shown again still knows what there was")
	form.Set("priority", "7")
	p = boss.post(t, path, form)
	require.Equal(t, http.StatusOK, p.status, p.text)
	now, err = h.jobs.Get(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, now.Body, "what was emptied is empty")
	require.Equal(t, was.Priority, now.Priority)
}

// What has words for a few values and takes others too is typed: a number that `default` takes back.
func TestConsole_OnlyWhatIsClosedIsChosen(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	boss := h.as(t, "admin")
	id, err := h.jobs.Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: "Hello", Lane: "night"})
	require.NoError(t, err)
	job := "/jobs/" + text.Int(id) + "/set"
	p := boss.get(t, job)
	require.Subset(t, p.typed(), url.Values{"max_rows_per_second": {""}, "max_recipients": {""}, "chunk_target": {""}, "expires_at": {""}, "category": {""}})
	var chosen []string
	p.each(func(n *html.Node) {
		if n.Data == "select" {
			chosen = append(chosen, attr(n, "name"))
		}
	})
	require.Equal(t, []string{"health_checks"}, chosen)
	require.Subset(t, boss.get(t, "/limits/set").typed(), url.Values{"max_rows_per_second": {""}, "max_recipients": {""}})
	require.Subset(t, boss.get(t, "/enqueue").typed(), url.Values{"type": {""}}, "whatever types there are besides")

	form := p.typed()
	form.Set("max_recipients", "1000")
	form.Set("max_rows_per_second", "lots")
	p = boss.post(t, job, form)
	require.Equal(t, http.StatusUnprocessableEntity, p.status)
	require.Contains(t, p.text, "allowed values")
	form.Set("max_rows_per_second", "500")
	p = boss.post(t, job, form)
	require.Equal(t, http.StatusOK, p.status, p.text)
	now, err := h.jobs.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 1000, *now.MaxRecipients)
	require.Equal(t, 500, *now.MaxRowsPerSecond)
}

func TestConsole_AnActBesideAListIsAboutWhatIsSeen(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	p := h.as(t, "operator").get(t, "/dead-letters?job=4711&limit=5")
	require.Contains(t, p.links(), "/dead-letters/redrive?job=4711")
	require.Contains(t, p.links(), "/dead-letters/discard?job=4711")
}
