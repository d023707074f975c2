package schedule_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

// The operator's query feeds the template: the most viewed rows of his table.
func TestQuery_EachRowIsAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE posts (id bigint, title text, views int, near point)`)
	b.exec(t, `INSERT INTO posts VALUES (9007199254740993, 'A', 5, point(126.9, 37.5)), (2, 'B', 50, NULL), (3, 'C', 7, NULL)`)
	d := popular()
	d.Template.Body, d.Template.Data = "Have a look", map[string]any{"kind": "popular"}
	d.Query = `SELECT title, jsonb_build_object('id', id) AS data, '{"kind": "platforms", "platforms": ["ios"]}'::text AS audience, views AS priority,
		NULL AS body, CASE WHEN views > 10 THEN '5m' END AS deliver_after, 'lane-' || id % 10 AS lane
		FROM posts ORDER BY views DESC LIMIT 2 -- the two best`
	b.put(t, d, "05-01 08:00:00")
	fired := b.fire(t, "05-01 09:00:02")
	require.Len(t, fired.Occurrences, 1)
	require.Len(t, fired.Occurrences[0].Jobs, 2)
	rows, err := b.db.Pool.Query(context.Background(), `SELECT concat_ws(' | ', title, body, data, audience ->> 'kind', priority, lane, deliver_at - schedule_at, idempotency_key)
		FROM belfry.jobs ORDER BY id`)
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{
		`B | Have a look | {"id": 2} | platforms | 50 | lane-2 | 00:05:00 | schedule:popular:2026-05-01T09:00:00Z:1`,
		`C | Have a look | {"id": 3} | platforms | 7 | lane-3 | schedule:popular:2026-05-01T09:00:00Z:2`,
	}, got)

	// 64-bit ids stay what they are, groups are made per row, and no rows are no jobs.
	b.exec(t, `UPDATE belfry.schedules SET query = 'SELECT title, jsonb_build_object(''id'', id) AS data FROM posts WHERE id > 10', template = template - 'types' || '{"types": ["inbox", "push"]}'`)
	require.Len(t, b.fire(t, "05-02 09:00:00").Occurrences[0].Jobs, 2)
	require.JSONEq(t, `{"id": 9007199254740993}`, one[string](t, b, `SELECT data FROM belfry.jobs ORDER BY id DESC LIMIT 1`))
	b.exec(t, `UPDATE belfry.schedules SET query = 'SELECT title FROM posts WHERE false'`)
	fired = b.fire(t, "05-03 09:00:00")
	require.Equal(t, []string{"05-03 09:00:00"}, occurrences(fired))
	require.Empty(t, fired.Occurrences[0].Jobs)
	require.JSONEq(t, `[]`, one[string](t, b, `SELECT detail -> 'jobs' FROM belfry.events WHERE kind = 'fired' ORDER BY id DESC LIMIT 1`))

	// The query knows its occurrence.
	b.exec(t, `UPDATE belfry.schedules SET query = $1`, `SELECT to_char(current_setting('belfry.occurrence')::timestamptz AT TIME ZONE 'UTC', 'DD Mon HH24:MI') AS title`)
	b.fire(t, "05-04 09:00:05")
	require.Equal(t, "04 May 09:00", one[string](t, b, `SELECT title FROM belfry.jobs ORDER BY id DESC LIMIT 1`))
}

// Numbers in a template's data are not rounded on their way through Go.
func TestFire_DataStaysAsItWasWritten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, popular(), "05-01 08:00:00")
	b.exec(t, `UPDATE belfry.schedules SET template = template || '{"data": {"id": 9007199254740993, "price": 1.10}}'`)
	b.fire(t, "05-01 09:00:00")
	require.Equal(t, `{"id": 9007199254740993, "price": 1.10}`, one[string](t, b, `SELECT data::text FROM belfry.jobs`))
}

// Media and the wording of other locales are the template's, or the row's.
func TestFire_RouteAndVariantsArePassedOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `UPDATE belfry.categories SET route = '{email}' WHERE name = 'popular_content'`)
	d := popular()
	d.Template.Types, d.Template.Type = []string{"inbox", "push"}, ""
	d.Template.Title = "For you"
	d.Template.Variants = map[string]any{"ko": map[string]any{"title": "오늘 {{locale}}"}}
	d.Template.Route = []string{"sms", "push"}
	b.put(t, d, "05-01 08:00:00")
	b.fire(t, "05-01 09:00:00")
	said := func() []string {
		t.Helper()
		rows, err := b.db.Pool.Query(context.Background(), `SELECT concat_ws(' ', type, route, variants) FROM belfry.jobs WHERE schedule_at = $1 ORDER BY id`, b.now)
		require.NoError(t, err)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return list
	}
	require.Equal(t, []string{`inbox {sms,push} {"ko": {"title": "오늘 {{locale}}"}}`, `push {sms,push} {"ko": {"title": "오늘 {{locale}}"}}`}, said())

	// NULL leaves the template's; lists and objects may be texts that hold JSON.
	b.exec(t, `UPDATE belfry.schedules SET template = template - 'types' || '{"type": "push"}', query = $1`, `SELECT NULL::text[] AS route, NULL AS variants
		UNION ALL SELECT ARRAY['alimtalk'], '{"de": {"body": "Heute"}}' UNION ALL SELECT '{push,webhook}', '{}'`)
	b.fire(t, "05-02 09:00:00")
	require.Equal(t, []string{`push {sms,push} {"ko": {"title": "오늘 {{locale}}"}}`, `push {alimtalk} {"de": {"body": "Heute"}}`, `push {push,webhook} {}`}, said())
	b.exec(t, `UPDATE belfry.schedules SET query = $1`, `SELECT '["email", "sms"]' AS route`)
	b.fire(t, "05-03 09:00:00")
	require.Equal(t, []string{`push {email,sms} {"ko": {"title": "오늘 {{locale}}"}}`}, said())

	// Without a route of its own, the category's as it is when it fires.
	b.exec(t, `UPDATE belfry.schedules SET template = template - 'route' - 'variants', query = NULL`)
	b.fire(t, "05-04 09:00:00")
	require.Equal(t, []string{`push {email} {}`}, said())
}

// A job's ceiling is the template's, the row's, or else its category's.
func TestFire_MaxRecipientsIsPassedOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d, most := popular(), 70
	d.Template.MaxRecipients = &most
	b.put(t, d, "05-01 08:00:00")
	b.exec(t, `UPDATE belfry.categories SET max_recipients = 1000`)
	ceilings := func(at string) string {
		t.Helper()
		b.fire(t, at)
		return one[string](t, b, `SELECT string_agg(max_recipients::text, ' ' ORDER BY id) FROM belfry.jobs WHERE schedule_at = $1`, b.now)
	}
	require.Equal(t, "70", ceilings("05-01 09:00:00"))
	b.exec(t, `UPDATE belfry.schedules SET query = 'SELECT NULL::int AS max_recipients UNION ALL SELECT 9'`)
	require.Equal(t, "70 9", ceilings("05-02 09:00:00"))
	b.exec(t, `UPDATE belfry.schedules SET query = NULL, template = template - 'max_recipients'`)
	require.Equal(t, "1000", ceilings("05-03 09:00:00"))
	b.exec(t, `UPDATE belfry.schedules SET query = 'SELECT ''many'' AS max_recipients'`)
	b.fire(t, "05-04 09:00:00")
	require.Contains(t, one[string](t, b, `SELECT last_error FROM belfry.schedules`), `column max_recipients: "many" is not a whole number; allowed values: 1 to 2000000000`)
	for _, n := range []string{"0", "2000000001", "1.5", `"7"`, "null"} {
		_, err := b.db.Pool.Exec(t.Context(), `UPDATE belfry.schedules SET template = template || jsonb_build_object('max_recipients', $1::text::jsonb)`, n)
		require.ErrorContains(t, err, "belfry.schedules.template.max_recipients: "+n+" is not allowed; allowed values: whole numbers from 1 to 2000000000")
	}
	most = 0
	require.ErrorContains(t, d.Validate(""), "template.max_recipients: 0 is not allowed; allowed values: 1 to 2000000000")
}

// What somebody else's trigger on the jobs refuses is recorded like any other failure.
func TestFire_ARefusalByATriggerIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not on Sundays'; END $$`)
	b.exec(t, `CREATE TRIGGER refuse BEFORE INSERT ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION refuse()`)
	b.put(t, popular(), "05-01 08:00:00")
	require.Len(t, b.fire(t, "05-01 09:00:00").Failed, 1)
	require.Contains(t, b.get(t, "popular").LastError, "not on Sundays")
}

