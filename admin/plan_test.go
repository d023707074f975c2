package admin_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// An act on jobs follows its plan: the same number, the same jobs, and no job that is newer than the plan.
func TestPlan_ActsOnJobsAreAsPlanned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		given    []string
		younger  string // the status of a newer job that the act would change
		outcomes string // of jobs 1 to 9
		after    []job.Status
	}{
		{"abort", nil, "RUNNING", "aborted,aborted,left,left,aborted,left,left,left,left", []job.Status{"ABORTED", "ABORTED", "ABORTED", "FAILED", "ABORTED", "PROCESSED", "EXPIRED", "EXPIRED", "ABORTED"}},
		{"resume", nil, "ABORTED", "left,left,resumed,left,left,left,left,left,left", []job.Status{"PENDING", "RUNNING", "PENDING", "FAILED", "PROCESSED", "PROCESSED", "EXPIRED", "EXPIRED", "ABORTED"}},
		{"resume", []string{"edit", "on", "title", "Corrected"}, "FAILED", "left,left,corrected and resumed,corrected and resumed,left,left,left,left,left", []job.Status{"PENDING", "RUNNING", "PENDING", "PENDING", "PROCESSED", "PROCESSED", "EXPIRED", "EXPIRED", "ABORTED"}},
		{"retry", nil, "FAILED", "left,left,left,retried,left,left,retried,left,left", []job.Status{"PENDING", "RUNNING", "ABORTED", "PENDING", "PROCESSED", "PROCESSED", "PENDING", "EXPIRED", "ABORTED"}},
		{"recall", nil, "PROCESSED", "left,left,recalled,recalled,recalled,recalled,left,left,recalled", nil},
	} {
		t.Run(fmt.Sprint(c.name, c.given), func(t *testing.T) {
			t.Parallel()
			d := admintest.Troop(t)
			given := append([]string{"id", "1"}, c.given...)
			for id := 2; id <= 9; id++ {
				given = append(given, "id", strconv.Itoa(id))
			}
			p := d.Planned(c.name, given...)
			text, n := "", int64(0)
			for i, o := range p.Outcomes {
				if i > 0 {
					text += ","
				}
				text += o.Outcome
				if o.Outcome != "left" {
					n++
				}
				require.Equal(t, fmt.Sprintf("job %d (push)", i+1), o.Of)
			}
			require.Equal(t, c.outcomes, text)
			require.Equal(t, n, p.Count)
			require.Equal(t, "jobs 1, 2, 3, 4, 5, 6, 7, 8, 9", p.Selection)
			require.Contains(t, d.Notes, "--plan "+p.Token+" does exactly this")
			d.Refuses(p, c.name, given...)

			young := d.Member()
			id, err := strconv.ParseInt(young, 10, 64)
			require.NoError(t, err)
			d.Stands(id, c.younger)
			require.ErrorContains(t, d.Run(c.name, append(append(given, "id", young), admintest.As(p)...)...), "plan: is the token of another request")
			require.NoError(t, d.Run(c.name, append(given, admintest.As(p)...)...))
			require.Equal(t, c.younger, d.Status(young))
			for i, want := range c.after {
				require.Equal(t, string(want), d.Status(strconv.Itoa(i+1)), "job %d", i+1)
			}
			require.Equal(t, fmt.Sprint(p.Count), d.One(`SELECT count(DISTINCT job_id)::text FROM belfry.job_events WHERE actor = 'ann@host'`))
			require.Equal(t, p.Count, d.Receipt().Concerned)
		})
	}
}

