-- Statements of the benchmarks. The markers in double braces are replaced by identifiers,
-- never by data.

-- name: ServerDescribe :one
-- The version and the settings that decide what the figures mean.
SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit, current_setting('shared_buffers') AS shared_buffers,
       current_setting('max_wal_size') AS max_wal_size, current_setting('jit') AS jit;

-- name: DatabaseCreate :exec
-- Makes a database of this run.
CREATE DATABASE {{database}};

-- name: DatabaseDrop :exec
-- Drops it again, with whatever connections killed runners left in it.
DROP DATABASE IF EXISTS {{database}} WITH (FORCE);

-- name: DatabaseUsed :one
-- Whether belfry is in a database that is to be filled.
SELECT current_database() AS name, to_regnamespace('belfry') IS NOT NULL AS used;

-- name: ServerCheckpoint :exec
-- Starts each measurement with nothing left to write from the one before. Needs the role
-- pg_checkpoint; without it (42501) measurements are noisier.
CHECKPOINT;

-- name: ChannelsVacuum :exec
-- Sets hint bits and the visibility map once, so that no measurement pays for it.
VACUUM (ANALYZE) belfry.channels;

-- name: ChannelsActive :one
-- How many rows a job to everyone must write.
SELECT count(*) FROM belfry.channels WHERE active;

-- name: ChannelSample :one
-- The ids whose rows are inserted one by one.
SELECT array_agg(c.id ORDER BY c.id) FROM (SELECT id FROM belfry.channels WHERE active ORDER BY id LIMIT @limit) c;

-- name: OutboxEmpty :exec
-- Gives the tables of the outbox new, empty files.
TRUNCATE belfry.notifications, belfry.messages, belfry.leases, belfry.handovers, belfry.attempts, belfry.activities;

-- name: JobsEmpty :exec
-- Removes the jobs of the rounds before.
DELETE FROM belfry.jobs;

-- name: RowCount :one
-- The rows of a job, of either type.
SELECT (SELECT count(*) FROM belfry.notifications WHERE job_id = @job_id) + (SELECT count(*) FROM belfry.messages WHERE job_id = @job_id);

-- name: NotificationInsertAll :exec
-- What walk is measured against: every row of an inbox job in one statement.
INSERT INTO belfry.notifications (channel_id, job_id)
SELECT id, @job_id FROM belfry.channels WHERE active;

-- name: MessageInsertAll :exec
-- The same for a push job.
INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at)
SELECT @job_id, id, now() FROM belfry.channels WHERE active;

-- name: NotificationInsertOne :exec
-- One row, one statement, one transaction.
INSERT INTO belfry.notifications (channel_id, job_id) VALUES (@channel_id, @job_id);

-- name: NotificationInsertOffset :one
-- One page of OFFSET paging as it is commonly written, and how many keys it read:
-- 0 ends the walk.
WITH page AS (
    SELECT id, active FROM belfry.channels ORDER BY id LIMIT @limit OFFSET @offset
), written AS (
    INSERT INTO belfry.notifications (channel_id, job_id) SELECT id, @job_id FROM page WHERE active
)
SELECT count(*) FROM page;

-- name: RelationCreate :exec
-- A relation that keeps the contract of channels.relation, for a job of another size.
CREATE TABLE {{relation}} (id bigint PRIMARY KEY, external_id text NOT NULL, platform text NOT NULL, active boolean NOT NULL);

-- name: RelationFill :exec
-- Fills it with n channels.
INSERT INTO {{relation}} SELECT i, 'u-' || i, 'ios', true FROM generate_series(1, @n::bigint) i;

-- name: PlatformRare :script
-- A platform that some three channels in 100,000 are on.
INSERT INTO belfry.platforms (name, description) VALUES ('kiosk', 'a rare one') ON CONFLICT DO NOTHING;
UPDATE belfry.channels SET platform = 'kiosk' WHERE id % 100000 IN (1, 2, 3) AND active;

