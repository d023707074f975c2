package migrations_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/migrations"
)

// fresh creates a role without any right, whose name needs quotes, and returns its name
// and the connection string of sessions with its rights.
func fresh(t *testing.T, db *dbtest.DB, kind string) (role, dsn string) {
	t.Helper()
	name := fmt.Sprintf("%.50s-%s", db.Name, kind)
	role = `"` + name + `"`
	_, err := db.Pool.Exec(t.Context(), `CREATE ROLE `+role)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.Pool.Exec(context.WithoutCancel(t.Context()), `DROP OWNED BY `+role+` CASCADE; DROP ROLE `+role)
		require.NoError(t, err)
	})
	mark := "?"
	if strings.Contains(db.DSN, "?") {
		mark = "&"
	}
	return role, db.DSN + mark + "role=" + name
}

// A role that lacks a right is told which, and the statement that it is told to have run
// is enough.
func TestLong_MissingRightsAreNamedWithTheirRemedy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before []string // %s is the role
		want   string
	}{
		"no right at all":            {nil, "ROLE needs CREATE on database DB: GRANT CREATE ON DATABASE DB TO ROLE"},
		"a schema of another's":      {[]string{`CREATE SCHEMA belfry`}, "ROLE needs USAGE and CREATE on schema belfry: GRANT USAGE, CREATE ON SCHEMA belfry TO ROLE"},
		"a schema it may use":        {[]string{`CREATE SCHEMA belfry`, `GRANT USAGE ON SCHEMA belfry TO %s`}, "ROLE needs CREATE on schema belfry: GRANT CREATE ON SCHEMA belfry TO ROLE"},
		"a schema it may only fill":  {[]string{`CREATE SCHEMA belfry`, `GRANT CREATE ON SCHEMA belfry TO %s`}, "ROLE needs USAGE on schema belfry: GRANT USAGE ON SCHEMA belfry TO ROLE"},
		"a database it may not fill": {[]string{`GRANT CONNECT ON DATABASE DB TO %s`}, "ROLE needs CREATE on database DB: GRANT CREATE ON DATABASE DB TO ROLE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.NewEmpty(t)
			role, dsn := fresh(t, db, "app")
			exec := func(sql string) {
				_, err := db.Pool.Exec(t.Context(), sql)
				require.NoError(t, err, sql)
			}
			for _, sql := range c.before {
				exec(strings.NewReplacer("%s", role, "DB", db.Name).Replace(sql))
			}
			_, err := migrations.Up(t.Context(), dsn)
			require.ErrorContains(t, err, strings.NewReplacer("ROLE", role, "DB", db.Name).Replace(c.want))
			require.ErrorContains(t, err, "SQLSTATE 42501", "the server's own words follow")
			exec(remedy(t, err))
			applied, err := migrations.Up(t.Context(), dsn)
			require.NoError(t, err)
			require.NotEmpty(t, applied)
		})
	}
}

// remedy is the statement that an error names.
func remedy(t *testing.T, err error) string {
	t.Helper()
	statement := regexp.MustCompile(`GRANT [^:;]+`).FindString(err.Error())
	require.NotEmpty(t, statement, err.Error())
	return statement
}

// Tables are altered by their owner; rights on the schema are not enough.
func TestMigrations_AnotherRolesSchemaNamesItsOwner(t *testing.T) {
	t.Parallel()
	db := dbtest.NewEmpty(t)
	owner, ownerDSN := fresh(t, db, "owner")
	other, otherDSN := fresh(t, db, "other")
	_, err := db.Pool.Exec(t.Context(), `GRANT CREATE ON DATABASE `+db.Name+` TO `+owner)
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), ownerDSN)
	require.NoError(t, err)
	_, err = migrations.Down(t.Context(), ownerDSN, 2)
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), `GRANT USAGE, CREATE ON SCHEMA belfry TO `+other)
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), otherDSN)
	require.ErrorContains(t, err, "the schema belfry belongs to "+owner+", and only the owner can alter its tables: connect as "+owner+", or GRANT "+owner+" TO "+other)
	_, err = db.Pool.Exec(t.Context(), remedy(t, err))
	require.NoError(t, err)
	applied, err := migrations.Up(t.Context(), otherDSN)
	require.NoError(t, err)
	require.NotEmpty(t, applied)
}
