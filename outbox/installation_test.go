package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// From the moment in which the row of another installation is there, as in a restore under
// a relay that lives, claims find nothing; and without a row, as in a restore that has not
// come to it.
func TestClaim_FindsNothingWhereTheDatabaseIsNotAdopted(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.Rest(t, outbox.TypePush, 10, job.Processed)
	b.ActivitiesFor(t, 3)
	l := b.ledger("r1")
	for _, elsewhere := range []string{
		`UPDATE belfry.installation SET database_oid = 1`,
		`UPDATE belfry.installation SET database_oid = NULL`,
		`UPDATE belfry.installation SET system_identifier = 1`,
		`UPDATE belfry.installation SET system_identifier = NULL`,
		`DELETE FROM belfry.installation`,
	} {
		b.Exec(t, elsewhere)
		require.Empty(t, claim(t, l, id, 20), elsewhere)
		require.Empty(t, claimActivities(t, l, 20), elsewhere)
		_, adopted, err := l.Beat(bg, nil, 0, 0)
		require.NoError(t, err)
		require.False(t, adopted, elsewhere)
		i, err := outbox.ReadInstallation(bg, b.DB.Pool)
		require.NoError(t, err)
		require.ErrorIs(t, i.Err(), outbox.ErrNotAdopted, elsewhere)

		i, err = delivery.Adopt(bg, b.DB.Pool, "", job.Act{Actor: "ann", Reason: "moved"})
		require.NoError(t, err)
		require.NoError(t, i.Err(), elsewhere)
		require.Equal(t, i.Here, i.Made)
		require.NotNil(t, i.ID)
		require.NotNil(t, i.Here.SystemIdentifier, "a stock server tells everybody")
	}
	_, adopted, err := l.Beat(bg, nil, 0, 0)
	require.NoError(t, err)
	require.True(t, adopted)
	require.Len(t, claim(t, l, id, 20), 10)
	require.Len(t, claimActivities(t, l, 20), 3)
}

// A session asks once where it is, and again only where that is not what the row says: a
// claim does not read pg_control each time.
func TestAdopted_ASessionAsksOnceWhereItIs(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	conn, err := b.DB.Pool.Acquire(bg)
	require.NoError(t, err)
	defer conn.Release()
	adopted := func() (yes bool, err error) {
		err = conn.QueryRow(bg, `SELECT belfry.delivers()`).Scan(&yes)
		return yes, err
	}
	for _, kept := range []string{``, `1/1`} {
		_, err = conn.Exec(bg, `SELECT set_config('belfry.here', $1, false)`, kept)
		require.NoError(t, err)
		yes, err := adopted()
		require.NoError(t, err)
		require.True(t, yes, "what is kept does not make a place another: %q", kept)
	}
	b.Exec(t, `CREATE OR REPLACE FUNCTION belfry.here(OUT system_identifier bigint, OUT database_oid oid) LANGUAGE plpgsql AS $$ BEGIN RAISE 'asked'; END $$`)
	yes, err := adopted()
	require.NoError(t, err)
	require.True(t, yes)
	b.Exec(t, `UPDATE belfry.installation SET system_identifier = 1`)
	_, err = adopted()
	require.ErrorContains(t, err, "asked")
}
