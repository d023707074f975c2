package console

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/internal/text"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/job"
)

// A watch that broke off has not told the end of what was under way: the page is to be read again.
func TestFeed_HasPagesReadAgainAfterABrokenWatch(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	f := &feed{c: New(nil, "", admin.Operations(), api.Environment{}), w: w, ctl: http.NewResponseController(w), sent: make(map[int64]map[string]string)}
	running := []jobs.WatchedJob{{ID: 17, Status: job.Running}}
	_ = f.sendJobs(running) // the recorder has no deadlines, and says so
	require.NotContains(t, w.Body.String(), `"again"`)
	w.Body.Reset()
	_ = f.sendJobs(running)
	require.Empty(t, w.Body.String(), "nothing has changed")
	f.reset()
	_ = f.sendJobs(nil)
	require.Contains(t, w.Body.String(), `"again":true`)
	w.Body.Reset()
	_ = f.sendJobs(running)
	require.NotContains(t, w.Body.String(), `"again"`)
	require.Contains(t, w.Body.String(), `"17.status":"RUNNING"`)
	_ = f.sendJobs([]jobs.WatchedJob{{ID: 17, Status: job.Aborted, AtRest: true}})
	require.Empty(t, f.sent, "what is at rest is not kept")
}

// What is brought up to date is in the zone of the page; a command in it stays as it has to be typed.
func TestConsole_CellsAreInTheZoneThatWasChosen(t *testing.T) {
	t.Parallel()
	c := New(nil, "", admin.Operations(), api.Environment{})
	at := time.Date(2026, 11, 26, 0, 30, 0, 0, time.UTC)
	line := text.Sprintf("done at %s; %s", at, text.Command("recall").Flag("as-of", "2026-11-26 00:30:00+00:00"))
	c.zone = time.UTC
	require.Equal(t, "done at 2026-11-26 00:30:00+00:00; belfry recall --as-of '2026-11-26 00:30:00+00:00'", c.plain(line))
	c.zone = time.FixedZone("", 3600)
	require.Equal(t, "done at 2026-11-26 01:30:00+01:00; belfry recall --as-of '2026-11-26 00:30:00+00:00'", c.plain(line))
}