// A group is planned and changed as a whole, except newer jobs.
func TestPlan_OfAGroup(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Enqueue("inbox,push")
	p := d.Planned("abort", "group", "1")
	require.EqualValues(t, 2, p.Count)
	require.True(t, p.Outcomes[0].Unknown, "a walk that has not begun has counted nobody")
	require.Regexp(t, `job 1 \(inbox\) +aborted +\?  0 written; not for all other recipients`, d.Out)
	require.Regexp(t, `^group [0-9a-f-]{36}$`, p.Selection)
	d.Refuses(p, "abort", "group", "1")
	d.Exec(`INSERT INTO belfry.job_types (name) VALUES ('letter') ON CONFLICT DO NOTHING`)
	d.Exec(`INSERT INTO belfry.jobs (type, category, title, group_id) SELECT 'letter', category, title, group_id FROM belfry.jobs WHERE id = 1`)
	require.NoError(t, d.Run("abort", append([]string{"group", "1"}, admintest.As(p)...)...), "a newer job of the group is left")
	require.Equal(t, "ABORTED,ABORTED,PENDING", d.One(`SELECT string_agg(status, ',' ORDER BY id) FROM belfry.jobs`))

	d.Exec(`UPDATE belfry.jobs SET lane = 'night' WHERE id = 1; UPDATE belfry.jobs SET lane = 'day' WHERE id IN (2, 3)`)
	require.NoError(t, d.Run("lanes pause", "lane", "night"))
	d.Stands(3, "RUNNING")
	p = d.Planned("resume", "group", "1")
	require.EqualValues(t, 2, p.Count)
	require.Contains(t, p.Outcomes[0].Detail, "; waits: lane night is paused")
	require.Contains(t, p.Outcomes[1].Detail, "; waits: job 3 runs in lane day")
	require.NoError(t, d.Run("resume", append([]string{"group", "1"}, admintest.As(p)...)...))
	p = d.Planned("abort", "id", "1")
	future, early := admintest.Noon().AddDate(900, 0, 0), admintest.Noon().AddDate(-20, 0, 0)
	err := d.Run("abort", "id", "1", "plan", admintest.Retoken(t, p.Token, nil, &future))
	require.ErrorContains(t, err, "plan: is of a later time")
	require.ErrorIs(t, d.Run("abort", "id", "1", "id", "99", "dry_run", "on"), job.ErrNotFound)
	err = d.Run("abort", "id", "1", "plan", admintest.Retoken(t, p.Token, nil, &early))
	require.ErrorContains(t, err, "the plan is out of date: 0 jobs would be aborted")
	require.Equal(t, db.KindConflict, db.KindOf(err))
	require.Equal(t, "PENDING", d.Status("1"))
}

// The plan of an abort with a recall lists both effects, and the recall follows that plan.
func TestPlan_OfAnAbortThatRecalls(t *testing.T) {
	t.Parallel()
	d := admintest.Troop(t)
	p := d.Planned("abort", "id", "5", "id", "6", "recall", "on")
	require.EqualValues(t, 1, p.Count)
	require.Len(t, p.Outcomes, 3)
	require.Equal(t, operation.Outcome{Of: "job 5 (push)", Outcome: "recalled", Count: 8, Detail: "8 written, 0 sent; up to 8 rows recalled"}, p.Outcomes[1])
	d.Refuses(p, "abort", "id", "5", "id", "6", "recall", "on")
	require.NoError(t, d.Run("abort", append([]string{"id", "5", "id", "6", "recall", "on"}, admintest.As(p)...)...))
	require.Equal(t, "8", d.One(`SELECT count(*)::text FROM belfry.messages WHERE status = 'CANCELLED'`))
	require.Equal(t, "ABORTED,PROCESSED", d.Status("5")+","+d.Status("6"))

	d = admintest.NewDesk(t)
	d.Enqueue("inbox,push")
	d.Stands(1, "PROCESSED")
	p = d.Planned("abort", "group", "1", "recall", "on")
	require.EqualValues(t, 1, p.Count)
	require.Equal(t, []string{"left", "recalled", "aborted", "recalled"}, []string{p.Outcomes[0].Outcome, p.Outcomes[1].Outcome, p.Outcomes[2].Outcome, p.Outcomes[3].Outcome})
	require.NoError(t, d.Run("abort", append([]string{"group", "1", "recall", "on"}, admintest.As(p)...)...))
	require.Equal(t, "PROCESSED,ABORTED", d.Status("1")+","+d.Status("2"))
	require.Equal(t, "2", d.One(`SELECT count(recalled_at)::text FROM belfry.jobs`))
}

// A recall skips a job that has finished after the plan, because it may have written more.
func TestPlan_RecallLeavesWhatWentOnSince(t *testing.T) {
	t.Parallel()
	d := admintest.Troop(t)
	p := d.Planned("recall", "id", "3")
	require.EqualValues(t, 1, p.Count)
	d.Exec(`SELECT belfry.resume(3)`)
	d.Stands(3, "PROCESSED")
	d.Exec(`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT 3, n, now() FROM generate_series(1, 8) n`)
	d.Exec(`INSERT INTO belfry.job_deliveries (job_id, relay, written) VALUES (3, '', 8)`)
	before := d.Everything()
	require.ErrorContains(t, d.Run("recall", append([]string{"id", "3"}, admintest.As(p)...)...), "the plan is out of date: 0 jobs would be recalled as of ")
	require.Equal(t, before, d.Everything())
}

