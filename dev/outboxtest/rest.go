package outboxtest

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// Past executes a statement without triggers.
func (d *Database) Past(t require.TestingT, sql string, args ...any) {
	dbtest.Past(t, d.DB.Pool, sql, args...)
}

// OldChannels creates n channels with the ids 1 to n, created and changed a day ago.
func (d *Database) OldChannels(t require.TestingT, n int) {
	d.Exec(t, `INSERT INTO belfry.channels (id, external_id, platform, created_at, updated_at)
		SELECT g, 'u-' || g, CASE WHEN g % 3 = 0 THEN 'android' ELSE 'ios' END, now() - interval '1 day', now() - interval '1 day'
		  FROM generate_series(1, $1::bigint) g`, n)
}

// Rest creates a job of the type that has written the channels 1 to n and has the given status, ABORTED, PROCESSED or
// FAILED, and fence 1.
func (d *Database) Rest(t require.TestingT, kind string, n int, status job.Status) int64 {
	id := One[int64](t, d, `INSERT INTO belfry.jobs (type, category, title) VALUES ($1, 'operator_notice', 'told') RETURNING id`, kind)
	d.Exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() WHERE id = $1`, id)
	d.Exec(t, `UPDATE belfry.jobs SET bound = $2, "cursor" = nullif($2, '0'), chunks = 1,
		 channels_read = $3, channels_matched = $3, rows_written = $3 WHERE id = $1`, id, strconv.Itoa(n), n)
	switch kind {
	case outbox.TypeInbox:
		d.Exec(t, `INSERT INTO belfry.notifications (channel_id, arrival) SELECT g, j.arrival
			FROM belfry.jobs j, generate_series(1, $2::bigint) g WHERE j.id = $1`, id, n)
	case outbox.TypePush:
		d.Exec(t, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) SELECT $1, g, now()
			FROM generate_series(1, $2::bigint) g`, id, n)
	}
	d.Exec(t, `UPDATE belfry.jobs SET status = $2 WHERE id = $1`, id, string(status))
	dbtest.Recount(t, d.DB.Pool)
	return id
}

// JobsThatWait creates waiting jobs without their triggers, which would be slow.
func (d *Database) JobsThatWait(t require.TestingT, n int) {
	d.Past(t, `INSERT INTO belfry.jobs (id, type, category, title, route)
		SELECT nextval('belfry.jobs_id_seq'), 'push', 'operator_notice', 'waits', '{push}' FROM generate_series(1, $1::bigint)`, n)
}

// ActivitiesFor enqueues one activity each for the channels 1 to n, and returns their
// ids in that order.
func (d *Database) ActivitiesFor(t require.TestingT, n int) []int64 {
	d.Exec(t, `INSERT INTO belfry.channels (id, external_id, platform) SELECT g, 'a-' || g, 'ios'
		FROM generate_series(1, $1::bigint) g ON CONFLICT DO NOTHING`, n)
	return One[[]int64](t, d,
		`WITH made AS (INSERT INTO belfry.activities (channel_id, title) SELECT g, 'hi' FROM generate_series(1, $1::bigint) g
			RETURNING id, channel_id)
		SELECT array_agg(id ORDER BY channel_id) FROM made`, n)
}

// States sets the statuses of the messages 1, 2, 3 … of a job, in turn. All were claimed before.
func (d *Database) States(t require.TestingT, id int64, statuses ...string) {
	lease := One[int64](t, d, `SELECT coalesce(max(id), 0) + 1 FROM belfry.leases`) // the first of one for each thousand
	d.Exec(t, `INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids)
		SELECT $2 + channel_id / 1000, 'relay', now() + interval '1 hour', array_agg(job_id), array_agg(channel_id)
		FROM belfry.messages WHERE job_id = $1 GROUP BY 1`, id, lease)
	d.Exec(t, `UPDATE belfry.message_rows m SET status = s.next,
		 lease_id = CASE s.next WHEN 'PROCESSING' THEN $3::bigint + m.channel_id / 1000 WHEN 'PENDING' THEN 0 END,
			reason = CASE s.next WHEN 'DEAD' THEN 'exhausted' WHEN 'CANCELLED' THEN 'recalled' END
		  FROM (SELECT k.channel_id, ($2::text[])[1 + (k.channel_id - 1) % cardinality($2::text[])] AS next FROM belfry.messages k
		WHERE k.job_id = $1) s
		 WHERE m.job_id = $1 AND m.channel_id = s.channel_id`, id, statuses, lease)
	dbtest.Recount(t, d.DB.Pool)
}

