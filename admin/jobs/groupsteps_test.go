package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

const bigGroup = "00000000-0000-4000-8000-000000000001"

// big enqueues n jobs of bigGroup by the owner, whom no limit binds.
func big(d *admintest.Desk, n int) {
	d.T.Helper()
	d.Exec(fmt.Sprintf(`INSERT INTO belfry.jobs (type, category, title, group_id, schedule_at)
		SELECT 'inbox', 'operator_notice', 'x', '%s', '2099-01-01' FROM generate_series(1, %d)`, bigGroup, n))
}

func having(d *admintest.Desk, status string) string {
	d.T.Helper()
	return d.One(`SELECT count(*)::text FROM belfry.jobs WHERE status = '` + status + `'`)
}

// A group of many thousand jobs exceeded the deadline of its one transaction, and nothing was aborted.
func TestGroup_IsAbortedInSteps(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	big(d, 5200)
	d.Exec(`UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now() WHERE id = 5200`)
	d.Exec(`UPDATE belfry.jobs SET status = 'EXPIRED' WHERE id = 7`)
	d.Exec(`UPDATE belfry.jobs SET schedule_at = now() WHERE id = 5100`)
	var steps []string
	d.Env.Progress = func(line string) {
		if len(steps) == 0 {
			require.Equal(t, "ABORTED", d.Status("5200"), "what runs stops first")
			require.Equal(t, "ABORTED", d.Status("5100"), "then what is claimed next")
		}
		steps = append(steps, line+"; "+having(d, "ABORTED"))
	}
	began := time.Now()
	require.NoError(t, d.Run("abort", "group", "17", "reason", "wrong link"))
	t.Logf("5,200 jobs in %v", time.Since(began))
	require.Len(t, steps, 10, "each is committed")
	require.Equal(t, "500 of 5,200 jobs aborted, 1 over already, 4,699 left; 500", steps[0])
	require.Equal(t, "5,199 of 5,200 jobs aborted, 1 over already\n", d.Out)
	require.EqualValues(t, 5199, d.Receipt().Concerned)
	var done struct {
		Group map[string]int64
		Jobs  []struct{ ID int64 }
	}
	require.NoError(t, json.Unmarshal([]byte(d.JSON), &done))
	require.Equal(t, map[string]int64{"jobs": 5200, "changed": 5199, "skipped": 1, "left": 0}, done.Group)
	require.Len(t, done.Jobs, 1000)
	require.Equal(t, "5199", d.One(`SELECT count(*)::text FROM belfry.job_events WHERE kind = 'aborted' AND actor = 'ann@host' AND reason = 'wrong link'`))
	require.ErrorAs(t, d.Run("abort", "group", "17"), new(*job.WrongStatusError))

	err := d.Run("resume", "group", "17", "dry_run", "on")
	require.ErrorContains(t, err, "has 5,200 jobs, and a plan covers up to 1,000; without one, the act changes all of them in steps")
	require.NoError(t, d.Run("resume", "group", "17"))
	require.Equal(t, "5199", having(d, "PENDING"))
	require.Equal(t, "5,199 of 5,200 jobs resumed, 1 skipped because of their status\n", d.Out)
	require.NoError(t, d.Run("abort", "group", "17", "recall", "on"))
	require.Equal(t, "5199", d.One(`SELECT count(DISTINCT job_id)::text FROM belfry.job_events WHERE kind = 'recalled'`))
}

// A locked row delays no other job of the group, and is named with its session.
func TestGroup_IsAbortedButForLockedJobs(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	big(d, 1100)
	tx, err := d.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `SELECT FROM belfry.jobs WHERE id IN (3, 700) FOR UPDATE`)
	require.NoError(t, err)
	began := time.Now()
	d.Env.Progress = func(string) { began = time.Now() }
	err = d.Run("abort", "group", "17")
	require.Less(t, time.Since(began), 15*time.Second, "it waits once, at the end")
	require.ErrorContains(t, err, "1,098 of 1,100 jobs aborted, 2 left; repeat the act for the rest: a row is locked by another session: job 3 by session ")
	require.ErrorContains(t, err, ", job 700 by session ")
	require.Equal(t, db.KindConflict, db.KindOf(err))
	require.Equal(t, "1,098 of 1,100 jobs aborted, 2 left\n", d.Out)
	require.Equal(t, "1098", having(d, "ABORTED"))

	aborted := make(chan error, 1)
	go func() {
		_, err := admintest.Do(t, d.Env, "abort", "group", "17")
		aborted <- err
	}()
	require.Eventually(t, func() bool {
		return d.One(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')::text`) == "true"
	}, time.Minute, time.Millisecond)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-aborted, "the locks ended in time")
	require.Equal(t, "1100", having(d, "ABORTED"))
}

