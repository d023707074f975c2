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
    idempotency_key => @idempotency_key, group_id => @group_id, requested_by => @requested_by, expires_at => @expires_at,
    route => @route, variants => coalesce(@variants::jsonb, '{}'), max_recipients => @max_recipients, needs_approval => @needs_approval,
    max_rows_per_second => @max_rows_per_second);

-- name: JobEnqueueGroup :many
-- Inserts one job per type under one group id; otherwise as JobEnqueue.
SELECT id FROM belfry.enqueue_group(
    types => @types, category => @category, title => @title, body => @body,
    audience => @audience, data => coalesce(@data::jsonb, '{}'),
    schedule_at => coalesce(@schedule_at::timestamptz, now()), deliver_at => @deliver_at,
    lane => coalesce(@lane::text, 'default'), priority => @priority::integer,
    idempotency_key => @idempotency_key, requested_by => @requested_by, expires_at => @expires_at,
    route => @route, variants => coalesce(@variants::jsonb, '{}'), max_recipients => @max_recipients, needs_approval => @needs_approval,
    max_rows_per_second => @max_rows_per_second);

-- name: JobGet :one
-- Reads one job by id (jobs_pkey), with its version or, with @versioned false, 0 instead: a
-- run has no use for it, and the function that knows it takes longer than all the rest. No
-- row: there is none.
SELECT id, group_id, type, category, title, body, data, variants, route, audience, lane, priority, schedule_at, deliver_at,
       expires_at, idempotency_key, requested_by, needs_approval, max_recipients, max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows,
       health_checks, max_skips, status, coalesce("cursor", '') AS "cursor", bound, fence,
       coalesce(runner, '') AS runner, heartbeat_at, backend_pid, backend_start, attempts, takeovers,
       coalesce(last_error, '') AS last_error, chunks, channels_read, channels_total, channels_matched, rows_written,
       declined, skipped, coalesce(throttle, '') AS throttle, coalesce(throttle_detail, '') AS throttle_detail,
       throttled_ms, recalled, erased, recalled_at, created_at, started_at, coalesce(arrival, 0) AS arrival, finished_at, walked_at, revision,
       CASE WHEN awaits_approval THEN coalesce(unapproved_at, created_at) END AS awaits_approval_since,
       approved_at, coalesce(approved_by, '') AS approved_by, approved_count, approved_recipients,
       CASE WHEN @versioned::boolean THEN belfry.job_version(id) ELSE 0 END AS version
  FROM belfry.jobs
 WHERE id = @id;

-- name: JobGetAll :many
-- Reads the jobs among @ids that there are, newest first (jobs_pkey). With @summary it leaves out body, data and
-- variants, and the entries of a list of channels after the tenth: of many jobs they would be many megabytes.
SELECT id, group_id, type, category, title, CASE WHEN @summary::boolean THEN '' ELSE body END AS body, CASE WHEN @summary THEN '{}' ELSE data END AS data,
       CASE WHEN @summary THEN '{}' ELSE variants END AS variants, route,
       CASE WHEN @summary AND audience ? 'ids' THEN audience || jsonb_build_object('ids', jsonb_path_query_array(audience, '$.ids[0 to 9]'))
            WHEN @summary AND audience ? 'external_ids' THEN audience || jsonb_build_object('external_ids', jsonb_path_query_array(audience, '$.external_ids[0 to 9]'))
            ELSE audience END AS audience,
       lane, priority, schedule_at, deliver_at,
       expires_at, idempotency_key, requested_by, needs_approval, max_recipients, max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows,
       health_checks, max_skips, status, coalesce("cursor", '') AS "cursor", bound, fence,
       coalesce(runner, '') AS runner, heartbeat_at, backend_pid, backend_start, attempts, takeovers,
       coalesce(last_error, '') AS last_error, chunks, channels_read, channels_total, channels_matched, rows_written,
       declined, skipped, coalesce(throttle, '') AS throttle, coalesce(throttle_detail, '') AS throttle_detail,
       throttled_ms, recalled, erased, recalled_at, created_at, started_at, coalesce(arrival, 0) AS arrival, finished_at, walked_at, revision,
       CASE WHEN awaits_approval THEN coalesce(unapproved_at, created_at) END AS awaits_approval_since,
       approved_at, coalesce(approved_by, '') AS approved_by, approved_count, approved_recipients,
       belfry.job_version(id) AS version
  FROM belfry.jobs
 WHERE id = ANY (@ids::bigint[])
 ORDER BY id DESC;

-- name: JobSpan :one
-- The range of the ids of jobs that were requested from @since and before @until (jobs_created_idx). NULL
-- means no bound. Jobs that were inserted an hour or more after the start of their transaction can be
-- outside the range.
SELECT CASE WHEN @since::timestamptz IS NULL THEN 1 ELSE coalesce((
           SELECT j.id FROM belfry.jobs j WHERE j.created_at >= @since::timestamptz - interval '1 hour' ORDER BY j.created_at, j.id LIMIT 1), 9223372036854775807) END AS lowest,
       coalesce((SELECT j.id FROM belfry.jobs j WHERE j.created_at >= @until::timestamptz + interval '1 hour' ORDER BY j.created_at LIMIT 1), 9223372036854775807) AS beyond;

-- name: JobsLooked :many
-- Examines the newest @looks jobs, below @before_id, that are in one of @statuses and pass the filter named
-- @by: lane, category, type, group, or status, which all pass. Returns which of them also pass the other
-- filters. NULL filters match everything. Each status is read by itself, from the index that has the order
-- of @by (jobs_lane_idx, jobs_kind_idx, jobs_type_idx, jobs_status_idx; a group is small, and read from
-- jobs_group_idx). Of a time are those from id @lowest on that JobSpan knows.
SELECT j.id, j.passes
  FROM (SELECT DISTINCT unnest(@statuses::text[])) s(status)
 CROSS JOIN LATERAL (
SELECT id, (@lane::text IS NULL OR lane = @lane) AND (@category::text IS NULL OR category = @category) AND (@type::text IS NULL OR type = @type)
           AND (@group_id::uuid IS NULL OR group_id = @group_id)
           AND (@since::timestamptz IS NULL OR created_at >= @since) AND (@until::timestamptz IS NULL OR created_at < @until)
           AND (@text::text IS NULL OR strpos(lower(title), lower(@text)) > 0) AS passes
  FROM belfry.jobs
 WHERE status = s.status
   AND (@by::text <> 'lane' OR lane = @lane) AND (@by <> 'category' OR category = @category) AND (@by <> 'type' OR type = @type)
   AND (@by <> 'group' OR group_id = @group_id)
   AND CASE @by WHEN 'lane' THEN 0 - id WHEN 'group' THEN 0 - id WHEN 'category' THEN -1 * id WHEN 'type' THEN id * -1 ELSE -id END > -@before_id::bigint
   AND CASE @by WHEN 'lane' THEN 0 - id WHEN 'group' THEN 0 - id WHEN 'category' THEN -1 * id WHEN 'type' THEN id * -1 ELSE -id END <= -@lowest::bigint
 ORDER BY CASE @by WHEN 'lane' THEN 0 - id WHEN 'group' THEN 0 - id WHEN 'category' THEN -1 * id WHEN 'type' THEN id * -1 ELSE -id END
 LIMIT @looks
) j
 ORDER BY j.id DESC
 LIMIT @looks;

