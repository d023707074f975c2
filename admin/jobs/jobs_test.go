package jobs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// Acts on several jobs read and return no content, which whoever enqueues makes large.
func TestActs_OnSeveralJobsReturnNoContent(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	for range 3 {
		d.Enqueue("inbox", "body", "the body")
	}
	for _, act := range []string{"abort", "resume"} {
		require.NoError(t, d.Run(act, "id", "1", "id", "2"))
		require.NotContains(t, d.JSON, "the body", act)
		require.NoError(t, d.Run(act, "id", "3"))
		require.Contains(t, d.JSON, "the body", act)
	}
	require.NoError(t, d.Run("abort", "id", "1", "id", "2", "recall", "on"))
	require.NotContains(t, d.JSON, "the body", "abort with recall")
	require.NoError(t, d.Run("recall", "id", "1", "id", "2"))
	require.NotContains(t, d.JSON, "the body", "recall")
	require.NoError(t, d.Run("recall", "id", "1"))
	require.Contains(t, d.JSON, "the body", "recall")
}

// An abort of a group with --recall recalls its ended jobs, too.
func TestAbort_OfAGroupRecallsItsOtherJobsToo(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Enqueue("inbox,push")
	d.Exec(`UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1 WHERE id = 1`)
	d.Exec(`UPDATE belfry.jobs SET status = 'FAILED', last_error = 'disk on fire' WHERE id = 1`)
	require.NoError(t, d.Run("abort", "group", "1", "recall", "on", "reason", "oops"))
	require.Equal(t, "job 1 (inbox) FAILED; retry from its cursor: `belfry retry 1`\n"+
		"job 2 (push) ABORTED; continue from its cursor: `belfry resume 2`\n"+
		"job 1 (inbox): 0 notifications withdrawn, 0 read before; 0 messages cancelled, 0 sent, 0 dead\n"+
		"job 2 (push): 0 notifications withdrawn, 0 read before; 0 messages cancelled, 0 sent, 0 dead\n", d.Out)
	var acted struct {
		Jobs []struct {
			ID     int64
			Recall *struct{ Messages int64 }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(d.JSON), &acted))
	require.Len(t, acted.Jobs, 2)
	for i, j := range acted.Jobs {
		require.EqualValues(t, i+1, j.ID)
		require.NotNil(t, j.Recall)
	}
	require.NoError(t, d.Run("jobs events", "id", "2"))
	require.Regexp(t, `aborted +ann@host +.*oops\n`, d.Out)

	err := d.Run("abort", "group", "1")
	var wrong *job.WrongStatusError
	require.ErrorAs(t, err, &wrong)
}

// A job that is over is not stopped: only what is in notification centres can be taken back.
func TestAbort_NamesTheRecallForNotificationsAlone(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	const recall = "withdraws unread notifications"
	for group, types := range []string{"push", "push,push", "inbox,push"} {
		ids := strings.Split(types, ",")
		for i, kind := range ids {
			ids[i] = d.One(fmt.Sprintf(`INSERT INTO belfry.jobs (type, category, title, lane, group_id)
				VALUES ('%s', 'operator_notice', 'Hello', 'lane%d', '00000000-0000-4000-8000-00000000000%d') RETURNING id::text`, kind, i, group))
			id, err := strconv.ParseInt(ids[i], 10, 64)
			require.NoError(t, err)
			d.Stands(id, "PROCESSED")
			d.Exec(`UPDATE belfry.jobs SET delivered_at = now() WHERE id = ` + ids[i])
			err = d.Run("abort", "id", ids[i])
			require.ErrorContains(t, err, "is PROCESSED and has no message left to send")
			require.Equal(t, kind == "inbox", strings.Contains(err.Error(), recall), err)
		}
		err := d.Run("abort", "group", ids[0])
		require.ErrorContains(t, err, "has no message left to send")
		require.Equal(t, types == "inbox,push", strings.Contains(err.Error(), recall), err)
	}
}

// What is acted on one by one is told, though others could not be.
func TestAbort_TellsThoseThatItStopped(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Enqueue("push")
	o, in := d.Input("abort", "id", "99")
	require.NoError(t, admintest.Set(t, o, in, "id", "1"))
	out, err := o.Run(t.Context(), d.Env, in)
	require.ErrorIs(t, err, job.ErrNotFound)
	require.EqualError(t, err, "job 99: no such job; `belfry jobs list` lists the jobs")
	var page bytes.Buffer
	(&text.Terminal{Output: &page}).Show(func(d *text.Doc) { o.Text(d, in, out) })
	require.Equal(t, "job 1 (push) ABORTED; continue from its cursor: `belfry resume 1`\n", page.String())
}

