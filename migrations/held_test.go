package migrations_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/migrations"
)

// Once a login without any right could keep migrations waiting forever, without a word.
func TestMigrations_NameTheSessionThatHasTheirLock(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	conn, err := db.Role(t).Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), `SET application_name = 'holder'; SELECT pg_advisory_lock(108187749872249)`)
	require.NoError(t, err)
	holder := fmt.Sprintf("session %d of %s (holder) has had the lock of the migrations for 100ms", conn.Conn().PgConn().PID(), conn.Conn().Config().User)
	brief := migrations.Config{LockTimeout: 100 * time.Millisecond}
	for _, do := range []func() error{
		func() error { _, err := brief.Up(t.Context(), db.DSN); return err },
		func() error { _, err := brief.Down(t.Context(), db.DSN, 0); return err },
		func() error { _, err := brief.List(t.Context(), db.DSN); return err },
	} {
		err := do()
		require.ErrorAs(t, err, new(*migrations.HeldError))
		require.ErrorContains(t, err, holder)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // the default gives up at half of that
	defer cancel()
	_, err = migrations.Up(ctx, db.DSN)
	require.ErrorAs(t, err, new(*migrations.HeldError))
	require.NoError(t, ctx.Err())

	// A login that may not read other sessions gets the rest.
	_, err = db.Pool.Exec(t.Context(), `REVOKE SELECT ON pg_catalog.pg_stat_activity FROM PUBLIC`)
	require.NoError(t, err)
	_, err = brief.Up(t.Context(), db.Role(t, `GRANT CREATE ON DATABASE "`+db.Name+`" TO :role`).DSN)
	require.ErrorContains(t, err, "another session has had the lock of the migrations for 100ms: wait for its end if it migrates")

	_, err = conn.Exec(t.Context(), `SELECT pg_advisory_unlock_all()`)
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), db.DSN)
	require.NoError(t, err)
}

// A migration does not queue for a table for an hour, with everyone else behind it.
func TestMigrations_GiveUpOnALockedTable(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	tx, err := db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE belfry.jobs IN ACCESS SHARE MODE`)
	require.NoError(t, err)
	_, err = migrations.Config{LockTimeout: 100 * time.Millisecond}.Down(t.Context(), db.DSN, 0)
	var held *migrations.HeldError
	require.ErrorAs(t, err, &held)
	require.True(t, held.OfTable)
	require.ErrorContains(t, err, "other sessions have kept a table locked at each attempt within 100ms")
	require.NoError(t, tx.Rollback(t.Context()))
	_, err = migrations.Config{LockTimeout: time.Hour}.Down(t.Context(), db.DSN, 0)
	require.NoError(t, err)
}
