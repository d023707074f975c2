-- Statements of package job. Every statement that a run issues against its own
-- job repeats the guard (id, fence, RUNNING): zero rows means the run is over.

-- name: JobEnqueue :one
-- Inserts one job in the caller's transaction. NULL parameters take the column's
-- default. Returns the id; with an idempotency key this type has seen, the first
-- job's. Bad input raises 23514 with the column in the error.
SELECT belfry.enqueue(
    type => @type, category => @category, title => @title, body => @body,
    audience => @audience, data => coalesce(@data::jsonb, '{}'),
    schedule_at => coalesce(@schedule_at::timestamptz, now()), deliver_at => @deliver_at,
    lane => coalesce(@lane::text, 'default'), priority => @priority::integer,
    idempotency_key => @idempotency_key, group_id => @group_id, requested_by => @requested_by);

-- name: JobEnqueueGroup :many
-- Inserts one job per type under one group id; otherwise as JobEnqueue.
SELECT id FROM belfry.enqueue_group(
    types => @types, category => @category, title => @title, body => @body,
    audience => @audience, data => coalesce(@data::jsonb, '{}'),
    schedule_at => coalesce(@schedule_at::timestamptz, now()), deliver_at => @deliver_at,
    lane => coalesce(@lane::text, 'default'), priority => @priority::integer,
    idempotency_key => @idempotency_key, requested_by => @requested_by);

-- name: JobGet :one
-- Reads one job by id (jobs_pkey). No row: there is none.
SELECT id, group_id, type, category, title, body, data, audience, lane, priority, schedule_at, deliver_at,
       idempotency_key, requested_by, status, coalesce("cursor", '') AS "cursor", bound, fence,
       coalesce(runner, '') AS runner, heartbeat_at, attempts, coalesce(last_error, '') AS last_error,
       chunks, channels_read, channels_total, rows_written, created_at, started_at, finished_at
  FROM belfry.jobs
 WHERE id = @id;

-- name: JobList :many
-- Lists jobs, newest first, below @before_id (keyset over jobs_pkey). NULL
-- filters match everything.
SELECT id, group_id, type, category, title, body, data, audience, lane, priority, schedule_at, deliver_at,
       idempotency_key, requested_by, status, coalesce("cursor", '') AS "cursor", bound, fence,
       coalesce(runner, '') AS runner, heartbeat_at, attempts, coalesce(last_error, '') AS last_error,
       chunks, channels_read, channels_total, rows_written, created_at, started_at, finished_at
  FROM belfry.jobs
 WHERE id < @before_id
   AND (@statuses::text[] IS NULL OR status = ANY (@statuses))
   AND (@type::text IS NULL OR type = @type)
   AND (@category::text IS NULL OR category = @category)
   AND (@lane::text IS NULL OR lane = @lane)
   AND (@group_id::uuid IS NULL OR group_id = @group_id)
 ORDER BY id DESC
 LIMIT @limit;

-- name: JobEvents :many
-- A job's timeline after an event id, oldest first (job_events_job_idx).
SELECT id, job_id, at, kind, actor, reason, detail
  FROM belfry.job_events
 WHERE job_id = @job_id AND id > @after_id
 ORDER BY id
 LIMIT @limit;

-- name: JobLock :one
-- Locks one job for an operator's act and returns its status before the act.
-- No row: there is no such job.
SELECT status FROM belfry.jobs WHERE id = @id FOR UPDATE;

-- name: JobGroupIDs :many
-- The jobs of a group in id order (jobs_group_idx).
SELECT id FROM belfry.jobs WHERE group_id = @group_id ORDER BY id;

-- name: JobAbort :exec
-- The operator's abort: PENDING or RUNNING becomes ABORTED in this statement.
SELECT FROM belfry.abort(@id, @actor, @reason);

-- name: JobResume :exec
-- The operator's resume: ABORTED becomes PENDING, the cursor stays.
SELECT FROM belfry.resume(@id, @actor, @reason);

