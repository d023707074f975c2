-- Statements of package outbox.

-- name: NotificationCopy :exec
-- One notification per channel of a chunk, binary rows from the client. A
-- duplicate (channel, job) is 23505 on notifications_pkey (I2).
COPY belfry.notifications (channel_id, job_id) FROM STDIN (FORMAT binary);

-- name: MessageCopy :exec
-- One PENDING message per channel of a chunk, binary rows from the client. A
-- duplicate (job, channel) is 23505 on messages_pkey (I2).
COPY belfry.messages (job_id, channel_id, next_attempt_at) FROM STDIN (FORMAT binary);

-- name: TransactionTime :one
-- The database's clock at the beginning of the chunk's transaction.
SELECT now();

-- name: StepBegin :exec
-- Deadlines for one transaction of a recall, an audit or retention; what it commits
-- is durable whatever the role's defaults.
SELECT set_config('lock_timeout', @lock_timeout_ms::text, true),
       set_config('statement_timeout', @timeout_ms::text, true),
       set_config('idle_in_transaction_session_timeout', @timeout_ms::text, true),
       set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
           ELSE current_setting('synchronous_commit') END, true);

-- name: OperatorAct :exec
-- Who acts and why, for the event that a trigger writes in this transaction.
SELECT belfry.act(@actor, @reason);

-- name: RecallRecord :exec
-- Marks a recall's beginning or end; the trigger jobs_record_recall writes the
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
-- a relay's hands are marked, so that their attempt is the last (I8: their status is
-- the relay's to change). Locked rows are skipped. Returns how many keys it looked
-- at, the last one (NULL: none was left), how many it cancelled, for how many it was
-- too late, and how many it left because they were locked or just changed.
WITH looked AS MATERIALIZED (
    SELECT m.channel_id, m.status,
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
       SET status = 'CANCELLED', reason = 'recalled'
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
       (SELECT count(*) FROM looked WHERE status IN ('PROCESSING', 'SENT', 'DEAD')),
       (SELECT count(*) FROM looked WHERE open)
           - (SELECT count(*) FROM cancelled) - (SELECT count(*) FROM marked);

-- name: NotificationRecall :one
-- One step of a recall through the notifications: the next @keys channels that have
-- any, after @after, up to @bound, and of each the row of this job (notifications_pkey,
-- two descents a channel, however many older rows it has). Unread ones are withdrawn.
-- Columns as in MessageRecall; too late are those that were read.
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
       (SELECT count(*) FROM looked WHERE read),
       (SELECT count(*) FROM looked WHERE open) - (SELECT count(*) FROM withdrawn);

-- name: DeliveryCounts :many
-- One step of counting a job's messages by status, reason and whether a receipt is
-- awaited: at most @keys after @after (messages_pkey), the highest of each count beside
-- it. No row: none was left.
SELECT k.status, coalesce(k.reason, ''), k.receipt IS NOT NULL, count(*), max(k.channel_id)
  FROM (SELECT m.channel_id, m.status, m.reason, m.receipt
          FROM belfry.messages m
         WHERE m.job_id = @job_id AND m.channel_id > @after::bigint
         ORDER BY m.channel_id
         LIMIT @keys) k
 GROUP BY k.status, k.reason, k.receipt IS NOT NULL;

-- name: MessageSlice :many
-- A job's messages in key order: at most @keys after @after, up to @bound
-- (messages_pkey).
SELECT m.channel_id, m.status, coalesce(m.last_error, ''), coalesce(m.reason, ''), m.receipt IS NOT NULL
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
SELECT w.channel_id, m.state, '', '', false
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

-- name: RetentionWalk :one
-- The walk of retention through the notifications, locked for one step, and how many
-- rows a channel has at most between its lowest and its highest job. No row: there is
-- none, or another node is at it.
SELECT w.job_ids, w.channel_id,
       (SELECT count(*) FROM belfry.jobs j
         WHERE j.id BETWEEN w.job_ids[1] AND w.job_ids[cardinality(w.job_ids)] AND j.rows_written > 0 AND j.type <> 'push')
  FROM belfry.retention_walks w
 WHERE w.name = 'notifications'
   FOR UPDATE SKIP LOCKED;

-- name: RetentionWalkExists :one
-- Whether a walk is on, locked or not.
SELECT EXISTS (SELECT FROM belfry.retention_walks w WHERE w.name = 'notifications');

-- name: RetentionWalkBegin :one
-- Begins a walk over the notifications of up to @jobs jobs that are at rest for
-- @seconds (jobs_unpruned_idx): from now on they cannot go on. A job of a type of the
-- user's own waits until none of its messages is left. Returns how many jobs it is
-- about; 0: nothing is old enough, or another node has just begun one.
WITH old AS (
    SELECT j.id
      FROM belfry.jobs j
     WHERE j.finished_at < statement_timestamp() - make_interval(secs => @seconds) AND j.pruned_at IS NULL
       AND j.rows_written > 0 AND j.type <> 'push'
       AND (j.type = 'inbox'
            OR (SELECT true FROM belfry.messages m WHERE m.job_id = j.id ORDER BY m.channel_id LIMIT 1) IS NULL)
     ORDER BY j.finished_at, j.id
     LIMIT @jobs
       FOR UPDATE SKIP LOCKED
), marked AS (
    UPDATE belfry.jobs j
       SET retention_at = coalesce(j.retention_at, clock_timestamp())
      FROM old
     WHERE j.id = old.id AND j.finished_at IS NOT NULL
    RETURNING j.id
), begun AS (
    INSERT INTO belfry.retention_walks (name, job_ids, channel_id)
    SELECT 'notifications', array_agg(k.id ORDER BY k.id), -9223372036854775808 FROM marked k HAVING count(*) > 0
        ON CONFLICT DO NOTHING
    RETURNING job_ids
)
SELECT coalesce((SELECT cardinality(job_ids) FROM begun), 0);

-- name: NotificationPrune :one
-- One step of the walk: the next @keys channels with any notification after @after,
-- and of each the rows of @job_ids, ascending (notifications_pkey: one descent a
-- channel and one range of its rows). Locked ones are skipped. Returns the last channel (NULL: none
-- was left), how many rows it deleted and how many it left because they were locked.
WITH RECURSIVE walk (channel_id, n) AS (
    (SELECT f.channel_id, 1 FROM belfry.notifications f
      WHERE f.channel_id > @after::bigint ORDER BY f.channel_id LIMIT 1)
    UNION ALL
    SELECT x.channel_id, w.n + 1
      FROM walk w
     CROSS JOIN LATERAL (SELECT f.channel_id FROM belfry.notifications f
                          WHERE f.channel_id > w.channel_id ORDER BY f.channel_id LIMIT 1) x
     WHERE w.n < @keys
), looked AS MATERIALIZED (
    SELECT m.channel_id, m.job_id
      FROM walk w
     CROSS JOIN LATERAL (SELECT f.channel_id, f.job_id FROM belfry.notifications f
                          WHERE f.channel_id = w.channel_id
                            AND f.job_id BETWEEN (@job_ids::bigint[])[1] AND (@job_ids::bigint[])[cardinality(@job_ids::bigint[])]
                          ORDER BY f.job_id OFFSET 0) m
     WHERE m.job_id = ANY (@job_ids::bigint[])
), locked AS MATERIALIZED (
    SELECT k.tid
      FROM looked l
     CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.notifications m
                          WHERE m.channel_id = l.channel_id AND m.job_id = l.job_id
                            FOR UPDATE SKIP LOCKED) k
), gone AS (
    DELETE FROM belfry.notifications m
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l)) AND m.job_id = ANY (@job_ids::bigint[])
    RETURNING m.channel_id
)
SELECT (SELECT max(channel_id) FROM walk), (SELECT count(*) FROM gone),
       (SELECT count(*) FROM looked) - (SELECT count(*) FROM gone);