-- name: JobsAwaiting :many
-- Lists jobs that wait for approval, newest first, below @before_id (jobs_approval_idx). NULL
-- filters match everything.
SELECT id, group_id, type, category, title, body, data, variants, route, audience, lane, priority, schedule_at, deliver_at,
       expires_at, idempotency_key, requested_by, needs_approval, max_recipients, max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows,
       health_checks, max_skips, status, coalesce("cursor", '') AS "cursor", bound, fence,
       coalesce(runner, '') AS runner, heartbeat_at, backend_pid, backend_start, attempts, takeovers,
       coalesce(last_error, '') AS last_error, chunks, channels_read, channels_total, channels_matched, rows_written,
       declined, skipped, coalesce(throttle, '') AS throttle, coalesce(throttle_detail, '') AS throttle_detail,
       throttled_ms, recalled, erased, recalled_at, created_at, started_at, coalesce(arrival, 0) AS arrival, finished_at, walked_at, revision,
       CASE WHEN awaits_approval THEN coalesce(unapproved_at, created_at) END AS awaits_approval_since,
       approved_at, coalesce(approved_by, '') AS approved_by, approved_count, approved_recipients,
       belfry.job_version(id) AS version
  FROM belfry.jobs
 WHERE awaits_approval AND id < @before_id::bigint AND id >= @lowest::bigint AND status = ANY (@statuses::text[])
   AND (@since::timestamptz IS NULL OR created_at >= @since)
   AND (@until::timestamptz IS NULL OR created_at < @until)
   AND (@type::text IS NULL OR type = @type)
   AND (@category::text IS NULL OR category = @category)
   AND (@lane::text IS NULL OR lane = @lane)
   AND (@group_id::uuid IS NULL OR group_id = @group_id)
   AND (@text::text IS NULL OR strpos(lower(title), lower(@text)) > 0)
 ORDER BY id DESC
 LIMIT @limit;

-- name: JobHasCeiling :one
-- Whether a job of a category that asks for no ceiling gets one of at most @most, as the trigger
-- jobs_limit has it; @limited: of one that is enqueued for others, who are bound by belfry.limits.
SELECT coalesce(least(belfry.most_recipients(@category),
                      CASE WHEN @limited OR NOT has_column_privilege('belfry.jobs', 'max_recipients', 'UPDATE')
                           THEN (SELECT l.max_recipients FROM belfry.limits l) END) <= @most::integer, false);

-- name: JobEvents :many
-- A job's timeline after an event id, oldest first (job_events_job_idx).
SELECT id, job_id, at, kind, actor, reason, detail
  FROM belfry.job_events
 WHERE job_id = @job_id AND id > @after_id
 ORDER BY id
 LIMIT @limit;

-- name: JobEventLast :many
-- A job's newest event of one kind (job_events_job_idx, from its end). No row: it has none.
SELECT id, job_id, at, kind, actor, reason, detail
  FROM belfry.job_events
 WHERE job_id = @job_id AND kind = @kind
 ORDER BY id DESC
 LIMIT 1;

-- name: JobsLock :many
-- Locks jobs for an operator's act, in the order of their ids (jobs_pkey), and returns their statuses before it.
-- A missing row: there is no such job.
SELECT id, status, created_at FROM belfry.jobs WHERE id = ANY (@ids::bigint[]) ORDER BY id FOR UPDATE;

-- name: JobsLockFree :many
-- JobsLock without the jobs that another session has locked.
SELECT id, status, created_at FROM belfry.jobs WHERE id = ANY (@ids::bigint[]) ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: JobsNotResumable :many
-- Those of the jobs @ids that cannot go on whatever act lets them, as the trigger
-- jobs_transition has it, and why: they are "expired" and their time is over, or "retention"
-- deletes their rows (jobs_pkey).
SELECT j.id, CASE WHEN j.retention_at IS NULL THEN 'expired' ELSE 'retention' END
  FROM belfry.jobs j
 WHERE j.id = ANY (@ids::bigint[])
   AND (j.status = 'EXPIRED' AND j.expires_at <= clock_timestamp()
        OR j.retention_at IS NOT NULL
           AND (j.pruned_at IS NOT NULL OR j.status <> 'ABORTED' OR j.walked_at IS NULL OR j.retention_at >= j.finished_at));

-- name: JobGroup :many
-- The jobs of a group with their statuses, the most urgent to abort first: RUNNING ones, then those with messages
-- to deliver, then in the order of the claim (jobs_group_idx).
SELECT id, status
  FROM belfry.jobs
 WHERE group_id = @group_id
 ORDER BY status <> 'RUNNING', started_at IS NULL OR delivered_at IS NOT NULL, priority DESC, schedule_at, id;

-- name: JobAbort :many
-- An operator's abort: PENDING and RUNNING jobs, and jobs with messages left, become ABORTED in this
-- statement.
SELECT id, status FROM belfry.act_on('abort', @ids::bigint[], @actor, @reason);

-- name: JobResume :many
-- The operator's resume: ABORTED becomes PENDING, the cursor stays, or PROCESSED when the
-- walk was complete.
SELECT id, status FROM belfry.act_on('resume', @ids::bigint[], @actor, @reason);

-- name: JobRetry :many
-- The operator's retry: FAILED or EXPIRED becomes PENDING, the cursor stays.
SELECT id, status FROM belfry.act_on('retry', @ids::bigint[], @actor, @reason);

