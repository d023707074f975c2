package demo

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/cities"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

// proved is a database with jobs that belfry's own runner has finished.
func proved(t *testing.T, audiences ...channels.Audience) (*dbtest.DB, context.Context, *channels.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	db := dbtest.New(t)
	store, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	_, err = cities.Generate(ctx, store, db.Pool, 5_000, cities.Options{Seed: 3})
	require.NoError(t, err)
	// Some where circles are hard to draw.
	_, err = db.Pool.Exec(ctx, `INSERT INTO belfry.channels (external_id, platform, location)
		SELECT 'odd-' || lon || '/' || lat, 'ios', point(lon, lat)
		  FROM generate_series(-180, 180, 15) lon, generate_series(-90, 90, 10) lat`)
	require.NoError(t, err)
	for i, a := range audiences {
		kind := []string{"inbox", "push"}[i%2]
		_, err := job.NewStore(db.Pool).Enqueue(ctx, job.Spec{Type: kind, Category: "operator_notice", Title: "test", Audience: a})
		require.NoError(t, err)
	}
	runner, err := job.NewRunner(db.Pool, job.DefaultConfig(), outbox.Types(store))
	require.NoError(t, err)
	out, err := runner.RunDue(ctx)
	require.NoError(t, err)
	require.Len(t, out.Jobs, len(audiences))
	return db, ctx, store
}

// D2: the proof's own SQL agrees with belfry about who matches, at the poles, across
// the 180° meridian and around the globe too.
func TestVerify_AgreesOnEveryAudience(t *testing.T) {
	t.Parallel()
	audiences := []channels.Audience{
		channels.Everyone(), channels.Everyone(),
		channels.OnPlatforms("ios", "android"), channels.OnPlatforms("web"),
		channels.Within(37.566, 126.9784, 30_000), channels.Within(19.07, 72.88, 500_000),
		channels.Within(0, 180, 1_700_000), channels.Within(10, -179.5, 2_000_000),
		channels.Within(90, 0, 1_200_000), channels.Within(-89, 17, 3_000_000),
		channels.Within(51, -0.1, 15_000_000), channels.Within(0, 0, 20_037_509),
		channels.Within(45, 45, 1),
	}
	db, ctx, store := proved(t, audiences...)
	for i, a := range audiences {
		v, err := verify(ctx, db.Pool, int64(i+1), false)
		require.NoError(t, err)
		require.Equal(t, processed, v.Status)
		require.True(t, v.exact(), "%s: %s", a, v)
		count, err := store.Count(ctx, db.Pool, a)
		require.NoError(t, err)
		require.Equal(t, count, v.Matched, a.String())
		require.Equal(t, count, v.Rows, a.String())
	}
}

// D2: each kind of fault is counted as what it is.
func TestVerify_CountsEachFault(t *testing.T) {
	t.Parallel()
	db, ctx, _ := proved(t, channels.Everyone(), channels.OnPlatforms("ios"))
	clean, err := verify(ctx, db.Pool, 1, false)
	require.NoError(t, err)
	exec := func(sql string) {
		_, err := db.Pool.Exec(ctx, sql)
		require.NoError(t, err)
	}
	// Only without its primary key can a table hold a duplicate.
	exec(`ALTER TABLE belfry.notifications DROP CONSTRAINT notifications_pkey`)
	exec(`ALTER TABLE belfry.messages DROP CONSTRAINT messages_pkey`)

	exec(`INSERT INTO belfry.notifications (channel_id, job_id) VALUES (1, 1), (1, 1), (2, 1)`) // copies
	exec(`DELETE FROM belfry.notifications WHERE job_id = 1 AND channel_id IN (SELECT id FROM belfry.channels WHERE active AND id > 2 ORDER BY id LIMIT 5)`)
	exec(`INSERT INTO belfry.notifications (channel_id, job_id) SELECT id, 1 FROM belfry.channels WHERE NOT active LIMIT 7`)
	exec(`INSERT INTO belfry.notifications (channel_id, job_id) VALUES (987654321, 1)`) // no channel at all
	v, err := verify(ctx, db.Pool, 1, false)
	require.NoError(t, err)
	require.Equal(t, JobReport{
		ID: 1, Type: clean.Type, Category: clean.Category, Title: clean.Title, Status: processed, Cursor: clean.Cursor, Chunks: clean.Chunks,
		Matched: clean.Matched, Rows: clean.Matched + 3 - 5 + 7 + 1, Missing: 5, Unexpected: 8, Duplicates: 3,
	}, v)

	exec(`INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at) SELECT 2, min(id), now() FROM belfry.channels WHERE platform = 'ios' AND active`)
	exec(`INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at) SELECT 2, min(id), now() FROM belfry.channels WHERE platform = 'web'`)
	v, err = verify(ctx, db.Pool, 2, false)
	require.NoError(t, err)
	require.Equal(t, [3]int64{0, 1, 1}, [3]int64{v.Missing, v.Unexpected, v.Duplicates})
}

// I3: at the cursor, a row further on is unexpected and one before it missing.
func TestVerify_AtTheCursor(t *testing.T) {
	t.Parallel()
	db, ctx, _ := proved(t, channels.Everyone())
	_, err := db.Pool.Exec(ctx, `UPDATE belfry.jobs SET "cursor" = '1000'`)
	require.NoError(t, err)
	v, err := verify(ctx, db.Pool, 1, true)
	require.NoError(t, err)
	require.Zero(t, v.Missing)
	require.Equal(t, v.Rows-v.Matched, v.Unexpected)
	require.Positive(t, v.Unexpected)

	_, err = db.Pool.Exec(ctx, `DELETE FROM belfry.notifications WHERE channel_id > 999`)
	require.NoError(t, err)
	v, err = verify(ctx, db.Pool, 1, true)
	require.NoError(t, err)
	require.Equal(t, int64(1), v.Missing)
	require.Zero(t, v.Unexpected)
}
