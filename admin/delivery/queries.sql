-- Statements of recalls and reports. The other .sql files are named after their subjects.
-- name: MessagesRing :exec
-- Wakes relays when the transaction commits.
SELECT belfry.ring('belfry_messages');

-- name: OperatorAct :exec
-- Sets actor and reason for the event that a trigger writes in this transaction.
SELECT belfry.act(@actor, @reason);

-- name: RecallRecord :exec
-- Marks a recall's beginning or end; the trigger jobs_record writes the
-- event. Zero rows if the job was resumed or deleted.
UPDATE belfry.jobs
   SET recalled_at = clock_timestamp()
 WHERE id = @id AND fence = @fence AND status IN ('ABORTED', 'PROCESSED', 'FAILED');

-- name: RecallCount :exec
-- Adds the withdrawn rows of one step of a recall, as the last statement of its
-- transaction. Zero rows if the job was resumed or deleted; the caller rolls back.
UPDATE belfry.jobs
   SET recalled = recalled + @recalled
 WHERE id = @id AND fence = @fence AND status IN ('ABORTED', 'PROCESSED', 'FAILED');

-- name: RecallHolders :many
-- The sessions that keep rows of the job locked, of the channels after @after up to @to, as db.LockHolder: those whose
-- transactions locked or changed them last. No row: none is locked now, or several sessions share the lock.
SELECT DISTINCT coalesce(a.pid, 0) AS pid, coalesce(a.usename::text, '') AS role, coalesce(a.application_name, '') AS application,
       a.xact_start AS since, coalesce(x.gid, '') AS prepared, '' AS locked, false AS waits
  FROM (SELECT m.xmax AS xid FROM belfry.message_rows m WHERE m.job_id = @job_id AND m.channel_id > @after::bigint AND m.channel_id <= @to::bigint
        UNION ALL
        SELECT f.xmax FROM belfry.notifications f
         WHERE f.channel_id > @after::bigint AND f.channel_id <= @to::bigint AND f.arrival = (SELECT j.arrival FROM belfry.jobs j WHERE j.id = @job_id)) t
  JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = t.xid
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN pg_prepared_xacts x ON l.pid IS NULL AND x.transaction = t.xid
 ORDER BY 1;