-- name: JobRetrySkipped :many
-- Has every skipped recipient tried again: PROCESSED or FAILED becomes PENDING.
-- Without any skipped recipient nothing changes.
SELECT id, status FROM belfry.act_on('retry_skipped', @ids::bigint[], @actor, @reason);

-- name: JobActsFor :exec
-- For this transaction: this login acts for the person @actor, so jobs_approve compares the
-- person and not the login, which many people share.
SELECT set_config('belfry.acts_for', coalesce(@actor::text, ''), true);

-- name: JobApprove :exec
-- Approves a job that waits for it, for @count recipients.
SELECT FROM belfry.approve(@id, @count, @actor, @reason);

-- name: JobSet :many
-- Changes settings or content of jobs. @changes is an object of columns.
SELECT s.id, s.status FROM unnest(@ids::bigint[]) u(id) CROSS JOIN LATERAL belfry.set(u.id, @changes, @actor, @reason) s;

-- name: JobResumeEdited :many
-- Corrects ABORTED or FAILED jobs and lets them go on.
SELECT id, status FROM belfry.act_on('resume_edited', @ids::bigint[], @actor, @reason, @changes);

-- name: JobSkips :many
-- Skipped recipients of a job after a key's text (job_skips_pkey).
SELECT job_id, key, sqlstate, error, attempts, retry, skipped_at, tried_at
  FROM belfry.job_skips
 WHERE job_id = @job_id AND key > @after
 ORDER BY key
 LIMIT @limit;

-- name: JobRevisions :many
-- The contents of a job before its corrections, oldest first (job_revisions_pkey).
SELECT job_id, revision, "cursor", title, body, data, variants, audience, edited_at, edited_by, reason
  FROM belfry.job_revisions
 WHERE job_id = @job_id
 ORDER BY revision;

-- name: LanesPaused :many
-- The names of lanes that are paused.
SELECT l.name FROM belfry.lanes l WHERE l.paused_at IS NOT NULL;

-- name: LaneList :many
-- Every lane that is paused, running or waiting, by name. Lanes with waiting jobs are found one after the
-- other, and their waiting jobs counted up to @most, in jobs_waiting_idx alone.
WITH RECURSIVE waiting(lane) AS (
    (SELECT j.lane FROM belfry.jobs j WHERE j.status = 'PENDING' AND NOT j.awaits_approval ORDER BY j.lane LIMIT 1)
     UNION ALL
    SELECT (SELECT j.lane FROM belfry.jobs j WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane > w.lane ORDER BY j.lane LIMIT 1)
      FROM waiting w
     WHERE w.lane IS NOT NULL
)
SELECT l.name, l.paused_at, coalesce(l.paused_by, '') AS paused_by, coalesce(l.pause_reason, '') AS pause_reason, r.id AS running,
       belfry.version('lane', l.name) AS version,
       (SELECT count(*) FROM (SELECT FROM belfry.jobs j WHERE j.lane = l.name AND j.status = 'PENDING' AND NOT j.awaits_approval
                                 AND j.schedule_at <= statement_timestamp() LIMIT @most) d) AS due,
       (SELECT count(*) FROM (SELECT FROM belfry.jobs j WHERE j.lane = l.name AND j.status = 'PENDING' AND NOT j.awaits_approval
                                 AND j.schedule_at > statement_timestamp() LIMIT @most) d) AS later
  FROM (SELECT name, paused_at, paused_by, pause_reason FROM belfry.lanes
         UNION ALL
        SELECT n.lane, NULL, NULL, NULL
          FROM (SELECT w.lane FROM waiting w WHERE w.lane IS NOT NULL
                 UNION
                SELECT j.lane FROM belfry.jobs j WHERE j.status = 'RUNNING') n
         WHERE NOT EXISTS (SELECT FROM belfry.lanes k WHERE k.name = n.lane)) l
  LEFT JOIN belfry.jobs r ON r.lane = l.name AND r.status = 'RUNNING'
 ORDER BY l.name;

-- name: LanePause :exec
-- Pauses a lane; nothing changes when it is paused already.
SELECT FROM belfry.pause_lane(@name, @actor, @reason);

-- name: LaneResume :exec
-- Opens a paused lane; nothing changes when it is open.
SELECT FROM belfry.resume_lane(@name, @actor, @reason);

-- name: EventList :many
-- The timeline of a lane, a schedule or the retention (events_subject_idx), newest first, below @before_id.
-- An empty name means all objects of the subject.
SELECT id, at, subject, name, kind, actor, reason, detail
  FROM belfry.events
 WHERE subject = @subject AND (@name::text = '' OR name = @name) AND id < @before_id
 ORDER BY id DESC
 LIMIT @limit;

-- name: ActsSince :many
-- The acts on an object after event @after, newest first: on a job with the id @name (job_events_acts_idx),
-- or on an object of belfry.events (events_acts_idx).
SELECT e.id, e.at, @subject::text AS subject, @name::text AS name, e.kind, e.actor, e.reason, e.detail
  FROM (SELECT j.id, j.at, j.kind, j.actor, j.reason, j.detail
          FROM belfry.job_events j
         WHERE j.job_id = CASE WHEN @subject::text = 'job' THEN @name::text::bigint END AND j.id > @after AND belfry.is_job_act(j.kind)
         UNION ALL
        SELECT k.id, k.at, k.kind, k.actor, k.reason, k.detail
          FROM belfry.events k
         WHERE k.subject = @subject::text AND k.name = @name::text AND k.id > @after AND belfry.is_act(k.kind, k.detail)) e
 ORDER BY e.id DESC
 LIMIT @limit;

-- name: JobActs :many
-- The acts on jobs below the event @before, newest first: at most @limit acts out of the last @looks events,
-- by @actor and of @kind ('' means any) and since @since (NULL means no bound). Returns at least one row with the last
-- examined event, or 0 if there are no earlier events; a row without an act has the act id 0
-- (job_events_pkey).
WITH looked AS MATERIALIZED (
    SELECT e.id, e.at, e.job_id, e.kind, e.actor, e.reason, e.detail
      FROM belfry.job_events e
     WHERE e.id < @before
     ORDER BY e.id DESC
     LIMIT @looks
), upto AS (
    SELECT CASE WHEN count(*) = @looks AND bool_or(l.at >= @since::timestamptz) IS NOT FALSE THEN min(l.id) ELSE 0 END AS id FROM looked l
)
SELECT u.id, coalesce(a.id, 0), coalesce(a.at, 'epoch'), 'job', coalesce(a.job_id::text, ''), coalesce(a.kind, ''), coalesce(a.actor, ''), coalesce(a.reason, ''), coalesce(a.detail, '{}')
  FROM upto u
  LEFT JOIN LATERAL (SELECT l.id, l.at, l.job_id, l.kind, l.actor, l.reason, l.detail
                       FROM looked l
                      WHERE (belfry.is_job_act(l.kind) OR l.kind = 'enqueued')
                        AND (@actor::text = '' OR l.actor = @actor) AND (@kind::text = '' OR l.kind = @kind)
                        AND (@since::timestamptz IS NULL OR l.at >= @since)
                      ORDER BY l.id DESC
                      LIMIT @limit) a ON true
 ORDER BY a.id DESC;

