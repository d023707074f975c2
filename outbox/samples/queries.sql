-- Figures per minute.

-- name: SamplesAdd :one
-- Adds figures to the minutes in which they were counted, by their ages in seconds (samples_pkey). Rows of one
-- minute are added up first. Proceeds in the order of the key, so that two processes never deadlock. Counts end
-- at their ceiling (samples_counts_check). Returns the database's clock.
WITH added AS (
    INSERT INTO belfry.samples AS s (kind, name, at, medium, rows_written, sent, failed, deferred, queue_depth, p95_ms)
    SELECT k.kind, k.name, date_bin('1 minute', statement_timestamp() - make_interval(secs => k.age), '1970-01-01 00:00:00+00'), max(k.medium),
           least(sum(k.rows_written), 1000000000000), least(sum(k.sent), 1000000000000), least(sum(k.failed), 1000000000000),
           least(sum(k.deferred), 1000000000000), least(max(k.queue_depth), 1000000000), least(max(k.p95_ms), 86400000)
      FROM unnest(@kinds::text[], @names::text[], @ages::double precision[], @media::text[], @rows_written::bigint[], @sent::bigint[],
                  @failed::bigint[], @deferred::bigint[], @queue_depths::bigint[], @p95_ms::bigint[])
           k(kind, name, age, medium, rows_written, sent, failed, deferred, queue_depth, p95_ms)
     GROUP BY 1, 2, 3
     ORDER BY 1, 2, 3
        ON CONFLICT ON CONSTRAINT samples_pkey DO UPDATE
       SET medium = excluded.medium,
           rows_written = least(s.rows_written + excluded.rows_written, 1000000000000),
           sent = least(s.sent + excluded.sent, 1000000000000),
           failed = least(s.failed + excluded.failed, 1000000000000),
           deferred = least(s.deferred + excluded.deferred, 1000000000000),
           queue_depth = greatest(s.queue_depth, excluded.queue_depth),
           p95_ms = greatest(s.p95_ms, excluded.p95_ms)
)
SELECT clock_timestamp();

-- name: SampleSeries :many
-- The figures of one subject from @from to before @to, in bins of @seconds that begin at @from (samples_pkey).
-- Bins without figures are left out.
SELECT date_bin(make_interval(secs => @seconds), s.at, @from::timestamptz) AS at, sum(s.rows_written)::bigint AS rows_written,
       sum(s.sent)::bigint AS sent, sum(s.failed)::bigint AS failed, sum(s.deferred)::bigint AS deferred,
       max(s.queue_depth) AS queue_depth, max(s.p95_ms) AS p95_ms
  FROM belfry.samples s
 WHERE s.kind = @kind AND s.name = @name AND s.at >= @from::timestamptz AND s.at < @to::timestamptz
 GROUP BY 1
 ORDER BY 1;

-- name: SampleSeriesOfKind :many
-- SampleSeries of all subjects of a kind together (samples_at_idx).
SELECT date_bin(make_interval(secs => @seconds), s.at, @from::timestamptz) AS at, sum(s.rows_written)::bigint AS rows_written,
       sum(s.sent)::bigint AS sent, sum(s.failed)::bigint AS failed, sum(s.deferred)::bigint AS deferred,
       max(s.queue_depth) AS queue_depth, max(s.p95_ms) AS p95_ms
  FROM belfry.samples s
 WHERE s.kind = @kind AND s.at >= @from::timestamptz AND s.at < @to::timestamptz
 GROUP BY 1
 ORDER BY 1;
