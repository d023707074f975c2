-- Statements of package compose. Each reads what concerns a whole batch of messages. The
-- LIMITs and OFFSETs keep the planner to one look at an index per key, whatever it
-- believes about the sizes of the tables.

-- name: Contents :many
-- What the jobs and activities of @ids say, with what holds for their categories: quiet
-- hours in seconds since midnight, the cap's window in seconds; NULL: none. One that does
-- not exist has no row (jobs_pkey, activities_pkey, categories_pkey). An id is looked for
-- in both tables, and its sign decides nothing: the checks of the tables keep it out of
-- one of them, so that no id has two contents. Each row also has the database's now and
-- the installation's name. The array stands in a query of its own, whose length no plan
-- knows: otherwise one for the array at hand always seems to be worth its making.
SELECT statement_timestamp(), (SELECT i.id FROM belfry.installation i), t.id, t.created_at, t.category, t.title, t.body, t.data, t.variants, t.route, t.revision,
       extract(epoch FROM c.quiet_start)::bigint, extract(epoch FROM c.quiet_end)::bigint, c.cap, extract(epoch FROM c.cap_window)::bigint
  FROM (SELECT j.id, j.created_at, j.category, j.title, j.body, j.data, j.variants, j.route, j.revision
          FROM unnest((SELECT @ids::bigint[])) k (id)
         CROSS JOIN LATERAL (SELECT j.id, j.created_at, j.category, j.title, j.body, j.data, j.variants, j.route, j.revision
                               FROM belfry.jobs j WHERE j.id = k.id LIMIT 1) j
        UNION ALL
        SELECT a.id, a.created_at, a.category, a.title, a.body, a.data, a.variants, a.route, 0
          FROM unnest((SELECT @ids::bigint[])) k (id)
         CROSS JOIN LATERAL (SELECT a.id, a.created_at, a.category, a.title, a.body, a.data, a.variants, a.route
                               FROM belfry.activities a WHERE a.id = k.id LIMIT 1) a) t
  LEFT JOIN belfry.categories c ON c.name = t.category;

-- name: PreviewCategory :one
-- What holds for @category, as in Contents, for a job that is not enqueued yet. No row: no
-- such category.
SELECT statement_timestamp(), (SELECT i.id FROM belfry.installation i), c.route,
       extract(epoch FROM c.quiet_start)::bigint, extract(epoch FROM c.quiet_end)::bigint, c.cap, extract(epoch FROM c.cap_window)::bigint
  FROM belfry.categories c
 WHERE c.name = @category;

-- name: LastFailures :many
-- What the last call of each message of @job_ids and @channel_ids, which stand side by
-- side, came to. One without a recorded call has no row (attempts_message_idx).
SELECT k.n::integer, a.outcome
  FROM unnest(@job_ids::bigint[], @channel_ids::bigint[]) WITH ORDINALITY k (job_id, channel_id, n)
 CROSS JOIN LATERAL (SELECT f.outcome
                       FROM belfry.attempts f
                      WHERE f.job_id = k.job_id AND f.channel_id = k.channel_id AND f.attempt > 0
                        AND f.outcome NOT IN ('refused', 'accepted', 'unconfirmed')
                      ORDER BY f.id DESC
                      LIMIT 1) a;

-- name: CapCounts :many
-- For each channel with a category and a window in seconds, of arrays that stand side by
-- side: how many messages count against the cap, and the jobs of those that are in
-- flight and may come to count. A message awaiting its receipt was taken by the
-- provider. A pair without any has no row. @span_categories, @lows and @highs are spans of
-- ids that hold the channels of a category. Looks at each job of the category that may
-- have sent something in the window (jobs_category_idx): once, when it has few messages,
-- and otherwise once per span (messages_pkey); and at each channel's activities
-- (messages_channel_idx, activities_pkey).
  WITH k AS MATERIALIZED (
        SELECT k.n::integer, k.channel_id, k.category, k.seconds
          FROM unnest(@channel_ids::bigint[], @categories::text[], @windows::float8[]) WITH ORDINALITY k (channel_id, category, seconds, n)),
       s AS MATERIALIZED (
        SELECT s.category, s.low, s.high FROM unnest(@span_categories::text[], @lows::bigint[], @highs::bigint[]) s (category, low, high)),
       c AS MATERIALIZED (
        SELECT s.category, min(s.low) AS low, max(s.high) AS high, count(*) AS spans,
               statement_timestamp() - make_interval(secs => (SELECT max(k.seconds) FROM k WHERE k.category = s.category)) AS since
          FROM s GROUP BY s.category)
SELECT f.n, count(*) FILTER (WHERE f.counts), coalesce(array_agg(f.job_id) FILTER (WHERE NOT f.counts), '{}'),
       coalesce(array_agg(f.lease_id) FILTER (WHERE NOT f.counts), '{}')
  FROM (SELECT k.n, m.job_id, m.lease_id, m.status = 'SENT' OR m.receipt IS NOT NULL AS counts
          FROM c
         CROSS JOIN LATERAL (
                SELECT j.id, j.rows_written
                  FROM belfry.jobs j
                 WHERE j.category = c.category AND j.started_at IS NOT NULL
                   AND coalesce(j.delivered_at, 'infinity'::timestamptz) >= c.since
                OFFSET 0) j
         CROSS JOIN LATERAL (
                SELECT o.job_id, o.channel_id, o.lease_id, o.status, o.receipt, o.sent_at
                  FROM belfry.messages o
                 WHERE j.rows_written <= 16 * c.spans
                   AND o.job_id = j.id AND o.channel_id BETWEEN c.low AND c.high
                   AND (o.status = 'PROCESSING' OR o.status = 'SENT' AND o.sent_at >= c.since)
                UNION ALL
                SELECT o.job_id, o.channel_id, o.lease_id, o.status, o.receipt, o.sent_at
                  FROM s
                 CROSS JOIN LATERAL (SELECT o.job_id, o.channel_id, o.lease_id, o.status, o.receipt, o.sent_at
                                       FROM belfry.messages o
                                      WHERE o.job_id = j.id AND o.channel_id BETWEEN s.low AND s.high
                                        AND (o.status = 'PROCESSING' OR o.status = 'SENT' AND o.sent_at >= c.since)
                                     OFFSET 0) o
                 WHERE j.rows_written > 16 * c.spans AND s.category = c.category
                OFFSET 0) m
          JOIN k ON k.channel_id = m.channel_id AND k.category = c.category
        UNION ALL
        SELECT k.n, m.job_id, m.lease_id, m.receipt IS NOT NULL
          FROM k
          JOIN belfry.messages m ON m.channel_id = k.channel_id AND m.job_id < 0 AND m.status = 'PROCESSING'
         WHERE (SELECT a.category FROM belfry.activities a WHERE a.id = m.job_id) = k.category
        UNION ALL
        SELECT k.n, m.job_id, m.lease_id, true
          FROM k
          JOIN belfry.messages m ON m.channel_id = k.channel_id AND m.job_id < 0 AND m.status = 'SENT'
                                AND m.sent_at >= statement_timestamp() - make_interval(secs => k.seconds)
         WHERE (SELECT a.category FROM belfry.activities a WHERE a.id = m.job_id) = k.category) f
 GROUP BY f.n;