// badQueries are queries and what last_error says of them.
var badQueries = []struct{ name, query string }{
	{"no such table", `SELECT title FROM nowhere`},
	{"syntax", `SELECT 'x' AS title FROM`},
	{"unknown column", `SELECT 'x' AS title, 5 AS id`},
	{"unnamed column", `SELECT 'x'`},
	{"a column of the subquery's name", `SELECT 'x' AS title, 5 AS q`},
	{"title too long", `SELECT repeat('x', 201) AS title`},
	{"second row bad", `SELECT t AS title FROM (VALUES ('fine'), ('')) v(t)`},
	{"unknown category", `SELECT 'news' AS category`},
	{"audience is no object", `SELECT '[]'::jsonb AS audience`},
	{"audience is no JSON", `SELECT 'everyone' AS audience`},
	{"audience of unknown kind", `SELECT '{"kind": "all"}'::jsonb AS audience`},
	{"data is a number", `SELECT 5 AS data`},
	{"priority is text", `SELECT 'high' AS priority`},
	{"needs_approval is text", `SELECT 'maybe' AS needs_approval`},
	{"needs_approval is a number", `SELECT 1 AS needs_approval`},
	{"priority too high", `SELECT 1001 AS priority`},
	{"priority beyond integers", `SELECT 99999999999 AS priority`},
	{"title that is no template", `SELECT 'Hello {{name}}' AS title`},
	{"variants is a list", `SELECT ARRAY['ko'] AS variants`},
	{"variants that are no templates", `SELECT '{"ko": {"title": "{{name}}"}}'::jsonb AS variants`},
	{"route is text", `SELECT 'push, sms' AS route`},
	{"route is JSON of null", `SELECT 'null' AS route`},
	{"route with a null", `SELECT ARRAY['push', NULL] AS route`},
	{"route of numbers", `SELECT ARRAY[1, 2] AS route`},
	{"route empty", `SELECT '{}'::text[] AS route`},
	{"unknown medium", `SELECT ARRAY['push', 'fax'] AS route`},
	{"title is JSON", `SELECT '{}'::jsonb AS title`},
	{"deliver_after is an interval", `SELECT interval '15 minutes' AS deliver_after`},
	{"more than a hundred rows", `SELECT 'x' AS title FROM generate_series(1, 101)`},
	{"a row of a megabyte", `SELECT 'x' AS title, jsonb_build_object('x', repeat('x', 1000000)) AS data`},
	{"it writes", `WITH w AS (INSERT INTO belfry.categories (name) VALUES ('sneaky') RETURNING name) SELECT name AS title FROM w`},
	{"it locks", `SELECT name AS title FROM belfry.categories FOR UPDATE`},
	{"it calls what writes", `SELECT belfry.enqueue('inbox', 'operator_notice', 'sneaky')::text AS title`},
	{"it ends the subquery", `SELECT 'x' AS title) q; COMMIT; SELECT ('x'`},
	{"it comments the rest out", `SELECT 'x' AS title /*`},
	{"it divides by zero", `SELECT (1 / 0)::text AS title`},
	{"it lifts the read only", `SELECT set_config('transaction_read_only', 'off', true) AS title`},
}