-- name: RetentionWalkMove :exec
-- Moves the walk as the last statement of its step.
UPDATE belfry.retention_walks SET channel_id = @after WHERE name = 'notifications';

-- name: RetentionWalkEnd :exec
-- Ends the walk: its jobs have no notification left.
DELETE FROM belfry.retention_walks WHERE name = 'notifications';

-- name: JobsMarkPruned :exec
-- Marks jobs at rest that have no row left (jobs_pkey, messages_pkey).
UPDATE belfry.jobs j
   SET retention_at = coalesce(j.retention_at, clock_timestamp()), pruned_at = clock_timestamp()
 WHERE j.id = ANY (@ids::bigint[]) AND j.finished_at IS NOT NULL AND j.pruned_at IS NULL
   AND (SELECT true FROM belfry.messages m WHERE m.job_id = j.id ORDER BY m.channel_id LIMIT 1) IS NULL;

-- name: JobsWithOldMessages :many
-- Up to @jobs jobs at rest for @seconds that have written rows which are not known to
-- be deleted, after a key, in the order of their end (jobs_unpruned_idx).
SELECT j.id, j.finished_at, j.type
  FROM belfry.jobs j
 WHERE j.finished_at < statement_timestamp() - make_interval(secs => @seconds) AND j.pruned_at IS NULL
   AND (j.finished_at, j.id) > (@after_at::timestamptz, @after_id::bigint)
   AND j.rows_written > 0 AND j.type <> 'inbox'
 ORDER BY j.finished_at, j.id
 LIMIT @jobs;

-- name: JobMarkRetention :exec
-- Says that a job's rows are being deleted: it cannot go on from now on. Zero rows: it
-- went on, or is not old enough any more.
UPDATE belfry.jobs j
   SET retention_at = coalesce(j.retention_at, clock_timestamp())
 WHERE j.id = @id AND j.finished_at < statement_timestamp() - make_interval(secs => @seconds);

-- name: MessagePrune :one
-- One step through an old job's messages: at most @keys after @after (messages_pkey).
-- Those that nobody will send any more are deleted: SENT, DEAD and CANCELLED ones; held
-- ones of an ABORTED job, which cannot be resumed now; and of an ABORTED job, or
-- recalled, those whose relay died with them in its hands. Others stay: they are still
-- to be sent, or their receipt is awaited. What was recorded of their attempts goes with
-- them (attempts_message_idx). Returns the last key (NULL: none was left) and how many it deleted.
WITH looked AS MATERIALIZED (
    SELECT m.channel_id, m.ctid AS tid
      FROM belfry.messages m
     WHERE m.job_id = @job_id AND m.channel_id > @after::bigint
     ORDER BY m.channel_id
     LIMIT @keys
), locked AS MATERIALIZED (
    SELECT k.tid
      FROM looked l
     CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.messages m
                          WHERE m.job_id = @job_id AND m.channel_id = l.channel_id
                            AND (m.status IN ('SENT', 'DEAD', 'CANCELLED')
                                 OR m.status IN ('PENDING', 'QUEUED')
                                    AND EXISTS (SELECT FROM belfry.jobs j WHERE j.id = @job_id AND j.status = 'ABORTED')
                                 OR m.status = 'PROCESSING' AND m.receipt IS NULL
                                    AND NOT EXISTS (SELECT FROM belfry.leases h WHERE h.id = m.lease_id AND h.expires_at > clock_timestamp())
                                    AND (m.recalled_at IS NOT NULL
                                         OR EXISTS (SELECT FROM belfry.jobs j WHERE j.id = @job_id AND j.status = 'ABORTED')))
                            FOR UPDATE SKIP LOCKED) k
), gone AS (
    DELETE FROM belfry.messages m
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l)) AND m.job_id = @job_id
    RETURNING m.channel_id
), forgotten AS (
    DELETE FROM belfry.attempts a
     WHERE a.id = ANY (ARRAY(SELECT k.id FROM belfry.attempts k
                              WHERE k.job_id = @job_id AND k.channel_id > @after::bigint AND k.channel_id <= (SELECT max(l.channel_id) FROM looked l)
                                AND k.channel_id IN (SELECT g.channel_id FROM gone g)))
)
SELECT (SELECT max(channel_id) FROM looked), (SELECT count(*) FROM gone);

-- name: MessagesPrunable :one
-- What MessagePrune would delete, counted: one step of a dry run. Columns as there,
-- and how many it looked at.
SELECT max(k.channel_id), count(*), count(*) FILTER (WHERE k.status IN ('SENT', 'DEAD', 'CANCELLED')
         OR k.status IN ('PENDING', 'QUEUED') AND k.aborted
         OR k.status = 'PROCESSING' AND k.ownerless AND (k.recalled_at IS NOT NULL OR k.aborted))
  FROM (SELECT m.channel_id, m.status, m.recalled_at,
               m.receipt IS NULL AND NOT EXISTS (SELECT FROM belfry.leases h WHERE h.id = m.lease_id AND h.expires_at > clock_timestamp()) AS ownerless,
               EXISTS (SELECT FROM belfry.jobs j WHERE j.id = @job_id AND j.status = 'ABORTED') AS aborted
          FROM belfry.messages m
         WHERE m.job_id = @job_id AND m.channel_id > @after::bigint
         ORDER BY m.channel_id
         LIMIT @keys) k;

-- name: ActivityPrune :one
-- One step through the activities, oldest first: at most @keys below @after
-- (activities_pkey; their ids descend). Those that are older than @seconds go, with
-- their message and its attempts, when nobody will send it any more and that has been
-- so for @seconds (messages_pkey, attempts_message_idx). Returns the last id (NULL: those
-- that follow are younger, or none was left) and how many it deleted.
WITH looked AS MATERIALIZED (
    SELECT t.id, t.channel_id, t.created_at < statement_timestamp() - make_interval(secs => @seconds) AS old
      FROM belfry.activities t
     WHERE t.id < @after::bigint
     ORDER BY t.id DESC
     LIMIT @keys
), locked AS MATERIALIZED (
    SELECT k.tid
      FROM (SELECT l.id, l.channel_id FROM looked l WHERE l.old ORDER BY l.id DESC) o
     CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.messages m
                          WHERE m.job_id = o.id AND m.channel_id = o.channel_id AND m.status IN ('SENT', 'DEAD', 'CANCELLED')
                            AND greatest(m.next_attempt_at, m.sent_at, m.recalled_at) < statement_timestamp() - make_interval(secs => @seconds)
                            FOR UPDATE SKIP LOCKED) k
), gone AS (
    DELETE FROM belfry.messages m
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l))
    RETURNING m.job_id
), forgotten AS (
    DELETE FROM belfry.attempts a
     WHERE a.id = ANY (ARRAY(SELECT k.id FROM gone g
                              CROSS JOIN LATERAL (SELECT k.id FROM belfry.attempts k WHERE k.job_id = g.job_id OFFSET 0) k))
), ended AS (
    DELETE FROM belfry.activities t
     WHERE t.id = ANY (ARRAY(SELECT g.job_id FROM gone g))
)
SELECT (SELECT min(l.id) FROM looked l HAVING bool_and(l.old)), (SELECT count(*) FROM gone);

