-- Statements of recalls and reports. The other .sql files are named after their subjects.
-- name: MessagesRing :exec
-- Wakes relays when the transaction commits.
SELECT belfry.ring('belfry_messages');

-- name: OperatorAct :exec
-- Who acts and why, for the event that a trigger writes in this transaction.
SELECT belfry.act(@actor, @reason);

-- name: RecallRecord :exec
-- Marks a recall's beginning or end; the trigger jobs_record writes the
-- event. Zero rows: the job went on or is gone.
UPDATE belfry.jobs
   SET recalled_at = clock_timestamp()
 WHERE id = @id AND fence = @fence AND status IN ('ABORTED', 'PROCESSED', 'FAILED');

-- name: RecallCount :exec
-- Adds what one step of a recall took back, as the last statement of its
-- transaction. Zero rows: the job went on or is gone, roll back.
UPDATE belfry.jobs
   SET recalled = recalled + @recalled
 WHERE id = @id AND fence = @fence AND status IN ('ABORTED', 'PROCESSED', 'FAILED');

-- name: MessageRecall :one
-- One step of a recall through a job's messages: at most @keys after @after, up to
-- @bound, in key order (messages_pkey). PENDING and QUEUED become CANCELLED; those in
-- flight are marked, so that their attempt is the last (I8: their status is
-- the relay's to change). Locked rows are skipped. Returns how many keys it looked
-- at, the last one (NULL: none was left), how many it cancelled, those it came too late
-- for (sent, dead, in flight, with the provider and their receipts awaited), and
-- how many it left because they were locked or just changed.
WITH looked AS MATERIALIZED (
    SELECT m.channel_id, m.status, m.receipt IS NOT NULL AS awaited,
           m.status IN ('PENDING', 'QUEUED') OR m.status = 'PROCESSING' AND m.recalled_at IS NULL AS open
      FROM belfry.messages m
     WHERE m.job_id = @job_id AND m.channel_id > @after::bigint AND m.channel_id <= @bound::bigint
     ORDER BY m.channel_id
     LIMIT @keys
), locked AS MATERIALIZED (
    SELECT k.tid, k.status
      FROM (SELECT channel_id FROM looked WHERE open ORDER BY channel_id) o
     CROSS JOIN LATERAL (SELECT m.ctid AS tid, m.status FROM belfry.messages m
                          WHERE m.job_id = @job_id AND m.channel_id = o.channel_id
                            FOR UPDATE SKIP LOCKED) k
), cancelled AS (
    UPDATE belfry.messages m
       SET status = 'CANCELLED', reason = 'recalled', next_attempt_at = statement_timestamp()
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l WHERE l.status IN ('PENDING', 'QUEUED')))
       AND m.job_id = @job_id AND m.status IN ('PENDING', 'QUEUED')
    RETURNING m.channel_id
), marked AS (
    UPDATE belfry.messages m
       SET recalled_at = clock_timestamp()
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l WHERE l.status = 'PROCESSING'))
       AND m.job_id = @job_id AND m.status = 'PROCESSING'
    RETURNING m.channel_id
)
SELECT (SELECT count(*) FROM looked), (SELECT max(channel_id) FROM looked),
       (SELECT count(*) FROM cancelled),
       (SELECT ARRAY[count(*) FILTER (WHERE status = 'SENT'), count(*) FILTER (WHERE status = 'DEAD'),
                     count(*) FILTER (WHERE status = 'PROCESSING' AND NOT awaited),
                     count(*) FILTER (WHERE status = 'PROCESSING' AND awaited)] FROM looked),
       (SELECT count(*) FROM looked WHERE open)
           - (SELECT count(*) FROM cancelled) - (SELECT count(*) FROM marked);

-- name: NotificationRecall :one
-- One step of a recall through the notifications: the next @keys channels that have
-- any, after @after, up to @bound, and of each the row of this job (notifications_pkey,
-- two descents a channel, however many older rows it has). Unread ones are withdrawn.
-- Columns as in MessageRecall; it came too late for those that were read.
WITH RECURSIVE walk (channel_id, n) AS (
    (SELECT f.channel_id, 1 FROM belfry.notifications f
      WHERE f.channel_id > @after::bigint AND f.channel_id <= @bound::bigint
      ORDER BY f.channel_id LIMIT 1)
    UNION ALL
    SELECT x.channel_id, w.n + 1
      FROM walk w
     CROSS JOIN LATERAL (SELECT f.channel_id FROM belfry.notifications f
                          WHERE f.channel_id > w.channel_id AND f.channel_id <= @bound::bigint
                          ORDER BY f.channel_id LIMIT 1) x
     WHERE w.n < @keys
), looked AS MATERIALIZED (
    SELECT w.channel_id, m.read_at IS NOT NULL AS read,
           m.job_id IS NOT NULL AND m.read_at IS NULL AND m.withdrawn_at IS NULL AS open
      FROM walk w
      LEFT JOIN LATERAL (SELECT f.job_id, f.read_at, f.withdrawn_at FROM belfry.notifications f
                          WHERE f.channel_id = w.channel_id AND f.job_id = @job_id LIMIT 1) m ON true
), locked AS MATERIALIZED (
    SELECT k.tid
      FROM (SELECT channel_id FROM looked WHERE open ORDER BY channel_id) o
     CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.notifications m
                          WHERE m.channel_id = o.channel_id AND m.job_id = @job_id
                            FOR UPDATE SKIP LOCKED) k
), withdrawn AS (
    UPDATE belfry.notifications m
       SET withdrawn_at = clock_timestamp()
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l))
       AND m.job_id = @job_id AND m.read_at IS NULL AND m.withdrawn_at IS NULL
    RETURNING m.channel_id
)
SELECT (SELECT count(*) FROM looked), (SELECT max(channel_id) FROM looked),
       (SELECT count(*) FROM withdrawn),
       (SELECT ARRAY[count(*)] FROM looked WHERE read),
       (SELECT count(*) FROM looked WHERE open) - (SELECT count(*) FROM withdrawn);