-- name: OtherActs :many
-- JobActs for @subject ('' means all objects other than jobs), without scheduled firings (events_pkey).
WITH looked AS MATERIALIZED (
    SELECT e.id, e.at, e.subject, e.name, e.kind, e.actor, e.reason, e.detail
      FROM belfry.events e
     WHERE e.id < @before
     ORDER BY e.id DESC
     LIMIT @looks
), upto AS (
    SELECT CASE WHEN count(*) = @looks AND bool_or(l.at >= @since::timestamptz) IS NOT FALSE THEN min(l.id) ELSE 0 END AS id FROM looked l
)
SELECT u.id, coalesce(a.id, 0), coalesce(a.at, 'epoch'), coalesce(a.subject, ''), coalesce(a.name, ''), coalesce(a.kind, ''), coalesce(a.actor, ''), coalesce(a.reason, ''), coalesce(a.detail, '{}')
  FROM upto u
  LEFT JOIN LATERAL (SELECT l.id, l.at, l.subject, l.name, l.kind, l.actor, l.reason, l.detail
                       FROM looked l
                      WHERE (@subject::text = '' OR l.subject = @subject)
                        AND (l.subject <> 'schedule' OR belfry.is_act(l.kind, l.detail))
                        AND (@actor::text = '' OR l.actor = @actor) AND (@kind::text = '' OR l.kind = @kind)
                        AND (@since::timestamptz IS NULL OR l.at >= @since)
                      ORDER BY l.id DESC
                      LIMIT @limit) a ON true
 ORDER BY a.id DESC;

-- name: TypesRegister :exec
-- Adds a runner's job types to the vocabulary unless they are there.
INSERT INTO belfry.job_types (name, description)
SELECT t.name, left(t.description, 1000)
  FROM unnest(@names::text[], @descriptions::text[]) AS t (name, description)
 WHERE NOT EXISTS (SELECT FROM belfry.job_types k WHERE k.name = t.name)
    ON CONFLICT DO NOTHING;

-- name: JobsSnapshot :one
-- What there is to do for a runner of these types and lanes; always one row. Whether its
-- types are registered, whether jobs are RUNNING in its lanes, which of them have lost
-- their server connection, whether another one is to be taken over, given up or handed
-- back for its heartbeat or its name (see JobResumeDead, JobGiveUp, JobRelease), whether
-- any job is too late to start (jobs_expiry_idx), whether one is due in a free, open lane
-- and belfry is not halted, since when, by whom and why it is, and in how many seconds the first PENDING one is due, in whatever lane, or too late;
-- NULL: none ever. It reads what JobClaim reads of jobs_waiting_idx, and all of
-- jobs_one_running_per_lane, however many jobs wait or have ended. Types and lanes stand
-- in a SELECT, the types below too, so that it is estimated alike with and without values:
-- the plan can be kept (see db.Options), and none is thought worth a compilation.
WITH RECURSIVE running AS MATERIALIZED (
    SELECT j.id, j.lane, j.type, j.runner, j.heartbeat_at, j.backend_pid, j.backend_start
      FROM belfry.jobs j
     WHERE j.status = 'RUNNING' AND ((SELECT @lanes::text[]) IS NULL OR j.lane = ANY ((SELECT @lanes::text[])::text[]))
), waiting (lane) AS (
    (SELECT j.lane FROM belfry.jobs j WHERE j.status = 'PENDING' AND NOT j.awaits_approval ORDER BY j.lane LIMIT 1)
     UNION ALL
    SELECT n.lane
      FROM waiting w
     CROSS JOIN LATERAL (SELECT j.lane FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane > w.lane
                          ORDER BY j.lane LIMIT 1) n
), heads (lane, type, priority, schedule_at) AS (
    SELECT w.lane, t.type, h.priority, h.schedule_at
      FROM waiting w
     CROSS JOIN unnest((SELECT @types::text[])) AS t (type)
     CROSS JOIN LATERAL (SELECT j.priority, j.schedule_at FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane = w.lane AND j.type = t.type
                          ORDER BY j.priority DESC, j.schedule_at LIMIT 1) h
     WHERE (SELECT @lanes::text[]) IS NULL OR w.lane = ANY ((SELECT @lanes::text[])::text[])
     UNION ALL
    SELECT p.lane, p.type, h.priority, h.schedule_at
      FROM heads p
     CROSS JOIN LATERAL (SELECT j.priority, j.schedule_at FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane = p.lane AND j.type = p.type AND j.priority < p.priority
                          ORDER BY j.priority DESC, j.schedule_at LIMIT 1) h
), soonest AS MATERIALIZED (
    SELECT h.lane, min(h.schedule_at) AS schedule_at FROM heads h GROUP BY h.lane
)
SELECT (SELECT bool_and((SELECT k.name FROM belfry.job_types k WHERE k.name = t.type) IS NOT NULL)
          FROM unnest((SELECT @types::text[])) AS t (type)) AS registered,
       EXISTS (SELECT FROM running) AS running,
       ARRAY(SELECT r.id FROM running r
              WHERE r.backend_pid IS NOT NULL AND r.type = ANY (@types)
                AND NOT EXISTS (SELECT FROM pg_stat_activity a
                                 WHERE a.pid = r.backend_pid AND coalesce(a.backend_start = r.backend_start, true))) AS gone,
       EXISTS (SELECT FROM running r
                WHERE CASE WHEN r.type = ANY (@types)
                           THEN r.heartbeat_at NOT BETWEEN clock_timestamp() - @stale_after::interval AND clock_timestamp() + interval '1 minute' OR r.runner = @runner
                           ELSE r.heartbeat_at NOT BETWEEN clock_timestamp() - 2 * @stale_after::interval AND clock_timestamp() + interval '1 minute'
                      END) AS dead,
       coalesce(e.expires_at <= statement_timestamp(), false) AS overdue,
       i.halted_at IS NULL AND EXISTS (SELECT FROM soonest s
                WHERE s.schedule_at <= statement_timestamp()
                  AND NOT EXISTS (SELECT FROM running r WHERE r.lane = s.lane)
                  AND (SELECT l.paused_at FROM belfry.lanes l WHERE l.name = s.lane) IS NULL) AS due,
       (extract(epoch FROM least((SELECT min(s.schedule_at) FROM soonest s), e.expires_at))
           - extract(epoch FROM statement_timestamp()))::double precision AS seconds, -- by halves, for infinity
       i.halted_at, coalesce(i.halted_by, '') AS halted_by, coalesce(i.halt_reason, '') AS halt_reason
  FROM (SELECT (SELECT j.expires_at FROM belfry.jobs j
                 WHERE j.expires_at IS NOT NULL AND j.started_at IS NULL AND j.finished_at IS NULL AND j.runner IS NULL
                 ORDER BY j.expires_at LIMIT 1) AS expires_at) e
  LEFT JOIN belfry.installation i ON i.one;