// Invariant 3: whatever a query does, nothing of the occurrence is enqueued, the error
// is recorded, and the schedules beside it fire.
func TestQuery_BadOnesAreRecordedAndHarmNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, c := range badQueries {
		d := popular()
		d.Name, d.Query = fmt.Sprintf("bad-%02d", i), c.query
		b.put(t, d, "05-01 08:00:00")
	}
	b.put(t, popular(), "05-01 08:00:00")
	before := one[int](t, b, `SELECT count(*)::int FROM belfry.categories`)
	fired := b.fire(t, "05-01 09:00:00")
	require.Len(t, fired.Occurrences, 1)
	require.Equal(t, "popular", fired.Occurrences[0].Schedule)
	require.Len(t, fired.Failed, len(badQueries))
	require.Len(t, b.keys(t), 1)
	require.Equal(t, before, one[int](t, b, `SELECT count(*)::int FROM belfry.categories`))
	var out strings.Builder
	for i, c := range badQueries {
		s := b.get(t, fmt.Sprintf("bad-%02d", i))
		fmt.Fprintf(&out, "# %s\n%s\n", c.name, s.LastError)
		require.Equal(t, 1, s.Failures, c.name)
		require.Equal(t, "09:00:01", s.RetryAt.Format("15:04:05"))
		require.Equal(t, []string{"created", "failed"}, b.kinds(t, s.Name))
		_, err := b.store.RunNow(context.Background(), s.Name, operator)
		require.ErrorContains(t, err, s.LastError, c.name)
	}
	dbtest.Golden(t, "testdata/bad_queries.golden", out.String())
}

