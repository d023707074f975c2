package console_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// titles are the titles of the jobs of a list, in their order.
func (p page) titles() (titles []string) {
	p.each(func(n *html.Node) {
		if n.Data == "td" && attr(n, "class") == "wide" {
			titles = append(titles, n.FirstChild.FirstChild.Data)
		}
	})
	return titles
}

// selected is the selected value of a filter.
func (p page) selected(name string) (value string) {
	p.each(func(n *html.Node) {
		if n.Data == "option" && attr(n.Parent, "name") == name {
			for _, a := range n.Attr {
				if a.Key == "selected" {
					value = attr(n, "value")
				}
			}
		}
	})
	return value
}

func TestJobs_AreFiltered(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "operator")
	require.Contains(t, b.get(t, "/jobs").text, "There are no jobs yet")
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, lane, requested_by) SELECT 'inbox', 'operator_notice', 'Closed on day ' || g, CASE WHEN g > 3 THEN 'night' ELSE 'default' END, 'kim' FROM generate_series(1, 5) g`)
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title, needs_approval, requested_by) VALUES ('inbox', 'operator_notice', '100% off', true, 'lee')`)
	h.exec(t, `SELECT belfry.abort(1, 'ann')`)

	p := b.get(t, "/jobs")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Equal(t, []string{"100% off", "Closed on day 5", "Closed on day 4", "Closed on day 3", "Closed on day 2", "Closed on day 1"}, p.titles())
	for _, words := range []string{"Waits for approval", "Stopped", "Waiting", "kim", "Job 3 · inbox · operator_notice Waiting", "Job 5 · inbox · operator_notice · lane night"} {
		require.Contains(t, p.text, words)
	}
	for query, want := range map[string][]string{
		"status=ABORTED": {"Closed on day 1"}, "status=WAITS": {"100% off"}, "lane=night": {"Closed on day 5", "Closed on day 4"},
		"text=DAY+2": {"Closed on day 2"}, "text=0%25": {"100% off"}, "status=ABORTED,PENDING&text=day&since=1h&lane=default": {"Closed on day 3", "Closed on day 2", "Closed on day 1"},
		"text=nothing": nil, "awaiting_approval=on": {"100% off"},
	} {
		require.Equal(t, want, b.get(t, "/jobs?"+query).titles(), query)
	}
	require.Contains(t, b.get(t, "/jobs?text=nothing").text, "No job matches")

	p = b.get(t, "/jobs?status=ABORTED&text=day&type=inbox")
	require.Equal(t, "ABORTED", p.selected("status"))
	require.Equal(t, "inbox", p.hidden().Get("type"), "a filter without a field stays")
	require.Contains(t, p.text, "Status: Stopped")
	require.Contains(t, p.text, "Title: day")
	require.Contains(t, p.links(), "/jobs?text=day&type=inbox", "a chip removes its filter")
	require.Contains(t, p.links(), "/jobs?_form=csv&status=ABORTED&text=day&type=inbox")
	require.Equal(t, "ABORTED,PENDING", b.get(t, "/jobs?status=ABORTED,PENDING").selected("status"))
	require.Equal(t, http.StatusUnprocessableEntity, b.get(t, "/jobs?since=never").status)
}

func TestJobs_HavePages(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "viewer")
	h.exec(t, `INSERT INTO belfry.jobs (type, category, title) SELECT 'inbox', 'operator_notice', 'No. ' || g FROM generate_series(1, 25) g`)
	p := b.get(t, "/jobs?category=operator_notice")
	require.Len(t, p.titles(), 20)
	require.Contains(t, p.links(), "/jobs?before=6&category=operator_notice")
	p = b.get(t, "/jobs?before=6&category=operator_notice")
	require.Len(t, p.titles(), 5)
	require.Contains(t, p.links(), "/jobs?category=operator_notice", "back to the newest")
	require.NotContains(t, p.text, "Older jobs")
}

// The acts on selected jobs are forms with plans, for operators.
func TestJobs_SelectedOnesAreActedOn(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for range 3 {
		h.enqueue(t, "Hello")
	}
	b := h.as(t, "operator")
	acts := make(map[string]string)
	b.get(t, "/jobs").each(func(n *html.Node) {
		if to := attr(n, "formaction"); to != "" {
			acts[n.FirstChild.Data] = to
		}
	})
	require.Equal(t, map[string]string{"Stop…": "/abort", "Resume…": "/resume", "Retry…": "/retry", "Recall…": "/recall"}, acts)
	form := b.get(t, acts["Stop…"]+"?"+url.Values{"id": {"1", "3"}}.Encode())
	require.Contains(t, form.text, "would be stopped: 2 jobs")
	viewer := h.as(t, "viewer").get(t, "/jobs")
	require.NotContains(t, viewer.source, "formaction")
	require.NotContains(t, viewer.source, "checkbox")
}
