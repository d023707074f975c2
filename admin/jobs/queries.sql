-- name: ActiveJobs :many
-- The jobs that are running or being delivered, oldest first, at most @limit. Relies on
-- jobs_one_running_per_lane, jobs_undelivered_idx and job_deliveries_pkey.
SELECT id FROM belfry.jobs WHERE status = 'RUNNING'
 UNION
SELECT j.id
  FROM belfry.jobs j
  JOIN belfry.job_progress p ON p.job_id = j.id
 WHERE j.delivered_at IS NULL AND j.started_at IS NOT NULL AND j.status NOT IN ('ABORTED', 'PENDING') AND p.waiting > 0
 ORDER BY id
 LIMIT @limit;

-- name: NewestEvents :many
-- The events of jobs above the event @job, and of belfry.events above @other: the newest @limit of each
-- (job_events_pkey, events_pkey). act marks acts, as in JobActs and OtherActs.
(SELECT 'job' AS subject, e.job_id::text AS name, e.id, e.at, e.kind, e.actor, e.reason, e.detail, belfry.is_job_act(e.kind) OR e.kind = 'enqueued' AS act
   FROM belfry.job_events e
  WHERE e.id > @job
  ORDER BY e.id DESC
  LIMIT @limit)
 UNION ALL
(SELECT e.subject, e.name, e.id, e.at, e.kind, e.actor, e.reason, e.detail, e.subject <> 'schedule' OR coalesce(belfry.is_act(e.kind, e.detail), false) AS act
   FROM belfry.events e
  WHERE e.id > @other
  ORDER BY e.id DESC
  LIMIT @limit);