-- name: BackendsOf :one
-- The server processes of this database's connections of one name; NULL: none.
SELECT array_agg(a.pid) FROM pg_stat_activity a WHERE a.datname = current_database() AND a.application_name = @application;

-- name: PgbenchAtWork :one
-- Whether pgbench is connected and has begun with its transactions.
SELECT count(*) > 0
  FROM pg_stat_activity a
 WHERE a.datname = current_database() AND a.application_name = 'pgbench'
   AND a.query ~* '^(begin|end|update|insert|select abalance)';

-- name: PgbenchVacuum :exec
-- Level ground for pgbench: of its small tables every row is updated again and again.
VACUUM pgbench_branches, pgbench_tellers;

-- name: MessagesVacuum :exec
-- Sets hint bits and statistics once, so that no measurement pays for it.
VACUUM (ANALYZE) belfry.messages;

-- name: MessagesSent :one
-- How many messages were sent, and how many there are.
SELECT count(*) FILTER (WHERE m.status = 'SENT'), count(*) FROM belfry.messages m;

-- name: MessagesUnqueued :one
-- Whether some are not QUEUED yet.
SELECT EXISTS (SELECT FROM belfry.messages m WHERE m.status = 'PENDING');

-- name: SnapshotTake :one
-- A snapshot, which holds back vacuum while its transaction is open.
SELECT count(*) FROM belfry.categories;

-- name: RiverVacuum :exec
-- As MessagesVacuum.
VACUUM (ANALYZE) river_job;

-- name: RiverEmpty :exec
-- Gives River's table new, empty files.
TRUNCATE river_job;

-- name: RiverCompleted :one
-- How many jobs were completed, and how many there are.
SELECT count(*) FILTER (WHERE j.state = 'completed'), count(*) FROM river_job j;

