package schedule_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

// good is a template that nothing is wrong with.
const good = `{"type": "inbox", "category": "popular_content", "title": "x"}`

// badSQL is what comes after INSERT INTO belfry.schedules.
var badSQL = []struct{ name, sql string }{
	{"name in capitals", `(name, cron, template) VALUES ('Daily News', '@daily', '` + good + `')`},
	{"no name", `(cron, template) VALUES ('@daily', '` + good + `')`},
	{"unknown source", `(name, source, cron, template) VALUES ('a', 'file', '@daily', '` + good + `')`},
	{"neither cron nor every", `(name, template) VALUES ('a', '` + good + `')`},
	{"both cron and every", `(name, cron, every, template) VALUES ('a', '@daily', '1 day', '` + good + `')`},
	{"four fields", `(name, cron, template) VALUES ('a', '0 9 * *', '` + good + `')`},
	{"six fields", `(name, cron, template) VALUES ('a', '0 0 9 * * *', '` + good + `')`},
	{"unknown word", `(name, cron, template) VALUES ('a', '@reboot', '` + good + `')`},
	{"a minute that does not exist", `(name, cron, template) VALUES ('a', '61 * * * *', '` + good + `')`},
	{"a day that never comes", `(name, cron, template) VALUES ('a', '0 9 30 feb *', '` + good + `')`},
	{"zone within cron", `(name, cron, template) VALUES ('a', 'TZ=Asia/Seoul 0 9 * * *', '` + good + `')`},
	{"every month", `(name, every, template) VALUES ('a', '1 month', '` + good + `')`},
	{"every half second", `(name, every, template) VALUES ('a', '0.5 s', '` + good + `')`},
	{"every second and a half", `(name, every, template) VALUES ('a', '1.5 s', '` + good + `')`},
	{"every minus a minute", `(name, every, template) VALUES ('a', '-1 minute', '` + good + `')`},
	{"every two years", `(name, every, template) VALUES ('a', '800 days', '` + good + `')`},
	{"unknown zone", `(name, cron, time_zone, template) VALUES ('a', '@daily', 'Seoul', '` + good + `')`},
	{"an offset is no zone", `(name, cron, time_zone, template) VALUES ('a', '@daily', '+09', '` + good + `')`},
	{"the zone of a machine", `(name, cron, time_zone, template) VALUES ('a', '@daily', 'localtime', '` + good + `')`},
	{"a file of zones", `(name, cron, time_zone, template) VALUES ('a', '@daily', 'posix/Asia/Seoul', '` + good + `')`},
	{"null zone", `(name, cron, time_zone, template) VALUES ('a', '@daily', NULL, '` + good + `')`},
	{"unknown policy", `(name, cron, missed, template) VALUES ('a', '@daily', 'twice', '` + good + `')`},
	{"query_timeout zero", `(name, cron, query_timeout, template) VALUES ('a', '@daily', '0', '` + good + `')`},
	{"query_timeout of a day", `(name, cron, query_timeout, template) VALUES ('a', '@daily', '1 day', '` + good + `')`},
	{"query_role without a query", `(name, cron, query_role, template) VALUES ('a', '@daily', 'reader', '` + good + `')`},
	{"query_role that is none", `(name, cron, query, query_role, template) VALUES ('a', '@daily', 'SELECT 1', 'no such', '` + good + `')`},
	{"missed_after zero", `(name, cron, missed_after, template) VALUES ('a', '@daily', '0', '` + good + `')`},
	{"missed_after a month", `(name, cron, missed_after, template) VALUES ('a', '@daily', '1 month', '` + good + `')`},
	{"query that deletes", `(name, cron, query, template) VALUES ('a', '@daily', 'DELETE FROM posts', '` + good + `')`},
	{"query that commits", `(name, cron, query, template) VALUES ('a', '@daily', 'commit', '` + good + `')`},
	{"query that begins like SELECT", `(name, cron, query, template) VALUES ('a', '@daily', 'selection', '` + good + `')`},
	{"empty query", `(name, cron, query, template) VALUES ('a', '@daily', '', '` + good + `')`},
	{"query too long", `(name, cron, query, template) VALUES ('a', '@daily', 'SELECT ' || repeat('x', 10000), '` + good + `')`},
	{"no template", `(name, cron) VALUES ('a', '@daily')`},
	{"template is a list", `(name, cron, template) VALUES ('a', '@daily', '[]')`},
	{"stray key", `(name, cron, template) VALUES ('a', '@daily', '{"type": "inbox", "category": "popular_content", "title": "x", "titel": "x"}')`},
	{"no type", `(name, cron, template) VALUES ('a', '@daily', '{"category": "popular_content", "title": "x"}')`},
	{"type and types", `(name, cron, template) VALUES ('a', '@daily', '{"type": "inbox", "types": ["push"], "category": "popular_content", "title": "x"}')`},
	{"types empty", `(name, cron, template) VALUES ('a', '@daily', '{"types": [], "category": "popular_content", "title": "x"}')`},
	{"types twice", `(name, cron, template) VALUES ('a', '@daily', '{"types": ["push", "push"], "category": "popular_content", "title": "x"}')`},
	{"types is text", `(name, cron, template) VALUES ('a', '@daily', '{"types": "push", "category": "popular_content", "title": "x"}')`},
	{"unknown type", `(name, cron, template) VALUES ('a', '@daily', '{"types": ["push", "fax"], "category": "popular_content", "title": "x"}')`},
	{"type null", `(name, cron, template) VALUES ('a', '@daily', '{"type": null, "category": "popular_content", "title": "x"}')`},
	{"no category", `(name, cron, template) VALUES ('a', '@daily', '{"type": "push", "title": "x"}')`},
	{"unknown category", `(name, cron, template) VALUES ('a', '@daily', '{"type": "push", "category": "news", "title": "x"}')`},
	{"no title", `(name, cron, template) VALUES ('a', '@daily', '{"type": "push", "category": "popular_content"}')`},
	{"blank title", `(name, cron, template) VALUES ('a', '@daily', '{"type": "push", "category": "popular_content", "title": " "}')`},
	{"title is a number", `(name, cron, template) VALUES ('a', '@daily', '{"type": "push", "category": "popular_content", "title": 5}')`},
	{"title too long", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || jsonb_build_object('title', repeat('é', 201)))`},
	{"body too long", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || jsonb_build_object('body', repeat('x', 10001)))`},
	{"data is a list", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"data": []}')`},
	{"data too large", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || jsonb_build_object('data', jsonb_build_object('x', repeat('x', 20000))))`},
	{"title that is no template", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"title": "Hello {{name}}"}')`},
	{"body that is no template", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"body": "{{attributes.name | shout}}"}')`},
	{"only a title for AlimTalk", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"type": "push", "route": ["alimtalk"]}')`},
	{"no title, and a body that is no template", `(name, cron, query, template) VALUES ('a', '@daily', 'SELECT 1', '{"type": "push", "body": "{{"}')`},
	{"variants is a list", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"variants": ["ko"]}')`},
	{"variants is null", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"variants": null}')`},
	{"variant of no locale", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"variants": {"Korean!": {"title": "x"}}}')`},
	{"variant with a stray key", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"variants": {"ko": {"titel": "x"}}}')`},
	{"variant that is no template", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"variants": {"ko": {"body": "{{name}}"}}}')`},
	{"route is text", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"route": "push"}')`},
	{"route is null", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"route": null}')`},
	{"route of lists", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"route": [["push"]]}')`},
	{"route of null", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"route": ["push", null]}')`},
	{"route empty", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"route": []}')`},
	{"route twice", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"route": ["push", "push"]}')`},
	{"unknown medium", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"route": ["push", "fax"]}')`},
	{"lane in capitals", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"lane": "Fast"}')`},
	{"priority too high", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"priority": 1001}')`},
	{"priority is a fraction", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"priority": 1.5}')`},
	{"deliver_after without a unit", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"deliver_after": "15"}')`},
	{"deliver_after is a number", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"deliver_after": 15}')`},
	{"expires_after empty", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"expires_after": ""}')`},
	{"expires_after zero", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"expires_after": "0h0m"}')`},
	{"audience is text", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"audience": "everyone"}')`},
	{"unknown platform", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"audience": {"kind": "platforms", "platforms": ["iso"]}}')`},
	{"unknown segment", `(name, cron, template) VALUES ('a', '@daily', '` + good + `'::jsonb || '{"audience": {"kind": "segment", "segment": "vip"}}')`},
	{"next_at set", `(name, cron, template, next_at) VALUES ('a', '@daily', '` + good + `', now())`},
	{"created_at set", `(name, cron, template, created_at) VALUES ('a', '@daily', '` + good + `', '2020-01-01')`},
	{"fired set", `(name, cron, template, fired) VALUES ('a', '@daily', '` + good + `', 7)`},
}

