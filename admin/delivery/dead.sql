-- Dead letters: operators' acts on messages that gave up.

-- name: DeadList :many
-- A page of dead letters, highest keys first: the matching ones among the @keys below
-- (@before_job_id, @before_channel_id) and above (@low_job_id, @low_channel_id)
-- (messages_dead_idx). A NULL filter matches everything; @sender is the sender of the last
-- attempt (attempts_message_idx, one descent per examined key), which is read with @by_error,
-- too: the caller compares errors. Every row begins with the lowest examined key; without a
-- match there is one row with NULL in the other columns. No row at the end.
WITH looked AS MATERIALIZED (
    SELECT m.job_id, m.channel_id
      FROM belfry.message_rows m
     WHERE m.status = 'DEAD'
       AND (m.job_id, m.channel_id) < (@before_job_id::bigint, @before_channel_id::bigint)
       AND (m.job_id, m.channel_id) > (@low_job_id::bigint, @low_channel_id::bigint)
     ORDER BY m.job_id DESC, m.channel_id DESC
     LIMIT @keys
), matched AS MATERIALIZED (
    SELECT d.*, a.sender, a.code
      FROM looked l
     CROSS JOIN LATERAL (SELECT v.job_id, v.channel_id, v.category, v.step, v.medium, v.reason, v.attempts, v.crashes, v.error, v.dead_at, v.held, v.kept
                           FROM belfry.dead_letters v
                          WHERE v.job_id = l.job_id AND v.channel_id = l.channel_id LIMIT 1) d
      LEFT JOIN LATERAL (SELECT t.sender, t.code FROM belfry.attempts t
                          WHERE t.job_id = d.job_id AND t.channel_id = d.channel_id AND (@sender::text IS NOT NULL OR @by_error::boolean)
                          ORDER BY t.id DESC LIMIT 1) a ON true
     WHERE (@medium::text IS NULL OR d.medium = @medium) AND (@reason::text IS NULL OR d.reason = @reason)
       AND (@since::timestamptz IS NULL OR d.dead_at >= @since) AND (@until::timestamptz IS NULL OR d.dead_at < @until)
       AND (@channel_id::bigint IS NULL OR d.channel_id = @channel_id) AND (@category::text IS NULL OR d.category = @category)
       AND (@sender::text IS NULL OR a.sender = @sender)
)
SELECT e.job_id, e.channel_id, d.job_id, d.channel_id, d.category, d.step, d.medium, d.reason, d.attempts, d.crashes, d.error, d.dead_at, d.held, coalesce(d.kept, ''),
       d.sender, d.code
  FROM (SELECT l.job_id, l.channel_id FROM looked l ORDER BY l.job_id, l.channel_id LIMIT 1) e
  LEFT JOIN matched d ON true
 ORDER BY d.job_id DESC, d.channel_id DESC
 LIMIT @limit;

-- name: DeadErrors :many
-- Like DeadList, but counts the matching letters by job, medium, reason, sender and code of the
-- last attempt (attempts_message_idx) and error, the highest jobs first. Every row begins with
-- the lowest examined key and the number of examined keys; without a match there is one row
-- with NULL in the other columns. No row at the end. The medium is as in belfry.dead_letters,
-- whose other columns would take a third of the time; the columns of a job are read once for
-- all its letters.
WITH looked AS MATERIALIZED (
    SELECT m.job_id, m.channel_id
      FROM belfry.message_rows m
     WHERE m.status = 'DEAD'
       AND (m.job_id, m.channel_id) < (@before_job_id::bigint, @before_channel_id::bigint)
       AND (m.job_id, m.channel_id) > (@low_job_id::bigint, @low_channel_id::bigint)
     ORDER BY m.job_id DESC, m.channel_id DESC
     LIMIT @keys
), kinds AS MATERIALIZED (
    SELECT o.job_id, o.low, o.high, k.route, k.category
      FROM (SELECT l.job_id, min(l.channel_id) AS low, max(l.channel_id) AS high FROM looked l GROUP BY l.job_id) o
      LEFT JOIN LATERAL (SELECT j.route, j.category FROM belfry.jobs j WHERE j.id = o.job_id
                          UNION ALL
                         SELECT t.route, t.category FROM belfry.activities t WHERE t.id = o.job_id AND o.job_id < 0
                          LIMIT 1) k ON true
), matched AS MATERIALIZED (
    SELECT k.job_id, d.channel_id, r.medium, d.reason, d.error, d.dead_at, a.sender, a.code
      FROM kinds k
     CROSS JOIN LATERAL (SELECT m.channel_id, m.step, m.reason, coalesce(m.last_error, '') AS error, m.next_attempt_at AS dead_at
                           FROM belfry.message_rows m
                          WHERE m.job_id = k.job_id AND m.channel_id BETWEEN k.low AND k.high AND m.status = 'DEAD' OFFSET 0) d
     CROSS JOIN LATERAL (SELECT k.route[least(d.step + 1, cardinality(k.route))] AS medium) r
      LEFT JOIN LATERAL (SELECT t.sender, t.code FROM belfry.attempts t
                          WHERE t.job_id = k.job_id AND t.channel_id = d.channel_id ORDER BY t.id DESC LIMIT 1) a ON true
     WHERE (@medium::text IS NULL OR r.medium = @medium) AND (@reason::text IS NULL OR d.reason = @reason)
       AND (@since::timestamptz IS NULL OR d.dead_at >= @since) AND (@until::timestamptz IS NULL OR d.dead_at < @until)
       AND (@channel_id::bigint IS NULL OR d.channel_id = @channel_id) AND (@category::text IS NULL OR k.category = @category)
       AND (@sender::text IS NULL OR a.sender = @sender)
)
SELECT e.job_id, e.channel_id, (SELECT count(*) FROM looked) AS looked,
       g.job_id, g.medium, g.reason, g.sender, g.code, g.error, g.letters, g.example, g.first_at, g.last_at
  FROM (SELECT l.job_id, l.channel_id FROM looked l ORDER BY l.job_id, l.channel_id LIMIT 1) e
  LEFT JOIN (SELECT d.job_id, d.medium, d.reason, d.sender, d.code, d.error,
                    count(*) AS letters, max(d.channel_id) AS example, min(d.dead_at) AS first_at, max(d.dead_at) AS last_at
               FROM matched d GROUP BY 1, 2, 3, 4, 5, 6) g ON true
 ORDER BY g.job_id DESC;

