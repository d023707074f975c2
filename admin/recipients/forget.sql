-- Erasure of one channel, by its id in each table.

-- name: ForgetHold :many
-- Before ForgetMessages in its transaction: writes the leases of messages in flight into their rows, for those of its
-- jobs with a message to @channel_id whose row was never changed, and keeps their claims locked. Returns these jobs.
SELECT k.job_id
  FROM (SELECT m.job_id
          FROM (SELECT j.id FROM belfry.jobs j
                 WHERE j.id > @after::bigint AND (@only::bigint[] IS NULL OR j.id = ANY (@only)) ORDER BY j.id LIMIT @keys) l
         CROSS JOIN LATERAL (SELECT m.job_id FROM belfry.message_rows m
                              WHERE m.job_id = l.id AND m.channel_id = @channel_id AND m.status = 'PENDING' AND m.lease_id IS NULL OFFSET 0) m
         ORDER BY m.job_id) k
 CROSS JOIN LATERAL (SELECT belfry.own_claimed(k.job_id, @channel_id - 1, 1) OFFSET 0) o;

-- name: ForgetMessages :many
-- One step through the next @keys jobs after @after, or through the jobs @only: deletes the
-- messages to @channel_id and its attempts (messages_pkey, attempts_message_idx), and
-- blanks the errors of skips, whose key remains for the accounting (job_skips_pkey), and the
-- channel's values of the jobs (job_values_pkey). It skips
-- messages that a live relay has leased, because a call may be in progress, and messages that may be claimed now: their
-- rows were never changed, and the claims of their job are not @held. It reads at most @tries attempts: with as many there
-- may be more, for another step through the same jobs. Only attempts_message_idx has their order: with many attempts of one
-- message, a plan without an order read the table for each job. Returns a row for
-- each job with any of these: the counted state of its message, the counts of attempts and
-- skips, and whether the message was skipped. The last row is the highest examined job, in any
-- case; no row means no more jobs. With @dry_run nothing is changed.
WITH leased AS MATERIALIZED (
    SELECT u.job_id
      FROM belfry.leases l CROSS JOIN LATERAL unnest(l.job_ids, l.channel_ids) u(job_id, channel_id)
     WHERE u.channel_id = @channel_id AND l.expires_at > clock_timestamp()
), looked AS MATERIALIZED (
    SELECT j.id, j.type FROM belfry.jobs j
     WHERE j.id > @after::bigint AND (@only::bigint[] IS NULL OR j.id = ANY (@only)) ORDER BY j.id LIMIT @keys
), found AS MATERIALIZED (
    SELECT m.job_id, m.tid, m.status, m.awaited, m.held
      FROM looked l
     CROSS JOIN LATERAL (SELECT m.job_id, m.ctid AS tid, m.status, m.receipt IS NOT NULL AS awaited,
                                m.status = 'PROCESSING' AND m.receipt IS NULL
                                    AND EXISTS (SELECT FROM belfry.leases h WHERE h.id = m.lease_id AND h.expires_at > clock_timestamp())
                                OR m.status = 'PENDING' AND m.lease_id IS NULL
                                    AND (m.job_id IN (SELECT h.job_id FROM leased h) OR NOT @dry_run::boolean AND NOT m.job_id = ANY (@held::bigint[])) AS held
                           FROM belfry.message_rows m WHERE m.job_id = l.id AND m.channel_id = @channel_id OFFSET 0) m
), locked AS MATERIALIZED (
    SELECT k.job_id, k.tid
      FROM found f
     CROSS JOIN LATERAL (SELECT m.job_id, m.ctid AS tid FROM belfry.message_rows m
                          WHERE m.ctid = f.tid AND m.job_id = f.job_id AND m.status = f.status FOR UPDATE SKIP LOCKED) k
     WHERE NOT @dry_run::boolean AND NOT f.held
), gone AS (
    DELETE FROM belfry.message_rows m WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l)) AND m.channel_id = @channel_id
    RETURNING m.job_id
), kept AS MATERIALIZED (
    SELECT f.job_id FROM found f WHERE f.held OR NOT @dry_run::boolean AND f.job_id NOT IN (SELECT g.job_id FROM gone g)
), tried AS MATERIALIZED (
    SELECT a.job_id, a.id FROM looked l
     CROSS JOIN LATERAL (SELECT a.job_id, a.id FROM belfry.attempts a
                          WHERE a.job_id = l.id AND a.channel_id BETWEEN @channel_id AND @channel_id
                          ORDER BY a.channel_id, a.id LIMIT @tries) a
     WHERE l.id NOT IN (SELECT k.job_id FROM kept k)
     LIMIT @tries
), forgotten AS (
    DELETE FROM belfry.attempts a WHERE NOT @dry_run::boolean AND a.id = ANY (ARRAY(SELECT t.id FROM tried t))
), valueless AS (
    DELETE FROM belfry.job_values v
     WHERE v.ctid = ANY (ARRAY(SELECT k.tid FROM looked l
                                CROSS JOIN LATERAL (SELECT k.ctid AS tid FROM belfry.job_values k WHERE k.job_id = l.id AND k.channel_id = @channel_id OFFSET 0) k
                                WHERE NOT @dry_run::boolean)) AND v.channel_id = @channel_id
), skips AS MATERIALIZED (
    SELECT s.job_id FROM looked l
     CROSS JOIN LATERAL (SELECT s.job_id FROM belfry.job_skips s WHERE s.job_id = l.id AND s.key = @channel_id::bigint::text AND s.error <> 'erased' OFFSET 0) s
     WHERE l.type IN ('inbox', 'push')
), blanked AS (
    UPDATE belfry.job_skips s SET error = 'erased'
     WHERE NOT @dry_run::boolean AND s.job_id = ANY (ARRAY(SELECT k.job_id FROM skips k)) AND s.key = @channel_id::bigint::text
)
SELECT l.id, coalesce(f.status, ''), coalesce(f.awaited, false),
       l.id IN (SELECT k.job_id FROM kept k),
       coalesce(t.n, 0), (SELECT count(*) FROM skips s WHERE s.job_id = l.id)
  FROM looked l
  LEFT JOIN found f ON f.job_id = l.id
  LEFT JOIN (SELECT t.job_id, count(*) AS n FROM tried t GROUP BY t.job_id) t ON t.job_id = l.id
 WHERE f.job_id IS NOT NULL OR t.n > 0 OR EXISTS (SELECT FROM skips s WHERE s.job_id = l.id) OR l.id = (SELECT max(x.id) FROM looked x)
 ORDER BY l.id;

