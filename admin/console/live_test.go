package console

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/internal/text"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/job"
)

// An event has the cells of jobs that have changed; jobs at rest are forgotten.
func TestConsole_LiveEventHasWhatChanged(t *testing.T) {
	t.Parallel()
	c, sent := New(nil, "", admin.Operations(), api.Environment{}), make(map[int64]map[string]string)
	running := jobs.Update{Jobs: []jobs.WatchedJob{{ID: 17, Status: job.Running}, {ID: 18, Status: job.Pending}}}
	e := c.liveEvent(running, sent)
	require.Equal(t, []int64{17}, e.Jobs)
	require.Equal(t, "Running", e.Cells["17.status"])
	require.Equal(t, "Waiting", e.Cells["18.status"])
	running.Jobs = running.Jobs[:1]
	require.Empty(t, c.liveEvent(running, sent).Cells)
	e = c.liveEvent(jobs.Update{Jobs: []jobs.WatchedJob{{ID: 17, Status: job.Aborted, AtRest: true}}, Events: []job.ControlEvent{{ID: 3, Subject: "lane", Name: "night", Kind: "paused", Actor: "ann"}}}, sent)
	require.Equal(t, "Stopped", e.Cells["17.status"])
	require.Equal(t, []controlEvent{{3, "lane", "night", "paused", "ann", "ann: lane night paused"}}, e.Actions)
	require.Empty(t, sent)
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
	end := time.Now().Add(time.Hour)
	left := c.cellsOf(jobs.WatchedJob{ID: 17, Status: job.Running, SecondsLeft: new(3600.0)})["17.left"]
	require.Regexp(t, "^about 1 h left, until (Tomorrow )?("+end.In(c.zone).Format("15:04")+"|"+end.Add(time.Minute).In(c.zone).Format("15:04")+")$", left)
	require.Equal(t, "done at 2026-11-26 01:30:00+01:00; belfry recall --as-of '2026-11-26 00:30:00+00:00'", c.plain(line))
}
