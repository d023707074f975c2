package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/dev/outboxtest"
)

// notify calls belfry.notify for the channel and returns the id of the notification.
func (c centre) notify(t *testing.T, title, arguments string) int64 {
	t.Helper()
	return -outboxtest.One[int64](t, c.Database, fmt.Sprintf(`SELECT belfry.notify($1, 'activity', $2%s)`, arguments), c.channel, title)
}

// messages returns the count of the channel's messages.
func (c centre) messages(t *testing.T) int64 {
	t.Helper()
	return outboxtest.One[int64](t, c.Database, `SELECT count(*) FROM belfry.messages WHERE channel_id = $1`, c.channel)
}

// A notification of an activity is in the list with those of jobs, in the order of arrival, and sends the message
// that its route demands.
func TestNotify_IsInTheListAndSendsByItsRoute(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	c.reach(t, c.claim(t, "job"))
	id := c.notify(t, "Ann liked your post", "")
	require.EqualValues(t, 1, c.messages(t))
	c.notify(t, "quiet", ", route => '{}'")
	require.EqualValues(t, 1, c.messages(t), "the empty route sends none")
	list := c.page(t, "")
	require.Equal(t, []string{"quiet", "Ann liked your post", "job"}, []string{list[0].Title, list[1].Title, list[2].Title})
	require.Equal(t, id, list[1].ID)
	require.Equal(t, [2]int{3, 3}, c.counts(t))
	c.Exec(t, `SELECT belfry.inbox_read(2, $1)`, []int64{id})
	require.Equal(t, [2]int{2, 2}, c.counts(t))
	c.Exec(t, `SELECT belfry.inbox_archive(2, $1)`, []int64{id})
	require.Len(t, c.page(t, ""), 2)
	c.Exec(t, `SELECT belfry.inbox_read_all(2)`)
	require.Zero(t, c.counts(t)[0])
	c.Exec(t, `SELECT belfry.notify_external((SELECT external_id FROM belfry.channels WHERE id = 2), 'activity', 'by external id')`)
	require.Equal(t, "by external id", c.page(t, "")[0].Title)
	_, err := c.DB.Pool.Exec(t.Context(), `INSERT INTO belfry.activities (channel_id, title, route) VALUES (2, 'x', '{}')`)
	require.ErrorContains(t, err, "belfry.activities.route: {} is not allowed", "a message needs a medium")
	_, err = c.DB.Pool.Exec(t.Context(), `INSERT INTO belfry.activities (channel_id, title, collapse_key) VALUES (2, 'x', 'k')`)
	require.ErrorContains(t, err, "belfry.activities.collapse_key: is given without inbox; allowed values: null, or with inbox texts of 1 to 200 characters")
}

// A known key returns the first notification, and neither writes nor collapses anything.
func TestNotify_HasAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	const key = ", idempotency_key => 'k', collapse_key => 'like:1'"
	id := c.notify(t, "first", key)
	require.Equal(t, id, c.notify(t, "second", key))
	require.Len(t, c.page(t, ""), 1)
	require.EqualValues(t, 1, c.messages(t))
}

// Unread notifications with one key are one, with their count and one message. A read one is left as it is.
func TestNotify_CollapsesUnreadOnes(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	const like = `, variants => '{"de": {"title": "{{count}} Leute"}}', collapse_key => 'like:1', collapsed_title => '{{count}} people liked your post'`
	c.notify(t, "Ann liked your post", like)
	c.notify(t, "of another key", ", collapse_key => 'like:2'")
	c.notify(t, "Ben liked your post", like)
	c.notify(t, "Cem liked your post", like)
	titles := func(arguments string) (list []string) {
		for _, e := range c.page(t, arguments) {
			list = append(list, e.Title)
		}
		return list
	}
	require.Equal(t, []string{"3 people liked your post", "of another key"}, titles(""))
	require.Equal(t, []string{"3 Leute", "of another key"}, titles(", locale => 'de'"))
	require.EqualValues(t, 2, c.messages(t), "one for each key")
	require.Equal(t, [2]int{2, 2}, c.counts(t))
	c.Exec(t, `SELECT belfry.inbox_read_all(2)`)
	c.notify(t, "Dan liked your post", like)
	require.Equal(t, []string{"Dan liked your post", "3 people liked your post", "of another key"}, titles(""))
	require.EqualValues(t, 3, c.messages(t), "after it was read, the next is sent")
}