// Jobs that are over by the time of an abort of several do not fail it.
func TestAbort_OfSeveralCountsThoseThatAreOver(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	big(d, 600)
	d.Exec(`UPDATE belfry.jobs SET status = 'EXPIRED' WHERE id IN (7, 8)`)
	ids := make([]string, 0, 2*600)
	for id := range 600 {
		ids = append(ids, "id", strconv.Itoa(id+1))
	}
	var steps []string
	d.Env.Progress = func(line string) { steps = append(steps, line) }
	require.NoError(t, d.Run("abort", ids...))
	require.Equal(t, []string{"500 of 600 jobs aborted, 2 over already, 98 left"}, steps, "in steps")
	require.Equal(t, "598", having(d, "ABORTED"))
	require.EqualValues(t, 598, d.Receipt().Concerned)
	require.NotContains(t, d.Out, "EXPIRED")
	require.ErrorAs(t, d.Run("abort", ids...), new(*job.WrongStatusError))
	require.Equal(t, "598", d.One(`SELECT count(*)::text FROM belfry.job_events WHERE kind = 'aborted'`))
}

// The stopped jobs of a group are corrected; the others stay as they are.
func TestResume_CorrectsTheJobsOfAGroupThatAreStopped(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Enqueue("inbox,push")
	require.NoError(t, d.Run("abort", "id", "2"))
	err := d.Run("resume", "group", "1", "edit", "on", "title", " ")
	var bad *operation.InvalidError
	require.ErrorAs(t, err, &bad)
	require.ErrorContains(t, err, "title: is blank; allowed values: texts of 1 to 200 characters")
	require.Empty(t, d.Out)
	require.NoError(t, d.Run("resume", "group", "1", "edit", "on", "title", "Corrected", "platform", "ios"))
	require.Equal(t, "job 1 (inbox) PENDING\njob 2 (push) PENDING\n", d.Out)
	for id, title := range map[string]string{"1": "Hello", "2": "Corrected"} {
		require.NoError(t, d.Run("jobs show", "id", id))
		require.Regexp(t, `(?m)^title +`+title+`$`, d.Out)
	}
	err = d.Run("resume", "group", "1", "edit", "on", "title", "Again")
	var wrong *job.WrongStatusError
	require.ErrorAs(t, err, &wrong)
}

// A moment from now is from the clock of the process; without --at, --expires-in is, too.
func TestEnqueue_TimesAreFromTheProcessesClock(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Env.Now = func() time.Time { return admintest.Noon().AddDate(10, 0, 0) } // ahead of the database's
	d.Enqueue("push", "at", "+1h", "deliver_at", "+2h", "expires_in", "30m")
	d.Enqueue("push", "expires_in", "30m")
	for id, want := range map[string][3]string{
		"1": {"2036-11-20T13:00:00Z", "2036-11-20T14:00:00Z", "2036-11-20T13:30:00Z"},
		"2": {"", "", "2036-11-20T12:30:00Z"},
	} {
		require.NoError(t, d.Run("jobs show", "id", id))
		var j struct {
			ScheduleAt time.Time  `json:"schedule_at"`
			DeliverAt  *time.Time `json:"deliver_at"`
			ExpiresAt  *time.Time `json:"expires_at"`
		}
		require.NoError(t, json.Unmarshal([]byte(d.JSON), &j))
		if want[0] != "" {
			require.Equal(t, want[0], j.ScheduleAt.UTC().Format(time.RFC3339))
			require.Equal(t, want[1], j.DeliverAt.UTC().Format(time.RFC3339))
		}
		require.Equal(t, want[2], j.ExpiresAt.UTC().Format(time.RFC3339))
	}
	for _, given := range [][]string{{"at", "+1h", "deliver_at", "+30m"}, {"at", "+1h", "expires_at", "+1h"}, {"expires_at", "+1h", "expires_in", "1h"}} {
		err := d.Run("enqueue", append([]string{"type", "push", "category", "operator_notice", "title", "Hello", "everyone", "on"}, given...)...)
		require.ErrorAs(t, err, new(*operation.InvalidError), given)
	}
}

