-- Statements of the demo. The demo shows the statements Enqueue, Abort and Resume and runs
-- exactly this text; the {{marks}} stand for numbers and quoted literals of the demo.
-- Verify is the check: it uses only belfry's tables.

-- name: DatabaseExists :one
-- Whether the server has a database of that name. Always one row.
SELECT EXISTS (SELECT FROM pg_database WHERE datname = @name);

-- name: DatabaseCreate :exec
-- Creates the demo's database; {{name}} is quoted.
CREATE DATABASE {{name}} TEMPLATE template0;

-- name: StageLock :one
-- Locks this database for one demo until the transaction ends. False means that
-- another demo has the lock.
SELECT set_config('idle_in_transaction_session_timeout', '0', true) IS NOT NULL
   AND pg_try_advisory_xact_lock(@key);

-- name: StageContent :one
-- The comment on the schema belfry (NULL without one), and whether the schema and
-- its table of jobs exist. Always one row.
SELECT to_regnamespace('belfry') IS NOT NULL                       AS schema,
       obj_description(to_regnamespace('belfry'), 'pg_namespace')  AS mark,
       to_regclass('belfry.jobs') IS NOT NULL                      AS jobs;

-- name: StageForeignJobs :one
-- At most three jobs that were not requested by the demo or in its console; NULL without
-- such a job.
SELECT string_agg(format('job %s, requested by %s', id, requested_by), '; ' ORDER BY id)
  FROM (SELECT id, requested_by FROM belfry.jobs WHERE requested_by <> ALL (@ours::text[]) ORDER BY id LIMIT 3) AS foreign_jobs;

-- name: StageClear :script
-- Drops the schema of the last demo and creates one with the demo's mark, in one
-- transaction: a schema without the mark is never dropped.
DROP SCHEMA IF EXISTS belfry CASCADE;
CREATE SCHEMA belfry;
COMMENT ON SCHEMA belfry IS 'made by belfry demo; the next demo drops it';

-- name: ServerVersion :one
-- The server's version, such as 15.8. Always one row.
SELECT split_part(current_setting('server_version'), ' ', 1);

-- name: Enqueue :one
-- Popular content to everyone, by push. The limit makes the job take long enough for the
-- kill and the abort.
INSERT INTO belfry.jobs (type, category, title,
                         max_rows_per_second, requested_by)
VALUES ('push', 'popular_content', 'Most read today',
        {{rate}}, 'belfry demo')
RETURNING id;

-- name: Unlimit :exec
-- Lifts the limit of the job, from its next chunk on.
UPDATE belfry.jobs SET max_rows_per_second = NULL;

-- name: Abort :one
-- The abort. Its effect is visible to all transactions when it returns.
UPDATE belfry.jobs SET abort_requested = true WHERE id = {{id}}
RETURNING status, "cursor", rows_written;

-- name: Resume :one
-- The resume, with actor and reason for the timeline.
SELECT status FROM belfry.resume({{id}}, actor => 'belfry demo',
                     reason => 'it was only a demonstration');

-- name: JobSnapshot :one
-- The progress of a job (jobs_pkey). No row without the job.
SELECT status, coalesce("cursor", '') AS "cursor", coalesce(bound, '') AS bound, fence,
       chunks, channels_read, rows_written
  FROM belfry.jobs
 WHERE id = @id;

-- name: RunSessions :one
-- The number of server sessions of this job's runs. Always one row.
SELECT count(*)
  FROM pg_stat_activity
 WHERE datname = current_database() AND application_name LIKE 'belfry job ' || @id::bigint || ' fence %';

-- name: Routes :exec
-- Sends messages by sms if push fails permanently.
UPDATE belfry.categories SET route = '{push,sms}' WHERE name = 'popular_content';

-- name: MessagesCount :one
-- The number of messages to deliver. Always one row.
SELECT count(*) FROM belfry.messages;

-- name: AllDelivered :one
-- Whether all messages of push jobs are final. Always one row.
SELECT NOT EXISTS (SELECT FROM belfry.jobs WHERE type = 'push' AND delivered_at IS NULL);

