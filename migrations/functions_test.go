package migrations_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
)

// Each function of the schema, with whose rights it runs, who may call it, and whether it
// executes text as SQL: a change of any of these is reviewed. A function with its owner's rights
// fixes its search_path; one that executes text over a stored name asks trusted_relation for it.
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
		       || CASE WHEN p.prosecdef AND 'search_path=pg_catalog, pg_temp' <> ALL (coalesce(p.proconfig, '{}')) THEN ' without a search_path' ELSE '' END
		       || CASE WHEN p.prosrc ~ '\mEXECUTE\M' AND p.prosrc ~ 'relation_name' AND p.prosrc !~ 'belfry.trusted_relation' THEN ' over any name' ELSE '' END
		  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		 WHERE n.nspname = 'belfry' ORDER BY p.proname COLLATE "C", p.oid`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	text := strings.Join(list, "\n") + "\n"
	for _, fault := range []string{"of another owner", "without a search_path", "over any name", "takes a lock that any login can take"} {
		require.NotContains(t, text, fault)
	}
	dbtest.Golden(t, "testdata/functions.txt", text)
}