// A time that is over is asked about, unless nothing would be enqueued.
func TestEnqueue_AsksAboutATimeThatIsOver(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	for _, test := range []struct {
		given []string
		asks  bool
	}{
		{nil, false},
		{[]string{"at", "2026-11-20T11:59:30Z"}, false},
		{[]string{"at", "2026-11-20T11:00:00Z"}, true},
		{[]string{"at", "2026-11-20T11:00:00Z", "preview", "on"}, false},
		{[]string{"at", "+1h"}, false},
	} {
		o, in := d.Input("enqueue", test.given...)
		q, err := o.Confirm(t.Context(), d.Env, in)
		require.NoError(t, err)
		require.Equal(t, test.asks, q != operation.Question{}, test.given)
		if test.asks {
			require.Equal(t, "--at "+text.LocalClock(admintest.Noon().Add(-time.Hour))+" is 1h00m ago: the job would start at once", q.Why)
		}
	}
}

// Beyond a thousand channels their number is to be typed.
func TestEnqueue_AsksForTheNumberOfMany(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	asked := func() int64 {
		t.Helper()
		o, in := d.Input("enqueue", "at", "2026-11-20T11:00:00Z", "everyone", "on")
		q, err := o.Confirm(t.Context(), d.Env, in)
		require.NoError(t, err)
		require.NotEmpty(t, q.Text)
		return q.Count
	}
	d.Exec(`INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, 1000) n`)
	require.Zero(t, asked())
	d.Exec(`INSERT INTO belfry.channels (external_id, platform) VALUES ('one more', 'ios')`)
	require.EqualValues(t, 1001, asked())
}

// What the database refuses is a matter of the parameter that gave it.
func TestEnqueue_NamesTheParameterThatTheDatabaseRefused(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	for _, test := range []struct{ param, text, want, begins string }{
		{"category", "likes", "category", "'likes' is not a category; allowed values: "},
		{"platform", "windows", "platform", "'windows' is not a platform; allowed values: "},
		{"variants", `{"ko": {"titel": "x"}}`, "variants", "ko.titel: is not allowed; allowed keys: title, body"},
		{"expires_at", "2020-01-01T00:00:00Z", "expires_at", ""},
		{"lane", "Night Shift", "lane", ""},
	} {
		o, in := d.Input("enqueue", "type", "push", "title", "Hello", test.param, test.text)
		if test.param != "platform" {
			require.NoError(t, admintest.Set(t, o, in, "everyone", "on"))
		}
		if test.param != "category" {
			require.NoError(t, admintest.Set(t, o, in, "category", "operator_notice"))
		}
		_, err := o.Run(t.Context(), d.Env, in)
		var bad *operation.InvalidError
		require.ErrorAs(t, err, &bad, test.param)
		require.Equal(t, test.want, bad.Problems[0].Param)
		require.Contains(t, bad.Problems[0].Text, test.begins)
	}
}

// A page that looked at as many as it may says so, has the next one beside it, and is not the end.
func TestLists_AreBoundedWhereFewPass(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	dbtest.Past(t, d.DB.Pool, `INSERT INTO belfry.jobs (id, type, category, title, lane, route)
		SELECT g, CASE WHEN g % 2 = 0 THEN 'inbox' ELSE 'push' END, 'operator_notice', 'x', CASE WHEN g % 2 = 0 OR g = 1 THEN 'night' ELSE 'day' END, '{}' FROM generate_series(1, 2200) g`)
	require.NoError(t, d.Run("jobs list", "lane", "night", "type", "push", "limit", "5"))
	require.Equal(t, "no entry of this page matches the filters\n", d.Out)
	require.Equal(t, "[]", d.JSON)
	require.Contains(t, d.Notes, "there are more: --before 201 shows the next page")
	require.NoError(t, d.Run("jobs list", "lane", "night", "type", "push", "limit", "5", "before", "201"))
	require.Contains(t, d.Out, "\n 1 ")
	require.Empty(t, d.Notes)

	dbtest.Past(t, d.DB.Pool, `INSERT INTO belfry.message_rows (job_id, channel_id, status, reason, next_attempt_at)
		SELECT 2, g, 'DEAD', 'permanent', now() FROM generate_series(1, 3200) g`)
	require.NoError(t, d.Run("dead-letters list", "dead_reason", "exhausted"))
	require.Equal(t, "no entry of this page matches the filters\n", d.Out)
	require.Contains(t, d.Notes, "there are more: --before 2:1200 shows the next page")
	require.NoError(t, d.Run("dead-letters list", "dead_reason", "exhausted", "before", "2:1200"))
	require.Equal(t, "no more dead letters\n", d.Out)
}

