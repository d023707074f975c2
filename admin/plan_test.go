package admin_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/job"
)

// everything is one text of all rows that an act may change.
func (d *desk) everything() string {
	d.t.Helper()
	return d.one(`SELECT md5(string_agg(r, E'\n' ORDER BY r)) FROM (
		SELECT to_jsonb(x)::text AS r FROM belfry.jobs x UNION ALL SELECT to_jsonb(x)::text FROM belfry.job_events x
		UNION ALL SELECT to_jsonb(x)::text FROM belfry.job_revisions x UNION ALL SELECT to_jsonb(x)::text FROM belfry.events x
		UNION ALL SELECT to_jsonb(x)::text FROM belfry.messages x UNION ALL SELECT to_jsonb(x)::text FROM belfry.notifications x
		UNION ALL SELECT to_jsonb(x)::text FROM belfry.activities x UNION ALL SELECT to_jsonb(x)::text FROM belfry.job_deliveries x) t`)
}

// planned makes the plan of an act, which has to change nothing.
func (d *desk) planned(name string, given ...string) admin.Plan {
	d.t.Helper()
	before := d.everything()
	require.NoError(d.t, d.run(name, append(given, "dry_run", "on")...))
	require.Equal(d.t, before, d.everything(), "a plan changes nothing")
	require.NotContains(d.t, d.json, "receipt")
	var answer struct{ Plan *admin.Plan }
	require.NoError(d.t, json.Unmarshal([]byte(d.json), &answer))
	require.NotNil(d.t, answer.Plan, d.json)
	return *answer.Plan
}

// refuses wants another count to be refused with both, and nothing to be changed.
func (d *desk) refuses(p admin.Plan, name string, given ...string) {
	d.t.Helper()
	before := d.everything()
	other := p.Count + 1
	err := d.run(name, append(given, "plan", admin.Retoken(p.Token, &other, nil))...)
	require.Equal(d.t, errkind.Conflict, errkind.Of(err), name)
	require.ErrorContains(d.t, err, fmt.Sprintf("the plan is out of date: %d ", p.Count), name)
	require.ErrorContains(d.t, err, fmt.Sprintf(", not %d; nothing was changed", other), name)
	require.Empty(d.t, d.out)
	require.Equal(d.t, before, d.everything(), "%s: another count changes nothing", name)
}

// as are the parameters that do exactly what a plan shows.
func as(p admin.Plan) []string { return []string{"plan", p.Token} }

// troop makes jobs in each status: 1 PENDING, 2 RUNNING, 3 ABORTED, 4 FAILED, 5 PROCESSED with
// messages that wait, 6 PROCESSED without, 7 EXPIRED in a time that is lifted, 8 EXPIRED, and 9
// ABORTED in the hands of retention.
func troop(t *testing.T) *desk {
	t.Helper()
	d := newDesk(t)
	d.exec(`INSERT INTO belfry.channels (external_id, platform, addresses) SELECT 'u' || n, 'ios', '{"push": "token"}' FROM generate_series(1, 8) n`)
	for range 9 {
		d.member()
	}
	d.exec(`UPDATE belfry.jobs SET expires_at = now() + interval '1 hour' WHERE id IN (7, 8)`)
	d.exec(`UPDATE belfry.jobs SET status = 'EXPIRED' WHERE id IN (7, 8)`)
	dbtest.Past(t, d.db.Pool, `UPDATE belfry.jobs SET expires_at = CASE id WHEN 8 THEN now() - interval '1 hour' END WHERE id IN (7, 8)`)
	d.stands(3, "ABORTED")
	d.stands(4, "FAILED")
	d.stands(5, "PROCESSED")
	d.exec(`INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at) SELECT 5, n, now() FROM generate_series(1, 8) n`)
	d.exec(`INSERT INTO belfry.job_deliveries (job_id, relay, written) VALUES (5, '', 8)`)
	d.stands(6, "PROCESSED")
	d.stands(9, "ABORTED")
	d.exec(`UPDATE belfry.jobs SET retention_at = clock_timestamp() WHERE id = 9`)
	d.exec(fmt.Sprintf(walked, 2))
	return d
}

