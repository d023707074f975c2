-- Statements of the writers and of activities. ledger.sql has the statements of relays, carrier.sql those
-- for carriers, installation.sql the place of the database.

-- name: NotificationCopy :exec
-- One notification per channel of a chunk, binary rows from the client. A
-- duplicate (channel, job) is 23505 on notifications_pkey (I2).
COPY belfry.notifications (channel_id, arrival) FROM STDIN (FORMAT binary);

-- name: NotificationCopyLate :exec
-- Like NotificationCopy, with the revision of the content, for recipients that the cursor has passed.
COPY belfry.notifications (channel_id, arrival, revision) FROM STDIN (FORMAT binary);

-- name: MessageCopy :exec
-- One PENDING message per channel of a chunk, binary rows from the client. A
-- duplicate (job, channel) is 23505 on messages_pkey (I2).
COPY belfry.message_rows (job_id, channel_id, next_attempt_at) FROM STDIN (FORMAT binary);

-- name: MessageCopyBehind :exec
-- Like MessageCopy, for channels that are not all after the job's earlier messages. The last column is 0: claims
-- find these messages as they find those that were returned.
COPY belfry.message_rows (job_id, channel_id, next_attempt_at, lease_id) FROM STDIN (FORMAT binary);

-- name: ClaimsOwn :exec
-- Writes into their rows which messages of the job @job_id are in flight, and which of the next @keys after @after are
-- QUEUED, and keeps its claims and these pushes locked.
SELECT belfry.own_claimed(@job_id, @after, @keys);

-- name: DeliveriesAdd :exec
-- Adds the changes of a chunk or an operator's act to the counts of jobs. @job_ids is ascending and
-- distinct. Runs after the changes of messages and before changes of the jobs' rows (job_deliveries_pkey).
-- Counts end at their ceiling (job_deliveries_counts_check), so that no row of another role stops a recall.
INSERT INTO belfry.job_deliveries AS d (job_id, relay, written, dead, cancelled)
SELECT k.job_id, '', k.written, k.dead, k.cancelled
  FROM unnest(@job_ids::bigint[], @written::bigint[], @dead::bigint[], @cancelled::bigint[]) k (job_id, written, dead, cancelled)
    ON CONFLICT ON CONSTRAINT job_deliveries_pkey DO UPDATE
   SET written = least(d.written + excluded.written, 1000000000000), dead = least(d.dead + excluded.dead, 1000000000000), cancelled = least(d.cancelled + excluded.cancelled, 1000000000000);

-- name: JobProgress :many
-- The counts of the messages of some jobs (jobs_pkey, job_deliveries_pkey).
SELECT p.job_id, p.messages, p.sent, p.dead, p.cancelled, p.waiting FROM belfry.job_progress p WHERE p.job_id = ANY (@ids::bigint[]);

-- name: ChannelsWithValue :many
-- The channels from @low to @high with a value of the job @job_id, ascending (job_values_pkey).
SELECT v.channel_id FROM belfry.job_values v
 WHERE v.job_id = @job_id AND v.channel_id BETWEEN @low AND @high
 ORDER BY v.channel_id;

-- name: ChunkDue :one
-- The due time of a chunk's messages: @deliver_at or, if that is NULL, the start of the chunk's transaction; and
-- whether the job has a message at @channel_id or after it, or had one that was claimed (messages_pkey,
-- job_claims_pkey). Wakes relays when it commits.
SELECT coalesce(@deliver_at::timestamptz, now()),
       coalesce((SELECT m.channel_id FROM belfry.message_rows m WHERE m.job_id = @job_id ORDER BY m.channel_id DESC LIMIT 1) >= @channel_id, false)
           OR EXISTS (SELECT FROM belfry.job_claims c WHERE c.job_id = @job_id AND c.claimed_to >= @channel_id)
  FROM belfry.ring('belfry_messages');

-- name: ActivityTest :one
-- Sends the content of the job @job_id to the channel @channel_id as a test, and returns the activity's id.
-- No row: the job does not exist.
INSERT INTO belfry.activities (channel_id, category, title, body, data, variants, route, requested_by, test_of)
SELECT @channel_id, j.category, j.title, j.body, j.data, j.variants, j.route, @requested_by, j.id
  FROM belfry.jobs j
 WHERE j.id = @job_id
RETURNING id;

-- name: ActivityUnapproved :exec
-- Marks the requester of this transaction as a person who may not approve, although this role may.
SELECT set_config('belfry.may_approve', 'off', true);

-- name: ActivityRecord :exec
-- Writes the event of the activity @id, which this transaction sent for @actor, unless an earlier activity
-- has its idempotency key (activities_pkey). The event contains the channel but not the content.
INSERT INTO belfry.events (subject, name, kind, actor, detail)
SELECT 'channel', a.channel_id::text, 'sent_to', coalesce(nullif(@actor, ''), session_user),
       jsonb_strip_nulls(jsonb_build_object('session_user', session_user, 'activity', a.id, 'category', a.category, 'test_of', a.test_of))
  FROM belfry.activities a
 WHERE a.id = @id AND a.xmin = pg_current_xact_id()::xid;

-- name: ActivityGet :one
-- Reads the activity @id and the status of its message, '' if that is deleted. Relies on activities_pkey and
-- messages_pkey. No row: it was deleted with its message.
SELECT a.id, a.channel_id, a.category, a.title, a.body, a.data, a.variants, a.route, a.deliver_at, a.idempotency_key,
       a.inbox, a.collapse_key, coalesce(a.collapsed_title, '') AS collapsed_title, a.requested_by, a.created_at, a.test_of, coalesce(m.status, '') AS status, m.reason
  FROM belfry.activities a
  LEFT JOIN belfry.messages m ON m.job_id = a.id AND m.channel_id = a.channel_id
 WHERE a.id = @id;

-- name: ActivitySend :one
-- Sends one message, or with @inbox a notification, to the channel @channel_id and returns the activity's id.
-- A NULL @route means the category's route, a NULL @deliver_at at once. For a known @idempotency_key it
-- returns the id of the first activity. Bad input raises 23514 with the column in the error. Always one row.
SELECT belfry.insert_activity(@channel_id, @category, @title, @body, coalesce(@data::jsonb, '{}'), coalesce(@variants::jsonb, '{}'), @route, @deliver_at,
    @idempotency_key, @requested_by, @inbox, @collapse_key, nullif(@collapsed_title, ''));
