package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

// limited is a database whose category notice demands the approval of a second person, and a
// role that may only enqueue.
func limited(t *testing.T) (db, web *dbtest.DB) {
	t.Helper()
	db = dbtest.New(t)
	web = db.Role(t, `GRANT USAGE ON SCHEMA belfry TO :role`, `GRANT INSERT ON belfry.jobs, belfry.activities TO :role`,
		`GRANT SELECT (id, idempotency_key) ON belfry.activities TO :role`, `GRANT SELECT ON belfry.recipients TO :role`, `GRANT SELECT (id, external_id) ON belfry.channels TO :role`)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.categories (name, approval_above) VALUES ('notice', 0);
		INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'web' FROM generate_series(1, 100) n`)
	require.NoError(t, err)
	return db, web
}

// A role that may not approve sends no activity of a category that demands approval, in no way,
// until an admin allows a number; that number holds in one statement and in many.
func TestActivities_WaitForNobodyAndSoAreLimited(t *testing.T) {
	t.Parallel()
	db, web := limited(t)
	ways := []string{
		`INSERT INTO belfry.activities (channel_id, category, title, requested_by) SELECT id, 'notice', 'to all', 'ceo' FROM belfry.channels`,
		`INSERT INTO belfry.activities (channel_id, category, title, variants) VALUES (1, 'notice', 'x', '{"ko": {"title": "y"}}')`,
		`INSERT INTO belfry.activities (channel_id, category, title, test_of) VALUES (1, 'notice', 'x', 5)`,
		`INSERT INTO belfry.activities (channel_id, category, title, limited, logged_in_as) VALUES (1, 'notice', 'x', false, 'postgres')`,
		`SELECT belfry.send(1, 'notice', 'x')`, `SELECT belfry.send_external('u1', 'notice', 'x')`,
	}
	for _, sql := range ways {
		_, err := web.Pool.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "belfry.activities.category: 'notice' demands the approval of a second person; allowed values: categories without approval_above, and 0 activities of "+web.User, sql)
	}
	_, err := web.Pool.Exec(t.Context(), `INSERT INTO belfry.activities (channel_id, title) SELECT id, 'liked' FROM belfry.channels`)
	require.NoError(t, err, "a category without approval")

	_, err = db.Pool.Exec(t.Context(), `UPDATE belfry.categories SET activities_per_hour = 7 WHERE name = 'notice'`)
	require.NoError(t, err)
	_, err = web.Pool.Exec(t.Context(), ways[0])
	require.ErrorContains(t, err, "and 7 activities of ")
	// Those of one clock hour, which may end between two statements.
	var sent int
	for sent = 0; sent < 20; sent++ {
		if _, err = web.Pool.Exec(t.Context(), `SELECT belfry.send(1, 'notice', 'x', idempotency_key => $1, requested_by => $1)`, string(rune('a'+sent))); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "and 7 activities of ")
	require.Contains(t, []int{7, 8, 9, 10, 11, 12, 13, 14}, sent)
	_, err = web.Pool.Exec(t.Context(), `SELECT belfry.send(1, 'notice', 'x', idempotency_key => 'a')`)
	require.NoError(t, err, "a repeated key sends nothing")
	var by string
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT logged_in_as FROM belfry.activities WHERE requested_by = 'b'`).Scan(&by))
	require.Equal(t, web.User, by, "whatever requested_by says")
	_, err = web.Pool.Exec(t.Context(), `INSERT INTO belfry.activities (channel_id, title, requested_by, logged_in_as) VALUES (1, 'liked', 'forger', 'postgres')`)
	require.NoError(t, err)
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT logged_in_as FROM belfry.activities WHERE requested_by = 'forger'`).Scan(&by))
	require.Equal(t, web.User, by, "whatever logged_in_as says")
}

// People of the HTTP API share a role, which may approve: an author sends none, the others are
// counted by their names.
func TestSendActivity_CountsPeople(t *testing.T) {
	t.Parallel()
	db, _ := limited(t)
	send := func(who string, mayApprove bool) error {
		_, err := outbox.SendActivity(t.Context(), db.Pool, outbox.Activity{ChannelID: 1, Category: "notice", Title: "x", RequestedBy: who}, mayApprove)
		return err
	}
	require.ErrorContains(t, send("ann", false), "demands the approval of a second person; allowed values: categories without approval_above, and 0 activities of ann an hour")
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.activity_counts SELECT 'notice', session_user || ' for lee', h, 10 FROM (VALUES (date_trunc('hour', now())), (date_trunc('hour', now()) + interval '1 hour')) v(h)`)
	require.NoError(t, err)
	require.ErrorContains(t, send(" Lee", true), "and 10 activities of ")
	require.NoError(t, send("eva", true))
}

