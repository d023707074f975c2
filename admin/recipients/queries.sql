-- name: SegmentUsers :many
-- What is for the segment @segment, and what becomes of it without, @limit at most: jobs that run
-- or are among the @looks oldest that wait (jobs_status_idx), and schedules. No row: nothing is.
(SELECT format('job %s (%s)', j.id, j.type), 'finds no further members, and ends early'
   FROM (SELECT r.* FROM (SELECT r.id, r.type, r.audience FROM belfry.jobs r WHERE r.status = 'RUNNING' ORDER BY -r.id DESC LIMIT @looks) r
          UNION ALL
         SELECT p.* FROM (SELECT p.id, p.type, p.audience FROM belfry.jobs p WHERE p.status = 'PENDING' ORDER BY -p.id DESC LIMIT @looks) p) j
  WHERE j.audience ->> 'segment' = @segment
  ORDER BY j.id LIMIT @limit)
 UNION ALL
(SELECT 'schedule ' || s.name, 'its jobs are refused from then on'
   FROM belfry.schedules s
  WHERE s.template #>> '{audience,segment}' = @segment
  ORDER BY s.name LIMIT @limit);