// member is one more job of its lane, and its id.
func (d *desk) member() string {
	d.t.Helper()
	return d.one(`INSERT INTO belfry.jobs (type, category, title, lane) VALUES ('push', 'operator_notice', 'Hello', 'lane' || (SELECT count(*) FROM belfry.jobs)) RETURNING id::text`)
}

// stands brings a job that is PENDING into a status at rest.
func (d *desk) stands(id int64, status string) {
	d.t.Helper()
	switch status {
	case "PENDING":
		return
	case "ABORTED":
		d.exec(fmt.Sprintf(`SELECT belfry.abort(%d)`, id))
		return
	case "RUNNING":
		d.exec(fmt.Sprintf(walked, id))
		return
	}
	d.exec(fmt.Sprintf(walked, id))
	d.exec(fmt.Sprintf(`UPDATE belfry.jobs SET status = '%s', last_error = CASE '%[1]s' WHEN 'FAILED' THEN 'disk' END WHERE id = %d`, status, id))
}

func (d *desk) status(id string) string {
	d.t.Helper()
	return d.one(`SELECT status FROM belfry.jobs WHERE id = ` + id)
}

// An act on jobs does what its plan says: to as many, to those, and to nothing that is younger.
func TestPlan_ActsOnJobsAreAsPlanned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		given    []string
		younger  string // the status of one that it would change
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
			d := troop(t)
			given := append([]string{"id", "1"}, c.given...)
			for id := 2; id <= 9; id++ {
				given = append(given, "id", strconv.Itoa(id))
			}
			p := d.planned(c.name, given...)
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
			require.Contains(t, d.notes, "--plan "+p.Token+" does exactly this")
			d.refuses(p, c.name, given...)

			young := d.member()
			id, err := strconv.ParseInt(young, 10, 64)
			require.NoError(t, err)
			d.stands(id, c.younger)
			require.ErrorContains(t, d.run(c.name, append(append(given, "id", young), as(p)...)...), "plan: is the token of another request")
			require.NoError(t, d.run(c.name, append(given, as(p)...)...))
			require.Equal(t, c.younger, d.status(young))
			for i, want := range c.after {
				require.Equal(t, string(want), d.status(strconv.Itoa(i+1)), "job %d", i+1)
			}
			require.Equal(t, fmt.Sprint(p.Count), d.one(`SELECT count(DISTINCT job_id)::text FROM belfry.job_events WHERE actor = 'ann@host'`))
			require.Equal(t, p.Count, d.receipt().Concerned)
		})
	}
}

// A group is planned and acted on as a whole, and its younger jobs are left.
func TestPlan_OfAGroup(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.enqueue("inbox,push")
	p := d.planned("abort", "group", "1")
	require.EqualValues(t, 2, p.Count)
	require.True(t, p.Outcomes[0].Unknown, "a walk that has not begun has counted nobody")
	require.Regexp(t, `job 1 \(inbox\) +aborted +\?  0 written; not for everybody else`, d.out)
	require.Regexp(t, `^group [0-9a-f-]{36}$`, p.Selection)
	d.refuses(p, "abort", "group", "1")
	d.exec(`INSERT INTO belfry.job_types (name) VALUES ('letter') ON CONFLICT DO NOTHING`)
	d.exec(`INSERT INTO belfry.jobs (type, category, title, group_id) SELECT 'letter', category, title, group_id FROM belfry.jobs WHERE id = 1`)
	require.NoError(t, d.run("abort", append([]string{"group", "1"}, as(p)...)...), "a newer job of the group is left")
	require.Equal(t, "ABORTED,ABORTED,PENDING", d.one(`SELECT string_agg(status, ',' ORDER BY id) FROM belfry.jobs`))

	d.exec(`UPDATE belfry.jobs SET lane = 'night' WHERE id = 1; UPDATE belfry.jobs SET lane = 'day' WHERE id IN (2, 3)`)
	require.NoError(t, d.run("lanes pause", "lane", "night"))
	d.stands(3, "RUNNING")
	p = d.planned("resume", "group", "1")
	require.EqualValues(t, 2, p.Count)
	require.Contains(t, p.Outcomes[0].Detail, "; waits: lane night is paused")
	require.Contains(t, p.Outcomes[1].Detail, "; waits: job 3 runs in lane day")
	require.NoError(t, d.run("resume", append([]string{"group", "1"}, as(p)...)...))
	p = d.planned("abort", "id", "1")
	future, early := noon().AddDate(900, 0, 0), noon().AddDate(-20, 0, 0)
	err := d.run("abort", "id", "1", "plan", admin.Retoken(p.Token, nil, &future))
	require.ErrorContains(t, err, "plan: is a token of the future")
	require.ErrorIs(t, d.run("abort", "id", "1", "id", "99", "dry_run", "on"), job.ErrNotFound)
	err = d.run("abort", "id", "1", "plan", admin.Retoken(p.Token, nil, &early))
	require.ErrorContains(t, err, "the plan is out of date: 0 jobs would be aborted")
	require.Equal(t, errkind.Conflict, errkind.Of(err))
	require.Equal(t, "PENDING", d.status("1"))
}

