package job_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
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
			b.waiting(t, id, 1)
			for _, s := range path(from) {
				b.exec(t, set(s), id)
			}
			if from == job.Aborted && to == job.Processed { // walked before
				b.exec(t, set(job.Pending), id)
				b.exec(t, set(job.Running), id)
				b.exec(t, set(job.Processed), id)
				b.exec(t, set(job.Aborted), id)
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
			dbtest.Past(t, b.db.Pool, `DELETE FROM belfry.jobs`) // a RUNNING one too
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

// waiting gives a job messages that are not final: what PROCESSED and FAILED need to
// become ABORTED.
func (b *bundle) waiting(t *testing.T, id int64, n int) {
	t.Helper()
	b.exec(t, `INSERT INTO belfry.job_deliveries (job_id, relay, written) VALUES ($1, '', $2)`, id, n)
}

// I1: a role that may abort and resume marks no RUNNING job as done, which would leave out the rest of its recipients.
func TestAbort_EndsNoWalk(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id, waits := b.enqueue(t, job.Spec{}), b.enqueue(t, job.Spec{})
	b.exec(t, set(job.Running), id)
	role := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, UPDATE (abort_requested, status) ON belfry.jobs TO :role`)
	for _, end := range []job.Status{job.Processed, job.Failed} {
		_, err := role.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET status = $2 WHERE id = $1`, id, end)
		require.ErrorContains(t, err, fmt.Sprintf("is RUNNING, and only a runner makes it %s; allowed values for %s: ABORTED", end, role.User))
	}
	_, err := role.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET status = 'EXPIRED' WHERE id = $1`, waits)
	require.ErrorContains(t, err, "is PENDING, and only a runner makes it EXPIRED; allowed values for "+role.User+": ABORTED")
	require.Equal(t, job.Running, b.get(t, id).Status)
	_, err = role.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET status = 'ABORTED' WHERE id = $1`, id)
	require.NoError(t, err)
}

