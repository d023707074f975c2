-- Statements of the demo. Those that enqueue, abort and resume are shown on the
-- screen word for word, and nothing else is run; the {{marks}} stand for numbers
-- and quoted literals of the demo's own. Verify is the proof: it uses nothing of
-- belfry but its tables.

-- name: DatabaseExists :one
-- Whether the server has a database of that name. Always one row.
SELECT EXISTS (SELECT FROM pg_database WHERE datname = @name);

-- name: DatabaseCreate :exec
-- Makes the demo's database; {{name}} is quoted.
CREATE DATABASE {{name}} TEMPLATE template0;

-- name: StageLock :one
-- Takes the right to demonstrate in this database until the transaction ends.
-- False: another demo has it.
SELECT set_config('idle_in_transaction_session_timeout', '0', true) IS NOT NULL
   AND pg_try_advisory_xact_lock(@key);

-- name: StageLook :one
-- What the database holds: the comment on the schema belfry (NULL: none) and
-- whether the schema and its tables of jobs exist. Always one row.
SELECT to_regnamespace('belfry') IS NOT NULL                       AS schema,
       obj_description(to_regnamespace('belfry'), 'pg_namespace')  AS mark,
       to_regclass('belfry.jobs') IS NOT NULL                      AS jobs;

-- name: StageForeignJobs :one
-- Names jobs that were not requested by the demo, three at most; NULL: there is none.
SELECT string_agg(format('job %s, requested by %s', id, requested_by), '; ' ORDER BY id)
  FROM (SELECT id, requested_by FROM belfry.jobs WHERE requested_by <> @me ORDER BY id LIMIT 3) AS foreign_jobs;

-- name: StageClear :script
-- Removes what the last demo left and marks the schema as the demo's, in one
-- transaction: a schema without the mark is never dropped.
DROP SCHEMA IF EXISTS belfry CASCADE;
CREATE SCHEMA belfry;
COMMENT ON SCHEMA belfry IS 'made by belfry demo; the next demo drops it';

-- name: ServerVersion :one
-- The server's version, as 15.8. Always one row.
SELECT split_part(current_setting('server_version'), ' ', 1);

-- name: EnqueuePopular :many
-- Popular content to everyone, as a group: inbox and push. The first job is the
-- inbox's. The limit has both take long enough to be hit in their middle.
INSERT INTO belfry.jobs (group_id, type, category, title,
                         max_rows_per_second, requested_by)
SELECT g, t, 'popular_content', 'Most read today', {{rate}}, 'belfry demo'
  FROM gen_random_uuid() AS g, unnest(ARRAY['inbox', 'push']) AS t
 ORDER BY t
RETURNING id;

-- name: Unlimit :exec
-- Lifts the limit of a job, which counts from its next chunk on.
UPDATE belfry.jobs SET max_rows_per_second = NULL WHERE id = @id;

-- name: EnqueueOthers :many
-- Question content near a city, an operator notice to two platforms, and a job that is
-- due in three seconds.
INSERT INTO belfry.jobs (type, category, title, audience, schedule_at,
                         requested_by)
VALUES ('push', 'question_content', {{question}},
        belfry.audience_radius({{latitude}}, {{longitude}}, {{radius}}),
        now(), 'belfry demo'),
       ('inbox', 'operator_notice', 'Maintenance at 2',
        belfry.audience_platforms('ios', 'android'), now(), 'belfry demo'),
       ('inbox', 'popular_content', 'Evening digest',
        belfry.audience_everyone(), now() + interval '3 seconds',
        'belfry demo')
RETURNING id;

-- name: Abort :one
-- The abort. The row is as it is for everybody once this has returned.
UPDATE belfry.jobs SET abort_requested = true WHERE id = {{id}}
RETURNING status, "cursor", chunks, rows_written;

-- name: Resume :one
-- The resume, with who and why for the timeline.
SELECT status FROM belfry.resume({{id}}, actor => 'belfry demo',
                     reason => 'it was only a demonstration');

-- name: JobLook :one
-- How far a job is (jobs_pkey). No row: there is none.
SELECT status, coalesce("cursor", '') AS "cursor", coalesce(bound, '') AS bound, fence,
       chunks, channels_read, rows_written, coalesce(runner, '') AS runner,
       schedule_at, started_at
  FROM belfry.jobs
 WHERE id = @id;