// A test of a job that waits for approval reaches testers, five times an hour, and nobody else.
func TestSendTest_OfAJobThatWaitsReachesTesters(t *testing.T) {
	t.Parallel()
	db, web := limited(t)
	var id int64
	require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT belfry.enqueue('push', 'notice', 'Hello')`).Scan(&id))
	_, err := outbox.SendTest(t.Context(), db.Pool, id, 6, "ann", true)
	require.ErrorContains(t, err, "waits for approval, and channel 6 is not in the segment testers; allowed values: channels of it")
	_, err = db.Pool.Exec(t.Context(), `INSERT INTO belfry.segments (name) VALUES ('testers'); INSERT INTO belfry.segment_members VALUES ('testers', 6)`)
	require.NoError(t, err)
	_, err = outbox.SendTest(t.Context(), db.Pool, id, 6, "ann", false)
	require.NoError(t, err)
	_, err = outbox.SendTest(t.Context(), db.Pool, id, 7, "ann", false)
	require.ErrorContains(t, err, "channel 7 is not in the segment testers")
	_, err = db.Pool.Exec(t.Context(), `INSERT INTO belfry.activities (channel_id, category, title, test_of) VALUES (6, 'notice', 'another text', $1)`, id)
	require.ErrorContains(t, err, "waits for approval", "it tests the job's text")
	for range 20 {
		if _, err = outbox.SendTest(t.Context(), db.Pool, id, 6, "ann", false); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "belfry.activities.test_of: ann sent 5 tests of job ")
	_, err = outbox.SendTest(t.Context(), db.Pool, id, 6, "bob", false)
	require.NoError(t, err, "nobody uses up the tests of others")

	// Also of a job whose category demands no approval, by SQL.
	require.NoError(t, db.Pool.QueryRow(t.Context(), `INSERT INTO belfry.jobs (type, category, title, needs_approval) VALUES ('push', 'popular_content', 'Hello', true) RETURNING id`).Scan(&id))
	_, err = web.Pool.Exec(t.Context(), `INSERT INTO belfry.activities (channel_id, category, title, test_of) VALUES (7, 'popular_content', 'Hello', $1)`, id)
	require.ErrorContains(t, err, "channel 7 is not in the segment testers")
}

// Tests were counted by job alone: an operator with many waiting jobs of one text reached as many
// testers as they liked.
func TestSendTest_CountsByRequester(t *testing.T) {
	t.Parallel()
	db, _ := limited(t)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.segments (name) VALUES ('testers');
		INSERT INTO belfry.segment_members SELECT 'testers', n FROM generate_series(1, 50) n;
		SELECT belfry.enqueue('push', 'notice', 'Hello') FROM generate_series(1, 10)`)
	require.NoError(t, err)
	sent := 0
	for i := range 50 {
		var job int64
		require.NoError(t, db.Pool.QueryRow(t.Context(), `SELECT id FROM belfry.jobs ORDER BY id OFFSET $1 LIMIT 1`, i/5).Scan(&job))
		if _, err = outbox.SendTest(t.Context(), db.Pool, job, int64(i+1), "ann", true); err != nil {
			break
		}
		sent++
	}
	require.ErrorContains(t, err, "ann sent 10 tests of category 'notice' in this hour")
	require.Contains(t, []int{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, sent, "above 10: another clock hour began")
}
