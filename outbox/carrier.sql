-- Carriers: pushes, claims by key, and messages that a carrier has lost.

-- name: QueueLead :many
-- Makes @relay the leader, which pushes to both queues, for @seconds, or renews that, and returns the
-- progress of the queues (queues_pkey). No row: another relay leads, or messages may not leave the database
-- (belfry.delivers). No relay leads for more than a day, which another role can have written.
INSERT INTO belfry.queues AS q (name, transport, dispatcher, leads_until)
SELECT n.name, @transport, @relay, clock_timestamp() + make_interval(secs => @seconds)
  FROM unnest('{activities,bulk}'::text[]) n(name)
 WHERE belfry.delivers()
 ORDER BY n.name
    ON CONFLICT ON CONSTRAINT queues_pkey DO UPDATE
   SET transport = excluded.transport, dispatcher = excluded.dispatcher, leads_until = excluded.leads_until
 WHERE q.dispatcher = excluded.dispatcher OR q.leads_until NOT BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 day'
RETURNING q.name, q.epoch::text, q.first_push, q.last_push;

-- name: QueueLeave :exec
-- Lets another relay push at once.
UPDATE belfry.queues q SET leads_until = 'epoch' WHERE q.dispatcher = @relay;

-- name: QueueRenew :many
-- Begins a new epoch of a queue. Its first push is the earliest push with QUEUED messages
-- (messages_queued_idx, pushes_pkey), within the numbers of its pushes: a role that delivers can write any into
-- messages.
-- No row: another relay leads, or has begun an epoch.
UPDATE belfry.queues q
   SET epoch = gen_random_uuid(), epoch_at = clock_timestamp(),
       first_push = greatest(1, least((SELECT m.push FROM belfry.message_rows m
                                        WHERE m.status = 'QUEUED' AND (m.job_id < 0) = @activities::boolean
                                        ORDER BY m.push LIMIT 1),
                                      (SELECT p.number FROM belfry.pushes p WHERE p.queue = @name AND p.queued > 0 ORDER BY p.number LIMIT 1),
                                      q.last_push + 1))
 WHERE q.name = @name AND q.dispatcher = @relay AND q.epoch = @epoch::text::uuid
RETURNING q.name, q.epoch::text, q.first_push, q.last_push;

-- name: MessageQueue :many
-- Makes a push of up to @keys due messages of one job that wait after a first claim, in the order and under the
-- conditions of MessageClaim, for all media: PENDING → QUEUED. The row with the push 0 is the edge. No other row: no
-- message is due there, the job is held or deleted, messages may not leave the database, or @relay no longer
-- pushes in @epoch. Locks messages first and the queue's row last.
WITH allowed AS MATERIALIZED (
    SELECT belfry.delivers() AND j.status <> 'ABORTED' AND NOT j.awaits_approval
           AND NOT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL) AS yes
      FROM belfry.jobs j WHERE j.id = @job_id
), edge AS MATERIALIZED (
    SELECT m.next_attempt_at, m.job_id, m.channel_id
      FROM belfry.message_rows m
     WHERE (SELECT a.yes FROM allowed a) AND m.job_id = @job_id AND m.job_id > 0 AND m.status = 'PENDING' AND m.lease_id IS NOT NULL
       AND (m.next_attempt_at, m.channel_id) > (@after_at::timestamptz, @after_channel::bigint)
       AND m.next_attempt_at <= statement_timestamp()
     ORDER BY m.next_attempt_at, m.channel_id
    OFFSET @bound - 1 LIMIT 1
), due AS MATERIALIZED (
    SELECT m.ctid AS tid
      FROM belfry.message_rows m
     WHERE (SELECT a.yes FROM allowed a) AND m.job_id = @job_id AND m.job_id > 0 AND m.status = 'PENDING' AND m.lease_id IS NOT NULL
       AND (m.next_attempt_at, m.channel_id) > (@after_at::timestamptz, @after_channel::bigint)
       AND (m.next_attempt_at, m.channel_id) <= (coalesce((SELECT e.next_attempt_at FROM edge e), statement_timestamp()),
                                                 coalesce((SELECT e.channel_id FROM edge e), 9223372036854775807))
       AND (@retries::boolean IS NULL OR (m.step + m.attempts + m.crashes > 0) = @retries)
     ORDER BY m.next_attempt_at, m.channel_id
     LIMIT @keys
       FOR UPDATE SKIP LOCKED
), push AS (
    UPDATE belfry.queues q
       SET last_push = q.last_push + 1
     WHERE q.name = 'bulk' AND q.dispatcher = @relay AND q.epoch = @epoch::text::uuid AND EXISTS (SELECT FROM due)
    RETURNING q.name, q.last_push AS number
), noted AS (
    INSERT INTO belfry.pushes (queue, number)
    SELECT p.name, p.number FROM push p
        ON CONFLICT ON CONSTRAINT pushes_pkey DO NOTHING -- a role that delivers can insert numbers that come
), queued AS (
    UPDATE belfry.message_rows m
       SET status = 'QUEUED', push = (SELECT p.number FROM push p)
     WHERE m.ctid = ANY (ARRAY(SELECT d.tid FROM due d)) AND EXISTS (SELECT FROM push)
    RETURNING m.job_id, m.channel_id, m.push, m.next_attempt_at
)
(SELECT k.job_id, k.channel_id, k.push, k.next_attempt_at
  FROM queued k
 ORDER BY k.next_attempt_at, k.channel_id)