-- name: RunSessions :one
-- Server sessions that still are in a transaction of a run of this job. Always
-- one row.
SELECT count(*)
  FROM pg_stat_activity
 WHERE datname = current_database() AND application_name LIKE 'belfry job ' || @id::bigint || ' fence %';

-- name: Routes :exec
-- Has messages go by sms where push fails permanently.
UPDATE belfry.categories SET route = '{push,sms}' WHERE name IN ('popular_content', 'question_content');

-- name: MessagesCount :one
-- How many messages there are to deliver. Always one row.
SELECT count(*) FROM belfry.messages;

-- name: AllDelivered :one
-- Whether no push job has a message left. Always one row.
SELECT NOT EXISTS (SELECT FROM belfry.jobs WHERE type = 'push' AND delivered_at IS NULL);

-- name: DeliveryAccount :one
-- What became of the messages: by status, how many had an attempt that was made again,
-- how many are past the first medium, and how many attempts may have been accepted
-- though nobody knows. Always one row.
SELECT count(*) FILTER (WHERE status = 'SENT')                   AS sent,
       count(*) FILTER (WHERE status = 'DEAD')                   AS dead,
       count(*) FILTER (WHERE status NOT IN ('SENT', 'DEAD'))    AS unfinished,
       (SELECT count(DISTINCT (job_id, channel_id)) FROM belfry.attempts
         WHERE outcome IN ('retryable', 'unknown', 'crashed'))   AS retried,
       count(*) FILTER (WHERE step > 0)                          AS failed_over,
       (SELECT count(*) FROM belfry.attempts
         WHERE outcome IN ('unknown', 'crashed'))                AS ambiguous
  FROM belfry.messages;

-- name: Verify :one
-- The proof for one job, from the channels and the rows alone, in one snapshot. Of
-- the active channels up to the job's bound, or with @at_cursor up to its cursor,
-- that match its audience: how many there are, how many have no row (missing). Of
-- the job's rows: how many there are, how many are for another channel or one
-- further on (unexpected), how many for a channel that has one already
-- (duplicates). A radius is measured along a straight line through the globe: a
-- channel is inside iff its chord is no longer than that of the radius. No row:
-- there is no such job.
WITH job AS MATERIALIZED (
    SELECT id, type, category, title, status, coalesce("cursor", '') AS "cursor", chunks, audience,
           CASE WHEN @at_cursor THEN "cursor" ELSE bound END::bigint AS up_to,
           (audience ->> 'latitude')::float8 AS lat,
           (audience ->> 'longitude')::float8 AS lon,
           2 * sin(least((audience ->> 'radius_m')::float8 / 6371008.8, pi()) / 2) AS chord
      FROM belfry.jobs
     WHERE id = @id
), matching AS (
    SELECT c.id
      FROM belfry.channels c CROSS JOIN job
     WHERE c.active AND c.id <= job.up_to
       AND CASE job.audience ->> 'kind'
               WHEN 'everyone' THEN true
               WHEN 'platforms' THEN job.audience -> 'platforms' ? c.platform
               WHEN 'radius' THEN
                   (cosd(c.location[1]) * cosd(c.location[0]) - cosd(lat) * cosd(lon)) ^ 2
                 + (cosd(c.location[1]) * sind(c.location[0]) - cosd(lat) * sind(lon)) ^ 2
                 + (sind(c.location[1]) - sind(lat)) ^ 2 <= chord ^ 2
           END
), written AS (
    SELECT channel_id, count(*) AS copies
      FROM (SELECT n.channel_id FROM belfry.notifications n JOIN job ON n.job_id = job.id AND job.type = 'inbox'
            UNION ALL
            SELECT m.channel_id FROM belfry.messages m JOIN job ON m.job_id = job.id AND job.type = 'push') AS rows
     GROUP BY channel_id
), compared AS (
    SELECT count(matching.id)                                         AS matched,
           coalesce(sum(copies), 0)::bigint                           AS rows,
           count(*) FILTER (WHERE written.channel_id IS NULL)         AS missing,
           coalesce(sum(copies) FILTER (WHERE matching.id IS NULL), 0)::bigint AS unexpected,
           coalesce(sum(copies - 1), 0)::bigint                       AS duplicates
      FROM matching FULL JOIN written ON written.channel_id = matching.id
)
SELECT job.id, type, category, title, status, "cursor", chunks, matched, rows, missing, unexpected, duplicates
  FROM job CROSS JOIN compared;
