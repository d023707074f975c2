package demo

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/cities"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// proved is a database with a job that belfry's own runner has finished.
func proved(t *testing.T) (*dbtest.DB, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	db := dbtest.New(t)
	store, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	_, err = cities.Generate(ctx, store, db.Pool, 5_000, cities.Options{Seed: 3})
	require.NoError(t, err)
	_, err = job.NewStore(db.Pool).Enqueue(ctx, job.Spec{Type: "push", Category: "operator_notice", Title: "test"})
	require.NoError(t, err)
	runner, err := job.NewRunner(db.Pool, job.DefaultConfig(), outbox.Types(store))
	require.NoError(t, err)
	out, err := runner.RunDue(ctx)
	require.NoError(t, err)
	require.Len(t, out.Jobs, 1)
	return db, ctx
}

// D2: each kind of fault is counted as what it is.
func TestLong_VerifyCountsEachFault(t *testing.T) {
	t.Parallel()
	db, ctx := proved(t)
	clean, err := verify(ctx, db.Pool, 1, false)
	require.NoError(t, err)
	require.True(t, clean.exact(), clean)
	require.Equal(t, clean.Matched, clean.Rows)
	exec := func(sql string) {
		_, err := db.Pool.Exec(ctx, sql)
		require.NoError(t, err)
	}
	// Only without its primary key can a table hold a duplicate.
	exec(`ALTER TABLE belfry.message_rows DROP CONSTRAINT messages_pkey`)

	exec(`INSERT INTO belfry.message_rows (channel_id, job_id, next_attempt_at) VALUES (1, 1, now()), (1, 1, now()), (2, 1, now())`) // copies
	exec(`DELETE FROM belfry.message_rows WHERE job_id = 1 AND channel_id IN (SELECT id FROM belfry.channels WHERE active AND id > 2 ORDER BY id LIMIT 5)`)
	exec(`INSERT INTO belfry.message_rows (channel_id, job_id, next_attempt_at) SELECT id, 1, now() FROM belfry.channels WHERE NOT active LIMIT 7`)
	exec(`INSERT INTO belfry.message_rows (channel_id, job_id, next_attempt_at) VALUES (987654321, 1, now())`) // no channel at all
	v, err := verify(ctx, db.Pool, 1, false)
	require.NoError(t, err)
	require.Equal(t, jobReport{
		ID: 1, Type: clean.Type, Category: clean.Category, Title: clean.Title, Status: processed, Cursor: clean.Cursor, Chunks: clean.Chunks,
		Matched: clean.Matched, Rows: clean.Matched + 3 - 5 + 7 + 1, Missing: 5, Unexpected: 8, Duplicates: 3,
	}, v)
}

// I3: at the cursor, a row further on is unexpected and one before it missing.
func TestLong_VerifyAtTheCursor(t *testing.T) {
	t.Parallel()
	db, ctx := proved(t)
	_, err := db.Pool.Exec(ctx, `UPDATE belfry.jobs SET "cursor" = '1000'`)
	require.NoError(t, err)
	v, err := verify(ctx, db.Pool, 1, true)
	require.NoError(t, err)
	require.Zero(t, v.Missing)
	require.Equal(t, v.Rows-v.Matched, v.Unexpected)
	require.Positive(t, v.Unexpected)

	_, err = db.Pool.Exec(ctx, `DELETE FROM belfry.message_rows WHERE channel_id > 999`)
	require.NoError(t, err)
	v, err = verify(ctx, db.Pool, 1, true)
	require.NoError(t, err)
	require.Equal(t, int64(1), v.Missing)
	require.Zero(t, v.Unexpected)
}
