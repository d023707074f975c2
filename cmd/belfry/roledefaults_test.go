package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// Whatever a role's defaults are, every command works, jobs run, the relay delivers, and
// an application's own session can use the SQL contract.
func TestLong_RoleDefaultsEverythingWorks(t *testing.T) {
	t.Parallel()
	grants := []string{"DO $$BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO :role', current_database()); END$$"}
	for _, d := range []string{
		"default_transaction_read_only = on",
		"standard_conforming_strings = off",
		"quote_all_identifiers = on",
		"datestyle = 'SQL, DMY'", "intervalstyle = sql_standard", "timezone = 'Asia/Kolkata'", "extra_float_digits = -15", "bytea_output = escape", "lc_monetary = 'C'",
		"search_path = nowhere", "array_nulls = off", "transform_null_equals = on", "row_security = on", "backslash_quote = on",
		"gin_fuzzy_search_limit = 1", "client_encoding = 'EUC_KR'",
		"check_function_bodies = off", "xmloption = document", "plan_cache_mode = force_generic_plan",
		"default_transaction_isolation = serializable", "default_transaction_deferrable = on",
	} {
		grants = append(grants, "ALTER ROLE :role SET "+d)
	}
	server := dbtest.NewEmpty(t)
	role := server.Role(t, grants...)
	role.DSN = kept(t, role.DSN)
	useEverything(t, server, role)
}

// useEverything runs the commands as a role that owns the schema, which they make.
func useEverything(t *testing.T, server, db *dbtest.DB) {
	t.Helper()
	environ := []string{"BELFRY_DATABASE_URL=" + db.DSN, regardless}
	try := func(args ...string) string {
		t.Helper()
		r := command(t, environ, args...)
		require.Equal(t, codeDone, r.code, "%s: %s%s", args, r.stdout, r.stderr)
		return r.stdout
	}
	keys := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(keys, []byte("u1\nu2\n"), 0o600))
	people := filepath.Join(t.TempDir(), "people.csv")
	require.NoError(t, os.WriteFile(people, []byte("external_id,platform,time_zone\nv1,ios,Asia/Seoul\n"), 0o600))

	try("migrate", "up")
	try("migrate", "status")
	try("channels", "generate", "200")
	d := deliverable(t, server, 5)
	d.db = db
	environ = d.environ()
	try("channels", "import", people)
	try("channels", "check")
	try("channels", "count", "--everyone")
	try("channels", "segment", "create", "vip")
	try("channels", "segment", "set", "vip", keys)
	try("channels", "opt-out", "--external-id", "u3", "--category", "popular_content")
	try("channels", "opt-outs", "--external-id", "u3")
	try("channels", "opt-in", "--external-id", "u3", "--category", "popular_content")
	try("categories", "set", "popular_content", "quiet_hours=23:00-23:01", "cap=3/24h")
	try("categories", "list")
	try("senders", "set", "fcm", "rate_per_second=500")
	try("senders", "list")
	id := strings.TrimSpace(try("enqueue", "--type", "push", "--category", "operator_notice", "--title", "Hi {{external_id}}", "--segment", "vip", "--route", "push,sms"))
	try("jobs", "set", id, "priority=5")
	try("abort", id, "--reason", "wait")
	try("resume", id, "--edit", "--title", "Hello")
	try("lanes", "pause", "default")
	try("lanes", "resume", "default")
	try("send", "--external-id", "u4", "--title", "liked")
	try("run", "--deliver", "--quiet")
	try("jobs", "list")
	try("jobs", "show", id)
	try("jobs", "events", id)
	try("jobs", "audit", id)
	try("dead-letters", "list")
	try("recall", id)
	try("prune", "--older-than", "90d")
	try("doctor")

	// What applications and operators do in sessions of their own.
	for _, sql := range []string{
		`INSERT INTO belfry.jobs (type, category, title, route) VALUES ('inbox', 'operator_notice', 'no capital letter', '{sms}')`,
		`SELECT belfry.enqueue_group('{inbox,push}', 'operator_notice', 'both', audience => belfry.audience_radius(37.5665, 126.978, 30000), idempotency_key => 'k')`,
		`INSERT INTO belfry.activities (channel_id, title) SELECT id, 'no capital letter' FROM belfry.channels WHERE external_id = 'u5'`,
		`SELECT belfry.send_external('u5', 'activity', 'no capital letter', variants => '{"ko": {"title": "no capital letter"}}')`,
		`SELECT belfry.set(1, '{"schedule_at": "2030-01-02T15:04:05Z"}')`,
		`INSERT INTO belfry.schedules (name, every, template, query) VALUES ('s', '1 hour', '{"type": "push", "category": "operator_notice"}', 'SELECT ''no capital letter'' AS title')`,
		`SELECT belfry.opt_out(1, 'operator_notice', 'sms', 'no')`,
		`UPDATE belfry.jobs SET abort_requested = true WHERE status = 'PENDING'`,
	} {
		err := pgx.BeginTxFunc(t.Context(), db.Pool, pgx.TxOptions{AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), sql, pgx.QueryExecModeExec)
			return err
		})
		require.NoError(t, err, sql)
	}
	try("schedules", "list")
	try("schedules", "run", "s")
	try("schedules", "remove", "s")
	try("run", "--deliver", "--quiet")
	require.Zero(t, d.statuses()["PENDING"]+d.statuses()["PROCESSING"])
}
