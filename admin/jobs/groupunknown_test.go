package jobs

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
)

// After a lost connection the last step may be committed: it is read again, and counted if it can be read.
func TestGroup_CountsAStepWhoseReplyWasLost(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	group := uuid.MustParse("00000000-0000-4000-8000-000000000001")
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, group_id)
		SELECT 'inbox', 'operator_notice', 'x', '00000000-0000-4000-8000-000000000001' FROM generate_series(1, 1100)`)
	require.NoError(t, err)
	env := &operation.Env{DB: db.Pool, Jobs: job.NewStore(db.Pool), Role: operation.Admin}
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