-- name: DeliveryAccount :one
-- The number of messages by status, with repeated attempts, and after the first medium, and the
-- number of attempts with an unknown outcome. Always one row.
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
-- The check, from the channels and the rows alone, in one snapshot. It counts the active
-- channels up to the job's bound, or with @at_cursor up to its cursor (matched), such
-- channels without a row (missing), the job's rows, rows for other or later channels
-- (unexpected), and rows beyond a channel's first (duplicates). No row without the job.
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
-- The schedules of a demo with a console.
INSERT INTO belfry.schedules (name, cron, time_zone, template) VALUES
    ('demo-news', '0 8 * * *', 'Asia/Seoul', '{"types": ["inbox", "push"], "category": "popular_content", "title": "Most read this morning"}'),
    ('demo-evening', '0 18 * * MON-FRI', 'Asia/Seoul', '{"type": "push", "category": "popular_content", "title": "Most read today"}'),
    ('demo-hourly', '0 * * * *', 'Asia/Seoul', '{"type": "inbox", "category": "popular_content", "title": "New this hour"}');

-- name: ServeCampaign :one
-- Enqueues campaign @n of the history, and returns its id and whether its text is wrong. The wrong one takes
-- eight seconds with @channels channels, so that it can be stopped.
INSERT INTO belfry.jobs (type, category, title, body, lane, audience, max_rows_per_second, requested_by)
SELECT n.type, n.category, n.title, n.body, n.lane, n.audience, n.rate, 'belfry demo'
  FROM (VALUES
        (0, 'push', 'operator_notice', 'Closed on Monady', 'All day.', 'default', belfry.audience_platforms('android'), greatest(@channels::bigint / 8, 100)),
        (1, 'inbox', 'popular_content', 'Most read this week', 'Ten articles.', 'default', belfry.audience_everyone(), NULL),
        (2, 'push', 'question_content', 'Is the night bus on time?', 'Near Seoul station.', 'questions', belfry.audience_radius(37.5547, 126.9707, 25000), NULL),
        (3, 'push', 'popular_content', 'Five walks for the weekend', 'One is near you.', 'default', belfry.audience_platforms('ios'), NULL),
        (4, 'push', 'question_content', 'Where is the best coffee?', 'Near Busan.', 'questions', belfry.audience_radius(35.1796, 129.0756, 20000), NULL)
    ) n(k, type, category, title, body, lane, audience, rate)
 WHERE n.k = @n::integer
RETURNING id, title LIKE '%Monady%';

-- name: ServeHistory :script
-- Moves all jobs into the past: they begin one after the other within the last hour, and take up to nine
-- minutes each, in proportion to their rows. Then makes the samples of this time again.
CREATE TEMPORARY TABLE moved ON COMMIT DROP AS
SELECT j.id, j.started_at AS was, w.begins, w.lasts / greatest(extract(epoch FROM j.ended - j.started_at), 1) AS stretch
  FROM (SELECT j.*, greatest(j.finished_at, j.delivered_at) AS ended, row_number() OVER (ORDER BY j.id) AS k, count(*) OVER () AS n,
               j.rows_written / max(j.rows_written) OVER ()::float8 AS part
          FROM belfry.jobs j) j,
       LATERAL (SELECT now() - interval '58 minutes' + (j.k - 1) * interval '56 minutes' / j.n AS begins,
                       60 * (1 + 8 * sqrt(j.part)) AS lasts) w;

CREATE FUNCTION pg_temp.moved(job bigint, t timestamptz) RETURNS timestamptz LANGUAGE sql AS
    'SELECT m.begins + CASE WHEN t < m.was THEN greatest(t - m.was, interval ''-3 seconds'') ELSE (t - m.was) * m.stretch END FROM moved m WHERE m.id = job';

UPDATE belfry.jobs j
   SET created_at = pg_temp.moved(j.id, j.created_at), schedule_at = pg_temp.moved(j.id, j.schedule_at), started_at = pg_temp.moved(j.id, j.started_at), finished_at = pg_temp.moved(j.id, j.finished_at),
       walked_at = pg_temp.moved(j.id, j.walked_at), delivered_at = pg_temp.moved(j.id, coalesce(j.delivered_at, j.finished_at))
  FROM moved m WHERE m.id = j.id;
