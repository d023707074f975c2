-- The adoption of a database, and its waiting messages.

-- name: InstallationAdopt :exec
-- Adopts the database at its current location, and records the actor (belfry.adopt).
SELECT belfry.adopt(@actor, @reason, @place);

-- name: BacklogAges :many
-- The number of jobs with waiting messages, and of these messages, by the age of the jobs:
-- within a time and not within the previous one; NULL for older jobs (jobs_undelivered_idx,
-- job_deliveries_pkey). No row without waiting messages.
SELECT a.within, count(*), sum(p.waiting)::bigint
  FROM belfry.sendable_jobs s
  JOIN belfry.jobs j ON j.id = s.job_id
  JOIN belfry.job_progress p ON p.job_id = s.job_id
 CROSS JOIN LATERAL (SELECT min(t.within) FROM unnest('{1 hour, 24 hours, 168 hours}'::interval[]) t(within)
                      WHERE j.created_at > statement_timestamp() - t.within) a(within)
 WHERE p.waiting > 0
 GROUP BY a.within
 ORDER BY a.within NULLS LAST;

-- name: BacklogOther :one
-- The number of messages of activities that are not final, up to 100,000; of jobs that have not
-- written all rows; and of schedules that are not paused (messages_activity_idx).
SELECT (SELECT count(*) FROM (SELECT FROM belfry.message_rows m WHERE m.job_id < 0 AND m.status = 'PENDING' LIMIT 100000) t),
       (SELECT count(*) FROM belfry.jobs j WHERE j.status IN ('PENDING', 'RUNNING')),
       (SELECT count(*) FROM belfry.schedules c WHERE c.paused_at IS NULL);
