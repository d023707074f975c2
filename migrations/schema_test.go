package migrations_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/migrations"
)

// A binary may use its own schema, and a newer one until a migration removes something that it uses.
func TestSchema_IsUsableUntilAMigrationContracts(t *testing.T) {
	t.Parallel()
	latest := migrations.Latest()
	for _, c := range []struct {
		schema migrations.Schema
		is     error
		text   string
	}{
		{migrations.Schema{}, migrations.ErrOlder, "create it with `belfry migrate up`"},
		{migrations.Schema{Version: latest - 1}, migrations.ErrOlder, fmt.Sprintf("the schema is at version %d, this belfry needs %d; update it with `belfry migrate up`", latest-1, latest)},
		{migrations.Schema{Version: latest}, nil, ""},
		{migrations.Schema{Version: latest + 1, UsableFrom: 1}, nil, ""},
		{migrations.Schema{Version: latest + 9, UsableFrom: latest}, nil, ""},
		{migrations.Schema{Version: latest + 9, UsableFrom: latest + 1}, migrations.ErrNewer,
			fmt.Sprintf("it is at version %d, for a belfry that knows version %d, and this belfry knows up to %d; use a newer belfry", latest+9, latest+1, latest)},
	} {
		err := c.schema.Check()
		require.ErrorIs(t, err, c.is)
		if c.is != nil {
			require.ErrorContains(t, err, c.text)
		}
		require.Equal(t, c.schema.Version > latest, c.schema.Newer())
	}
}

// The newest binary may use its own schema.
func TestSchema_UsableFromIsAKnownVersion(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	var from int64
	require.NoError(t, db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`).Pool.QueryRow(t.Context(), `SELECT belfry.usable_from()`).Scan(&from))
	require.Positive(t, from)
	require.LessOrEqual(t, from, migrations.Latest())
}

// A service that migrates at its start restarts beside a newer release.
func TestMigrations_ANewerSchemaIsLeftAlone(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	_, err := with(t, migrations.Latest(), expanding).Up(t.Context(), db.DSN)
	require.NoError(t, err)
	whole := catalog(t, db.Pool)
	applied, err := migrations.Up(t.Context(), db.DSN)
	require.NoError(t, err)
	require.Empty(t, applied)
	_, err = migrations.Down(t.Context(), db.DSN, 0)
	require.ErrorIs(t, err, migrations.ErrNewer)
	require.ErrorContains(t, err, fmt.Sprintf("it is at version 906, and this belfry knows up to %d; undo its migrations with the newer belfry", migrations.Latest()))
	require.Equal(t, whole, catalog(t, db.Pool))

	_, err = db.Pool.Exec(t.Context(), `CREATE OR REPLACE FUNCTION belfry.usable_from() RETURNS bigint LANGUAGE sql IMMUTABLE RETURN 906`)
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), db.DSN)
	require.ErrorIs(t, err, migrations.ErrNewer)
}