UNION ALL
SELECT e.job_id, e.channel_id, 0, e.next_attempt_at FROM edge e;

-- name: ActivityQueue :many
-- MessageQueue for the messages of activities that ActivityClaim examines (messages_activity_idx).
WITH edge AS MATERIALIZED (
    SELECT m.next_attempt_at, m.job_id, m.channel_id
      FROM belfry.message_rows m
     WHERE m.job_id < 0 AND m.status = 'PENDING'
       AND (m.next_attempt_at, m.job_id, m.channel_id)
           > (greatest(@after_at::timestamptz, statement_timestamp() - make_interval(secs => @within)), @after_job::bigint, @after_channel::bigint)
       AND m.next_attempt_at <= statement_timestamp()
     ORDER BY m.next_attempt_at, m.job_id, m.channel_id
    OFFSET @bound - 1 LIMIT 1
), due AS MATERIALIZED (
    SELECT m.ctid AS tid
      FROM belfry.message_rows m
     WHERE belfry.delivers() AND m.job_id < 0 AND m.status = 'PENDING'
       AND (m.next_attempt_at, m.job_id, m.channel_id)
           > (greatest(@after_at::timestamptz, statement_timestamp() - make_interval(secs => @within)), @after_job::bigint, @after_channel::bigint)
       AND (m.next_attempt_at, m.job_id, m.channel_id) <= (coalesce((SELECT e.next_attempt_at FROM edge e), statement_timestamp()),
                                                           coalesce((SELECT e.job_id FROM edge e), 0), coalesce((SELECT e.channel_id FROM edge e), 0))
       AND (@retries::boolean IS NULL OR (m.step + m.attempts + m.crashes > 0) = @retries)
     ORDER BY m.next_attempt_at, m.job_id, m.channel_id
     LIMIT @keys
       FOR UPDATE SKIP LOCKED
), push AS (
    UPDATE belfry.queues q
       SET last_push = q.last_push + 1
     WHERE q.name = 'activities' AND q.dispatcher = @relay AND q.epoch = @epoch::text::uuid AND EXISTS (SELECT FROM due)
    RETURNING q.name, q.last_push AS number
), noted AS (
    INSERT INTO belfry.pushes (queue, number)
    SELECT p.name, p.number FROM push p
        ON CONFLICT ON CONSTRAINT pushes_pkey DO NOTHING -- a role that delivers can insert numbers that come
), queued AS (
    UPDATE belfry.message_rows m
       SET status = 'QUEUED', push = (SELECT p.number FROM push p)
     WHERE m.ctid = ANY (ARRAY(SELECT d.tid FROM due d)) AND EXISTS (SELECT FROM push)
    RETURNING m.job_id, m.channel_id, m.push, m.next_attempt_at
)
(SELECT k.job_id, k.channel_id, k.push, k.next_attempt_at
  FROM queued k
 ORDER BY k.next_attempt_at, k.job_id, k.channel_id)