-- name: JobClaim :one
-- Takes the most urgent due job of a free, open lane: PENDING to RUNNING, fence + 1 (I4 by
-- jobs_one_running_per_lane). The returned fence never changes for this run. @pid is the backend pid that
-- the connection knows: if the server's differs, a pooler is in between and the row records no backend. No
-- row: no job is due for these types and lanes, or belfry is halted (jobs_transition). A unique violation on
-- the lane's index: another runner was first.
--
-- What it reads does not depend on how many jobs wait: of jobs_waiting_idx one entry
-- for each lane, and in each open one for each type and priority, the head. Of heads
-- that are due the most urgent gives its job, or the next behind it that no session
-- has locked. Each probe is the first row in an index's order, which no estimate
-- makes a scan of the table; hence >= instead of = for the lane's RUNNING job, and no
-- second look at the status of the row that is locked already.
WITH RECURSIVE waiting (lane) AS (
    (SELECT j.lane FROM belfry.jobs j WHERE j.status = 'PENDING' AND NOT j.awaits_approval ORDER BY j.lane LIMIT 1)
     UNION ALL
    SELECT n.lane
      FROM waiting w
     CROSS JOIN LATERAL (SELECT j.lane FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane > w.lane
                          ORDER BY j.lane LIMIT 1) n
), heads (lane, type, priority, schedule_at, id) AS (
    SELECT w.lane, t.type, h.priority, h.schedule_at, h.id
      FROM waiting w
     CROSS JOIN unnest((SELECT @types::text[])) AS t (type)
     CROSS JOIN LATERAL (SELECT j.priority, j.schedule_at, j.id FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane = w.lane AND j.type = t.type
                          ORDER BY j.priority DESC, j.schedule_at, j.id LIMIT 1) h
     WHERE (@lanes::text[] IS NULL OR w.lane = ANY (@lanes))
       AND (SELECT r.lane FROM belfry.jobs r
             WHERE r.status = 'RUNNING' AND r.lane >= w.lane
             ORDER BY r.lane LIMIT 1) IS DISTINCT FROM w.lane
       AND (SELECT l.paused_at FROM belfry.lanes l WHERE l.name = w.lane) IS NULL
     UNION ALL
    SELECT p.lane, p.type, h.priority, h.schedule_at, h.id
      FROM heads p
     CROSS JOIN LATERAL (SELECT j.priority, j.schedule_at, j.id FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane = p.lane AND j.type = p.type AND j.priority < p.priority
                          ORDER BY j.priority DESC, j.schedule_at, j.id LIMIT 1) h
), due AS MATERIALIZED (
    SELECT h.lane, h.type, h.priority
      FROM heads h
     WHERE h.schedule_at <= statement_timestamp()
     ORDER BY h.priority DESC, h.schedule_at, h.id
)
UPDATE belfry.jobs
   SET status = 'RUNNING', fence = fence + 1, runner = @runner, heartbeat_at = clock_timestamp(),
       attempts = least(attempts, 2147483646) + 1, started_at = coalesce(started_at, clock_timestamp()),
       (backend_pid, backend_start) = (SELECT a.pid, a.backend_start FROM pg_stat_activity a
                                        WHERE a.pid = pg_backend_pid() AND a.pid = @pid::bigint AND a.backend_start IS NOT NULL)
 WHERE id = (SELECT n.id
               FROM due d
              CROSS JOIN LATERAL (SELECT j.id FROM belfry.jobs j
                                   WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane = d.lane AND j.type = d.type AND j.priority = d.priority
                                     AND j.schedule_at <= statement_timestamp()
                                     AND (j.expires_at IS NULL OR j.expires_at > statement_timestamp() OR j.started_at IS NOT NULL)
                                   ORDER BY j.schedule_at, j.id LIMIT 1
                                     FOR UPDATE SKIP LOCKED) n
              LIMIT 1)
RETURNING id, fence;

-- name: JobResumeDead :one
-- Takes over a RUNNING job: one of @gone whose server connection is still gone, one
-- whose heartbeat is older than @stale_after or more than a minute ahead, which no run has written, or one that names this very runner,
-- which does not run it any more. fence + 1, so the old run commits nothing (I5). A
-- take-over counts until a chunk commits. Another role's connection shows its pid without its start, and
-- counts as alive. A heartbeat that is newer than this statement belongs to a claim
-- whose connection it may not see yet. A row that is locked is in the middle of its
-- COMMIT and is left alone. No row: nothing to take over.
UPDATE belfry.jobs
   SET fence = fence + 1, runner = @runner, heartbeat_at = clock_timestamp(), attempts = least(attempts, 2147483646) + 1,
       takeovers = least(takeovers, 2147483646) + 1,
       (backend_pid, backend_start) = (SELECT a.pid, a.backend_start FROM pg_stat_activity a
                                        WHERE a.pid = pg_backend_pid() AND a.pid = @pid::bigint AND a.backend_start IS NOT NULL)
 WHERE id = (SELECT j.id
               FROM belfry.jobs j
              WHERE j.status = 'RUNNING'
                AND (j.heartbeat_at NOT BETWEEN clock_timestamp() - @stale_after::interval AND clock_timestamp() + interval '1 minute' OR j.runner = @runner
                     OR j.id = ANY (@gone) AND j.backend_pid IS NOT NULL AND j.heartbeat_at < statement_timestamp()
                        AND NOT EXISTS (SELECT FROM pg_stat_activity a
                                         WHERE a.pid = j.backend_pid AND coalesce(a.backend_start = j.backend_start, true)))
                AND j.type = ANY (@types)
                AND (@lanes::text[] IS NULL OR j.lane = ANY (@lanes))
              ORDER BY j.priority DESC, j.schedule_at, j.id
              LIMIT 1
                FOR UPDATE SKIP LOCKED)
   AND status = 'RUNNING'
