-- Retention deletes old rows, and a job after its last row. Ages are counted back from @as_of, or from now.

-- name: RetentionWalk :one
-- The current walk through the notifications, locked for one step: its jobs, their arrivals, the channel, and
-- the maximum number of rows of jobs that a channel has between the lowest and the highest arrival. No row:
-- there is no walk, or another process runs it.
SELECT w.job_ids, a.arrivals, w.channel_id,
       (SELECT count(*) FROM belfry.jobs j
         WHERE j.arrival BETWEEN a.arrivals[1] AND a.arrivals[cardinality(a.arrivals)] AND j.rows_written > 0 AND j.type <> 'push')
  FROM belfry.retention_walks w
 CROSS JOIN LATERAL (SELECT ARRAY(SELECT j.arrival FROM belfry.jobs j WHERE j.id = ANY (w.job_ids) AND j.arrival IS NOT NULL ORDER BY j.arrival) AS arrivals) a
 WHERE w.name = 'notifications'
   FOR UPDATE OF w SKIP LOCKED;

-- name: RetentionWalkExists :one
-- Whether a walk has begun and not ended, locked or not.
SELECT EXISTS (SELECT FROM belfry.retention_walks w WHERE w.name = 'notifications');

-- name: NotificationsDrop :one
-- Drops the oldest partition of notifications whose jobs all finished @seconds ago or earlier. Returns the rows that they
-- wrote. NULL: there is none. 55P03: sessions use it.
SELECT belfry.drop_notifications(coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds));

-- name: RetentionWalkBegin :one
-- Begins a walk over the notifications of up to @jobs jobs of one partition that finished @seconds ago or earlier
-- (jobs_unpruned_idx). They cannot be resumed any more. A job waits for up to a third of this time longer if its whole
-- partition is dropped then. A job of a custom type waits until its
-- last message is deleted. Returns the count of jobs; 0 means that no job is old enough, or that
-- another process has just begun a walk.
WITH old AS (
    SELECT j.id, belfry.notifications_part(j.arrival) AS part
      FROM belfry.jobs j
     WHERE j.finished_at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds) AND j.pruned_at IS NULL
       AND j.rows_written > 0 AND j.type <> 'push'
       AND (j.type = 'inbox'
            OR (SELECT true FROM belfry.messages m WHERE m.job_id = j.id ORDER BY m.channel_id LIMIT 1) IS NULL)
       AND belfry.notifications_part(j.arrival) <> ALL (ARRAY(
           SELECT belfry.old_notifications(coalesce(@as_of::timestamptz, statement_timestamp()) - 0.75 * make_interval(secs => @seconds))))
     ORDER BY j.finished_at, j.id
     LIMIT @jobs
       FOR UPDATE SKIP LOCKED
), marked AS (
    UPDATE belfry.jobs j
       SET retention_at = coalesce(j.retention_at, clock_timestamp())
      FROM old
     WHERE j.id = old.id AND j.finished_at IS NOT NULL AND old.part = (SELECT min(o.part) FROM old o)
    RETURNING j.id
), begun AS (
    INSERT INTO belfry.retention_walks (name, job_ids, channel_id)
    SELECT 'notifications', array_agg(k.id ORDER BY k.id), -9223372036854775808 FROM marked k HAVING count(*) > 0
        ON CONFLICT DO NOTHING
    RETURNING job_ids
)
SELECT coalesce((SELECT cardinality(job_ids) FROM begun), 0);

