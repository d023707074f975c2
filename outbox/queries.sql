-- What writers, recalls and audits say. ledger.sql, dead.sql, senders.sql and
-- retention.sql have the rest.

-- name: NotificationCopy :exec
-- One notification per channel of a chunk, binary rows from the client. A
-- duplicate (channel, job) is 23505 on notifications_pkey (I2).
COPY belfry.notifications (channel_id, job_id) FROM STDIN (FORMAT binary);

-- name: MessageCopy :exec
-- One PENDING message per channel of a chunk, binary rows from the client. A
-- duplicate (job, channel) is 23505 on messages_pkey (I2).
COPY belfry.messages (job_id, channel_id, next_attempt_at) FROM STDIN (FORMAT binary);

-- name: DeliveriesAdd :exec
-- Adds to the counts of jobs, each once in @job_ids and in that order, ascending, what a
-- chunk or an operator's act has changed: after the messages and before the jobs' own
-- rows (job_deliveries_pkey).
INSERT INTO belfry.job_deliveries AS d (job_id, relay, written, dead, cancelled)
SELECT k.job_id, '', k.written, k.dead, k.cancelled
  FROM unnest(@job_ids::bigint[], @written::bigint[], @dead::bigint[], @cancelled::bigint[]) k (job_id, written, dead, cancelled)
    ON CONFLICT ON CONSTRAINT job_deliveries_pkey DO UPDATE
   SET written = d.written + excluded.written, dead = d.dead + excluded.dead, cancelled = d.cancelled + excluded.cancelled;

-- name: JobProgress :many
-- What has become of the messages of some jobs (jobs_pkey, job_deliveries_pkey).
SELECT p.job_id, p.messages, p.sent, p.dead, p.cancelled, p.waiting FROM belfry.job_progress p WHERE p.job_id = ANY (@ids::bigint[]);

-- name: ChunkDue :one
-- When a chunk's messages are due: at @deliver_at, or NULL: when the chunk's transaction
-- began. Relays are woken when that commits.
SELECT coalesce(@deliver_at::timestamptz, now()) FROM belfry.ring('belfry_messages');

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

-- name: MessageSlice :many
-- A job's messages in key order: at most @keys after @after, up to @bound
-- (messages_pkey), with the revision of the content that a provider took; NULL: none did.
SELECT m.channel_id, m.status, coalesce(m.last_error, ''), coalesce(m.reason, ''), m.receipt IS NOT NULL,
       CASE WHEN m.status = 'SENT' OR m.receipt IS NOT NULL THEN coalesce(m.revision, 0)::integer END
  FROM belfry.messages m
 WHERE m.job_id = @job_id AND m.channel_id > @after::bigint AND m.channel_id <= @bound::bigint
 ORDER BY m.channel_id
 LIMIT @keys;

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

-- name: SkipsOf :many
-- Those of @keys that a job skipped, and why (job_skips_pkey).
SELECT s.key::bigint, s.error
  FROM belfry.job_skips s
 WHERE s.job_id = @job_id AND s.key = ANY (@keys::text[]);

-- name: JobLeft :one
-- Whether retention deletes a job's rows, and how many skips it has (job_skips_pkey).
-- No row: no such job.
SELECT j.retention_at IS NOT NULL, (SELECT count(*) FROM belfry.job_skips s WHERE s.job_id = j.id)
  FROM belfry.jobs j
 WHERE j.id = @id;

-- name: ReportPage :many
-- The next @limit messages of job @id above the channel @after, in their order: the medium
-- of the route where each is or ended, the sender that took it, what became of it, and its times. Relies on
-- messages_pkey.
SELECT m.channel_id, coalesce(j.route[least(m.step + 1, cardinality(j.route))], ''), coalesce(m.sender, ''), m.status, coalesce(m.reason, ''), m.attempts::integer,
       CASE WHEN m.status IN ('PENDING', 'QUEUED') OR m.receipt IS NOT NULL AND m.status = 'PROCESSING' THEN m.next_attempt_at END,
       m.sent_at, CASE WHEN m.status = 'DEAD' THEN m.next_attempt_at END
  FROM belfry.messages m
  JOIN belfry.jobs j ON j.id = m.job_id
 WHERE m.job_id = @id AND m.channel_id > @after
 ORDER BY m.channel_id
 LIMIT @limit;

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

-- name: ActivityTest :one
-- Sends what the job @job_id says to the channel @channel_id, as a test of it, and returns
-- the activity's id. No row: no such job.
INSERT INTO belfry.activities (channel_id, category, title, body, data, variants, route, requested_by, test_of)
SELECT @channel_id, j.category, j.title, j.body, j.data, j.variants, j.route, @requested_by, j.id
  FROM belfry.jobs j
 WHERE j.id = @job_id
RETURNING id;

-- name: ActivityTold :exec
-- The event of the activity @id, which this transaction sent for @actor; none where an earlier
-- one has its idempotency key (activities_pkey). It says to whom, and not what.
INSERT INTO belfry.events (subject, name, kind, actor, detail)
SELECT 'channel', a.channel_id::text, 'sent_to', coalesce(nullif(@actor, ''), session_user),
       jsonb_strip_nulls(jsonb_build_object('session_user', session_user, 'activity', a.id, 'category', a.category, 'test_of', a.test_of))
  FROM belfry.activities a
 WHERE a.id = @id AND a.xmin = pg_current_xact_id()::xid;

-- name: ActivityGet :one
-- Reads the activity @id and what became of its message, '' when that is deleted. Relies
-- on activities_pkey and messages_pkey. No row: it was deleted, with its message.
SELECT a.id, a.channel_id, a.category, a.title, a.body, a.data, a.variants, a.route, a.deliver_at, a.idempotency_key,
       a.requested_by, a.created_at, a.test_of, coalesce(m.status, '') AS status, m.reason
  FROM belfry.activities a
  LEFT JOIN belfry.messages m ON m.job_id = a.id AND m.channel_id = a.channel_id
 WHERE a.id = @id;

-- name: ActivitySend :one
-- Sends one message to the channel @channel_id, in a transaction of its own, and returns
-- the activity's id. NULL: @route the category's, @deliver_at at once. With an
-- @idempotency_key that was seen, the first one's id. Bad input raises 23514 with the
-- column in the error. Always one row.
SELECT belfry.send(
    channel_id => @channel_id, category => @category, title => @title, body => @body, data => coalesce(@data::jsonb, '{}'),
    variants => coalesce(@variants::jsonb, '{}'), route => @route, deliver_at => @deliver_at,
    idempotency_key => @idempotency_key, requested_by => @requested_by);