RETURNING id, fence;

-- name: JobGiveUp :many
-- Ends RUNNING jobs that would be taken over once more although @max_takeovers runs in a row were lost
-- without a committed chunk: FAILED, so that they do not hide other jobs (JobResumeDead has the conditions).
-- No row: there is none.
UPDATE belfry.jobs
   SET status = 'FAILED',
       last_error = format('gave up: %s runs in a row were lost without a committed chunk, the last on %s%s',
                           least(takeovers, 2147483646) + 1, runner, '; the error before: ' || left(last_error, 1000))
 WHERE id = ANY (ARRAY(SELECT j.id
                          FROM belfry.jobs j
                         WHERE j.status = 'RUNNING' AND j.takeovers >= @max_takeovers
                           AND (j.heartbeat_at NOT BETWEEN clock_timestamp() - @stale_after::interval AND clock_timestamp() + interval '1 minute' OR j.runner = @runner
                                OR j.id = ANY (@gone) AND j.backend_pid IS NOT NULL AND j.heartbeat_at < statement_timestamp()
                                   AND NOT EXISTS (SELECT FROM pg_stat_activity a
                                                    WHERE a.pid = j.backend_pid AND coalesce(a.backend_start = j.backend_start, true)))
                           AND j.type = ANY (@types)
                           AND (@lanes::text[] IS NULL OR j.lane = ANY (@lanes))
                         ORDER BY j.id
                         LIMIT @limit
                           FOR UPDATE SKIP LOCKED))
   AND status = 'RUNNING'
RETURNING id;

-- name: JobRelease :many
-- Hands back RUNNING jobs of types that this runner does not know whose heartbeat is
-- twice as old as makes them stale: those who know the type had their time, and the
-- lane must not wait for them. It counts as a take-over. No row: there is none.
UPDATE belfry.jobs
   SET status = 'PENDING', takeovers = least(takeovers, 2147483646) + 1
 WHERE id = ANY (ARRAY(SELECT j.id
                          FROM belfry.jobs j
                         WHERE j.status = 'RUNNING' AND j.heartbeat_at NOT BETWEEN clock_timestamp() - 2 * @stale_after::interval AND clock_timestamp() + interval '1 minute'
                           AND j.type <> ALL (@types)
                           AND (@lanes::text[] IS NULL OR j.lane = ANY (@lanes))
                         ORDER BY j.id
                         LIMIT @limit
                           FOR UPDATE SKIP LOCKED))
   AND status = 'RUNNING'
RETURNING id;

-- name: JobExpire :many
-- The late-start guard: PENDING jobs that were never started before expires_at become EXPIRED
-- (jobs_expiry_idx, whose condition implies PENDING), of all types and lanes, at most @limit. No row: there
-- is none.
UPDATE belfry.jobs
   SET status = 'EXPIRED'
 WHERE id = ANY (ARRAY(SELECT j.id
                         FROM belfry.jobs j
                        WHERE j.expires_at <= statement_timestamp()
                          AND j.started_at IS NULL AND j.finished_at IS NULL AND j.runner IS NULL
                        ORDER BY j.expires_at LIMIT @limit
                          FOR UPDATE SKIP LOCKED))
RETURNING id;

-- name: JobsLimited :exec
-- Binds the jobs that this transaction enqueues to belfry.limits, whatever its role may UPDATE; @limited
-- is whom errors name.
SELECT set_config('belfry.limited', @limited, true);

-- name: ActAs :exec
-- Sets the actor and the reason for the triggers that record them, until the end of the transaction. @kind
-- is the reason for which a run hands its job back.
SELECT belfry.act(@actor, @reason), set_config('belfry.kind', @kind, true);

-- name: RunTerminateOldBackends :many
-- Terminates the server connections that this run and earlier runs of its job left: a runner that was
-- stopped during a COPY keeps its uncommitted keys locked, and the next run would wait for them. The
-- transactions of a run have the job and the fence in application_name (see RunBegin). A run executes this
-- only between its own transactions, so a connection with its fence or a lower one is left over; a higher
-- fence is the run that took the job over. Fencing, not this statement, prevents old transactions from
-- committing. Every session may take such a name: those that this role may not terminate, which would be an
-- error, are left alone.
SELECT pg_terminate_backend(a.pid)
  FROM pg_stat_activity a
  JOIN pg_roles r ON r.oid = a.usesysid
  JOIN pg_roles me ON me.rolname = current_user
 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
   AND CASE WHEN a.application_name ~ '^belfry job [0-9]{1,18} fence [0-9]{1,18}$'
            THEN split_part(a.application_name, ' ', 3)::bigint = @id AND split_part(a.application_name, ' ', 5)::bigint <= @fence
       END
   AND (me.rolsuper OR NOT r.rolsuper)
   AND (pg_has_role(r.oid, 'USAGE') OR pg_has_role('pg_signal_backend', 'USAGE'));

-- name: JobsHeld :many
-- RUNNING jobs in these lanes, of all runners.
SELECT id FROM belfry.jobs
 WHERE status = 'RUNNING' AND (@lanes::text[] IS NULL OR lane = ANY (@lanes))
 ORDER BY id
 LIMIT 100;

