package job_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
)

// set is how plain SQL would bring a job into a status.
func set(s job.Status) string {
	if s == job.Running {
		return `UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'r', heartbeat_at = now() WHERE id = $1`
	}
	return fmt.Sprintf(`UPDATE belfry.jobs SET status = '%s' WHERE id = $1`, s)
}

// path is a legal way from PENDING to a status.
func path(s job.Status) []job.Status {
	switch s {
	case job.Pending:
		return nil
	case job.Running:
		return []job.Status{job.Running}
	case job.Aborted, job.Expired:
		return []job.Status{s}
	case job.Processed, job.Failed:
		return []job.Status{job.Running, s}
	}
	panic("unknown status " + s)
}

// I7: the trigger, for whoever writes, and Status.CanBecome agree on every pair of
// statuses.
func TestStatus_TriggerAndTableAgreeOnEveryPair(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	legal := 0
	for _, from := range job.Statuses() {
		for _, to := range job.Statuses() {
			if from == to {
				require.False(t, from.CanBecome(to))
				continue
			}
			id := b.enqueue(t, job.Spec{Lane: fmt.Sprintf("lane-%d", legal)})
			b.skipped(t, id)
			for _, s := range path(from) {
				b.exec(t, set(s), id)
			}
			_, err := b.db.Pool.Exec(t.Context(), set(to), id)
			got := b.state(t, id).Status
			if from.CanBecome(to) {
				legal++
				require.NoError(t, err, "%s to %s", from, to)
				require.Equal(t, to, got)
				require.NotEmpty(t, job.Transitions()[[2]job.Status{from, to}])
			} else {
				var pg *pgconn.PgError
				require.ErrorAs(t, err, &pg, "%s to %s", from, to)
				require.Equal(t, "23514", pg.Code)
				require.Equal(t, from, got)
			}
			require.Equal(t, got.Terminal(), one[bool](t, b, `SELECT finished_at IS NOT NULL FROM belfry.jobs WHERE id = $1`, id))
			b.exec(t, `TRUNCATE belfry.jobs CASCADE`) // a RUNNING job cannot be deleted
		}
	}
	require.Equal(t, len(job.Transitions()), legal)
}

// skipped gives a job a recipient that is to be tried again: what PROCESSED needs
// to become PENDING.
func (b *bundle) skipped(t *testing.T, id int64) {
	t.Helper()
	b.exec(t, `INSERT INTO belfry.job_skips (job_id, key, after, error, retry) VALUES ($1, '7', '6', 'bad', true)`, id)
}

// I7: what is PROCESSED stays so, unless a skipped recipient is to be tried again.
func TestStatus_ProcessedIsFinalWithoutSkips(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := b.enqueue(t, job.Spec{})
	b.runDue(t, b.runner(t, "r"))
	_, err := b.db.Pool.Exec(t.Context(), set(job.Pending), id)
	require.ErrorContains(t, err, "belfry.jobs.status: job 1 is PROCESSED and has no skipped recipient to retry")
	_, err = b.jobs.RetrySkipped(t.Context(), id, job.Act{})
	require.ErrorIs(t, err, job.ErrNoSkips)
	require.Equal(t, job.Processed, b.state(t, id).Status)
}

// I7: a terminal status leaves only by an operator's act, which is recorded; no
// runner touches any.
func TestStatus_TerminalLeavesOnlyByARecordedAct(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	acts := map[string]func(id int64) (job.Job, error){
		"abort": func(id int64) (job.Job, error) {
			return b.jobs.Abort(t.Context(), id, job.Act{Actor: "ann", Reason: "why"})
		},
		"resume": func(id int64) (job.Job, error) {
			return b.jobs.Resume(t.Context(), id, job.Act{Actor: "ann", Reason: "why"})
		},
		"retry": func(id int64) (job.Job, error) {
			return b.jobs.Retry(t.Context(), id, job.Act{Actor: "ann", Reason: "why"})
		},
		"retry-skipped": func(id int64) (job.Job, error) {
			return b.jobs.RetrySkipped(t.Context(), id, job.Act{Actor: "ann", Reason: "why"})
		},
	}
	allowed := map[job.Status]map[string]job.Status{
		job.Pending:   {"abort": job.Aborted},
		job.Running:   {"abort": job.Aborted},
		job.Processed: {"retry-skipped": job.Pending},
		job.Aborted:   {"resume": job.Pending},
		job.Failed:    {"retry": job.Pending, "retry-skipped": job.Pending},
		job.Expired:   {"retry": job.Pending},
	}
	for _, from := range job.Statuses() {
		for name, act := range acts {
			id := b.enqueue(t, job.Spec{})
			b.skipped(t, id)
			for _, s := range path(from) {
				b.exec(t, set(s), id)
			}
			if from.Terminal() {
				before := b.state(t, id)
				require.Empty(t, b.runDue(t, b.runner(t, "r")).Jobs)
				require.Equal(t, before, b.state(t, id))
			}
			events := len(b.kinds(t, id))
			j, err := act(id)
			require.Equal(t, id, j.ID)
			to, ok := allowed[from][name]
			if ok {
				require.NoError(t, err)
				require.Equal(t, to, j.Status)
				list, err := b.jobs.Events(t.Context(), id, 0, 0)
				require.NoError(t, err)
				require.Len(t, list, events+1)
				last := list[events]
				require.Equal(t, "ann", last.Actor)
				require.Equal(t, "why", last.Reason)
				require.JSONEq(t, fmt.Sprintf(`{"status": %q}`, from), string(one[[]byte](t, b, `SELECT jsonb_build_object('status', detail -> 'before' -> 'status') FROM belfry.job_events WHERE id = $1`, last.ID)))
			} else {
				var wrong *job.WrongStatusError
				require.ErrorAs(t, err, &wrong)
				require.Equal(t, id, wrong.JobID)
				require.Equal(t, name, wrong.Act)
				require.Equal(t, from, wrong.Status)
				require.Equal(t, from, b.state(t, id).Status)
				require.Len(t, b.kinds(t, id), events)
			}
			b.exec(t, `TRUNCATE belfry.jobs CASCADE`) // a RUNNING job cannot be deleted
		}
	}
	for name, act := range acts {
		_, err := act(1 << 40)
		require.ErrorIs(t, err, job.ErrNotFound, name)
	}
}