// What is many is counted to 10,000.
func TestLists_CountTo10000(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	dbtest.Past(t, d.DB.Pool, `INSERT INTO belfry.jobs (id, type, category, title, lane, route)
		SELECT g, 'inbox', 'operator_notice', 'x', CASE WHEN g <= 10000 THEN 'day' ELSE 'night' END, '{}' FROM generate_series(1, 20001) g`)
	require.NoError(t, d.Run("lanes list"))
	require.Regexp(t, `(?m)^day +open +- +10,000 +0`, d.Out)
	require.Regexp(t, `(?m)^night +open +- +10,000\+ +0`, d.Out)

	dbtest.Past(t, d.DB.Pool, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, push) SELECT 1, g, now(), 'QUEUED', 1 FROM generate_series(1, 10002) g`)
	require.NoError(t, d.Run("transport status"))
	require.Regexp(t, `(?m)^bulk +10,000\+ +no relay`, d.Out)
	require.Contains(t, d.JSON, `"queued":10001,`)
	require.Contains(t, fmt.Sprint(d.Examined().Findings), "10,000+ messages of the queue bulk are QUEUED for ")
}

// Plans of all that is queued count all of it.
func TestPlan_OfWhatIsQueuedIsExact(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`INSERT INTO belfry.queues (name, transport, dispatcher, leads_until) SELECT n, 'memory', 'r1', now() FROM unnest('{activities,bulk}'::text[]) n`)
	dbtest.Past(t, d.DB.Pool, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, push) SELECT 1, g, now(), 'QUEUED', 1 FROM generate_series(1, 10002) g`)
	for act, done := range map[string]string{"transport drain": "taken back", "transport rebuild": "pushed again"} {
		p, other := d.Planned(act), int64(10_001)
		require.EqualValues(t, 10_002, p.Count)
		require.ErrorContains(t, d.Run(act, "plan", admintest.Retoken(t, p.Token, &other, nil)), "10,002 messages would be "+done)
	}
	require.NoError(t, d.Run("transport rebuild", admintest.As(d.Planned("transport rebuild"))...))
	require.EqualValues(t, 10_002, d.Receipt().Concerned)
	require.NoError(t, d.Run("transport drain", admintest.As(d.Planned("transport drain"))...))
	require.EqualValues(t, 10_002, d.Receipt().Concerned)
}

// Of an ABORTED job an operator reads first who stopped it last, and why.
func TestJobsShow_SaysWhoAborted(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	id := d.Member()
	d.Exec(`SELECT belfry.abort(` + id + `, 'ann', 'too early')`)
	d.Exec(`SELECT belfry.resume(` + id + `)`)
	require.NoError(t, d.Run("jobs show", "id", id))
	require.NotContains(t, d.Out, "aborted")
	d.Exec(`SELECT belfry.abort(` + id + `, 'kim', 'wrong text')`)
	require.NoError(t, d.Run("jobs show", "id", id))
	require.Regexp(t, `(?m)^status +ABORTED; .*\naborted +\S+ \S+ by kim: wrong text$`, d.Out)
}

// The list shows that a job is over whose messages are dead letters.
func TestJobsList_CountsDeadLetters(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Enqueue("push")
	require.NoError(t, d.Run("jobs list"))
	require.NotContains(t, d.Out, "dead")
	d.Exec(`INSERT INTO belfry.job_deliveries (job_id, relay, written, dead) VALUES (1, 'r', 1200, 1200)`)
	require.NoError(t, d.Run("jobs list"))
	require.Regexp(t, `(?m)^ *1 +PENDING 1,200 dead +push `, d.Out)
}

// Runs that were lost are shown where there are any: not the attempts of a job that went well.
func TestJobsShow_CountsTheRunsThatWereLost(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	for attempts, lost := range []string{"", "", "1 before the last one", "2 before the last one"} {
		id := d.Member()
		d.Exec(fmt.Sprintf(`UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, attempts = %d WHERE id = %s`, attempts, id))
		require.NoError(t, d.Run("jobs show", "id", id))
		if lost == "" {
			require.NotRegexp(t, `(?m)^(attempts|runs lost) `, d.Out)
		} else {
			require.Regexp(t, `(?m)^runs lost +`+lost+`$`, d.Out)
		}
	}
}

// What limits a walk that is over is stored, and said to change nothing.
func TestJobsSet_SaysThatTheWalkIsOver(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Enqueue("push")
	require.NoError(t, d.Run("jobs set", "id", "1", "max_rows_per_second", "500"))
	require.NotContains(t, d.Notes, "no effect")
	d.Stands(1, "PROCESSED")
	require.NoError(t, d.Run("jobs set", "id", "1", "max_rows_per_second", "400"))
	require.Contains(t, d.Notes, "job 1 is PROCESSED: settings of the walk have no effect any more\n")
	require.NoError(t, d.Run("jobs set", "id", "1", "priority", "5"))
	require.NotContains(t, d.Notes, "no effect")
}
