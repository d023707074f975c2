package outbox_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// An activity is sent once for its key, and what cannot be sent is refused by its column.
func TestActivity_IsSentOnceForItsKey(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	ctx, key := t.Context(), "order-17"
	send := func(change func(*outbox.Activity)) (outbox.Activity, error) {
		a := outbox.Activity{ChannelID: 2, Category: "activity", Title: "Hello", Data: json.RawMessage(`{"order": 17}`), IdempotencyKey: &key, RequestedBy: "shop"}
		if change != nil {
			change(&a)
		}
		return outbox.SendActivity(ctx, b.DB.Pool, a, true)
	}
	first, err := send(nil)
	require.NoError(t, err)
	require.Negative(t, first.ID)
	again, err := send(func(a *outbox.Activity) { a.Title = "Goodbye" })
	require.NoError(t, err)
	require.Equal(t, first.ID, again.ID)
	read, err := outbox.ReadActivity(ctx, b.DB.Pool, first.ID)
	require.NoError(t, err)
	require.Equal(t, "Hello", read.Title)
	require.EqualValues(t, 2, read.ChannelID)
	require.JSONEq(t, `{"order": 17}`, string(read.Data))
	require.JSONEq(t, `{}`, string(read.Variants))
	require.Equal(t, string(outbox.Pending), read.Status)
	require.Nil(t, read.TestOf)

	_, err = send(func(a *outbox.Activity) { a.IdempotencyKey, a.Category = nil, "likes" })
	var bad *job.InvalidError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "category", bad.Column)
	require.Equal(t, 1, one[int](t, b, `SELECT count(*) FROM belfry.activities`))
}

// A test says what the job says, to one channel, and is none of the job's messages.
func TestActivity_TestsAJob(t *testing.T) {
	t.Parallel()
	b := setup(t, 3)
	id := b.Rest(t, outbox.TypePush, 3, job.Processed)
	sent, err := outbox.SendTest(t.Context(), b.DB.Pool, id, 2, "ann", true)
	require.NoError(t, err)
	require.Equal(t, "told", sent.Title)
	require.Equal(t, id, *sent.TestOf)
	require.Equal(t, "ann", sent.RequestedBy)
	require.Equal(t, 3, one[int](t, b, `SELECT count(*) FROM belfry.messages WHERE job_id = $1`, id))
	_, err = outbox.SendTest(t.Context(), b.DB.Pool, id+1, 2, "ann", true)
	require.ErrorIs(t, err, job.ErrNotFound)
}

// A deliver_at in the past does not put a message before those that wait.
func TestActivities_AreNotDueBeforeTheyWereSent(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	for _, deliverAt := range []string{"now() - interval '1 year'", "NULL", "now()"} {
		id := one[int64](t, b, `INSERT INTO belfry.activities (channel_id, title, deliver_at) VALUES (1, 'hi', `+deliverAt+`) RETURNING id`)
		require.True(t, one[bool](t, b, `SELECT m.next_attempt_at = a.created_at FROM belfry.messages m JOIN belfry.activities a ON a.id = m.job_id WHERE a.id = $1`, id), deliverAt)
	}
	id := one[int64](t, b, `INSERT INTO belfry.activities (channel_id, title, deliver_at) VALUES (1, 'hi', now() + interval '1 year') RETURNING id`)
	require.True(t, one[bool](t, b, `SELECT m.next_attempt_at = a.deliver_at FROM belfry.messages m JOIN belfry.activities a ON a.id = m.job_id WHERE a.id = $1`, id))
}

// Relays keep the texts of all messages in flight, so the variants of a single message are bounded.
func TestActivity_VariantsAreBounded(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 4)
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.activities (channel_id, title, variants)
		SELECT 1, 'x', jsonb_object_agg('ko-' || lpad(g::text, 3, '0'), jsonb_build_object('body', repeat('x', 1000))) FROM generate_series(1, 17) g`)
	require.ErrorContains(t, err, "belfry.activities.variants: has 1")
	require.ErrorContains(t, err, "allowed values: JSON objects of up to 16384 bytes")

	// An operator's test of a job has the texts of the job.
	var id int64
	require.NoError(t, db.Pool.QueryRow(t.Context(), `INSERT INTO belfry.jobs (type, category, title, variants)
		SELECT 'push', 'operator_notice', 'x', jsonb_object_agg('ko-' || lpad(g::text, 3, '0'), jsonb_build_object('body', repeat('x', 1000))) FROM generate_series(1, 17) g
		RETURNING id`).Scan(&id))
	_, err = outbox.SendTest(t.Context(), db.Pool, id, 1, "ann", true)
	require.NoError(t, err)
}

// The short check of common rows refuses what the long one refuses.
func TestActivity_RefusesTextsThatNobodySees(t *testing.T) {
	t.Parallel()
	db := dbtest.Reused(t, 4)
	for _, title := range []string{"", " ", "\u200b", "\u3164\u2060", "\ufeff\u00ad", "\u2800"} {
		_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.activities (channel_id, title) VALUES (1, $1)`, title)
		require.ErrorContains(t, err, "belfry.activities.title: is blank", "%q", title)
	}
	for _, title := range []string{"x", "주문", "注文", "é"} {
		_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.activities (channel_id, title) VALUES (1, $1)`, title)
		require.NoError(t, err)
	}
	_, err := db.Pool.Exec(t.Context(), `INSERT INTO belfry.categories (name, route) VALUES ('order', '{alimtalk}')`)
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), `INSERT INTO belfry.activities (channel_id, category, title) VALUES (1, 'order', 'x')`)
	require.ErrorContains(t, err, "belfry.activities.body: is empty, and AlimTalk sends a body alone")
	_, err = db.Pool.Exec(t.Context(), `INSERT INTO belfry.activities (channel_id, category, title, body) VALUES (1, 'order', 'x', 'y')`)
	require.NoError(t, err)
}