-- name: OrdersCreate :exec
-- The application's own table.
CREATE TABLE orders (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer   bigint      NOT NULL,
    cents      bigint      NOT NULL,
    items      jsonb       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- name: OrderInsert :exec
-- One order.
INSERT INTO orders (customer, cents, items) VALUES (@customer, @cents, @items);

-- name: ActivityInsert :exec
-- Its message.
INSERT INTO belfry.activities (channel_id, title, body) VALUES (@customer, 'Your order is on its way', 'Thank you');

-- name: ActivityInsertLater :one
-- One that falls due in a while, and when.
INSERT INTO belfry.activities (channel_id, title, body, deliver_at)
VALUES (@channel, 'Somebody likes it', 'Look', clock_timestamp() + make_interval(secs => @seconds)) RETURNING deliver_at;

-- name: OrderAndActivityInsert :exec
-- Both in one statement.
WITH o AS (INSERT INTO orders (customer, cents, items) VALUES (@customer, @cents, @items) RETURNING id, customer)
INSERT INTO belfry.activities (channel_id, title, body, data)
SELECT o.customer, 'Your order is on its way', 'Thank you', jsonb_build_object('order', o.id) FROM o;

-- name: SeedBegin :exec
-- Rows of the past are written without triggers. It needs a superuser, or the right to SET
-- session_replication_role.
SET LOCAL session_replication_role = replica;

-- name: SeedLanes :exec
-- Twenty lanes.
INSERT INTO belfry.lanes (name) SELECT 'lane-' || n FROM generate_series(1, 20) n ON CONFLICT DO NOTHING;

-- name: SeedJobs :exec
-- So many jobs, a minute apart: the last tenth waits, of the others one in a hundred FAILED and one
-- is ABORTED, one in a thousand EXPIRED. Each tenth is of a group of ten. One has a lane and a
-- category of its own; in lane-6 all are of one category.
INSERT INTO belfry.jobs (id, group_id, type, category, title, body, route, lane, schedule_at, status, abort_requested, bound, "cursor", fence, attempts,
                         last_error, chunks, channels_read, channels_total, channels_matched, rows_written, requested_by, created_at, started_at, finished_at, walked_at, delivered_at)
SELECT n, CASE WHEN n % 10 = 0 THEN lpad((n / 100)::text, 32, '0')::uuid END,
       'push', CASE WHEN n = @jobs::bigint / 2 THEN 'activity' WHEN n % 20 = 5 THEN 'operator_notice' ELSE (ARRAY['popular_content', 'question', 'operator_notice'])[1 + n % 3] END,
       'Job ' || n, repeat('What is new near you. ', 5), '{push}', CASE WHEN n = @jobs::bigint / 2 THEN 'rare' ELSE 'lane-' || 1 + n % 20 END,
       t.at, s.status, s.status = 'ABORTED', CASE WHEN w.walked THEN '1000' END, CASE WHEN w.walked THEN '1000' END, 1, 1,
       CASE WHEN s.status = 'FAILED' THEN 'a chunk failed' END, w.walked::int, w.walked::int * 1000, 1000, w.walked::int * 1000, w.walked::int * 1000, 'seed', t.at,
       CASE WHEN w.walked THEN t.at END, CASE WHEN s.status <> 'PENDING' THEN t.at + interval '40 seconds' END, CASE WHEN s.status = 'PROCESSED' THEN t.at + interval '40 seconds' END,
       CASE WHEN s.status <> 'PENDING' THEN t.at + interval '40 seconds' END
  FROM generate_series(1, @jobs::bigint) n,
       LATERAL (SELECT CASE WHEN n > @jobs::bigint / 10 * 9 THEN 'PENDING' WHEN n % 100 = 0 THEN 'FAILED' WHEN n % 100 = 1 THEN 'ABORTED'
                            WHEN n % 1000 = 2 THEN 'EXPIRED' ELSE 'PROCESSED' END AS status) s,
       LATERAL (SELECT s.status NOT IN ('PENDING', 'EXPIRED') AS walked) w,
       LATERAL (SELECT now() - (@jobs::bigint - n) * interval '1 minute' AS at) t;

-- name: SeedEvents :exec
-- Three events of each job.
INSERT INTO belfry.job_events (job_id, kind, actor, at)
SELECT j.id, k, 'seed', j.created_at FROM belfry.jobs j, unnest('{enqueued,claimed,finished}'::text[]) k;

-- name: SeedActs :exec
-- As many events of operators' acts as there are jobs, of a thousand names.
INSERT INTO belfry.events (subject, name, kind, actor)
SELECT (ARRAY['lane', 'schedule', 'sender', 'category', 'dead_letter', 'channel', 'limits', 'transport', 'token', 'user'])[1 + n % 10],
       'n' || n % 1000, 'changed', 'seed'
  FROM generate_series(1, @jobs::bigint) n;

-- name: SeedDeliveries :exec
-- The progress of every so manieth job: a thousand messages each.
INSERT INTO belfry.job_deliveries (job_id, relay, written, sent, dead, cancelled)
SELECT n * @every::bigint, 'seed', 1000, 985, 10, 5 FROM generate_series(1, @history::bigint / 1000) n;

-- name: SeedMessages :exec
-- Their messages: one in a hundred DEAD, one in two hundred CANCELLED, the others SENT.
INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at, attempts, status, sent_at, reason, sender)
SELECT j * @every::bigint, c, now() - (@history::bigint / 1000 - j) * interval '50 minutes', 1,
       CASE WHEN c <= 10 THEN 'DEAD' WHEN c <= 15 THEN 'CANCELLED' ELSE 'SENT' END, CASE WHEN c > 15 THEN now() END,
       CASE WHEN c <= 5 THEN 'permanent' WHEN c <= 10 THEN 'invalid_address' WHEN c <= 15 THEN 'expired' END, 'fcm'
  FROM generate_series(1, @history::bigint / 1000) j, generate_series(1, 1000) c;

-- name: SeedAttempts :exec
-- An attempt of each dead one.
INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, sender, outcome, reason, code)
SELECT j * @every::bigint, c, 0, 1, 'push', 'fcm', 'permanent', 'permanent', '400' FROM generate_series(1, @history::bigint / 1000) j, generate_series(1, 10) c;

-- name: SeedVacuum :exec
-- As autovacuum leaves them.
VACUUM (ANALYZE);