-- name: ActivitiesPrunable :one
-- What ActivityPrune would delete, counted: one step of a dry run. Columns as there.
SELECT CASE WHEN bool_and(k.old) THEN min(k.id) END, count(*) FILTER (WHERE k.old AND k.final)
  FROM (SELECT t.id, t.created_at < statement_timestamp() - make_interval(secs => @seconds) AS old,
               coalesce((SELECT m.status IN ('SENT', 'DEAD', 'CANCELLED')
                                AND greatest(m.next_attempt_at, m.sent_at, m.recalled_at) < statement_timestamp() - make_interval(secs => @seconds)
                           FROM belfry.messages m WHERE m.job_id = t.id AND m.channel_id = t.channel_id), false) AS final
          FROM belfry.activities t
         WHERE t.id < @after::bigint
         ORDER BY t.id DESC
         LIMIT @keys) k;

-- name: NotificationsPrunable :one
-- How many notifications retention would delete, by the sums of the inbox jobs that
-- are old enough (jobs_unpruned_idx), and how many of those jobs are at rest for
-- @jobs_seconds too.
SELECT coalesce(sum(j.rows_written), 0)::bigint,
       count(*) FILTER (WHERE j.finished_at < statement_timestamp() - make_interval(secs => @jobs_seconds))
  FROM belfry.jobs j
 WHERE j.finished_at < statement_timestamp() - make_interval(secs => @seconds) AND j.pruned_at IS NULL
   AND j.type = 'inbox' AND j.rows_written > 0;

-- name: JobsPrunable :many
-- Up to @jobs jobs at rest for @seconds that have no row left, or never had one, after
-- a key, in the order of their end (jobs_pruned_idx, jobs_unpruned_idx).
SELECT k.id, k.finished_at, ''
  FROM ((SELECT j.id, j.finished_at
           FROM belfry.jobs j
          WHERE j.pruned_at IS NOT NULL AND j.finished_at < statement_timestamp() - make_interval(secs => @seconds)
            AND (j.finished_at, j.id) > (@after_at::timestamptz, @after_id::bigint)
          ORDER BY j.finished_at, j.id
          LIMIT @jobs)
        UNION ALL
        (SELECT j.id, j.finished_at
           FROM belfry.jobs j
          WHERE j.finished_at IS NOT NULL AND j.pruned_at IS NULL AND j.rows_written = 0
            AND j.finished_at < statement_timestamp() - make_interval(secs => @seconds)
            AND (j.finished_at, j.id) > (@after_at::timestamptz, @after_id::bigint)
          ORDER BY j.finished_at, j.id
          LIMIT @jobs)) k
 ORDER BY k.finished_at, k.id
 LIMIT @jobs;

-- name: JobSkipsPrune :exec
-- Deletes up to @keys skips of a job that is about to be deleted (job_skips_pkey).
DELETE FROM belfry.job_skips s
 WHERE s.job_id = @id
   AND s.key = ANY (ARRAY(SELECT k.key FROM belfry.job_skips k WHERE k.job_id = @id ORDER BY k.key LIMIT @keys));

-- name: JobEventsPrune :exec
-- Deletes up to @keys events of a job that is about to be deleted (job_events_job_idx).
DELETE FROM belfry.job_events e
 WHERE e.id = ANY (ARRAY(SELECT k.id FROM belfry.job_events k WHERE k.job_id = @id ORDER BY k.id LIMIT @keys));

-- name: JobPrune :exec
-- Deletes one job that is at rest for @seconds and has no row, with its revisions.
-- Zero rows: it went on, or another node was first.
DELETE FROM belfry.jobs j
 WHERE j.id = @id AND j.finished_at < statement_timestamp() - make_interval(secs => @seconds)
   AND (j.pruned_at IS NOT NULL OR j.rows_written = 0);

-- name: EventsPrune :one
-- Deletes, of the @keys oldest events (events_pkey), those older than @seconds; all of
-- them older: there may be more.
WITH looked AS MATERIALIZED (
    SELECT e.id, e.at < statement_timestamp() - make_interval(secs => @seconds) AS old
      FROM belfry.events e
     ORDER BY e.id
     LIMIT @keys
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM belfry.events e WHERE e.id = ANY (ARRAY(SELECT l.id FROM looked l WHERE l.old)) RETURNING e.id
)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) > 0 AND bool_and(old) FROM looked);

-- name: EventsPrunable :one
-- What EventsPrune would delete, counted: one step of a dry run, after @after.
SELECT max(k.id), count(*) FILTER (WHERE k.at < statement_timestamp() - make_interval(secs => @seconds))
  FROM (SELECT e.id, e.at FROM belfry.events e WHERE e.id > @after::bigint ORDER BY e.id LIMIT @keys) k;

-- name: RetentionRecord :one
-- The event of a prune, in the transaction of the first step that deletes something.
INSERT INTO belfry.events (subject, kind, actor, reason, detail)
VALUES ('retention', 'pruned', coalesce(nullif(@actor, ''), session_user), @reason,
        jsonb_build_object('session_user', session_user, 'deleted', @deleted::jsonb))
RETURNING id;

-- name: RetentionRecordMore :exec
-- Adds a later step of the same prune to its event, in the step's transaction.
UPDATE belfry.events e
   SET detail = jsonb_set(e.detail, '{deleted}', @deleted::jsonb)
 WHERE e.id = @id;

-- The ledger: claims, handovers, looks, settlements, receipts.

-- name: LedgerBegin :exec
-- Opens a transaction of the ledger that is sent in one piece: its deadline on the
-- server; durability whatever the role's defaults, or with @durable false none of its
-- own, which is for claims: a handover that is durable makes them so; times that a
-- client without prepared statements can read, whatever the role's DateStyle; and no
-- plan that reads or sorts more than it needs for a few keys, however old the
-- statistics are.
SELECT set_config('statement_timeout', @timeout_ms::text, true),
       set_config('lock_timeout', @timeout_ms::text, true),
       set_config('datestyle', 'ISO', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('synchronous_commit', CASE WHEN NOT @durable::boolean THEN 'off' WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
           ELSE current_setting('synchronous_commit') END, true);

-- name: CandidateList :many
-- The jobs that may have messages to send, most urgent first (jobs_undelivered_idx).
SELECT s.job_id, s.lane, s.priority FROM belfry.sendable_jobs s;

-- name: MessageClaim :many
-- Takes up to @keys due messages of one job into @relay's hands, in the order of
-- messages_due_idx after (@after_at, @after_channel), under the new lease @lease of
-- @seconds.
-- Locked ones are passed over. No row: nothing is due there, or the job is ABORTED or
-- gone. The lease may name more keys than were taken: they count for nothing.
-- What due has found is locked and goes by ctid: the UPDATE needs no other guard, and
-- one that an index could serve would let a plan walk that index, dead entries and all.
WITH due AS MATERIALIZED (
    SELECT m.ctid AS tid, m.job_id, m.channel_id
      FROM belfry.messages m
     WHERE m.job_id = @job_id AND m.job_id > 0 AND m.status = 'PENDING'
       AND (m.next_attempt_at, m.channel_id) > (@after_at::timestamptz, @after_channel::bigint)
       AND m.next_attempt_at <= statement_timestamp()
       AND (SELECT j.status <> 'ABORTED' FROM belfry.jobs j WHERE j.id = @job_id)
     ORDER BY m.next_attempt_at, m.channel_id
     LIMIT @keys
       FOR UPDATE SKIP LOCKED
), lease AS (
    INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids)
    SELECT @lease::bigint, @relay, clock_timestamp() + make_interval(secs => @seconds), array_agg(d.job_id), array_agg(d.channel_id)
      FROM due d HAVING count(*) > 0
    RETURNING id
), claimed AS (
    UPDATE belfry.messages m
       SET status = 'PROCESSING', lease_id = (SELECT l.id FROM lease l)
     WHERE m.ctid = ANY (ARRAY(SELECT d.tid FROM due d))
    RETURNING m.job_id, m.channel_id, m.lease_id, m.step, m.attempts, m.crashes, m.reason, m.next_attempt_at
)
SELECT c.job_id, c.channel_id, c.lease_id, c.step, c.attempts, c.crashes, coalesce(c.reason, ''),
       CASE WHEN c.step + c.attempts + c.crashes > 0 OR c.reason IS NOT NULL -- a redrive leaves the reason only
            THEN EXISTS (SELECT FROM belfry.attempts a WHERE a.job_id = c.job_id AND a.channel_id = c.channel_id AND a.outcome IN ('unknown', 'crashed'))
            ELSE false END,
       c.next_attempt_at
  FROM claimed c
 ORDER BY c.next_attempt_at, c.channel_id;