-- name: ForgetNotifications :many
-- Deletes the marks and up to @keys notifications of @channel_id (inbox_pkey, notifications_pkey), or with @dry_run
-- counts them. Returns their arrivals and the jobs of these, 0 for others (jobs_arrival_idx). No row: there are
-- none.
WITH looked AS MATERIALIZED (
    SELECT f.arrival FROM belfry.notifications f
     WHERE f.channel_id = @channel_id AND f.arrival > @after::bigint ORDER BY f.arrival LIMIT @keys
), gone AS (
    DELETE FROM belfry.notifications f
     WHERE NOT @dry_run::boolean AND f.channel_id = @channel_id AND f.arrival = ANY (ARRAY(SELECT l.arrival FROM looked l))
    RETURNING f.arrival
), unmarked AS (
    DELETE FROM belfry.inbox i WHERE NOT @dry_run::boolean AND i.channel_id = @channel_id
)
SELECT l.arrival, coalesce(j.id, 0) AS job_id
  FROM looked l
  LEFT JOIN belfry.jobs j ON j.arrival = l.arrival
 WHERE @dry_run::boolean OR l.arrival IN (SELECT g.arrival FROM gone g)
 ORDER BY l.arrival;

-- name: ForgetActivities :one
-- Deletes up to @keys activities to @channel_id below @after (activities_channel_idx), with
-- their messages and attempts, except messages that a live relay has leased. It reads at most @tries attempts: with as
-- many there may be more, and the activities remain for another step. Returns the
-- lowest examined id (NULL if there was none; @after if activities remain), the counts of activities,
-- messages and attempts, and the count of skipped messages. With @dry_run it only counts.
WITH looked AS MATERIALIZED (
    SELECT t.id FROM belfry.activities t WHERE t.channel_id = @channel_id AND t.id < @after::bigint ORDER BY t.id DESC LIMIT @keys
), found AS MATERIALIZED (
    SELECT m.job_id, m.tid, m.held FROM looked l
     CROSS JOIN LATERAL (SELECT m.job_id, m.ctid AS tid,
                                m.status = 'PROCESSING' AND m.receipt IS NULL
                                    AND EXISTS (SELECT FROM belfry.leases h WHERE h.id = m.lease_id AND h.expires_at > clock_timestamp()) AS held
                           FROM belfry.message_rows m WHERE m.job_id = l.id AND m.channel_id = @channel_id OFFSET 0) m
), locked AS MATERIALIZED (
    SELECT k.tid FROM found f
     CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.message_rows m WHERE m.ctid = f.tid AND m.job_id = f.job_id FOR UPDATE SKIP LOCKED) k
     WHERE NOT @dry_run::boolean AND NOT f.held
), gone AS (
    DELETE FROM belfry.message_rows m WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l)) AND m.channel_id = @channel_id
    RETURNING m.job_id
), kept AS MATERIALIZED (
    SELECT f.job_id FROM found f WHERE f.held OR NOT @dry_run::boolean AND f.job_id NOT IN (SELECT g.job_id FROM gone g)
), tried AS MATERIALIZED (
    SELECT a.id FROM looked l
     CROSS JOIN LATERAL (SELECT a.id FROM belfry.attempts a
                          WHERE a.job_id = l.id AND a.channel_id BETWEEN @channel_id AND @channel_id
                          ORDER BY a.channel_id, a.id LIMIT @tries) a
     WHERE l.id NOT IN (SELECT k.job_id FROM kept k)
     LIMIT @tries
), forgotten AS (
    DELETE FROM belfry.attempts a WHERE NOT @dry_run::boolean AND a.id = ANY (ARRAY(SELECT t.id FROM tried t))
), ends AS MATERIALIZED (
    SELECT l.id FROM looked l
     WHERE l.id NOT IN (SELECT k.job_id FROM kept k) AND (@dry_run::boolean OR (SELECT count(*) FROM tried) < @tries)
), ended AS (
    DELETE FROM belfry.activities t WHERE NOT @dry_run::boolean AND t.id = ANY (ARRAY(SELECT e.id FROM ends e))
)
SELECT CASE WHEN @dry_run::boolean OR (SELECT count(*) FROM tried) < @tries THEN (SELECT min(l.id) FROM looked l) ELSE @after::bigint END,
       (SELECT count(*) FROM ends), (SELECT count(*) FROM found) - (SELECT count(*) FROM kept), (SELECT count(*) FROM tried),
       (SELECT count(*) FROM kept);

