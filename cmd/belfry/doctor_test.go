package main

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// Behind a pooler nobody sees whose connection is gone, and that is said.
func TestDoctor_SeesAPooler(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	pooler := dbtest.StartPgBouncer(t, db.DSN, nil)
	r := command(t, []string{"BELFRY_DATABASE_URL=" + pooler.DSN(db.Name) + "&default_query_exec_mode=exec"}, "doctor")
	require.Equal(t, codeDone, r.code, r.stdout)
	require.Contains(t, r.stdout, "warning  pooler         a pooler stands between belfry and PostgreSQL: the job of a dead runner is taken over after runner.stale_after (30s), not immediately\n")
	const hint = "-> set runner.listen and delivery.listen to false"
	require.Contains(t, r.stdout, hint)
	r = command(t, []string{"BELFRY_DATABASE_URL=" + pooler.DSN(db.Name) + "&default_query_exec_mode=exec", "BELFRY_RUNNER_LISTEN=false", "BELFRY_DELIVERY_LISTEN=false"}, "doctor")
	require.Contains(t, r.stdout, "a pooler stands")
	require.NotContains(t, r.stdout, hint, "it is set")
	r = command(t, []string{"BELFRY_DATABASE_URL=" + db.DSN}, "doctor")
	require.NotContains(t, r.stdout, "a pooler stands")
}

// A role that may not read the server's statistics has blind health checks.
func TestDoctor_SaysWhichHealthChecksAreBlind(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	name := db.Name[:min(len(db.Name), 60)] + "_r"
	role := pgx.Identifier{name}.Sanitize()
	_, err := db.Pool.Exec(t.Context(), "CREATE ROLE "+role)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.Pool.Exec(context.WithoutCancel(t.Context()), "DROP ROLE "+role)
		require.NoError(t, err)
	})
	u, err := url.Parse(db.DSN)
	require.NoError(t, err)
	query := u.Query()
	query.Set("options", "-crole="+name)
	u.RawQuery = query.Encode()

	environ := []string{"BELFRY_DATABASE_URL=" + u.String()}
	r := command(t, environ, "doctor")
	require.Equal(t, codeFailure, r.code, "it may not read the schema either")
	require.Regexp(t, `(?m)^warning  health checks  \S+ may not read the server's statistics: replica_lag has no effect$`, r.stdout)
	require.Contains(t, r.stdout, "-> GRANT pg_monitor TO ")
	r = command(t, append(environ, "BELFRY_RUNNER_LOAD_HEALTH_ENABLED=false"), "doctor")
	require.NotContains(t, r.stdout, "health checks")
}

// The query of a schedule is tried as who fires it: a user that only looks is told nothing
// about rights that it does not need.
func TestDoctor_TriesQueriesOfSchedulesForWhoFiresThem(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	_, err := db.Pool.Exec(t.Context(), `CREATE TABLE questions (title text);
		INSERT INTO belfry.schedules (name, cron, query, template) VALUES ('asks', '@daily', 'SELECT title FROM questions', '{"type": "inbox", "category": "question_content", "title": "x"}')`)
	require.NoError(t, err)
	for profile, want := range map[string]string{
		"run":     "schedule asks will fail: query: permission denied for table questions",
		"monitor": "1 schedule, none fails",
	} {
		role := withProfiles(t, db, "", profile)
		require.Contains(t, command(t, []string{"BELFRY_DATABASE_URL=" + role.DSN}, "doctor").stdout, want)
	}
}
