package console_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// The acts are sentences: who did what, to which object, and why. Each filter can be removed.
func TestActivity_SaysWhoDidWhat(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	b := h.as(t, "operator")
	require.Contains(t, b.get(t, "/events").text, "Nobody has done anything yet.")
	id := h.enqueue(t, "Hello")
	_, err := h.jobs.Abort(t.Context(), job.One(id), job.Act{Actor: "ann", Reason: "it is <Tuesday>"})
	require.NoError(t, err)
	h.exec(t, `SELECT belfry.pause_lane('night', 'bob', 'wrong data')`)
	p := b.get(t, "/events")
	require.Equal(t, http.StatusOK, p.status, p.text)
	today := p.part("Today")
	require.Contains(t, today, "ann stopped job "+text.Int(id)+" Hello")
	require.Contains(t, today, "“it is <Tuesday>”")
	require.Contains(t, today, "bob paused lane night")
	require.Less(t, strings.Index(today, "bob paused"), strings.Index(today, "ann stopped"), "the newest is first")
	require.Contains(t, p.links(), "/jobs/"+text.Int(id))
	require.Contains(t, p.links(), "/events?by=ann")

	for path, says := range map[string]string{"/events?by=ann": "Person: ann", "/events?of=job&kind=aborted": "Act: Stopped", "/events?since=24h&of=job": "When: Last 24 hours"} {
		p = b.get(t, path)
		require.Contains(t, p.text, says)
		require.Contains(t, p.text, "ann stopped")
		require.NotContains(t, p.text, "bob paused")
		require.Contains(t, strings.Join(p.links(), " "), "/events")
	}
	p = b.get(t, "/events?kind=paused&by=ann")
	require.Contains(t, p.text, "No act matches.")
	require.True(t, slices.Contains(p.links(), "/events?by=ann") && slices.Contains(p.links(), "/events?kind=paused"), "each chip removes its filter")
	require.Equal(t, http.StatusUnprocessableEntity, b.get(t, "/events?of=nothing").status)
	require.Contains(t, b.get(t, "/events?_form=csv").source, "subject")
	p = b.get(t, "/events?limit=1")
	next := slices.IndexFunc(p.links(), func(link string) bool { return strings.Contains(link, "before=") })
	require.GreaterOrEqual(t, next, 0)
	p = b.get(t, p.links()[next])
	require.Contains(t, p.text, "ann stopped")
	require.NotContains(t, p.text, "bob paused")
}