-- name: NotificationPrune :one
-- One step of the walk: deletes the rows of @arrivals of the next @keys channels after @after with
-- notifications in their partition (notifications_pkey: one descent for each channel and one range of its rows).
-- Locked rows are skipped. Returns the last channel (NULL if there was none), the count of deleted
-- rows and the count of locked rows.
WITH RECURSIVE walk (channel_id, n) AS (
    (SELECT f.channel_id, 1 FROM belfry.notifications f
      WHERE f.channel_id > @after::bigint
        AND f.arrival >= belfry.notifications_from(belfry.notifications_part((@arrivals::bigint[])[1]))
        AND f.arrival < belfry.notifications_from(belfry.notifications_part((@arrivals::bigint[])[1]) + 1)
      ORDER BY f.channel_id LIMIT 1)
    UNION ALL
    SELECT x.channel_id, w.n + 1
      FROM walk w
     CROSS JOIN LATERAL (SELECT f.channel_id FROM belfry.notifications f
                          WHERE f.channel_id > w.channel_id
                            AND f.arrival >= belfry.notifications_from(belfry.notifications_part((@arrivals::bigint[])[1]))
                            AND f.arrival < belfry.notifications_from(belfry.notifications_part((@arrivals::bigint[])[1]) + 1)
                          ORDER BY f.channel_id LIMIT 1) x
     WHERE w.n < @keys
), looked AS MATERIALIZED (
    SELECT m.channel_id, m.arrival
      FROM walk w
     CROSS JOIN LATERAL (SELECT f.channel_id, f.arrival FROM belfry.notifications f
                          WHERE f.channel_id = w.channel_id
                            AND f.arrival BETWEEN (@arrivals::bigint[])[1] AND (@arrivals::bigint[])[cardinality(@arrivals::bigint[])]
                          ORDER BY f.arrival OFFSET 0) m
     WHERE m.arrival = ANY (@arrivals::bigint[])
), locked AS MATERIALIZED (
    SELECT k.tid
      FROM looked l
     CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.notifications m
                          WHERE m.channel_id = l.channel_id AND m.arrival = l.arrival
                            FOR UPDATE SKIP LOCKED) k
), gone AS (
    DELETE FROM belfry.notifications m
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l)) AND m.arrival = ANY (@arrivals::bigint[])
       AND m.arrival BETWEEN (@arrivals::bigint[])[1] AND (@arrivals::bigint[])[cardinality(@arrivals::bigint[])] -- one partition: positions are unique in it
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
-- Marks finished jobs without rows (jobs_pkey, messages_pkey).
UPDATE belfry.jobs j
   SET retention_at = coalesce(j.retention_at, clock_timestamp()), pruned_at = clock_timestamp()
 WHERE j.id = ANY (@ids::bigint[]) AND j.finished_at IS NOT NULL AND j.pruned_at IS NULL
   AND (SELECT true FROM belfry.messages m WHERE m.job_id = j.id ORDER BY m.channel_id LIMIT 1) IS NULL;

-- name: JobsWithOldMessages :many
-- Up to @jobs jobs that finished @seconds ago or earlier, and before the window of their category's cap, and
-- may still have rows, after a key, in the order of their end (jobs_unpruned_idx).
SELECT j.id, j.finished_at, j.type
  FROM belfry.jobs j
  LEFT JOIN belfry.categories c ON c.name = j.category
 WHERE j.finished_at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds) AND j.pruned_at IS NULL
   AND (j.finished_at, j.id) > (@after_at::timestamptz, @after_id::bigint)
   AND j.finished_at < coalesce(@as_of::timestamptz, statement_timestamp()) - greatest(make_interval(secs => @seconds), c.cap_window)
   AND j.rows_written > 0 AND j.type <> 'inbox'
 ORDER BY j.finished_at, j.id
 LIMIT @jobs;

-- name: JobHoldForRetention :one
-- Locks a job of JobsWithOldMessages for one step, so that it is neither aborted nor resumed meanwhile.
-- Returns the retention of its messages in seconds, at least the window of its category's cap, and whether
-- the job is ABORTED. No row: it was resumed, or is not old enough any more.
SELECT extract(epoch FROM greatest(make_interval(secs => @seconds), c.cap_window))::float8, j.status = 'ABORTED'
  FROM belfry.jobs j
  LEFT JOIN belfry.categories c ON c.name = j.category
 WHERE j.id = @id AND j.finished_at < coalesce(@as_of::timestamptz, statement_timestamp()) - greatest(make_interval(secs => @seconds), c.cap_window)
   FOR NO KEY UPDATE OF j;