-- name: MessageRecall :one
-- One step of a recall through a job's messages: at most @keys after @after, up to
-- @bound, in key order (messages_pkey). PENDING and QUEUED become CANCELLED; those in
-- flight are marked, so that their attempt is the last (I8: their status is
-- the relay's to change). Locked rows are skipped. Returns the number of examined keys, the
-- last one (NULL at the end), the number of cancelled messages, of messages for which it was
-- too late (sent, dead, in flight, awaiting a receipt), and of skipped messages, which were
-- locked or just changed. belfry.own_claimed precedes it in the transaction: a message of a lease whose row was never
-- changed was locked then, and is in flight.
WITH leased AS MATERIALIZED (
    SELECT u.channel_id
      FROM belfry.leases l CROSS JOIN LATERAL unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
     WHERE u.job_id = @job_id
), looked AS MATERIALIZED (
    SELECT m.channel_id, m.receipt IS NOT NULL AS awaited,
           CASE WHEN m.status = 'PENDING' AND m.lease_id IS NULL AND m.channel_id IN (SELECT l.channel_id FROM leased l) THEN 'PROCESSING' ELSE m.status END AS status,
           m.status IN ('PENDING', 'QUEUED') OR m.status = 'PROCESSING' AND m.recalled_at IS NULL AS open
      FROM belfry.message_rows m
     WHERE m.job_id = @job_id AND m.channel_id > @after::bigint AND m.channel_id <= @bound::bigint
     ORDER BY m.channel_id
     LIMIT @keys
), locked AS MATERIALIZED (
    SELECT k.tid, k.status
      FROM (SELECT channel_id FROM looked WHERE open ORDER BY channel_id) o
     CROSS JOIN LATERAL (SELECT m.ctid AS tid, m.status FROM belfry.message_rows m
                          WHERE m.job_id = @job_id AND m.channel_id = o.channel_id
                            AND (m.status <> 'PENDING' OR m.lease_id IS NOT NULL OR m.channel_id NOT IN (SELECT l.channel_id FROM leased l))
                            FOR UPDATE SKIP LOCKED) k
), cancelled AS (
    UPDATE belfry.message_rows m
       SET status = 'CANCELLED', reason = 'recalled', next_attempt_at = statement_timestamp()
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l WHERE l.status IN ('PENDING', 'QUEUED')))
       AND m.job_id = @job_id AND m.status IN ('PENDING', 'QUEUED')
    RETURNING m.channel_id
), marked AS (
    UPDATE belfry.message_rows m
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
-- One step of a recall through the notifications: the next @keys channels with notifications in the
-- job's partition after @after, up to @bound, and the row of this job for each (notifications_pkey, two
-- descents per channel at any number of older rows). Unread notifications are withdrawn.
-- Columns as in MessageRecall; it is too late for read ones.
WITH RECURSIVE walk (channel_id, n) AS (
    (SELECT f.channel_id, 1 FROM belfry.notifications f
      WHERE f.channel_id > @after::bigint AND f.channel_id <= @bound::bigint
        AND f.arrival >= (SELECT belfry.notifications_from(belfry.notifications_part(j.arrival)) FROM belfry.jobs j WHERE j.id = @job_id)
        AND f.arrival < (SELECT belfry.notifications_from(belfry.notifications_part(j.arrival) + 1) FROM belfry.jobs j WHERE j.id = @job_id)
      ORDER BY f.channel_id LIMIT 1)
    UNION ALL
    SELECT x.channel_id, w.n + 1
      FROM walk w
     CROSS JOIN LATERAL (SELECT f.channel_id FROM belfry.notifications f
                          WHERE f.channel_id > w.channel_id AND f.channel_id <= @bound::bigint
                            AND f.arrival >= (SELECT belfry.notifications_from(belfry.notifications_part(j.arrival)) FROM belfry.jobs j WHERE j.id = @job_id)
                            AND f.arrival < (SELECT belfry.notifications_from(belfry.notifications_part(j.arrival) + 1) FROM belfry.jobs j WHERE j.id = @job_id)
                          ORDER BY f.channel_id LIMIT 1) x
     WHERE w.n < @keys
), looked AS MATERIALIZED (
    SELECT w.channel_id, m.read, NOT m.read AND m.withdrawn_at IS NULL AS open
      FROM walk w
      LEFT JOIN LATERAL (SELECT belfry.inbox_is_read(f.channel_id, f.arrival, f.read_at) AS read, f.withdrawn_at FROM belfry.notifications f
                          WHERE f.channel_id = w.channel_id AND f.arrival = (SELECT j.arrival FROM belfry.jobs j WHERE j.id = @job_id) LIMIT 1) m ON true
), locked AS MATERIALIZED (
    SELECT k.tid
      FROM (SELECT channel_id FROM looked WHERE open ORDER BY channel_id) o
     CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.notifications m
                          WHERE m.channel_id = o.channel_id AND m.arrival = (SELECT j.arrival FROM belfry.jobs j WHERE j.id = @job_id)
                            FOR UPDATE SKIP LOCKED) k
), withdrawn AS (
    UPDATE belfry.notifications m
       SET withdrawn_at = clock_timestamp()
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l)) AND m.arrival = (SELECT j.arrival FROM belfry.jobs j WHERE j.id = @job_id) -- positions are unique in its partition
       AND NOT belfry.inbox_is_read(m.channel_id, m.arrival, m.read_at) AND m.withdrawn_at IS NULL
    RETURNING m.channel_id
)
SELECT (SELECT count(*) FROM looked), (SELECT max(channel_id) FROM looked),
       (SELECT count(*) FROM withdrawn),
       (SELECT ARRAY[count(*)] FROM looked WHERE read),
       (SELECT count(*) FROM looked WHERE open) - (SELECT count(*) FROM withdrawn);

-- name: DeliveryCounts :many
-- One step of counting a job's messages by status, reason, whether a receipt is awaited,
-- place in the route and time of sending or death, to @seconds: at most @keys after @after
-- (messages_pkey, job_claims_pkey), with the highest key of each count. No row at the end.
SELECT CASE WHEN k.queued THEN 'QUEUED' WHEN k.claimed THEN 'PROCESSING' ELSE k.status END, coalesce(k.reason, ''), k.receipt IS NOT NULL, k.step::integer, floor(date_part('epoch', k.at) / @seconds::integer)::bigint * @seconds::integer, count(*), max(k.channel_id)
  FROM (SELECT m.channel_id, m.status, m.reason, m.receipt, m.step, CASE m.status WHEN 'SENT' THEN m.sent_at WHEN 'DEAD' THEN m.next_attempt_at END AS at, m.claimed,
               m.claimed AND belfry.push_of(@job_id, m.channel_id) IS NOT NULL AS queued
          FROM (SELECT r.*, r.status = 'PENDING' AND r.lease_id IS NULL
                            AND coalesce(r.channel_id <= (SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = @job_id), false) AS claimed
                  FROM belfry.message_rows r) m
         WHERE m.job_id = @job_id AND m.channel_id > @after::bigint
         ORDER BY m.channel_id
         LIMIT @keys) k
 GROUP BY k.status, k.claimed, k.queued, 2, 3, 4, 5;

-- name: LanePaused :one
-- Whether a lane is paused, and its messages held (lanes_pkey).
SELECT EXISTS (SELECT FROM belfry.lanes l WHERE l.name = @lane AND l.paused_at IS NOT NULL);