// A notification that is not listed, because the person has left its category in every medium, takes no other one's place,
// of another category or of the same one from before.
func TestNotify_CollapsesNothingThatIsListedIntoWhatIsNot(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	const key = ", collapse_key => 'post-9'"
	c.notify(t, "a comment", key)
	c.notify(t, "another comment", key)
	c.Exec(t, `SELECT belfry.inbox_prefer(2, 'activity', '*', true)`)
	c.notify(t, "Kim likes it", key)
	listed := c.page(t, "")
	require.Len(t, listed, 1)
	require.Equal(t, "another comment", listed[0].Title)
	require.Equal(t, [2]int{1, 1}, c.counts(t))
	c.Exec(t, `SELECT belfry.inbox_prefer(2, 'activity', '*', false)`)
	c.notify(t, "Ben likes it", key)
	require.Len(t, c.page(t, ""), 1)
}

// A notification that is not listed is counted by no other one, and spares no message: nobody can read it.
func TestNotify_CountsListedOnesOnly(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	c.Exec(t, `SELECT belfry.inbox_prefer(2, 'popular_content', '*', true)`)
	c.Exec(t, `SELECT belfry.notify(2, 'popular_content', 'hidden', collapse_key => 'post-9')`)
	before := c.messages(t)
	c.notify(t, "Kim likes it", ", collapse_key => 'post-9', collapsed_title => '{{count}} people like it'")
	require.Equal(t, before+1, c.messages(t))
	require.Equal(t, "Kim likes it", c.page(t, "")[0].Title)
	c.notify(t, "Ben likes it", ", collapse_key => 'post-9', collapsed_title => '{{count}} people like it'")
	require.Equal(t, before+1, c.messages(t))
	require.Equal(t, "2 people like it", c.page(t, "")[0].Title)
}

// A mark before a commit leaves the notification new in each isolation level.
func TestNotify_IsNewAfterAMarkBeforeTheCommit(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		c := openCentre(t)
		tx, err := c.DB.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `SELECT belfry.notify(2, 'activity', 'late')`)
		require.NoError(t, err)
		c.notify(t, "newer", "")
		c.Exec(t, `SELECT belfry.inbox_read_all(2)`)
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, [2]int{1, 1}, c.counts(t), level)
		c.Exec(t, `SELECT belfry.inbox_read_all(2)`)
		require.Equal(t, [2]int{}, c.counts(t), level)
	}
}

// A mark waits for another mark of the person, and includes what that one had locked.
func TestMark_WaitsForAMarkInAnotherTransaction(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	c.notify(t, "first", "")
	c.Exec(t, `SELECT belfry.inbox_seen(2)`)
	c.Exec(t, `UPDATE belfry.notifications SET late = 2`)
	tx, err := c.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT belfry.inbox_seen(2)`)
	require.NoError(t, err)
	marked := make(chan error, 1)
	go func() {
		_, err := c.DB.Pool.Exec(context.WithoutCancel(t.Context()), `SELECT belfry.inbox_read_all(2)`)
		marked <- err
	}()
	c.Eventually(t, `SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-marked)
	require.Equal(t, [2]int{}, c.counts(t))
}