// I6, I7: a job whose walk is over is aborted while messages are left, by the flag alone of
// a role that has no other right, and goes on without a runner; with nothing left to send
// it stays, and one that was not walked to the end goes on from its cursor.
func TestAbort_WhileMessagesAreLeft(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ctx := t.Context()
	done, left, failed := b.enqueue(t, job.Spec{}), b.enqueue(t, job.Spec{}), b.enqueue(t, job.Spec{})
	for id, end := range map[int64]job.Status{done: job.Processed, left: job.Processed, failed: job.Failed} {
		b.exec(t, set(job.Running), id)
		b.exec(t, set(end), id)
	}
	b.waiting(t, left, 3)
	b.waiting(t, failed, 1)
	require.NotNil(t, b.get(t, left).WalkedAt)
	require.Nil(t, b.get(t, failed).WalkedAt)

	role := one[string](t, b, `SELECT 'abort_' || substr(md5(current_database()), 1, 20)`)
	b.exec(t, `CREATE ROLE `+role)
	t.Cleanup(func() {
		_, err := b.db.Pool.Exec(context.WithoutCancel(ctx), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		require.NoError(t, err)
	})
	b.exec(t, `GRANT USAGE ON SCHEMA belfry TO `+role)
	b.exec(t, `GRANT SELECT, UPDATE (abort_requested, status) ON belfry.jobs TO `+role)
	as := func(sql string, id int64) {
		require.NoError(t, pgx.BeginFunc(ctx, b.db.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SET LOCAL ROLE `+role); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, sql, id)
			return err
		}))
	}
	for _, id := range []int64{done, left, failed} {
		as(`UPDATE belfry.jobs SET abort_requested = true WHERE id = $1`, id)
	}
	require.Equal(t, job.Processed, b.get(t, done).Status)
	require.False(t, one[bool](t, b, `SELECT abort_requested FROM belfry.jobs WHERE id = $1`, done))
	require.Equal(t, job.Aborted, b.get(t, left).Status)
	require.Equal(t, job.Aborted, b.get(t, failed).Status)
	as(`UPDATE belfry.jobs SET abort_requested = false WHERE id = $1`, left)
	as(`UPDATE belfry.jobs SET abort_requested = false WHERE id = $1`, failed)
	require.Equal(t, job.Processed, b.get(t, left).Status)
	require.Equal(t, job.Pending, b.get(t, failed).Status)
	require.Equal(t, []string{"enqueued", "claimed", "finished", "aborted", "resume_requested"}, b.kinds(t, left))
	require.Equal(t, []string{"enqueued", "claimed", "failed", "aborted", "resume_requested"}, b.kinds(t, failed))

	var wrong *job.WrongStatusError
	_, err := b.jobs.Abort(ctx, job.One(done), job.Act{})
	require.ErrorAs(t, err, &wrong)
	require.True(t, wrong.Delivered)
	require.EqualError(t, err, fmt.Sprintf("job %d is PROCESSED and has no message left to send; abort needs a job that is PENDING or RUNNING, or messages that are left", done))
	j, err := b.jobs.Abort(ctx, job.One(left), job.Act{})
	require.NoError(t, err)
	require.Equal(t, job.Aborted, j[0].Status)
	require.NotNil(t, j[0].WalkedAt)
	_, err = b.jobs.ResumeEdited(ctx, job.One(left), job.Changes{"audience": channels.OnPlatforms("ios")}, job.Act{})
	require.ErrorContains(t, err, "has been walked to the end; allowed changes: none")
	j, err = b.jobs.ResumeEdited(ctx, job.One(left), job.Changes{"title": "corrected"}, job.Act{})
	require.NoError(t, err)
	require.Equal(t, job.Processed, j[0].Status)
	_, err = b.jobs.Set(ctx, left, job.Changes{"title": "again"}, job.Act{})
	require.ErrorContains(t, err, "is PROCESSED; allowed changes: none")
	_, err = b.db.Pool.Exec(ctx, set(job.Aborted), done)
	require.ErrorContains(t, err, "is PROCESSED and has no message left to send")

	b.skipped(t, left) // another walk
	_, err = b.jobs.RetrySkipped(ctx, left, job.Act{}, nil)
	require.NoError(t, err)
	require.Nil(t, b.get(t, left).WalkedAt)
	_, err = b.jobs.Abort(ctx, job.One(left), job.Act{})
	require.NoError(t, err)
	_, err = b.db.Pool.Exec(ctx, set(job.Processed), left)
	require.ErrorContains(t, err, "has not been walked to the end")
	j, err = b.jobs.Resume(ctx, job.One(left), job.Act{})
	require.NoError(t, err)
	require.Equal(t, job.Pending, j[0].Status)
}

// A group is aborted and resumed together, whatever each of its jobs is at.
func TestAbort_OfAGroupHoldsWhatIsLeft(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	ids, err := b.jobs.EnqueueGroup(t.Context(), []string{"inbox", "push"}, job.Spec{Category: "operator_notice", Title: "x"})
	require.NoError(t, err)
	for _, id := range ids {
		b.exec(t, set(job.Running), id)
		b.exec(t, set(job.Processed), id)
	}
	b.waiting(t, ids[1], 2)
	group := *b.get(t, ids[0]).GroupID
	list, err := b.jobs.Abort(t.Context(), job.Selection{Group: &group}, job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, []job.Status{job.Processed, job.Aborted}, []job.Status{list[0].Status, list[1].Status})
	list, err = b.jobs.Resume(t.Context(), job.Selection{Group: &group}, job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, []job.Status{job.Processed, job.Processed}, []job.Status{list[0].Status, list[1].Status})
	b.exec(t, `SELECT belfry.abort_group($1)`, group)
	require.Equal(t, job.Aborted, b.get(t, ids[1]).Status)
	b.exec(t, `SELECT belfry.resume_group($1)`, group)
	require.Equal(t, job.Processed, b.get(t, ids[1]).Status)
}

// I7: what is PROCESSED stays so, unless a skipped recipient is to be tried again.
func TestStatus_ProcessedIsFinalWithoutSkips(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := b.enqueue(t, job.Spec{})
	b.runDue(t, b.runner(t, "r"))
	_, err := b.db.Pool.Exec(t.Context(), set(job.Pending), id)
	require.ErrorContains(t, err, "belfry.jobs.status: job 1 is PROCESSED and has no skipped recipient to retry")
	_, err = b.jobs.RetrySkipped(t.Context(), id, job.Act{}, nil)
	require.ErrorIs(t, err, job.ErrNoSkips)
	require.Equal(t, job.Processed, b.state(t, id).Status)
}

// I7: a terminal status leaves only by an operator's act, which is recorded; no
// runner touches any.
func TestStatus_TerminalLeavesOnlyByARecordedAct(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	why := job.Act{Actor: "ann", Reason: "why"}
	several := func(_ []job.Job, err error) error { return err }
	acts := map[string]func(id int64) error{
		"abort":  func(id int64) error { return several(b.jobs.Abort(t.Context(), job.One(id), why)) },
		"resume": func(id int64) error { return several(b.jobs.Resume(t.Context(), job.One(id), why)) },
		"retry":  func(id int64) error { return several(b.jobs.Retry(t.Context(), job.One(id), why)) },
		"retry-skipped": func(id int64) error {
			_, err := b.jobs.RetrySkipped(t.Context(), id, why, nil)
			return err
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
			err := act(id)
			to, ok := allowed[from][name]
			if ok {
				require.NoError(t, err)
				require.Equal(t, to, b.state(t, id).Status)
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
			dbtest.Past(t, b.db.Pool, `DELETE FROM belfry.jobs`) // a RUNNING one too
		}
	}
	for name, act := range acts {
		require.ErrorIs(t, act(1<<40), job.ErrNotFound, name)
	}
}
