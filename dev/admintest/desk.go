// Package admintest gives the tests of operations a database and an operator who runs operations by name.
package admintest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/upcoming"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox/compose"
)

// Desk is an operator with a database, and the result of the last operation.
type Desk struct {
	T   *testing.T
	DB  *dbtest.DB
	Env *operation.Env

	Out, Notes string // of the text
	JSON       string
}

// NewDesk returns a desk with an empty database.
func NewDesk(t *testing.T) *Desk {
	t.Helper()
	db := dbtest.Reused(t, 10)
	recipients, err := channels.New(channels.Config{Relation: channels.DefaultRelation})
	require.NoError(t, err)
	return &Desk{T: t, DB: db, Env: &operation.Env{
		DB: db.Pool, Jobs: job.NewStore(db.Pool), Channels: recipients, Actor: "ann@host", Role: operation.Admin,
		Compose: operation.Compose(compose.DefaultConfig()), Now: Noon,
	}}
}

// As changes the operator of the desk.
func (d *Desk) As(actor string, role operation.Role) *Desk {
	d.Env.Actor, d.Env.Role = actor, role
	return d
}

// Examined returns the findings of the doctor.
func (d *Desk) Examined(given ...string) *doctor.Report {
	d.T.Helper()
	o, in := d.Input("doctor", given...)
	out, err := o.Run(d.T.Context(), d.Env, in)
	require.NoError(d.T, err)
	report, is := out.(*doctor.Report)
	require.True(d.T, is)
	return report
}

// Watch reads the stream of jobs and events while acts are done, one after each update, and returns its text.
func (d *Desk) Watch(acts []func(), given ...string) string {
	d.T.Helper()
	d.Env.Broadcaster = jobs.NewBroadcaster(50 * time.Millisecond)
	o, in := d.Input("jobs watch", append(given, "follow", "on")...)
	var out strings.Builder
	page, tell, looks := &text.Terminal{Output: &out}, o.Teller(in), 0
	_, err := o.Stream(d.T.Context(), d.Env, in, func(item any) error {
		page.Show(func(p *text.Doc) { tell(p, item) })
		if looks < len(acts) {
			acts[looks]()
		}
		if looks++; looks == len(acts)+3 {
			return ErrEnough
		}
		return nil
	})
	require.ErrorIs(d.T, err, ErrEnough)
	return out.String()
}

// One returns a single text.
func (d *Desk) One(statement string) (text string) {
	d.T.Helper()
	require.NoError(d.T, d.DB.Pool.QueryRow(d.T.Context(), statement).Scan(&text))
	return text
}

// Kept returns the rows that mention the third channel or its external id.
func (d *Desk) Kept() (list []string) {
	d.T.Helper()
	rows, err := d.DB.Pool.Query(d.T.Context(), `
SELECT t.what FROM (
    SELECT 'channels' AS what, to_jsonb(x) AS r FROM belfry.channels x UNION ALL SELECT 'opt_outs', to_jsonb(x) FROM belfry.opt_outs x
    UNION ALL SELECT 'invalid_addresses', to_jsonb(x) FROM belfry.invalid_addresses x
    UNION ALL SELECT 'segment_members', to_jsonb(x) FROM belfry.segment_members x
    UNION ALL SELECT 'messages', to_jsonb(x) FROM belfry.messages x UNION ALL SELECT 'attempts', to_jsonb(x) FROM belfry.attempts x
    UNION ALL SELECT 'notifications', to_jsonb(x) FROM belfry.notifications x UNION ALL SELECT 'inbox', to_jsonb(x) FROM belfry.inbox x
    UNION ALL SELECT 'activities', to_jsonb(x) FROM belfry.activities x UNION ALL SELECT 'job_values', to_jsonb(x) FROM belfry.job_values x
    UNION ALL SELECT 'jobs', to_jsonb(x) FROM belfry.jobs x UNION ALL SELECT 'job_revisions', to_jsonb(x) FROM belfry.job_revisions x
    UNION ALL SELECT 'job_events', to_jsonb(x) FROM belfry.job_events x UNION ALL SELECT 'schedules', to_jsonb(x) FROM belfry.schedules x
    UNION ALL SELECT 'events', to_jsonb(x) FROM belfry.events x) t
 WHERE t.r ->> 'channel_id' = '3' OR t.r ->> 'name' = '3' OR t.r ->> 'reason' LIKE 'u3 %'
    OR t.r::text LIKE '%"u3"%' OR t.r::text LIKE '%busy: token%' GROUP BY 1 ORDER BY 1`)
	require.NoError(d.T, err)
	list, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(d.T, err)
	return list
}

