-- The outbox: what chunks write. Both tables are hot (one row per job and
-- channel), hence narrow rows, no foreign keys, no surrogate ids and nothing that
-- needs ON CONFLICT: uniqueness comes from the key, integrity from the chunk's
-- transaction. Title, body and data live once, in the job.

-- One notification per (job, channel) (I2). The key starts with the channel so
-- that one index carries both uniqueness and the inbox listing, newest job first.
CREATE TABLE belfry.notifications (
    channel_id bigint NOT NULL,
    job_id     bigint NOT NULL,
    read_at    timestamptz,
    CONSTRAINT notifications_pkey PRIMARY KEY (channel_id, job_id)
);

-- One message per (job, channel) (I2), PENDING and due at next_attempt_at: the
-- job's deliver_at, or the time its chunk was written. owner and lease_expires_at
-- belong to the relay that is delivering it; they are NULL, and cost no space,
-- until then.
CREATE TABLE belfry.messages (
    job_id           bigint      NOT NULL,
    channel_id       bigint      NOT NULL,
    next_attempt_at  timestamptz NOT NULL,
    attempts         smallint    NOT NULL DEFAULT 0,
    status           text        NOT NULL DEFAULT 'PENDING',
    owner            text,
    lease_expires_at timestamptz,
    sent_at          timestamptz,
    last_error       text,
    CONSTRAINT messages_pkey PRIMARY KEY (job_id, channel_id),
    CONSTRAINT messages_status_check CHECK (status IN ('PENDING', 'QUEUED', 'PROCESSING', 'SENT', 'DEAD', 'CANCELLED'))
);
CREATE INDEX messages_due_idx ON belfry.messages (next_attempt_at) WHERE status = 'PENDING';