-- name: RunBegin :one
-- Deadlines and name for one transaction of a run: each setting ends with the transaction, so it is safe
-- behind a transaction-mode pooler. Returns whether the run is still the job's run, its cursor, the settings
-- that hold from this chunk on, whether its lane is paused or belfry halted, whether any job is overdue to
-- expire (jobs_expiry_idx), the lower of its ceiling and its approved number, and the more urgent due job of
-- its lane if there is one, found as in JobClaim, without locked jobs, which cannot be claimed now. No row:
-- the job was deleted.
SELECT set_config('application_name', @application, true) IS NOT NULL
   AND set_config('statement_timeout', @timeout_ms::text, true) IS NOT NULL
   AND set_config('lock_timeout', @lock_timeout_ms::text, true) IS NOT NULL
   AND set_config('idle_in_transaction_session_timeout', @timeout_ms::text, true) IS NOT NULL
   AND set_config('synchronous_commit', CASE WHEN @async_commit::boolean THEN 'off'
           WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
           ELSE current_setting('synchronous_commit') END, true) IS NOT NULL AS set,
       j.status, j.fence, coalesce(j."cursor", '') AS "cursor", j.priority, least(j.max_recipients, j.approved_recipients) AS max_recipients, j.max_rows_per_second, j.duty_cycle,
       j.chunk_target_ms, j.max_chunk_rows, j.health_checks, j.max_skips,
       EXISTS (SELECT FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL) AS lane_paused,
       (SELECT i.halted_at FROM belfry.installation i WHERE i.one) IS NOT NULL AS halted,
       EXISTS (SELECT FROM belfry.jobs e
                WHERE e.expires_at <= statement_timestamp()
                  AND e.started_at IS NULL AND e.finished_at IS NULL AND e.runner IS NULL) AS overdue,
       (WITH RECURSIVE heads (type, priority, schedule_at) AS (
            SELECT t.type, h.priority, h.schedule_at
              FROM unnest((SELECT @types::text[])) AS t (type)
             CROSS JOIN LATERAL (SELECT w.priority, w.schedule_at FROM belfry.jobs w
                                  WHERE w.status = 'PENDING' AND NOT w.awaits_approval AND w.lane = j.lane AND w.type = t.type AND w.priority > j.priority
                                  ORDER BY w.priority DESC, w.schedule_at LIMIT 1) h
             UNION ALL
            SELECT p.type, h.priority, h.schedule_at
              FROM heads p
             CROSS JOIN LATERAL (SELECT w.priority, w.schedule_at FROM belfry.jobs w
                                  WHERE w.status = 'PENDING' AND NOT w.awaits_approval AND w.lane = j.lane AND w.type = p.type
                                    AND w.priority > j.priority AND w.priority < p.priority
                                  ORDER BY w.priority DESC, w.schedule_at LIMIT 1) h
        ), due AS MATERIALIZED (
            SELECT h.type, h.priority FROM heads h WHERE h.schedule_at <= statement_timestamp() ORDER BY h.priority DESC
        )
        SELECT n.id
          FROM due d
         CROSS JOIN LATERAL (SELECT w.id FROM belfry.jobs w
                              WHERE w.status = 'PENDING' AND NOT w.awaits_approval AND w.lane = j.lane AND w.type = d.type AND w.priority = d.priority
                                AND w.schedule_at <= statement_timestamp()
                                AND (w.expires_at IS NULL OR w.expires_at > statement_timestamp() OR w.started_at IS NOT NULL)
                              ORDER BY w.schedule_at, w.id LIMIT 1
                                FOR UPDATE SKIP LOCKED) n
         LIMIT 1) AS urgent
  FROM belfry.jobs j
 WHERE j.id = @id;

-- name: RunFreeze :exec
-- Freezes the bound at the first claim (I1) and records the estimate of keys to
-- examine; on a job with a bound only the estimate, which an edit has cleared. Zero
-- rows: the run is over.
UPDATE belfry.jobs
   SET bound = coalesce(bound, @bound), channels_total = @total, heartbeat_at = clock_timestamp()
 WHERE id = @id AND fence = @fence AND status = 'RUNNING' AND (bound IS NULL OR channels_total IS NULL);

-- name: ChunkCommit :exec
-- Moves the cursor as the last statement of a chunk's transaction, iff the job is RUNNING under this fence
-- with an unchanged cursor (I3, I5, I6: an abort makes it ABORTED), and its rows stay within max_recipients
-- and its approval, and records the chunk. Zero rows: roll back.
UPDATE belfry.jobs
   SET "cursor" = @cursor, chunks = chunks + 1, channels_read = channels_read + @read,
       channels_matched = channels_matched + @matched, rows_written = rows_written + @rows,
       declined = declined + @declined, skipped = skipped + @skipped,
       heartbeat_at = clock_timestamp(), last_error = NULL, takeovers = 0,
       throttle = nullif(@throttle, ''), throttle_detail = nullif(@detail, ''), throttled_ms = throttled_ms + @throttled_ms
 WHERE id = @id AND fence = @fence AND status = 'RUNNING' AND coalesce("cursor", '') = @before
   AND (rows_written + @rows > least(max_recipients, approved_recipients)) IS NOT TRUE;

-- name: ProbeConstraints :exec
-- Has constraints checked now that would be checked at COMMIT, to the end of the
-- transaction, which is rolled back.
SET CONSTRAINTS ALL IMMEDIATE;

-- name: SkipAdd :exec
-- Records the one recipient that cannot be written, in the transaction that moves
-- the cursor past it.
INSERT INTO belfry.job_skips AS s (job_id, key, after, sqlstate, error)
VALUES (@job_id, @key, @after, @sqlstate, @error)
    ON CONFLICT ON CONSTRAINT job_skips_pkey DO UPDATE
       SET sqlstate = excluded.sqlstate, error = excluded.error, attempts = least(s.attempts, 2147483646) + 1, retry = false, tried_at = clock_timestamp();

-- name: SkipNext :one
-- The next skipped recipient to try again (job_skips_retry_idx). No row: none left.
SELECT key, after FROM belfry.job_skips WHERE job_id = @job_id AND retry ORDER BY key LIMIT 1;

-- name: SkipRemove :exec
-- A skipped recipient has its rows now, or is none any more.
DELETE FROM belfry.job_skips WHERE job_id = @job_id AND key = @key;

-- name: SkipKeep :exec
-- A skipped recipient failed again, and is not tried again in this run.
UPDATE belfry.job_skips
   SET retry = false, attempts = least(attempts, 2147483646) + 1, sqlstate = @sqlstate, error = @error, tried_at = clock_timestamp()
 WHERE job_id = @job_id AND key = @key;

-- name: RunBook :exec
-- Records one skipped recipient that was tried again, as the last statement of its
-- transaction, under the guard of ChunkCommit. The cursor stays. Zero rows: roll back.
UPDATE belfry.jobs
   SET rows_written = rows_written + @rows, declined = declined + @declined,
       channels_matched = channels_matched + @matched, skipped = skipped + @skipped,
       heartbeat_at = clock_timestamp(), takeovers = 0
 WHERE id = @id AND fence = @fence AND status = 'RUNNING' AND coalesce("cursor", '') = @before
   AND (rows_written + @rows > least(max_recipients, approved_recipients)) IS NOT TRUE;

