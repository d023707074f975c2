package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that dies while it brings rows over leaves whole steps, and the next one goes
// on from there.
func TestLong_AttachKilledInTheMiddleGoesOn(t *testing.T) {
	t.Parallel()
	db := newKept(t)
	ctx := t.Context()
	_, err := db.Pool.Exec(ctx, `CREATE TABLE users (id uuid PRIMARY KEY, os text);
		INSERT INTO users SELECT lpad(to_hex(n), 32, '0')::uuid, 'ios' FROM generate_series(1, 400) n;
		INSERT INTO belfry.channels (external_id, platform) VALUES ('00000000-0000-0000-0000-0000000000c8', 'web')`)
	require.NoError(t, err)
	// Somebody holds a channel in the middle: the steps end there until he lets go.
	tx, err := db.Pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, `UPDATE belfry.channels SET locale = 'ko'`)
	require.NoError(t, err)
	arguments := []string{"channels", "attach", "users", "--external-id", "id", "--platform", "os", "--batch", "30"}
	p := start(t, small(db), arguments...)
	waitUntil(t, db.Pool, `SELECT rows_filled = 199 AND filled_at IS NULL FROM belfry.attachments`)
	require.NoError(t, p.Process.Kill())
	<-p.ended
	require.EqualValues(t, 200, count(t, db, "belfry.channels"))
	_, err = db.Pool.Exec(ctx, `UPDATE users SET os = 'web' WHERE id::text LIKE '%7'; DELETE FROM users WHERE id::text LIKE '%9'`)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(ctx))

	r := command(t, small(db), arguments...)
	require.Equal(t, codeDone, r.code, r.stderr)
	// 199 before; 13 of the 201 left were deleted meanwhile.
	require.Contains(t, r.stdout, "users attached, 387 rows backfilled")
	r = command(t, small(db), "channels", "verify", "--dry-run")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Contains(t, r.stdout, ": 0 without a channel, 0 with a different channel, 0 channels without a row")
}

// The results count rows without a usable id and name platforms that no audience has.
func TestAttach_ReportsUnusableRowsAndPlatforms(t *testing.T) {
	t.Parallel()
	db := newKept(t)
	_, err := db.Pool.Exec(t.Context(), `CREATE TYPE device AS ENUM ('IOS', 'ios'); CREATE TABLE "User" (login text UNIQUE, os device);
		INSERT INTO "User" VALUES ('a', 'IOS'), ('b', 'ios'), ('', 'ios'), (NULL, 'ios')`)
	require.NoError(t, err)
	r := command(t, small(db), "channels", "attach", `public."User"`, "--external-id", "login", "--platform", "os")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Contains(t, r.stdout, `public."User" attached, 2 rows backfilled`)
	const platforms = "no audience can name these platforms of channels: IOS; allowed values: the rows of belfry.platforms, to which you may INSERT more"
	require.Contains(t, r.stdout+r.stderr, "2 rows skipped: the external id does not have 1 to 200 characters")
	require.Contains(t, r.stdout+r.stderr, platforms)
	r = command(t, small(db), "channels", "verify")
	require.Equal(t, codeDone, r.code, r.stderr)
	require.Contains(t, r.stdout+r.stderr, platforms)
	_, err = db.Pool.Exec(t.Context(), `ALTER TABLE "User" RENAME os TO platform`)
	require.NoError(t, err)
	r = command(t, small(db), "channels", "check")
	require.Equal(t, codeFailure, r.code)
	require.Contains(t, r.stdout, `public."User" cannot be followed: column os is renamed to platform`)
	r = command(t, small(db), "doctor")
	require.Contains(t, r.stdout, `public."User" cannot be followed: column os is renamed to platform`)
}
