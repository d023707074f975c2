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

-- name: RecallAct :exec
-- Who recalls and why, for the event that RecallRecord has written.
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
       SET status = 'CANCELLED', owner = NULL, lease_expires_at = NULL
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

-- name: DeliveryCounts :one
-- One step of counting a job's messages by status: at most @keys after @after
-- (messages_pkey). The last key is NULL when none was left.
SELECT count(*), max(k.channel_id),
       count(*) FILTER (WHERE k.status = 'PENDING'), count(*) FILTER (WHERE k.status = 'QUEUED'),
       count(*) FILTER (WHERE k.status = 'PROCESSING'), count(*) FILTER (WHERE k.status = 'SENT'),
       count(*) FILTER (WHERE k.status = 'DEAD'), count(*) FILTER (WHERE k.status = 'CANCELLED')
  FROM (SELECT m.channel_id, m.status
          FROM belfry.messages m
         WHERE m.job_id = @job_id AND m.channel_id > @after::bigint
         ORDER BY m.channel_id
         LIMIT @keys) k;

-- name: MessageSlice :many
-- A job's messages in key order: at most @keys after @after, up to @bound
-- (messages_pkey).
SELECT m.channel_id, lower(m.status), coalesce(m.last_error, '')
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
SELECT w.channel_id, m.state, ''
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
-- to be sent. Returns the last key (NULL: none was left) and how many it deleted.
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
                                 OR m.status = 'PROCESSING' AND m.lease_expires_at < clock_timestamp()
                                    AND (m.recalled_at IS NOT NULL
                                         OR EXISTS (SELECT FROM belfry.jobs j WHERE j.id = @job_id AND j.status = 'ABORTED')))
                            FOR UPDATE SKIP LOCKED) k
), gone AS (
    DELETE FROM belfry.messages m
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l)) AND m.job_id = @job_id
    RETURNING m.channel_id
)
SELECT (SELECT max(channel_id) FROM looked), (SELECT count(*) FROM gone);

-- name: MessagesPrunable :one
-- What MessagePrune would delete, counted: one step of a dry run. Columns as there,
-- and how many it looked at.
SELECT max(k.channel_id), count(*), count(*) FILTER (WHERE k.status IN ('SENT', 'DEAD', 'CANCELLED')
         OR k.status IN ('PENDING', 'QUEUED') AND k.aborted
         OR k.status = 'PROCESSING' AND k.lease_expires_at < clock_timestamp() AND (k.recalled_at IS NOT NULL OR k.aborted))
  FROM (SELECT m.channel_id, m.status, m.recalled_at, m.lease_expires_at,
               EXISTS (SELECT FROM belfry.jobs j WHERE j.id = @job_id AND j.status = 'ABORTED') AS aborted
          FROM belfry.messages m
         WHERE m.job_id = @job_id AND m.channel_id > @after::bigint
         ORDER BY m.channel_id
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
