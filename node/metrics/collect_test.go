package metrics

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// carrier is a broker that says what is inside.
type carrier struct{ outbox.Broker }

func (carrier) Queues(context.Context) ([]outbox.QueueStatus, error) {
	return []outbox.QueueStatus{{Queue: outbox.Activities, Ready: 1}, {Queue: outbox.Bulk, Ready: 40, Later: 5, Taken: 6, Dead: 7, Full: true}}, nil
}

// collectOn collects once from a database.
func collectOn(t *testing.T, on *dbtest.DB, log zerolog.Logger) (*Metrics, *Collector) {
	t.Helper()
	m := New(Build{})
	c := m.Collector(time.Hour, on.Pool, carrier{}, senders(), job.NewOutage(log), log)
	for _, p := range c.parts {
		c.collect(t.Context(), p)
		require.False(t, p.failing, p.name)
	}
	return m, c
}

// seed makes jobs and messages of every kind that is collected.
func seed(t *testing.T, on *dbtest.DB) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, 50) n`,
		`SELECT belfry.pause_lane('shut')`,
		`INSERT INTO belfry.senders (name, paused_at, paused_by) VALUES ('fcm', now(), 'ann')`,
		`INSERT INTO belfry.jobs (type, category, title, priority, schedule_at) SELECT 'inbox', 'operator_notice', 'due', n % 3, now() - make_interval(mins => n) FROM generate_series(1, 5) n`,
		`INSERT INTO belfry.jobs (type, category, title, route, schedule_at) VALUES ('push', 'operator_notice', 'later', '{push}', now() + interval '1 day')`,
		`INSERT INTO belfry.jobs (type, category, title, lane, schedule_at) VALUES ('inbox', 'operator_notice', 'due and held', 'shut', now() - interval '1 day')`,
		`INSERT INTO belfry.jobs (type, category, title, lane) VALUES ('inbox', 'operator_notice', 'runs', 'other')`,
		`UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now() - interval '3 minutes' WHERE title = 'runs'`,
		`INSERT INTO belfry.relays (name, heartbeat_at) VALUES ('r1', now() + interval '50 seconds'), ('r2', now() - interval '1 minute')`,
		`INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids) VALUES (7, 'r2', now() - interval '2 minutes', '{-1}', '{1}')`,
		`INSERT INTO belfry.queues (name, transport, dispatcher, leads_until, last_push) VALUES ('bulk', 'redislist', 'r1', now(), 3), ('activities', 'redislist', 'r1', now(), 0)`,
		`INSERT INTO belfry.pushes (queue, number, made_at) VALUES ('bulk', 3, now() - interval '4 minutes')`,
	} {
		_, err := on.Pool.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	dbtest.Past(t, on.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, status, abort_requested, started_at, finished_at, walked_at, delivered_at, lane, deliver_at)
		SELECT nextval('belfry.jobs_id_seq'), 'push', 'operator_notice', title, route, status, status = 'ABORTED', now(), now() - ago, now(), delivered, lane, deliver_at
		  FROM (VALUES ('sent', '{push}'::text[], 'PROCESSED', '10 minutes'::interval, now(), 'default', NULL::timestamptz), ('long ago', '{push}', 'PROCESSED', '2 hours', now(), 'default', NULL),
		               ('open', '{push,sms}', 'PROCESSED', '10 minutes', NULL, 'default', NULL), ('open too', '{push}', 'PROCESSED', '1 minute', NULL, 'default', NULL),
		               ('pigeons', '{pigeon}', 'PROCESSED', '1 day', NULL, 'default', NULL), ('doves', '{dove}', 'PROCESSED', '1 day', NULL, 'default', NULL),
		               ('held', '{sms}', 'ABORTED', '1 minute', NULL, 'default', NULL), ('held by its lane', '{sms}', 'PROCESSED', '1 day', NULL, 'shut', NULL),
		               ('at night', '{email}', 'PROCESSED', '1 day', NULL, 'default', now() + interval '5 hours')) v (title, route, status, ago, delivered, lane, deliver_at)`)
	dbtest.Past(t, on.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, needs_approval, created_at, schedule_at)
		SELECT nextval('belfry.jobs_id_seq'), 'inbox', 'operator_notice', title, '{}', true, now() - ago, now() - due
		  FROM (VALUES ('due, to be approved', '7 hours'::interval, '3 hours'::interval), ('due before, to be approved', '2 hours', '5 hours'), ('tomorrow, to be approved', '30 hours', '-1 day')) v (title, ago, due)`)
	for title, n := range map[string]int{"open": 30, "open too": 4, "pigeons": 5, "doves": 6, "held": 7, "held by its lane": 8, "at night": 9} {
		dbtest.Past(t, on.Pool, `INSERT INTO belfry.job_deliveries (job_id, relay, written, sent, dead, cancelled) SELECT id, 'r1', $2::int + 6, 1, 2, 3 FROM belfry.jobs WHERE title = $1`, title, n)
	}
	dbtest.Past(t, on.Pool, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, push)
		SELECT j.id, n, now() - ago, s, CASE s WHEN 'QUEUED' THEN 3 END FROM belfry.jobs j
		  JOIN (VALUES ('open', 1, '5 minutes'::interval, 'PENDING'), ('open', 2, '-1 day', 'PENDING'), ('held', 3, '1 day', 'PENDING'), ('open', 4, '1 day', 'QUEUED'), ('open too', 5, '1 day', 'QUEUED')) v (title, n, ago, s) USING (title)`)
	dbtest.Past(t, on.Pool, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at) VALUES (-1, 1, now() - interval '9 minutes'), (-2, 1, now() - interval '8 minutes')`)
}

func TestCollector_ShowsWhatTheDatabaseHas(t *testing.T) {
	t.Parallel()
	on := dbtest.Reused(t, 2)
	seed(t, on)
	log := new(dbtest.Buffer)
	m, c := collectOn(t, on, zerolog.New(log))
	m.shows(t, map[string]float64{
		`belfry_jobs{status="PENDING"}`: 7, `belfry_jobs{status="RUNNING"}`: 1,
		`belfry_jobs_ended{status="PROCESSED"}`: 3, `belfry_jobs_ended{status="ABORTED"}`: 1, `belfry_jobs_ended{status="FAILED"}`: 0, `belfry_jobs_ended{status="EXPIRED"}`: 0,
		`belfry_jobs_due`: 5, `belfry_jobs_awaiting_approval`: 3,
		`belfry_messages_waiting{medium="push",state="open"}`: 34, `belfry_messages_waiting{medium="other",state="open"}`: 11,
		`belfry_messages_waiting{medium="sms",state="held"}`: 15, `belfry_messages_waiting{medium="email",state="later"}`: 9,
		`belfry_queued_messages{queue="bulk"}`: 2, `belfry_queued_messages{queue="activities"}`: 0, `belfry_oldest_queued_age_seconds{queue="activities"}`: 0,
		`belfry_halted`: 0, `belfry_lanes_paused`: 1, `belfry_senders_paused`: 1, `belfry_relays_alive`: 1,
		`belfry_carrier_ids{queue="bulk",state="ready"}`: 40, `belfry_carrier_ids{queue="bulk",state="later"}`: 5, `belfry_carrier_ids{queue="bulk",state="taken"}`: 6,
		`belfry_carrier_ids{queue="bulk",state="dead"}`: 7, `belfry_carrier_ids{queue="activities",state="ready"}`: 1,
		`belfry_carrier_full{queue="bulk"}`: 1, `belfry_carrier_full{queue="activities"}`: 0,
		`belfry_collection_failures_total{part="jobs"}`: 0,
	})
	for series, least := range map[string]time.Duration{ // however long ago it was seeded
		`belfry_oldest_due_job_age_seconds`: 5 * time.Minute, `belfry_oldest_heartbeat_age_seconds`: 3 * time.Minute,
		`belfry_oldest_awaiting_approval_age_seconds`: 30 * time.Hour, `belfry_oldest_due_awaiting_approval_age_seconds`: 3 * time.Hour,
		`belfry_oldest_due_message_age_seconds{queue="bulk"}`: 5 * time.Minute, `belfry_oldest_due_message_age_seconds{queue="activities"}`: 9 * time.Minute,
		`belfry_oldest_queued_age_seconds{queue="bulk"}`: 4 * time.Minute, `belfry_oldest_expired_lease_age_seconds`: 2 * time.Minute,
	} {
		age, ok := m.value(t, series)
		require.True(t, ok, series)
		require.GreaterOrEqual(t, age, least.Seconds(), series)
		require.Less(t, age, (least + time.Hour).Seconds(), series)
	}
	for _, series := range []string{`belfry_oldest_xmin_age_transactions`, `belfry_oldest_transaction_age_seconds`} {
		_, ok := m.value(t, series)
		require.True(t, ok, series)
	}
	require.Empty(t, log.String())

	// Every metric is one of those that are documented.
	known := make(map[string]bool)
	for _, d := range collected() {
		known[d.name] = true
	}
	for _, p := range c.parts {
		for _, v := range p.values {
			require.True(t, known[v.Metric], v.Metric)
		}
	}
}

// In an empty database nothing waits, and nothing is old.
func TestCollector_ShowsThatThereIsNothing(t *testing.T) {
	t.Parallel()
	m, _ := collectOn(t, dbtest.Reused(t, 2), zerolog.Nop())
	m.shows(t, map[string]float64{
		`belfry_jobs{status="PENDING"}`: 0, `belfry_jobs_due`: 0, `belfry_oldest_due_job_age_seconds`: 0, `belfry_oldest_heartbeat_age_seconds`: 0,
		`belfry_oldest_due_message_age_seconds{queue="bulk"}`: 0, `belfry_oldest_due_message_age_seconds{queue="activities"}`: 0,
		`belfry_jobs_awaiting_approval`: 0, `belfry_oldest_awaiting_approval_age_seconds`: 0, `belfry_oldest_due_awaiting_approval_age_seconds`: 0,
		`belfry_lanes_paused`: 0, `belfry_relays_alive`: 0, `belfry_oldest_expired_lease_age_seconds`: 0,
	})
}

// A job that waits for approval and is due later is not late, nor is an approved one, or one that was
// aborted.
func TestCollector_ShowsNoLateApprovalBeforeAJobIsDue(t *testing.T) {
	t.Parallel()
	on := dbtest.Reused(t, 2)
	for _, sql := range []string{
		`INSERT INTO belfry.jobs (type, category, title, needs_approval, requested_by, schedule_at)
			SELECT 'inbox', 'operator_notice', v.title, true, 'ann', v.at
			  FROM (VALUES ('tomorrow', now() + interval '1 day'), ('aborted', now() - interval '1 hour'), ('approved', now() - interval '1 hour')) v (title, at)`,
		`UPDATE belfry.jobs SET abort_requested = true WHERE title = 'aborted'`,
		`SELECT set_config('belfry.acts_for', 'kim', true); SELECT belfry.approve(id, 10, 'kim', '') FROM belfry.jobs WHERE title = 'approved'`,
	} {
		_, err := on.Pool.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	dbtest.Past(t, on.Pool, `UPDATE belfry.jobs SET created_at = now() - interval '1 day'`)
	m, _ := collectOn(t, on, zerolog.Nop())
	m.shows(t, map[string]float64{`belfry_jobs_awaiting_approval`: 1, `belfry_oldest_due_awaiting_approval_age_seconds`: 0})
	age, ok := m.value(t, `belfry_oldest_awaiting_approval_age_seconds`)
	require.True(t, ok)
	require.GreaterOrEqual(t, age, (24 * time.Hour).Seconds())
}

// A halt is shown.
func TestCollector_ShowsAHalt(t *testing.T) {
	t.Parallel()
	on := dbtest.Reused(t, 2)
	_, err := on.Pool.Exec(t.Context(), `SELECT belfry.halt('ann')`)
	require.NoError(t, err)
	m, _ := collectOn(t, on, zerolog.Nop())
	m.shows(t, map[string]float64{`belfry_halted`: 1})
}

// What a role may not read is absent, which is said once; the rest is shown.
func TestCollector_LeavesOutWhatTheRoleMayNotRead(t *testing.T) {
	t.Parallel()
	as := dbtest.New(t).Role(t, "GRANT USAGE ON SCHEMA belfry TO :role", "GRANT SELECT ON belfry.jobs, belfry.lanes TO :role")
	log := new(dbtest.Buffer)
	m, c := collectOn(t, as, zerolog.New(log))
	for range 2 {
		for _, p := range c.parts {
			c.collect(t.Context(), p)
		}
	}
	m.shows(t, map[string]float64{`belfry_jobs{status="PENDING"}`: 0, `belfry_collection_failures_total{part="messages"}`: 0})
	for _, series := range []string{`belfry_oldest_due_message_age_seconds{queue="bulk"}`, `belfry_lanes_paused`, `belfry_oldest_xmin_age_transactions`, `belfry_collection_timestamp_seconds{part="messages"}`} {
		_, ok := m.value(t, series)
		require.False(t, ok, series)
	}
	said := log.String()
	require.Equal(t, 3, strings.Count(said, "this role lacks the privilege to collect metrics"), said) // messages, queues, control
	require.Equal(t, 2, strings.Count(said, "this role lacks the privilege to collect a metric; grant it pg_monitor"), said)
	require.Equal(t, 5, strings.Count(said, "\n"), said)
}

// What was collected last is shown for a while when nothing answers, and then no longer.
func TestCollector_ForgetsWhatIsOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := new(dbtest.Buffer)
		m := New(Build{})
		c := m.Collector(time.Minute, nil, nil, nil, nil, zerolog.New(log))
		answers := make(chan error, 10)
		c.parts = nil
		c.add("control", job.NewOutage(zerolog.New(log)), func(context.Context) ([]sample, error) {
			n := 3.0
			return []sample{{"belfry_lanes_paused", nil, &n}}, <-answers
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := run(ctx, c.Run)
		defer func() {
			stop()
			close(answers)
			require.NoError(t, <-ended)
		}()
		answers <- nil
		synctest.Wait()
		at, _ := m.value(t, `belfry_collection_timestamp_seconds{part="control"}`)
		require.InDelta(t, float64(time.Now().Unix()), at, 1e-3)
		m.shows(t, map[string]float64{"belfry_lanes_paused": 3})
		for range 4 {
			answers <- errors.New("odd")
		}
		<-time.After(3 * time.Minute)
		synctest.Wait()
		m.shows(t, map[string]float64{
			"belfry_lanes_paused": 3, `belfry_collection_failures_total{part="control"}`: 3, `belfry_collection_timestamp_seconds{part="control"}`: at,
		})
		require.Equal(t, 1, strings.Count(log.String(), "metrics are not collected"), log.String())
		<-time.After(time.Minute)
		synctest.Wait()
		_, ok := m.value(t, "belfry_lanes_paused")
		require.False(t, ok)
		m.shows(t, map[string]float64{`belfry_collection_timestamp_seconds{part="control"}`: at}) // how old it is stays known
		answers <- nil
		<-time.After(time.Minute)
		synctest.Wait()
		m.shows(t, map[string]float64{"belfry_lanes_paused": 3})
	})
}

// With a long history and many jobs that wait no statement scans a large table, and each reads
// a bounded part of an index.
func TestLong_QueriesCollectByIndexes(t *testing.T) {
	t.Parallel()
	on := dbtest.New(t)
	dbtest.Past(t, on.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, status, abort_requested, finished_at, started_at, delivered_at)
		SELECT nextval('belfry.jobs_id_seq'), 'push', 'popular_content', 'old', '{push}', 'PROCESSED', false, now() - make_interval(mins => g), now(), CASE WHEN g % 100 > 0 THEN now() END FROM generate_series(1, 20000) g`)
	dbtest.Past(t, on.Pool, `INSERT INTO belfry.job_deliveries (job_id, relay, written, sent) SELECT id, 'r', 10, 9 FROM belfry.jobs`)
	dbtest.Past(t, on.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, priority, lane) SELECT nextval('belfry.jobs_id_seq'), 'inbox', 'popular_content', 'new', '{}', g % 3, 'lane' || g % 5 FROM generate_series(1, 5000) g`)
	dbtest.Past(t, on.Pool, `INSERT INTO belfry.jobs (id, type, category, title, route, needs_approval) SELECT nextval('belfry.jobs_id_seq'), 'inbox', 'popular_content', 'asked', '{}', true FROM generate_series(1, 2000) g`)
	dbtest.Past(t, on.Pool, `INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, status, sent_at)
		SELECT j.id, g, now(), CASE WHEN g = 10 AND j.delivered_at IS NULL THEN 'PENDING' ELSE 'SENT' END, CASE WHEN g < 10 OR j.delivered_at IS NOT NULL THEN now() END
		  FROM belfry.jobs j, generate_series(1, 10) g WHERE j.status = 'PROCESSED' AND j.id <= 5000`)
	dbtest.Vacuum(t, on.Pool, "belfry.jobs", "belfry.message_rows", "belfry.job_deliveries")
	var out strings.Builder
	for _, name := range []string{"CollectJobs", "CollectMessages", "CollectQueues", "CollectControl"} {
		sql, args := db.QueriesByName(queries)[name], pgx.StrictNamedArgs{"most": countAtMost}
		if name == "CollectControl" {
			args = nil
		}
		rows, err := on.Pool.Query(t.Context(), "EXPLAIN (COSTS OFF) "+sql, args)
		require.NoError(t, err)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		out.WriteString("# " + name + "\n" + strings.Join(plan, "\n") + "\n")
	}
	for _, table := range []string{"jobs", "message_rows", "job_deliveries"} {
		require.NotContains(t, out.String(), "Seq Scan on "+table)
	}
	var version int
	require.NoError(t, on.Pool.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int / 10000`).Scan(&version))
	if version != 15 { // each version words its plans a little differently
		return
	}
	dbtest.Golden(t, "testdata/explain.golden", out.String())
}