// Audited requires that a job's accounts agree with its rows.
func (d *Desk) Audited(id int64) accounts.Report {
	d.T.Helper()
	store, err := channels.New(channels.Config{Relation: channels.DefaultRelation})
	require.NoError(d.T, err)
	r, err := accounts.Audit(d.T.Context(), d.DB.Pool, store, id, accounts.AuditOptions{})
	require.NoError(d.T, err)
	require.True(d.T, r.Agree, r.Disagreements)
	return r
}

// Exec runs SQL.
func (d *Desk) Exec(statement string) {
	d.T.Helper()
	_, err := d.DB.Pool.Exec(d.T.Context(), statement)
	require.NoError(d.T, err)
}

// Input returns an operation's input from pairs of a parameter and its text.
func (d *Desk) Input(name string, given ...string) (operation.Operation, any) {
	d.T.Helper()
	o := Operation(d.T, name)
	in := o.NewInput()
	for i := 0; i < len(given); i += 2 {
		require.NoError(d.T, Set(d.T, o, in, given[i], given[i+1]), given[i])
	}
	return o, in
}

// Do runs an operation with pairs of a parameter and its text. It returns the result without its receipt.
func Do(t *testing.T, env *operation.Env, name string, given ...string) (any, error) {
	t.Helper()
	o, in := (&Desk{T: t}).Input(name, given...)
	out, err := o.Run(t.Context(), env, in)
	if acted, is := out.(operation.Acted); is {
		return acted.Result, err
	}
	return out, err
}

// Run runs an operation.
func (d *Desk) Run(name string, given ...string) error {
	d.T.Helper()
	o, in := d.Input(name, given...)
	out, err := o.Run(d.T.Context(), d.Env, in)
	d.Out, d.Notes, d.JSON = "", "", ""
	if out == nil {
		return err
	}
	line, jsonErr := json.Marshal(out)
	require.NoError(d.T, jsonErr)
	var output, notes bytes.Buffer
	(&text.Terminal{Output: &output, Notes: &notes}).Show(func(p *text.Doc) { o.Text(p, in, out) })
	d.Out, d.Notes, d.JSON = output.String(), notes.String(), string(line)
	return err
}

// Enqueue requests jobs, one for each type.
func (d *Desk) Enqueue(types string, more ...string) {
	d.T.Helper()
	require.NoError(d.T,
		d.Run("enqueue", append([]string{"type", types, "category", "operator_notice", "title", "Hello", "everyone", "on"}, more...)...))
}

// Everything returns all rows that an act may change as one text.
func (d *Desk) Everything() string {
	d.T.Helper()
	return d.One(`SELECT md5(string_agg(r, E'\n' ORDER BY r)) FROM (
		SELECT to_jsonb(x)::text AS r FROM belfry.jobs x UNION ALL SELECT to_jsonb(x)::text FROM belfry.job_events x
		UNION ALL SELECT to_jsonb(x)::text FROM belfry.job_revisions x UNION ALL SELECT to_jsonb(x)::text FROM belfry.events x
		UNION ALL SELECT to_jsonb(x)::text FROM belfry.messages x UNION ALL SELECT to_jsonb(x)::text FROM belfry.notifications x
		UNION ALL SELECT to_jsonb(x)::text FROM belfry.activities x UNION ALL SELECT to_jsonb(x)::text FROM belfry.job_deliveries x) t`)
}

// Planned returns the plan of an act, and requires that planning changes nothing.
func (d *Desk) Planned(name string, given ...string) operation.Plan {
	d.T.Helper()
	before := d.Everything()
	require.NoError(d.T, d.Run(name, append(given, "dry_run", "on")...))
	require.Equal(d.T, before, d.Everything(), "a plan changes nothing")
	require.NotContains(d.T, d.JSON, "receipt")
	var answer struct{ Plan *operation.Plan }
	require.NoError(d.T, json.Unmarshal([]byte(d.JSON), &answer))
	require.NotNil(d.T, answer.Plan, d.JSON)
	return *answer.Plan
}

// Refuses requires that an act with another count fails with both counts and changes nothing.
func (d *Desk) Refuses(p operation.Plan, name string, given ...string) {
	d.T.Helper()
	before := d.Everything()
	other := p.Count + 1
	err := d.Run(name, append(given, "plan", Retoken(d.T, p.Token, &other, nil))...)
	require.Equal(d.T, db.KindConflict, db.KindOf(err), name)
	require.ErrorContains(d.T, err, fmt.Sprintf("the plan is out of date: %d ", p.Count), name)
	require.ErrorContains(d.T, err, fmt.Sprintf(", not %d; nothing was changed", other), name)
	require.Empty(d.T, d.Out)
	require.Equal(d.T, before, d.Everything(), "%s: another count changes nothing", name)
}

