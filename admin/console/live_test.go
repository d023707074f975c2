package console

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/admin/client"
	"github.com/belfryhq/belfry/job"
)

// A watch that broke off has not told the end of what was under way; the next one is asked for it.
func TestFeed_IsToldTheEndOfWhatABrokenWatchShowed(t *testing.T) {
	t.Parallel()
	var asked []string
	watched := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked = append(asked, req.URL.RawQuery)
		w.Header().Set("Content-Type", "text/event-stream")
		text := `data: []` + "\n\nevent: end\ndata: {}\n\n"
		if req.URL.RawQuery == "id=17" {
			text = `data: [{"id":17,"status":"ABORTED","at_rest":true}]` + "\n\nevent: end\ndata: {}\n\n"
		}
		_, _ = w.Write([]byte(text))
	})
	req := httptest.NewRequest(http.MethodGet, "/live", nil)
	w := httptest.NewRecorder()
	v := &visit{New(watched, "", admin.Operations(), api.Environment{}), w, req, client.Local(watched, req), api.SignedInAs{Role: admin.Viewer}}
	watch, there := v.named("jobs watch")
	require.True(t, there)
	f := &feed{w: w, ctl: http.NewResponseController(w), sent: make(map[string]string), open: make(map[int64]struct{})}
	_ = f.look([]admin.WatchedJob{{ID: 17, Status: job.Running}}) // the recorder has no deadlines, and says so
	require.Contains(t, f.open, int64(17))
	_ = v.follow(t.Context(), watch, f)
	require.Contains(t, asked, "id=17")
	require.Contains(t, w.Body.String(), `"17.status":"ABORTED"`)
	require.Empty(t, f.open)
}

// What is brought up to date is in the zone of the page; a command in it stays as it has to be typed.
func TestConsole_CellsAreInTheZoneThatWasChosen(t *testing.T) {
	t.Parallel()
	c := New(nil, "", admin.Operations(), api.Environment{})
	text := "done at 2026-11-26 00:30:00+00:00; `belfry recall --as-of '2026-11-26 00:30:00+00:00'`"
	require.Equal(t, "done at 2026-11-26 00:30:00+00:00; belfry recall --as-of '2026-11-26 00:30:00+00:00'", c.unmarked(text))
	c.zone = time.FixedZone("", 3600)
	require.Equal(t, "done at 2026-11-26 01:30:00+01:00; belfry recall --as-of '2026-11-26 00:30:00+00:00'", c.unmarked(text))
}
