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
		u := job.Progress{Event: jobs.EventChunk, Job: j, Rows: 2950, ETA: -1}
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
	p.Clear()
}

func TestProgress_PlainLinesEveryTwoSeconds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	p := &progress{Progress: text.NewProgress(&out, nil), now: func() time.Time { return now }, shown: make(map[int64]time.Time)}
	played(p, &now)
	dbtest.Golden(t, filepath.Join("testdata", "progress_plain.golden"), out.String())
}

func TestProgress_LiveLineAtMostTenTimesASecond(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	p := &progress{Progress: text.NewProgress(&out, func() int { return 60 }), now: func() time.Time { return now }, shown: make(map[int64]time.Time)}
	played(p, &now)
	shown := out.String()
	require.LessOrEqual(t, bytes.Count(out.Bytes(), []byte("channels,")), 42, "four seconds")
	require.Contains(t, shown, "\ra log line\n\r"+"job 17", "a log goes above the live line, which comes back")
	for line := range bytes.SplitSeq(out.Bytes(), []byte("\r")) {
		if bytes.Contains(line, []byte("channels,")) && !bytes.Contains(line, []byte("\n")) {
			require.LessOrEqual(t, len([]rune(string(line))), 59, "the line must not wrap: %q", line)
		}
	}
	require.Contains(t, shown, "job 17 (inbox): processed, 295,000 rows in 100 chunks, 4s\n")
}