// A job that expired, or whose rows retention deletes, does not prevent a resumption of the other jobs of its
// group.
func TestPlan_StuckJobsAreLeft(t *testing.T) {
	t.Parallel()
	d := admintest.Troop(t)
	p := d.Planned("retry", "id", "4", "id", "8", "id", "9")
	require.Equal(t, "it expired; change or remove its expires_at first", p.Outcomes[1].Detail)
	require.Equal(t, "it is ABORTED", p.Outcomes[2].Detail)
	require.NoError(t, d.Run("retry", append([]string{"id", "4", "id", "8", "id", "9"}, admintest.As(p)...)...))
	require.Equal(t, "retention deletes its rows", d.Planned("resume", "id", "9").Outcomes[0].Detail)
	d.Refuses(d.Planned("resume", "id", "9"), "resume", "id", "9")
	require.ErrorContains(t, d.Run("resume", "id", "9"), "retention deletes its rows since")
	require.Equal(t, "PENDING,EXPIRED,ABORTED", d.Status("4")+","+d.Status("8")+","+d.Status("9"))
}

// A redrive and a discard follow their plan, and skip messages that died after it.
func TestPlan_DeadLettersAreAsPlanned(t *testing.T) {
	t.Parallel()
	for name, becomes := range map[string]string{"dead-letters redrive": "PENDING", "dead-letters discard": "CANCELLED"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := admintest.Troop(t)
			d.Letters()
			d.Exec(`UPDATE belfry.message_rows SET status = 'PENDING', reason = NULL, lease_id = 0 WHERE channel_id > 6`)
			p := d.Planned(name, "job", "5", "medium", "push")
			require.EqualValues(t, 6, p.Count)
			require.Equal(t, "dead letters of job 5 at push", p.Selection)
			require.Len(t, p.Outcomes, 1)
			require.Equal(t, "job 5: push, exhausted", p.Outcomes[0].Of)
			require.EqualValues(t, 6, p.Outcomes[0].Count)
			d.Refuses(p, name, "job", "5", "medium", "push")
			d.Exec(`UPDATE belfry.message_rows SET status = 'DEAD', reason = 'exhausted', next_attempt_at = clock_timestamp() WHERE channel_id > 6`)
			require.NoError(t, d.Run(name, append([]string{"job", "5", "medium", "push"}, admintest.As(p)...)...))
			require.EqualValues(t, 6, d.Receipt().Concerned)
			require.Equal(t, "6,2", d.One(`SELECT concat_ws(',', count(*) FILTER (WHERE status = '`+becomes+`' AND channel_id <= 6), count(*) FILTER (WHERE status = 'DEAD' AND channel_id > 6)) FROM belfry.messages`))
		})
	}
}

// A redrive's plan distinguishes redriven, held and skipped messages.
func TestPlan_DeadLettersThatAreHeldOrLeft(t *testing.T) {
	t.Parallel()
	d := admintest.Troop(t)
	d.Letters()
	d.Exec(`UPDATE belfry.message_rows SET status = 'PENDING', reason = NULL, lease_id = 0 WHERE channel_id = 8`)
	d.Exec(`SELECT belfry.abort(5)`)
	p := d.Planned("dead-letters redrive", "all", "on")
	require.Equal(t, []operation.Outcome{{Of: "job 5: push, exhausted", Outcome: "redriven", Count: 7, Detail: "held until job 5 is resumed"}}, p.Outcomes)
	require.NoError(t, d.Run("recall", "id", "5"))
	p = d.Planned("dead-letters redrive", "all", "on")
	require.Equal(t, []operation.Outcome{{Of: "job 5: push, exhausted", Outcome: "left", Count: 7, Detail: "the job was recalled"}}, p.Outcomes)
	require.Zero(t, p.Count)
	p = d.Planned("dead-letters discard", "all", "on")
	require.EqualValues(t, 7, p.Count)
}

