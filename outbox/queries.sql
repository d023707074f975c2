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