-- name: JobMarkRetention :exec
-- Records that a job's rows are being deleted, so that it cannot be resumed any more. A job that was aborted
-- after the mark is marked again, because it could be resumed until now. Zero rows: it was resumed, or is not
-- old enough any more.
UPDATE belfry.jobs j
   SET retention_at = CASE WHEN j.retention_at >= j.finished_at THEN j.retention_at ELSE clock_timestamp() END
 WHERE j.id = @id AND j.finished_at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds);

-- name: MessagePrune :one
-- One step through an old job's messages: at most @keys after @after (messages_pkey).
-- belfry.own_claimed precedes it in the transaction: a message of a lease whose row was never changed was locked then.
-- Messages are locked by the position in which the statement found them: a second search of the key costs more in a larger table.
-- Deletes messages that will not be sent any more: SENT, DEAD and CANCELLED messages that have been in this
-- state for @seconds; if the job is @aborted, held messages, which cannot be resumed any more; and, if the job
-- is @aborted or they are recalled, messages in flight whose relay died. Other messages remain: unsent and younger messages,
-- and messages with a pending receipt. Their attempts are deleted with them (attempts_message_idx), at most @tries: with
-- as many there may be more, and the messages remain for another step. Returns the last key (NULL if there was none; @after
-- if messages remain) and the counts of deleted messages and attempts.
WITH leased AS MATERIALIZED (
    SELECT u.channel_id
      FROM belfry.leases l CROSS JOIN LATERAL unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
     WHERE u.job_id = @job_id
), looked AS MATERIALIZED (
    SELECT m.channel_id, m.ctid AS tid
      FROM belfry.message_rows m
     WHERE m.job_id = @job_id AND m.channel_id > @after::bigint
     ORDER BY m.channel_id
     LIMIT @keys
), locked AS MATERIALIZED (
    SELECT l.channel_id, k.tid
      FROM looked l
     CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.message_rows m
                          WHERE m.ctid = l.tid AND m.job_id = @job_id
                            AND (m.status IN ('SENT', 'DEAD', 'CANCELLED')
                                    AND greatest(m.next_attempt_at, m.sent_at, m.recalled_at) < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds)
                                 OR m.status IN ('PENDING', 'QUEUED') AND @aborted::boolean
                                    AND (m.status <> 'PENDING' OR m.lease_id IS NOT NULL OR m.channel_id NOT IN (SELECT l.channel_id FROM leased l))
                                 OR m.status = 'PROCESSING' AND m.receipt IS NULL
                                    AND NOT EXISTS (SELECT FROM belfry.leases h WHERE h.id = m.lease_id AND h.expires_at > clock_timestamp())
                                    AND (m.recalled_at IS NOT NULL OR @aborted::boolean))
                            FOR UPDATE SKIP LOCKED) k
), tried AS MATERIALIZED (
    SELECT k.id FROM locked l
     CROSS JOIN LATERAL (SELECT k.id FROM belfry.attempts k
                          WHERE k.job_id = @job_id AND k.channel_id BETWEEN l.channel_id AND l.channel_id
                          ORDER BY k.channel_id, k.id LIMIT @tries) k
     WHERE (SELECT true FROM belfry.attempts k WHERE k.job_id = @job_id ORDER BY k.channel_id LIMIT 1) -- a job without any: not for each message
     LIMIT @tries
), forgotten AS (
    DELETE FROM belfry.attempts a WHERE a.id = ANY (ARRAY(SELECT t.id FROM tried t))
), gone AS (
    DELETE FROM belfry.message_rows m
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l WHERE (SELECT count(*) FROM tried) < @tries)) AND m.job_id = @job_id
    RETURNING m.channel_id
)
SELECT CASE WHEN (SELECT count(*) FROM tried) < @tries THEN (SELECT max(l.channel_id) FROM looked l) ELSE @after::bigint END,
       (SELECT count(*) FROM gone), (SELECT count(*) FROM tried);