UNION ALL
SELECT e.job_id, e.channel_id, 0, e.next_attempt_at FROM edge e;

-- name: PushKeys :many
-- The messages that are still QUEUED by the push @number of a queue, with the lane of their job, or '' for
-- activities (messages_queued_idx, pushes_pkey, jobs_pkey).
(SELECT m.job_id, m.channel_id, coalesce((SELECT j.lane FROM belfry.jobs j WHERE j.id = m.job_id), '')
   FROM belfry.message_rows m
  WHERE m.status = 'QUEUED' AND (m.job_id < 0) = @activities::boolean AND m.push = @number
  ORDER BY m.job_id, m.channel_id)
UNION ALL
SELECT p.job_id, u.channel_id, coalesce((SELECT j.lane FROM belfry.jobs j WHERE j.id = p.job_id), '')
  FROM belfry.pushes p CROSS JOIN unnest(p.channel_ids) u(channel_id)
 WHERE p.queue = @name AND p.number = @number;

-- name: CopiesTake :many
-- Claims copies of messages of jobs that were never changed, by taking their keys out of their pushes (pushes_pkey,
-- jobs_pkey), under the new lease @lease of @seconds. It leaves their rows as they are, except in a category with a cap,
-- as in MessageTake. Returns the number of each such copy from 1, the lease, the lane and the position of the row. The
-- lease is 0 for a message of a job that is ABORTED, in a paused lane, waits for approval or is deleted: it is PENDING
-- now, and pushed again when it is no longer held. Other copies are left to CopiesClaim, also those of held messages
-- whose rows are locked. A message that was cancelled or deleted meanwhile is claimed too; its recheck finds that. Waits
-- for other claims from the same pushes. With @held it finds the pushes by the keys (pushes_job_idx).
WITH k AS MATERIALIZED (
    SELECT k.job_id, k.channel_id, CASE WHEN @held::boolean THEN belfry.push_of(k.job_id, k.channel_id) ELSE k.push END AS push, k.n
      FROM unnest(@job_ids::bigint[], @channel_ids::bigint[], @pushes::bigint[]) WITH ORDINALITY k(job_id, channel_id, push, n)
     WHERE (SELECT belfry.delivers()) AND k.job_id > 0
), sendable AS MATERIALIZED (
    SELECT j.id, j.lane, EXISTS (SELECT FROM belfry.categories c WHERE c.name = j.category AND c.cap_window IS NOT NULL) AS capped
      FROM belfry.jobs j
     WHERE j.id = ANY (@jobs::bigint[]) AND j.status <> 'ABORTED' AND NOT j.awaits_approval
       AND NOT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL)
), pushes AS MATERIALIZED (
    SELECT p.number, p.job_id, p.channel_ids, p.tids
      FROM (SELECT DISTINCT k.push AS number FROM k ORDER BY 1) n
     CROSS JOIN LATERAL (SELECT p.number, p.job_id, p.channel_ids, p.tids FROM belfry.pushes p
                          WHERE p.queue = 'bulk' AND p.number = n.number AND p.queued > 0 FOR UPDATE) p
), pushed AS MATERIALIZED (
    SELECT k.n, p.number, p.job_id, u.channel_id, u.tid
      FROM pushes p
     CROSS JOIN unnest(p.channel_ids, p.tids) u(channel_id, tid)
      LEFT JOIN k ON k.push = p.number AND k.channel_id = u.channel_id AND k.job_id = p.job_id
), returned AS (
    UPDATE belfry.message_rows m
       SET lease_id = 0
     WHERE m.ctid = ANY (ARRAY(SELECT r.tid
                                 FROM pushed p
                                CROSS JOIN LATERAL (SELECT r.ctid AS tid FROM belfry.message_rows r
                                                     WHERE r.job_id = p.job_id AND r.channel_id = p.channel_id AND r.status = 'PENDING' AND r.lease_id IS NULL
                                                       FOR UPDATE SKIP LOCKED) r
                                WHERE p.n IS NOT NULL AND p.job_id <> ALL (ARRAY(SELECT s.id FROM sendable s))))
    RETURNING m.job_id, m.channel_id
), taken AS MATERIALIZED (
    SELECT p.n, p.number, p.job_id, p.channel_id, p.tid, s.id IS NOT NULL AS sendable, s.lane, s.capped
      FROM pushed p
      LEFT JOIN sendable s ON s.id = p.job_id
     WHERE p.n IS NOT NULL AND (s.id IS NOT NULL OR (p.job_id, p.channel_id) IN (SELECT r.job_id, r.channel_id FROM returned r))
), kept AS MATERIALIZED (
    SELECT p.number, array_agg(p.channel_id) FILTER (WHERE t.n IS NULL) AS channel_ids, array_agg(p.tid) FILTER (WHERE t.n IS NULL) AS tids
      FROM pushed p
      LEFT JOIN taken t ON t.n = p.n
     GROUP BY p.number HAVING count(t.n) > 0
), emptied AS (
    UPDATE belfry.pushes p
       SET channel_ids = coalesce(k.channel_ids, '{}'), tids = coalesce(k.tids, '{}')
      FROM kept k
     WHERE p.number = ANY (ARRAY(SELECT o.number FROM kept o)) AND p.queue = 'bulk' AND p.number = k.number
), lease AS (
    INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids)
    SELECT @lease::bigint, @relay, clock_timestamp() + make_interval(secs => @seconds), array_agg(t.job_id), array_agg(t.channel_id)
      FROM taken t WHERE t.sendable HAVING count(*) > 0
    RETURNING id
), changed AS (
    UPDATE belfry.message_rows m
       SET status = 'PROCESSING', lease_id = (SELECT l.id FROM lease l)
     WHERE m.ctid = ANY (ARRAY(SELECT r.tid
                                 FROM taken t
                                CROSS JOIN LATERAL (SELECT r.ctid AS tid FROM belfry.message_rows r
                                                     WHERE r.job_id = t.job_id AND r.channel_id = t.channel_id AND r.status = 'PENDING' AND r.lease_id IS NULL
                                                       FOR UPDATE SKIP LOCKED) r
                                WHERE t.capped))
    RETURNING m.job_id, m.channel_id, m.ctid AS tid
)
SELECT t.n, CASE WHEN t.sendable THEN (SELECT l.id FROM lease l) ELSE 0 END, coalesce(t.lane, ''),
       CASE WHEN t.capped THEN coalesce((SELECT c.tid FROM changed c WHERE c.job_id = t.job_id AND c.channel_id = t.channel_id), t.tid) ELSE t.tid END
  FROM taken t;

