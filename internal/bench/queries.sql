-- Statements of package bench. The markers in double braces are replaced by
-- quoted identifiers, never by data.

-- name: ServerDescribe :one
-- The version and the settings that decide what the figures mean.
SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit, current_setting('shared_buffers') AS shared_buffers,
       current_setting('max_wal_size') AS max_wal_size, current_setting('jit') AS jit;

-- name: DatabaseCreate :exec
-- Makes the database of this run on a server that was given by URL.
CREATE DATABASE {{database}};

-- name: DatabaseDrop :exec
-- Drops it again, with whatever connections killed runners left in it.
DROP DATABASE IF EXISTS {{database}} WITH (FORCE);

-- name: ChannelsVacuum :exec
-- Sets hint bits and the visibility map once, so that no measurement pays for it.
VACUUM (ANALYZE) belfry.channels;

-- name: ChannelsActive :one
-- How many rows a job to everyone must write, and the highest id.
SELECT count(*) FILTER (WHERE active), max(id) FROM belfry.channels;

-- name: OutboxEmpty :exec
-- Gives both tables new, empty files.
TRUNCATE belfry.notifications, belfry.messages;

-- name: ServerCheckpoint :exec
-- Starts each measurement with nothing left to write from the one before. Needs
-- the role pg_checkpoint; without it (42501) measurements are noisier.
CHECKPOINT;

-- name: NotificationCount :one
-- The notifications of a job.
SELECT count(*) FROM belfry.notifications WHERE job_id = @job_id;

-- name: MessageCount :one
-- The messages of a job.
SELECT count(*) FROM belfry.messages WHERE job_id = @job_id;

-- name: NotificationInsertAll :exec
-- What walk is measured against: every row of an inbox job in one statement.
INSERT INTO belfry.notifications (channel_id, job_id)
SELECT id, @job_id FROM belfry.channels WHERE active;

-- name: MessageInsertAll :exec
-- The same for a push job.
INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at)
SELECT @job_id, id, now() FROM belfry.channels WHERE active;

-- name: ChannelSample :many
-- The ids whose rows are inserted one by one.
SELECT id FROM belfry.channels WHERE active ORDER BY id LIMIT @limit;

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

-- name: RelationCreate :script
-- Two relations that keep the contract of channels.relation, for jobs of two sizes
-- in one database.
CREATE SCHEMA bench;
CREATE TABLE bench.channels_small (id bigint PRIMARY KEY, external_id text NOT NULL, platform text NOT NULL, active boolean NOT NULL);
CREATE TABLE bench.channels_large (LIKE bench.channels_small INCLUDING ALL);

-- name: RelationFillSmall :exec
-- Fills the small one with n channels.
INSERT INTO bench.channels_small SELECT i, 'u-' || i, 'ios', true FROM generate_series(1, @n::bigint) i;

-- name: RelationFillLarge :exec
-- Fills the large one with n channels.
INSERT INTO bench.channels_large SELECT i, 'u-' || i, 'ios', true FROM generate_series(1, @n::bigint) i;

-- name: PlatformRare :script
-- A platform that some three channels in 100,000 are on.
INSERT INTO belfry.platforms (name, description) VALUES ('kiosk', 'a rare one') ON CONFLICT DO NOTHING;
UPDATE belfry.channels SET platform = 'kiosk' WHERE id % 100000 IN (1, 2, 3) AND active;

-- name: BackendsOf :many
-- The server processes of this database's connections of one name.
SELECT a.pid FROM pg_stat_activity a WHERE a.datname = current_database() AND a.application_name = @application ORDER BY a.pid;

-- name: JobState :one
-- How far a job is. No row: there is no such job.
SELECT status, fence, rows_written FROM belfry.jobs WHERE id = @id;

-- name: PgbenchAtWork :one
-- Whether pgbench is connected and has begun with its transactions.
SELECT count(*) > 0
  FROM pg_stat_activity a
 WHERE a.datname = current_database() AND a.application_name = 'pgbench'
   AND a.query ~* '^(begin|end|update|insert|select abalance)';

-- name: PgbenchVacuum :exec
-- Level ground for pgbench: of its small tables every row is updated again and again.
VACUUM pgbench_branches, pgbench_tellers;
