-- name: JobsUpcoming :many
-- Reads the PENDING jobs of @lane (NULL: of every lane; with @not_held of lanes that are not paused)
-- that do not wait for approval and are due before @until (NULL: at any time), after the position
-- (@after, @after_lane, @after_id), ordered by due time, lane and id, at most @limit. No index has
-- this order over all lanes. The query therefore reads the head of each lane, type and priority in
-- jobs_waiting_idx, like JobClaim, and further jobs only of the @limit heads that are due first. Lanes
-- and types are compared in the collation of that index, which no other index supports; the order
-- of lanes in the result is that of their bytes.
WITH RECURSIVE kinds (lane, type) AS (
    (SELECT j.lane, j.type FROM belfry.jobs j
      WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane >= coalesce(@lane::text, '')
      ORDER BY j.lane, j.type LIMIT 1)
     UNION ALL
    SELECT n.lane, n.type
      FROM kinds k
     CROSS JOIN LATERAL (SELECT j.lane, j.type FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND (j.lane, j.type) > (k.lane, k.type)
                          ORDER BY j.lane, j.type LIMIT 1) n
     WHERE @lane::text IS NULL OR n.lane = @lane
), heads (lane, type, priority) AS (
    SELECT k.lane, k.type, h.priority
      FROM kinds k
     CROSS JOIN LATERAL (SELECT j.priority FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane = k.lane AND j.type = k.type
                          ORDER BY j.priority DESC LIMIT 1) h
     WHERE (@lane::text IS NULL OR k.lane = @lane)
       AND NOT (@not_held::boolean AND EXISTS (SELECT FROM belfry.lanes l WHERE l.name = k.lane AND l.paused_at IS NOT NULL))
     UNION ALL
    SELECT p.lane, p.type, h.priority
      FROM heads p
     CROSS JOIN LATERAL (SELECT j.priority FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane = p.lane AND j.type = p.type AND j.priority < p.priority
                          ORDER BY j.priority DESC LIMIT 1) h
), begun AS MATERIALIZED (
    SELECT h.lane, h.type, h.priority,
           CASE WHEN h.lane COLLATE "C" < @after_lane::text THEN 9223372036854775807 WHEN h.lane = @after_lane THEN @after_id::bigint ELSE 0 END AS after_id
      FROM heads h
), foremost AS MATERIALIZED (
    SELECT b.lane, b.type, b.priority, b.after_id
      FROM begun b
     CROSS JOIN LATERAL (SELECT j.schedule_at, j.id FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane = b.lane AND j.type = b.type AND j.priority = b.priority
                            AND (j.schedule_at, j.id) > (@after::timestamptz, b.after_id) AND j.schedule_at < coalesce(@until::timestamptz, 'infinity')
                          ORDER BY j.schedule_at, j.id LIMIT 1) n
     ORDER BY n.schedule_at, b.lane COLLATE "C", n.id
     LIMIT @limit
), soonest AS MATERIALIZED (
    SELECT n.id, n.schedule_at, f.lane
      FROM foremost f
     CROSS JOIN LATERAL (SELECT j.schedule_at, j.id FROM belfry.jobs j
                          WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane = f.lane AND j.type = f.type AND j.priority = f.priority
                            AND (j.schedule_at, j.id) > (@after::timestamptz, f.after_id) AND j.schedule_at < coalesce(@until::timestamptz, 'infinity')
                          ORDER BY j.schedule_at, j.id LIMIT @limit) n
     ORDER BY n.schedule_at, f.lane COLLATE "C", n.id
     LIMIT @limit
)
SELECT j.id, j.type, j.category, j.title, j.lane, j.priority, j.schedule_at
  FROM soonest s
 CROSS JOIN LATERAL (SELECT k.id, k.type, k.category, k.title, k.lane, k.priority, k.schedule_at
                       FROM belfry.jobs k WHERE k.id = s.id LIMIT 1) j
 ORDER BY s.schedule_at, s.lane COLLATE "C", s.id;

-- name: JobDurations :many
-- Reads how long the walk of a job of each kind takes: the median of the last five PROCESSED jobs of its
-- type, category and lane or, if that lane has none, of its type and category. Reads the last @looks jobs
-- of each category once (jobs_kind_idx). A kind without such jobs has no row in the result.
WITH kinds AS MATERIALIZED (
    SELECT k.n, k.type, k.category, k.lane
      FROM unnest(@types::text[], @categories::text[], @lanes::text[]) WITH ORDINALITY AS k (type, category, lane, n)
), recent AS MATERIALIZED (
    SELECT c.category, r.type, r.lane, r.took,
           row_number() OVER (PARTITION BY c.category, r.type, r.lane ORDER BY r.id DESC) AS in_lane,
           row_number() OVER (PARTITION BY c.category, r.type ORDER BY r.id DESC) AS in_any
      FROM (SELECT DISTINCT k.category FROM kinds k) c
     CROSS JOIN LATERAL (SELECT j.id, j.type, j.lane, j.finished_at - j.started_at AS took
                           FROM belfry.jobs j
                          WHERE j.category = c.category AND j.status = 'PROCESSED'
                          ORDER BY -1 * j.id
                          LIMIT @looks) r
), last AS (
    SELECT k.n, r.took
      FROM kinds k
      JOIN recent r ON (r.category, r.type, r.lane) = (k.category, k.type, k.lane) AND r.in_lane <= 5
     UNION ALL
    SELECT k.n, r.took
      FROM kinds k
      JOIN recent r ON (r.category, r.type) = (k.category, k.type) AND r.in_any <= 5
     WHERE NOT EXISTS (SELECT FROM recent o WHERE (o.category, o.type, o.lane) = (k.category, k.type, k.lane))
)
SELECT l.n::integer - 1 AS kind, extract(epoch FROM percentile_disc(0.5) WITHIN GROUP (ORDER BY l.took))::double precision AS seconds
  FROM last l
 WHERE l.took IS NOT NULL
 GROUP BY l.n;