-- name: ActivityClaim :many
-- As MessageClaim, of the messages of all activities that are due at @since or later
-- (messages_activity_idx).
WITH due AS MATERIALIZED (
    SELECT m.ctid AS tid, m.job_id, m.channel_id
      FROM belfry.messages m
     WHERE m.job_id < 0 AND m.status = 'PENDING'
       AND m.next_attempt_at >= @since::timestamptz AND m.next_attempt_at <= statement_timestamp()
     ORDER BY m.next_attempt_at, m.job_id, m.channel_id
     LIMIT @keys
       FOR UPDATE SKIP LOCKED
), lease AS (
    INSERT INTO belfry.leases (id, relay, expires_at, job_ids, channel_ids)
    SELECT @lease::bigint, @relay, clock_timestamp() + make_interval(secs => @seconds), array_agg(d.job_id), array_agg(d.channel_id)
      FROM due d HAVING count(*) > 0
    RETURNING id
), claimed AS (
    UPDATE belfry.messages m
       SET status = 'PROCESSING', lease_id = (SELECT l.id FROM lease l)
     WHERE m.ctid = ANY (ARRAY(SELECT d.tid FROM due d))
    RETURNING m.job_id, m.channel_id, m.lease_id, m.step, m.attempts, m.crashes, m.reason, m.next_attempt_at
)
SELECT c.job_id, c.channel_id, c.lease_id, c.step, c.attempts, c.crashes, coalesce(c.reason, ''),
       CASE WHEN c.step + c.attempts + c.crashes > 0 OR c.reason IS NOT NULL -- a redrive leaves the reason only
            THEN EXISTS (SELECT FROM belfry.attempts a WHERE a.job_id = c.job_id AND a.channel_id = c.channel_id AND a.outcome IN ('unknown', 'crashed'))
            ELSE false END,
       c.next_attempt_at
  FROM claimed c
 ORDER BY c.next_attempt_at, c.job_id, c.channel_id;

-- name: HandoverRecord :exec
-- Writes what is about to be handed to providers, and by which step of its route, one
-- row per lease that lives. A lease that has expired gets none: the look that follows
-- says so.
INSERT INTO belfry.handovers (lease_id, job_ids, channel_ids, steps)
SELECT k.lease_id, array_agg(k.job_id), array_agg(k.channel_id), array_agg(k.step)
  FROM unnest(@lease_ids::bigint[], @job_ids::bigint[], @channel_ids::bigint[], @steps::smallint[]) k(lease_id, job_id, channel_id, step)
 WHERE k.lease_id = ANY (ARRAY(SELECT l.id FROM belfry.leases l WHERE l.id = ANY (@leases::bigint[]) AND l.expires_at > clock_timestamp()))
 GROUP BY k.lease_id;

-- name: MessageLook :one
-- The look right before the call: one verdict per key, in their order (messages_pkey,
-- leases_pkey, jobs_pkey). @leases and @jobs are the different ones among the keys. It
-- repeats the rule of the view sendable_messages, lease included.
SELECT array_agg(v.verdict ORDER BY v.n)
  FROM (SELECT k.n,
               CASE WHEN m.job_id IS NULL OR NOT k.lease_id = ANY (ARRAY(SELECT l.id FROM belfry.leases l
                             WHERE l.id = ANY (@leases::bigint[]) AND l.expires_at > clock_timestamp())) THEN 'lost'
                    WHEN m.recalled_at IS NOT NULL THEN 'recalled'
                    WHEN k.job_id > 0 AND NOT k.job_id = ANY (ARRAY(SELECT j.id FROM belfry.jobs j
                             WHERE j.id = ANY (@jobs::bigint[]) AND j.status <> 'ABORTED')) THEN 'held'
                    ELSE 'send' END AS verdict
          FROM unnest(@lease_ids::bigint[], @job_ids::bigint[], @channel_ids::bigint[]) WITH ORDINALITY k(lease_id, job_id, channel_id, n)
          LEFT JOIN LATERAL (SELECT m.job_id, m.recalled_at FROM belfry.messages m
                              WHERE m.job_id = k.job_id AND m.channel_id = k.channel_id
                                AND m.status = 'PROCESSING' AND m.lease_id = k.lease_id AND m.receipt IS NULL LIMIT 1) m ON true) v;

-- name: MessagesSent :one
-- Settles plain successes: PROCESSING → SENT, by their owner (messages_pkey). Returns
-- the numbers of the keys that it changed. Of the others MessagesSettle says what became
-- of them.
WITH changed AS (
    UPDATE belfry.messages m
       SET status = 'SENT', sent_at = statement_timestamp(), attempts = k.attempts, receipt = nullif(k.receipt, ''), reason = NULL, last_error = NULL
      FROM unnest(@lease_ids::bigint[], @job_ids::bigint[], @channel_ids::bigint[], @attempts::smallint[], @receipts::text[])
           WITH ORDINALITY k(lease_id, job_id, channel_id, attempts, receipt, n)
     WHERE m.job_id = k.job_id AND m.channel_id = k.channel_id
       AND m.status = 'PROCESSING' AND m.lease_id = k.lease_id AND m.receipt IS NULL
    RETURNING k.n
)
SELECT coalesce(array_agg(c.n), '{}') FROM changed c;