// A function can raise the errors of a server that does not answer, and end its connection. That is the fault of the
// query: it is recorded, tried again after a pause, and stops no other schedule.
func TestQuery_RaisesTheErrorsOfAServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE FUNCTION boom(code text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'boom' USING ERRCODE = code; END $$`)
	bad := map[string]string{"ended": `SELECT pg_terminate_backend(pg_backend_pid())::text AS title`}
	for _, code := range []string{"57P01", "08006", "53300", "53400", "40001", "40P01", "55P03", "XX000", "25006"} {
		bad["boom-"+strings.ToLower(code)] = `SELECT boom('` + code + `') AS title`
	}
	for name, query := range bad {
		d := popular()
		d.Name, d.Query = name, query
		b.put(t, d, "05-01 08:00:00")
	}
	b.put(t, popular(), "05-01 08:00:00")
	fired := b.fire(t, "05-01 09:00:00")
	require.Equal(t, []string{"05-01 09:00:00"}, occurrences(fired))
	require.Len(t, fired.Failed, len(bad))
	for name := range bad {
		s := b.get(t, name)
		require.Equal(t, 1, s.Failures, name)
		require.Equal(t, "09:00:01", s.RetryAt.Format("15:04:05"), name)
		require.Contains(t, s.LastError, "query: ", name)
		_, err := b.store.RunNow(context.Background(), name, operator)
		require.True(t, schedule.OwnFault(err), "%s: %v", name, err)
	}
	require.Empty(t, b.fire(t, "05-01 09:00:00").Failed, "they are due in a second")
}

// The same holds where the pool speaks the simple protocol, in which a statement could
// carry another one.
func TestQuery_CannotEndTheTransactionInAnyMode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := popular()
	d.Query = `SELECT 'x' AS title) q; COMMIT; SELECT ('x'`
	b.put(t, d, "05-01 08:00:00")
	config, err := pgxpool.ParseConfig(b.db.DSN + "&default_query_exec_mode=simple_protocol")
	require.NoError(t, err)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	defer pool.Close()
	f := schedule.NewFirer(pool, schedule.WithClock(func() time.Time { return at(t, "05-01 09:00:00") }))
	fired, err := f.FireDue(context.Background())
	require.NoError(t, err)
	require.Len(t, fired.Failed, 1)
	require.ErrorContains(t, fired.Failed[0].Err, "query: ")
	require.Empty(t, b.keys(t))
	// And a good one fires in that mode too.
	b.exec(t, `UPDATE belfry.schedules SET query = 'SELECT ''y'' AS title'`)
	fired, err = f.FireDue(context.Background())
	require.NoError(t, err)
	require.Len(t, fired.Occurrences, 1)
	jobs, err := schedule.NewStore(pool).RunNow(context.Background(), "popular", operator)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	list, err := schedule.NewStore(pool).List(context.Background())
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// A failing occurrence is tried again with growing pauses until missed_after has
// passed, then it is given up and the next one has its turn. Repeated word for word,
// the failure is one event.
func TestFire_AFailingOccurrenceIsRetriedThenGivenUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := popular()
	d.Query, d.After = `SELECT title FROM posts`, "5m"
	b.put(t, d, "05-01 08:00:00")
	moment := at(t, "05-01 09:00:00")
	var pauses []string
	for range 20 {
		b.now = moment
		_, err := b.firer().FireDue(context.Background())
		require.NoError(t, err)
		s := b.get(t, "popular")
		if s.RetryAt == nil {
			break
		}
		pauses = append(pauses, s.RetryAt.Sub(moment).String())
		moment = *s.RetryAt
	}
	require.Equal(t, []string{"1s", "2s", "4s", "8s", "16s", "32s", "1m0s", "1m0s", "1m0s", "1m0s"}, pauses)
	s := b.get(t, "popular")
	require.EqualValues(t, 1, s.Skipped)
	require.Equal(t, 10, s.Failures)
	require.Nil(t, s.FailingSince)
	require.Equal(t, "2026-05-02T09:00:00Z", s.NextAt.Format(time.RFC3339))
	require.Equal(t, []string{"created", "failed", "skipped"}, b.kinds(t, "popular"))
	require.Contains(t, one[string](t, b, `SELECT reason FROM belfry.events WHERE kind = 'skipped'`), "gave up after 10 attempts: query: relation \"posts\" does not exist")

	// The next one fails too, is fixed in time, and fires.
	require.Len(t, b.fire(t, "05-02 09:00:00").Failed, 1)
	b.exec(t, `CREATE TABLE posts (title text); INSERT INTO posts VALUES ('A')`)
	require.Empty(t, b.fire(t, "05-02 09:00:30").Occurrences, "not before its retry")
	require.Equal(t, []string{"05-02 09:00:00"}, occurrences(b.fire(t, "05-02 09:01:00")))
	s = b.get(t, "popular")
	require.Zero(t, s.Failures)
	require.Empty(t, s.LastError)
}

// A change of the definition is tried at once.
func TestFire_ACorrectionIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := popular()
	d.Query = `SELECT 'x' AS titel`
	b.put(t, d, "05-01 08:00:00")
	for range 5 {
		b.fire(t, "05-01 09:00:00")
		b.exec(t, `UPDATE belfry.schedules SET retry_at = NULL`)
	}
	require.Len(t, b.fire(t, "05-01 09:00:01").Failed, 1)
	require.Empty(t, b.fire(t, "05-01 09:00:02").Failed)
	b.exec(t, `UPDATE belfry.schedules SET query = 'SELECT ''x'' AS title'`)
	require.Equal(t, []string{"05-01 09:00:00"}, occurrences(b.fire(t, "05-01 09:00:03")))
}

// What plain SQL lets pass and Go refuses is written into the row and blocks no other.
func TestFire_ADefinitionThatCannotBeReadIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// What is refused today may have got in otherwise.
	for name, cron := range map[string]string{"bad": "61 9 * * *", "never": "0 0 30 2 *"} {
		b.exec(t, `INSERT INTO belfry.schedules (name, cron, template) VALUES ($1, '@daily', '{"type": "inbox", "category": "popular_content", "title": "x"}')`, name)
		dbtest.Past(t, b.db.Pool, `UPDATE belfry.schedules SET cron = $2 WHERE name = $1`, name, cron)
	}
	b.put(t, popular(), "05-01 08:00:00")
	fired := b.fire(t, "05-01 09:00:00")
	require.Equal(t, []string{"05-01 09:00:00"}, occurrences(fired))
	require.Len(t, fired.Failed, 2)
	require.Equal(t, `cron: "61 9 * * *" is not a cron expression: end of range (61) above maximum (59): 61; allowed values: five fields: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly`,
		b.get(t, "bad").LastError)
	require.Contains(t, b.get(t, "never").LastError, "never comes")
	require.Empty(t, b.fire(t, "05-01 09:00:00").Failed, "not at each tick")
	require.Len(t, b.fire(t, "05-01 09:00:02").Failed, 2)
	require.Equal(t, []string{"created", "failed"}, b.kinds(t, "bad"))
	_, err := b.store.RunNow(context.Background(), "bad", job.Act{})
	require.NoError(t, err, "the template is fine")
}