// An abort with a recall says of both what they do, and takes back what its own plan says.
func TestPlan_OfAnAbortThatRecalls(t *testing.T) {
	t.Parallel()
	d := troop(t)
	p := d.planned("abort", "id", "5", "id", "6", "recall", "on")
	require.EqualValues(t, 1, p.Count)
	require.Len(t, p.Outcomes, 3)
	require.Equal(t, admin.Outcome{Of: "job 5 (push)", Outcome: "recalled", Count: 8, Detail: "8 written, 0 sent; up to 8 rows taken back"}, p.Outcomes[1])
	d.refuses(p, "abort", "id", "5", "id", "6", "recall", "on")
	require.NoError(t, d.run("abort", append([]string{"id", "5", "id", "6", "recall", "on"}, as(p)...)...))
	require.Equal(t, "8", d.one(`SELECT count(*)::text FROM belfry.messages WHERE status = 'CANCELLED'`))
	require.Equal(t, "ABORTED,PROCESSED", d.status("5")+","+d.status("6"))

	d = newDesk(t)
	d.enqueue("inbox,push")
	d.stands(1, "PROCESSED")
	p = d.planned("abort", "group", "1", "recall", "on")
	require.EqualValues(t, 1, p.Count)
	require.Equal(t, []string{"left", "recalled", "aborted", "recalled"}, []string{p.Outcomes[0].Outcome, p.Outcomes[1].Outcome, p.Outcomes[2].Outcome, p.Outcomes[3].Outcome})
	require.NoError(t, d.run("abort", append([]string{"group", "1", "recall", "on"}, as(p)...)...))
	require.Equal(t, "PROCESSED,ABORTED", d.status("1")+","+d.status("2"))
	require.Equal(t, "2", d.one(`SELECT count(recalled_at)::text FROM belfry.jobs`))
}

// A recall leaves a job that has been at rest for less long than the plan: it may have written
// more.
func TestPlan_RecallLeavesWhatWentOnSince(t *testing.T) {
	t.Parallel()
	d := troop(t)
	p := d.planned("recall", "id", "3")
	require.EqualValues(t, 1, p.Count)
	d.exec(`SELECT belfry.resume(3)`)
	d.stands(3, "PROCESSED")
	d.exec(`INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at) SELECT 3, n, now() FROM generate_series(1, 8) n`)
	d.exec(`INSERT INTO belfry.job_deliveries (job_id, relay, written) VALUES (3, '', 8)`)
	before := d.everything()
	require.ErrorContains(t, d.run("recall", append([]string{"id", "3"}, as(p)...)...), "the plan is out of date: 0 jobs would be recalled as of ")
	require.Equal(t, before, d.everything())
}