-- name: MessagesPrunable :one
-- Counts the messages that MessagePrune would delete: one step of a dry run, with the @seconds of
-- JobHoldForRetention. Returns the same columns, and the count of examined messages.
WITH live AS MATERIALIZED (
    SELECT u.channel_id
      FROM belfry.leases h CROSS JOIN LATERAL unnest(h.job_ids, h.channel_ids) u(job_id, channel_id)
     WHERE u.job_id = @job_id AND h.expires_at > clock_timestamp()
)
SELECT max(k.channel_id), count(*), count(*) FILTER (WHERE k.status IN ('SENT', 'DEAD', 'CANCELLED') AND k.old
         OR k.status IN ('PENDING', 'QUEUED') AND k.aborted
         OR k.status = 'PROCESSING' AND k.ownerless AND (k.recalled_at IS NOT NULL OR k.aborted))
  FROM (SELECT m.channel_id, m.recalled_at, j.status = 'ABORTED' AS aborted,
               CASE WHEN m.status = 'PENDING' AND m.lease_id IS NULL
                         AND m.channel_id <= (SELECT a.claimed_to FROM belfry.job_claims a WHERE a.job_id = @job_id) AND belfry.push_of(@job_id, m.channel_id) IS NULL THEN 'PROCESSING' ELSE m.status END AS status,
               greatest(m.next_attempt_at, m.sent_at, m.recalled_at) < coalesce(@as_of::timestamptz, statement_timestamp()) - greatest(make_interval(secs => @seconds), c.cap_window) AS old,
               m.receipt IS NULL AND CASE WHEN m.lease_id IS NULL THEN m.channel_id NOT IN (SELECT l.channel_id FROM live l)
                                          ELSE NOT EXISTS (SELECT FROM belfry.leases h WHERE h.id = m.lease_id AND h.expires_at > clock_timestamp()) END AS ownerless
          FROM belfry.jobs j
          LEFT JOIN belfry.categories c ON c.name = j.category
          JOIN belfry.message_rows m ON m.job_id = j.id
         WHERE j.id = @job_id AND m.job_id = @job_id AND m.channel_id > @after::bigint
         ORDER BY m.channel_id
         LIMIT @keys) k;