-- name: NotificationSlice :many
-- The next @keys channels with any notification in the job's partition after @after, up to @bound, in key
-- order, and the row of this job for each (notifications_pkey, two descents per channel). The
-- state is NULL without a row.
WITH RECURSIVE walk (channel_id, n) AS (
    (SELECT f.channel_id, 1 FROM belfry.notifications f
      WHERE f.channel_id > @after::bigint AND f.channel_id <= @bound::bigint
        AND f.arrival >= (SELECT belfry.notifications_from(belfry.notifications_part(j.arrival)) FROM belfry.jobs j WHERE j.id = @job_id)
        AND f.arrival < (SELECT belfry.notifications_from(belfry.notifications_part(j.arrival) + 1) FROM belfry.jobs j WHERE j.id = @job_id)
      ORDER BY f.channel_id LIMIT 1)
    UNION ALL
    SELECT x.channel_id, w.n + 1
      FROM walk w
     CROSS JOIN LATERAL (SELECT f.channel_id FROM belfry.notifications f
                          WHERE f.channel_id > w.channel_id AND f.channel_id <= @bound::bigint
                            AND f.arrival >= (SELECT belfry.notifications_from(belfry.notifications_part(j.arrival)) FROM belfry.jobs j WHERE j.id = @job_id)
                            AND f.arrival < (SELECT belfry.notifications_from(belfry.notifications_part(j.arrival) + 1) FROM belfry.jobs j WHERE j.id = @job_id)
                          ORDER BY f.channel_id LIMIT 1) x
     WHERE w.n < @keys
)
SELECT w.channel_id, m.state, '', '', false, NULL::integer
  FROM walk w
  LEFT JOIN LATERAL (SELECT CASE WHEN f.withdrawn_at IS NOT NULL THEN 'withdrawn' WHEN belfry.inbox_is_read(f.channel_id, f.arrival, f.read_at) THEN 'read' ELSE 'unread' END AS state
                       FROM belfry.notifications f
                      WHERE f.channel_id = w.channel_id AND f.arrival = (SELECT j.arrival FROM belfry.jobs j WHERE j.id = @job_id) LIMIT 1) m ON true;

-- name: UnsentJobs :many
-- At most @limit jobs with messages that are not final, the most urgent first, or only jobs
-- among @ids. due_in is the time until the first message is due, and reason the reason of its
-- wait; both are NULL without a PENDING message. held reports that belfry.sendable_jobs lacks
-- the job. Relies on jobs_undelivered_idx, job_deliveries_pkey and messages_due_idx. No row
-- without such messages.
SELECT j.id AS job_id, j.type, j.status, j.lane, NOT EXISTS (SELECT FROM belfry.sendable_jobs s WHERE s.job_id = j.id) AS held, j.awaits_approval AS awaits,
       coalesce((SELECT l.paused_by FROM belfry.lanes l WHERE l.name = j.lane AND l.paused_at IS NOT NULL), '') AS paused_by, j.route, p.waiting, m.next_attempt_at - now() AS due_in, coalesce(m.reason, '') AS reason
  FROM belfry.jobs j
  JOIN belfry.job_progress p ON p.job_id = j.id
  LEFT JOIN LATERAL belfry.first_waiting(j.id) m ON true
 WHERE j.delivered_at IS NULL AND j.started_at IS NOT NULL AND p.waiting > 0
   AND (@ids::bigint[] IS NULL OR j.id = ANY (@ids))
 ORDER BY j.priority DESC, j.id
 LIMIT @limit;

-- name: UnsentAhead :one
-- At most @limit jobs in the lane of job @id whose messages relays take first, the most urgent
-- first, and the number of their waiting messages. Relies on jobs_undelivered_idx.
SELECT coalesce(array_agg(a.id ORDER BY a.priority DESC, a.id), '{}'), coalesce(sum(a.waiting), 0)::bigint
  FROM (SELECT o.id, o.priority, p.waiting
          FROM belfry.jobs j
          JOIN belfry.jobs o ON o.lane = j.lane AND (o.priority > j.priority OR o.priority = j.priority AND o.id < j.id)
          JOIN belfry.sendable_jobs s ON s.job_id = o.id
          JOIN belfry.job_progress p ON p.job_id = o.id
         WHERE j.id = @id AND o.delivered_at IS NULL AND o.started_at IS NOT NULL AND p.waiting > 0
         ORDER BY o.priority DESC, o.id
         LIMIT @limit) a;

-- name: MessagesWaitingFor :many
-- Like MessagesWaiting, by the first medium of the job's route.
SELECT j.route[1], sum(p.waiting)::bigint
  FROM belfry.sendable_jobs s
  JOIN belfry.jobs j ON j.id = s.job_id
  JOIN belfry.job_progress p ON p.job_id = s.job_id
 WHERE coalesce(j.deliver_at <= now(), true) AND j.route[1] IS NOT NULL
 GROUP BY 1;

-- name: MessagesWaiting :one
-- The number of messages that are not final and may be sent now: the messages of
-- belfry.sendable_jobs whose deliver_at has come. Relies on jobs_undelivered_idx and
-- job_deliveries_pkey. Always one row.
SELECT coalesce(sum(p.waiting), 0)::bigint
  FROM belfry.sendable_jobs s
  JOIN belfry.jobs j ON j.id = s.job_id
  JOIN belfry.job_progress p ON p.job_id = s.job_id
 WHERE coalesce(j.deliver_at <= now(), true);