// A time that is over, and rows that retention deletes, keep no other job of a group from going on.
func TestPlan_StuckJobsAreLeft(t *testing.T) {
	t.Parallel()
	d := troop(t)
	p := d.planned("retry", "id", "4", "id", "8", "id", "9")
	require.Equal(t, "it expired; `belfry jobs set 8 expires_at=default` lifts that", p.Outcomes[1].Detail)
	require.Equal(t, "it is ABORTED", p.Outcomes[2].Detail)
	require.NoError(t, d.run("retry", append([]string{"id", "4", "id", "8", "id", "9"}, as(p)...)...))
	require.Equal(t, "retention deletes its rows", d.planned("resume", "id", "9").Outcomes[0].Detail)
	d.refuses(d.planned("resume", "id", "9"), "resume", "id", "9")
	require.ErrorContains(t, d.run("resume", "id", "9"), "retention deletes its rows since")
	require.Equal(t, "PENDING,EXPIRED,ABORTED", d.status("4")+","+d.status("8")+","+d.status("9"))
}

// letters makes dead letters of all messages of job 5, an hour ago.
func (d *desk) letters() {
	d.t.Helper()
	d.exec(`UPDATE belfry.messages SET status = 'DEAD', reason = 'exhausted', next_attempt_at = now() - interval '1 hour' WHERE job_id = 5`)
}

// A redrive and a discard do what their plan says, and take no letter that died after it.
func TestPlan_DeadLettersAreAsPlanned(t *testing.T) {
	t.Parallel()
	for name, becomes := range map[string]string{"dead-letters redrive": "PENDING", "dead-letters discard": "CANCELLED"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := troop(t)
			d.letters()
			d.exec(`UPDATE belfry.messages SET status = 'PENDING', reason = NULL WHERE channel_id > 6`)
			p := d.planned(name, "job", "5", "medium", "push")
			require.EqualValues(t, 6, p.Count)
			require.Equal(t, "dead letters of job 5 at push", p.Selection)
			require.Len(t, p.Outcomes, 1)
			require.Equal(t, "job 5: push, exhausted", p.Outcomes[0].Of)
			require.EqualValues(t, 6, p.Outcomes[0].Count)
			d.refuses(p, name, "job", "5", "medium", "push")
			d.exec(`UPDATE belfry.messages SET status = 'DEAD', reason = 'exhausted', next_attempt_at = clock_timestamp() WHERE channel_id > 6`)
			require.NoError(t, d.run(name, append([]string{"job", "5", "medium", "push"}, as(p)...)...))
			require.EqualValues(t, 6, d.receipt().Concerned)
			require.Equal(t, "6,2", d.one(`SELECT concat_ws(',', count(*) FILTER (WHERE status = '`+becomes+`' AND channel_id <= 6), count(*) FILTER (WHERE status = 'DEAD' AND channel_id > 6)) FROM belfry.messages`))
		})
	}
}

// A redrive's plan tells apart what it does and what it leaves.
func TestPlan_DeadLettersThatAreHeldOrLeft(t *testing.T) {
	t.Parallel()
	d := troop(t)
	d.letters()
	d.exec(`UPDATE belfry.messages SET status = 'PENDING', reason = NULL WHERE channel_id = 8`)
	d.exec(`SELECT belfry.abort(5)`)
	p := d.planned("dead-letters redrive", "all", "on")
	require.Equal(t, []admin.Outcome{{Of: "job 5: push, exhausted", Outcome: "redriven", Count: 7, Detail: "held until job 5 is resumed"}}, p.Outcomes)
	require.NoError(t, d.run("recall", "id", "5"))
	p = d.planned("dead-letters redrive", "all", "on")
	require.Equal(t, []admin.Outcome{{Of: "job 5: push, exhausted", Outcome: "left", Count: 7, Detail: "the job was recalled"}}, p.Outcomes)
	require.Zero(t, p.Count)
	p = d.planned("dead-letters discard", "all", "on")
	require.EqualValues(t, 7, p.Count)
}