-- name: DeadStep :many
-- One step through the dead letters: the matching ones among the @keys after (@after_job_id,
-- @after_channel_id), up to and including (@high_job_id, @high_channel_id), in key order
-- (messages_dead_idx). Filters as in DeadList. Every row begins with the highest examined key;
-- without a match there is one row with NULL in the other columns. No row at the end.
WITH looked AS MATERIALIZED (
    SELECT m.job_id, m.channel_id
      FROM belfry.message_rows m
     WHERE m.status = 'DEAD'
       AND (m.job_id, m.channel_id) > (@after_job_id::bigint, @after_channel_id::bigint)
       AND (m.job_id, m.channel_id) <= (@high_job_id::bigint, @high_channel_id::bigint)
     ORDER BY m.job_id, m.channel_id
     LIMIT @keys
), matched AS MATERIALIZED (
    SELECT d.*, a.sender, a.code
      FROM looked l
     CROSS JOIN LATERAL (SELECT v.job_id, v.channel_id, v.category, v.medium, v.reason, v.error, v.dead_at, v.held, v.kept
                           FROM belfry.dead_letters v
                          WHERE v.job_id = l.job_id AND v.channel_id = l.channel_id LIMIT 1) d
      LEFT JOIN LATERAL (SELECT t.sender, t.code FROM belfry.attempts t
                          WHERE t.job_id = d.job_id AND t.channel_id = d.channel_id AND (@sender::text IS NOT NULL OR @by_error::boolean)
                          ORDER BY t.id DESC LIMIT 1) a ON true
     WHERE (@medium::text IS NULL OR d.medium = @medium) AND (@reason::text IS NULL OR d.reason = @reason)
       AND (@since::timestamptz IS NULL OR d.dead_at >= @since) AND (@until::timestamptz IS NULL OR d.dead_at < @until)
       AND (@channel_id::bigint IS NULL OR d.channel_id = @channel_id) AND (@category::text IS NULL OR d.category = @category)
       AND (@sender::text IS NULL OR a.sender = @sender)
)
SELECT e.job_id, e.channel_id, d.job_id, d.channel_id, d.medium, d.reason, d.held, coalesce(d.kept, ''),
       (SELECT j.recalled_at FROM belfry.jobs j WHERE j.id = d.job_id), d.sender, d.code, CASE WHEN @by_error::boolean THEN d.error END
  FROM (SELECT l.job_id, l.channel_id FROM looked l ORDER BY l.job_id DESC, l.channel_id DESC LIMIT 1) e
  LEFT JOIN matched d ON true
 ORDER BY d.job_id, d.channel_id;

-- name: DeadRedrive :many
-- Returns dead letters to the queue: the letters of @job_ids and @channel_ids, in key order,
-- that are still DEAD become PENDING and due now (messages_pkey), with @same_step at the step
-- of their death, otherwise at the first. Returns the keys of the changed letters.
WITH locked AS MATERIALIZED (
    SELECT k.tid
      FROM unnest(@job_ids::bigint[], @channel_ids::bigint[]) c (job_id, channel_id)
     CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.message_rows m
                          WHERE m.job_id = c.job_id AND m.channel_id = c.channel_id AND m.status = 'DEAD'
                            FOR UPDATE) k
)
UPDATE belfry.message_rows m
   SET status = 'PENDING', reason = 'redriven', step = CASE WHEN @same_step::boolean THEN m.step ELSE 0 END,
       attempts = 0, crashes = 0, lease_id = 0, receipt = NULL, next_attempt_at = statement_timestamp()
 WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l)) AND m.status = 'DEAD'
