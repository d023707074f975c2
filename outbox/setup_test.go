package outbox_test

import (
	"context"
	"flag"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/migrations/dbtest"
	"github.com/belfryhq/belfry/outbox"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// golden compares text with testdata/name, or rewrites it.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := "testdata/" + name
	if *rewrite {
		require.NoError(t, os.MkdirAll("testdata", 0o750))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "refresh with: go test ./outbox -run %s -rewrite", t.Name())
}

// patience is how long a test waits for what must happen.
const patience = time.Minute

// bundle is one test's database.
type bundle struct {
	db   *dbtest.DB
	jobs *job.Store
	who  *channels.Store
}

// setup makes n channels with the ids 1 to n, made and changed a day ago.
func setup(t *testing.T, n int) *bundle {
	t.Helper()
	return setupOn(t, dbtest.Reused(t, 4), n)
}

func setupOn(t *testing.T, db *dbtest.DB, n int) *bundle {
	t.Helper()
	who, err := channels.New(channels.DefaultConfig())
	require.NoError(t, err)
	b := &bundle{db: db, jobs: job.NewStore(db.Pool), who: who}
	b.exec(t, `INSERT INTO belfry.channels (id, external_id, platform, created_at, updated_at)
		SELECT g, 'u-' || g, CASE WHEN g % 3 = 0 THEN 'android' ELSE 'ios' END, now() - interval '1 day', now() - interval '1 day'
		  FROM generate_series(1, $1::bigint) g`, n)
	return b
}

func (b *bundle) exec(t require.TestingT, sql string, args ...any) {
	_, err := b.db.Pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

// past executes a statement past the triggers.
func (b *bundle) past(t require.TestingT, sql string, args ...any) {
	dbtest.Past(t, b.db.Pool, sql, args...)
}

// one reads a single value.
func one[T any](t require.TestingT, b *bundle, sql string, args ...any) (v T) {
	require.NoError(t, b.db.Pool.QueryRow(context.Background(), sql, args...).Scan(&v))
	return v
}

// rest makes a job of a type that has written the channels 1 to n and is in the
// given status: ABORTED, PROCESSED or FAILED, under fence 1.
func (b *bundle) rest(t require.TestingT, kind string, n int, status job.Status) int64 {
	id := one[int64](t, b, `INSERT INTO belfry.jobs (type, category, title) VALUES ($1, 'operator_notice', 'told') RETURNING id`, kind)
	b.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() WHERE id = $1`, id)
	b.exec(t, `UPDATE belfry.jobs SET bound = $2, "cursor" = nullif($2, '0'), chunks = 1, channels_read = $3, channels_matched = $3, rows_written = $3 WHERE id = $1`, id, textOf(n), n)
	switch kind {
	case outbox.TypeInbox:
		b.exec(t, `INSERT INTO belfry.notifications (channel_id, job_id) SELECT g, $1 FROM generate_series(1, $2::bigint) g`, id, n)
	case outbox.TypePush:
		b.exec(t, `INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at) SELECT $1, g, now() FROM generate_series(1, $2::bigint) g`, id, n)
	}
	b.exec(t, `UPDATE belfry.jobs SET status = $2 WHERE id = $1`, id, string(status))
	dbtest.Recount(t, b.db.Pool)
	return id
}

// jobsThatWait makes so many more jobs, past their triggers, which are what each would cost.
func (b *bundle) jobsThatWait(t require.TestingT, n int) {
	b.past(t, `INSERT INTO belfry.jobs (id, type, category, title, route)
		SELECT nextval('belfry.jobs_id_seq'), 'push', 'operator_notice', 'waits', '{push}' FROM generate_series(1, $1::bigint)`, n)
}

func textOf(n int) string { return strconv.Itoa(n) }

// states sets the statuses of the messages 1, 2, 3 … of a job, in turn.
func (b *bundle) states(t require.TestingT, id int64, statuses ...string) {
	lease := one[int64](t, b, `INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids)
		SELECT (SELECT coalesce(max(id), 0) + 1 FROM belfry.leases), 'relay', now() + interval '1 hour', array_agg(job_id), array_agg(channel_id) FROM belfry.messages WHERE job_id = $1 RETURNING id`, id)
	b.exec(t, `UPDATE belfry.messages m SET status = s.next, lease_id = CASE s.next WHEN 'PROCESSING' THEN $3::bigint END,
			reason = CASE s.next WHEN 'DEAD' THEN 'exhausted' WHEN 'CANCELLED' THEN 'recalled' END
		  FROM (SELECT k.channel_id, ($2::text[])[1 + (k.channel_id - 1) % cardinality($2::text[])] AS next FROM belfry.messages k WHERE k.job_id = $1) s
		 WHERE m.job_id = $1 AND m.channel_id = s.channel_id`, id, statuses, lease)
	dbtest.Recount(t, b.db.Pool)
}

// statuses counts a job's messages by status.
func (b *bundle) statuses(t require.TestingT, id int64) map[string]int {
	rows, err := b.db.Pool.Query(context.Background(), `SELECT status, count(*) FROM belfry.messages WHERE job_id = $1 GROUP BY status`, id)
	require.NoError(t, err)
	counts := make(map[string]int)
	var status string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&status, &n}, func() error {
		counts[status] = n
		return nil
	})
	require.NoError(t, err)
	return counts
}

// old makes the jobs at rest for that long, and their messages what they are.
func (b *bundle) old(t require.TestingT, age string, ids ...int64) {
	b.exec(t, `UPDATE belfry.jobs SET finished_at = finished_at - $1::interval WHERE id = ANY ($2)`, age, ids)
	b.exec(t, `UPDATE belfry.messages SET next_attempt_at = next_attempt_at - $1::interval, sent_at = sent_at - $1::interval WHERE job_id = ANY ($2)`, age, ids)
}

// eventually waits until the query, a condition, is true; it asks less often the longer that takes.
func (b *bundle) eventually(t require.TestingT, sql string, args ...any) {
	wait := 2 * time.Millisecond
	tick := time.NewTicker(wait)
	defer tick.Stop()
	for began := time.Now(); !one[bool](t, b, sql, args...); <-tick.C {
		require.Less(t, time.Since(began), patience, "never true: %s", sql)
		wait = min(wait*3/2, 30*time.Millisecond)
		tick.Reset(wait)
	}
}
