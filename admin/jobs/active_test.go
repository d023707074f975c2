package jobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// Jobs that are to be delivered next year, however many and old, hide neither a running job nor a job that is
// being delivered.
func TestActiveJobs_WaitingJobsHideARunningOne(t *testing.T) {
	t.Parallel()
	d := outboxtest.NewDatabase(t, dbtest.Reused(t, 4), 3)
	const year = 365 * 24 * time.Hour
	for i := range watchMost + 10 {
		d.Job(t, fmt.Sprintf("later-%d", i), 1, 1, year)
	}
	sent := d.Job(t, "sent", 1, 1, year) // all its messages are in flight
	runs := d.Job(t, "runs", 1, 1, year)
	due := d.Job(t, "due", 1, 1, 0)
	dbtest.Past(t, d.DB.Pool, `UPDATE belfry.jobs SET deliver_at = now() + interval '1 year' WHERE lane LIKE 'later-%'`)
	dbtest.Past(t, d.DB.Pool, `UPDATE belfry.jobs SET status = 'RUNNING', finished_at = NULL, walked_at = NULL, runner = 'r', heartbeat_at = now() WHERE id = $1`, runs)

	env := &operation.Env{DB: d.DB.Pool, Jobs: job.NewStore(d.DB.Pool), Role: operation.Admin}
	read, err := readWatched(t.Context(), env, nil)
	require.NoError(t, err)
	require.Len(t, read.active, watchMost)
	require.Equal(t, []int64{runs, due, sent}, read.active[:3])
	require.Len(t, read.states, watchMost)

	b := polled(time.Hour, func([]int64) (reading, error) { return read, nil }, nil)
	u, err := b.next(t.Context(), env, &subscription{})
	require.NoError(t, err)
	require.Equal(t, runs, u.Jobs[0].ID, "first on the overview")

	dbtest.Past(t, d.DB.Pool, `ANALYZE belfry.jobs, belfry.message_rows, belfry.job_deliveries`)
	rows, err := d.DB.Pool.Query(t.Context(), "EXPLAIN "+queries.activeJobs, pgx.StrictNamedArgs{"limit": watchMost})
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, strings.Join(plan, "\n"), "SubPlan", "one job's messages, not all")
}

// A running job is the first on a terminal, and stays there beside any number of jobs that are being delivered.
func TestProgressView_KeepsRunningJobs(t *testing.T) {
	t.Parallel()
	v, p := newProgressView(), make(map[int64]*paces)
	for id := int64(1); id <= 2*watchMost; id++ {
		s := watchedStates()[2] // being delivered
		if id == 50 {
			s = watchedStates()[0] // runs
		}
		s.ID = id
		v.keep(watchedAt(p, time.Now(), delivery.Standstill{Why: text.Sprintf("later")}, s))
	}
	require.Len(t, v.kept, watchMost)
	require.EqualValues(t, 50, v.kept[0].ID)
	require.EqualValues(t, 2*watchMost, v.kept[watchMost-1].ID)
}
