package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

// withProfiles is a new role with what `belfry roles` prints, given by owner; "": by who
// makes the role.
func withProfiles(t *testing.T, db *dbtest.DB, owner, kinds string) *dbtest.DB {
	t.Helper()
	r := command(t, nil, "roles", "--for", kinds, "--role", "somebody")
	require.Equal(t, codeDone, r.code, r.stderr)
	var statements []string
	for _, statement := range strings.Split(strings.TrimSpace(r.stdout), ";\n") {
		statement = strings.ReplaceAll(statement, `"somebody"`, ":role")
		if owner != "" {
			statement = `SET LOCAL ROLE "` + owner + `"; ` + statement
		}
		statements = append(statements, statement)
	}
	role := db.Role(t, statements...)
	role.DSN = kept(t, role.DSN)
	return role
}

// requireAborts aborts a job as a relay does.
func requireAborts(t *testing.T, role *dbtest.DB, id string) {
	t.Helper()
	number, err := strconv.ParseInt(strings.TrimSpace(id), 10, 64)
	require.NoError(t, err)
	aborted, err := outbox.NewLedger(role.Pool, "r", time.Minute).Abort(t.Context(), number, "a sender fails it")
	require.NoError(t, err)
	require.True(t, aborted)
}

// Each line of the table in docs/roles.md, with a fresh role that has no more.
func TestLong_RolesEachIsEnoughForWhatItDoes(t *testing.T) {
	t.Parallel()
	empty := dbtest.NewEmpty(t)
	owner := withProfiles(t, empty, "", "migrate")
	require.Equal(t, codeDone, command(t, []string{"BELFRY_DATABASE_URL=" + owner.DSN}, "migrate", "up").code)
	d := deliverable(t, empty, 6)
	try := func(db *dbtest.DB, args ...string) string {
		t.Helper()
		d.db = db
		r := command(t, d.environ(), args...)
		require.Equal(t, codeDone, r.code, "%s: %s%s", args, r.stdout, r.stderr)
		return r.stdout
	}
	requireEnqueues(t, withProfiles(t, empty, owner.User, "enqueue"))

	operator := withProfiles(t, empty, owner.User, "operate")
	id := strings.TrimSpace(try(operator, "enqueue", "--type", "push", "--category", "operator_notice", "--title", "later", "--everyone", "--at", "+1h"))
	try(operator, "jobs", "set", id, "priority=5")
	try(operator, "abort", id)
	try(operator, "resume", id, "--edit", "--title", "Hello")
	try(operator, "abort", id)
	try(operator, "upcoming", "--lane", "default")
	try(operator, "lanes", "pause", "default")
	try(operator, "lanes", "resume", "default")
	try(operator, "categories", "set", "popular_content", "cap=3/24h")
	try(operator, "senders", "pause", "fcm")
	try(operator, "senders", "resume", "fcm")
	_, err := operator.Pool.Exec(t.Context(), `UPDATE belfry.installation SET database_oid = NULL`)
	require.NoError(t, err)
	try(operator, "adopt", "--yes")
	try(operator, "channels", "segment", "create", "vip")
	try(operator, "channels", "segment", "drop", "vip")
	try(operator, "channels", "opt-out", "--channel", "6")
	try(operator, "channels", "opt-in", "--channel", "6")
	try(operator, "channels", "forget", "6")
	try(operator, "send", "--external-id", "u4", "--title", "liked")
	requireAttaches(t, empty, owner, operator)

	runner := withProfiles(t, empty, owner.User, "run")
	_, err = operator.Pool.Exec(t.Context(), `INSERT INTO belfry.schedules (name, every, template) VALUES ('s', '1 second', '{"type": "push", "category": "operator_notice", "title": "x"}')`)
	require.NoError(t, err)
	try(runner, "run", "--quiet")
	relay := withProfiles(t, empty, owner.User, "deliver")
	d.db = relay
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan code, 1)
	a := newApp(io.Discard, io.Discard, d.environ())
	go func() { ended <- a.execute(ctx, []string{"relay"}) }()
	require.Eventually(t, func() bool { return d.statuses()["PENDING"]+d.statuses()["PROCESSING"] == 0 }, time.Minute, 20*time.Millisecond)
	cancel()
	<-ended
	_, err = relay.Pool.Exec(t.Context(), `UPDATE belfry.message_rows SET channel_id = 1`)
	require.ErrorContains(t, err, "permission denied", "whose message it is")
	_, err = relay.Pool.Exec(t.Context(), `UPDATE belfry.jobs SET title = 'x'`)
	require.ErrorContains(t, err, "permission denied", "what a job says")
	requireAborts(t, relay, try(operator, "enqueue", "--type", "push", "--category", "operator_notice", "--title", "later", "--everyone", "--at", "+1h"))
	both := withProfiles(t, empty, owner.User, "run,deliver")
	try(both, "run", "--deliver", "--quiet")
	try(both, "doctor", "--for", "run,deliver")
	d.db = empty
	require.Zero(t, d.statuses()["PENDING"]+d.statuses()["PROCESSING"])

	try(operator, "schedules", "pause", "s")
	try(operator, "schedules", "remove", "s")
	try(operator, "recall", "1")
	try(operator, "prune", "--older-than", "90d")
	try(operator, "doctor", "--for", "operate")

	monitor := withProfiles(t, empty, owner.User, "monitor")
	for _, look := range []string{"status", "health", "jobs list", "jobs list --since 1h", "jobs show 1", "jobs runs 1", "jobs audit 1", "jobs recipients 1", "jobs report 1", "dead-letters list", "dead-letters errors", "senders list"} {
		try(monitor, strings.Fields(look)...)
	}
	try(monitor, "upcoming", "--lane", "default")
	require.Regexp(t, `(?m)^ok       privileges     .* can monitor; it cannot run, deliver, operate; print the GRANTs: `+"`belfry roles --for run,deliver,operate`"+`$`, try(monitor, "doctor"), "by itself: it may write nothing")
	require.Regexp(t, `(?m)^ok       privileges     .* can deliver, monitor; it cannot run, operate; print the GRANTs`, try(relay, "doctor"), "run's rights are not its")
	require.Regexp(t, `(?m)^ok       privileges     .* can run, monitor; it cannot deliver, operate; print the GRANTs`, try(runner, "doctor"))
	require.Regexp(t, `(?m)^ok       privileges     .* can run, deliver, monitor; it cannot operate; print the GRANTs`, try(both, "doctor"))
	_, err = monitor.Pool.Exec(t.Context(), `DELETE FROM belfry.jobs`)
	require.ErrorContains(t, err, "permission denied")

	requireLater(t, owner, monitor, runner)
}