// A transaction that collapses, and rolls back, does not make a mark ineffective.
func TestMark_IsEffectiveBesideACollapseThatRollsBack(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	c.reach(t, c.claim(t, "job"))
	c.Exec(t, `SELECT belfry.inbox_seen(2)`)
	c.Exec(t, `DELETE FROM belfry.notifications`)
	c.notify(t, "a", ", collapse_key => 'k'")
	tx, err := c.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT belfry.notify(2, 'activity', 'b', collapse_key => 'k')`)
	require.NoError(t, err)
	c.Exec(t, `SELECT belfry.inbox_read_all(2)`)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, [2]int{}, c.counts(t))
}

// A transaction that collapses waits for no other one.
func TestNotify_CollapsesWithoutWaiting(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	c.notify(t, "a", ", collapse_key => 'k'")
	tx, err := c.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context()) //nolint:errcheck // after a commit
	_, err = tx.Exec(t.Context(), `SELECT belfry.notify(2, 'activity', 'b', collapse_key => 'k')`)
	require.NoError(t, err)
	c.Exec(t, `SET lock_timeout = '2s'`)
	c.notify(t, "c", ", collapse_key => 'k'")
	require.NoError(t, tx.Commit(t.Context()))
	require.Len(t, c.page(t, ""), 2)
	c.notify(t, "d", ", collapse_key => 'k'")
	var count int
	require.NoError(t, c.DB.Pool.QueryRow(t.Context(), `SELECT sum(count) FROM belfry.inbox_page(2)`).Scan(&count))
	require.Equal(t, 4, count)
	require.Len(t, c.page(t, ""), 1)
	require.EqualValues(t, 1, c.messages(t))
}

// A notification whose transaction commits after everything was marked is new.
func TestNotify_IsNewAfterAMarkBeforeItsCommit(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	tx, err := c.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context()) //nolint:errcheck // after a commit
	_, err = tx.Exec(t.Context(), `SELECT belfry.notify(2, 'activity', 'slow')`)
	require.NoError(t, err)
	c.notify(t, "fast", "")
	c.Exec(t, `SELECT belfry.inbox_read_all(2), belfry.inbox_seen(2)`)
	require.Equal(t, [2]int{0, 0}, c.counts(t))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, [2]int{1, 1}, c.counts(t))
}

// Transactions that notify the same people in opposite orders do not wait for each other, and their notifications are new
// after marks before their commits. Later marks count.
func TestNotify_CommitsInAnyOrder(t *testing.T) {
	t.Parallel()
	c := centre{&outboxtest.Database{DB: dbtest.Reused(t, 4)}, 2}
	c.OldChannels(t, 300)
	var txs []pgx.Tx
	for _, order := range []string{"", " DESC"} {
		tx, err := c.DB.Pool.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
		_, err = tx.Exec(t.Context(), `SELECT belfry.notify(o.g, 'activity', 'slow', route => '{}') FROM (SELECT g FROM generate_series(1, 300) g ORDER BY g`+order+`) o`)
		require.NoError(t, err)
		txs = append(txs, tx)
	}
	c.Exec(t, `SELECT belfry.notify(g, 'activity', 'fast', route => '{}') FROM generate_series(1, 300) g`)
	c.Exec(t, `SELECT belfry.inbox_read_all(g), belfry.inbox_seen(g) FROM generate_series(1, 300) g`)
	ended := make(chan error)
	for _, tx := range txs {
		go func() { ended <- tx.Commit(t.Context()) }()
	}
	require.NoError(t, errors.Join(<-ended, <-ended))
	require.Equal(t, [2]int{2, 2}, c.counts(t))
	require.Equal(t, "600", outboxtest.One[string](t, c.Database, `SELECT count(*)::text FROM generate_series(1, 300) g, belfry.inbox_page(g) p WHERE NOT p.read AND NOT p.seen`))
	require.False(t, outboxtest.One[bool](t, c.Database, `SELECT bool_or(belfry.inbox_is_read(n.channel_id, n.arrival, n.read_at)) FROM belfry.notifications n WHERE n.late IS NOT NULL`))
	id := c.page(t, "")[1].ID
	c.Exec(t, `SELECT belfry.inbox_read(2, $1)`, []int64{id})
	require.Equal(t, [2]int{1, 1}, c.counts(t))
	c.Exec(t, `SELECT belfry.inbox_read(2, $1, read => false)`, []int64{id})
	c.Exec(t, `SELECT belfry.inbox_seen(2)`)
	require.Equal(t, [2]int{2, 0}, c.counts(t))
	c.Exec(t, `SELECT belfry.inbox_read_all(2)`)
	require.Equal(t, [2]int{0, 0}, c.counts(t))
	require.Equal(t, [2]int{2, 2}, centre{c.Database, 3}.counts(t), "those of other people are as they were")
}

// Marks wait for no transaction that collapses the newest notification. Its own is new.
func TestNotify_CollapsesBesideMarks(t *testing.T) {
	t.Parallel()
	for mark, unread := range map[string]int{"seen": 2, "read_all": 1} {
		t.Run(mark, func(t *testing.T) {
			t.Parallel()
			c := openCentre(t)
			c.notify(t, "other", "")
			c.notify(t, "a", ", collapse_key => 'k'")
			tx, err := c.DB.Pool.Begin(t.Context())
			require.NoError(t, err)
			defer tx.Rollback(t.Context()) //nolint:errcheck // after a commit
			_, err = tx.Exec(t.Context(), `SELECT belfry.notify(2, 'activity', 'b', collapse_key => 'k')`)
			require.NoError(t, err)
			require.NoError(t, pgx.BeginFunc(t.Context(), c.DB.Pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '2s'`)
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), `SELECT belfry.inbox_`+mark+`(2)`)
				return err
			}))
			require.Zero(t, c.counts(t)[1])
			require.NoError(t, tx.Commit(t.Context()))
			require.Equal(t, [2]int{unread, 1}, c.counts(t))
		})
	}
}

