-- Statements of schedules. All of them use the name, the primary key, except the list and the queries of due
-- schedules.

-- name: ActorSet :exec
-- Sets actor and reason for the events of this transaction. An empty @actor means the session's user.
SELECT belfry.act(@actor, @reason);

-- name: ScheduleList :many
-- Lists all schedules by name.
SELECT name, source, coalesce(cron, '') AS cron, coalesce(extract(epoch FROM every)::bigint || 's', '') AS every, time_zone,
       template, coalesce(query, '') AS query, extract(epoch FROM query_timeout)::bigint || 's' AS query_timeout,
       coalesce(query_role, '') AS query_role, coalesce(query_by::text, '') AS query_by, missed, extract(epoch FROM missed_after)::bigint || 's' AS missed_after,
       paused_at, coalesce(paused_by, '') AS paused_by, pause_reason, armed_at, next_at, retry_at, failing_since,
       last_at, last_fired_at, last_jobs, coalesce(last_error, '') AS last_error, failures, fired, skipped,
       created_at, updated_at, belfry.version('schedule', name) AS version
  FROM belfry.schedules
 ORDER BY name;

-- name: ScheduleGet :one
-- Reads one schedule. Returns no row if it does not exist.
SELECT name, source, coalesce(cron, '') AS cron, coalesce(extract(epoch FROM every)::bigint || 's', '') AS every, time_zone,
       template, coalesce(query, '') AS query, extract(epoch FROM query_timeout)::bigint || 's' AS query_timeout,
       coalesce(query_role, '') AS query_role, coalesce(query_by::text, '') AS query_by, missed, extract(epoch FROM missed_after)::bigint || 's' AS missed_after,
       paused_at, coalesce(paused_by, '') AS paused_by, pause_reason, armed_at, next_at, retry_at, failing_since,
       last_at, last_fired_at, last_jobs, coalesce(last_error, '') AS last_error, failures, fired, skipped,
       created_at, updated_at, belfry.version('schedule', name) AS version
  FROM belfry.schedules
 WHERE name = @name;

-- name: SchedulePut :one
-- Inserts or changes one definition. Empty texts are NULL. Returns whether it was created. Returns no row if the
-- definition is unchanged or comes from another source.
INSERT INTO belfry.schedules AS s (name, source, cron, every, time_zone, template, query, query_timeout, query_role, missed, missed_after)
VALUES (@name, @source, nullif(@cron::text, ''), nullif(@every::text, '')::interval, @time_zone, @template::jsonb,
        nullif(@query::text, ''), @query_timeout::text::interval, nullif(@query_role::text, ''), @missed, @missed_after::text::interval)
    ON CONFLICT ON CONSTRAINT schedules_pkey DO UPDATE
   SET cron = excluded.cron, every = excluded.every, time_zone = excluded.time_zone, template = excluded.template,
       query = excluded.query, query_timeout = excluded.query_timeout, query_role = excluded.query_role, query_by = excluded.query_by, missed = excluded.missed, missed_after = excluded.missed_after
 WHERE s.source = excluded.source
   AND (s.cron, s.every, s.time_zone, s.template, s.query, s.query_timeout, s.query_role, s.query_by, s.missed, s.missed_after)
       IS DISTINCT FROM
       (excluded.cron, excluded.every, excluded.time_zone, excluded.template, excluded.query, excluded.query_timeout, excluded.query_role, excluded.query_by, excluded.missed, excluded.missed_after)
RETURNING s.xmax = 0 AS created;

-- name: ScheduleRemove :exec
-- Deletes one schedule. Its jobs and events remain.
DELETE FROM belfry.schedules WHERE name = @name;

-- name: SchedulePause :exec
-- Pauses one schedule. A paused schedule does not change.
SELECT FROM belfry.pause_schedule(@name, nullif(@actor::text, ''), @reason);

-- name: ScheduleResume :exec
-- Resumes one schedule. A schedule that is not paused does not change.
SELECT FROM belfry.resume_schedule(@name, nullif(@actor::text, ''), @reason);