-- name: MessagesSettle :one
-- Settles any outcomes of messages in PROCESSING: by their owner, or where lease_id is
-- 0 by the receipt that is awaited (messages_pkey). What was recalled meanwhile
-- becomes CANCELLED where it would be PENDING or DEAD. The records are appended to
-- the attempts, and the addresses to the invalid ones, of those keys only that were
-- changed. With @take the owner changes: its lease is taken from it. Returns the numbers
-- of the keys and the status each has now: those changed, those that a call before had
-- changed, and '' for those that somebody has just changed otherwise: try these again.
-- Keys that are not returned have another owner.
WITH looked AS MATERIALIZED (
    SELECT k.lease_id, k.status, k.reason, k.untouched, k.step, k.attempts, k.crashed, k.wait, k.receipt, k.error, k.n,
           m.tid, m.status AS was, m.receipt AS had
      FROM unnest(@lease_ids::bigint[], @job_ids::bigint[], @channel_ids::bigint[], @statuses::text[], @reasons::text[], @untouched::boolean[],
                  @steps::smallint[], @attempts::smallint[], @crashed::smallint[], @waits::double precision[], @receipts::text[], @errors::text[])
           WITH ORDINALITY k(lease_id, job_id, channel_id, status, reason, untouched, step, attempts, crashed, wait, receipt, error, n)
     CROSS JOIN LATERAL (SELECT m.ctid AS tid, m.status, m.receipt FROM belfry.messages m
                          WHERE m.job_id = k.job_id AND m.channel_id = k.channel_id
                            AND (m.lease_id = k.lease_id AND (m.status <> 'PROCESSING' OR m.receipt IS NULL)
                                 OR (k.lease_id = 0 OR k.status = 'PROCESSING') AND m.receipt = k.receipt) LIMIT 1) m
), changed AS (
    UPDATE belfry.messages m
       SET status = CASE WHEN m.recalled_at IS NOT NULL AND k.status IN ('PENDING', 'DEAD') THEN 'CANCELLED' ELSE k.status END,
           reason = CASE WHEN m.recalled_at IS NOT NULL AND k.status IN ('PENDING', 'DEAD') THEN 'recalled' WHEN k.untouched THEN m.reason ELSE nullif(k.reason, '') END,
           step = CASE WHEN k.untouched THEN m.step ELSE k.step END,
           attempts = CASE WHEN k.untouched THEN m.attempts ELSE k.attempts END,
           crashes = m.crashes + k.crashed,
           next_attempt_at = CASE WHEN k.untouched OR k.status IN ('SENT', 'CANCELLED') THEN m.next_attempt_at ELSE statement_timestamp() + make_interval(secs => k.wait) END,
           lease_id = CASE WHEN k.status = 'PROCESSING' OR @take THEN NULL ELSE m.lease_id END,
           receipt = CASE WHEN k.status = 'PENDING' THEN NULL ELSE coalesce(nullif(k.receipt, ''), m.receipt) END,
           sent_at = CASE WHEN k.status = 'SENT' THEN statement_timestamp() END,
           last_error = CASE WHEN k.untouched THEN m.last_error ELSE nullif(k.error, '') END
      FROM looked k
     WHERE m.ctid = k.tid AND m.status = 'PROCESSING'
       AND (m.lease_id = k.lease_id AND m.receipt IS NULL OR k.lease_id = 0 AND m.receipt = k.receipt)
    RETURNING k.n, m.job_id, m.channel_id, m.status
), recorded AS (
    INSERT INTO belfry.attempts (job_id, channel_id, step, attempt, medium, sender, outcome, reason, code, error)
    SELECT c.job_id, c.channel_id, r.step, r.attempt, r.medium, r.sender, r.outcome, r.reason, r.code, r.error
      FROM unnest(@record_of::bigint[], @record_steps::smallint[], @record_attempts::smallint[], @record_media::text[], @record_senders::text[],
                  @record_outcomes::text[], @record_reasons::text[], @record_codes::text[], @record_errors::text[])
           WITH ORDINALITY r(n, step, attempt, medium, sender, outcome, reason, code, error, i)
      JOIN changed c ON c.n = r.n
     ORDER BY r.i
), invalid AS (
    INSERT INTO belfry.invalid_addresses (channel_id, medium, sha256, sender, error, job_id)
    SELECT c.channel_id, i.medium, i.sha256, i.sender, i.error, c.job_id
      FROM unnest(@invalid_of::bigint[], @invalid_media::text[], @invalid_sha256::bytea[], @invalid_senders::text[], @invalid_errors::text[])
           i(n, medium, sha256, sender, error)
      JOIN changed c ON c.n = i.n
     ORDER BY c.channel_id, i.medium, i.sha256
        ON CONFLICT DO NOTHING
)
SELECT coalesce(array_agg(r.n), '{}'), coalesce(array_agg(r.status), '{}')
  FROM (SELECT c.n, c.status FROM changed c
        UNION ALL
        SELECT k.n, CASE WHEN k.was = 'PROCESSING' AND (k.had IS NULL OR k.lease_id = 0) THEN '' ELSE k.was END
          FROM looked k WHERE k.n NOT IN (SELECT c.n FROM changed c)) r;

-- name: LeasesEnd :exec
-- Deletes those of @ids, with their handovers, of which nothing is left in PROCESSING
-- (leases_pkey, messages_pkey, handovers_lease_idx). A lease that another session has
-- locked stays, and goes when it expires.
WITH gone AS (
    DELETE FROM belfry.leases l
     WHERE l.id = ANY (ARRAY(SELECT k.id FROM belfry.leases k WHERE k.id = ANY (@ids::bigint[]) ORDER BY k.id FOR UPDATE SKIP LOCKED))
       AND NOT EXISTS (SELECT FROM unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
                        CROSS JOIN LATERAL (SELECT FROM belfry.messages m
                                             WHERE m.job_id = u.job_id AND m.channel_id = u.channel_id
                                               AND m.lease_id = l.id AND m.status = 'PROCESSING' LIMIT 1) x)
    RETURNING l.id
)
DELETE FROM belfry.handovers h
 WHERE h.lease_id = ANY (ARRAY(SELECT g.id FROM gone g));

-- name: LeaseRenew :many
-- Prolongs leases of @relay that have not expired (leases_pkey). Returns their ids.
UPDATE belfry.leases l
   SET expires_at = clock_timestamp() + make_interval(secs => @seconds)
 WHERE l.id = ANY (@ids::bigint[]) AND l.relay = @relay AND l.expires_at > clock_timestamp()
RETURNING l.id;

-- name: LeasesExpired :many
-- The leases that expired first (leases_expiry_idx).
SELECT l.id, l.relay FROM belfry.leases l
 WHERE l.expires_at <= clock_timestamp()
 ORDER BY l.expires_at LIMIT @n;

-- name: LeasesOrphaned :many
-- Leases of @relay that are not among @known and were claimed longer than @seconds ago.
SELECT l.id, l.relay FROM belfry.leases l
 WHERE l.relay = @relay AND NOT l.id = ANY (@known::bigint[]) AND l.claimed_at < clock_timestamp() - make_interval(secs => @seconds)
 ORDER BY l.claimed_at, l.id LIMIT @n;

