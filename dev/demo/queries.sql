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
-- Names jobs that were not requested by the demo or in its console, three at most; NULL: there is
-- none.
SELECT string_agg(format('job %s, requested by %s', id, requested_by), '; ' ORDER BY id)
  FROM (SELECT id, requested_by FROM belfry.jobs WHERE requested_by <> ALL (@ours::text[]) ORDER BY id LIMIT 3) AS foreign_jobs;

-- name: StageClear :script
-- Removes what the last demo left and marks the schema as the demo's, in one
-- transaction: a schema without the mark is never dropped.
DROP SCHEMA IF EXISTS belfry CASCADE;
CREATE SCHEMA belfry;
COMMENT ON SCHEMA belfry IS 'made by belfry demo; the next demo drops it';

-- name: ServerVersion :one
-- The server's version, as 15.8. Always one row.
SELECT split_part(current_setting('server_version'), ' ', 1);

-- name: Enqueue :one
-- Popular content to everyone, by push. The limit has the job take long enough to be hit
-- in its middle.
INSERT INTO belfry.jobs (type, category, title,
                         max_rows_per_second, requested_by)
VALUES ('push', 'popular_content', 'Most read today',
        {{rate}}, 'belfry demo')
RETURNING id;

-- name: Unlimit :exec
-- Lifts the limit of the job, which counts from its next chunk on.
UPDATE belfry.jobs SET max_rows_per_second = NULL;

-- name: Abort :one
-- The abort. The row is as it is for everybody once this has returned.
UPDATE belfry.jobs SET abort_requested = true WHERE id = {{id}}
RETURNING status, "cursor", rows_written;

-- name: Resume :one
-- The resume, with who and why for the timeline.
SELECT status FROM belfry.resume({{id}}, actor => 'belfry demo',
                     reason => 'it was only a demonstration');

-- name: JobLook :one
-- How far a job is (jobs_pkey). No row: there is none.
SELECT status, coalesce("cursor", '') AS "cursor", coalesce(bound, '') AS bound, fence,
       chunks, channels_read, rows_written
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
UPDATE belfry.categories SET route = '{push,sms}' WHERE name = 'popular_content';

-- name: MessagesCount :one
-- How many messages there are to deliver. Always one row.
SELECT count(*) FROM belfry.messages;

-- name: AllDelivered :one
-- Whether no push job has a message left. Always one row.
SELECT NOT EXISTS (SELECT FROM belfry.jobs WHERE type = 'push' AND delivered_at IS NULL);

-- name: DeliveryAccount :one
-- What became of the messages: by status, how many had an attempt that was made again,
-- how many are past the first medium, and how many attempts may have been accepted
-- though nobody knows, and how many went by a carrier. Always one row.
SELECT count(*) FILTER (WHERE status = 'SENT')                   AS sent,
       count(*) FILTER (WHERE status = 'DEAD')                   AS dead,
       count(*) FILTER (WHERE status NOT IN ('SENT', 'DEAD'))    AS unfinished,
       (SELECT count(DISTINCT (job_id, channel_id)) FROM belfry.attempts
         WHERE outcome IN ('retryable', 'unknown', 'crashed'))   AS retried,
       count(*) FILTER (WHERE step > 0)                          AS failed_over,
       (SELECT count(*) FROM belfry.attempts
         WHERE outcome IN ('unknown', 'crashed'))                AS ambiguous,
       count(push)                                               AS carried
  FROM belfry.messages;

-- name: Verify :one
-- The proof, from the channels and the rows alone, in one snapshot. Of the active channels
-- up to the job's bound, or with @at_cursor up to its cursor: how many there are, how many
-- have no row (missing). Of the job's rows: how many there are, how many are for another
-- channel or one further on (unexpected), how many for a channel that has one already
-- (duplicates). No row: there is no such job.
WITH job AS MATERIALIZED (
    SELECT id, type, category, title, status, coalesce("cursor", '') AS "cursor", chunks,
           CASE WHEN @at_cursor THEN "cursor" ELSE bound END::bigint AS up_to
      FROM belfry.jobs
     WHERE id = @id
), matching AS (
    SELECT c.id FROM belfry.channels c CROSS JOIN job WHERE c.active AND c.id <= job.up_to
), written AS (
    SELECT m.channel_id, count(*) AS copies
      FROM belfry.messages m JOIN job ON m.job_id = job.id
     GROUP BY m.channel_id
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

-- name: ServeSchedules :script
-- What is on the timetable of a demo whose console is open.
INSERT INTO belfry.schedules (name, cron, time_zone, template) VALUES
    ('demo-news', '0 8 * * *', 'Asia/Seoul', '{"types": ["inbox", "push"], "category": "popular_content", "title": "Most read this morning"}'),
    ('demo-evening', '0 18 * * MON-FRI', 'Asia/Seoul', '{"type": "push", "category": "popular_content", "title": "Most read today"}'),
    ('demo-hourly', '0 * * * *', 'Asia/Seoul', '{"type": "inbox", "category": "popular_content", "title": "New this hour"}');

-- name: ServeEnqueue :one
-- Enqueues the @n-th notice of a demo whose console is open, of @channels channels, and returns
-- its id and whether its text is wrong. Every twentieth goes to everybody, and takes 40 seconds.
WITH notice AS (
    SELECT * FROM (VALUES
        (0, 'push', 'question_content', 'Was the bridge open this morning?', 'Tell those who are on their way.', 'questions', belfry.audience_radius(35.1796, 129.0756, 20000), 15),
        (1, 'inbox', 'operator_notice', 'The app is faster now', 'Version 4.2 is in the stores.', 'default', belfry.audience_platforms('ios'), 10),
        (2, 'push', 'operator_notice', 'Closed on Monady', 'All day.', 'default', belfry.audience_platforms('android'), 40),
        (3, 'push', 'question_content', 'Which market is the best?', 'Near Daegu.', 'questions', belfry.audience_radius(35.8714, 128.6014, 30000), 15),
        (4, 'push', 'popular_content', 'Most read today', 'Three articles.', 'default', belfry.audience_everyone(), 40)
    ) v(k, type, category, title, body, lane, audience, seconds)
     WHERE k = CASE WHEN @n::integer % 20 = 0 THEN 4 ELSE @n::integer % 4 END
)
INSERT INTO belfry.jobs (type, category, title, body, lane, audience, max_rows_per_second, requested_by)
SELECT n.type, n.category, n.title, n.body, n.lane, n.audience, greatest(@channels::bigint / n.seconds, 100), 'belfry demo' FROM notice n
RETURNING id, title LIKE '%Monady%';

-- name: ServeAbort :exec
-- Somebody sees that a text is wrong.
SELECT FROM belfry.abort(@id, 'kim', 'the day is misspelt');

-- name: ServeCorrect :exec
-- And corrects it, if it was stopped in time.
SELECT r.* FROM belfry.jobs j, belfry.resume_edited(j.id, '{"title": "Closed on Monday"}', 'kim', 'spelt right') r
 WHERE j.id = @id AND j.status = 'ABORTED';