-- name: CopiesClaim :many
-- The claim by key of copies that CopiesTake has left: one verdict for each copy of an id, in their order
-- (messages_pkey, jobs_pkey). No message may occur twice. No row: messages may not leave the database.
--   claimed     in flight at @relay under the lease @lease of @seconds: it was QUEUED, or
--               PENDING and due. One that was never claimed is only claimed with @held, after
--               ClaimsHold in the same transaction
--   held        its job is ABORTED, in a paused lane, waits for approval or is deleted. A QUEUED message is
--               PENDING now and is pushed again when it is no longer held
--   later       due in the returned number of seconds, or it or its push is locked by another session
--   not queued  a later push than the copy's has queued it or will, or the message does not exist
--   another     in flight
--   finished    SENT, CANCELLED or DEAD; another column marks DEAD
-- Skips locked messages. The lease contains only the claimed keys.
WITH k AS MATERIALIZED (
    SELECT k.job_id, k.channel_id, k.push, k.n
      FROM unnest(@job_ids::bigint[], @channel_ids::bigint[], @pushes::bigint[]) WITH ORDINALITY k(job_id, channel_id, push, n)
     WHERE (SELECT belfry.delivers())
), sendable AS MATERIALIZED (
    SELECT j.id, j.lane
      FROM belfry.jobs j
     WHERE j.id = ANY (@jobs::bigint[]) AND j.status <> 'ABORTED' AND NOT j.awaits_approval
       AND NOT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL)
), waiting AS MATERIALIZED (
    SELECT k.n, k.job_id, k.channel_id, m.tid, m.status, m.next_attempt_at,
           CASE WHEN m.status = 'PENDING' AND m.lease_id IS NULL AND k.channel_id <= (SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = k.job_id)
                THEN CASE WHEN belfry.push_of(k.job_id, k.channel_id) IS NULL THEN 'another' ELSE 'later' END
                WHEN k.job_id > 0 AND k.job_id <> ALL (ARRAY(SELECT s.id FROM sendable s)) THEN 'held'
                WHEN m.status = 'PENDING' AND m.lease_id IS NULL AND k.job_id > 0 THEN
                    CASE WHEN NOT @held::boolean THEN 'not queued'
                         WHEN m.next_attempt_at > statement_timestamp() THEN 'later'
                         ELSE 'claimed' END
                WHEN m.next_attempt_at > statement_timestamp() THEN 'later'
                WHEN m.status = 'QUEUED' AND m.push > k.push THEN 'not queued'
                ELSE 'claimed' END AS verdict
      FROM k
     CROSS JOIN LATERAL (SELECT m.ctid AS tid, m.status, m.push, m.next_attempt_at, m.lease_id FROM belfry.message_rows m
                          WHERE m.job_id = k.job_id AND m.channel_id = k.channel_id AND m.status IN ('PENDING', 'QUEUED')
                            FOR UPDATE SKIP LOCKED) m
), lease AS (
    INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids)
    SELECT @lease::bigint, @relay, clock_timestamp() + make_interval(secs => @seconds), array_agg(w.job_id), array_agg(w.channel_id)
      FROM waiting w WHERE w.verdict = 'claimed' HAVING count(*) > 0
    RETURNING id
), claimed AS (
    UPDATE belfry.message_rows m
       SET status = 'PROCESSING', lease_id = (SELECT l.id FROM lease l)
     WHERE m.ctid = ANY (ARRAY(SELECT w.tid FROM waiting w WHERE w.verdict = 'claimed'))
    RETURNING m.ctid AS tid, m.job_id, m.channel_id, m.step, m.attempts, m.crashes, m.reason
), returned AS (
    UPDATE belfry.message_rows m
       SET status = 'PENDING', lease_id = coalesce(m.lease_id, 0)
     WHERE m.ctid = ANY (ARRAY(SELECT w.tid FROM waiting w WHERE w.verdict = 'held' AND w.status = 'QUEUED'))
)
SELECT coalesce(w.verdict, CASE WHEN o.status IS NULL THEN 'not queued' WHEN o.status = 'PROCESSING' THEN 'another'
                                WHEN o.status IN ('PENDING', 'QUEUED') THEN 'later' ELSE 'finished' END),
       coalesce(extract(epoch FROM w.next_attempt_at - statement_timestamp()), 0)::double precision,
       coalesce((SELECT s.lane FROM sendable s WHERE s.id = k.job_id), ''),
       coalesce(c.step, 0), coalesce(c.attempts, 0), coalesce(c.crashes, 0), coalesce(c.reason, ''),
       CASE WHEN c.step + c.attempts + c.crashes > 0 OR c.reason IS NOT NULL -- a redrive leaves the reason only
            THEN EXISTS (SELECT FROM belfry.attempts a WHERE a.job_id = c.job_id AND a.channel_id = c.channel_id AND a.outcome IN ('unknown', 'crashed') OFFSET 0)
            ELSE false END,
       coalesce(o.status = 'DEAD', false),
       c.tid
  FROM k
  LEFT JOIN waiting w ON w.n = k.n
  LEFT JOIN claimed c ON c.job_id = k.job_id AND c.channel_id = k.channel_id
  LEFT JOIN LATERAL (SELECT o.status FROM belfry.message_rows o
                      WHERE w.n IS NULL AND o.job_id = k.job_id AND o.channel_id = k.channel_id LIMIT 1) o ON true
 ORDER BY k.n;

