package migrations_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/migrations"
)

// callersPath names the functions that read the relation of recipients with their caller's search_path:
// functions of a view or a policy of the application may rely on it. They qualify what they call.
var callersPath = []string{"audience_missing", "channel_id"}

// Each function of the schema, with whose rights it runs, who may call it, and whether it
// executes text as SQL: a change of any of these is reviewed. A function fixes its search_path, unless
// its body was parsed when it was created, or callersPath names it; one that executes text over a stored name asks trusted_relation for it.
func TestFunctions_RightsAreReviewed(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	rows, err := db.Pool.Query(t.Context(), `
		SELECT p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')'
		       || CASE WHEN p.prosecdef THEN ' owner''s rights' ELSE '' END
		       || CASE WHEN has_function_privilege('public', p.oid, 'EXECUTE') THEN '' ELSE ' not public' END
		       || CASE WHEN p.prosrc ~ '\mEXECUTE\M' THEN ' dynamic' ELSE '' END
		       || CASE WHEN p.prosrc ~ 'advisory' THEN ' takes a lock that any login can take' ELSE '' END
		       || CASE WHEN p.proowner = n.nspowner THEN '' ELSE ' of another owner' END
		       || CASE WHEN 'search_path=pg_catalog, pg_temp' = ANY (p.proconfig) THEN ''
		               WHEN p.prosqlbody IS NOT NULL AND NOT p.prosecdef THEN ' bound at creation'
		               WHEN p.proname = ANY ($1) AND NOT p.prosecdef THEN ' caller''s search_path'
		               ELSE ' without a search_path' END
		       || CASE WHEN p.prosrc ~ '\mEXECUTE\M' AND p.prosrc ~ 'relation_name' AND p.prosrc !~ 'belfry.trusted_relation' THEN ' over any name' ELSE '' END
		  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		 WHERE n.nspname = 'belfry' ORDER BY p.proname COLLATE "C", p.oid`, callersPath)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	text := strings.Join(list, "\n") + "\n"
	for _, fault := range []string{"of another owner", "without a search_path", "over any name", "takes a lock that any login can take"} {
		require.NotContains(t, text, fault)
	}
	dbtest.Golden(t, "testdata/functions.txt", text)
}

// A role that may CREATE in a schema of the search_path could define public.format(text, text), which is
// a closer match than pg_catalog.format(text, VARIADIC "any"), and had its code executed by every
// caller of a function that did not fix its search_path.
func TestFunctions_ExecuteNoCodeOfTheSearchPath(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	weak := db.Role(t, `GRANT USAGE, CREATE ON SCHEMA public TO :role`)
	for _, f := range []string{
		`format(text, text)`, `format(text, text, text)`, `format(text, bigint)`, `format(text, bigint, text)`, `format(text, name, name)`, `array_agg(text)`, `array_agg(bigint)`,
	} {
		returns := "text"
		if strings.HasPrefix(f, "array_agg") {
			_, err := weak.Pool.Exec(t.Context(), `CREATE AGGREGATE public.`+f+` (SFUNC = array_append, STYPE = `+strings.TrimSuffix(strings.TrimPrefix(f, "array_agg("), ")")+`[], INITCOND = '{evil}')`)
			if err != nil { // of bigint
				_, err = weak.Pool.Exec(t.Context(), `CREATE AGGREGATE public.`+f+` (SFUNC = array_append, STYPE = bigint[], INITCOND = '{-7}')`)
			}
			require.NoError(t, err)
			continue
		}
		_, err := weak.Pool.Exec(t.Context(), `CREATE FUNCTION public.`+f+` RETURNS `+returns+` LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'code of another role as %', current_user; END $$`)
		require.NoError(t, err)
	}
	// An operator for two operands of jsonb is the closest match of one with a literal, and those of other types
	// match columns of varchar.
	for _, operator := range []string{`?`, `->`, `->>`, `=`, `<>`, `||`} {
		for _, types := range [][2]string{{"jsonb", "jsonb"}, {"varchar", "text"}, {"text", "varchar"}, {"bigint", "text"}} {
			_, err := weak.Pool.Exec(t.Context(), `CREATE OR REPLACE FUNCTION public.evil(`+types[0]+`, `+types[1]+`) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'an operator of another role as %', current_user; END $$`)
			require.NoError(t, err)
			_, err = weak.Pool.Exec(t.Context(), `CREATE OPERATOR public.`+operator+` (FUNCTION = public.evil, LEFTARG = `+types[0]+`, RIGHTARG = `+types[1]+`)`)
			require.NoError(t, err)
		}
	}
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.channels (external_id, platform) VALUES ('u-1', 'ios')`)
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), `CREATE TABLE public.people (id integer PRIMARY KEY, external_id varchar UNIQUE)`)
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), `INSERT INTO public.people VALUES (7, 'u-1')`)
	require.NoError(t, err)
	for _, call := range []string{
		`SELECT belfry.channel_id('u-1')`,
		`SELECT belfry.audience_missing('{"kind": "channels", "external_ids": ["u-1", "u-2"]}')`,
		`SELECT belfry.enqueue('inbox', 'operator_notice', 'x')`,
		`SELECT belfry.set(1, '{"title": "y"}')`,
		`SELECT belfry.abort(1)`,
		`SELECT belfry.pause_lane('default')`,
		`SELECT belfry.send_external('u-1', 'activity', 'x')`,
		`SELECT belfry.halt()`,
		`SELECT belfry.unhalt()`,
		`SELECT belfry.record_recipients('public.people')`,
		`SELECT belfry.channel_id('u-1')`,
		`SELECT belfry.audience_missing('{"kind": "channels", "ids": [7, 8]}')`,
		`SELECT belfry.audience_missing('{"kind": "channels", "external_ids": ["u-1", "u-2"]}')`,
	} {
		_, err := db.Pool.Exec(t.Context(), call)
		require.NoError(t, err, call)
	}
	_, err = db.Pool.Exec(t.Context(), `SELECT belfry.pause('lanes', 'x', NULL, 'a', 'b'), belfry.reject('jobs', 'title', 'is bad')`)
	require.ErrorContains(t, err, "belfry.jobs.title: is bad")
}

// CHECKs, indexes, views and bodies that are parsed at creation keep the functions that they were created
// with, so a migration must not find those of a role that may CREATE in a schema of the search_path.
func TestMigrations_BindNoCodeOfTheSearchPath(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	weak := db.Role(t, `GRANT USAGE, CREATE ON SCHEMA public TO :role`)
	const function = `public.format(text, text)`
	_, err := weak.Pool.Exec(t.Context(), `CREATE FUNCTION `+function+` RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'code of another role' $$`)
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), db.DSN)
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), `DROP FUNCTION `+function)
	require.NoError(t, err, "nothing depends on it")
}