-- name: RunHold :exec
-- Renews the heartbeat of a throttled run and records the reason. Zero rows: the run is over.
UPDATE belfry.jobs
   SET heartbeat_at = clock_timestamp(), throttle = nullif(@throttle, ''), throttle_detail = nullif(@detail, ''),
       throttled_ms = throttled_ms + @throttled_ms
 WHERE id = @id AND fence = @fence AND status = 'RUNNING';

-- name: RunHeartbeat :one
-- Renews the heartbeat between retries under the connection that the run has now,
-- records the error that is being retried, and returns the progress as it is. No
-- row: the run is over.
UPDATE belfry.jobs
   SET heartbeat_at = clock_timestamp(), last_error = coalesce(nullif(@error, ''), last_error),
       (backend_pid, backend_start) = (SELECT a.pid, a.backend_start FROM pg_stat_activity a
                                        WHERE a.pid = pg_backend_pid() AND a.pid = @pid::bigint AND a.backend_start IS NOT NULL)
 WHERE id = @id AND fence = @fence AND status = 'RUNNING'
RETURNING coalesce("cursor", '') AS "cursor", chunks, channels_read, channels_matched, rows_written, declined, skipped;

-- name: RunAbort :exec
-- Carries out an abort that was flagged in the abort cache. Zero rows: the run is
-- over.
UPDATE belfry.jobs
   SET abort_requested = true
 WHERE id = @id AND fence = @fence AND status = 'RUNNING';

-- name: RunExceeds :exec
-- Makes a job ABORTED whose next @rows rows, after @written, would pass its ceiling @most: after ChunkCommit
-- or RunBook rejected them. If the approved number is the ceiling, the approval becomes void, and a resumed
-- job waits for another approval. Zero rows: the run is over, or an operator has moved the ceiling since.
UPDATE belfry.jobs
   SET abort_requested = true, last_error = @error, approved_count = CASE WHEN approved_recipients > @most THEN approved_count END
 WHERE id = @id AND fence = @fence AND status = 'RUNNING' AND least(max_recipients, approved_recipients) = @most AND rows_written = @written
   AND rows_written + @rows > @most;

-- name: RunFinish :exec
-- PROCESSED: no key is left, and the accounts agree. Zero rows: the run is over, or
-- they do not.
UPDATE belfry.jobs
   SET status = 'PROCESSED', last_error = NULL
 WHERE id = @id AND fence = @fence AND status = 'RUNNING' AND coalesce("cursor", '') = @before
   AND channels_matched = rows_written + declined + skipped AND channels_read >= channels_matched;

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

-- name: Halt :one
-- Stops everything (belfry.halt). If belfry is halted already, nothing changes and note is set.
SELECT halted_at, coalesce(halted_by, ''), halt_reason, note FROM belfry.halt(@actor, @reason);

-- name: Unhalt :one
-- Ends a halt (belfry.unhalt). If belfry is not halted, nothing changes and note is set.
SELECT halted_at, coalesce(halted_by, ''), coalesce(halt_reason, ''), note FROM belfry.unhalt(@actor, @reason);

-- name: HaltGet :one
-- Since when, by whom and why belfry is halted. Always one row.
SELECT i.halted_at, coalesce(i.halted_by, '') AS halted_by, coalesce(i.halt_reason, '') AS halt_reason
  FROM (SELECT true) o(one) LEFT JOIN belfry.installation i ON i.one = o.one;

-- name: RowHolders :many
-- The jobs @ids, with @waiting the first due ones in the order of jobs_waiting_idx, else NULL: all that are RUNNING, and the sessions that keep their rows locked: those
-- whose transactions locked or changed them last. A pid is 0 of a prepared transaction, which has an identifier. No row: none
-- is locked now, or several sessions share the lock.
SELECT 'job ' || j.id AS locked, coalesce(a.pid, 0) AS pid, coalesce(a.usename::text, '') AS role, coalesce(a.application_name, '') AS application,
       a.xact_start AS since, coalesce(x.gid, '') AS prepared, false AS waits
  FROM belfry.jobs j
  JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = j.xmax
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN pg_prepared_xacts x ON l.pid IS NULL AND x.transaction = j.xmax
 WHERE j.id = ANY (CASE WHEN @ids::bigint[] IS NOT NULL THEN @ids
                        WHEN @waiting::boolean THEN ARRAY(SELECT w.id FROM belfry.jobs w WHERE w.status = 'PENDING' AND NOT w.awaits_approval AND w.schedule_at <= statement_timestamp()
                                                           ORDER BY w.lane, w.type, w.priority DESC, w.schedule_at, w.id LIMIT 1000)
                        ELSE ARRAY(SELECT r.id FROM belfry.jobs r WHERE r.status = 'RUNNING') END)
 ORDER BY j.id, 2;

-- name: LimitsGet :one
-- Reads the ceilings and floors for roles that may only enqueue. Always one row.
SELECT priority, max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows, max_skips, max_recipients, health_checks,
       min_priority, min_rows_per_second, min_duty_cycle, min_chunk_target_ms, min_chunk_rows,
       belfry.version('limits', '') AS version
  FROM belfry.limits;

-- name: LimitsSet :exec
-- Changes the ceilings and floors that @changes, a JSON object by column, names; null lifts one.
UPDATE belfry.limits l
   SET (priority, max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows, max_skips, max_recipients, health_checks,
        min_priority, min_rows_per_second, min_duty_cycle, min_chunk_target_ms, min_chunk_rows) =
       (SELECT n.priority, n.max_rows_per_second, n.duty_cycle, n.chunk_target_ms, n.max_chunk_rows, n.max_skips, n.max_recipients, n.health_checks,
               n.min_priority, n.min_rows_per_second, n.min_duty_cycle, n.min_chunk_target_ms, n.min_chunk_rows
          FROM jsonb_populate_record(l, @changes::jsonb) n);

-- name: GroupsFirst :many
-- The lowest id of the jobs of each of @groups (jobs_group_idx). No row: none of
-- them has one.
SELECT group_id, min(id) FROM belfry.jobs WHERE group_id = ANY (@groups::text[]::uuid[]) GROUP BY group_id;

-- name: ServerClock :one
-- The database's clock, by which schedules, heartbeats and retention are judged. Always one
-- row.
SELECT clock_timestamp();

-- name: TxClock :one
-- The start of the transaction, which is the created_at of its jobs. Always one row.
SELECT now();
