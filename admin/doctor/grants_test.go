package doctor_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/outbox"
	"github.com/belfryhq/belfry/outbox/retention"
)

// grants are the statements for a role, by its operation, which has no database.
func grants(t *testing.T, relation string, given ...string) *doctor.RoleGrants {
	t.Helper()
	recipients, err := channels.New(channels.Config{Relation: relation})
	require.NoError(t, err)
	d := &admintest.Desk{T: t, Env: &operation.Env{Role: operation.Viewer, Channels: recipients}}
	o, in := d.Input("roles", given...)
	out, err := o.Run(t.Context(), d.Env, in)
	require.NoError(t, err)
	return out.(*doctor.RoleGrants)
}

func TestRoles_DocsSayThem(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/roles.md")
	require.NoError(t, err)
	for name, does := range doctor.ProfilesDo() {
		require.Contains(t, string(text), "| `"+name+"` | "+does+" |\n")
	}
}

// What a role needs of the recipients is of the relation that is configured; nothing is said
// twice of a role that does two things.
func TestRoles_GrantWhatIsConfigured(t *testing.T) {
	t.Parallel()
	out := grants(t, "app.users", "for", "run,deliver")
	require.Equal(t, "belfry_run", out.Role)
	seen := make(map[string]bool)
	for _, statement := range out.Statements {
		require.False(t, seen[statement], statement)
		seen[statement] = true
	}
	require.Contains(t, out.Statements, `GRANT SELECT ON app.users TO "belfry_run"`)
	out = grants(t, channels.DefaultRelation, "for", "enqueue", "role", `Robert"; DROP TABLE students`)
	require.Contains(t, out.Statements, `GRANT INSERT ON belfry.activities TO "Robert""; DROP TABLE students"`)
}

// Whoever asks for a kind of roles that there is not is told which there are, here and by the
// doctor.
func TestRoles_AreOfTheKindsThatThereAre(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"roles", "doctor"} {
		o := admintest.Operation(t, name)
		require.ErrorContains(t, admintest.Set(t, o, o.NewInput(), "for", "rule"), "allowed values: migrate, enqueue, run, deliver, operate, inbox, monitor")
		for kind := range doctor.ProfilesDo() {
			require.NoError(t, admintest.Set(t, o, o.NewInput(), "for", kind), kind)
		}
	}
	require.Len(t, doctor.ProfilesDo(), 7)
}

// Go, JSON and pages know neither infinite instants nor years of five digits: one row with such a value made every list
// fail that reads it. The CHECK of a table bounds the instants that a role of belfry's programs may write, except those
// in which clients ask for a time, which triggers check and name.
func TestRoles_WriteInstantsWithinBounds(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	role := d.DB.Role(t)
	for _, statement := range grants(t, channels.DefaultRelation, "for", "enqueue,run,deliver,operate", "role", role.User).Statements {
		d.Exec(statement)
	}
	var pins bool
	require.NoError(t, d.DB.Pool.QueryRow(t.Context(), `SELECT has_column_privilege($1, 'belfry.invalid_addresses', 'recorded_at', 'INSERT')`, role.User).Scan(&pins))
	require.False(t, pins, "a row of the year 9998 would stay among the newest of its channel")
	rows, err := d.DB.Pool.Query(t.Context(), `
SELECT c.relname || '.' || a.attname
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'belfry'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND a.atttypid = ANY ('{timestamptz,timestamp,date}'::regtype[])
   AND (has_column_privilege($1, c.oid, a.attnum, 'INSERT') OR has_column_privilege($1, c.oid, a.attnum, 'UPDATE'))
   AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.conname = replace(c.relname, 'message_rows', 'messages') || '_times_check' AND a.attnum = ANY (k.conkey)
                      AND pg_get_constraintdef(k.oid) ~ '1970-01-01 .*9999-12-31 ')
 ORDER BY 1`, role.User)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{
		"activities.created_at",                                                           // which the trigger has equal now()
		"activities.deliver_at", "jobs.deliver_at", "jobs.expires_at", "jobs.schedule_at", // which triggers bound
	}, list)
}