// requireLater makes a table as a later version may: roles read it, and none writes it.
func requireLater(t *testing.T, owner, monitor, runner *dbtest.DB) {
	t.Helper()
	_, err := owner.Pool.Exec(t.Context(), `CREATE TABLE belfry.later (id bigint)`)
	require.NoError(t, err)
	_, err = monitor.Pool.Exec(t.Context(), `SELECT FROM belfry.later`)
	require.NoError(t, err)
	_, err = runner.Pool.Exec(t.Context(), `INSERT INTO belfry.later VALUES (1)`)
	require.ErrorContains(t, err, "permission denied")
}

// requireAttaches has the schema's owner attach a table, once the table's owner lets them, and
// an operator verify it.
func requireAttaches(t *testing.T, db, owner, operator *dbtest.DB) {
	t.Helper()
	require.NoError(t, execEach(db, `CREATE SCHEMA app; CREATE TABLE app.users (id uuid PRIMARY KEY)`))
	t.Cleanup(func() { // before the owner of the triggers' function goes
		require.NoError(t, execEach(db, `DROP SCHEMA app CASCADE`))
	})
	attach := func(as *dbtest.DB) result {
		return command(t, []string{"BELFRY_DATABASE_URL=" + as.DSN}, "channels", "attach", "app.users", "--external-id", "id")
	}
	r := attach(owner)
	require.Equal(t, codeFailure, r.code, "as for any right that is refused")
	require.Contains(t, r.stderr, `this user lacks rights: GRANT USAGE ON SCHEMA "app", and SELECT and TRIGGER on the table: `)
	grant(t, db, owner, `GRANT USAGE ON SCHEMA app TO `)
	r = attach(owner)
	require.Equal(t, codeFailure, r.code)
	require.Equal(t, "belfry: channels: attach app.users: this user lacks rights: GRANT SELECT, TRIGGER ON app.users TO "+owner.User+"\n", r.stderr, "and no hint at --help")
	grant(t, db, owner, `GRANT SELECT, TRIGGER ON app.users TO `)
	grant(t, db, operator, `GRANT USAGE ON SCHEMA app TO `)
	grant(t, db, operator, `GRANT SELECT, TRIGGER ON app.users TO `)
	r = attach(operator)
	require.Equal(t, codeFailure, r.code)
	require.Contains(t, r.stderr, "this user lacks rights: connect as "+owner.User+", who owns the schema belfry")
	r = attach(owner)
	require.Equal(t, codeDone, r.code, r.stderr)
	r = command(t, []string{"BELFRY_DATABASE_URL=" + operator.DSN}, "channels", "verify")
	require.Equal(t, codeDone, r.code, r.stderr)
}