-- name: ActivityPrune :one
-- One step through the activities, oldest first: at most @keys below @after
-- (activities_pkey; their ids descend). Deletes activities older than @seconds, with their message, its attempts and
-- their notification, if the message will not be sent any more and has been in its state for @seconds, and for the
-- window of its category's cap (categories_pkey, messages_pkey, attempts_message_idx, notifications_pkey). One with a
-- notification is kept for @inbox_seconds, if that is longer. It deletes at most @tries attempts: with as many there may be
-- more, and the activities remain for another step. Returns the last id (NULL if all that follow are younger, or there was
-- none; @after if activities remain) and the count of deleted activities.
WITH looked AS MATERIALIZED (
    SELECT t.id, t.channel_id, t.created_at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds) AS old,
           t.created_at, greatest(make_interval(secs => @seconds), CASE WHEN t.inbox THEN make_interval(secs => @inbox_seconds) END,
                                  (SELECT c.cap_window FROM belfry.categories c WHERE c.name = t.category)) AS kept
      FROM belfry.activities t
     WHERE t.id < @after::bigint
     ORDER BY t.id DESC
     LIMIT @keys
), due AS MATERIALIZED (
    SELECT l.id, l.channel_id, l.kept FROM looked l WHERE l.created_at < coalesce(@as_of::timestamptz, statement_timestamp()) - l.kept
), locked AS MATERIALIZED (
    SELECT k.tid
      FROM (SELECT d.id, d.channel_id, d.kept FROM due d ORDER BY d.id DESC) o
     CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.message_rows m
                          WHERE m.job_id = o.id AND m.channel_id = o.channel_id AND m.status IN ('SENT', 'DEAD', 'CANCELLED')
                            AND greatest(m.next_attempt_at, m.sent_at, m.recalled_at) < coalesce(@as_of::timestamptz, statement_timestamp()) - o.kept
                            FOR UPDATE SKIP LOCKED) k
), gone AS (
    DELETE FROM belfry.message_rows m
     WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l))
    RETURNING m.job_id
), ends AS MATERIALIZED (
    SELECT d.id, d.channel_id FROM due d
     WHERE d.id IN (SELECT g.job_id FROM gone g) OR (SELECT true FROM belfry.messages m WHERE m.job_id = d.id AND m.channel_id = d.channel_id LIMIT 1) IS NULL
), tried AS MATERIALIZED (
    SELECT k.id FROM ends e
     CROSS JOIN LATERAL (SELECT k.id FROM belfry.attempts k WHERE k.job_id = e.id ORDER BY k.channel_id, k.id LIMIT @tries) k
     LIMIT @tries
), forgotten AS (
    DELETE FROM belfry.attempts a WHERE a.id = ANY (ARRAY(SELECT t.id FROM tried t))
), alone AS MATERIALIZED (
    SELECT e.id, e.channel_id FROM ends e WHERE (SELECT count(*) FROM tried) < @tries
), unlisted AS (
    DELETE FROM belfry.notifications n
     WHERE n.ctid = ANY (ARRAY(SELECT k.tid FROM alone e CROSS JOIN LATERAL (SELECT k.ctid AS tid FROM belfry.notifications k WHERE k.channel_id = e.channel_id AND k.arrival = -e.id OFFSET 0) k))
       AND n.arrival = ANY (ARRAY(SELECT -e.id FROM alone e)) -- positions are unique in a partition only
), ended AS (
    DELETE FROM belfry.activities t
     WHERE t.id = ANY (ARRAY(SELECT e.id FROM alone e))
    RETURNING t.id
)
SELECT CASE WHEN (SELECT count(*) FROM tried) < @tries THEN (SELECT min(l.id) FROM looked l HAVING bool_and(l.old)) ELSE @after::bigint END,
       (SELECT count(*) FROM ended);

-- name: ActivitiesPrunable :one
-- Counts the activities that ActivityPrune would delete: one step of a dry run. Returns the same columns.
SELECT CASE WHEN bool_and(k.old) THEN min(k.id) END, count(*) FILTER (WHERE k.old AND k.final)
  FROM (SELECT t.id, t.created_at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds) AS old,
               t.created_at < t.kept_from
               AND coalesce((SELECT m.status IN ('SENT', 'DEAD', 'CANCELLED') AND greatest(m.next_attempt_at, m.sent_at, m.recalled_at) < t.kept_from
                               FROM belfry.messages m WHERE m.job_id = t.id AND m.channel_id = t.channel_id), true) AS final
          FROM (SELECT a.id, a.channel_id, a.created_at, coalesce(@as_of::timestamptz, statement_timestamp())
                       - greatest(make_interval(secs => @seconds), CASE WHEN a.inbox THEN make_interval(secs => @inbox_seconds) END,
                                  (SELECT c.cap_window FROM belfry.categories c WHERE c.name = a.category)) AS kept_from FROM belfry.activities a) t
         WHERE t.id < @after::bigint
         ORDER BY t.id DESC
         LIMIT @keys) k;

