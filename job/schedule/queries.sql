-- Statements of schedules. Every one begins from the name, the primary key, but for
-- the list and the look for what is due.

-- name: ActorSet :exec
-- Says who acts and why for the events of this transaction. Empty @actor: the
-- session's user.
SELECT belfry.act(@actor, @reason);

-- name: ScheduleList :many
-- Lists schedules by name, all of them: there are as many as people have written.
SELECT name, source, coalesce(cron, '') AS cron, coalesce(extract(epoch FROM every)::bigint || 's', '') AS every, time_zone,
       template, coalesce(query, '') AS query, extract(epoch FROM query_timeout)::bigint || 's' AS query_timeout,
       coalesce(query_role, '') AS query_role, coalesce(query_by::text, '') AS query_by, missed, extract(epoch FROM missed_after)::bigint || 's' AS missed_after,
       paused_at, coalesce(paused_by, '') AS paused_by, pause_reason, armed_at, next_at, retry_at, failing_since,
       last_at, last_fired_at, last_jobs, coalesce(last_error, '') AS last_error, failures, fired, skipped,
       created_at, updated_at, belfry.version('schedule', name) AS version
  FROM belfry.schedules
 ORDER BY name;

-- name: ScheduleGet :one
-- Reads one schedule. No row: there is none.
SELECT name, source, coalesce(cron, '') AS cron, coalesce(extract(epoch FROM every)::bigint || 's', '') AS every, time_zone,
       template, coalesce(query, '') AS query, extract(epoch FROM query_timeout)::bigint || 's' AS query_timeout,
       coalesce(query_role, '') AS query_role, coalesce(query_by::text, '') AS query_by, missed, extract(epoch FROM missed_after)::bigint || 's' AS missed_after,
       paused_at, coalesce(paused_by, '') AS paused_by, pause_reason, armed_at, next_at, retry_at, failing_since,
       last_at, last_fired_at, last_jobs, coalesce(last_error, '') AS last_error, failures, fired, skipped,
       created_at, updated_at, belfry.version('schedule', name) AS version
  FROM belfry.schedules
 WHERE name = @name;

-- name: SchedulePut :one
-- Inserts or changes one definition. Empty texts are NULL. Returns whether it was
-- created. No row: it was there with the same definition, or comes from another source.
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
-- Deletes one schedule; its jobs and events stay. No row: there is none.
DELETE FROM belfry.schedules WHERE name = @name;

-- name: SchedulePause :exec
-- Pauses one schedule. One that is paused stays as it is.
SELECT FROM belfry.pause_schedule(@name, nullif(@actor::text, ''), @reason);

-- name: ScheduleResume :exec
-- Resumes one schedule. One that is not paused stays as it is.
SELECT FROM belfry.resume_schedule(@name, nullif(@actor::text, ''), @reason);

