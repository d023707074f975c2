-- name: SegmentUsers :many
-- Jobs and schedules for the segment @segment with the effect of its removal, @limit of each at most:
-- among the @scan oldest running and the @scan oldest waiting jobs (jobs_status_idx), and all schedules.
(SELECT format('job %s (%s)', j.id, j.type), 'finds no further members, and ends early'
   FROM (SELECT r.* FROM (SELECT r.id, r.type, r.audience FROM belfry.jobs r WHERE r.status = 'RUNNING' ORDER BY -r.id DESC LIMIT @scan) r
          UNION ALL
         SELECT p.* FROM (SELECT p.id, p.type, p.audience FROM belfry.jobs p WHERE p.status = 'PENDING' ORDER BY -p.id DESC LIMIT @scan) p) j
  WHERE j.audience ->> 'segment' = @segment
  ORDER BY j.id LIMIT @limit)
 UNION ALL
(SELECT 'schedule ' || s.name, 'its jobs are rejected from then on'
   FROM belfry.schedules s
  WHERE s.template #>> '{audience,segment}' = @segment
  ORDER BY s.name LIMIT @limit);