-- name: NotificationsPrunable :one
-- The count of notifications that retention would delete, by the sums of inbox jobs that are old enough
-- (jobs_unpruned_idx) and do not wait for their partition, and the count of these jobs that finished @jobs_seconds ago or
-- earlier.
SELECT coalesce(sum(j.rows_written), 0)::bigint,
       count(*) FILTER (WHERE j.finished_at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @jobs_seconds))
  FROM belfry.jobs j
 WHERE j.finished_at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds) AND j.pruned_at IS NULL
   AND j.type = 'inbox' AND j.rows_written > 0
   AND belfry.notifications_part(j.arrival) <> ALL (ARRAY(
       SELECT belfry.old_notifications(coalesce(@as_of::timestamptz, statement_timestamp()) - 0.75 * make_interval(secs => @seconds))
       EXCEPT SELECT belfry.old_notifications(coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds))));

-- name: JobsPrunable :many
-- Up to @jobs jobs that finished @seconds ago or earlier and have no rows, after a key, in the order of their
-- end (jobs_pruned_idx, jobs_unpruned_idx).
SELECT k.id, k.finished_at, ''
  FROM ((SELECT j.id, j.finished_at
           FROM belfry.jobs j
          WHERE j.pruned_at IS NOT NULL AND j.finished_at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds)
            AND (j.finished_at, j.id) > (@after_at::timestamptz, @after_id::bigint)
          ORDER BY j.finished_at, j.id
          LIMIT @jobs)
        UNION ALL
        (SELECT j.id, j.finished_at
           FROM belfry.jobs j
          WHERE j.finished_at IS NOT NULL AND j.pruned_at IS NULL AND j.rows_written = 0
            AND j.finished_at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds)
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

-- name: JobValuesPrune :exec
-- Deletes up to @keys values of a job that is about to be deleted (job_values_pkey).
DELETE FROM belfry.job_values v
 WHERE v.job_id = @id
   AND v.channel_id = ANY (ARRAY(SELECT k.channel_id FROM belfry.job_values k WHERE k.job_id = @id ORDER BY k.channel_id LIMIT @keys));

-- name: JobEventsPrune :one
-- Deletes events and revisions of a job that is about to be deleted (job_events_job_idx, job_revisions_pkey): of each up to
-- @keys, and none after the first @bytes, because one may have megabytes. Returns whether there may be more.
WITH events AS MATERIALIZED (
    SELECT k.id, sum(k.size) OVER (ORDER BY k.id ROWS UNBOUNDED PRECEDING) - k.size < @bytes AS within
      FROM (SELECT e.id, pg_column_size(e.detail) AS size FROM belfry.job_events e WHERE e.job_id = @id ORDER BY e.id LIMIT @keys) k
), revisions AS MATERIALIZED (
    SELECT k.revision, sum(k.size) OVER (ORDER BY k.revision ROWS UNBOUNDED PRECEDING) - k.size < @bytes AS within
      FROM (SELECT r.revision, pg_column_size(r.audience) AS size FROM belfry.job_revisions r WHERE r.job_id = @id ORDER BY r.revision LIMIT @keys) k
), eventless AS (
    DELETE FROM belfry.job_events e WHERE e.id = ANY (ARRAY(SELECT k.id FROM events k WHERE k.within))
), unrevised AS (
    DELETE FROM belfry.job_revisions r WHERE r.job_id = @id AND r.revision = ANY (ARRAY(SELECT k.revision FROM revisions k WHERE k.within))
)
SELECT (SELECT count(*) = @keys OR NOT coalesce(bool_and(k.within), true) FROM events k) OR (SELECT count(*) = @keys OR NOT coalesce(bool_and(k.within), true) FROM revisions k);

-- name: JobAttemptsPrune :exec
-- Deletes up to @keys attempts of a job that is about to be deleted and has no messages (attempts_message_idx): those
-- that were written without a message.
DELETE FROM belfry.attempts a
 WHERE a.id = ANY (ARRAY(SELECT k.id FROM belfry.attempts k WHERE k.job_id = @id ORDER BY k.channel_id, k.id LIMIT @keys))
   AND (SELECT m.channel_id FROM belfry.messages m WHERE m.job_id = @id ORDER BY m.channel_id LIMIT 1) IS NULL;

