-- Statements of package compose. Each reads data of a whole batch of messages. LIMITs and OFFSETs keep the
-- planner to one index scan per key, whatever its estimates of the tables' sizes.

-- name: Contents :many
-- Returns the contents of the jobs and activities of @ids with the settings of their categories: quiet hours
-- in seconds since midnight, the cap's window in seconds; NULL means none; and the job with their values. An unknown id has no row
-- (jobs_pkey, activities_pkey, categories_pkey). An id is searched in both tables: the tables' checks keep it
-- out of one of them, so that no id has two contents. Each row also has the database's now and the
-- installation's id. The array is in a subquery, so that the plan does not depend on its length: otherwise
-- PostgreSQL would prefer a custom plan for each array.
SELECT statement_timestamp(), (SELECT i.id FROM belfry.installation i), t.id, t.created_at, t.category, t.title, t.body, t.data, t.variants, t.route, t.revision, t.values_of,
       extract(epoch FROM c.quiet_start)::bigint, extract(epoch FROM c.quiet_end)::bigint, c.cap, extract(epoch FROM c.cap_window)::bigint
  FROM (SELECT j.id, j.created_at, j.category, j.title, j.body, j.data, j.variants, j.route, j.revision, j.id AS values_of
          FROM unnest((SELECT @ids::bigint[])) k (id)
         CROSS JOIN LATERAL (SELECT j.id, j.created_at, j.category, j.title, j.body, j.data, j.variants, j.route, j.revision
                               FROM belfry.jobs j WHERE j.id = k.id LIMIT 1) j
        UNION ALL
        SELECT a.id, a.created_at, a.category, a.title, a.body, a.data, a.variants, a.route, 0, coalesce(a.test_of, 0)
          FROM unnest((SELECT @ids::bigint[])) k (id)
         CROSS JOIN LATERAL (SELECT a.id, a.created_at, a.category, a.title, a.body, a.data, a.variants, a.route, a.test_of
                               FROM belfry.activities a WHERE a.id = k.id LIMIT 1) a) t
  LEFT JOIN belfry.categories c ON c.name = t.category;

-- name: Values :many
-- Returns the values of jobs for channels, of the parallel arrays @job_ids and @channel_ids. A pair without a
-- value has no row (job_values_pkey).
SELECT k.n::integer, v.value
  FROM unnest(@job_ids::bigint[], @channel_ids::bigint[]) WITH ORDINALITY k (job_id, channel_id, n)
 CROSS JOIN LATERAL (SELECT v.value FROM belfry.job_values v WHERE v.job_id = k.job_id AND v.channel_id = k.channel_id LIMIT 1) v;

-- name: PreviewCategory :one
-- Returns the settings of @category, as Contents does, for a job that is not enqueued. An unknown category
-- has no row.
SELECT statement_timestamp(), (SELECT i.id FROM belfry.installation i), c.route,
       extract(epoch FROM c.quiet_start)::bigint, extract(epoch FROM c.quiet_end)::bigint, c.cap, extract(epoch FROM c.cap_window)::bigint
  FROM belfry.categories c
 WHERE c.name = @category;

-- name: LastFailures :many
-- Returns the outcome of the last call of each message of the parallel arrays @job_ids and @channel_ids. A
-- message without a recorded call has no row (attempts_message_idx).
SELECT k.n::integer, a.outcome
  FROM unnest(@job_ids::bigint[], @channel_ids::bigint[]) WITH ORDINALITY k (job_id, channel_id, n)
 CROSS JOIN LATERAL (SELECT f.outcome
                       FROM belfry.attempts f
                      WHERE f.job_id = k.job_id AND f.channel_id = k.channel_id AND f.attempt > 0
                        AND f.outcome NOT IN ('refused', 'accepted', 'unconfirmed')
                      ORDER BY f.id DESC
                      LIMIT 1) a;