// requireEnqueues has an application's role enqueue in every way, and see no text.
func requireEnqueues(t *testing.T, web *dbtest.DB) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', 'plain')`,
		`INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', 'returning') RETURNING id`,
		`SELECT belfry.enqueue('inbox', 'operator_notice', 'function', idempotency_key => 'k')`,
		`SELECT belfry.enqueue('inbox', 'operator_notice', 'function', idempotency_key => 'k')`,
		`SELECT * FROM belfry.enqueue_group('{inbox,push}', 'operator_notice', 'group')`,
		`INSERT INTO belfry.activities (channel_id, title) VALUES (1, 'plain')`,
		`SELECT belfry.send(2, 'activity', 'function', idempotency_key => 'k')`,
		`SELECT belfry.send(2, 'activity', 'function', idempotency_key => 'k')`,
		`SELECT belfry.send_external('u3', 'activity', 'function')`,
	} {
		_, err := web.Pool.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	for _, sql := range []string{`SELECT title FROM belfry.jobs`, `SELECT title FROM belfry.activities`, `SELECT addresses FROM belfry.channels`, `UPDATE belfry.jobs SET abort_requested = true`} {
		_, err := web.Pool.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "permission denied", sql)
	}
}

// What is missing is said with the statement that gives it.
func TestDoctor_NamesTheGrants(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	doctor := func(role *dbtest.DB, args ...string) string {
		r := command(t, []string{"BELFRY_DATABASE_URL=" + role.DSN}, append([]string{"doctor"}, args...)...)
		require.Equal(t, codeFailure, r.code, r.stdout)
		return r.stdout
	}
	nobody := db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`)
	require.Contains(t, doctor(nobody), `; GRANT SELECT ON ALL TABLES IN SCHEMA belfry TO "`+nobody.User+`"; print the GRANTs: `+"`belfry roles --for monitor")
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (id, external_id, platform) VALUES (5, 'u5', 'web')`)
	require.NoError(t, err)
	monitor := withProfiles(t, db, "", "monitor")
	outside := db.Role(t)
	require.Contains(t, doctor(outside, "--for", "enqueue"), ` -> GRANT USAGE ON SCHEMA belfry TO "`+outside.User+`"; print all GRANTs: `+"`belfry roles --for enqueue")
	require.Contains(t, doctor(nobody, "--for", "enqueue"), ` -> GRANT INSERT, SELECT (id, idempotency_key) ON belfry.activities TO "`+nobody.User+`"`, "no more than that")
	app := withProfiles(t, db, "", "enqueue")
	for _, args := range [][]string{{"doctor"}, {"doctor", "--for", "enqueue"}} { // an application that looks after itself
		r := command(t, []string{"BELFRY_DATABASE_URL=" + app.DSN}, args...)
		require.Equal(t, codeDone, r.code, r.stdout)
		require.Contains(t, r.stdout, "ok       privileges     "+app.User+" has all privileges for enqueue\n")
		require.NotContains(t, r.stdout, "health checks", "which are a runner's")
	}
	writer := db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs TO :role`)
	require.Contains(t, doctor(writer, "--for", "enqueue"), "lacks INSERT, SELECT (id, idempotency_key) on belfry.activities\n")
	require.Contains(t, doctor(writer), "failed   schema ", "nobody said what it is for")
	require.Contains(t, doctor(monitor, "--for", "deliver"), ` -> GRANT INSERT, UPDATE, DELETE ON belfry.leases TO "`+monitor.User+`"`)
	partly := withProfiles(t, db, "", "run,deliver")
	_, err = db.Pool.Exec(t.Context(), `REVOKE UPDATE ON belfry.schedules FROM `+pgx.Identifier{partly.User}.Sanitize())
	require.NoError(t, err)
	r := command(t, []string{"BELFRY_DATABASE_URL=" + partly.DSN}, "doctor")
	require.Equal(t, codeDone, r.code, r.stdout)
	require.Contains(t, r.stdout, "can deliver, monitor; it cannot operate; print the GRANTs: ")
	require.Contains(t, r.stdout, "warning  privileges     "+partly.User+" lacks UPDATE on belfry.schedules and so cannot run, for which it has some privileges\n")
	require.Contains(t, doctor(partly, "--for", "run"), "failed   privileges     "+partly.User+" lacks UPDATE on belfry.schedules\n")
	broken := withProfiles(t, db, "", "run")
	_, err = db.Pool.Exec(t.Context(), `REVOKE UPDATE ON belfry.schedules FROM `+pgx.Identifier{broken.User}.Sanitize())
	require.NoError(t, err)
	require.Contains(t, doctor(broken), "failed   privileges     "+broken.User+" lacks UPDATE on belfry.schedules\n", "it can do nothing entirely that it is for")
	r = command(t, []string{"BELFRY_DATABASE_URL=" + monitor.DSN}, "channels", "opt-out", "--channel", "5")
	require.Equal(t, codeFailure, r.code)
	require.NotContains(t, r.stderr, "contract")
	require.Contains(t, r.stderr, "permission denied for table opt_outs")
	require.Contains(t, r.stderr, "belfry roles")
	r = command(t, nil, "roles", "--for", "rule")
	require.Equal(t, codeUsage, r.code)
	require.Contains(t, r.stderr, `invalid argument "rule" for "--for" flag: allowed values: migrate, enqueue, run, deliver, operate, inbox, monitor`)
}

// Of the kinds of roles only operate sees tokens, users and sessions, and it makes and ends them;
// and what the HTTP API has answered.
func TestRoles_OnlyOperateSeesTokensAndUsers(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	at := func(db *dbtest.DB) []string { return []string{"BELFRY_DATABASE_URL=" + kept(t, db.DSN)} }
	operator := withProfiles(t, db, "", "operate")
	r := command(t, at(operator), "tokens", "create", "ci", "--role", "viewer")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Regexp(t, `^belfry_\S{43}\n$`, r.stdout)
	key := operation.Request{Who: "ci", Key: "k"}
	state, err := key.Begin(t.Context(), operator.Pool, time.Minute)
	require.NoError(t, err)
	require.True(t, state.New)
	require.NoError(t, key.Answer(t.Context(), operator.Pool, 200, []byte("{}")))
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("correct horse battery\n"), 0o600))
	require.Equal(t, codeDone, command(t, at(operator), "users", "add", "ann", "--role", "viewer", "--password-file", password).code)
	require.Equal(t, codeDone, command(t, at(operator), "users", "link", "ann").code)
	for kind, sees := range map[string]int{"run": 0, "deliver": 0, "run,deliver": 0, "monitor": 0, "operate": 1} {
		var n int
		role := withProfiles(t, db, "", kind)
		for _, table := range []string{"tokens", "users", "sessions", "requests"} {
			require.NoError(t, role.Pool.QueryRow(t.Context(), `SELECT count(*) FROM belfry.`+table).Scan(&n), kind)
			require.Equal(t, sees, n, "%s: %s", kind, table)
		}
		if sees == 0 {
			require.NotEqual(t, codeDone, command(t, at(role), "tokens", "create", "mine", "--role", "admin").code, kind)
		}
	}
	for _, kind := range []string{"enqueue", "inbox"} {
		_, err = withProfiles(t, db, "", kind).Pool.Exec(t.Context(), `SELECT FROM belfry.tokens`)
		require.ErrorContains(t, err, "permission denied", kind)
	}
	r = command(t, at(operator), "tokens", "revoke", "ci")
	require.Equal(t, codeDone, r.code, r.stderr)
}
