package main

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/jobs"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// played is a short life of a job, 40 ms to a chunk.
func played(p *progress, now *time.Time) {
	total := int64(300_000)
	j := job.Job{ID: 17, Type: "inbox", Title: "Hello", Status: job.Running, ChannelsTotal: &total}
	p.observe(job.Progress{Event: job.EventClaimed, Job: j, ETA: -1})
	for i := range int64(100) {
		*now = now.Add(40 * time.Millisecond)
		j.Cursor, j.ChannelsRead, j.RowsWritten, j.Chunks = text.Int(3000*(i+1)), 3000*(i+1), 2950*(i+1), i+1
		u := job.Progress{Event: eventChunk, Job: j, Rows: 2950, ETA: -1}
		if i > 0 {
			u.KeysPerSecond, u.ETA = 75_000, time.Duration(99-i)*40*time.Millisecond
		}
		p.observe(u)
		if i == 60 {
			_, _ = p.Write([]byte("a log line\n"))
		}
	}
	j.Status = job.Processed
	started, finished := now.Add(-4*time.Second), *now
	j.StartedAt, j.FinishedAt = &started, &finished
	p.observe(job.Progress{Event: job.EventFinished, Job: j, ETA: -1})
	p.end()
}

// The planner knew of 19,189 channels of a table that has not been analysed since.
func TestProgress_DoesNotGoBeyondAnEstimate(t *testing.T) {
	t.Parallel()
	total := int64(19_189)
	j := job.Job{ID: 17, Type: "inbox", Status: job.Running, ChannelsTotal: &total, ChannelsRead: 19_188}
	require.Equal(t, "19,188 / 19,189 channels, 99%, 0 rows", walked(j))
	j.ChannelsRead = 46_125
	require.Equal(t, "46,125 channels, 0 rows", walked(j))
	require.Equal(t, "-", jobs.WalkDone(j))
	_, known := j.Total()
	require.False(t, known)
}

func TestProgress_PlainLinesEveryTwoSeconds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	p := &progress{out: &out, now: func() time.Time { return now }, shown: make(map[int64]time.Time)}
	played(p, &now)
	dbtest.Golden(t, filepath.Join("testdata", "progress_plain.golden"), out.String())
}

func TestProgress_LiveLineAtMostTenTimesASecond(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	p := &progress{out: &out, now: func() time.Time { return now }, shown: make(map[int64]time.Time), width: func() int { return 60 }}
	played(p, &now)
	text := out.String()
	require.LessOrEqual(t, bytes.Count(out.Bytes(), []byte("channels,")), 42, "four seconds")
	require.Contains(t, text, "\ra log line\n\r"+"job 17", "a log goes above the live line, which comes back")
	for line := range bytes.SplitSeq(out.Bytes(), []byte("\r")) {
		if bytes.Contains(line, []byte("channels,")) && !bytes.Contains(line, []byte("\n")) {
			require.LessOrEqual(t, len([]rune(string(line))), 59, "the line must not wrap: %q", line)
		}
	}
	require.Contains(t, text, "job 17 (inbox): processed, 295,000 rows in 100 chunks, 4s\n")
}

func TestTransition_EveryEvent(t *testing.T) {
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
		require.Equal(t, c.want, transition(job.Progress{Event: event, Job: c.job}))
	}
}