-- name: JobRetry :exec
-- The operator's retry: FAILED becomes PENDING, the cursor stays.
SELECT FROM belfry.retry(@id, @actor, @reason);

-- name: TypeRegister :exec
-- Adds a runner's job type to the vocabulary unless it is there.
INSERT INTO belfry.job_types (name, description)
SELECT @name, @description
 WHERE NOT EXISTS (SELECT FROM belfry.job_types WHERE name = @name)
    ON CONFLICT DO NOTHING;

-- name: JobClaim :one
-- Takes the most urgent due job of a free lane: PENDING to RUNNING, fence + 1
-- (jobs_due_idx or jobs_schedule_idx; I4 by jobs_one_running_per_lane). The fence
-- that is returned is the run's for life. No row: nothing is due for these types and
-- lanes. A unique violation on the lane's index: another runner was first.
UPDATE belfry.jobs
   SET status = 'RUNNING', fence = fence + 1, runner = @runner, heartbeat_at = clock_timestamp(),
       attempts = attempts + 1, started_at = coalesce(started_at, clock_timestamp())
 WHERE id = (SELECT j.id
               FROM belfry.jobs j
              WHERE j.status = 'PENDING' AND j.schedule_at <= statement_timestamp()
                AND j.type = ANY (@types)
                AND (@lanes::text[] IS NULL OR j.lane = ANY (@lanes))
                AND NOT EXISTS (SELECT FROM belfry.jobs r WHERE r.lane = j.lane AND r.status = 'RUNNING')
              ORDER BY j.priority DESC, j.schedule_at, j.id
              LIMIT 1
                FOR UPDATE SKIP LOCKED)
   AND status = 'PENDING'
RETURNING id, fence;

-- name: JobResumeStale :one
-- Takes over a RUNNING job whose heartbeat is older than @stale_after, or that
-- names this very runner, which does not run it any more (it lost its connection):
-- fence + 1, so the old run commits nothing (I5). A row that is locked is in the
-- middle of its COMMIT and is left alone. No row: nothing is stale.
UPDATE belfry.jobs
   SET fence = fence + 1, runner = @runner, heartbeat_at = clock_timestamp(), attempts = attempts + 1
 WHERE id = (SELECT j.id
               FROM belfry.jobs j
              WHERE j.status = 'RUNNING'
                AND (j.heartbeat_at < clock_timestamp() - @stale_after::interval OR j.runner = @runner)
                AND j.type = ANY (@types)
                AND (@lanes::text[] IS NULL OR j.lane = ANY (@lanes))
              ORDER BY j.priority DESC, j.schedule_at, j.id
              LIMIT 1
                FOR UPDATE SKIP LOCKED)
   AND status = 'RUNNING'
RETURNING id, fence;

-- name: RunEvict :many
-- Ends the server connections that this run and earlier ones of its job left
-- behind: a runner that was stopped in the middle of a COPY keeps its uncommitted
-- keys locked, and the next run would wait for them. Its transactions bear the job
-- and the fence in application_name (see RunBegin). A run asks only between its own
-- transactions, so whatever bears its fence or a lower one is left over; a higher
-- one is the run that took the job over from this one. Fencing, not this, keeps
-- left-overs from committing.
SELECT pg_terminate_backend(pid)
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
   AND CASE WHEN application_name ~ '^belfry job [0-9]{1,18} fence [0-9]{1,18}$'
            THEN split_part(application_name, ' ', 3)::bigint = @id AND split_part(application_name, ' ', 5)::bigint <= @fence
       END;

-- name: JobsHeld :many
-- RUNNING jobs in these lanes, whoever runs them.
SELECT id FROM belfry.jobs
 WHERE status = 'RUNNING' AND (@lanes::text[] IS NULL OR lane = ANY (@lanes))
 ORDER BY id
 LIMIT 100;