-- name: CopiesSure :many
-- Locks messages with a lock that only deletions wait for, and returns their numbers from 1 (messages_pkey).
-- The COMMIT then has to be flushed, with all earlier commits. Skips locked messages.
SELECT k.n
  FROM unnest(@job_ids::bigint[], @channel_ids::bigint[]) WITH ORDINALITY k(job_id, channel_id, n)
 CROSS JOIN LATERAL (SELECT FROM belfry.message_rows m
                      WHERE m.job_id = k.job_id AND m.channel_id = k.channel_id
                        FOR KEY SHARE SKIP LOCKED) m;

-- name: MessagesUnqueue :many
-- Returns up to @keys messages of a queue whose push precedes @oldest, so that the carrier has no copy of
-- them, and is older than @seconds: QUEUED → PENDING (messages_queued_idx, pushes_pkey); and those of four
-- pushes that were never changed, at random, because some may have locked messages only. Returns their jobs. Locked
-- ones are skipped. A push in the future was made by a role that delivers, and is none.
WITH before AS MATERIALIZED (
    SELECT least(@oldest::bigint, (SELECT min(p.number) FROM belfry.pushes p
                                    WHERE p.queue = @name AND p.made_at > clock_timestamp() - make_interval(secs => @seconds)
                                      AND p.made_at < clock_timestamp() + interval '1 minute')) AS number
), lost AS MATERIALIZED (
    SELECT m.ctid AS tid
      FROM belfry.message_rows m
     WHERE m.status = 'QUEUED' AND (m.job_id < 0) = @activities::boolean AND m.push < (SELECT b.number FROM before b)
     ORDER BY m.push, m.job_id, m.channel_id
     LIMIT @keys
       FOR UPDATE SKIP LOCKED
), returned AS (
    UPDATE belfry.message_rows m
       SET status = 'PENDING', lease_id = coalesce(m.lease_id, 0)
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM lost l))
    RETURNING m.job_id
)
SELECT r.job_id FROM returned r
UNION ALL
SELECT r.job_id
  FROM belfry.own_pushed(ARRAY(SELECT p.number FROM belfry.pushes p
                                WHERE p.queue = 'bulk' AND NOT @activities AND p.number < (SELECT b.number FROM before b) AND p.queued > 0
                                ORDER BY random() LIMIT 4), true) r(job_id);

