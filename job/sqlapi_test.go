package job_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
)

// badSQL is bad input by plain SQL, one statement a case.
var badSQL = []struct{ name, sql string }{
	{"unknown type", `INSERT INTO belfry.jobs (type, category, title) VALUES ('pusj', 'operator_notice', 'x')`},
	{"missing type", `INSERT INTO belfry.jobs (category, title) VALUES ('operator_notice', 'x')`},
	{"unknown category", `INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'popular', 'x')`},
	{"missing category", `INSERT INTO belfry.jobs (type, title) VALUES ('push', 'x')`},
	{"missing title", `INSERT INTO belfry.jobs (type, category) VALUES ('push', 'operator_notice')`},
	{"blank title", `INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', '  ')`},
	{"long title", `INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', repeat('é', 201))`},
	{"null body", `INSERT INTO belfry.jobs (type, category, title, body) VALUES ('push', 'operator_notice', 'x', NULL)`},
	{"long body", `INSERT INTO belfry.jobs (type, category, title, body) VALUES ('push', 'operator_notice', 'x', repeat('x', 10001))`},
	{"data is a list", `INSERT INTO belfry.jobs (type, category, title, data) VALUES ('push', 'operator_notice', 'x', '[1]')`},
	{"data too large", `INSERT INTO belfry.jobs (type, category, title, data) VALUES ('push', 'operator_notice', 'x', jsonb_build_object('k', repeat('x', 20000)))`},
	{"lane in capitals", `INSERT INTO belfry.jobs (type, category, title, lane) VALUES ('push', 'operator_notice', 'x', 'Fast Lane')`},
	{"priority too high", `INSERT INTO belfry.jobs (type, category, title, priority) VALUES ('push', 'operator_notice', 'x', 1001)`},
	{"priority null", `INSERT INTO belfry.jobs (type, category, title, priority) VALUES ('push', 'operator_notice', 'x', NULL)`},
	{"schedule_at infinite", `INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('push', 'operator_notice', 'x', 'infinity')`},
	{"deliver_at before schedule_at", `INSERT INTO belfry.jobs (type, category, title, schedule_at, deliver_at) VALUES ('push', 'operator_notice', 'x', '2030-01-01 09:00Z', '2030-01-01 08:00Z')`},
	{"empty idempotency key", `INSERT INTO belfry.jobs (type, category, title, idempotency_key) VALUES ('push', 'operator_notice', 'x', '')`},
	{"idempotency key of a schedule", `INSERT INTO belfry.jobs (type, category, title, idempotency_key) VALUES ('push', 'operator_notice', 'x', 'schedule:daily:2026-05-01T09:00:00Z')`},
	{"blank requester", `INSERT INTO belfry.jobs (type, category, title, requested_by) VALUES ('push', 'operator_notice', 'x', ' ')`},
	{"status set", `INSERT INTO belfry.jobs (type, category, title, status) VALUES ('push', 'operator_notice', 'x', 'RUNNING')`},
	{"cursor set", `INSERT INTO belfry.jobs (type, category, title, "cursor") VALUES ('push', 'operator_notice', 'x', '17')`},
	{"born aborted", `INSERT INTO belfry.jobs (type, category, title, abort_requested) VALUES ('push', 'operator_notice', 'x', true)`},
	{"created_at set", `INSERT INTO belfry.jobs (type, category, title, created_at) VALUES ('push', 'operator_notice', 'x', 'infinity')`},
	{"schedule_at beyond year 9999", `INSERT INTO belfry.jobs (type, category, title, schedule_at) VALUES ('push', 'operator_notice', 'x', '20000-01-01Z')`},
	{"title of line breaks", `INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', E'\n\n')`},
	{"own id", `INSERT INTO belfry.jobs (id, type, category, title) VALUES (7, 'push', 'operator_notice', 'x')`},
	{"audience is text", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '"everyone"')`},
	{"audience null", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', NULL)`},
	{"audience without kind", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{}')`},
	{"audience of unknown kind", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": "all"}')`},
	{"audience kind is a number", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": 7}')`},
	{"segment is a number", `INSERT INTO belfry.segments (name) VALUES ('5'); INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": "segment", "segment": 5}')`},
	{"audience with a stray key", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": "everyone", "radius": 5}')`},
	{"platforms missing", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": "platforms"}')`},
	{"platforms empty", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": "platforms", "platforms": []}')`},
	{"too many platforms", `INSERT INTO belfry.jobs (type, category, title, audience) SELECT 'push', 'operator_notice', 'x', jsonb_build_object('kind', 'platforms', 'platforms', jsonb_agg('ios'::text)) FROM generate_series(1, 101) g`},
	{"platform unknown", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', belfry.audience_platforms('ios', 'iso'))`},
	{"latitude too far north", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', belfry.audience_radius(91, 0, 1000))`},
	{"longitude as text", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": "radius", "latitude": 1, "longitude": "east", "radius_m": 1000}')`},
	{"radius missing", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": "radius", "latitude": 1, "longitude": 2}')`},
	{"radius of nothing", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', belfry.audience_radius(1, 2, 0))`},
	{"segment unknown", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', belfry.audience_segment('vip'))`},
	{"ids and external ids", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": "channels", "ids": [1], "external_ids": ["a"]}')`},
	{"id not a number", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', '{"kind": "channels", "ids": [1, 2.5]}')`},
	{"too many ids", `INSERT INTO belfry.jobs (type, category, title, audience) SELECT 'push', 'operator_notice', 'x', jsonb_build_object('kind', 'channels', 'ids', jsonb_agg(g)) FROM generate_series(1, 10001) g`},
	{"external id too long", `INSERT INTO belfry.jobs (type, category, title, audience) VALUES ('push', 'operator_notice', 'x', belfry.audience_external_ids(repeat('x', 201)))`},
	{"group without types", `SELECT belfry.enqueue_group('{}', 'operator_notice', 'x')`},
	{"group with a type twice", `SELECT belfry.enqueue_group('{push,push}', 'operator_notice', 'x')`},
	{"group with one bad type", `SELECT belfry.enqueue_group('{inbox,fax}', 'operator_notice', 'x')`},
	{"expires before it is due", `INSERT INTO belfry.jobs (type, category, title, schedule_at, expires_at) VALUES ('push', 'operator_notice', 'x', '2030-01-01 09:00Z', '2030-01-01 09:00Z')`},
	{"rows per second negative", `INSERT INTO belfry.jobs (type, category, title, max_rows_per_second) VALUES ('push', 'operator_notice', 'x', -1)`},
	{"duty cycle zero", `INSERT INTO belfry.jobs (type, category, title, duty_cycle) VALUES ('push', 'operator_notice', 'x', 0)`},
	{"duty cycle not a number", `INSERT INTO belfry.jobs (type, category, title, duty_cycle) VALUES ('push', 'operator_notice', 'x', 'NaN')`},
	{"chunk target too long", `INSERT INTO belfry.jobs (type, category, title, chunk_target_ms) VALUES ('push', 'operator_notice', 'x', 60001)`},
	{"no rows in a chunk", `INSERT INTO belfry.jobs (type, category, title, max_chunk_rows) VALUES ('push', 'operator_notice', 'x', 0)`},
	{"max_recipients nobody", `INSERT INTO belfry.jobs (type, category, title, max_recipients) VALUES ('push', 'operator_notice', 'x', 0)`},
	{"category's max_recipients nobody", `UPDATE belfry.categories SET max_recipients = 0`},
	{"max_skips negative", `INSERT INTO belfry.jobs (type, category, title, max_skips) VALUES ('push', 'operator_notice', 'x', -1)`},
	{"skips set", `INSERT INTO belfry.jobs (type, category, title, skipped) VALUES ('push', 'operator_notice', 'x', 1)`},
	{"throttle set", `INSERT INTO belfry.jobs (type, category, title, throttle) VALUES ('push', 'operator_notice', 'x', 'replica_lag')`},
	{"take-overs set", `INSERT INTO belfry.jobs (type, category, title, takeovers) VALUES ('push', 'operator_notice', 'x', 1)`},
	{"set without an object", `SELECT belfry.set(1, '[]')`},
	{"set of an unknown key", `SELECT belfry.set(1, '{"priority": 1, "status": "PROCESSED"}')`},
	{"lane that is no name", `SELECT belfry.pause_lane('Fast Lane')`},
	{"lane without a name", `SELECT belfry.pause_lane(NULL)`},
	{"title with a bad template", `INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', 'Hello {{name}}')`},
	{"body with a template that does not end", `INSERT INTO belfry.jobs (type, category, title, body) VALUES ('push', 'operator_notice', 'x', 'Hello {{attributes.name')`},
	{"variants are a list", `INSERT INTO belfry.jobs (type, category, title, variants) VALUES ('push', 'operator_notice', 'x', '[]')`},
	{"variants null", `INSERT INTO belfry.jobs (type, category, title, variants) VALUES ('push', 'operator_notice', 'x', NULL)`},
	{"variants too long", `INSERT INTO belfry.jobs (type, category, title, variants) SELECT 'push', 'operator_notice', 'x', jsonb_object_agg('x' || chr(97 + g), jsonb_build_object('body', repeat('x', 10000))) FROM generate_series(1, 14) g`},
	{"variant of no locale", `INSERT INTO belfry.jobs (type, category, title, variants) VALUES ('push', 'operator_notice', 'x', '{"korean language": {"title": "x"}}')`},
	{"variant twice", `INSERT INTO belfry.jobs (type, category, title, variants) VALUES ('push', 'operator_notice', 'x', '{"en-GB": {"title": "x"}, "en_gb": {"title": "x"}}')`},
	{"variant that is a text", `INSERT INTO belfry.jobs (type, category, title, variants) VALUES ('push', 'operator_notice', 'x', '{"ko": "x"}')`},
	{"variant without anything", `INSERT INTO belfry.jobs (type, category, title, variants) VALUES ('push', 'operator_notice', 'x', '{"ko": {}}')`},
	{"variant with a stray key", `INSERT INTO belfry.jobs (type, category, title, variants) VALUES ('push', 'operator_notice', 'x', '{"ko": {"title": "x", "data": {}}}')`},
	{"variant with a number for a title", `INSERT INTO belfry.jobs (type, category, title, variants) VALUES ('push', 'operator_notice', 'x', '{"ko": {"title": 5}}')`},
	{"variant with a blank title", `INSERT INTO belfry.jobs (type, category, title, variants) VALUES ('push', 'operator_notice', 'x', '{"ko": {"title": " "}}')`},
	{"variant with a long body", `INSERT INTO belfry.jobs (type, category, title, variants) VALUES ('push', 'operator_notice', 'x', jsonb_build_object('ko', jsonb_build_object('body', repeat('x', 10001))))`},
	{"only a title for AlimTalk", `INSERT INTO belfry.jobs (type, category, title, route) VALUES ('push', 'operator_notice', 'x', '{push,alimtalk}')`},
	{"more than AlimTalk takes", `INSERT INTO belfry.jobs (type, category, title, body, route, variants) VALUES ('push', 'operator_notice', 'x', repeat('x', 1001), '{alimtalk}', '{"ko": {"title": "y"}}')`},
	{"variant with a bad template", `INSERT INTO belfry.jobs (type, category, title, variants) VALUES ('push', 'operator_notice', 'x', '{"ko": {"title": "{{attributes.name | shout}}"}}')`},
	{"route of an unknown medium", `INSERT INTO belfry.jobs (type, category, title, route) VALUES ('push', 'operator_notice', 'x', '{push,fax}')`},
	{"route without a medium", `INSERT INTO belfry.jobs (type, category, title, route) VALUES ('push', 'operator_notice', 'x', '{}')`},
	{"route with a medium twice", `INSERT INTO belfry.jobs (type, category, title, route) VALUES ('push', 'operator_notice', 'x', '{sms,push,sms}')`},
	{"route with a null", `INSERT INTO belfry.jobs (type, category, title, route) VALUES ('push', 'operator_notice', 'x', '{push,NULL}')`},
	{"route of two dimensions", `INSERT INTO belfry.jobs (type, category, title, route) VALUES ('push', 'operator_notice', 'x', '{{push},{sms}}')`},
	{"route that begins at 0", `INSERT INTO belfry.jobs (type, category, title, route) VALUES ('push', 'operator_notice', 'x', '[0:0]={push}')`},
	{"delivered_at set", `INSERT INTO belfry.jobs (type, category, title, delivered_at) VALUES ('push', 'operator_notice', 'x', now())`},
	{"set of a route that is a text", `SELECT belfry.set(1, '{"route": "push"}')`},
	{"type name in capitals", `INSERT INTO belfry.job_types (name) VALUES ('Push')`},
}

// inEitherOrder tests with the triggers of belfry.jobs as they are, and with their order, which
// is that of their names, turned round: none relies on another.
func inEitherOrder(t *testing.T, test func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	for name, rename := range map[string]string{"as they are": "'jobs_' || n", "turned round": "'jobs_' || 100 - n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			_, err := db.Pool.Exec(t.Context(), `DO $$ DECLARE old text; new text; BEGIN
				FOR old, new IN SELECT tgname, `+rename+` FROM (SELECT tgname, row_number() OVER (ORDER BY tgname) AS n FROM pg_trigger
						WHERE tgrelid = 'belfry.jobs'::regclass AND NOT tgisinternal) t LOOP
					EXECUTE format('ALTER TRIGGER %I ON belfry.jobs RENAME TO %I', old, new);
				END LOOP;
			END $$`)
			require.NoError(t, err)
			test(t, db)
		})
	}
}

// What the database says to bad input, word for word; nothing is half-written.
func TestSQL_BadInputNamesTheColumnAndTheAllowedValues(t *testing.T) {
	t.Parallel()
	inEitherOrder(t, badInput)
}

func badInput(t *testing.T, db *dbtest.DB) {
	t.Helper()
	ctx := context.Background()
	var out strings.Builder
	for _, c := range badSQL {
		_, err := db.Pool.Exec(ctx, c.sql)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, c.name)
		if strings.HasPrefix(c.sql, "INSERT") {
			require.NotContains(t, pg.Where, "; allowed ", "psql shows the message once: "+c.name)
		}
		fmt.Fprintf(&out, "# %s\n%s %s\n", c.name, pg.Code, pg.Message)
		if pg.ColumnName != "" {
			fmt.Fprintf(&out, "column: %s\n", pg.ColumnName)
		}
		if pg.Hint != "" {
			fmt.Fprintf(&out, "hint: %s\n", pg.Hint)
		}
	}
	dbtest.Golden(t, "testdata/bad_sql.golden", out.String())
	var jobs, events int
	require.NoError(t, db.Pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM belfry.jobs), (SELECT count(*) FROM belfry.job_events)`).Scan(&jobs, &events))
	require.Zero(t, jobs)
	require.Zero(t, events)
}

// What a started job refuses, and what no one may do to a job by SQL.
func TestSQL_BadUpdatesChangeNothing(t *testing.T) {
	t.Parallel()
	inEitherOrder(t, badUpdates)
}

func badUpdates(t *testing.T, db *dbtest.DB) {
	t.Helper()
	ctx := context.Background()
	var id int64
	require.NoError(t, db.Pool.QueryRow(ctx, `SELECT belfry.enqueue('push', 'operator_notice', 'x', priority => 1)`).Scan(&id))
	_, err := db.Pool.Exec(ctx, `UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'r', heartbeat_at = now()`)
	require.NoError(t, err)
	_, err = db.Pool.Exec(ctx, `UPDATE belfry.jobs SET bound = '10'`)
	require.NoError(t, err)
	before := row(t, db, id)

	var out strings.Builder
	for _, c := range []struct{ name, sql string }{
		{"type of a started job", `UPDATE belfry.jobs SET type = 'inbox'`},
		{"audience of a started job", `UPDATE belfry.jobs SET audience = belfry.audience_platforms('ios')`},
		{"deliver_at of a started job", `UPDATE belfry.jobs SET deliver_at = now() + interval '1 day'`},
		{"route of a started job", `UPDATE belfry.jobs SET route = '{sms}'`},
		{"variants of a started job", `UPDATE belfry.jobs SET variants = '{"ko": {"title": "x"}}'`},
		{"blank title", `UPDATE belfry.jobs SET title = ''`},
		{"audience set while RUNNING", `SELECT belfry.set(1, '{"audience": {"kind": "platforms", "platforms": ["ios"]}}')`},
		{"lane set while RUNNING", `SELECT belfry.set(1, '{"lane": "other"}')`},
		{"duty cycle set to nonsense", `SELECT belfry.set(1, '{"duty_cycle": 7}')`},
		{"delete of a RUNNING job", `DELETE FROM belfry.jobs`},
		{"fence lowered", `UPDATE belfry.jobs SET fence = 0`},
		{"claim without a new fence", `UPDATE belfry.jobs SET status = 'PENDING'; UPDATE belfry.jobs SET status = 'RUNNING', runner = 'r', heartbeat_at = now()`},
		{"unknown status", `UPDATE belfry.jobs SET status = 'DONE'`},
		{"cursor before the bound is frozen", `UPDATE belfry.jobs SET bound = NULL, "cursor" = '5'`},
		{"second RUNNING job in the lane", `WITH n AS (SELECT belfry.enqueue('push', 'operator_notice', 'y') AS id) SELECT id FROM n; UPDATE belfry.jobs SET status = 'RUNNING', fence = fence + 1, runner = 'r2', heartbeat_at = now() WHERE status = 'PENDING'`},
	} {
		_, err := db.Pool.Exec(ctx, c.sql)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, c.name)
		fmt.Fprintf(&out, "# %s\n%s %s\n", c.name, pg.Code, pg.Message)
		require.Equal(t, before, row(t, db, id), c.name)
	}
	dbtest.Golden(t, "testdata/bad_updates.golden", out.String())
}

func row(t *testing.T, db *dbtest.DB, id int64) string {
	t.Helper()
	var text string
	require.NoError(t, db.Pool.QueryRow(context.Background(), `SELECT row_to_json(j)::text FROM belfry.jobs j WHERE id = $1`, id).Scan(&text))
	return text
}

// Plain SQL is an API: the shortest INSERT is enough, in the caller's transaction.
func TestSQL_ShortestInsertIsEnough(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	tx, err := db.Pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `INSERT INTO belfry.jobs (type, category, title, body) VALUES ('inbox', 'popular_content', 'Today', 'Ten things')`)
	require.NoError(t, err)
	store := job.NewStore(db.Pool)
	list, err := store.List(ctx, job.Filter{})
	require.NoError(t, err)
	require.Empty(t, list, "not before the caller commits")
	require.NoError(t, tx.Commit(ctx))

	list, err = store.List(ctx, job.Filter{Statuses: []job.Status{job.Pending}, Type: "inbox", Lane: "default"})
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, channels.KindEveryone, list[0].Audience.Kind)
	require.JSONEq(t, `{}`, string(list[0].Data))
	require.NotEmpty(t, list[0].RequestedBy)
}

// The settings of the caller's session round nothing: neither a circle nor a value that has a ceiling.
func TestSQL_SettingsRoundNothing(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	_, err := db.Pool.Exec(t.Context(), `UPDATE belfry.limits SET duty_cycle = 0.5`)
	require.NoError(t, err)
	var circle string
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT belfry.audience_radius(37.5665, 126.978, 30000)::text`).Scan(&circle))
	caller := db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`, `GRANT EXECUTE ON FUNCTION belfry.audience_radius(double precision, double precision, double precision) TO :role`)
	tx, err := caller.Pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }) // it failed
	_, err = tx.Exec(t.Context(), `SET extra_float_digits = -14`)
	require.NoError(t, err)
	var rounded string
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT belfry.audience_radius(37.5665, 126.978, 30000)::text`).Scan(&rounded))
	require.Equal(t, circle, rounded)
	_, err = tx.Exec(t.Context(), `INSERT INTO belfry.jobs (type, category, title, duty_cycle) VALUES ('inbox', 'operator_notice', 'x', 0.54)`)
	require.ErrorContains(t, err, "beyond the ceiling")
}

// One abort must not fail because another member of the group is done.
func TestSQL_AbortOfAGroupSkipsFinishedMembers(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx := context.Background()
	_, err := db.Pool.Exec(ctx, `SELECT belfry.enqueue_group('{inbox,push}', 'popular_content', 'x')`)
	require.NoError(t, err)
	_, err = db.Pool.Exec(ctx, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now() WHERE type = 'inbox'`)
	require.NoError(t, err)
	_, err = db.Pool.Exec(ctx, `UPDATE belfry.jobs SET status = 'PROCESSED' WHERE type = 'inbox'`)
	require.NoError(t, err)

	_, err = db.Pool.Exec(ctx, `UPDATE belfry.jobs SET abort_requested = true WHERE group_id IS NOT NULL`)
	require.NoError(t, err)
	statuses := map[string]job.Status{}
	list, err := job.NewStore(db.Pool).List(ctx, job.Filter{})
	require.NoError(t, err)
	for _, j := range list {
		statuses[j.Type] = j.Status
	}
	require.Equal(t, map[string]job.Status{"inbox": job.Processed, "push": job.Aborted}, statuses)
}

// The same bad input through Go is an *InvalidError with the column.
func TestEnqueue_BadInputIsAnInvalidError(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	_, err := job.NewStore(db.Pool).Enqueue(context.Background(), job.Spec{Type: "push", Category: "popular_content"})
	var invalid *job.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "title", invalid.Column)
	_, err = job.NewStore(db.Pool).Enqueue(context.Background(), job.Spec{Type: "push", Category: "popular_content", Title: "a\x00b"})
	require.ErrorAs(t, err, &invalid)
}

// What the operator's functions return is read in psql: what was, what is, and why nothing
// happened.
func TestActs_ReturnWhatTheyDid(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.enqueue(t, job.Spec{})
	acted := func(call string) string {
		t.Helper()
		var text string
		require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT coalesce((SELECT concat_ws('|', a.was, a.status, a.note) FROM `+call+` a), 'no row')`, id).Scan(&text))
		return text
	}
	for _, act := range [][2]string{
		{`belfry.set($1, '{"priority": 3, "lane": "default"}', 'ann')`, "PENDING|PENDING|changed: priority"},
		{`belfry.set($1, '{"priority": 3}', 'ann')`, "PENDING|PENDING|it is so already"},
		{`belfry.resume($1, 'ann')`, "PENDING|PENDING|only an ABORTED job is resumed"},
		{`belfry.retry($1, 'ann')`, "PENDING|PENDING|only a FAILED or EXPIRED job is retried"},
		{`belfry.retry_skipped($1, 'ann')`, "PENDING|PENDING|only a PROCESSED or FAILED job tries skipped recipients again"},
		{`belfry.abort($1, 'ann', 'stop')`, "PENDING|ABORTED|"},
		{`belfry.abort($1, 'ann')`, "ABORTED|ABORTED|it was ABORTED already"},
		{`belfry.retry($1, 'ann')`, "ABORTED|ABORTED|belfry.resume is for ABORTED jobs"},
		{`belfry.resume_edited($1, '{"title": "corrected"}', 'ann')`, "ABORTED|PENDING|"},
		{`belfry.resume_edited($1, '{"title": "again"}', 'ann')`, "PENDING|PENDING|only an ABORTED or FAILED job is corrected and goes on"},
		{`belfry.abort($1 + 1000)`, "no row"},
		{`belfry.set($1 + 1000, '{"priority": 3}')`, "no row"},
	} {
		require.Equal(t, act[1], acted(act[0]), act[0])
	}
	b.exec(t, set(job.Running), id)
	b.exec(t, set(job.Processed), id)
	require.Equal(t, "PROCESSED|PROCESSED|no message of it is left to hold", acted(`belfry.abort($1)`))
	require.Equal(t, "PROCESSED|PROCESSED|no recipient of it was skipped", acted(`belfry.retry_skipped($1)`))
}

// An abort of finished jobs reads their messages for a bounded time, and no leases: whoever delivers chooses how
// many there are. Jobs that are not read in this time are held.
func TestLong_AbortOfFinishedJobsTakesABoundedTime(t *testing.T) {
	t.Parallel()
	b := setupOn(t, dbtest.New(t), 0)
	ids := make([]int64, 3)
	for i := range ids {
		ids[i] = b.enqueue(t, job.Spec{Type: "push"})
		b.exec(t, set(job.Running), ids[i])
		b.exec(t, set(job.Processed), ids[i])
		b.exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, sent_at)
			SELECT $1, g, now(), 'SENT', now() FROM generate_series(1, $2::int) g`, ids[i], []int{1, 20001, 1}[i])
	}
	b.exec(t, `ALTER TABLE belfry.message_rows RENAME TO told`)
	b.exec(t, `CREATE VIEW belfry.message_rows AS SELECT * FROM belfry.told
		WHERE status = 'SENT' AND CASE WHEN channel_id = 2 THEN pg_sleep(5.2) IS NOT NULL ELSE true END`)
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.leases IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	rows, err := b.db.Pool.Query(t.Context(), `SELECT a.status FROM unnest($1::bigint[]) i CROSS JOIN LATERAL belfry.abort(i) a`, ids)
	require.NoError(t, err)
	became, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"PROCESSED", "ABORTED", "ABORTED"}, became)
}