// Member creates one more job of its lane and returns its id.
func (d *Desk) Member() string {
	d.T.Helper()
	return d.One(`INSERT INTO belfry.jobs (type, category, title, lane)
		VALUES ('push', 'operator_notice', 'Hello', 'lane' || (SELECT count(*) FROM belfry.jobs)) RETURNING id::text`)
}

// Stands moves a PENDING job to a final status.
func (d *Desk) Stands(id int64, status string) {
	d.T.Helper()
	switch status {
	case "PENDING":
		return
	case "ABORTED":
		d.Exec(fmt.Sprintf(`SELECT belfry.abort(%d)`, id))
		return
	case "RUNNING":
		d.Exec(fmt.Sprintf(Walked, id))
		return
	}
	d.Exec(fmt.Sprintf(Walked, id))
	d.Exec(fmt.Sprintf(`UPDATE belfry.jobs SET status = '%s', last_error = CASE '%[1]s' WHEN 'FAILED' THEN 'disk' END WHERE id = %d`,
		status, id))
}

// Status returns the status of a job.
func (d *Desk) Status(id string) string {
	d.T.Helper()
	return d.One(`SELECT status FROM belfry.jobs WHERE id = ` + id)
}

// Letters turns all messages of job 5 into dead letters, an hour ago.
func (d *Desk) Letters() {
	d.T.Helper()
	d.Exec(`UPDATE belfry.message_rows SET status = 'DEAD', reason = 'exhausted', next_attempt_at = now() - interval '1 hour'
		WHERE job_id = 5`)
}

// Receipt returns the receipt of the last operation.
func (d *Desk) Receipt() operation.Receipt {
	d.T.Helper()
	var answer struct{ Receipt *operation.Receipt }
	require.NoError(d.T, json.Unmarshal([]byte(d.JSON), &answer))
	require.NotNil(d.T, answer.Receipt, d.JSON)
	return *answer.Receipt
}

// DBNow returns the time of the database's clock.
func (d *Desk) DBNow() time.Time {
	d.T.Helper()
	now, err := d.Env.Jobs.Now(d.T.Context())
	require.NoError(d.T, err)
	return now
}

// Upcoming returns a page of the list, and the position of the next page.
func (d *Desk) Upcoming(given ...string) (list []upcoming.Entry, next string) {
	d.T.Helper()
	o, in := d.Input("upcoming", given...)
	out, err := o.Run(d.T.Context(), d.Env, in)
	require.NoError(d.T, err)
	page, is := out.(operation.List[upcoming.Entry])
	require.True(d.T, is)
	return page.Items, page.Next
}

// Finished inserts a PROCESSED job whose walk took some minutes.
func (d *Desk) Finished(kind, lane string, minutes int) {
	d.T.Helper()
	dbtest.Past(d.T, d.DB.Pool, `INSERT INTO belfry.jobs (id, type, category, title, lane, route, status, fence, started_at, finished_at)
		VALUES (nextval('belfry.jobs_id_seq'), $1, 'operator_notice', 'x', $2, '{}', 'PROCESSED', 1,
		 now() - $3 * interval '1 minute', now())`, kind, lane, minutes)
}

// Lines renders entries, one to a line: due in minutes from now, lane, label, expected minutes, note.
func (d *Desk) Lines(list []upcoming.Entry) string {
	d.T.Helper()
	var b strings.Builder
	for _, e := range list {
		expected := "?"
		if e.ExpectedMS != nil {
			expected = (time.Duration(*e.ExpectedMS) * time.Millisecond).String()
		}
		fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s%s", e.At.Sub(d.DBNow()).Round(time.Minute), e.Lane, e.Name,
			expected, strings.Join(e.Overlaps, ", "), e.Held)))
	}
	return b.String()
}