-- These times are no change that anybody made.
DELETE FROM belfry.job_events e WHERE e.kind = 'changed' AND e.at >= now();
UPDATE belfry.job_events e SET at = pg_temp.moved(e.job_id, e.at);
UPDATE belfry.job_revisions r SET edited_at = pg_temp.moved(r.job_id, r.edited_at);
UPDATE belfry.attempts a SET at = m.begins + (a.at - m.was) * m.stretch FROM moved m WHERE m.id = a.job_id;
UPDATE belfry.message_rows x SET sent_at = m.begins + (x.sent_at - m.was) * m.stretch, next_attempt_at = m.begins + (x.next_attempt_at - m.was) * m.stretch
  FROM moved m WHERE m.id = x.job_id;

DELETE FROM belfry.samples;
-- The walk: the rows of a job, evenly, with the remainder in the first minute.
INSERT INTO belfry.samples (kind, name, at, rows_written, p95_ms)
SELECT k.kind, k.name, k.at, sum(k.n), max(40 + 7 * (extract(minute FROM k.at)::integer % 5))
  FROM (SELECT s.kind, CASE s.kind WHEN 'job' THEN j.id::text ELSE j.lane END AS name, t.at,
               j.rows_written / count(*) OVER w + CASE WHEN row_number() OVER w = 1 THEN j.rows_written % count(*) OVER w ELSE 0 END AS n
          FROM belfry.jobs j,
               generate_series(date_bin('1 minute', j.started_at, '1970-01-01 00:00:00+00'), j.finished_at, interval '1 minute') t(at),
               (VALUES ('job'), ('lane')) s(kind)
        WINDOW w AS (PARTITION BY j.id, s.kind)) k
 GROUP BY k.kind, k.name, k.at;
-- The delivery, by job and by sender.
INSERT INTO belfry.samples (kind, name, at, medium, sent, failed, p95_ms)
SELECT k.kind, k.name, k.at, max(k.medium), sum(k.sent), sum(k.failed), CASE k.kind WHEN 'sender' THEN max(60 + 11 * (extract(minute FROM k.at)::integer % 7)) ELSE 0 END
  FROM (SELECT 'job', m.job_id::text, '', m.sent_at, 1, 0 FROM belfry.messages m WHERE m.status = 'SENT'
        UNION ALL
        SELECT 'sender', m.sender, m.sender, m.sent_at, 1, 0 FROM belfry.messages m WHERE m.status = 'SENT'
        UNION ALL
        SELECT 'sender', a.sender, a.medium, a.at, 0, 1 FROM belfry.attempts a WHERE a.outcome NOT IN ('accepted', 'delivered')
        UNION ALL
        SELECT 'job', a.job_id::text, '', max(a.at), 0, 1 FROM belfry.attempts a JOIN belfry.messages m USING (job_id, channel_id)
         WHERE m.status = 'DEAD' GROUP BY a.job_id, a.channel_id) e(kind, name, medium, at, sent, failed),
       LATERAL (SELECT e.kind, e.name, e.medium, date_bin('1 minute', e.at, '1970-01-01 00:00:00+00') AS at, e.sent, e.failed) k
 WHERE k.name <> ''
 GROUP BY k.kind, k.name, k.at
ON CONFLICT (kind, name, at) DO UPDATE SET sent = samples.sent + excluded.sent, failed = samples.failed + excluded.failed;

-- name: ServeEnqueue :one
-- Enqueues notice @n of a demo with a console and @channels channels, and returns its id and
-- whether its text is wrong. Every twentieth notice goes to all channels and takes 40 seconds.
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
-- Stops a notice with a wrong text.
SELECT FROM belfry.abort(@id, 'kim', 'the day is misspelt');

-- name: ServeCorrect :exec
-- Corrects the notice, if it was stopped in time.
SELECT r.* FROM belfry.jobs j, belfry.resume_edited(j.id, '{"title": "Closed on Monday"}', 'kim', 'spelt right') r
 WHERE j.id = @id AND j.status = 'ABORTED';
