package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
)

var errEnough = errors.New("enough")

// watch follows events while acts are done, one after each look, and returns what was told.
func (d *desk) watch(acts []func(), given ...string) string {
	d.t.Helper()
	d.env.Watches = admin.NewWatches(50 * time.Millisecond)
	o, in := d.input("events watch", given...)
	var out strings.Builder
	page, tell, looks := &printer.Page{Output: &out}, o.Teller(in), 0
	_, err := o.Stream(d.t.Context(), d.env, in, func(item any) error {
		tell(page, item)
		if looks < len(acts) {
			acts[looks]()
		}
		if looks++; looks == len(acts)+3 {
			return errEnough
		}
		return nil
	})
	require.ErrorIs(d.t, err, errEnough)
	return out.String()
}

func TestEventsWatch_TellsWhatIsDone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.enqueue("inbox") // before anybody watches
	acts := []func(){
		func() { require.NoError(t, d.run("lanes pause", "lane", "news", "reason", "database move")) },
		func() { require.NoError(t, d.run("abort", "id", "1")) },
		func() { d.exec(`INSERT INTO belfry.job_events (job_id, kind, actor) VALUES (1, 'throttled', 'r')`) },
	}
	told := d.watch(acts)
	require.Regexp(t, `^\S+ \S+ ann@host: lane news paused \(database move\)\n\S+ \S+ ann@host: job 1 aborted\n$`, told)
	require.Contains(t, d.watch([]func(){acts[2]}, "all", "on"), "r: job 1 throttled")
	require.Regexp(t, `^\S+ \S+ ann@host: everything is halted \(wrong link\)\n\S+ \S+ ann@host: everything goes on\n$`, d.watch([]func(){
		func() { require.NoError(t, d.run("halt", "reason", "wrong link")) },
		func() { require.NoError(t, d.run("unhalt")) },
	}))
	require.Empty(t, d.watch([]func(){acts[2]}, "of", "lane", "all", "on"))
	require.Empty(t, d.watch([]func(){acts[2]}, "by", "ann@host", "all", "on"))
}

// Whoever watches sees at once what is done through the same process.
func TestWatch_SeesAnActAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.env.Watches = admin.NewWatches(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o, in := d.input("events watch")
	looks := 0
	_, err := o.Stream(ctx, d.env, in, func(item any) error {
		if looks++; looks == 1 {
			require.NoError(t, d.run("lanes pause", "lane", "news"))
			return nil
		}
		require.Len(t, item, 1)
		return errEnough
	})
	require.ErrorIs(t, err, errEnough, "it was looked at")
}

// Who knows a place is told of what was done since, whoever else watches.
func TestEventsWatch_GoesOnFromAPlace(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	require.NoError(t, d.run("lanes pause", "lane", "before"))
	require.NoError(t, d.run("status"))
	var s admin.Status
	require.NoError(t, json.Unmarshal([]byte(d.json), &s))
	require.NoError(t, d.run("lanes pause", "lane", "after"))
	d.enqueue("inbox")
	told := d.watch(nil, "after", s.Place)
	require.NotContains(t, told, "lane before")
	require.Contains(t, told, "lane after paused")
	require.Contains(t, told, "job 1 enqueued")

	o, in := d.input("jobs watch", "follow", "on", "after", s.Place)
	looks, jobs := 0, 0
	_, err := o.Stream(t.Context(), d.env, in, func(item any) error {
		jobs += len(item.([]admin.WatchedJob))
		if looks++; looks == 3 {
			return errEnough
		}
		return nil
	})
	require.ErrorIs(t, err, errEnough)
	require.Equal(t, 1, jobs, "the job that was enqueued since, once")
}

// Who may not read what jobs say is not told so as it is changed either.
func TestEventsWatch_IsMaskedAsTheListIs(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.enqueue("inbox")
	d.env.Watches = admin.NewWatches(50 * time.Millisecond)
	viewer := *d.env
	viewer.Role = admin.Viewer
	o, in := d.input("events watch")
	looks := 0
	_, err := o.Stream(t.Context(), &viewer, in, func(item any) error {
		if looks++; looks == 1 {
			require.NoError(t, d.run("jobs set", "id", "1", "body", "Call +821012345678"))
		}
		for _, e := range item.([]job.ControlEvent) {
			require.Equal(t, "changed", e.Kind)
			require.Contains(t, string(e.Detail), `"body"`)
			require.NotContains(t, string(e.Detail), "+821012345678")
			return errEnough
		}
		return nil
	})
	require.ErrorIs(t, err, errEnough)
}
