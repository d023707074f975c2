-- name: MessageSlice :many
-- A job's messages in key order: at most @keys after @after, up to @bound
-- (messages_pkey), with the revision of the content that a provider accepted, or NULL.
SELECT m.channel_id, m.status, coalesce(m.last_error, ''), coalesce(m.reason, ''), m.receipt IS NOT NULL,
       CASE WHEN m.status = 'SENT' OR m.receipt IS NOT NULL THEN coalesce(m.revision, 0)::integer END
  FROM (SELECT r.channel_id, r.last_error, r.reason, r.receipt, r.revision,
               CASE WHEN r.status = 'PENDING' AND r.lease_id IS NULL AND r.channel_id <= (SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = @job_id)
                    THEN CASE WHEN belfry.push_of(r.job_id, r.channel_id) IS NULL THEN 'PROCESSING' ELSE 'QUEUED' END ELSE r.status END AS status
          FROM belfry.message_rows r
         WHERE r.job_id = @job_id AND r.channel_id > @after::bigint AND r.channel_id <= @bound::bigint
         ORDER BY r.channel_id
         LIMIT @keys) m
 ORDER BY m.channel_id;

-- name: SkipsOf :many
-- The skips of a job among @keys, with their errors (job_skips_pkey).
SELECT s.key::bigint, s.error
  FROM belfry.job_skips s
 WHERE s.job_id = @job_id AND s.key = ANY (@keys::text[]);

-- name: ValuesOf :many
-- The channels among @ids with a value of the job @job_id (job_values_pkey).
SELECT v.channel_id FROM belfry.job_values v WHERE v.job_id = @job_id AND v.channel_id = ANY (@ids::bigint[]);

-- name: JobLeft :one
-- Whether retention deletes a job's rows, and the number of its skips (job_skips_pkey).
-- No row: the job does not exist.
SELECT j.retention_at IS NOT NULL, (SELECT count(*) FROM belfry.job_skips s WHERE s.job_id = j.id)
  FROM belfry.jobs j
 WHERE j.id = @id;

-- name: ReportPage :many
-- The next @limit messages of job @id above the channel @after, in their order: the medium
-- of the route where each is or ended, the sender that accepted it, its status, its times, and the
-- revision of the content that was sent. Relies on messages_pkey.
SELECT m.channel_id, coalesce(j.route[least(m.step + 1, cardinality(j.route))], ''), coalesce(m.sender, ''), m.status, coalesce(m.reason, ''), m.attempts::integer,
       CASE WHEN m.status IN ('PENDING', 'QUEUED') OR m.receipt IS NOT NULL AND m.status = 'PROCESSING' THEN m.next_attempt_at END,
       m.sent_at, CASE WHEN m.status = 'DEAD' THEN m.next_attempt_at END,
       CASE WHEN m.status = 'SENT' OR m.receipt IS NOT NULL THEN coalesce(m.revision, 0)::integer END
  FROM (SELECT r.job_id, r.channel_id, r.step, r.sender, r.reason, r.attempts, r.receipt, r.next_attempt_at, r.sent_at, r.revision,
               CASE WHEN r.status = 'PENDING' AND r.lease_id IS NULL AND r.channel_id <= (SELECT c.claimed_to FROM belfry.job_claims c WHERE c.job_id = @id)
                    THEN CASE WHEN belfry.push_of(r.job_id, r.channel_id) IS NULL THEN 'PROCESSING' ELSE 'QUEUED' END ELSE r.status END AS status
          FROM belfry.message_rows r
         WHERE r.job_id = @id AND r.channel_id > @after
         ORDER BY r.channel_id
         LIMIT @limit) m
  JOIN belfry.jobs j ON j.id = m.job_id
 ORDER BY m.channel_id;