-- name: ForgetDelivered :exec
-- Adds to the counts of jobs, each once in @job_ids and in that order, one message that became
-- final by being erased: cancelled, or with @sent sent. Otherwise like DeliveriesAdd.
INSERT INTO belfry.job_deliveries AS d (job_id, relay, sent, cancelled)
SELECT k.job_id, '', k.sent::integer, (NOT k.sent)::integer FROM unnest(@job_ids::bigint[], @sent::boolean[]) k (job_id, sent)
    ON CONFLICT ON CONSTRAINT job_deliveries_pkey DO UPDATE
   SET sent = least(d.sent + excluded.sent, 1000000000000), cancelled = least(d.cancelled + excluded.cancelled, 1000000000000);

-- name: ForgetErased :exec
-- Adds one erased row to the account of each of @job_ids, after their deliveries.
WITH locked AS MATERIALIZED (
    SELECT j.id FROM belfry.jobs j WHERE j.id = ANY (@job_ids::bigint[]) ORDER BY j.id FOR NO KEY UPDATE
)
UPDATE belfry.jobs j SET erased = j.erased + 1 FROM locked l WHERE j.id = l.id;

-- name: ForgetListed :one
-- Takes an external id out of the lists after a position, or with @dry_run counts them; see the function.
SELECT f.next, f.changed FROM belfry.forget_listed(@external_id, @after, @keys, make_interval(secs => @seconds), @dry_run) f;