RETURNING m.job_id, m.channel_id;

-- name: DeadDiscard :many
-- Discards dead letters: like DeadRedrive, but they become CANCELLED.
WITH locked AS MATERIALIZED (
    SELECT k.tid
      FROM unnest(@job_ids::bigint[], @channel_ids::bigint[]) c (job_id, channel_id)
     CROSS JOIN LATERAL (SELECT m.ctid AS tid FROM belfry.message_rows m
                          WHERE m.job_id = c.job_id AND m.channel_id = c.channel_id AND m.status = 'DEAD'
                            FOR UPDATE) k
)
UPDATE belfry.message_rows m
   SET status = 'CANCELLED', reason = 'discarded', next_attempt_at = statement_timestamp()
 WHERE m.ctid = ANY (ARRAY(SELECT l.tid FROM locked l)) AND m.status = 'DEAD'
RETURNING m.job_id, m.channel_id;

-- name: DeadUndeliver :exec
-- Marks jobs as undelivered, as the last statement on them in a redrive's step: their rows are
-- locked in id order, and always written, so that a relay that is about to mark one as
-- delivered checks again. Fewer rows than @ids mean that a job was recalled, or cannot be
-- resumed any more, since the step read it; the caller repeats the step.
WITH locked AS MATERIALIZED (
    SELECT j.id FROM belfry.jobs j WHERE j.id = ANY (@ids::bigint[]) ORDER BY j.id FOR NO KEY UPDATE
)
UPDATE belfry.jobs j
   SET delivered_at = NULL
  FROM locked l
  JOIN unnest(@ids::bigint[], @recalls::timestamptz[]) s (id, recalled_at) ON s.id = l.id
 WHERE j.id = l.id AND NOT (j.status = 'ABORTED' AND coalesce(j.retention_at >= j.finished_at, false)) AND j.recalled_at IS NOT DISTINCT FROM s.recalled_at;

-- name: DeadRecord :one
-- The event of a redrive or a discard, in the transaction of the first step that
-- changes something. @name is the one job that the filter names, or ''.
INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
VALUES ('dead_letter', @name, @kind, coalesce(nullif(@actor, ''), session_user), @reason,
        jsonb_build_object('session_user', session_user, 'filter', @filter::jsonb, 'before', @before::jsonb, 'after', @after::jsonb))
RETURNING id;

-- name: DeadRecordMore :exec
-- Adds a later step of the same act to its event, in the step's transaction. Zero rows mean that
-- retention has deleted the event; the caller writes another.
UPDATE belfry.events e
   SET detail = e.detail || jsonb_build_object('before', @before::jsonb, 'after', @after::jsonb)
 WHERE e.id = @id;

-- name: MessageShow :one
-- One message in any status, with columns of its job or activity (messages_pkey). The text is the
-- one that was sent, if a provider has accepted it. No row without the message.
SELECT m.job_id, m.channel_id, m.status, m.step, coalesce(j.route, t.route, '{}') AS route,
       coalesce(j.category, t.category, '') AS category, coalesce(c.title, t.title, '') AS title, coalesce(c.body, t.body, '') AS body,
       CASE WHEN j.revision > 0 AND (m.status = 'SENT' OR m.receipt IS NOT NULL) THEN coalesce(m.revision, 0) END AS revision, coalesce(j.revision, 0) AS corrections,
       m.attempts, m.crashes, coalesce(m.reason, '') AS reason, coalesce(m.last_error, '') AS error, coalesce(m.receipt, '') AS receipt,
       m.next_attempt_at, m.sent_at, m.recalled_at, d.dead_at,
       coalesce(j.status = 'ABORTED' OR j.awaits_approval, false) AND m.status IN ('PENDING', 'QUEUED', 'DEAD') AS held, coalesce(d.kept, '') AS kept
  FROM belfry.messages m
  LEFT JOIN belfry.jobs j ON j.id = m.job_id
  LEFT JOIN belfry.activities t ON t.id = m.job_id
  LEFT JOIN LATERAL belfry.job_content(m.job_id, m.channel_id) c ON m.job_id > 0
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
-- Whether a filter's job or activity, its medium and its category exist, and all media and
-- categories. A NULL filter exists.
SELECT @job_id::bigint IS NULL OR EXISTS (SELECT FROM belfry.jobs j WHERE j.id = @job_id) OR EXISTS (SELECT FROM belfry.activities t WHERE t.id = @job_id),
       @medium::text IS NULL OR EXISTS (SELECT FROM belfry.media k WHERE k.name = @medium),
       (SELECT coalesce(string_agg(k.name, ', ' ORDER BY k.name), 'none') FROM belfry.media k),
       @category::text IS NULL OR EXISTS (SELECT FROM belfry.categories c WHERE c.name = @category),
       (SELECT coalesce(string_agg(c.name, ', ' ORDER BY c.name), 'none') FROM belfry.categories c);