// A role that chooses the id of a row can use the ids that PostgreSQL generates next, and then each INSERT of another
// role fails.
func TestRoles_ChooseNoGeneratedID(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	role := d.DB.Role(t)
	for _, statement := range grants(t, channels.DefaultRelation, "for", "enqueue,run,deliver,operate", "role", role.User).Statements {
		d.Exec(statement)
	}
	rows, err := d.DB.Pool.Query(t.Context(), `
SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'belfry'::regnamespace AND a.attidentity <> '' AND has_column_privilege($1, c.oid, a.attnum, 'INSERT')`, role.User)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, list)

	_, err = role.Pool.Exec(t.Context(), `INSERT INTO belfry.events (id, subject, kind, actor) OVERRIDING SYSTEM VALUE VALUES (1, 'lane', 'changed', 'x')`)
	require.ErrorContains(t, err, "permission denied")
	_, err = role.Pool.Exec(t.Context(), `INSERT INTO belfry.events (subject, kind, actor) VALUES ('lane', 'changed', 'x')`)
	require.NoError(t, err)
	_, err = role.Pool.Exec(t.Context(), `UPDATE belfry.events SET actor = 'y'`)
	require.ErrorContains(t, err, "permission denied")
	_, err = role.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (id, external_id, platform) VALUES (1, 'a', 'ios')`)
	require.ErrorContains(t, err, "permission denied")
	_, err = role.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (external_id, platform) VALUES ('a', 'ios')`)
	require.NoError(t, err)
	_, err = role.Pool.Exec(t.Context(), `UPDATE belfry.job_types SET name = 'y' WHERE name = 'push'`)
	require.ErrorContains(t, err, "permission denied")
}

// A role that acts in steps raises the counts of an event, and an erasure takes a channel out of its events. Such a
// role once rewrote what another operator had done.
func TestRoles_RewriteNoEvent(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	role := d.DB.Role(t)
	for _, statement := range grants(t, channels.DefaultRelation, "for", "enqueue,run,deliver,operate", "role", role.User).Statements {
		d.Exec(statement)
	}
	d.Exec(`INSERT INTO belfry.events (subject, name, kind, actor, reason, detail) VALUES
		('lane', 'night', 'paused', 'ann', 'flood', '{"before": {"paused_at": null}}'), ('channel', '7', 'opted_out', 'ann', 'call', '{"medium": "sms"}'),
		('dead_letter', '', 'redriven', 'ann', 'why', '{"filter": {}, "before": {"DEAD": 5}, "after": {"PENDING": 5}}'),
		('transport', 'redislist', 'drained', 'ann', 'why', '{"session_user": "s", "messages": 5}'), ('transport', 'redislist', 'rebuilt', 'ann', 'why', '{"session_user": "s"}'),
		('retention', '', 'pruned', 'ann', 'why', '{"deleted": {"jobs": 5}}'), ('channel', '', 'forgotten', 'ann', 'why', '{"deleted": {"rows": 5}}')`)
	const on = `UPDATE belfry.events SET %s WHERE subject = '%s' AND kind = '%s'`
	for _, c := range [][3]string{
		{"lane", "paused", `name = 'day'`}, {"lane", "paused", `reason = ''`}, {"lane", "paused", `detail = '{}'`}, {"lane", "paused", `name = '', reason = ''`},
		{"channel", "opted_out", `name = '8'`}, {"channel", "opted_out", `reason = 'x'`}, {"channel", "opted_out", `name = '', reason = '', detail = '{}'`},
		{"dead_letter", "redriven", `reason = 'x'`}, {"dead_letter", "redriven", `detail = detail || '{"filter": {"job": 1}}'`},
		{"dead_letter", "redriven", `detail = jsonb_set(detail, '{before,DEAD}', '4')`}, {"dead_letter", "redriven", `detail = jsonb_set(detail, '{before,DEAD}', '"six"')`},
		{"dead_letter", "redriven", `detail = detail - 'before'`}, {"dead_letter", "redriven", `detail = detail || '{"after": {"CANCELLED": 5}}'`},
		{"transport", "drained", `detail = detail || '{"messages": 4}'`}, {"transport", "rebuilt", `detail = detail || '{"messages": 4}'`},
		{"retention", "pruned", `detail = '{"deleted": {"jobs": 4}}'`}, {"retention", "pruned", `name = 'x'`}, {"channel", "forgotten", `detail = '{"deleted": {}}'`},
	} {
		_, err := role.Pool.Exec(t.Context(), fmt.Sprintf(on, c[2], c[0], c[1]))
		require.ErrorContains(t, err, "is permanent for "+role.User, c)
	}
	for _, c := range [][3]string{
		{"channel", "opted_out", `name = '', reason = ''`}, {"dead_letter", "redriven", `detail = detail || '{"before": {"DEAD": 6}, "after": {"PENDING": 6}}'`},
		{"transport", "drained", `detail = jsonb_set(detail, '{messages}', '9')`}, {"retention", "pruned", `detail = '{"deleted": {"jobs": 5, "events": 1}}'`},
		{"channel", "forgotten", `detail = jsonb_set(detail, '{deleted}', '{"rows": 7}')`},
	} {
		_, err := role.Pool.Exec(t.Context(), fmt.Sprintf(on, c[2], c[0], c[1]))
		require.NoError(t, err, c)
	}
}

