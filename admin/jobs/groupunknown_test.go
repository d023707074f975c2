package jobs

import (
	"context"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// After a lost connection the last step may be committed: it is read again, and counted if it can be read.
func TestGroup_CountsAStepWhoseReplyWasLost(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	group := uuid.MustParse("00000000-0000-4000-8000-000000000001")
	_, err := base.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, group_id)
		SELECT 'inbox', 'operator_notice', 'x', '00000000-0000-4000-8000-000000000001' FROM generate_series(1, 1100)`)
	require.NoError(t, err)
	env := &operation.Env{DB: base.Pool, Jobs: job.NewStore(base.Pool), Role: operation.Admin}
	steps := 0
	act := jobsAct{aborting(), func(ctx context.Context, sel job.Selection, who job.Act) ([]job.Job, error) {
		list, err := env.Jobs.Abort(ctx, sel, who)
		if steps++; steps == 2 {
			return nil, job.ErrUnreachable
		}
		return list, err
	}}
	done, err := act.runGroup(t.Context(), env, group, job.Act{Actor: "ann"})
	require.EqualError(t, err, "1,000 of 1,100 jobs aborted, 100 left; repeat the act for the rest: database unreachable")
	require.Equal(t, groupSteps{Jobs: 1100, Changed: 1000, Left: 100}, *done.Group)
}

// A finished job whose abort takes too long delays no job that runs or waits, and prevents no other step. The
// error of the step is the result of the act.
func TestAbort_ContinuesAfterAStepThatIsTooSlow(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	group := uuid.MustParse("00000000-0000-4000-8000-000000000001")
	dbtest.Past(t, base.Pool, `INSERT INTO belfry.jobs (id, type, category, title, group_id, route, status, fence, started_at, finished_at)
		SELECT nextval('belfry.jobs_id_seq'), 'push', 'operator_notice', 'x', $1, '{push}', 'PROCESSED', 1, now(), now() FROM generate_series(1, 45)`, group)
	dbtest.Past(t, base.Pool, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT id, 1, now() FROM belfry.jobs`)
	_, err := base.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, group_id)
		SELECT 'inbox', 'operator_notice', 'x', $1 FROM generate_series(1, 2)`, group)
	require.NoError(t, err)
	_, err = base.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now() WHERE id = 47`)
	require.NoError(t, err)
	env := &operation.Env{DB: base.Pool, Jobs: job.NewStore(base.Pool), Role: operation.Admin}
	var steps [][]int64
	act := jobsAct{aborting(), func(ctx context.Context, sel job.Selection, who job.Act) ([]job.Job, error) {
		steps = append(steps, sel.IDs)
		if slices.Contains(sel.IDs, 1) {
			return nil, &job.FlaggedError{JobIDs: sel.IDs, Err: &pgconn.PgError{Code: "57014"}}
		}
		return env.Jobs.Abort(ctx, sel, who)
	}}
	var ids []int64
	for id := range int64(47) {
		ids = append(ids, id+1)
	}
	done, err := act.abortEach(t.Context(), env, ids, job.Act{Actor: "ann"})
	require.Equal(t, [][]int64{{47, 46}, ids[:20], ids[20:40], ids[40:45]}, steps)
	var flagged *job.FlaggedError
	require.ErrorAs(t, err, &flagged)
	require.Equal(t, ids[:20], flagged.JobIDs)
	require.Equal(t, groupSteps{Jobs: 47, Changed: 27, Left: 20}, *done.Group)
	require.Len(t, done.Jobs, 27)

	steps = nil
	act.do = func(_ context.Context, sel job.Selection, _ job.Act) ([]job.Job, error) {
		steps = append(steps, sel.IDs)
		return nil, &pgconn.PgError{Code: "57014", Message: "canceling statement due to statement timeout"}
	}
	_, err = act.runGroup(t.Context(), env, group, job.Act{Actor: "ann"})
	require.Equal(t, db.KindTooSlow, db.KindOf(err))
	require.Equal(t, [][]int64{ids[:20]}, steps)
}
