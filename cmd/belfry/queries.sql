-- The statements of the command itself: what a run is about. What operators look at is in
-- the other packages.

-- name: MessagesWaiting :one
-- How many messages of jobs are not final and may be sent now: of belfry.sendable_jobs
-- those whose deliver_at has come. Relies on jobs_undelivered_idx and
-- job_deliveries_pkey. Always one row.
SELECT coalesce(sum(p.waiting), 0)::bigint
  FROM belfry.sendable_jobs s
  JOIN belfry.jobs j ON j.id = s.job_id
  JOIN belfry.job_progress p ON p.job_id = s.job_id
 WHERE coalesce(j.deliver_at <= now(), true);
