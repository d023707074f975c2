package console_test

import (
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/text"
)

// A page is one request, whose operation is known to whoever counts requests.
func TestConsole_APageIsOneRequest(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var all []api.Answered
	h := open(t, func(c *api.Options) {
		c.Observe = func(a api.Answered) {
			mu.Lock()
			defer mu.Unlock()
			a.Took = 0
			all = append(all, a)
		}
	})
	id := text.Int(h.enqueue(t, "Hello"))
	b := h.as(t, "operator")
	require.Equal(t, http.StatusOK, b.get(t, "/").status)
	require.Equal(t, http.StatusOK, b.get(t, "/jobs").status)
	require.Equal(t, http.StatusOK, b.get(t, "/jobs/"+id).status)
	form := b.get(t, "/abort?id="+id).hidden()
	form.Set("id", id)
	require.Equal(t, http.StatusOK, b.post(t, "/abort", form).status)
	want := []api.Answered{
		{Method: "GET", Status: 200}, {Operation: "jobs list", Method: "GET", Status: 200}, {Operation: "jobs show", Method: "GET", Status: 200},
		{Operation: "abort", Method: "GET", Status: 200}, {Operation: "abort", Method: "POST", Status: 200},
	}
	require.Eventually(t, func() bool { // an answer is read before its handler has ended
		mu.Lock()
		defer mu.Unlock()
		return len(all) >= len(want)
	}, time.Minute, time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, want, all)
}

// An act of a form is done as the API does it: by the requester, who may, and once.
func TestConsole_ActsBindTheRequester(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for _, role := range []string{"viewer", "author"} {
		p := h.as(t, role).post(t, "/lanes/default/pause", url.Values{"reason": {"x"}})
		require.Equal(t, http.StatusForbidden, p.status, role)
		require.Contains(t, p.text, "lanes pause needs the role operator", role)
	}
	p := h.as(t, "operator").post(t, "/lanes/default/pause", url.Values{"reason": {"x"}, "actor": {"mallory"}})
	require.Equal(t, http.StatusOK, p.status, p.text)
	var actor string
	require.NoError(t, h.db.Pool.QueryRow(t.Context(), `SELECT paused_by FROM belfry.lanes WHERE name = 'default'`).Scan(&actor))
	require.Equal(t, "the-operator", actor)
	p = h.as(t, "viewer").get(t, "/jobs/"+text.Int(h.enqueue(t, "Hello")))
	require.Contains(t, p.text, operation.Masked)
	require.NotContains(t, p.text, "It says more.")
}