-- name: RunBegin :one
-- Deadlines and name for one transaction of a run: each setting ends with the
-- transaction, so it is safe behind a transaction-mode pooler. Returns whether the
-- run is still the job's run, and its cursor. No row: the job was deleted.
SELECT set_config('application_name', @application, true) IS NOT NULL
   AND set_config('statement_timeout', @timeout_ms::text, true) IS NOT NULL
   AND set_config('idle_in_transaction_session_timeout', @timeout_ms::text, true) IS NOT NULL
   AND set_config('synchronous_commit', CASE WHEN @async_commit::boolean THEN 'off'
           WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
           ELSE current_setting('synchronous_commit') END, true) IS NOT NULL AS set,
       status, fence, coalesce("cursor", '') AS "cursor"
  FROM belfry.jobs
 WHERE id = @id;

-- name: ActBegin :exec
-- Deadlines for one short transaction: a row that another session keeps locked
-- ends it with 55P03 rather than with a lost connection, a client that is stopped in
-- the middle of it keeps nothing locked for long, and what it commits is durable
-- whatever the role's defaults.
SELECT set_config('lock_timeout', @lock_timeout_ms::text, true),
       set_config('statement_timeout', @timeout_ms::text, true),
       set_config('idle_in_transaction_session_timeout', @timeout_ms::text, true),
       set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
           ELSE current_setting('synchronous_commit') END, true);

-- name: RunFreeze :exec
-- Freezes the bound at the first claim (I1) and records the estimate of keys to
-- examine. Zero rows: the run is over.
UPDATE belfry.jobs
   SET bound = @bound, channels_total = @total, heartbeat_at = clock_timestamp()
 WHERE id = @id AND fence = @fence AND status = 'RUNNING' AND bound IS NULL;

-- name: ChunkCommit :exec
-- Moves the cursor as the last statement of a chunk's transaction, iff the job is
-- RUNNING under this fence and nobody moved the cursor since (I3, I5, I6: an abort
-- makes it ABORTED). Zero rows: roll back.
UPDATE belfry.jobs
   SET "cursor" = @cursor, chunks = chunks + 1, channels_read = channels_read + @read,
       rows_written = rows_written + @rows, heartbeat_at = clock_timestamp(), last_error = NULL
 WHERE id = @id AND fence = @fence AND status = 'RUNNING' AND coalesce("cursor", '') = @before;

-- name: RunBeat :one
-- Renews the heartbeat between retries, records the error that is being retried,
-- and returns the progress as it is. No row: the run is over.
UPDATE belfry.jobs
   SET heartbeat_at = clock_timestamp(), last_error = @error
 WHERE id = @id AND fence = @fence AND status = 'RUNNING'
RETURNING coalesce("cursor", '') AS "cursor", chunks, channels_read, rows_written;

-- name: RunFinish :exec
-- PROCESSED: no key is left. Zero rows: the run is over.
UPDATE belfry.jobs
   SET status = 'PROCESSED', last_error = NULL
 WHERE id = @id AND fence = @fence AND status = 'RUNNING' AND coalesce("cursor", '') = @before;

-- name: RunFail :exec
-- FAILED with the error. Zero rows: the run is over.
UPDATE belfry.jobs
   SET status = 'FAILED', last_error = @error
 WHERE id = @id AND fence = @fence AND status = 'RUNNING';

-- name: RunHandBack :exec
-- Interrupted: back to PENDING with its cursor; not an attempt. Zero rows: the
-- run is over.
UPDATE belfry.jobs
   SET status = 'PENDING', attempts = greatest(attempts - 1, 0)
 WHERE id = @id AND fence = @fence AND status = 'RUNNING';

-- name: TableBound :one
-- The highest key of a relation of the user's (its key index, backwards). The
-- marks are rendered by cursor and pgx. No row: the relation is empty.
SELECT {{columns}} FROM {{relation}} ORDER BY {{order}} LIMIT 1;

-- name: TablePage :many
-- One page of a relation of the user's in key order (its key index).
SELECT {{columns}} FROM {{relation}} WHERE {{window}} ORDER BY {{order}} LIMIT @limit;

-- name: BellListen :exec
-- Subscribes the daemon's own connection to the hint that a job is due.
LISTEN belfry_jobs;