// The list renders templates with the person's values, in the words of the person's locale.
func TestInbox_RendersTemplates(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	c.Exec(t, `UPDATE belfry.channels SET attributes = '{"name": "Ann", "n": 3}', locale = 'de-AT' WHERE id = 2`)
	var id int64
	tx, err := c.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context()) //nolint:errcheck // after a commit
	require.NoError(t, tx.QueryRow(t.Context(), `INSERT INTO belfry.jobs (type, category, title, body, variants)
		VALUES ('inbox', 'operator_notice', 'Hi {{attributes.name | upper}}: {{value.score}}', '{{attributes.n}} {{attributes.none | default "no"}} {{count}}',
		        '{"de": {"title": "Hallo {{attributes.name}}: {{value.score}}"}}') RETURNING id`).Scan(&id))
	_, err = tx.Exec(t.Context(), `INSERT INTO belfry.job_values VALUES ($1, 2, '{"score": 9}')`, id)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	c.Exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() WHERE id = $1`, id)
	c.reach(t, id)
	read := func(locale string) (s string) {
		require.NoError(t, c.DB.Pool.QueryRow(t.Context(), `SELECT title || ' / ' || body FROM belfry.inbox_page(2, locale => $1)`, locale).Scan(&s))
		return s
	}
	require.Equal(t, "Hi ANN: 9 / 3 no 1", read("en"))
	require.Equal(t, "Hallo Ann: 9 / 3 no 1", read("de"))
}

// Nobody writes values of a job that another transaction enqueued.
func TestJobValues_AreOfJobsOfTheirTransaction(t *testing.T) {
	t.Parallel()
	c := openCentre(t)
	const enqueue = `INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', '{{value.a}}') RETURNING id`
	id := outboxtest.One[int64](t, c.Database, enqueue)
	_, err := c.DB.Pool.Exec(t.Context(), `INSERT INTO belfry.job_values VALUES ($1, 2, '{"a": 1}')`, id)
	require.ErrorContains(t, err, fmt.Sprintf("belfry.job_values.job_id: job %d was not enqueued by this transaction; allowed values: ids of jobs that it enqueued", id))
	err = pgx.BeginFunc(t.Context(), c.DB.Pool, func(tx pgx.Tx) error { // also if both transactions began in the same microsecond
		var now time.Time
		if err := tx.QueryRow(t.Context(), `SELECT now()`).Scan(&now); err != nil {
			return err
		}
		dbtest.Past(t, c.DB.Pool, `UPDATE belfry.jobs SET created_at = $2 WHERE id = $1`, id, now)
		_, err := tx.Exec(t.Context(), `INSERT INTO belfry.job_values VALUES ($1, 2, '{"a": 1}')`, id)
		return err
	})
	require.ErrorContains(t, err, "was not enqueued by this transaction")
	_, err = c.DB.Pool.Exec(t.Context(), `INSERT INTO belfry.job_values VALUES (1000000, 2, '{"a": 1}')`)
	require.ErrorContains(t, err, "job 1000000 was not enqueued by this transaction")
	require.NoError(t, pgx.BeginFunc(t.Context(), c.DB.Pool, func(tx pgx.Tx) error {
		var own int64
		return pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error { // in a savepoint
			if err := tx.QueryRow(t.Context(), enqueue).Scan(&own); err != nil {
				return err
			}
			n, err := tx.CopyFrom(t.Context(), pgx.Identifier{"belfry", "job_values"}, []string{"job_id", "channel_id", "value"},
				pgx.CopyFromRows([][]any{{own, int64(1), `{"a": 1}`}, {own, int64(2), `{"a": 2}`}}))
			require.NoError(t, err)
			require.EqualValues(t, 2, n)
			return nil
		})
	}))
	err = pgx.BeginFunc(t.Context(), c.DB.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `WITH j AS (`+enqueue+`) INSERT INTO belfry.job_values SELECT id, 1, '[1]' FROM j`)
		return err
	})
	require.ErrorContains(t, err, `belfry.job_values.value: is a JSON array; allowed values: JSON objects of up to 4096 bytes, as {"score": 9}`)
}