// Statuses counts a job's messages by status.
func (d *Database) Statuses(t require.TestingT, id int64) map[string]int {
	rows, err := d.DB.Pool.Query(context.Background(), `SELECT status, count(*) FROM belfry.messages WHERE job_id = $1 GROUP BY status`, id)
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

// Age moves the finish of the jobs and their messages into the past.
func (d *Database) Age(t require.TestingT, age string, ids ...int64) {
	d.Exec(t, `UPDATE belfry.jobs SET finished_at = finished_at - $1::interval WHERE id = ANY ($2)`, age, ids)
	d.Exec(t, `UPDATE belfry.message_rows SET next_attempt_at = next_attempt_at - $1::interval, sent_at = sent_at - $1::interval
		WHERE job_id = ANY ($2)`, age, ids)
}

// Fill creates jobs with messages of every kind, and returns a job in the middle.
func (d *Database) Fill(t testing.TB) int64 {
	t.Helper()
	ids := make([]int64, 6)
	for i := range ids {
		ids[i] = d.Rest(t, outbox.TypePush, 2500, job.Processed)
		d.States(t, ids[i], "PENDING", "SENT", "PENDING", "PROCESSING", "DEAD")
	}
	d.Exec(t, `UPDATE belfry.message_rows SET receipt = 'x', lease_id = NULL WHERE job_id = $1 AND status = 'PROCESSING'
		AND channel_id % 3 = 0`, ids[2])
	d.JobsThatWait(t, 2000)
	d.Exec(t, `INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, outcome)
		SELECT m.job_id, m.channel_id, 0, 1, 'push', 'unknown' FROM belfry.messages m`)
	d.Exec(t, `INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps)
		SELECT l.id, l.job_ids, l.channel_ids, array_fill(0::smallint, ARRAY[cardinality(l.job_ids)]) FROM belfry.leases l`)
	d.ActivitiesFor(t, 300)
	return ids[3]
}

// Grown runs f with a job in the middle of a filled database, for two planner statistics: "analyzed", and "stale", which
// are the statistics of empty tables.
func Grown(t *testing.T, f func(t *testing.T, d *Database, name string, id int64)) {
	t.Helper()
	for name, stale := range map[string]bool{"analyzed": false, "stale": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &Database{DB: dbtest.New(t)}
			id := int64(0)
			if !stale {
				id = d.Fill(t)
			}
			for _, table := range []string{"message_rows", "job_claims", "jobs", "leases", "handovers", "attempts"} {
				d.Exec(t, "ANALYZE belfry."+table)
			}
			if stale {
				id = d.Fill(t)
			}
			f(t, d, name, id)
		})
	}
}

// Compiles enables jit for expensive statements, like a stock installation.
func (d *Database) Compiles(t testing.TB) {
	t.Helper()
	d.Exec(t, `DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET jit = on', current_database());
		EXECUTE format('ALTER DATABASE %I SET jit_above_cost = 100000', current_database()); END$$`)
	d.DB.Pool.Reset()
}

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Plan appends the lines of an EXPLAIN to out, with name as heading.
func Plan(t testing.TB, on Querier, out *strings.Builder, name, explain string, args ...any) {
	t.Helper()
	rows, err := on.Query(t.Context(), explain, args...)
	require.NoError(t, err, name)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err, name)
	out.WriteString("# " + name + "\n" + strings.Join(lines, "\n") + "\n")
}

// FinishedJobs makes four inbox jobs and four push jobs with 10,000 rows, 2,000 jobs that wait, and events, activities and
// revisions beside them, with good statistics, so that plans can be explained. It returns the ids of the
// jobs in that order of creation: an inbox job and an ABORTED push job in turn.
func (d *Database) FinishedJobs(t testing.TB) (ids []int64) {
	t.Helper()
	for range 4 {
		ids = append(ids, d.Rest(t, outbox.TypeInbox, 10000, job.Processed), d.Rest(t, outbox.TypePush, 10000, job.Aborted))
	}
	d.JobsThatWait(t, 2000)
	d.Exec(t, `INSERT INTO belfry.events (subject, kind, actor) SELECT 'lane', 'paused', 'ann' FROM generate_series(1, 5000)`)
	dbtest.Past(t, d.DB.Pool,
		`INSERT INTO belfry.activities (id, channel_id, title, route) SELECT -n, 1 + n % 2000, 'x', '{push}' FROM generate_series(1, 20000) n`)
	dbtest.Past(t, d.DB.Pool,
		`INSERT INTO belfry.job_events (job_id, kind, actor) SELECT j.id, 'claimed', 'ann' FROM belfry.jobs j, generate_series(1, 10)`)
	dbtest.Past(t, d.DB.Pool, `INSERT INTO belfry.job_revisions (job_id, revision, "cursor", title, body, data, audience, edited_by)
		SELECT j.id, 1, '', 'x', '', '{}', j.audience, 'ann' FROM belfry.jobs j`)
	dbtest.Vacuum(t, d.DB.Pool, "belfry.notifications", "belfry.message_rows", "belfry.jobs", "belfry.events", "belfry.activities",
		"belfry.job_events", "belfry.job_revisions")
	return ids
}
