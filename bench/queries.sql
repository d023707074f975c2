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