-- name: SchedulesDue :many
-- Lists schedules that are due at @now (NULL means the statement's time) and not in @busy: schedules without a
-- query first, then those that do not fail, then by due time (schedules_due_idx). Returns no row while belfry is
-- halted.
SELECT name, query IS NOT NULL AS asks, failures > 0 AS failing, extract(epoch FROM query_timeout)::bigint AS query_timeout
  FROM belfry.schedules
 WHERE paused_at IS NULL AND name <> ALL (@busy::text[]) AND (SELECT i.halted_at FROM belfry.installation i WHERE i.one) IS NULL
   AND coalesce(retry_at, next_at, '-infinity'::timestamptz) <= coalesce(@now::timestamptz, statement_timestamp())
 ORDER BY query IS NOT NULL, failures > 0, coalesce(retry_at, next_at, '-infinity'::timestamptz)
 LIMIT 1000;

-- name: SchedulesNext :one
-- Returns the seconds from @now (NULL means the statement's time) until the next schedule that is not in @busy is
-- due; 0 or less if it is due now (schedules_due_idx). Returns no row if no schedule will be due, or while belfry is
-- halted.
SELECT extract(epoch FROM greatest(coalesce(retry_at, next_at, '-infinity'::timestamptz), t.now) - t.now)::double precision
  FROM belfry.schedules
 CROSS JOIN (SELECT coalesce(@now::timestamptz, statement_timestamp()) AS now) t
 WHERE paused_at IS NULL AND name <> ALL (@busy::text[]) AND (SELECT i.halted_at FROM belfry.installation i WHERE i.one) IS NULL
 ORDER BY coalesce(retry_at, next_at, '-infinity'::timestamptz)
 LIMIT 1;

-- name: ScheduleLock :one
-- Locks one schedule if it is still due. Returns no row if another node has locked or fired it, or while belfry is
-- halted.
SELECT name, source, coalesce(cron, '') AS cron, coalesce(extract(epoch FROM every)::bigint || 's', '') AS every, time_zone,
       template, coalesce(query, '') AS query, extract(epoch FROM query_timeout)::bigint || 's' AS query_timeout,
       coalesce(query_role, '') AS query_role, coalesce(query_by::text, '') AS query_by, missed, extract(epoch FROM missed_after)::bigint || 's' AS missed_after,
       paused_at, coalesce(paused_by, '') AS paused_by, pause_reason, armed_at, next_at, retry_at, failing_since,
       last_at, last_fired_at, last_jobs, coalesce(last_error, '') AS last_error, failures, fired, skipped,
       created_at, updated_at, belfry.version('schedule', name) AS version, coalesce(@now::timestamptz, statement_timestamp()) AS now
  FROM belfry.schedules
 WHERE name = @name AND paused_at IS NULL AND (SELECT i.halted_at FROM belfry.installation i WHERE i.one) IS NULL
   AND coalesce(retry_at, next_at, '-infinity'::timestamptz) <= coalesce(@now::timestamptz, statement_timestamp())
   FOR UPDATE SKIP LOCKED;

-- name: ScheduleLockNow :one
-- Locks one schedule, paused or not, and waits for the lock. Returns no row if it does not exist.
SELECT name, source, coalesce(cron, '') AS cron, coalesce(extract(epoch FROM every)::bigint || 's', '') AS every, time_zone,
       template, coalesce(query, '') AS query, extract(epoch FROM query_timeout)::bigint || 's' AS query_timeout,
       coalesce(query_role, '') AS query_role, coalesce(query_by::text, '') AS query_by, missed, extract(epoch FROM missed_after)::bigint || 's' AS missed_after,
       paused_at, coalesce(paused_by, '') AS paused_by, pause_reason, armed_at, next_at, retry_at, failing_since,
       last_at, last_fired_at, last_jobs, coalesce(last_error, '') AS last_error, failures, fired, skipped,
       created_at, updated_at, belfry.version('schedule', name) AS version, clock_timestamp() AS now
  FROM belfry.schedules
 WHERE name = @name
   FOR UPDATE;

-- name: ScheduleArm :exec
-- Stores the next occurrence.
UPDATE belfry.schedules SET next_at = @next_at WHERE name = @name;

-- name: ScheduleSkip :exec
-- Drops @count occurrences, all before @next_at.
UPDATE belfry.schedules
   SET skipped = skipped + @count::bigint, next_at = @next_at, retry_at = NULL, failing_since = NULL
 WHERE name = @name;

-- name: ScheduleFired :exec
-- Records a firing and stores the next occurrence. @last_at is the fired occurrence.
UPDATE belfry.schedules
   SET fired = fired + 1, last_at = @last_at, last_fired_at = @now, last_jobs = @jobs::bigint[], last_error = NULL, failures = 0,
       retry_at = NULL, failing_since = NULL, next_at = @next_at
 WHERE name = @name;

-- name: ScheduleRan :exec
-- Records a firing that an operator requested. The next occurrence does not change.
UPDATE belfry.schedules SET fired = fired + 1, last_fired_at = @now, last_jobs = @jobs::bigint[] WHERE name = @name;

-- name: ScheduleFailed :exec
-- Records a failure and the time of the retry.
UPDATE belfry.schedules
   SET failures = failures + 1, last_error = left(@error::text, 2000), retry_at = @retry_at, failing_since = coalesce(failing_since, @now)
 WHERE name = @name;

-- name: TxNow :one
-- Reads the transaction's time.
SELECT now();

-- name: QueryWho :one
-- Returns the user and the database, quoted, for error messages.
SELECT quote_ident(current_user), quote_ident(current_database());

-- name: QueryTrusted :one
-- Returns whether the role @by, which stored the query, can become the current role, with whose rights the query would
-- run; and both roles, quoted.
SELECT coalesce((SELECT pg_has_role(r.oid, current_user, CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END)
                   FROM pg_roles r WHERE r.rolname = @by::text), false), quote_ident(@by::text), quote_ident(current_user);

-- name: QueryRole :exec
-- Within a savepoint, becomes the role whose rights and policies apply to the operator's query.
SELECT set_config('role', @role, true), set_config('row_security', 'on', true);

-- name: QueryGuard :exec
-- Creates the function that runs the operator's query, owned by the current role, until the savepoint ends.
-- PostgreSQL rejects every change of role inside a SECURITY DEFINER function, so the query cannot return to the node's
-- role. The loop uses a cursor, and a cursor permits only one statement.
CREATE FUNCTION pg_temp.belfry_schedule_rows(query text) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE query LOOP
        RETURN NEXT line;
    END LOOP;
END $$;

-- name: QueryBegin :exec
-- Within a savepoint, prepares for the operator's query: read only, with a statement timeout, with the search_path of
-- the role, the database or the URL, and with the occurrence as a setting that the query can read.
SELECT set_config('transaction_read_only', 'on', true), set_config('statement_timeout', @timeout_ms::text, true),
       set_config('search_path', (SELECT s.reset_val FROM pg_settings s WHERE s.name = 'search_path'), true),
       set_config('belfry.occurrence', @occurrence::text, true);

-- name: ValuesBegin :exec
-- Within a savepoint, bounds the COPY of values.
SELECT set_config('statement_timeout', @timeout_ms::text, true);

-- name: QueryGuarded :many
-- Runs the operator's query, inserted into QueryRows, through QueryGuard.
SELECT * FROM pg_temp.belfry_schedule_rows(@query);

-- name: QueryPlan :many
-- Plans QueryRows, which checks all permissions without reading rows.
EXPLAIN
SELECT left(row_to_json(q.*)::text, 65537)
  FROM (
/* query */
       ) q
 LIMIT 101;

-- name: QueryValues :many
-- Runs the operator's query of values, as QueryRows runs a query of jobs.
SELECT left(row_to_json(q.*)::text, 65537)
  FROM (
/* query */
       ) q
 LIMIT 1000001;

-- name: QueryRows :many
-- Runs the operator's query, inserted at the mark. Returns one JSON object per row, up to one row more than is allowed,
-- each truncated to one character more than is allowed.
SELECT left(row_to_json(q.*)::text, 65537)
  FROM (
/* query */
       ) q
 LIMIT 101;