// A role that may raise a number that belfry counts could set it to the end of bigint, and nothing was claimed or
// pushed any more.
func TestRoles_ExhaustNoNumber(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	role := d.DB.Role(t)
	for _, statement := range grants(t, channels.DefaultRelation, "for", "enqueue,run,deliver,operate", "role", role.User).Statements {
		d.Exec(statement)
	}
	d.Exec(`INSERT INTO belfry.queues (name, transport, dispatcher, leads_until, last_push) VALUES ('bulk', 'x', 'r', now(), 3)`)
	d.Exec(`INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', 'Hi')`)
	for statement, want := range map[string]string{
		`UPDATE belfry.jobs SET fence = 9223372036854775807`:       "must rise by 1",
		`UPDATE belfry.jobs SET fence = fence + 2`:                 "must rise by 1",
		`UPDATE belfry.queues SET last_push = 9223372036854775806`: "cannot follow 3",
		`UPDATE belfry.queues SET last_push = 2`:                   "cannot follow 3",
		`INSERT INTO belfry.queues (name, transport, dispatcher, leads_until, last_push) VALUES ('activities', 'x', 'r', now(), 9223372036854775806)`: "permission denied",
		`INSERT INTO belfry.jobs (type, category, title, fence) VALUES ('push', 'operator_notice', 'Hi', 9223372036854775807)`:                        "belongs to belfry",
	} {
		_, err := role.Pool.Exec(t.Context(), statement)
		require.ErrorContains(t, err, want, statement)
	}
	for _, statement := range []string{`UPDATE belfry.queues SET last_push = 4, first_push = 5`, `UPDATE belfry.queues SET epoch = gen_random_uuid()`} {
		_, err := role.Pool.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

// Runners and relays add samples. Only an operator's role deletes them.
func TestRoles_AddSamples(t *testing.T) {
	t.Parallel()
	for name, deletes := range map[string]bool{"run": false, "deliver": false, "operate": true} {
		d := admintest.NewDesk(t)
		role := d.DB.Role(t)
		for _, statement := range grants(t, channels.DefaultRelation, "for", name, "role", role.User).Statements {
			d.Exec(statement)
		}
		if !deletes {
			_, err := role.Pool.Exec(t.Context(), `INSERT INTO belfry.samples (kind, name, at) VALUES ('lane', 'night', '2026-01-01 00:00:00+00')
				ON CONFLICT ON CONSTRAINT samples_pkey DO UPDATE SET sent = belfry.samples.sent + excluded.sent`)
			require.NoError(t, err, name)
		}
		got, err := retention.Prune(t.Context(), role.Pool, outbox.DefaultRetention(), retention.Options{})
		if deletes {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "permission denied for table samples", name)
		require.Zero(t, got)
	}
}
