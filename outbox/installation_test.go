package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

// From the moment in which the row of another installation is there, as in a restore under
// a relay that lives, claims find nothing; and without a row, as in a restore that has not
// come to it.
func TestClaim_FindsNothingWhereTheDatabaseIsNotAdopted(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	id := b.rest(t, outbox.TypePush, 10, job.Processed)
	b.activitiesFor(t, 3)
	l := b.ledger("r1")
	for _, elsewhere := range []string{
		`UPDATE belfry.installation SET database_oid = 1`,
		`UPDATE belfry.installation SET database_oid = NULL`,
		`UPDATE belfry.installation SET system_identifier = 1`,
		`UPDATE belfry.installation SET system_identifier = NULL`,
		`DELETE FROM belfry.installation`,
	} {
		b.exec(t, elsewhere)
		require.Empty(t, claim(t, l, id, 20), elsewhere)
		require.Empty(t, claimActivities(t, l, 20), elsewhere)
		_, adopted, err := l.Beat(bg, nil, 0)
		require.NoError(t, err)
		require.False(t, adopted, elsewhere)
		i, err := outbox.ReadInstallation(bg, b.db.Pool)
		require.NoError(t, err)
		require.ErrorIs(t, i.Err(), outbox.ErrNotAdopted, elsewhere)

		i, err = outbox.Adopt(bg, b.db.Pool, job.Act{Actor: "ann", Reason: "moved"})
		require.NoError(t, err)
		require.NoError(t, i.Err(), elsewhere)
		require.Equal(t, i.Here, i.Made)
		require.NotNil(t, i.ID)
		require.NotNil(t, i.Here.SystemIdentifier, "a stock server tells everybody")
	}
	_, adopted, err := l.Beat(bg, nil, 0)
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
	conn, err := b.db.Pool.Acquire(bg)
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
	b.exec(t, `CREATE OR REPLACE FUNCTION belfry.here(OUT system_identifier bigint, OUT database_oid oid) LANGUAGE plpgsql AS $$ BEGIN RAISE 'asked'; END $$`)
	yes, err := adopted()
	require.NoError(t, err)
	require.True(t, yes)
	b.exec(t, `UPDATE belfry.installation SET system_identifier = 1`)
	_, err = adopted()
	require.ErrorContains(t, err, "asked")
}

// Adopting twice is adopting once, and each change is kept with both places.
func TestAdopt_IsRecordedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	b.exec(t, `UPDATE belfry.installation SET database_oid = NULL`)
	was := one[string](t, b, `SELECT id::text FROM belfry.installation`)
	for range 2 {
		_, err := outbox.Adopt(bg, b.db.Pool, job.Act{Actor: "ann", Reason: "moved"})
		require.NoError(t, err)
	}
	require.Equal(t, was, one[string](t, b, `SELECT id::text FROM belfry.installation`), "providers know its keys by it")
	require.Equal(t, "disowned: , adopted: moved", one[string](t, b, `SELECT string_agg(kind || ': ' || reason, ', ' ORDER BY id) FROM belfry.events WHERE subject = 'installation'`))
	require.True(t, one[bool](t, b, `SELECT detail #> '{before,database_oid}' = 'null' AND detail #>> '{after,database_oid}' = (SELECT oid::text FROM pg_database WHERE datname = current_database())
		AND detail #>> '{after,system_identifier}' = (SELECT system_identifier::text FROM pg_control_system()) AND actor = 'ann'
		FROM belfry.events WHERE subject = 'installation' AND kind = 'adopted'`))
}

// What waits is counted by age, without what is held.
func TestReadBacklog_CountsWhatWouldLeave(t *testing.T) {
	t.Parallel()
	b := setup(t, 0)
	empty, err := outbox.ReadBacklog(bg, b.db.Pool)
	require.NoError(t, err)
	require.Equal(t, outbox.Backlog{Ages: []outbox.BacklogAge{}}, empty)
	b.rest(t, outbox.TypePush, 10, job.Processed)
	b.rest(t, outbox.TypePush, 20, job.Aborted)
	old := b.rest(t, outbox.TypePush, 5, job.Processed)
	b.exec(t, `ALTER TABLE belfry.jobs DISABLE TRIGGER USER; UPDATE belfry.jobs SET created_at = now() - interval '3 days' WHERE id = `+fmt.Sprint(old)+`; ALTER TABLE belfry.jobs ENABLE TRIGGER USER`)
	b.activitiesFor(t, 3)
	b.exec(t, `INSERT INTO belfry.jobs (type, category, title) VALUES ('push', 'operator_notice', 'waits')`)
	dbtest.Recount(t, b.db.Pool)
	got, err := outbox.ReadBacklog(bg, b.db.Pool)
	require.NoError(t, err)
	hour, week := time.Hour, 168*time.Hour
	require.Equal(t, outbox.Backlog{Ages: []outbox.BacklogAge{{&hour, 1, 10}, {&week, 1, 5}}, Activities: 3, Unwalked: 1}, got)
}
