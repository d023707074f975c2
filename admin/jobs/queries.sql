-- name: ActiveJobs :many
-- The jobs that are running or being delivered, at most @limit: running jobs, then jobs with due messages, then
-- jobs whose deliver_at has come, then the others, each oldest first. So no number of jobs that wait hides a
-- running one. Relies on jobs_one_running_per_lane, jobs_undelivered_idx, messages_due_idx and
-- job_deliveries_pkey. OFFSET 0 keeps the probe of one job's messages from becoming a scan of all messages.
SELECT a.id
  FROM (SELECT j.id, 1 AS place FROM belfry.jobs j WHERE j.status = 'RUNNING'
         UNION ALL
        (SELECT j.id, 2
           FROM belfry.jobs j
          WHERE j.delivered_at IS NULL AND j.started_at IS NOT NULL AND j.status NOT IN ('ABORTED', 'PENDING')
            AND EXISTS (SELECT FROM belfry.first_waiting(j.id) w WHERE w.next_attempt_at <= now() OFFSET 0)
          ORDER BY j.id
          LIMIT @limit)
         UNION ALL
        (SELECT j.id, CASE WHEN j.deliver_at > now() THEN 4 ELSE 3 END AS place
           FROM belfry.jobs j
           JOIN belfry.job_progress p ON p.job_id = j.id
          WHERE j.delivered_at IS NULL AND j.started_at IS NOT NULL AND j.status NOT IN ('ABORTED', 'PENDING') AND p.waiting > 0
          ORDER BY place, j.id
          LIMIT @limit)) a
 GROUP BY a.id
 ORDER BY min(a.place), a.id
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