// Operation returns the operation with a name.
func Operation(t *testing.T, name string) operation.Operation {
	t.Helper()
	list := admin.Operations()
	i := slices.IndexFunc(list, func(o operation.Operation) bool { return o.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return list[i]
}

// Set sets a parameter from a text.
func Set(t *testing.T, o operation.Operation, in any, name, text string) error {
	t.Helper()
	i := slices.IndexFunc(o.Params(), func(p operation.Param) bool { return p.Name == name })
	require.GreaterOrEqual(t, i, 0, "%s: %s", o.Name, name)
	return o.Params()[i].Set(in, text)
}

// Noon is the time of day of a desk.
func Noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// Crowd creates eight channels. The third has every kind of data.
func Crowd(t *testing.T) *Desk {
	t.Helper()
	d := NewDesk(t)
	d.Exec(`INSERT INTO belfry.channels (external_id, platform, addresses) SELECT 'u' || n, 'ios', '{"push": "token"}'
		FROM generate_series(1, 8) n`)
	d.Exec(`UPDATE belfry.channels SET created_at = now() - interval '1 day', updated_at = now() - interval '1 day'`)
	d.Enqueue("push") // 1: walked, delivered in part
	d.Enqueue("inbox")
	for id := 1; id <= 2; id++ {
		d.Exec(fmt.Sprintf(Walked, id))
		d.Exec(fmt.Sprintf(`UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = %d`, id))
	}
	d.Exec(`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT 1, n, now() FROM generate_series(1, 8) n`)
	d.Exec(`INSERT INTO belfry.job_deliveries (job_id, relay, written) VALUES (1, '', 8)`)
	d.Exec(`INSERT INTO belfry.notifications (arrival, channel_id) SELECT j.arrival, n
		FROM belfry.jobs j, generate_series(1, 8) n WHERE j.id = 2`)
	d.Exec(`INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome, error)
		VALUES (1, 3, 0, 1, 'push', 'retryable', 'busy: token')`)
	d.Exec(`SELECT belfry.opt_out(3, '*', 'sms', 'asked for it')`)
	d.Exec(`INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256) VALUES (3, 'push', decode(repeat('00', 32), 'hex'))`)
	d.Exec(`INSERT INTO belfry.segments (name) VALUES ('beta')`)
	d.Exec(`INSERT INTO belfry.segment_members VALUES ('beta', 3), ('beta', 4)`)
	d.Exec(`SELECT belfry.send(3, 'activity', 'Kim likes your answer')`)
	dbtest.Past(d.T, d.DB.Pool, `INSERT INTO belfry.job_values SELECT 1, n, '{}' FROM generate_series(3, 4) n`)
	return d
}

// Troop creates jobs in each status: 1 PENDING, 2 RUNNING, 3 ABORTED, 4 FAILED, 5 PROCESSED with
// waiting messages, 6 PROCESSED without, 7 EXPIRED with its expiry removed, 8 EXPIRED, and 9 ABORTED
// and partly pruned.
func Troop(t *testing.T) *Desk {
	t.Helper()
	d := NewDesk(t)
	d.Exec(`INSERT INTO belfry.channels (external_id, platform, addresses) SELECT 'u' || n, 'ios', '{"push": "token"}'
		FROM generate_series(1, 8) n`)
	for range 9 {
		d.Member()
	}
	d.Exec(`UPDATE belfry.jobs SET expires_at = now() + interval '1 hour' WHERE id IN (7, 8)`)
	d.Exec(`UPDATE belfry.jobs SET status = 'EXPIRED' WHERE id IN (7, 8)`)
	dbtest.Past(t, d.DB.Pool, `UPDATE belfry.jobs SET expires_at = CASE id WHEN 8 THEN now() - interval '1 hour' END WHERE id IN (7, 8)`)
	d.Stands(3, "ABORTED")
	d.Stands(4, "FAILED")
	d.Stands(5, "PROCESSED")
	d.Exec(`INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT 5, n, now() FROM generate_series(1, 8) n`)
	d.Exec(`INSERT INTO belfry.job_deliveries (job_id, relay, written) VALUES (5, '', 8)`)
	d.Stands(6, "PROCESSED")
	d.Stands(9, "ABORTED")
	d.Exec(`UPDATE belfry.jobs SET retention_at = clock_timestamp() WHERE id = 9`)
	d.Exec(fmt.Sprintf(Walked, 2))
	return d
}

// As returns the parameters that execute exactly a plan.
func As(p operation.Plan) []string { return []string{"plan", p.Token} }

// Patience is the deadline of every wait for a state.
const Patience = time.Minute

// Walked marks a job of eight channels as walked, with a row for each.
const Walked = `UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now(), fence = 1, started_at = now()
	WHERE id = %[1]d;
UPDATE belfry.jobs SET cursor = '8', bound = '8', chunks = 1, channels_read = 8, channels_matched = 8, rows_written = 8 WHERE id = %[1]d`

// ErrEnough ends a stream when a test has read enough.
var ErrEnough = errors.New("enough")