-- name: MessagesUnserved :many
-- MessagesUnqueue for both queues while no relay leads (messages_queued_idx, queues_pkey, pushes_pkey).
WITH idle AS MATERIALIZED (
    SELECT WHERE NOT EXISTS (SELECT FROM belfry.queues q WHERE q.leads_until BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 day')
), left_over AS MATERIALIZED (
    SELECT m.ctid AS tid
      FROM belfry.message_rows m
     WHERE m.status = 'QUEUED' AND EXISTS (SELECT FROM idle)
     ORDER BY (m.job_id < 0), m.push, m.job_id, m.channel_id
     LIMIT @keys
       FOR UPDATE SKIP LOCKED
), returned AS (
    UPDATE belfry.message_rows m
       SET status = 'PENDING', lease_id = coalesce(m.lease_id, 0)
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM left_over l))
    RETURNING m.job_id
)
SELECT r.job_id FROM returned r
UNION ALL
SELECT r.job_id
  FROM belfry.own_pushed(ARRAY(SELECT p.number FROM belfry.pushes p
                                WHERE p.queue = 'bulk' AND EXISTS (SELECT FROM idle) AND p.queued > 0
                                ORDER BY random() LIMIT 4), true) r(job_id);

-- name: PushesForget :exec
-- Deletes the pushes of a queue before the earliest push with QUEUED messages (messages_queued_idx,
-- pushes_pkey), except pushes of the last @seconds. Skips locked ones.
DELETE FROM belfry.pushes p
 WHERE p.ctid = ANY (ARRAY(SELECT f.ctid FROM belfry.pushes f
                            WHERE f.queue = @name AND f.queued = 0 AND f.made_at <= clock_timestamp() - make_interval(secs => @seconds)
                              AND f.number < coalesce((SELECT m.push FROM belfry.message_rows m
                                                        WHERE m.status = 'QUEUED' AND (m.job_id < 0) = @activities::boolean
                                                        ORDER BY m.push LIMIT 1), f.number + 1)
                              FOR UPDATE SKIP LOCKED));
