package jobs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
)

// A job that has read more channels than estimated shows no total.
func TestProgress_DoesNotGoBeyondAnEstimate(t *testing.T) {
	t.Parallel()
	total := int64(19_189)
	j := job.Job{ID: 17, Type: "inbox", Status: job.Running, ChannelsTotal: &total, ChannelsRead: 19_188}
	require.Equal(t, "19,188 / 19,189 channels, 99%, 0 rows", walkedLine(j))
	j.ChannelsRead = 46_125
	require.Equal(t, "46,125 channels, 0 rows", walkedLine(j))
	require.Equal(t, "-", WalkDone(j))
	_, known := j.Total()
	require.False(t, known)
}

func TestProgressLine_RendersEveryEvent(t *testing.T) {
	t.Parallel()
	j := job.Job{ID: 17, Type: "push", Title: "Hello", Status: job.Running, Cursor: "4711", RowsWritten: 4700, Chunks: 1}
	with := func(s job.Status) job.Job { c := j; c.Status, c.LastError = s, "no such table"; return c }
	for event, c := range map[string]struct {
		job  job.Job
		want string
	}{
		job.EventClaimed:     {j, "job 17 (push): claimed, from cursor 4711: Hello"},
		job.EventResumed:     {j, "job 17 (push): taken over, its run was stale, from cursor 4711"},
		job.EventAborted:     {with(job.Aborted), "job 17 (push): aborted at cursor 4711, 4,700 rows written; continue from its cursor: `belfry resume 17`"},
		job.EventFailed:      {with(job.Failed), "job 17 (push): failed at cursor 4711: no such table; retry from its cursor: `belfry retry 17`"},
		job.EventInterrupted: {with(job.Pending), "job 17 (push): handed back at cursor 4711, 4,700 rows written; the next run resumes there"},
		eventLost:            {j, "job 17 (push): this run is over, another runner has the job"},
		"something new":      {j, "job 17 (push): something new"},
	} {
		require.Equal(t, c.want, ProgressLine(job.Progress{Event: event, Job: c.job}))
	}
}
