package main

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// watchedStates are a walk, then a delivery, then rest.
func watchedStates() []admin.JobState {
	total := int64(60_000)
	j := job.Job{
		ID: 2, Type: "push", Title: "A title that is longer than any narrow terminal has room for beside the rest", Status: job.Running,
		Cursor: "15000", ChannelsTotal: &total, ChannelsRead: 15_000, RowsWritten: 14_000, Throttle: "rate", ThrottleDetail: "limit 15000/s",
	}
	walks := admin.JobState{Job: j, Messages: outbox.Progress{Messages: 14_000, Waiting: 14_000}}
	j.ChannelsRead, j.RowsWritten = 30_000, 28_000
	goes := admin.JobState{Job: j, Messages: outbox.Progress{Messages: 28_000, Sent: 900, Dead: 100, Waiting: 27_000}}
	j.Status, j.Throttle, j.ThrottleDetail, j.ChannelsRead, j.RowsWritten = job.Processed, "", "", 60_000, 56_000
	delivers := admin.JobState{Job: j, Messages: outbox.Progress{Messages: 56_000, Sent: 9_000, Dead: 1_000, Waiting: 46_000}}
	ends := admin.JobState{Job: j, Messages: outbox.Progress{Messages: 56_000, Sent: 54_000, Dead: 1_900, Cancelled: 100}}
	return []admin.JobState{walks, goes, delivers, ends}
}

func TestBoard_ShowsWalkAndDelivery(t *testing.T) {
	t.Parallel()
	b := newBoard()
	var lines, screens []string
	for i, s := range watchedStates() {
		still := admin.Standstill{Why: "nobody has a sender for push", Remedy: "add one"}
		if i == 3 {
			still = admin.Standstill{}
		}
		b.look(noon().Add(time.Duration(i)*steady), []admin.JobState{s}, map[int64]admin.Standstill{2: still})
		lines = append(lines, b.jobs[0].line())
		screens = append(screens, strings.Join(b.lines(79, 23), "\n"))
		require.Equal(t, i == 3, b.atRest())
		for _, line := range b.lines(40, 23) {
			require.LessOrEqual(t, utf8.RuneCountInString(line), 40)
		}
	}
	golden(t, "testdata/watch.golden", strings.Join(lines, "\n")+"\n\n"+strings.Join(screens, "\n\n")+"\n")
}

func TestBoard_SaysWhatItHasNoRoomFor(t *testing.T) {
	t.Parallel()
	b := newBoard()
	states := make([]admin.JobState, 10)
	for i := range states {
		states[i] = watchedStates()[2]
		states[i].ID = int64(i + 1)
	}
	b.look(noon(), states, nil)
	lines := b.lines(79, 11)
	require.Len(t, lines, 10)
	require.Equal(t, "and 7 jobs more; a taller terminal shows them, or name those to watch", lines[9])
	require.Len(t, b.lines(79, 29), 28)
	require.Len(t, b.lines(79, 30), 30)
	require.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, b.watched())
}

func TestInterval_HasBounds(t *testing.T) {
	t.Parallel()
	_, err := parseInterval("2s")
	require.NoError(t, err)
	for _, text := range []string{"", "2", "99ms", "61m", "-1s"} {
		_, err := parseInterval(text)
		require.Equal(t, errors.New("allowed values: durations from 100ms to 1h, as 2s"), err)
	}
}
