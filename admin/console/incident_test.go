package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The incident of a job is a page, and one file that needs nothing else and leads nowhere.
func TestConsole_AnIncidentIsOneFile(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	id := h.delivered(t)
	h.exec(t, `UPDATE belfry.jobs SET abort_requested = true WHERE id = $1`, id)
	h.exec(t, `SELECT FROM belfry.resume_edited($1, '{"title": "<b>Right</b>"}', 'kim', 'it was </style><script>alert(1)</script>')`, id)
	b := h.as(t, "operator")
	require.Equal(t, http.StatusSeeOther, b.post(t, "/time-zone", url.Values{"zone": {"Asia/Kathmandu"}}).status)
	p := b.get(t, "/jobs/"+id+"/incident")
	require.Equal(t, http.StatusOK, p.status, p.text)
	require.Contains(t, p.text, "Who acted")

	saved := ""
	_, parts := within(p.root)
	for _, a := range parts["a"] {
		if strings.Contains(attr(a, "href"), "_form=html") {
			saved = attr(a, "href")
		}
	}
	f := b.get(t, saved)
	require.Equal(t, http.StatusOK, f.status)
	require.Equal(t, `attachment; filename="jobs-incident-`+id+`.html"`, f.header.Get("Content-Disposition"))
	_, in := within(f.root)
	for _, tag := range []string{"a", "script", "link", "img", "form", "iframe"} {
		require.Empty(t, in[tag], tag)
	}
	require.Len(t, in["style"], 1)
	require.NotContains(t, f.source, "url(", "its style loads nothing")
	for _, words := range []string{"<b>Right</b>", "push sent 30", "Delivery over time", "The walk, run by run", "+05:45", "Texts of people are masked"} {
		require.Contains(t, f.text, words)
	}
	require.NotEmpty(t, in["svg"])

	require.Contains(t, b.get(t, "/jobs/"+id).text, "Incident", "a job leads to it")
	require.Equal(t, http.StatusNotFound, b.get(t, "/jobs/77/incident?_form=html").status)
}
