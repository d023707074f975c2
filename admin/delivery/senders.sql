-- Operators' acts on senders.

-- name: SenderStates :many
-- The senders of relays with a heartbeat within @seconds, and the senders with settings of an
-- operator, by name; with @name only this sender, also an unknown one. A role that delivers can write any rows of
-- relays. Therefore numbers are rounded, 1,000 live relays are read, of at most 100 senders each
-- (relays_lists_check), and 1,000 senders are returned, first those with settings.
WITH live AS (
    SELECT r.senders, r.limits FROM belfry.relays r WHERE r.heartbeat_at BETWEEN clock_timestamp() - make_interval(secs => @seconds) AND clock_timestamp() + interval '1 minute'
     ORDER BY r.name LIMIT 1000
), carried AS (
    SELECT u.name, count(*) AS relays FROM live r CROSS JOIN LATERAL unnest(r.senders) u(name) WHERE @name = '' OR u.name = @name GROUP BY u.name
), names AS (
    SELECT n.name FROM (
        SELECT k.name, 0 AS rank FROM belfry.senders k
         WHERE k.rate_per_second IS NOT NULL OR k.concurrency IS NOT NULL OR k.paused_at IS NOT NULL
        UNION ALL
        SELECT u.name, 1 FROM carried u
        UNION ALL
        SELECT @name::text, 1 WHERE @name <> '') n
     WHERE @name = '' OR n.name = @name
     GROUP BY n.name ORDER BY min(n.rank), n.name LIMIT 1000
), worked AS (
    SELECT l ->> 'name' AS name,
           jsonb_agg(DISTINCT jsonb_build_object('rate_per_second', trim_scale(round((l ->> 'rate_per_second')::numeric, 6)), 'concurrency', (l ->> 'concurrency')::numeric::integer)) AS limits,
           max(l ->> 'medium') AS medium, array_agg(DISTINCT l ->> 'breaker') FILTER (WHERE l ->> 'breaker' <> '') AS breakers,
           sum((l ->> 'waiting')::numeric::integer) AS waiting, sum((l ->> 'calling')::numeric::integer) AS calling,
           sum(round((l ->> 'sent_per_second')::numeric, 6))::double precision AS sent, sum(round((l ->> 'failed_per_second')::numeric, 6))::double precision AS failed
      FROM live r CROSS JOIN LATERAL jsonb_array_elements(r.limits) l WHERE l ->> 'name' IN (SELECT k.name FROM names k) GROUP BY l ->> 'name'
)
SELECT n.name, s.rate_per_second, s.concurrency, s.paused_at, coalesce(s.paused_by, '') AS paused_by, coalesce(s.pause_reason, '') AS pause_reason,
       coalesce(c.relays, 0) AS relays, coalesce(w.limits, '[]') AS in_force,
       coalesce(w.medium, '') AS medium, coalesce(w.breakers, '{}') AS breakers, coalesce(w.waiting, 0) AS waiting, coalesce(w.calling, 0) AS calling,
       coalesce(w.sent, 0) AS sent_per_second, coalesce(w.failed, 0) AS failed_per_second, belfry.version('sender', n.name) AS version
  FROM names n
  LEFT JOIN belfry.senders s ON s.name = n.name
  LEFT JOIN carried c ON c.name = n.name
  LEFT JOIN worked w ON w.name = n.name
 ORDER BY n.name;

-- name: RelayStates :many
-- At most 1,000 relays, and whether they are live: with a heartbeat within @seconds. Live relays are first, then by
-- name, so that rows of ended relays cannot hide a live one.
SELECT r.name, r.started_at, r.heartbeat_at, r.senders, r.media, r.in_flight, r.transport,
       r.heartbeat_at BETWEEN clock_timestamp() - make_interval(secs => @seconds) AND clock_timestamp() + interval '1 minute' AS live
  FROM belfry.relays r
 ORDER BY live DESC, r.name
 LIMIT 1000;

-- name: SenderSet :exec
-- Sets an operator's limits of a sender: the rate with @rate, the concurrency with @slots; NULL
-- restores the configured limit. senders_record writes the event.
INSERT INTO belfry.senders AS s (name, rate_per_second, concurrency)
VALUES (@name, @rate_per_second, @concurrency)
    ON CONFLICT ON CONSTRAINT senders_pkey DO UPDATE
       SET rate_per_second = CASE WHEN @rate::boolean THEN excluded.rate_per_second ELSE s.rate_per_second END,
           concurrency = CASE WHEN @slots::boolean THEN excluded.concurrency ELSE s.concurrency END;

-- name: SenderPause :exec
-- Pauses a sender. Zero rows if it is paused already.
INSERT INTO belfry.senders AS s (name, paused_at, paused_by, pause_reason)
VALUES (@name, clock_timestamp(), coalesce(nullif(@actor, ''), session_user), @reason)
    ON CONFLICT ON CONSTRAINT senders_pkey DO UPDATE
       SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
     WHERE s.paused_at IS NULL;

-- name: SenderResume :exec
-- Resumes a paused sender. Zero rows if it is not paused.
UPDATE belfry.senders s SET paused_at = NULL, paused_by = NULL, pause_reason = '' WHERE s.name = @name AND s.paused_at IS NOT NULL;