-- name: LeaseMessages :many
-- What is PROCESSING under some leases, and whether it was handed to a provider
-- (leases_pkey, handovers_lease_idx, messages_pkey). One that was is at the step that it
-- was called by: those before were passed over, and their attempts do not count.
WITH handed AS MATERIALIZED (
    SELECT h.lease_id, u.job_id, u.channel_id, max(u.step) AS step
      FROM belfry.handovers h
     CROSS JOIN LATERAL unnest(h.job_ids, h.channel_ids, h.steps) u(job_id, channel_id, step)
     WHERE h.lease_id = ANY (@ids::bigint[])
     GROUP BY h.lease_id, u.job_id, u.channel_id
)
SELECT m.job_id, m.channel_id, l.id, greatest(m.step, h.step), CASE WHEN h.step > m.step THEN 0 ELSE m.attempts END, m.crashes, coalesce(m.reason, ''),
       EXISTS (SELECT FROM belfry.attempts a WHERE a.job_id = m.job_id AND a.channel_id = m.channel_id AND a.outcome IN ('unknown', 'crashed')),
       coalesce(CASE WHEN m.job_id > 0 THEN (SELECT j.route FROM belfry.jobs j WHERE j.id = m.job_id)
                     ELSE (SELECT t.route FROM belfry.activities t WHERE t.id = m.job_id) END, '{}'),
       h.lease_id IS NOT NULL
  FROM belfry.leases l
 CROSS JOIN LATERAL unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
 CROSS JOIN LATERAL (SELECT m.job_id, m.channel_id, m.step, m.attempts, m.crashes, m.reason FROM belfry.messages m
                      WHERE m.job_id = u.job_id AND m.channel_id = u.channel_id AND m.lease_id = l.id AND m.status = 'PROCESSING' LIMIT 1) m
  LEFT JOIN handed h ON h.lease_id = l.id AND h.job_id = m.job_id AND h.channel_id = m.channel_id
 WHERE l.id = ANY (@ids::bigint[])
 ORDER BY l.id, m.job_id, m.channel_id;

-- name: LeaseExpire :exec
-- Ends a living lease of @relay now, in a transaction of its own (leases_pkey): a look
-- that comes later finds it expired, and what was handed over for an earlier one is
-- seen by the recovery that follows.
UPDATE belfry.leases l
   SET expires_at = clock_timestamp()
 WHERE l.id = @id AND l.relay = @relay AND l.expires_at > clock_timestamp();

-- name: LeaseLock :one
-- Locks a lease that has expired (leases_pkey). No row: it is gone, it lives, or
-- somebody else is at it.
SELECT l.id FROM belfry.leases l
 WHERE l.id = @id AND l.expires_at <= clock_timestamp()
   FOR UPDATE SKIP LOCKED;

-- name: LeaseMessagesLock :many
-- Locks what is PROCESSING under a lease, in key order, and says of each whether it was
-- handed to a provider. Locked ones are passed over.
SELECT m.job_id, m.channel_id,
       (m.job_id, m.channel_id) IN (SELECT v.job_id, v.channel_id FROM belfry.handovers h
                                     CROSS JOIN LATERAL unnest(h.job_ids, h.channel_ids) v(job_id, channel_id)
                                     WHERE h.lease_id = @id)
  FROM (SELECT u.job_id, u.channel_id
          FROM belfry.leases l
         CROSS JOIN LATERAL unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
         WHERE l.id = @id
         ORDER BY u.job_id, u.channel_id) k
 CROSS JOIN LATERAL (SELECT m.job_id, m.channel_id FROM belfry.messages m
                      WHERE m.job_id = k.job_id AND m.channel_id = k.channel_id AND m.lease_id = @id AND m.status = 'PROCESSING'
                        FOR UPDATE SKIP LOCKED) m;

-- name: LeaseLeft :one
-- How many messages are still PROCESSING under a lease; 0 when it has ended.
SELECT count(*)
  FROM belfry.leases l
 CROSS JOIN LATERAL unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
 CROSS JOIN LATERAL (SELECT FROM belfry.messages m
                      WHERE m.job_id = u.job_id AND m.channel_id = u.channel_id AND m.lease_id = l.id AND m.status = 'PROCESSING' LIMIT 1) x
 WHERE l.id = @id;

-- name: HandoversSweep :exec
-- Deletes handovers of leases that are gone: a relay that was just losing its lease
-- wrote them. A handover is never seen before its lease (leases_pkey).
DELETE FROM belfry.handovers h
 WHERE NOT EXISTS (SELECT FROM belfry.leases l WHERE l.id = h.lease_id);

-- name: ReceiptsDue :many
-- Takes up to @keys messages whose receipt is to be looked for (messages_receipt_idx),
-- so that nobody else does for @seconds, with what is recorded of their acceptance
-- (attempts_message_idx). By ctid as MessageClaim.
WITH due AS MATERIALIZED (
    SELECT m.ctid AS tid
      FROM belfry.messages m
     WHERE m.status = 'PROCESSING' AND m.receipt IS NOT NULL AND m.next_attempt_at <= statement_timestamp()
     ORDER BY m.next_attempt_at
     LIMIT @keys
       FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE belfry.messages m
       SET next_attempt_at = statement_timestamp() + make_interval(secs => @seconds)
     WHERE m.ctid = ANY (ARRAY(SELECT d.tid FROM due d))
    RETURNING m.job_id, m.channel_id, m.step, m.attempts, m.crashes, m.reason, m.receipt
)
SELECT t.job_id, t.channel_id, 0, t.step, t.attempts, t.crashes, coalesce(t.reason, ''),
       EXISTS (SELECT FROM belfry.attempts a WHERE a.job_id = t.job_id AND a.channel_id = t.channel_id AND a.outcome IN ('unknown', 'crashed')),
       coalesce(CASE WHEN t.job_id > 0 THEN (SELECT j.route FROM belfry.jobs j WHERE j.id = t.job_id)
                     ELSE (SELECT v.route FROM belfry.activities v WHERE v.id = t.job_id) END, '{}'),
       t.receipt, coalesce(a.medium, ''), coalesce(a.sender, ''), coalesce(extract(epoch FROM clock_timestamp() - a.at), 0)::double precision
  FROM taken t
  LEFT JOIN LATERAL (SELECT a.medium, a.sender, a.at FROM belfry.attempts a
                      WHERE a.job_id = t.job_id AND a.channel_id = t.channel_id AND a.outcome = 'accepted'
                      ORDER BY a.id DESC LIMIT 1) a ON true
 ORDER BY t.job_id, t.channel_id;

-- name: JobUnsent :one
-- Whether a job has a message that no relay has in its hands and that is to be sent
-- (messages_due_idx, messages_queued_idx).
SELECT EXISTS (SELECT FROM belfry.messages m WHERE m.job_id = @id AND m.job_id > 0 AND m.status = 'PENDING')
    OR EXISTS (SELECT FROM belfry.messages m WHERE m.job_id = @id AND m.status = 'QUEUED');

-- name: JobLockUndelivered :exec
-- Locks a job at rest that is not known to be delivered, so that a redrive of its
-- messages, which writes its row too, is before or after (jobs_pkey).
SELECT j.id FROM belfry.jobs j
 WHERE j.id = @id AND j.delivered_at IS NULL AND j.finished_at IS NOT NULL
   FOR NO KEY UPDATE;

-- name: JobMarkDelivered :exec
-- Marks a job at rest delivered that has nothing left to send: no message due or later
-- (messages_due_idx) or in a carrier's (messages_queued_idx), none in a relay's hands (every lease), no receipt awaited
-- (messages_receipt_idx). Zero rows: there is something left.
UPDATE belfry.jobs j
   SET delivered_at = clock_timestamp()
 WHERE j.id = @id AND j.delivered_at IS NULL AND j.finished_at IS NOT NULL
   AND NOT EXISTS (SELECT FROM belfry.messages m WHERE m.job_id = @id AND m.job_id > 0 AND m.status = 'PENDING')
   AND NOT EXISTS (SELECT FROM belfry.messages m WHERE m.job_id = @id AND m.status = 'QUEUED')
   AND NOT EXISTS (SELECT FROM belfry.leases l WHERE @id = ANY (l.job_ids))
   AND NOT EXISTS (SELECT FROM belfry.messages m WHERE m.status = 'PROCESSING' AND m.receipt IS NOT NULL AND m.job_id = @id);

