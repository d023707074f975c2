package job_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// I4: however many runners race for however many jobs, nobody ever sees two
// RUNNING jobs in a lane, each job is claimed once, and every row is written once.
func TestRunner_OneRunningJobPerLaneWhoeverLooks(t *testing.T) {
	t.Parallel()
	const n = 200
	b := setup(t, n)
	var ids []int64
	for i := range 24 {
		ids = append(ids, b.enqueue(t, job.Spec{Lane: []string{"", "fast", "slow"}[i%3], Type: []string{"inbox", "push"}[i%2]}))
	}
	runs := make([]*started, 6)
	for i := range runs {
		// A daemon's behaviour without its pauses: look again while there is work.
		runs[i] = b.start(t, b.runner(t, fmt.Sprintf("r%d", i)))
	}
	looks := 0
	for {
		looks++
		twice := one[[]string](t, b, `SELECT ARRAY(SELECT lane FROM belfry.jobs WHERE status = 'RUNNING' GROUP BY lane HAVING count(*) > 1)`)
		require.Empty(t, twice)
		if one[bool](t, b, `SELECT bool_and(status = 'PROCESSED') FROM belfry.jobs`) {
			break
		}
		for i, s := range runs {
			select {
			case <-s.ended:
				s.wait(t)
				runs[i] = b.start(t, s.runner)
			default:
			}
		}
	}
	for _, s := range runs {
		s.wait(t)
	}
	t.Logf("%d looks", looks)
	for _, id := range ids {
		b.requireDone(t, id, everyone(n))
		require.Equal(t, []string{"enqueued", "claimed", "finished"}, b.kinds(t, id))
	}
}

// I4 by the index alone: a claim that is not committed yet is invisible, so the
// claiming statement's own look at the lane finds it free; the index makes the
// second claim wait for the first and fail, which is no error to the runner.
func TestRunner_ClaimWaitsForTheOtherClaimOfItsLane(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"COMMIT", "ROLLBACK"} {
		b := setup(t, 100)
		a, c := b.enqueue(t, job.Spec{}), b.enqueue(t, job.Spec{})
		tx, err := b.db.Pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'other', heartbeat_at = now() WHERE id = $1`, a)
		require.NoError(t, err)
		s := b.start(t, b.runner(t, "r"))
		b.blocked(t)
		_, err = tx.Exec(t.Context(), first)
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()), "ends it for pgx, too")
		out := s.wait(t)
		if first == "COMMIT" {
			require.Empty(t, out.Jobs)
			require.Len(t, out.Held, 1)
			require.Equal(t, job.Pending, b.state(t, c).Status)
		} else {
			require.Len(t, out.Jobs, 2)
			b.requireDone(t, a, everyone(100))
			b.requireDone(t, c, everyone(100))
		}
	}
}

// I4: two runners race for one job, many times: exactly one gets it.
func TestRunner_TwoRunnersRaceForOneJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	for range 20 {
		id := b.enqueue(t, job.Spec{})
		one, other := b.start(t, b.runner(t, "one")), b.start(t, b.runner(t, "other"))
		require.Equal(t, 1, len(one.wait(t).Jobs)+len(other.wait(t).Jobs))
		require.Equal(t, []string{"enqueued", "claimed", "finished"}, b.kinds(t, id))
		b.requireDone(t, id, everyone(10))
	}
}

// Lanes exclude nobody but their own: three jobs in three lanes are in the middle
// of a chunk at the same moment, and a runner serves only the lanes it is given.
func TestRunner_LanesRunSideBySide(t *testing.T) {
	t.Parallel()
	b := setup(t, 300)
	lanes := []string{"default", "fast", "slow"}
	ids, gates, runs := map[string]int64{}, map[string]*gate{}, map[string]*started{}
	for _, lane := range lanes {
		ids[lane] = b.enqueue(t, job.Spec{Lane: lane})
	}
	for _, lane := range lanes {
		c := config("r-" + lane)
		c.Lanes = []string{lane}
		gates[lane] = b.gate(job.PointWritten, 2)
		runs[lane] = b.start(t, b.runnerWith(t, b.db.Pool, c, outbox.Types(b.who), job.WithFailpoint(gates[lane].at)))
	}
	for _, lane := range lanes {
		gates[lane].await(t)
	}
	require.EqualValues(t, 3, one[int64](t, b, `SELECT count(*) FROM belfry.jobs WHERE status = 'RUNNING'`))
	for _, lane := range lanes {
		gates[lane].release(nil)
		out := runs[lane].wait(t)
		require.Len(t, out.Jobs, 1)
		require.Equal(t, ids[lane], out.Jobs[0].ID)
		b.requireDone(t, ids[lane], everyone(300))
	}
}

// Due jobs are claimed by priority, then by schedule, then by age; a job that is
// not due yet, or of a type that the runner does not have, waits.
func TestRunner_ClaimsTheMostUrgentDueJobFirst(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	now := one[time.Time](t, b, `SELECT now()`)
	earlier, later := now.Add(-time.Hour), now.Add(time.Hour)
	normal := b.enqueue(t, job.Spec{Audience: channels.WithIDs(10)})
	overdue := b.enqueue(t, job.Spec{ScheduleAt: &earlier})
	urgent := b.enqueue(t, job.Spec{Priority: 5})
	future := b.enqueue(t, job.Spec{Priority: 1000, ScheduleAt: &later})
	push := b.enqueue(t, job.Spec{Type: "push", Priority: 1000})

	out := b.runDue(t, b.runnerWith(t, b.db.Pool, config("r"), outbox.Types(b.who)[:1]))
	var order []int64
	for _, j := range out.Jobs {
		order = append(order, j.ID)
	}
	require.Equal(t, []int64{urgent, overdue, normal}, order)
	require.Equal(t, job.Pending, b.state(t, future).Status)
	require.Equal(t, job.Pending, b.state(t, push).Status)
}