-- The history of one channel. No index of the large tables has it: jobs and activities are
-- found first, and then the row of each by its key.
-- name: HistoryRows :many
-- The rows of channel @channel_id for each of the jobs @job_ids, in their order: its
-- message, its notification or its skip (messages_pkey, notifications_pkey, job_skips_pkey), whether it has a value,
-- and whether retention deletes the job's rows. The LIMITs keep it to one descent each. A job
-- that was deleted has no row.
SELECT j.id AS job_id, j.retention_at IS NOT NULL AS pruned, coalesce(f.state, '') AS state, f.read_at, f.withdrawn_at, s.error AS skip, v.valued IS NOT NULL AS valued,
       coalesce(m.status, '') AS status, coalesce(m.reason, '') AS reason, coalesce(m.last_error, '') AS error, m.revision, coalesce(m.awaited, false) AS awaited,
       CASE WHEN m.status IS NULL THEN '' ELSE coalesce(j.route[least(m.step + 1, cardinality(j.route))], '') END AS medium,
       coalesce(m.sender, '') AS sender, coalesce(m.attempts, 0)::integer AS attempts, m.due_at, m.sent_at, m.dead_at
  FROM unnest(@job_ids::bigint[]) WITH ORDINALITY k (id, n)
 CROSS JOIN LATERAL (SELECT j.id, j.route, j.retention_at, j.arrival FROM belfry.jobs j WHERE j.id = k.id LIMIT 1) j
  LEFT JOIN LATERAL (SELECT CASE WHEN f.withdrawn_at IS NOT NULL THEN 'withdrawn' WHEN belfry.inbox_is_read(f.channel_id, f.arrival, f.read_at) THEN 'read' ELSE 'unread' END AS state, f.read_at, f.withdrawn_at
                       FROM belfry.notifications f WHERE f.channel_id = @channel_id AND f.arrival = j.arrival LIMIT 1) f ON true
  LEFT JOIN LATERAL (SELECT true AS valued FROM belfry.job_values v WHERE v.job_id = k.id AND v.channel_id = @channel_id LIMIT 1) v ON true
  LEFT JOIN LATERAL (SELECT s.error FROM belfry.job_skips s WHERE s.job_id = k.id AND s.key = @channel_id::bigint::text LIMIT 1) s ON true
  LEFT JOIN LATERAL (SELECT m.status, m.reason, m.last_error, m.receipt IS NOT NULL AS awaited, m.step, m.sender, m.attempts, m.sent_at,
                            CASE WHEN m.status = 'SENT' OR m.receipt IS NOT NULL THEN coalesce(m.revision, 0)::integer END AS revision,
                            CASE WHEN m.status IN ('PENDING', 'QUEUED') OR m.receipt IS NOT NULL AND m.status = 'PROCESSING' THEN m.next_attempt_at END AS due_at,
                            CASE WHEN m.status = 'DEAD' THEN m.next_attempt_at END AS dead_at
                       FROM belfry.messages m WHERE m.job_id = k.id AND m.channel_id = @channel_id LIMIT 1) m ON true
 ORDER BY k.n;

-- name: HistoryActivities :many
-- The @limit newest activities to @channel_id that are older than the activity @before, or of
-- all if it is 0 (activities_channel_idx), newest first, with the status of their messages and the state of
-- their notifications (messages_pkey, notifications_pkey). No row if @before was deleted, because older ones were deleted, too.
SELECT a.id AS job_id, a.category, a.title, a.created_at, coalesce(m.status, '') AS status, coalesce(m.reason, '') AS reason, coalesce(m.last_error, '') AS error,
       NULL::integer AS revision, coalesce(m.awaited, false) AS awaited,
       CASE WHEN m.status IS NULL THEN '' ELSE coalesce(a.route[least(m.step + 1, cardinality(a.route))], '') END AS medium,
       coalesce(m.sender, '') AS sender, coalesce(m.attempts, 0)::integer AS attempts, m.due_at, m.sent_at, m.dead_at,
       CASE WHEN f.state IS NOT NULL THEN f.state WHEN a.collapse_key IS NOT NULL THEN 'collapsed' ELSE '' END AS state, f.read_at, f.withdrawn_at
  FROM (SELECT CASE WHEN @before::bigint = 0 THEN 'infinity' ELSE (SELECT b.created_at FROM belfry.activities b WHERE b.id = @before) END AS at) e
 CROSS JOIN LATERAL (SELECT t.id, t.category, t.title, t.route, t.created_at, t.collapse_key
                       FROM belfry.activities t
                      WHERE t.channel_id = @channel_id AND t.created_at <= e.at AND (t.created_at < e.at OR t.id > @before)
                      ORDER BY t.created_at DESC, t.id
                      LIMIT @limit) a
  LEFT JOIN LATERAL (SELECT m.status, m.reason, m.last_error, m.receipt IS NOT NULL AS awaited, m.step, m.sender, m.attempts, m.sent_at,
                            CASE WHEN m.status IN ('PENDING', 'QUEUED') OR m.receipt IS NOT NULL AND m.status = 'PROCESSING' THEN m.next_attempt_at END AS due_at,
                            CASE WHEN m.status = 'DEAD' THEN m.next_attempt_at END AS dead_at
                       FROM belfry.messages m WHERE m.job_id = a.id AND m.channel_id = @channel_id LIMIT 1) m ON true
  LEFT JOIN LATERAL (SELECT CASE WHEN f.withdrawn_at IS NOT NULL THEN 'withdrawn' WHEN belfry.inbox_is_read(f.channel_id, f.arrival, f.read_at) THEN 'read' ELSE 'unread' END AS state, f.read_at, f.withdrawn_at
                       FROM belfry.notifications f WHERE f.channel_id = @channel_id AND f.arrival = -a.id LIMIT 1) f ON true
 ORDER BY a.created_at DESC, a.id;