-- name: RelayBeat :many
-- Renews a relay's heartbeat and tells for each of its senders how many relays with it
-- beat within @seconds, itself included. Relays not heard of for an hour are forgotten.
WITH beat AS (
    INSERT INTO belfry.relays (name, senders, in_hand) VALUES (@relay, @senders, @in_hand)
        ON CONFLICT (name) DO UPDATE SET heartbeat_at = clock_timestamp(), senders = excluded.senders, in_hand = excluded.in_hand
), gone AS (
    DELETE FROM belfry.relays r
     WHERE r.name = ANY (ARRAY(SELECT k.name FROM belfry.relays k
                                WHERE k.heartbeat_at < clock_timestamp() - interval '1 hour' AND k.name <> @relay FOR UPDATE SKIP LOCKED))
)
SELECT s.name, 1 + (SELECT count(*) FROM belfry.relays r
                     WHERE r.name <> @relay AND s.name = ANY (r.senders)
                       AND r.heartbeat_at > clock_timestamp() - make_interval(secs => @seconds))
  FROM unnest(@senders::text[]) s(name);

-- name: RelayLeave :exec
-- Forgets a relay that ends.
DELETE FROM belfry.relays r WHERE r.name = @relay;

-- name: SenderOverrides :many
-- What operators set about senders.
SELECT s.name, s.rate_per_second, s.concurrency, s.paused_at IS NOT NULL, s.pause_reason
  FROM belfry.senders s
 ORDER BY s.name;

-- name: InstallationID :one
-- The name of this database among others that use the same providers.
SELECT i.id FROM belfry.installation i;

-- Dead letters: operators' acts on messages that gave up.

-- name: DeadList :many
-- A page of dead letters, highest keys first: of the @keys below (@before_job_id,
-- @before_channel_id) and above (@low_job_id, @low_channel_id) those that match
-- (messages_dead_idx). A NULL filter matches everything. Every row begins with the
-- lowest key looked at; where none matched there is one row, its rest NULL. No row:
-- there is nothing left.
WITH looked AS MATERIALIZED (
    SELECT m.job_id, m.channel_id
      FROM belfry.messages m
     WHERE m.status = 'DEAD'
       AND (m.job_id, m.channel_id) < (@before_job_id::bigint, @before_channel_id::bigint)
       AND (m.job_id, m.channel_id) > (@low_job_id::bigint, @low_channel_id::bigint)
     ORDER BY m.job_id DESC, m.channel_id DESC
     LIMIT @keys
), matched AS MATERIALIZED (
    SELECT d.*
      FROM looked l
     CROSS JOIN LATERAL (SELECT v.job_id, v.channel_id, v.category, v.step, v.medium, v.reason, v.attempts, v.crashes, v.error, v.dead_at, v.held, v.kept
                           FROM belfry.dead_letters v
                          WHERE v.job_id = l.job_id AND v.channel_id = l.channel_id LIMIT 1) d
     WHERE (@medium::text IS NULL OR d.medium = @medium) AND (@reason::text IS NULL OR d.reason = @reason)
       AND (@since::timestamptz IS NULL OR d.dead_at >= @since) AND (@until::timestamptz IS NULL OR d.dead_at < @until)
       AND (@channel_id::bigint IS NULL OR d.channel_id = @channel_id)
)
SELECT e.job_id, e.channel_id, d.job_id, d.channel_id, d.category, d.step, d.medium, d.reason, d.attempts, d.crashes, d.error, d.dead_at, d.held, coalesce(d.kept, '')
  FROM (SELECT l.job_id, l.channel_id FROM looked l ORDER BY l.job_id, l.channel_id LIMIT 1) e
  LEFT JOIN matched d ON true
 ORDER BY d.job_id DESC, d.channel_id DESC
 LIMIT @limit;

-- name: DeadStep :many
-- One step through the dead letters: of the @keys after (@after_job_id,
-- @after_channel_id), up to and including (@high_job_id, @high_channel_id), those that
-- match, in key order (messages_dead_idx). Filters as in DeadList. Every row begins
-- with the highest key looked at; where none matched there is one row, its rest NULL.
-- No row: there is nothing left.
WITH looked AS MATERIALIZED (
    SELECT m.job_id, m.channel_id
      FROM belfry.messages m
     WHERE m.status = 'DEAD'
       AND (m.job_id, m.channel_id) > (@after_job_id::bigint, @after_channel_id::bigint)
       AND (m.job_id, m.channel_id) <= (@high_job_id::bigint, @high_channel_id::bigint)
     ORDER BY m.job_id, m.channel_id
     LIMIT @keys
), matched AS MATERIALIZED (
    SELECT d.*
      FROM looked l
     CROSS JOIN LATERAL (SELECT v.job_id, v.channel_id, v.medium, v.reason, v.dead_at, v.held, v.kept
                           FROM belfry.dead_letters v
                          WHERE v.job_id = l.job_id AND v.channel_id = l.channel_id LIMIT 1) d
     WHERE (@medium::text IS NULL OR d.medium = @medium) AND (@reason::text IS NULL OR d.reason = @reason)
       AND (@since::timestamptz IS NULL OR d.dead_at >= @since) AND (@until::timestamptz IS NULL OR d.dead_at < @until)
       AND (@channel_id::bigint IS NULL OR d.channel_id = @channel_id)
)
SELECT e.job_id, e.channel_id, d.job_id, d.channel_id, d.medium, d.reason, d.held, coalesce(d.kept, ''),
       (SELECT j.recalled_at FROM belfry.jobs j WHERE j.id = d.job_id)
  FROM (SELECT l.job_id, l.channel_id FROM looked l ORDER BY l.job_id DESC, l.channel_id DESC LIMIT 1) e
  LEFT JOIN matched d ON true
 ORDER BY d.job_id, d.channel_id;

-- name: DeadRedrive :many
-- Returns dead letters to the queue: those of @job_ids and @channel_ids, which are in
-- the order of their keys, that are still DEAD become PENDING and due now
-- (messages_pkey), at the step they died at with @same_step, else at the first.
-- Returns the keys of those it changed.
WITH locked AS MATERIALIZED (
    SELECT k.tid
      FROM unnest(@job_ids::bigint[], @channel_ids::bigint[]) c (job_id, channel_id)
     CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.messages m
                          WHERE m.job_id = c.job_id AND m.channel_id = c.channel_id AND m.status = 'DEAD'
                            FOR UPDATE) k
)
UPDATE belfry.messages m
   SET status = 'PENDING', reason = 'redriven', step = CASE WHEN @same_step::boolean THEN m.step ELSE 0 END,
       attempts = 0, crashes = 0, lease_id = NULL, receipt = NULL, next_attempt_at = statement_timestamp()
 WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l)) AND m.status = 'DEAD'
RETURNING m.job_id, m.channel_id;