-- name: SchedulesDue :many
-- What is due at @now (NULL: the statement's time) and not among @busy, those without a
-- query first, then those that are not failing, then the longest due (schedules_due_idx).
-- Nothing is while belfry is halted.
SELECT name, query IS NOT NULL AS asks, failures > 0 AS failing, extract(epoch FROM query_timeout)::bigint AS query_timeout
  FROM belfry.schedules
 WHERE paused_at IS NULL AND name <> ALL (@busy::text[]) AND (SELECT i.halted_at FROM belfry.installation i WHERE i.one) IS NULL
   AND coalesce(retry_at, next_at, '-infinity'::timestamptz) <= coalesce(@now::timestamptz, statement_timestamp())
 ORDER BY query IS NOT NULL, failures > 0, coalesce(retry_at, next_at, '-infinity'::timestamptz)
 LIMIT 1000;

-- name: SchedulesNext :one
-- In how many seconds from @now (NULL: the statement's time) the next schedule that is not
-- among @busy is due, 0 or less: one is (schedules_due_idx). No row: none ever, or belfry
-- is halted.
SELECT extract(epoch FROM greatest(coalesce(retry_at, next_at, '-infinity'::timestamptz), t.now) - t.now)::double precision
  FROM belfry.schedules
 CROSS JOIN (SELECT coalesce(@now::timestamptz, statement_timestamp()) AS now) t
 WHERE paused_at IS NULL AND name <> ALL (@busy::text[]) AND (SELECT i.halted_at FROM belfry.installation i WHERE i.one) IS NULL
 ORDER BY coalesce(retry_at, next_at, '-infinity'::timestamptz)
 LIMIT 1;

-- name: ScheduleLock :one
-- Locks one schedule if it is still due. No row: another node has it or had it, or belfry is
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
-- Waits for the row of one schedule, paused or not. No row: there is none.
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
-- Notes the next occurrence.
UPDATE belfry.schedules SET next_at = @next_at WHERE name = @name;

-- name: ScheduleSkip :exec
-- Drops occurrences: @count of them, up to but not including @next_at.
UPDATE belfry.schedules
   SET skipped = skipped + @count::bigint, next_at = @next_at, retry_at = NULL, failing_since = NULL
 WHERE name = @name;

-- name: ScheduleFired :exec
-- Records a firing and moves on. @last_at: the occurrence.
UPDATE belfry.schedules
   SET fired = fired + 1, last_at = @last_at, last_fired_at = @now, last_jobs = @jobs::bigint[], last_error = NULL, failures = 0,
       retry_at = NULL, failing_since = NULL, next_at = @next_at
 WHERE name = @name;

-- name: ScheduleRan :exec
-- Records a firing that an operator requested. The next occurrence stays as it is.
UPDATE belfry.schedules SET fired = fired + 1, last_fired_at = @now, last_jobs = @jobs::bigint[] WHERE name = @name;

-- name: ScheduleFailed :exec
-- Records a failure, to be tried again at @retry_at.
UPDATE belfry.schedules
   SET failures = failures + 1, last_error = left(@error::text, 2000), retry_at = @retry_at, failing_since = coalesce(failing_since, @now)
 WHERE name = @name;

-- name: TxNow :one
-- Reads the transaction's time.
SELECT now();

-- name: QueryWho :one
-- Who asks, and where: quoted, for what a failure says.
SELECT quote_ident(current_user), quote_ident(current_database());

-- name: QueryTrusted :one
-- Whether the role @by, which stored the query, could become this one, whose rights the query
-- would have; and both, quoted.
SELECT coalesce((SELECT pg_has_role(r.oid, current_user, CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END)
                   FROM pg_roles r WHERE r.rolname = @by::text), false), quote_ident(@by::text), quote_ident(current_user);

-- name: QueryRole :exec
-- Within a savepoint, becomes the role that the operator's query runs as, and whose policies it keeps to.
SELECT set_config('role', @role, true), set_config('row_security', 'on', true);

-- name: QueryGuard :exec
-- Makes the function that reads the operator's query, owned by the role that was just
-- become, for as long as the savepoint lasts. PostgreSQL refuses to change the role while
-- a function with its owner's rights runs, whatever that calls: the way back to the
-- node's role is closed to the query. A loop opens a cursor, and a cursor takes one
-- statement only.
CREATE FUNCTION pg_temp.belfry_schedule_rows(query text) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE query LOOP
        RETURN NEXT line;
    END LOOP;
END $$;

-- name: QueryUnlock :exec
-- Releases the advisory locks that a schedule's query took for the session.
SELECT pg_advisory_unlock_all();

-- name: QueryBegin :exec
-- Within a savepoint, prepares for the operator's query: nothing is written, no
-- statement outlasts the deadline, and the query can ask for its occurrence.
SELECT set_config('transaction_read_only', 'on', true), set_config('statement_timeout', @timeout_ms::text, true),
       set_config('belfry.occurrence', @occurrence::text, true);

-- name: QueryGuarded :many
-- Runs the operator's query, put into QueryRows, behind QueryGuard.
SELECT * FROM pg_temp.belfry_schedule_rows(@query);

-- name: QueryPlan :many
-- Plans QueryRows: asks for every right that it takes, and reads nothing.
EXPLAIN
SELECT left(row_to_json(q)::text, 65537)
  FROM (
/* query */
       ) q
 LIMIT 101;

-- name: QueryRows :many
-- Runs the operator's query, put in place of the mark: a JSON object a row, one row
-- more than is allowed, and of each as many characters as show that it is too long.
SELECT left(row_to_json(q)::text, 65537)
  FROM (
/* query */
       ) q
 LIMIT 101;