-- name: DeliveryCounts :many
-- One step of counting a job's messages by status, reason, whether a receipt is awaited,
-- place in the route and when they were sent or died, to @seconds: at most @keys after
-- @after (messages_pkey), the highest of each count beside it. No row: none was left.
SELECT k.status, coalesce(k.reason, ''), k.receipt IS NOT NULL, k.step::integer, floor(date_part('epoch', k.at) / @seconds::integer)::bigint * @seconds::integer, count(*), max(k.channel_id)
  FROM (SELECT m.channel_id, m.status, m.reason, m.receipt, m.step, CASE m.status WHEN 'SENT' THEN m.sent_at WHEN 'DEAD' THEN m.next_attempt_at END AS at
          FROM belfry.messages m
         WHERE m.job_id = @job_id AND m.channel_id > @after::bigint
         ORDER BY m.channel_id
         LIMIT @keys) k
 GROUP BY 1, 2, 3, 4, 5;

-- name: LanePaused :one
-- Whether a lane is paused, and its messages held (lanes_pkey).
SELECT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = @lane AND l.paused_at IS NOT NULL);

-- name: NotificationSlice :many
-- The next @keys channels with any notification after @after, up to @bound, in key
-- order, and of each the row of this job, if it has one (notifications_pkey, two
-- descents a channel). The state is NULL where it has none.
WITH RECURSIVE walk (channel_id, n) AS (
    (SELECT f.channel_id, 1 FROM belfry.notifications f
      WHERE f.channel_id > @after::bigint AND f.channel_id <= @bound::bigint
      ORDER BY f.channel_id LIMIT 1)
    UNION ALL
    SELECT x.channel_id, w.n + 1
      FROM walk w
     CROSS JOIN LATERAL (SELECT f.channel_id FROM belfry.notifications f
                          WHERE f.channel_id > w.channel_id AND f.channel_id <= @bound::bigint
                          ORDER BY f.channel_id LIMIT 1) x
     WHERE w.n < @keys
)
SELECT w.channel_id, m.state, '', '', false, NULL::integer
  FROM walk w
  LEFT JOIN LATERAL (SELECT CASE WHEN f.withdrawn_at IS NOT NULL THEN 'withdrawn' WHEN f.read_at IS NOT NULL THEN 'read' ELSE 'unread' END AS state
                       FROM belfry.notifications f
                      WHERE f.channel_id = w.channel_id AND f.job_id = @job_id LIMIT 1) m ON true;

-- name: UnsentJobs :many
-- Jobs with messages that are not final, most urgent first: @limit at most, or of those
-- the ones with @ids. due_in is how long until the message that is due first, which waits
-- for reason: NULL when none is PENDING. held tells that belfry.sendable_jobs has not the
-- job. Relies on jobs_undelivered_idx, job_deliveries_pkey and messages_due_idx. No row:
-- nothing is left to send.
SELECT j.id AS job_id, j.type, j.status, j.lane, NOT EXISTS (SELECT FROM belfry.sendable_jobs s WHERE s.job_id = j.id) AS held, j.awaits_approval AS awaits, j.route, p.waiting, m.next_attempt_at - now() AS due_in, coalesce(m.reason, '') AS reason
  FROM belfry.jobs j
  JOIN belfry.job_progress p ON p.job_id = j.id
  LEFT JOIN LATERAL (SELECT next_attempt_at, reason FROM belfry.messages
                      WHERE job_id = j.id AND job_id > 0 AND status = 'PENDING'
                      ORDER BY next_attempt_at, channel_id LIMIT 1) m ON true
 WHERE j.delivered_at IS NULL AND j.started_at IS NOT NULL AND p.waiting > 0
   AND (@ids::bigint[] IS NULL OR j.id = ANY (@ids))
 ORDER BY j.priority DESC, j.id
 LIMIT @limit;

-- name: UnsentAhead :one
-- Jobs of the lane of job @id whose messages relays take before its own, most urgent first and
-- @limit at most, and how many messages of theirs wait. Relies on jobs_undelivered_idx.
SELECT coalesce(array_agg(a.id ORDER BY a.priority DESC, a.id), '{}'), coalesce(sum(a.waiting), 0)::bigint
  FROM (SELECT o.id, o.priority, p.waiting
          FROM belfry.jobs j
          JOIN belfry.jobs o ON o.lane = j.lane AND (o.priority > j.priority OR o.priority = j.priority AND o.id < j.id)
          JOIN belfry.sendable_jobs s ON s.job_id = o.id
          JOIN belfry.job_progress p ON p.job_id = o.id
         WHERE j.id = @id AND o.delivered_at IS NULL AND o.started_at IS NOT NULL AND p.waiting > 0
         ORDER BY o.priority DESC, o.id
         LIMIT @limit) a;

-- name: MessagesWaiting :one
-- The number of messages that are not final and may be sent now: the messages of
-- belfry.sendable_jobs whose deliver_at has come. Relies on jobs_undelivered_idx and
-- job_deliveries_pkey. Always one row.
SELECT coalesce(sum(p.waiting), 0)::bigint
  FROM belfry.sendable_jobs s
  JOIN belfry.jobs j ON j.id = s.job_id
  JOIN belfry.job_progress p ON p.job_id = s.job_id
 WHERE coalesce(j.deliver_at <= now(), true);