-- name: JobPrune :exec
-- Deletes one job that finished @seconds ago or earlier and has no rows, with the counts of its messages. Zero rows: it was resumed, a role that delivers has written rows of it, or another process has
-- deleted it. jobs_transition rejects the deletion of a job with messages or attempts.
WITH gone AS (
    DELETE FROM belfry.jobs j
     WHERE j.id = @id AND j.finished_at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds)
       AND (j.pruned_at IS NOT NULL OR j.rows_written = 0)
       AND (SELECT m.channel_id FROM belfry.messages m WHERE m.job_id = @id ORDER BY m.channel_id LIMIT 1) IS NULL
       AND (SELECT a.channel_id FROM belfry.attempts a WHERE a.job_id = @id ORDER BY a.channel_id, a.id LIMIT 1) IS NULL
    RETURNING j.id
), uncounted AS (
    DELETE FROM belfry.job_deliveries d WHERE d.job_id = @id AND EXISTS (SELECT FROM gone)
), unclaimed AS (
    DELETE FROM belfry.job_claims c WHERE c.job_id = @id AND EXISTS (SELECT FROM gone)
)
SELECT g.id FROM gone g;

-- name: EventsPrune :one
-- Deletes events older than @seconds among the @keys oldest (events_pkey), and none after the first @bytes, because one
-- may have megabytes. Returns their count, and whether there may be more. The acts that wrote a schedule stay as long as it
-- exists: belfry.job_hands reads the authors of its jobs there.
WITH looked AS MATERIALIZED (
    SELECT e.id, e.at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds) AS old, pg_column_size(e.detail) AS size
      FROM belfry.events e
     WHERE e.subject <> 'schedule' OR e.kind NOT IN ('created', 'changed') OR NOT EXISTS (SELECT FROM belfry.schedules s WHERE s.name = e.name)
     ORDER BY e.id
     LIMIT @keys
       FOR UPDATE SKIP LOCKED
), summed AS MATERIALIZED (
    SELECT l.id, l.old, sum(l.size) FILTER (WHERE l.old) OVER (ORDER BY l.id ROWS UNBOUNDED PRECEDING) - l.size < @bytes AS within FROM looked l
), gone AS (
    DELETE FROM belfry.events e WHERE e.id = ANY (ARRAY(SELECT s.id FROM summed s WHERE s.old AND s.within)) RETURNING e.id
)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) > 0 AND bool_and(s.old) OR count(*) FILTER (WHERE s.old AND NOT s.within) > 0 FROM summed s);

-- name: EventsPrunable :one
-- Counts the events that EventsPrune would delete: one step of a dry run, after @after.
SELECT max(k.id), count(*) FILTER (WHERE k.at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds))
  FROM (SELECT e.id, e.at
          FROM belfry.events e
         WHERE e.id > @after::bigint
           AND (e.subject <> 'schedule' OR e.kind NOT IN ('created', 'changed') OR NOT EXISTS (SELECT FROM belfry.schedules s WHERE s.name = e.name))
         ORDER BY e.id
         LIMIT @keys) k;

-- name: SamplesPrune :exec
-- Deletes samples older than @seconds, @keys at most (samples_at_idx).
DELETE FROM belfry.samples s
 WHERE s.ctid = ANY (ARRAY(SELECT k.ctid FROM belfry.samples k
                            WHERE k.at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds)
                            ORDER BY k.at
                            LIMIT @keys
                              FOR UPDATE SKIP LOCKED));

-- name: SamplesPrunable :one
-- Counts the samples that SamplesPrune would delete (samples_at_idx).
SELECT count(*) FROM belfry.samples s WHERE s.at < coalesce(@as_of::timestamptz, statement_timestamp()) - make_interval(secs => @seconds);

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