// Finished jobs are in small steps: a table that another session locks delays each of them by half a second, and
// the jobs that run by nothing.
func TestGroup_StopsWhatRunsBeforeWhatIsFinished(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	dbtest.Past(t, d.DB.Pool, fmt.Sprintf(`INSERT INTO belfry.jobs (id, type, category, title, group_id, route, status, fence, started_at, finished_at)
		SELECT nextval('belfry.jobs_id_seq'), 'push', 'operator_notice', 'x', '%s', '{push}', 'PROCESSED', 1, now(), now() FROM generate_series(1, 45)`, bigGroup))
	big(d, 1)
	running := d.One(`SELECT max(id)::text FROM belfry.jobs`)
	d.Exec(`UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now() WHERE id = ` + running)
	tx, err := d.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.job_deliveries IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := admintest.Do(t, d.Env, "abort", "group", bigGroup)
		done <- err
	}()
	require.Eventually(t, func() bool { return d.Status(running) == "ABORTED" }, time.Minute, 10*time.Millisecond)
	require.Equal(t, "45", having(d, "PROCESSED"), "it did not wait for them")
	require.Eventually(t, func() bool { return having(d, "ABORTED") >= "2" }, time.Minute, 10*time.Millisecond)
	require.Contains(t, []string{"21", "41", "46"}, having(d, "ABORTED"), "whole steps")
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-done)
}

// An interruption and a lost connection leave whole steps, whose number is in the error.
func TestGroup_LeavesWholeStepsWhenItStops(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	big(d, 1600)
	steps := 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.Env.Progress = func(string) {
		if steps++; steps == 2 {
			cancel()
		}
	}
	o, in := d.Input("abort", "group", "17")
	out, err := o.Run(ctx, d.Env, in)
	require.ErrorContains(t, err, "1,000 of 1,600 jobs aborted, 600 left; repeat the act for the rest: ")
	require.NotErrorAs(t, err, new(*operation.UnknownOutcomeError))
	require.NotNil(t, out)
	require.Equal(t, "1000", having(d, "ABORTED"))

	d.Env.Progress = nil
	d.Exec(`CREATE FUNCTION public.lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
		CREATE TRIGGER lose AFTER UPDATE ON belfry.jobs FOR EACH ROW WHEN (NEW.id = 1550) EXECUTE FUNCTION public.lose()`)
	err = d.Run("abort", "group", "17")
	require.ErrorContains(t, err, "500 of 1,600 jobs aborted, 1,000 over already, 100 left; repeat the act for the rest: ")
	require.Equal(t, "1500", having(d, "ABORTED"))
	d.Exec(`DROP TRIGGER lose ON belfry.jobs`)
	require.NoError(t, d.Run("abort", "group", "17"))
	require.Equal(t, "1600", having(d, "ABORTED"))
}

// A job that cannot be changed does not prevent the abort of the others.
func TestGroup_IsAbortedButForAJobThatFails(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	big(d, 600)
	d.Exec(`ALTER TABLE belfry.jobs ADD CONSTRAINT mine CHECK (id NOT IN (5, 555) OR status <> 'ABORTED')`)
	err := d.Run("abort", "group", "17")
	require.ErrorContains(t, err, "598 of 600 jobs aborted, 2 left; repeat the act for the rest: ")
	require.ErrorContains(t, err, "mine")
	require.Equal(t, "598", having(d, "ABORTED"))
}

// What a plan shows is changed in one transaction, or nothing is.
func TestGroup_WithAPlanIsOneTransaction(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	big(d, 900)
	plan := d.Planned("abort", "group", "17")
	require.EqualValues(t, 900, plan.Count)
	d.Refuses(plan, "abort", "group", "17")
	d.Exec(`SELECT belfry.abort(900)`)
	require.ErrorContains(t, d.Run("abort", append([]string{"group", "17"}, admintest.As(plan)...)...), "the plan is out of date: 899 jobs would be aborted")
	require.Equal(t, "1", having(d, "ABORTED"))
	require.NoError(t, d.Run("abort", append([]string{"group", "17"}, admintest.As(d.Planned("abort", "group", "17"))...)...))
	require.Equal(t, "900", having(d, "ABORTED"))
}

const abortChildEnv = "BELFRY_TEST_ABORT_CHILD"

// A process that is killed leaves whole steps, and a repetition aborts the rest.
func TestProcess_GroupAbortIsKilled(t *testing.T) {
	if dsn := os.Getenv(abortChildEnv); dsn != "" {
		pool, err := pgxpool.New(t.Context(), dsn)
		require.NoError(t, err)
		env := &operation.Env{DB: pool, Jobs: job.NewStore(pool), Role: operation.Admin, Actor: "child", Progress: func(string) { _, _ = os.Stdout.WriteString("step\n") }}
		_, err = admintest.Do(t, env, "abort", "group", bigGroup)
		require.NoError(t, err)
		return
	}
	t.Parallel()
	d := admintest.NewDesk(t)
	big(d, 5000)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcess_GroupAbortIsKilled$") //nolint:gosec // this test itself
	child.Env = append(os.Environ(), abortChildEnv+"="+d.DB.DSN)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	_, err = out.Read(make([]byte, 4)) // the first step
	require.NoError(t, err)
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	require.Eventually(t, func() bool {
		return d.One(`SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'`) == "0"
	}, time.Minute, 10*time.Millisecond)
	n, err := strconv.Atoi(having(d, "ABORTED"))
	require.NoError(t, err)
	require.Positive(t, n)
	require.Less(t, n, 5000)
	require.Zero(t, n%500)
	require.NoError(t, d.Run("abort", "group", bigGroup))
	require.Equal(t, "5000", having(d, "ABORTED"))
}