-- name: ForgetEvents :exec
-- Takes @channel_id out of up to @keys of its events (events_subject_idx): those of its opt-outs and of what it was sent.
UPDATE belfry.events e SET name = '', reason = ''
 WHERE e.id = ANY (ARRAY(SELECT k.id FROM belfry.events k WHERE k.subject = 'channel' AND k.name = @channel_id::bigint::text ORDER BY k.id LIMIT @keys));

-- name: ForgetRunning :many
-- The RUNNING jobs that may be in a chunk with @channel_id: their cursor is not known to be
-- beyond it, or they retry it because it was skipped (job_skips_pkey). The other columns change
-- when a chunk ends, and a retry that has ended is not marked (jobs_one_running_per_lane).
SELECT j.id, j.fence, j.chunks FROM belfry.jobs j
 WHERE j.status = 'RUNNING'
   AND (NOT CASE WHEN j.type IN ('inbox', 'push') AND j."cursor" IS NOT NULL THEN j."cursor"::bigint >= @channel_id::bigint ELSE false END
        OR EXISTS (SELECT FROM belfry.job_skips s WHERE s.job_id = j.id AND s.key = @channel_id::bigint::text AND s.retry OFFSET 0))
 ORDER BY j.id;

-- name: ForgetWriters :many
-- The open transactions of other sessions, and whether they write belfry's tables or have locked rows of them now: a
-- firing of a schedule locks its row before its query. pg_locks needs no privilege, and a snapshot of transaction ids
-- would not show a transaction that has only read. Readers and VACUUM are not writers. A transaction holds its virtual
-- id until it ends or is prepared, and its ids (none before it writes; more with savepoints) until it ends; its locks
-- of tables end with a savepoint. The process id is 0 for a prepared transaction. One scan of pg_locks: a transaction
-- that is prepared meanwhile is in it under one of its virtual ids.
SELECT l.virtualtransaction, coalesce(l.pid, 0) AS pid,
       coalesce(array_agg(l.transactionid::text) FILTER (WHERE l.locktype = 'transactionid'), '{}') AS ids,
       bool_or(l.locktype = 'relation' AND l.mode IN ('RowShareLock', 'RowExclusiveLock')
           AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
           AND l.relation = ANY (ARRAY(SELECT c.oid FROM pg_catalog.pg_class c WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'belfry'::regnamespace))) AS writes
  FROM pg_catalog.pg_locks l
 WHERE l.granted AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
   AND (l.locktype = 'relation' OR l.locktype IN ('virtualxid', 'transactionid') AND l.mode = 'ExclusiveLock')
 GROUP BY 1, 2
 ORDER BY 1;

-- name: ForgetRecord :one
-- The event of an erasure, without the channel.
INSERT INTO belfry.events (subject, kind, actor, reason, detail)
VALUES ('channel', 'forgotten', coalesce(nullif(@actor, ''), session_user), @reason,
        jsonb_build_object('session_user', session_user, 'deleted', @deleted::jsonb))
RETURNING id;

-- name: ForgetRecordMore :exec
-- Raises the counts of the event, in the transaction of each step.
UPDATE belfry.events e SET detail = jsonb_set(e.detail, '{deleted}', @deleted::jsonb) WHERE e.id = @id;

-- name: ForgetActor :exec
-- Sets the actor and the reason of the events that triggers write in this transaction.
SELECT belfry.act(@actor, @reason);
