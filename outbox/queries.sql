-- What writers say, and activities. ledger.sql has what relays do, carrier.sql what they do with
-- a carrier, installation.sql where the database is.

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

-- name: ActivityTest :one
-- Sends what the job @job_id says to the channel @channel_id, as a test of it, and returns
-- the activity's id. No row: no such job.
INSERT INTO belfry.activities (channel_id, category, title, body, data, variants, route, requested_by, test_of)
SELECT @channel_id, j.category, j.title, j.body, j.data, j.variants, j.route, @requested_by, j.id
  FROM belfry.jobs j
 WHERE j.id = @job_id
RETURNING id;

-- name: ActivityUnapproved :exec
-- For this transaction: the requester is a person who may not approve, although this role may.
SELECT set_config('belfry.may_approve', 'off', true);

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
