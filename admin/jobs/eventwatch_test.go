package jobs_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
)

func TestWatch_SendsEvents(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Enqueue("inbox") // before anybody watches
	acts := []func(){
		func() { require.NoError(t, d.Run("lanes pause", "lane", "news", "reason", "database move")) },
		func() { require.NoError(t, d.Run("abort", "id", "1")) },
		func() { d.Exec(`INSERT INTO belfry.job_events (job_id, kind, actor) VALUES (1, 'throttled', 'r')`) },
	}
	told := d.Watch(acts)
	require.Regexp(t, `^\S+ \S+ ann@host: lane news paused \(database move\)\n\S+ \S+ ann@host: job 1 aborted\njob 1 \(inbox\): ABORTED`, told)
	require.NotContains(t, told, "throttled", "a run did that")
	require.Regexp(t, `^\S+ \S+ ann@host: everything is halted \(wrong link\)\n\S+ \S+ ann@host: everything continues\n$`, d.Watch([]func(){
		func() { require.NoError(t, d.Run("halt", "reason", "wrong link")) },
		func() { require.NoError(t, d.Run("unhalt")) },
	}))
	require.NotContains(t, d.Watch([]func(){func() { require.NoError(t, d.Run("lanes resume", "lane", "news")) }}, "id", "1"), "lane news", "it is not about the job")
}

// Whoever watches sees at once what is done through the same process.
func TestWatch_SeesAnActAtOnce(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Env.Broadcaster = jobs.NewBroadcaster(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), admintest.Patience)
	defer cancel()
	o, in := d.Input("jobs watch", "follow", "on")
	looks := 0
	_, err := o.Stream(ctx, d.Env, in, func(item any) error {
		if looks++; looks == 1 {
			require.NoError(t, d.Run("lanes pause", "lane", "news"))
			return nil
		}
		require.Len(t, item.(jobs.Update).Events, 1)
		return admintest.ErrEnough
	})
	require.ErrorIs(t, err, admintest.ErrEnough, "it was looked at")
}

// Who knows a place is told of what was done since, whoever else watches.
func TestWatch_ContinuesFromAPlace(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	require.NoError(t, d.Run("lanes pause", "lane", "before"))
	require.NoError(t, d.Run("status"))
	var s operation.Status
	require.NoError(t, json.Unmarshal([]byte(d.JSON), &s))
	require.NoError(t, d.Run("lanes pause", "lane", "after"))
	d.Enqueue("inbox")
	told := d.Watch(nil, "after", s.Place)
	require.NotContains(t, told, "lane before")
	require.Contains(t, told, "lane after paused")
	require.Contains(t, told, "job 1 enqueued")

	o, in := d.Input("jobs watch", "follow", "on", "after", s.Place)
	looks, changes := 0, 0
	_, err := o.Stream(t.Context(), d.Env, in, func(item any) error {
		changes += len(item.(jobs.Update).Jobs)
		if looks++; looks == 3 {
			return admintest.ErrEnough
		}
		return nil
	})
	require.ErrorIs(t, err, admintest.ErrEnough)
	require.Equal(t, 1, changes, "the job that was enqueued since, once")
}

// Who may not read what jobs say is not told so as it is changed either.
func TestWatch_MasksEventsAsTheListDoes(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Enqueue("inbox")
	d.Env.Broadcaster = jobs.NewBroadcaster(50 * time.Millisecond)
	viewer := *d.Env
	viewer.Role = operation.Viewer
	o, in := d.Input("jobs watch", "follow", "on")
	looks := 0
	_, err := o.Stream(t.Context(), &viewer, in, func(item any) error {
		if looks++; looks == 1 {
			require.NoError(t, d.Run("jobs set", "id", "1", "body", "Call +821012345678"))
		}
		for _, e := range item.(jobs.Update).Events {
			require.Equal(t, "changed", e.Kind)
			require.Contains(t, string(e.Detail), `"body"`)
			require.NotContains(t, string(e.Detail), "+821012345678")
			return admintest.ErrEnough
		}
		return nil
	})
	require.ErrorIs(t, err, admintest.ErrEnough)
}