// A prune deletes what its plan says. What was too young then is kept, though it is old enough
// by now.
func TestPlan_PruneIsAsPlanned(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.env.Retention = delivery.DefaultRetention()
	d.exec(`INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, 8) n`)
	for id, kind := range []string{"inbox", "push", "inbox", "push", "push"} {
		d.enqueue(kind)
		if id < 4 {
			d.exec(fmt.Sprintf(walked, id+1))
			d.exec(fmt.Sprintf(`UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = %d`, id+1))
		}
	}
	d.exec(`SELECT belfry.abort(5)`) // has no row
	d.exec(`INSERT INTO belfry.notifications (job_id, channel_id) SELECT j, n FROM generate_series(1, 3, 2) j, generate_series(1, 8) n`)
	d.exec(`INSERT INTO belfry.messages (job_id, channel_id, status, sent_at, next_attempt_at) SELECT j, n, 'SENT', now() - interval '40 days', now() - interval '40 days' FROM generate_series(2, 4, 2) j, generate_series(1, 8) n`)
	d.exec(`SELECT belfry.send(1, 'activity', 'liked') FROM generate_series(1, 2)`)
	dbtest.Past(t, d.db.Pool, `UPDATE belfry.activities SET created_at = now() - make_interval(days => CASE id WHEN -1 THEN 40 ELSE 10 END)`)
	d.exec(`UPDATE belfry.messages SET status = 'SENT', sent_at = now() - interval '40 days', next_attempt_at = now() - interval '40 days' WHERE job_id < 0`)
	d.exec(`INSERT INTO belfry.events (subject, kind, actor, at) SELECT 'lane', 'paused', 'ann', now() - make_interval(days => n) FROM generate_series(10, 40, 30) n`)
	dbtest.Past(t, d.db.Pool, `UPDATE belfry.jobs SET finished_at = now() - make_interval(days => CASE WHEN id < 3 THEN 40 ELSE 10 END)`)

	p := d.planned("prune", "older_than", "30d")
	require.Equal(t, "what is older than 30d", p.Selection)
	require.Equal(t, []admin.Outcome{
		{Of: "notifications", Outcome: "deleted", Count: 8}, {Of: "messages", Outcome: "deleted", Count: 9},
		{Of: "jobs", Outcome: "deleted", Count: 2}, {Of: "events", Outcome: "deleted", Count: 1},
	}, p.Outcomes)
	d.refuses(p, "prune", "older_than", "30d")

	// The same plan, made 30 days ago in the eyes of the act: everything is older than 5 days, and
	// what was not 30 days ago stays.
	before := d.everything()
	q := d.planned("prune", "older_than", "5d")
	require.EqualValues(t, 41, q.Count)
	require.ErrorContains(t, d.run("prune", "older_than", "5d", "plan", admin.Retoken(q.Token, &p.Count, nil)), "the plan is out of date: 41 rows would be deleted as of ")
	require.Equal(t, before, d.everything())
	past := q.AsOf.AddDate(0, 0, -30)
	require.NoError(t, d.run("prune", "older_than", "5d", "plan", admin.Retoken(q.Token, &p.Count, &past)))
	require.Equal(t, p.Count, d.receipt().Concerned)
	require.Equal(t, "3,4,5|8|8|1", d.one(`SELECT concat_ws('|', (SELECT string_agg(id::text, ',' ORDER BY id) FROM belfry.jobs), (SELECT count(*) FROM belfry.notifications),
		(SELECT count(*) FROM belfry.messages WHERE job_id > 0), (SELECT count(*) FROM belfry.events WHERE subject = 'lane'))`))
}

// A plan that counts nothing may still have something to do.
func TestPlan_IsIdleWhereNothingIsLeftToDo(t *testing.T) {
	t.Parallel()
	require.True(t, (&admin.Plan{Outcomes: []admin.Outcome{{Outcome: "left", Count: 3}, {Outcome: "emptied"}}}).Idle())
	require.False(t, (&admin.Plan{Outcomes: []admin.Outcome{{Outcome: "emptied", Count: 3}}}).Idle())
	require.False(t, (&admin.Plan{Outcomes: []admin.Outcome{{Outcome: "emptied", Unknown: true}}}).Idle())
	require.False(t, (&admin.Plan{Count: 1}).Idle())
}