// Plain SQL is an API: what the database says to bad input, word for word.
func TestSQL_BadInputNamesTheColumnAndTheAllowedValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var out strings.Builder
	tell := func(name string, err error) {
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, name)
		fmt.Fprintf(&out, "# %s\n%s %s\n", name, pg.Code, pg.Message)
		if pg.ColumnName != "" {
			fmt.Fprintf(&out, "column: %s\n", pg.ColumnName)
		}
		if pg.Hint != "" {
			fmt.Fprintf(&out, "hint: %s\n", pg.Hint)
		}
	}
	for _, c := range badSQL {
		_, err := b.db.Pool.Exec(context.Background(), `INSERT INTO belfry.schedules `+c.sql)
		tell(c.name, err)
	}
	require.Zero(t, one[int](t, b, `SELECT (SELECT count(*) FROM belfry.schedules)::int + (SELECT count(*) FROM belfry.events)::int`))
	b.exec(t, `INSERT INTO belfry.schedules (name, cron, template) VALUES ('a', '@daily', $1)`, good)
	for _, sql := range []string{`template = template || '{"title": "{{name}}"}'`, `template = template || '{"route": ["fax"]}'`, `template = template || '{"variants": {"ko": {}}}'`, `name = 'b'`, `every = '1 hour'`, `template = template - 'title'`, `next_at = now(), paused_at = now()`, `paused_by = 'kim'`, `fired = -1`} {
		_, err := b.db.Pool.Exec(context.Background(), `UPDATE belfry.schedules SET `+sql)
		if err == nil { // what is derived is put right instead
			fmt.Fprintf(&out, "# %s\nput right\n", sql)
			require.True(t, one[bool](t, b, `SELECT paused_at IS NULL OR next_at IS NULL FROM belfry.schedules`))
			b.exec(t, `UPDATE belfry.schedules SET paused_at = NULL`)
			continue
		}
		tell(sql, err)
	}
	dbtest.Golden(t, "testdata/bad_sql.golden", out.String())
}

