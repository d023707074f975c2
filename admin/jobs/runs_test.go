package jobs_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/dev/admintest"
)

// The runs of a job are told by the events of its transitions: what each wrote, how it ended, and
// the one that goes on.
func TestJobRuns_AreToldByTheEvents(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'Hello')`)
	require.NoError(t, d.Run("jobs runs", "id", "1"))
	require.Equal(t, "job 1 has not run\n", d.Out)

	claim := func(fence, by string) {
		d.Exec(`UPDATE belfry.jobs SET status = 'RUNNING', runner = '` + by + `', heartbeat_at = now(), fence = ` + fence + `, started_at = coalesce(started_at, now()) WHERE id = 1`)
	}
	wrote := func(rows, chunks string) {
		d.Exec(`UPDATE belfry.jobs SET "cursor" = '` + rows + `', bound = '9999', chunks = ` + chunks + `, channels_read = ` + rows + `, channels_matched = ` + rows + `, rows_written = ` + rows + ` WHERE id = 1`)
	}
	claim("1", "a")
	wrote("1000", "2")
	claim("2", "b") // which took over
	wrote("1500", "3")
	d.Exec(`UPDATE belfry.jobs SET throttle = 'rate' WHERE id = 1`)
	d.Exec(`UPDATE belfry.jobs SET abort_requested = true WHERE id = 1`)
	d.Exec(`UPDATE belfry.jobs SET abort_requested = false WHERE id = 1`)
	claim("3", "c")
	wrote("4500", "9")
	d.Exec(`UPDATE belfry.job_events e SET at = '2026-11-26 03:00Z'::timestamptz + make_interval(secs => 10 * (SELECT count(*) FROM belfry.job_events f WHERE f.id < e.id))`)

	require.NoError(t, d.Run("jobs runs", "id", "1"))
	var told jobs.JobRuns
	require.NoError(t, json.Unmarshal([]byte(d.JSON), &told))
	require.True(t, told.Complete)
	require.Len(t, told.Runs, 3)
	at := func(second int) time.Time { return time.Date(2026, 11, 26, 3, 0, second, 0, time.UTC) }
	first, second, third := told.Runs[0], told.Runs[1], told.Runs[2]
	end1, end2 := at(20), at(40)
	require.Equal(t, jobs.JobRun{Fence: 1, Runner: "a", BeganAt: at(10), EndedAt: &end1, Ended: "lost", Rows: 1000, Chunks: 2, RowsPerSecond: new(100.0), ChunkMS: new(5000.0)}, first)
	require.Equal(t, jobs.JobRun{Fence: 2, Runner: "b", BeganAt: at(20), EndedAt: &end2, Ended: "aborted", Rows: 500, Chunks: 1, RowsPerSecond: new(25.0), ChunkMS: new(20000.0)}, second)
	require.Nil(t, third.EndedAt)
	require.Empty(t, third.Ended)
	require.EqualValues(t, 3000, third.Rows, "of the run that goes on the job tells")
	require.EqualValues(t, 6, third.Chunks)
	require.Contains(t, d.Out, "in progress")

	d.Exec(`INSERT INTO belfry.job_events (job_id, kind, actor) SELECT 1, 'throttled', 'c' FROM generate_series(1, 10000)`)
	require.NoError(t, d.Run("jobs runs", "id", "1"))
	require.NoError(t, json.Unmarshal([]byte(d.JSON), &told))
	require.False(t, told.Complete)
	require.Len(t, told.Runs, 2, "how the last ended is not known")
	require.Contains(t, d.Notes, "first 10,000 events")
	require.ErrorContains(t, d.Run("jobs runs", "id", "9"), "jobs list")
}