// A prune follows its plan. It retains rows that were too young then, although they are old enough now.
func TestPlan_PruneIsAsPlanned(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Env.Retention = outbox.DefaultRetention()
	d.Exec(`INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, 8) n`)
	for id, kind := range []string{"inbox", "push", "inbox", "push", "push"} {
		d.Enqueue(kind)
		if id < 4 {
			d.Exec(fmt.Sprintf(admintest.Walked, id+1))
			d.Exec(fmt.Sprintf(`UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = %d`, id+1))
		}
	}
	d.Exec(`SELECT belfry.abort(5)`) // has no row
	d.Exec(`INSERT INTO belfry.notifications (arrival, channel_id) SELECT j.arrival, n FROM belfry.jobs j, generate_series(1, 8) n WHERE j.id IN (1, 3)`)
	d.Exec(`INSERT INTO belfry.message_rows (job_id, channel_id, status, sent_at, next_attempt_at) SELECT j, n, 'SENT', now() - interval '40 days', now() - interval '40 days' FROM generate_series(2, 4, 2) j, generate_series(1, 8) n`)
	d.Exec(`SELECT belfry.send(1, 'activity', 'liked') FROM generate_series(1, 2)`)
	dbtest.Past(t, d.DB.Pool, `UPDATE belfry.activities SET created_at = now() - make_interval(days => CASE id WHEN -5 THEN 40 ELSE 10 END)`)
	d.Exec(`UPDATE belfry.message_rows SET status = 'SENT', sent_at = now() - interval '40 days', next_attempt_at = now() - interval '40 days' WHERE job_id < 0`)
	d.Exec(`INSERT INTO belfry.events (subject, kind, actor, at) SELECT 'lane', 'paused', 'ann', now() - make_interval(days => n) FROM generate_series(10, 40, 30) n`)
	dbtest.Past(t, d.DB.Pool, `UPDATE belfry.jobs SET finished_at = now() - make_interval(days => CASE WHEN id < 3 THEN 40 ELSE 10 END)`)

	p := d.Planned("prune", "older_than", "30d")
	require.Equal(t, "rows older than 30d", p.Selection)
	require.Equal(t, []operation.Outcome{
		{Of: "notifications", Outcome: "deleted", Count: 8}, {Of: "messages", Outcome: "deleted", Count: 9},
		{Of: "jobs", Outcome: "deleted", Count: 2}, {Of: "events", Outcome: "deleted", Count: 1},
	}, p.Outcomes)
	d.Refuses(p, "prune", "older_than", "30d")

	// The same plan as if made 30 days ago: all rows are older than 5 days, and those that were not 30 days
	// ago remain.
	before := d.Everything()
	q := d.Planned("prune", "older_than", "5d")
	require.EqualValues(t, 41, q.Count)
	require.ErrorContains(t, d.Run("prune", "older_than", "5d", "plan", admintest.Retoken(t, q.Token, &p.Count, nil)), "the plan is out of date: 41 rows would be deleted as of ")
	require.Equal(t, before, d.Everything())
	past := q.AsOf.AddDate(0, 0, -30)
	require.NoError(t, d.Run("prune", "older_than", "5d", "plan", admintest.Retoken(t, q.Token, &p.Count, &past)))
	require.Equal(t, p.Count, d.Receipt().Concerned)
	require.Equal(t, "3,4,5|8|8|1", d.One(`SELECT concat_ws('|', (SELECT string_agg(id::text, ',' ORDER BY id) FROM belfry.jobs), (SELECT count(*) FROM belfry.notifications),
		(SELECT count(*) FROM belfry.messages WHERE job_id > 0), (SELECT count(*) FROM belfry.events WHERE subject = 'lane'))`))
}

// A plan without counted objects may still have something to do.
func TestPlan_IsIdleWhereNothingIsLeftToDo(t *testing.T) {
	t.Parallel()
	require.True(t, (&operation.Plan{Outcomes: []operation.Outcome{{Outcome: "left", Count: 3}, {Outcome: "emptied"}}}).Idle())
	require.False(t, (&operation.Plan{Outcomes: []operation.Outcome{{Outcome: "emptied", Count: 3}}}).Idle())
	require.False(t, (&operation.Plan{Outcomes: []operation.Outcome{{Outcome: "emptied", Unknown: true}}}).Idle())
	require.False(t, (&operation.Plan{Count: 1}).Idle())
}