// The shortest INSERT and the plain UPDATEs are enough, with their events.
func TestSQL_PlainStatementsAreEnough(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.schedules (name, every, template) VALUES ('a', '1 day 12 hours', $1)`, good)
	s := b.get(t, "a")
	require.Equal(t, schedule.FromDatabase, s.Source)
	require.Equal(t, []string{"36h", "UTC", "once", "10m"}, []string{s.Every, s.TimeZone, string(s.Missed), s.After})
	require.Equal(t, []string{"inbox"}, s.Template.Types)
	b.exec(t, `UPDATE belfry.schedules SET paused_at = now() WHERE name = 'a'`)
	require.NotEmpty(t, b.get(t, "a").PausedBy)
	b.exec(t, `UPDATE belfry.schedules SET paused_at = NULL WHERE name = 'a'`)
	b.exec(t, `SELECT belfry.pause_schedule('a', 'kim', 'why not')`)
	require.Equal(t, "kim: why not", b.get(t, "a").PausedBy+": "+b.get(t, "a").PauseReason)
	b.exec(t, `SELECT belfry.resume_schedule('a', 'kim', 'enough')`)
	b.exec(t, `UPDATE belfry.schedules SET missed = 'skip'`)
	b.exec(t, `DELETE FROM belfry.schedules`)
	require.Equal(t, []string{"created", "paused", "resumed", "paused", "resumed", "changed", "removed"}, b.kinds(t, "a"))
	require.Equal(t, 7, one[int](t, b, `SELECT count(*)::int FROM belfry.events WHERE detail ->> 'session_user' = session_user AND actor <> ''`))
}

// A role that may only write schedules can: what is checked and recorded runs with the
// owner's rights. It may write no event.
func TestSQL_ARoleWithFewRights(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	role := pgx.Identifier{b.db.Name + "_r"}.Sanitize()
	b.exec(t, `CREATE ROLE `+role)
	t.Cleanup(func() { b.exec(t, `DROP OWNED BY `+role+`; DROP ROLE `+role) })
	b.exec(t, `GRANT USAGE ON SCHEMA belfry TO `+role)
	b.exec(t, `GRANT SELECT, INSERT, UPDATE, DELETE ON belfry.schedules TO `+role)
	conn, err := b.db.Pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	for _, sql := range []string{
		`SET ROLE ` + role,
		`INSERT INTO belfry.schedules (name, cron, time_zone, template) VALUES ('a', '@daily', 'Asia/Seoul', '` + good + `')`,
		`SELECT belfry.pause_schedule('a')`, `DELETE FROM belfry.schedules`,
	} {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err, sql)
	}
	_, err = conn.Exec(ctx, `INSERT INTO belfry.events (subject, name, kind, actor) VALUES ('schedule', 'a', 'fired', 'me')`)
	require.ErrorContains(t, err, "permission denied")
	_, err = conn.Exec(ctx, `RESET ROLE`)
	require.NoError(t, err)
	require.Equal(t, []string{"created", "paused", "removed"}, b.kinds(t, "a"))
}

// The look at each tick keeps its plan beside thousands of schedules that wait.
func TestLong_QueriesOfSchedulesKeepTheirPlans(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	b := &bundle{db: db}
	b.exec(t, `INSERT INTO belfry.schedules (name, every, template) SELECT 's' || g, '1 day', $1 FROM generate_series(1, 3000) g`, good)
	b.exec(t, `UPDATE belfry.schedules SET next_at = now() + interval '1 day'`)
	b.exec(t, `UPDATE belfry.schedules SET next_at = now() WHERE name LIKE 's10_'`)
	dbtest.Vacuum(t, db.Pool, "belfry.schedules")
	var out strings.Builder
	explain(t, db, &out, "SchedulesDue", pgx.StrictNamedArgs{"now": nil, "busy": []string{}})
	explain(t, db, &out, "ScheduleLock", pgx.StrictNamedArgs{"name": "s1", "now": nil})
	require.NotContains(t, out.String(), "Seq Scan")
	if one[int](t, b, `SELECT current_setting('server_version_num')::int / 10000`) == 15 { // each version words its plans a little differently
		dbtest.Golden(t, "testdata/explain.golden", out.String())
	}
}

func explain(t *testing.T, db *dbtest.DB, out *strings.Builder, name string, args pgx.StrictNamedArgs) {
	t.Helper()
	rows, err := db.Pool.Query(context.Background(), "EXPLAIN (COSTS OFF) "+schedule.Statement(name), args)
	require.NoError(t, err, name)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err, name)
	out.WriteString("# " + name + "\n" + strings.Join(plan, "\n") + "\n")
}

// The same bad input through Go: at once where no database is needed, else with the
// column.
func TestPut_BadInputIsToldWithItsKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := popular()
	d.Cron, d.TimeZone = "61 9 * * *", "Mars/Olympus"
	_, err := b.store.Put(context.Background(), d, schedule.FromDatabase, operator)
	require.ErrorContains(t, err, "schedule popular: time_zone: ")
	d = popular()
	d.Template.Category = "news"
	_, err = b.store.Put(context.Background(), d, schedule.FromDatabase, operator)
	var invalid *job.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "template", invalid.Column)
	require.ErrorContains(t, err, "belfry.schedules.template.category: 'news' is not a category; allowed values: activity, operator_notice, popular_content")
	d = popular()
	d.Template.Variants = map[string]any{"ko": map[string]any{"title": "{{name}}"}}
	_, err = b.store.Put(context.Background(), d, schedule.FromDatabase, operator)
	require.ErrorContains(t, err, "belfry.schedules.template.variants.ko.title: '{{name}}' is not allowed; allowed values: {{locale}}, ")
	d = popular()
	d.Template.Route = []string{"push", "fax"}
	_, err = b.store.SyncConfig(context.Background(), []schedule.Definition{d}, operator)
	require.ErrorContains(t, err, "schedule popular: belfry.schedules.template.route: {push,fax} is not allowed; allowed values: 1 to 10 different media of alimtalk, email, ")
}

// The statements of docs/schedules.md do what the page says.
func TestDocs_TheStatementsWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE SCHEMA app; CREATE TABLE app.posts (id bigint, title text, views int, posted_at timestamptz); CREATE TABLE app.quiz_of_today AS SELECT 7 AS channel_id, 'Why?' AS question`)
	b.exec(t, `INSERT INTO app.posts SELECT g, 'Post ' || g, g, '2026-05-01 00:00Z'::timestamptz + g * interval '1 h' FROM generate_series(1, 9) g`)
	page, err := os.ReadFile("../../docs/schedules.md")
	require.NoError(t, err)
	// Roles belong to the whole server.
	node, reader := b.db.Role(t).User, "r_"+strings.TrimPrefix(b.db.Name, "belfry_test_")
	names := strings.NewReplacer("belfry_daemon, ann;", node+";", "app_reader", reader)
	t.Cleanup(func() { b.exec(t, `DROP OWNED BY `+reader+`; DROP ROLE `+reader) })
	n := 0
	for _, block := range strings.Split(string(page), "```sql\n")[1:] {
		sql, _, _ := strings.Cut(block, "```")
		b.exec(t, names.Replace(sql))
		n++
	}
	require.Equal(t, 6, n)
	require.Equal(t, reader, b.get(t, "popular").QueryRole)
	_, err = b.db.Pool.Exec(context.Background(), `UPDATE belfry.schedules SET query_role = NULL WHERE name = 'popular'`)
	require.ErrorContains(t, err, "app_schedules_role")
	b.exec(t, `UPDATE belfry.schedules SET armed_at = '2026-05-01 04:00Z'`)
	b.exec(t, `DELETE FROM belfry.schedules WHERE name = 'morning'`)
	fired := b.fire(t, "05-02 03:00:00") // noon in Seoul; posts 4 to 9 are younger than a day
	require.Len(t, fired.Occurrences, 2)
	require.Equal(t, []string{"Post 9", "Post 8", "Post 7"}, one[[]string](t, b, `SELECT array_agg(title ORDER BY id) FROM belfry.jobs WHERE requested_by = 'schedule popular'`))
	require.Equal(t, `7 {"question": "Why?"}`, one[string](t, b, `SELECT channel_id || ' ' || value FROM belfry.job_values`))
}

// A NULL is refused through Go as any other value that is not allowed.
func TestMapError_ANullNamesTheFieldAndTheAllowedValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO belfry.schedules (name, cron, template) VALUES ('a', '@daily', $1)`, good)
	for _, column := range []string{"source", "missed", "missed_after", "query_timeout", "created_at"} {
		_, err := b.db.Pool.Exec(t.Context(), `UPDATE belfry.schedules SET `+column+` = NULL`)
		var invalid *job.InvalidError
		require.ErrorAs(t, schedule.MapError(err), &invalid, column)
		require.Equal(t, column, invalid.Column)
		require.Equal(t, "belfry.schedules."+column+": is null; allowed values: all but null", invalid.Message)
	}
}