-- name: DeadDiscard :many
-- Discards dead letters: as DeadRedrive, but they become CANCELLED.
WITH locked AS MATERIALIZED (
    SELECT k.tid
      FROM unnest(@job_ids::bigint[], @channel_ids::bigint[]) c (job_id, channel_id)
     CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.messages m
                          WHERE m.job_id = c.job_id AND m.channel_id = c.channel_id AND m.status = 'DEAD'
                            FOR UPDATE) k
)
UPDATE belfry.messages m
   SET status = 'CANCELLED', reason = 'discarded'
 WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l)) AND m.status = 'DEAD'
RETURNING m.job_id, m.channel_id;

-- name: DeadUndeliver :exec
-- Says that jobs have messages to send again, as the last thing about them in the step
-- of a redrive: their rows are locked in id order, and always written, so that a relay
-- that is just about to call one delivered looks again. Fewer rows than @ids: one was
-- recalled, or is deleted by retention, since the step looked; take the step again.
WITH locked AS MATERIALIZED (
    SELECT j.id FROM belfry.jobs j WHERE j.id = ANY (@ids::bigint[]) ORDER BY j.id FOR NO KEY UPDATE
)
UPDATE belfry.jobs j
   SET delivered_at = NULL
  FROM locked l
  JOIN unnest(@ids::bigint[], @recalls::timestamptz[]) s (id, recalled_at) ON s.id = l.id
 WHERE j.id = l.id AND j.retention_at IS NULL AND j.recalled_at IS NOT DISTINCT FROM s.recalled_at;

-- name: DeadRecord :one
-- The event of a redrive or a discard, in the transaction of the first step that
-- changes something. @name is the one job that the filter names, or ''.
INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
VALUES ('dead_letter', @name, @kind, coalesce(nullif(@actor, ''), session_user), @reason,
        jsonb_build_object('session_user', session_user, 'filter', @filter::jsonb, 'before', @before::jsonb, 'after', @after::jsonb))
RETURNING id;

-- name: DeadRecordMore :exec
-- Adds a later step of the same act to its event, in the step's transaction. Zero
-- rows: retention has deleted the event, begin another.
UPDATE belfry.events e
   SET detail = e.detail || jsonb_build_object('before', @before::jsonb, 'after', @after::jsonb)
 WHERE e.id = @id;

-- name: MessageShow :one
-- One message in whatever status, with what its job or activity says of it
-- (messages_pkey). No row: no such message.
SELECT m.job_id, m.channel_id, m.status, m.step, coalesce(j.route, t.route, '{}') AS route,
       coalesce(j.category, t.category, '') AS category, coalesce(j.title, t.title, '') AS title,
       m.attempts, m.crashes, coalesce(m.reason, '') AS reason, coalesce(m.last_error, '') AS error, coalesce(m.receipt, '') AS receipt,
       m.next_attempt_at, m.sent_at, m.recalled_at, d.dead_at,
       coalesce(j.status = 'ABORTED', false) AND m.status IN ('PENDING', 'QUEUED', 'DEAD') AS held, coalesce(d.kept, '') AS kept
  FROM belfry.messages m
  LEFT JOIN belfry.jobs j ON j.id = m.job_id
  LEFT JOIN belfry.activities t ON t.id = m.job_id
  LEFT JOIN LATERAL (SELECT v.dead_at, v.kept FROM belfry.dead_letters v
                      WHERE v.job_id = @job_id AND v.channel_id = @channel_id LIMIT 1) d ON true
 WHERE m.job_id = @job_id AND m.channel_id = @channel_id;

-- name: AttemptList :many
-- The newest @limit entries of a message's record, oldest first (attempts_message_idx).
SELECT k.step, k.attempt, k.medium, k.sender, k.outcome, k.reason, k.code, k.error, k.at
  FROM (SELECT a.id, a.step, a.attempt, a.medium, a.sender, a.outcome, a.reason, a.code, a.error, a.at
          FROM belfry.attempts a
         WHERE a.job_id = @job_id AND a.channel_id = @channel_id
         ORDER BY a.id DESC
         LIMIT @limit) k
 ORDER BY k.id;

-- name: DeadSubjectExists :one
-- Whether a filter's job or activity and its medium exist, and the media there are. A
-- NULL filter exists.
SELECT @job_id::bigint IS NULL OR EXISTS (SELECT FROM belfry.jobs j WHERE j.id = @job_id) OR EXISTS (SELECT FROM belfry.activities t WHERE t.id = @job_id),
       @medium::text IS NULL OR EXISTS (SELECT FROM belfry.media k WHERE k.name = @medium),
       (SELECT coalesce(string_agg(k.name, ', ' ORDER BY k.name), 'none') FROM belfry.media k);

-- Operators' acts on senders.

-- name: SenderStates :many
-- The senders of relays that beat within @seconds, and those that an operator has said
-- something about, by name; @name narrows to one, which is told of whether known or not.
SELECT n.name, s.rate_per_second, s.concurrency, s.paused_at, coalesce(s.paused_by, '') AS paused_by, coalesce(s.pause_reason, '') AS pause_reason,
       (SELECT count(*) FROM belfry.relays r
         WHERE n.name = ANY (r.senders) AND r.heartbeat_at > clock_timestamp() - make_interval(secs => @seconds)) AS relays
  FROM (SELECT k.name FROM belfry.senders k
         WHERE k.rate_per_second IS NOT NULL OR k.concurrency IS NOT NULL OR k.paused_at IS NOT NULL
        UNION
        SELECT u.name FROM belfry.relays r CROSS JOIN LATERAL unnest(r.senders) u(name)
         WHERE r.heartbeat_at > clock_timestamp() - make_interval(secs => @seconds)
        UNION
        SELECT @name::text WHERE @name <> '') n
  LEFT JOIN belfry.senders s ON s.name = n.name
 WHERE @name = '' OR n.name = @name
 ORDER BY n.name;

-- name: RelayStates :many
-- The relays that have a heartbeat, by name, and which of them live: beat within
-- @seconds.
SELECT r.name, r.started_at, r.heartbeat_at, r.senders, r.in_hand,
       r.heartbeat_at > clock_timestamp() - make_interval(secs => @seconds) AS live
  FROM belfry.relays r
 ORDER BY r.name;

-- name: SenderSet :exec
-- What an operator says of a sender instead of the configuration: of the rate with
-- @rate, of the concurrency with @slots; NULL takes it back to the configuration's.
-- senders_validate checks, senders_record writes the event.
INSERT INTO belfry.senders AS s (name, rate_per_second, concurrency)
VALUES (@name, @rate_per_second, @concurrency)
    ON CONFLICT ON CONSTRAINT senders_pkey DO UPDATE
       SET rate_per_second = CASE WHEN @rate::boolean THEN excluded.rate_per_second ELSE s.rate_per_second END,
           concurrency = CASE WHEN @slots::boolean THEN excluded.concurrency ELSE s.concurrency END;

-- name: SenderPause :exec
-- Pauses a sender. Zero rows: it is paused already, and stays as it is.
INSERT INTO belfry.senders AS s (name, paused_at, paused_by, pause_reason)
VALUES (@name, clock_timestamp(), coalesce(nullif(@actor, ''), session_user), @reason)
    ON CONFLICT ON CONSTRAINT senders_pkey DO UPDATE
       SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
     WHERE s.paused_at IS NULL;

-- name: SenderResume :exec
-- Opens a paused sender. Zero rows: it is open.
UPDATE belfry.senders s SET paused_at = NULL, paused_by = NULL, pause_reason = '' WHERE s.name = @name AND s.paused_at IS NOT NULL;
