-- Fills an empty database of belfry with an invented history, to test lists and pages. `make bench-seed` runs it with psql. The settings bench.jobs and
-- bench.history are the numbers of jobs and messages. Runs in one transaction.

DO $$ BEGIN
    IF EXISTS (SELECT FROM belfry.jobs) THEN
        RAISE 'this database has jobs; use an empty one: an invented past is not mixed with yours';
    END IF;
END $$;

-- Triggers are off. This requires a superuser, or the right to SET session_replication_role.
SET LOCAL session_replication_role = replica;

-- Each job with messages has 1,000. One job in every has messages.
CREATE TEMPORARY TABLE sizes ON COMMIT DROP AS
SELECT j.jobs, h.history / 1000 AS delivered, greatest(1, j.jobs * 9 / 10 / (h.history / 1000)) AS every
  FROM CAST(current_setting('bench.jobs') AS bigint) j(jobs), CAST(current_setting('bench.history') AS bigint) h(history);

INSERT INTO belfry.lanes (name) SELECT 'lane-' || n FROM generate_series(1, 20) n ON CONFLICT DO NOTHING;

-- The jobs are a minute apart. The last tenth is PENDING. 1 % of the rest is FAILED,
-- 1 % ABORTED, 0.1 % EXPIRED. One job in ten is in a group of ten. One job has its own lane and
-- category. All jobs of lane-6 have one category.
INSERT INTO belfry.jobs (id, group_id, type, category, title, body, route, lane, schedule_at, status, abort_requested, bound, "cursor", fence, attempts,
                         last_error, chunks, channels_read, channels_total, channels_matched, rows_written, requested_by, created_at, started_at, finished_at, walked_at, delivered_at)
SELECT n, CASE WHEN n % 10 = 0 THEN lpad((n / 100)::text, 32, '0')::uuid END,
       'push', CASE WHEN n = jobs / 2 THEN 'activity' WHEN n % 20 = 5 THEN 'operator_notice' ELSE (ARRAY['popular_content', 'question', 'operator_notice'])[1 + n % 3] END,
       'Job ' || n, repeat('What is new near you. ', 5), '{push}', CASE WHEN n = jobs / 2 THEN 'rare' ELSE 'lane-' || 1 + n % 20 END,
       t.at, s.status, s.status = 'ABORTED', CASE WHEN w.walked THEN '1000' END, CASE WHEN w.walked THEN '1000' END, 1, 1,
       CASE WHEN s.status = 'FAILED' THEN 'a chunk failed' END, w.walked::int, w.walked::int * 1000, 1000, w.walked::int * 1000, w.walked::int * 1000, 'seed', t.at,
       CASE WHEN w.walked THEN t.at END, CASE WHEN s.status <> 'PENDING' THEN t.at + interval '40 seconds' END, CASE WHEN s.status = 'PROCESSED' THEN t.at + interval '40 seconds' END,
       CASE WHEN s.status <> 'PENDING' THEN t.at + interval '40 seconds' END
  FROM sizes, generate_series(1, jobs) n,
       LATERAL (SELECT CASE WHEN n > jobs / 10 * 9 THEN 'PENDING' WHEN n % 100 = 0 THEN 'FAILED' WHEN n % 100 = 1 THEN 'ABORTED'
                            WHEN n % 1000 = 2 THEN 'EXPIRED' ELSE 'PROCESSED' END AS status) s,
       LATERAL (SELECT s.status NOT IN ('PENDING', 'EXPIRED') AS walked) w,
       LATERAL (SELECT now() - (jobs - n) * interval '1 minute' AS at) t;

INSERT INTO belfry.job_events (job_id, kind, actor, at)
SELECT j.id, k, 'seed', j.created_at FROM belfry.jobs j, unnest('{enqueued,claimed,finished}'::text[]) k;

-- Operators' events of a thousand names, as many as jobs.
INSERT INTO belfry.events (subject, name, kind, actor)
SELECT (ARRAY['lane', 'schedule', 'sender', 'category', 'dead_letter', 'channel', 'limits', 'transport', 'token', 'user'])[1 + n % 10],
       'n' || n % 1000, 'changed', 'seed'
  FROM sizes, generate_series(1, jobs) n;

INSERT INTO belfry.job_deliveries (job_id, relay, written, sent, dead, cancelled)
SELECT n * every, 'seed', 1000, 985, 10, 5 FROM sizes, generate_series(1, delivered) n;

-- 1 % of messages is DEAD, 0.5 % CANCELLED, the rest SENT.
INSERT INTO belfry.message_rows (job_id, channel_id, next_attempt_at, attempts, status, sent_at, reason, sender)
SELECT j * every, c, now() - (delivered - j) * interval '50 minutes', 1,
       CASE WHEN c <= 10 THEN 'DEAD' WHEN c <= 15 THEN 'CANCELLED' ELSE 'SENT' END, CASE WHEN c > 15 THEN now() END,
       CASE WHEN c <= 5 THEN 'permanent' WHEN c <= 10 THEN 'invalid_address' WHEN c <= 15 THEN 'expired' END, 'fcm'
  FROM sizes, generate_series(1, delivered) j, generate_series(1, 1000) c;

INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, sender, outcome, reason, code)
SELECT j * every, c, 0, 1, 'push', 'fcm', 'permanent', 'permanent', '400' FROM sizes, generate_series(1, delivered) j, generate_series(1, 10) c;
