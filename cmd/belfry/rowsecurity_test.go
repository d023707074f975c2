package main

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// A recipient that a policy hides is not one that does not exist: whatever reads recipients
// fails, and names the table and the policy.
func TestRowSecurity_HiddenRecipientsAreNotLeftOutInSilence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		relation string
		setup    []string
		table    string
	}{
		"a table with a policy": {"app.r", []string{"CREATE POLICY p ON app.r FOR SELECT TO :role USING (id % 3 = 0)"}, "policy p"},
		"a table without one":   {"app.r", nil, "no policy"},
		"a view of it":          {"app.v", []string{"CREATE VIEW app.v AS SELECT * FROM app.r", "ALTER VIEW app.v OWNER TO :role"}, "no policy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := dbtest.NewEmpty(t)
			grants := append([]string{
				"DO $$BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO :role', current_database()); END$$",
				"CREATE SCHEMA app", "CREATE TABLE app.r (id bigint PRIMARY KEY, external_id text UNIQUE, platform text, active boolean, location point, addresses jsonb)",
				"INSERT INTO app.r SELECT g, 'u' || g, 'ios', true, NULL, '{}' FROM generate_series(1, 90) g",
				"ALTER TABLE app.r ENABLE ROW LEVEL SECURITY", "GRANT ALL ON SCHEMA app TO :role", "GRANT SELECT ON app.r TO :role",
			}, c.setup...)
			role := server.Role(t, grants...)
			environ := []string{"BELFRY_DATABASE_URL=" + role.DSN, "BELFRY_CHANNELS_RELATION=" + c.relation, regardless}
			require.Equal(t, codeDone, command(t, environ, "migrate", "up").code)
			r := command(t, environ, "channels", "check")
			require.Equal(t, codeFailure, r.code, r.stdout)
			require.Contains(t, r.stdout, "row-level security hides rows of app.r from ")
			require.Contains(t, r.stdout, c.table)
			require.Contains(t, r.stdout, "BYPASSRLS")
			r = command(t, environ, "doctor")
			require.Contains(t, r.stdout, "row-level security hides rows of app.r")
			r = command(t, environ, "channels", "count", "--everyone")
			require.Equal(t, codeFailure, r.code, r.stdout)
			require.Contains(t, r.stderr, "BYPASSRLS")
			r = command(t, environ, "enqueue", "--type", "inbox", "--category", "operator_notice", "--title", "x", "--everyone")
			require.Equal(t, codeDone, r.code, r.stderr)
			r = command(t, environ, "run", "--quiet")
			require.Equal(t, codeFailure, r.code, r.stderr)
			require.EqualValues(t, 1, count(t, server, "belfry.jobs WHERE status = 'FAILED' AND last_error LIKE '%row-level security hides rows of app.r%'"))
			require.Zero(t, count(t, server, "belfry.notifications"))
		})
	}
}

// belfry's own tables are no exception, and those whose policies are belfry's are read as before.
func TestRowSecurity_OnBelfrysOwnTables(t *testing.T) {
	t.Parallel()
	server := dbtest.New(t)
	role := withProfiles(t, server, "", "run,operate")
	for _, table := range []string{"channels", "lanes"} {
		_, err := server.Pool.Exec(t.Context(), "ALTER TABLE belfry."+table+" ENABLE ROW LEVEL SECURITY")
		require.NoError(t, err)
	}
	environ := []string{"BELFRY_DATABASE_URL=" + role.DSN}
	r := command(t, environ, "channels", "check")
	require.Contains(t, r.stdout, "row-level security hides rows of belfry.channels")
	r = command(t, environ, "doctor")
	require.Contains(t, r.stdout, "row-level security hides rows of belfry.lanes")
	r = command(t, environ, "lanes", "list")
	require.Equal(t, codeFailure, r.code, r.stdout)
	require.Contains(t, r.stderr, "lanes")
	require.Contains(t, r.stderr, "BYPASSRLS")
	for _, list := range []string{"users", "tokens", "sessions"} {
		r = command(t, environ, list, "list")
		require.Equal(t, codeDone, r.code, "%s: %s", list, r.stderr)
	}
}

// A database, a role or a URL with another client encoding is used as any other, and a database
// that is not UTF-8 is refused in one sentence.
func TestEncoding_ClientsAreUTF8AndTheDatabaseHasToBe(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	role := withProfiles(t, db, "", "operate")
	_, err := db.Pool.Exec(t.Context(), `ALTER ROLE "`+role.User+`" SET client_encoding = 'EUC_KR'`)
	require.NoError(t, err)
	r := command(t, []string{"BELFRY_DATABASE_URL=" + role.DSN}, "jobs", "list")
	require.Equal(t, codeDone, r.code, r.stderr)

	latin := "l" + db.Name[1:]
	_, err = db.Pool.Exec(t.Context(), `CREATE DATABASE "`+latin+`" ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = db.Pool.Exec(t.Context(), `DROP DATABASE IF EXISTS "`+latin+`" WITH (FORCE)`) })
	at, err := url.Parse(db.DSN)
	require.NoError(t, err)
	at.Path = "/" + latin
	environ := []string{"BELFRY_DATABASE_URL=" + at.String()}
	for _, args := range [][]string{{"jobs", "list"}, {"migrate", "up"}, {"doctor"}, {"daemon"}, {"run"}} {
		r := command(t, environ, args...)
		require.Equal(t, refused(args), r.code, "%s: %s%s", args, r.stdout, r.stderr)
		require.Contains(t, r.stdout+r.stderr, "the database's encoding is LATIN1, and belfry needs UTF8", args)
		require.NotContains(t, r.stderr, "cannot reach", args)
	}
}

// refused is the exit code of a command on a database that belfry cannot work with; doctor reports it.
func refused(args []string) code {
	if args[0] == "doctor" {
		return codeFailure
	}
	return codeConfiguration
}

// A pooler in statement mode is named, whatever meets it.
func TestLong_PoolerInStatementModeIsRefused(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	dsn := dbtest.StartPgBouncer(t, db.DSN, map[string]string{"pool_mode": "statement"}).DSN(db.Name)
	for _, args := range [][]string{{"enqueue", "--type", "inbox", "--category", "operator_notice", "--title", "x", "--everyone"}, {"daemon"}, {"run"}, {"doctor"}} {
		r := command(t, []string{"BELFRY_DATABASE_URL=" + dsn}, args...)
		require.Equal(t, refused(args), r.code, "%s: %s%s", args, r.stdout, r.stderr)
		require.Contains(t, r.stdout+r.stderr, "the pooler is in statement mode, and belfry needs transaction or session mode", args)
		require.NotContains(t, r.stderr, "may have been", args)
	}
}
