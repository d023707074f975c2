package job_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

var second = job.Act{Actor: "lee", Reason: "read it"}

func (b *bundle) awaits(t tester, id int64) bool {
	t.Helper()
	return one[bool](t, b, `SELECT awaits_approval FROM belfry.jobs WHERE id = $1`, id)
}

// Nobody is counted when a job is enqueued: what it says it reaches at most is compared, its
// category's ceiling included.
func TestApproval_IsDemandedByTheCategoryAboveItsNumber(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.exec(t, `INSERT INTO belfry.categories (name, max_recipients, approval_above) VALUES
		('free', NULL, NULL), ('each', NULL, 0), ('many', NULL, 100), ('low', 100, 100), ('high', 101, 100)`)
	for _, c := range []struct {
		category string
		most     *int
		asks     bool
		want     bool
	}{
		{"free", nil, false, false}, {"free", nil, true, true}, {"free", most(5), true, true},
		{"each", nil, false, true}, {"each", most(1), false, true},
		{"many", nil, false, true}, {"many", most(100), false, false}, {"many", most(101), false, true}, {"many", most(100), true, true},
		{"low", nil, false, false}, {"low", most(101), false, true}, {"high", nil, false, true},
	} {
		id := b.enqueue(t, job.Spec{Category: c.category, MaxRecipients: c.most, NeedsApproval: c.asks})
		j, err := b.jobs.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, c.want, j.NeedsApproval, "%+v", c)
		require.Equal(t, c.want, j.AwaitsApproval(), "%+v", c)
		if c.want {
			require.Equal(t, j.CreatedAt, *j.AwaitsApprovalSince)
		}
	}
	_, err := b.db.Pool.Exec(t.Context(), `UPDATE belfry.categories SET approval_above = -1 WHERE name = 'free'`)
	require.ErrorContains(t, err, "belfry.categories.approval_above: -1 is not allowed; allowed values: null (no job needs approval), 0 (each does) to 2000000000")

	// What needs approval keeps needing it, and what may reach more is measured again.
	id := b.enqueue(t, job.Spec{Category: "many", MaxRecipients: most(100)})
	b.exec(t, `UPDATE belfry.jobs SET max_recipients = 200 WHERE id = $1`, id)
	require.True(t, b.awaits(t, id))
	b.exec(t, `UPDATE belfry.jobs SET max_recipients = 10 WHERE id = $1`, id)
	b.exec(t, `UPDATE belfry.categories SET approval_above = NULL`)
	b.exec(t, `UPDATE belfry.jobs SET title = 'other' WHERE id = $1`, id)
	require.True(t, b.awaits(t, id))
	_, err = b.db.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET needs_approval = false WHERE id = $1`, id)
	require.ErrorContains(t, err, fmt.Sprintf("belfry.jobs.needs_approval: job %d needs approval; allowed values: true", id))
}

// A job whose audience doubles after its approval stops at what was approved, and waits for
// another approval when it is resumed.
func TestApproval_IsForSoManyAndNoMore(t *testing.T) {
	t.Parallel()
	b := setup(t, 400)
	id := b.enqueue(t, job.Spec{NeedsApproval: true, RequestedBy: "kim"})
	require.Empty(t, b.runDue(t, b.runner(t, "r")).Jobs, "nobody takes it")
	require.Equal(t, "PENDING", one[string](t, b, `SELECT status FROM belfry.jobs WHERE id = $1`, id))
	j, err := b.jobs.Approve(t.Context(), id, 200, second)
	require.NoError(t, err)
	require.Equal(t, []any{"lee", 200, 210, false}, []any{j.ApprovedBy, *j.ApprovedCount, *j.ApprovedRecipients, j.AwaitsApproval()})
	require.EqualValues(t, job.MostApproved(200), *j.ApprovedRecipients)
	b.runDue(t, b.runner(t, "r"))
	s := b.state(t, id)
	require.Equal(t, job.Aborted, s.Status)
	require.Equal(t, everyone(200), s.Rows, "no committed state has more rows than were approved")
	require.Equal(t, fmt.Sprintf("it is approved for 210: 200 rows are written and the next chunk has 100; after `belfry resume %d` it waits for another approval", id), s.LastError)

	_, err = b.jobs.Resume(t.Context(), job.One(id), job.Act{Actor: "kim"})
	require.NoError(t, err)
	require.Empty(t, b.runDue(t, b.runner(t, "r")).Jobs)
	_, err = b.jobs.Approve(t.Context(), id, 200, second) // the other two hundred
	require.NoError(t, err)
	b.runDue(t, b.runner(t, "r"))
	b.requireDone(t, id, everyone(400))
	require.Equal(t, []string{"enqueued", "approved", "claimed", "aborted", "changed", "resume_requested", "approved", "claimed", "finished"}, b.kinds(t, id))
	require.JSONEq(t, `{"approved_by": "lee", "approved_count": 200, "approved_recipients": 210}`,
		one[string](t, b, `SELECT (detail -> 'after')::text FROM belfry.job_events WHERE job_id = $1 AND kind = 'approved' ORDER BY id LIMIT 1`, id))
}

// For each number of recipients Go and SQL tell the same ceiling.
func TestApproval_CeilingIsTheSameInGo(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.enqueue(t, job.Spec{NeedsApproval: true, RequestedBy: "kim"})
	for _, n := range []int64{1, 2, 19, 20, 21, 39, 40, 41, 999, 1000, 1001, 1_000_000} {
		j, err := b.jobs.Approve(t.Context(), id, int(n), second)
		require.NoError(t, err)
		require.EqualValues(t, job.MostApproved(n), *j.ApprovedRecipients, n)
		b.exec(t, `UPDATE belfry.jobs SET approved_count = NULL WHERE id = $1`, id)
		require.True(t, b.awaits(t, id), "who may approve takes it back as well")
	}
	for _, bad := range []string{"0", "-1", "2000000001"} {
		_, err := b.db.Pool.Exec(t.Context(), `SELECT belfry.approve($1, $2::integer, 'lee')`, id, bad)
		require.ErrorContains(t, err, "belfry.jobs.approved_count: "+bad+" is not allowed; allowed values: 1 to 2000000000")
	}
	_, err := b.db.Pool.Exec(t.Context(), `SELECT belfry.approve($1, NULL, 'lee')`, id)
	require.ErrorContains(t, err, "belfry.jobs.approved_count: is required")
}

// Who had a hand in what a job says does not approve it, by whatever name they are known.
func TestApproval_IsNotByWhoHadAHandInIt(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.enqueue(t, job.Spec{NeedsApproval: true, RequestedBy: "kim"})
	set := func(column string, to any, by string) {
		_, err := b.jobs.Set(t.Context(), id, job.Changes{column: to}, job.Act{Actor: by})
		require.NoError(t, err)
	}
	set("title", "Corrected", "max")
	set("body", "Corrected", "eva") // the last one
	set("priority", 5, "pat")       // no hand in what it says
	b.exec(t, `UPDATE belfry.jobs SET requested_by = 'nobody' WHERE id = $1`, id)
	for _, who := range []string{"kim", "KIM", "max", "eva", "nobody", ""} {
		_, err := b.jobs.Approve(t.Context(), id, 10, job.Act{Actor: who})
		var own *job.OwnJobError
		require.ErrorAs(t, err, &own, who)
		require.Equal(t, job.OwnJobError{JobID: id, Actor: who}, *own)
		require.True(t, b.awaits(t, id))
	}
	_, err := b.db.Pool.Exec(t.Context(), `SELECT belfry.approve($1, 10)`, id)
	require.ErrorContains(t, err, "belfry.jobs.approved_by: 'postgres' enqueued or changed job", "who is logged in counts as well")
	for _, sql := range []string{`SELECT belfry.approve($1, 10, 'pat')`, `SELECT belfry.approve($1, 10, 'Postgres ')`, `SELECT belfry.approve($1, 10, ' max')`} {
		_, err = b.db.Pool.Exec(t.Context(), sql, id)
		require.ErrorContains(t, err, "enqueued or changed job", "another name, or blanks around it: "+sql)
	}
	_, err = b.jobs.Approve(t.Context(), id, 10, job.Act{Actor: "pat"})
	require.NoError(t, err)

	// Of a schedule's job it is who wrote the schedule.
	b.exec(t, `SELECT belfry.act('kim', '')`) // its own transaction: nobody acts after it
	b.exec(t, `WITH a AS MATERIALIZED (SELECT belfry.act('kim', '')) INSERT INTO belfry.events (subject, name, kind, actor) SELECT 'schedule', 'daily', 'created', 'kim' FROM a`)
	b.exec(t, `UPDATE belfry.events SET detail = '{"session_user": "writer"}' WHERE subject = 'schedule' AND name = 'daily'`)
	id = b.enqueue(t, job.Spec{NeedsApproval: true, RequestedBy: "schedule daily"})
	_, err = b.jobs.Approve(t.Context(), id, 10, job.Act{Actor: "kim"})
	require.ErrorAs(t, err, new(*job.OwnJobError))
	_, err = b.jobs.Approve(t.Context(), id, 10, job.Act{Actor: "writer"})
	require.ErrorAs(t, err, new(*job.OwnJobError), "the login that wrote the schedule under another name")
	_, err = b.jobs.Approve(t.Context(), id, 10, second)
	require.NoError(t, err)
}

// An approval is of what the job says, and to whom, and when; not of how it is walked.
func TestApproval_IsVoidedByAnEdit(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	for column, c := range map[string]struct {
		to    any
		voids bool
	}{
		"category": {"popular_content", true}, "title": {"x", true}, "body": {"x", true}, "data": {map[string]int{"a": 1}, true},
		"variants": {map[string]any{"ko": map[string]string{"title": "x"}}, true}, "route": {[]string{"push", "sms"}, true},
		"audience": {map[string]any{"kind": "platforms", "platforms": []string{"ios"}}, true}, "schedule_at": {"2030-01-02T03:04:05Z", true}, "deliver_at": {"2040-01-02T03:04:05Z", true},
		"lane": {"other", false}, "priority": {7, false}, "expires_at": {"2040-01-02T03:04:05Z", false}, "max_recipients": {9, false},
		"max_rows_per_second": {9, false}, "duty_cycle": {0.5, false}, "chunk_target_ms": {9, false}, "max_chunk_rows": {9, false},
		"health_checks": {false, false}, "max_skips": {9, false},
	} {
		id := b.enqueue(t, job.Spec{Type: outbox.TypePush, NeedsApproval: true, RequestedBy: "kim"})
		_, err := b.jobs.Approve(t.Context(), id, 10, second)
		require.NoError(t, err)
		j, err := b.jobs.Set(t.Context(), id, job.Changes{column: c.to}, job.Act{Actor: "kim"})
		require.NoError(t, err)
		require.Equal(t, c.voids, j.AwaitsApproval(), column)
		require.Equal(t, c.voids, j.ApprovedAt == nil, column)
		if !c.voids {
			continue
		}
		require.True(t, j.AwaitsApprovalSince.After(j.CreatedAt), column)
		require.Equal(t, "lee", one[string](t, b, `SELECT detail #>> '{before,approved_by}' FROM belfry.job_events WHERE job_id = $1 ORDER BY id DESC LIMIT 1`, id), "what it was is kept")
		_, err = b.jobs.Approve(t.Context(), id, 10, second)
		require.NoError(t, err, column)
		_, err = b.jobs.Set(t.Context(), id, job.Changes{column: c.to}, job.Act{Actor: "kim"})
		require.NoError(t, err)
		require.False(t, b.awaits(t, id), "%s: it is so already", column)
	}
	id := b.enqueue(t, job.Spec{NeedsApproval: true, RequestedBy: "kim"})
	for statement, want := range map[string]string{
		`UPDATE belfry.jobs SET approved_count = 5, title = 'x' WHERE id = $1`:                                   "would be changed and approved at once",
		`UPDATE belfry.jobs SET approved_at = now(), approved_by = 'lee' WHERE id = $1`:                          "decides about the approval of job",
		`UPDATE belfry.jobs SET approved_recipients = 5 WHERE id = $1`:                                           "decides about the approval of job",
		`UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now() WHERE id = $1`: "waits for approval; allowed values now: PENDING, ABORTED",
		`UPDATE belfry.jobs SET awaits_approval = false WHERE id = $1`:                                           `column "awaits_approval" can only be updated to DEFAULT`,
	} {
		_, err := b.db.Pool.Exec(t.Context(), statement, id)
		require.ErrorContains(t, err, want)
	}
	_, err := b.jobs.Approve(t.Context(), id, 10, second)
	require.NoError(t, err)
	_, err = b.db.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET approved_count = 1000 WHERE id = $1`, id)
	require.ErrorContains(t, err, "is approved for 10; allowed values now: null")
}

// What is corrected while messages are left waits with them: they are sent when somebody else has
// read the new words.
func TestApproval_HoldsMessagesOfACorrectedJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 20)
	sendable := func(id int64) [2]int {
		return [2]int{
			one[int](t, b, `SELECT count(*) FROM belfry.sendable_messages WHERE job_id = $1`, id),
			one[int](t, b, `SELECT count(*) FROM belfry.sendable_jobs WHERE job_id = $1`, id),
		}
	}
	id := b.enqueue(t, job.Spec{Type: outbox.TypePush, NeedsApproval: true, RequestedBy: "kim"})
	_, err := b.jobs.Approve(t.Context(), id, 20, second)
	require.NoError(t, err)
	b.runDue(t, b.runner(t, "r"))
	require.Equal(t, [2]int{20, 1}, sendable(id))
	_, err = b.jobs.Abort(t.Context(), job.One(id), job.Act{Actor: "kim"})
	require.NoError(t, err)
	j, err := b.jobs.ResumeEdited(t.Context(), job.One(id), job.Changes{"title": "Corrected"}, job.Act{Actor: "kim"})
	require.NoError(t, err)
	require.Equal(t, job.Processed, j[0].Status)
	require.True(t, j[0].AwaitsApproval())
	require.Zero(t, sendable(id), "neither a message nor a job")
	_, err = b.jobs.Approve(t.Context(), id, 20, second)
	require.NoError(t, err)
	require.Equal(t, [2]int{20, 1}, sendable(id))

	// As it was, it goes on.
	_, err = b.jobs.Abort(t.Context(), job.One(id), job.Act{Actor: "kim"})
	require.NoError(t, err)
	_, err = b.jobs.Resume(t.Context(), job.One(id), job.Act{Actor: "kim"})
	require.NoError(t, err)
	require.Equal(t, [2]int{20, 1}, sendable(id))
}

// A job that waits is stopped and expires as any other, and is approved only while it waits.
func TestApproval_EndsWithTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 350)
	refused := func(id int64, want string) {
		t.Helper()
		_, err := b.jobs.Approve(t.Context(), id, 10, second)
		require.ErrorAs(t, err, new(*job.NotAwaitingError))
		require.EqualError(t, err, fmt.Sprintf(want, id))
	}
	id := b.enqueue(t, job.Spec{NeedsApproval: true})
	_, err := b.jobs.Abort(t.Context(), job.One(id), job.Act{Actor: "kim"})
	require.NoError(t, err)
	refused(id, "job %d is ABORTED and does not wait for approval; resume or retry it first")
	_, err = b.db.Pool.Exec(t.Context(), `SELECT belfry.approve($1, 10, 'lee')`, id)
	require.ErrorContains(t, err, "is ABORTED and waits for no approval; allowed values now: null")
	_, err = b.jobs.Resume(t.Context(), job.One(id), job.Act{Actor: "kim"})
	require.NoError(t, err)
	require.True(t, b.awaits(t, id))
	_, err = b.jobs.Approve(t.Context(), id, 1000, second)
	require.NoError(t, err)
	refused(id, "job %d is already approved by lee")
	refused(b.enqueue(t, job.Spec{Lane: "b"}), "job %d needs no approval")

	late := b.enqueue(t, job.Spec{NeedsApproval: true, Lane: "c"})
	dbtest.Past(t, b.db.Pool, `UPDATE belfry.jobs SET schedule_at = now() - interval '2 hours', expires_at = now() - interval '1 hour' WHERE id = $1`, late)

	// While it runs it does not come to need another approval.
	g := b.gate(job.PointWritten, 2)
	s := b.start(t, b.runner(t, "r", job.WithFailpoint(g.at)))
	g.await(t)
	for statement, want := range map[string]string{
		`UPDATE belfry.jobs SET approved_count = NULL WHERE id = $1`:   "approved_count: job %d is RUNNING and would need approval; allowed changes: none",
		`UPDATE belfry.jobs SET requested_by = 'other' WHERE id = $1`:  "requested_by: job %d is RUNNING and would need approval; allowed changes: none",
		`UPDATE belfry.jobs SET title = 'other' WHERE id = $1`:         "title: job %d is RUNNING; allowed changes: none",
		`UPDATE belfry.jobs SET approved_recipients = 5 WHERE id = $1`: "approved_count: decides about the approval of job %d alone",
	} {
		_, err := b.db.Pool.Exec(t.Context(), statement, id)
		require.ErrorContains(t, err, fmt.Sprintf("belfry.jobs."+want, id), statement)
	}
	b.exec(t, `UPDATE belfry.jobs SET schedule_at = now(), priority = 3 WHERE id = $1`, id)
	g.release(nil)
	s.wait(t)
	b.requireDone(t, id, everyone(350))
	require.Equal(t, "EXPIRED", one[string](t, b, `SELECT status FROM belfry.jobs WHERE id = $1`, late))
	refused(late, "job %d is EXPIRED and does not wait for approval; resume or retry it first")
}

// Who may only enqueue, and abort and resume, approves nothing, by no way.
func TestApproval_CannotBeForgedByWhoMayEnqueue(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.exec(t, `UPDATE belfry.categories SET approval_above = 0 WHERE name = 'operator_notice'`)
	role := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`, `GRANT SELECT, UPDATE (abort_requested, status) ON belfry.jobs TO :role`)
	try := func(sql string, args ...any) error {
		_, err := role.Pool.Exec(t.Context(), sql, args...)
		return err
	}
	insert := func(columns, values string) error {
		return try(`INSERT INTO belfry.jobs (type, category, title, ` + columns + `) VALUES ('inbox', 'operator_notice', 'x', ` + values + `)`)
	}
	for columns, values := range map[string]string{
		"approved_count": "10", "approved_recipients": "10", "approved_at": "now()", "approved_by": "'lee'", "unapproved_at": "now()",
		"approved_count, approved_recipients, approved_at, approved_by": "10, 11, now(), 'lee'",
	} {
		err := insert(columns, values)
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, columns)
		require.Equal(t, "23514", refused.Code, columns)
		require.Contains(t, refused.Message, "belongs to belfry; allowed values for a new job: none, leave it out", columns)
	}
	require.ErrorContains(t, insert("awaits_approval", "false"), `cannot insert a non-DEFAULT value into column "awaits_approval"`)
	require.NoError(t, insert("needs_approval", "false"), "its category says otherwise")
	id := one[int64](t, b, `SELECT max(id) FROM belfry.jobs`)
	require.True(t, b.awaits(t, id))

	for _, sql := range []string{
		`UPDATE belfry.jobs SET approved_count = 10 WHERE id = $1`,
		`UPDATE belfry.jobs SET needs_approval = false WHERE id = $1`,
		`UPDATE belfry.jobs SET max_recipients = 1 WHERE id = $1`,
		`UPDATE belfry.jobs SET abort_requested = false, approved_count = 10 WHERE id = $1`,
		`SELECT FROM belfry.approve($1, 10)`,
		`SELECT FROM belfry.approve($1, 10, 'lee', 'forged')`,
		`SELECT FROM belfry.job_hands($1)`,
		`SELECT (belfry.jobs_approve(j, j)).id FROM belfry.jobs j WHERE j.id = $1`,
		`INSERT INTO belfry.job_events (job_id, kind, actor) VALUES ($1, 'approved', 'lee')`,
		`UPDATE belfry.categories SET approval_above = NULL WHERE $1 > 0`,
	} {
		require.ErrorContains(t, try(sql, id), "permission denied", sql)
	}
	writer := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`, `GRANT SELECT, UPDATE (approved_count) ON belfry.jobs TO :role`)
	_, err := writer.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, needs_approval, requested_by) VALUES ('push', 'operator_notice', 'mine', true, 'ceo')`)
	require.NoError(t, err)
	_, err = writer.Pool.Exec(t.Context(), `WITH login AS MATERIALIZED (SELECT set_config('belfry.acts_for', 'zed', true) AS name)
		SELECT a.note FROM login, belfry.jobs j, LATERAL belfry.approve(j.id, 1, login.name) a WHERE j.title = 'mine'`)
	require.ErrorContains(t, err, "belfry.jobs.approved_by: '"+writer.User+"' enqueued or changed job", "whatever it says whom it acts for")
	// Another login approves it in the name of neither, however the name is written.
	other := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, UPDATE (approved_count) ON belfry.jobs TO :role`)
	_, err = writer.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, needs_approval, requested_by) VALUES ('push', 'operator_notice', 'blanks', true, ' Kim ')`)
	require.NoError(t, err)
	for _, who := range []string{"kim", " KIM", "kim  ", writer.User, " " + writer.User} {
		_, err = other.Pool.Exec(t.Context(), `SELECT belfry.approve(id, 1, $1) FROM belfry.jobs WHERE title = 'blanks'`, who)
		require.ErrorContains(t, err, "enqueued or changed job", who)
	}
	_, err = other.Pool.Exec(t.Context(), `SELECT belfry.approve(id, 1, 'zed') FROM belfry.jobs WHERE title = 'blanks'`)
	require.NoError(t, err)
	b.exec(t, `SELECT belfry.abort(id) FROM belfry.jobs WHERE title = 'blanks'`)
	require.ErrorContains(t, try(`SELECT belfry.act('lee', 'forged'); UPDATE belfry.jobs SET approved_count = 10 WHERE id = `+textOf(id)), "permission denied")
	require.NoError(t, try(`SELECT FROM belfry.abort($1, 'lee')`, id))
	require.NoError(t, try(`SELECT FROM belfry.resume($1, 'lee')`, id))
	require.True(t, b.awaits(t, id), "what is stopped and goes on waits as before")
	approver := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT SELECT, UPDATE (approved_count) ON belfry.jobs TO :role`)
	_, err = approver.Pool.Exec(t.Context(), `SELECT FROM belfry.approve($1, 10)`, id)
	require.NoError(t, err, "that much is enough for who may")
	require.Equal(t, approver.User, one[string](t, b, `SELECT approved_by FROM belfry.jobs WHERE id = $1`, id))
	b.exec(t, `UPDATE belfry.jobs SET approved_count = NULL WHERE id = $1`, id)
	require.Empty(t, b.runDue(t, b.runner(t, "r")).Jobs)
}

// An act binds to the version that was seen: what was changed since is not approved.
func TestApproval_BindsToTheVersionThatWasSeen(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.enqueue(t, job.Spec{NeedsApproval: true, RequestedBy: "kim"})
	_, err := b.jobs.Set(t.Context(), id, job.Changes{"title": "Read this"}, job.Act{Actor: "kim"})
	require.NoError(t, err)
	seen := one[int64](t, b, `SELECT belfry.job_version($1)`, id)
	j, err := b.jobs.Set(t.Context(), id, job.Changes{"title": "Not this"}, job.Act{Actor: "kim"})
	require.NoError(t, err)
	_, err = b.db.Pool.Exec(t.Context(), `SELECT belfry.approve($1, 10, 'lee', 'read', $2)`, id, seen)
	require.ErrorContains(t, err, fmt.Sprintf("belfry.jobs.version: job %d has version %d and was changed since %d", id, j.Version, seen))
	second := second
	second.If = &job.Precondition{Subject: "job", Name: textOf(id), Versions: []int64{seen}}
	_, err = b.jobs.Approve(t.Context(), id, 10, second)
	require.ErrorAs(t, err, new(*db.StaleError))
	require.True(t, b.awaits(t, id))
	require.Equal(t, "approved for 10; no more than 11 rows are written", one[string](t, b, `WITH login AS MATERIALIZED (SELECT set_config('belfry.acts_for', 'lee', true) AS name) SELECT a.note FROM login, LATERAL belfry.approve($1, 10, login.name, 'read', $2) a`, id, j.Version))
	require.Equal(t, "it is approved already, by lee", one[string](t, b, `SELECT note FROM belfry.approve($1, 10, 'eva')`, id))
	require.Zero(t, one[int](t, b, `SELECT count(*) FROM belfry.approve(987654, 10, 'lee')`))
}

// Runners, a second person and an editor meet at one job, many times: whatever is claimed was
// approved as it is.
func TestApproval_ClaimMeetsApprovalMeetsEdit(t *testing.T) {
	t.Parallel()
	b := setup(t, 30)
	id := b.enqueue(t, job.Spec{NeedsApproval: true, RequestedBy: "kim"})
	ctx := t.Context()
	going, stop := context.WithCancel(ctx) // ends no statement: one that is cut may still commit, after what is counted
	happened := func(kind string) int {
		return one[int](t, b, `SELECT count(*) FROM belfry.job_events WHERE job_id = $1 AND kind = $2`, id, kind)
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	again := func(act func(n int) error) {
		workers.Go(func() {
			for n := 0; ; n++ {
				err := act(n)
				var refused *job.InvalidError
				var wrong *job.WrongStatusError
				var none *job.NotAwaitingError
				if err != nil && !errors.As(err, &refused) && !errors.As(err, &wrong) && !errors.As(err, &none) {
					t.Errorf("%v", err)
				}
				pause := time.NewTimer(time.Duration(rand.IntN(2000)) * time.Microsecond)
				select {
				case <-pause.C:
				case <-going.Done():
					return
				}
			}
		})
	}
	again(func(int) error { _, err := b.jobs.Approve(ctx, id, 30, second); return err })
	again(func(n int) error {
		_, err := b.jobs.Set(ctx, id, job.Changes{"title": fmt.Sprintf("edit %d", n)}, job.Act{Actor: "kim"})
		return err
	})
	claim := func(int) error { // and hands back, so that it can be edited again
		tag, err := b.db.Pool.Exec(ctx, `UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'r', heartbeat_at = now() WHERE id =
			(SELECT id FROM belfry.jobs WHERE status = 'PENDING' AND NOT awaits_approval AND id = $1 FOR UPDATE SKIP LOCKED)`, id)
		if err == nil && tag.RowsAffected() == 1 {
			_, err = b.db.Pool.Exec(ctx, `UPDATE belfry.jobs SET status = 'PENDING' WHERE id = $1 AND status = 'RUNNING'`, id)
		}
		return err
	}
	again(claim)
	again(claim)
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for range 600 { // on a busy machine a claim may be long in coming between an approval and an edit
		if <-look.C; happened("claimed") >= 5 && happened("changed") >= 20 {
			break
		}
	}
	stop()
	workers.Wait()
	claims := happened("claimed")
	require.NotZero(t, claims)
	require.NotZero(t, happened("changed"))
	require.Equal(t, claims, one[int](t, b, `SELECT count(*) FROM belfry.job_events c WHERE c.job_id = $1 AND c.kind = 'claimed'
		AND (SELECT e.kind FROM belfry.job_events e WHERE e.job_id = c.job_id AND e.id < c.id AND e.kind IN ('enqueued', 'changed', 'approved') ORDER BY e.id DESC LIMIT 1) = 'approved'`, id))
}

// Once whoever may not approve could split a job into many that are below the category's number.
func TestApproval_ManySmallJobsOfOneRequesterNeedIt(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.exec(t, `INSERT INTO belfry.categories (name, approval_above) VALUES ('many', 100)`)
	enqueuer := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`)
	other := b.db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`)
	var both sync.WaitGroup
	for i := range 40 {
		both.Go(func() {
			_, err := enqueuer.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, max_recipients, requested_by) VALUES ('inbox', 'many', 'x', 10, $1)`, fmt.Sprint("name ", i))
			if err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	free := func() int64 {
		return one[int64](t, b, `SELECT coalesce(sum(max_recipients), 0) FROM belfry.jobs WHERE NOT needs_approval`)
	}
	if n := free(); n != 100 && n != 200 { // 200: another clock hour began
		t.Fatalf("%d recipients without approval", n)
	}
	had := free()
	for _, zone := range []string{"<z>+00:01", "<z>+00:31", "Asia/Kathmandu"} {
		_, err := enqueuer.Pool.Exec(t.Context(), `SET timezone = '`+zone+`'; INSERT INTO belfry.jobs (type, category, title, max_recipients, requested_by) VALUES ('inbox', 'many', 'x', 10, 'x')`)
		require.NoError(t, err)
	}
	require.Equal(t, had, free(), "another time zone begins no other hour")
	_, err := other.Pool.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, max_recipients) VALUES ('inbox', 'many', 'x', 100)`)
	require.NoError(t, err)
	require.Equal(t, had+100, free(), "another login has its own sum")
}

// An operator who raised the jobs of many requesters was counted as each of them.
func TestApproval_RaisedJobsCountForTheOperator(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.exec(t, `INSERT INTO belfry.categories (name, approval_above) VALUES ('raised', 100)`)
	for i := range 4 {
		b.exec(t, `INSERT INTO belfry.jobs (type, category, title, max_recipients, requested_by) VALUES ('inbox', 'raised', 'x', 10, $1)`, fmt.Sprint("requester ", i))
	}
	b.exec(t, `SELECT belfry.set(id, '{"max_recipients": 100}', 'ann') FROM belfry.jobs ORDER BY id`)
	free := one[int](t, b, `SELECT sum(max_recipients - 10) FROM belfry.jobs WHERE NOT needs_approval`)
	require.Contains(t, []int{90, 180}, free, "180: another clock hour began")
}