-- name: CapCounts :many
-- Returns, for each channel with a category and a window in seconds (parallel arrays), the number of messages
-- that count against the cap, the jobs and leases of the messages in flight that may come to count, and whether
-- the category has more than @jobs jobs or the channel more than @activities activities in the window. It
-- reads no more of them, because an enqueuer chooses their number. A message that awaits its receipt was
-- accepted by the provider. A pair without messages has no row. @span_categories,
-- @lows and @highs are ranges of ids that contain the channels of a category. Reads each job of the category
-- that may have sent messages in the window (jobs_category_idx): once if it has few messages, otherwise once
-- per span (messages_pkey); and each channel's activities (messages_channel_idx, activities_pkey).
  WITH k AS MATERIALIZED (
        SELECT k.n::integer, k.channel_id, k.category, k.seconds
          FROM unnest(@channel_ids::bigint[], @categories::text[], @windows::float8[]) WITH ORDINALITY k (channel_id, category, seconds, n)),
       s AS MATERIALIZED (
        SELECT s.category, s.low, s.high FROM unnest(@span_categories::text[], @lows::bigint[], @highs::bigint[]) s (category, low, high)),
       j AS MATERIALIZED (
        SELECT c.category, c.low, c.high, c.spans, c.since, j.id, j.rows_written
          FROM (SELECT s.category, min(s.low) AS low, max(s.high) AS high, count(*) AS spans,
                       statement_timestamp() - make_interval(secs => (SELECT max(k.seconds) FROM k WHERE k.category = s.category)) AS since
                  FROM s GROUP BY s.category) c
         CROSS JOIN LATERAL (
                SELECT j.id, j.rows_written
                  FROM belfry.jobs j
                 WHERE j.category = c.category AND j.started_at IS NOT NULL
                   AND coalesce(j.delivered_at, 'infinity'::timestamptz) >= c.since
                 LIMIT @jobs::bigint + 1) j),
       o AS MATERIALIZED (
        SELECT j.category FROM j GROUP BY j.category HAVING count(*) > @jobs::bigint)
SELECT f.n, count(*) FILTER (WHERE f.counts), coalesce(array_agg(f.job_id) FILTER (WHERE NOT f.counts), '{}'),
       coalesce(array_agg(f.lease_id) FILTER (WHERE NOT f.counts), '{}'),
       coalesce(bool_or(f.job_id IS NULL), false), count(*) FILTER (WHERE f.job_id < 0) > @activities::bigint
  FROM (SELECT k.n, m.job_id, m.lease_id, m.status = 'SENT' OR m.receipt IS NOT NULL AS counts
          FROM (SELECT j.category, m.job_id, m.channel_id, m.lease_id, m.status, m.receipt
                  FROM j
                 CROSS JOIN LATERAL (
                        SELECT m.job_id, m.channel_id, m.lease_id, m.status, m.receipt
                          FROM belfry.message_rows m
                         WHERE j.rows_written <= 16 * j.spans
                           AND m.job_id = j.id AND m.channel_id BETWEEN j.low AND j.high
                           AND (m.status = 'PROCESSING' OR m.status = 'SENT' AND m.sent_at >= j.since)
                        UNION ALL
                        SELECT m.job_id, m.channel_id, m.lease_id, m.status, m.receipt
                          FROM s
                         CROSS JOIN LATERAL (SELECT m.job_id, m.channel_id, m.lease_id, m.status, m.receipt
                                               FROM belfry.message_rows m
                                              WHERE m.job_id = j.id AND m.channel_id BETWEEN s.low AND s.high
                                                AND (m.status = 'PROCESSING' OR m.status = 'SENT' AND m.sent_at >= j.since)
                                             OFFSET 0) m
                         WHERE j.rows_written > 16 * j.spans AND s.category = j.category) m
                 WHERE j.category <> ALL (ARRAY(SELECT o.category FROM o))
                OFFSET 0) m
          JOIN k ON k.channel_id = m.channel_id AND k.category = m.category
        UNION ALL
        SELECT k.n, NULL, NULL, NULL
          FROM k
         WHERE k.category = ANY (ARRAY(SELECT o.category FROM o))
        UNION ALL
        SELECT k.n, m.job_id, m.lease_id, CASE WHEN (SELECT a.category FROM belfry.activities a WHERE a.id = m.job_id) = k.category THEN m.counts END
          FROM k
         CROSS JOIN LATERAL (
               (SELECT m.job_id, m.lease_id, m.receipt IS NOT NULL AS counts
                  FROM belfry.message_rows m
                 WHERE m.channel_id = k.channel_id AND m.job_id < 0 AND m.status = 'PROCESSING'
                 LIMIT @activities::bigint + 1)
                UNION ALL
               (SELECT m.job_id, m.lease_id, true
                  FROM belfry.message_rows m
                 WHERE m.channel_id = k.channel_id AND m.job_id < 0 AND m.status = 'SENT'
                   AND m.sent_at >= statement_timestamp() - make_interval(secs => k.seconds)
                 LIMIT @activities::bigint + 1)) m) f
 GROUP BY f.n;
