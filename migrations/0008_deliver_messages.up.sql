-- Delivery: what a relay needs to send messages at least once. The route's step a
-- message is at, leases on what relays have in their hands, a record of what was
-- handed to providers, and one of every attempt that was no plain success.

DROP VIEW belfry.sendable_jobs, belfry.sendable_messages;

-- attempts counts the calls of the present step. reason says why a message is DEAD or
-- CANCELLED, or what a PENDING one waits for. receipt is what the provider calls a
-- message whose result comes later.
ALTER TABLE belfry.messages
    DROP COLUMN owner,
    DROP COLUMN lease_expires_at,
    ADD COLUMN step     smallint NOT NULL DEFAULT 0,
    ADD COLUMN crashes  smallint NOT NULL DEFAULT 0,
    ADD COLUMN lease_id bigint,
    ADD COLUMN receipt  text,
    ADD COLUMN reason   text;
-- No relay of belfry's was there before to hold any, and no carrier.
UPDATE belfry.messages SET status = CASE WHEN recalled_at IS NULL THEN 'PENDING' ELSE 'CANCELLED' END WHERE status IN ('PROCESSING', 'QUEUED');
UPDATE belfry.messages SET reason = 'unknown' WHERE status = 'DEAD';
UPDATE belfry.messages SET reason = 'recalled' WHERE status = 'CANCELLED';
-- Every statement that writes a message reads these conditions first, and takes the longer
-- the longer they are: array literals, and one that says what waiting messages have not.
ALTER TABLE belfry.messages
    DROP CONSTRAINT messages_status_check,
    DROP CONSTRAINT messages_recalled_check,
    ADD CONSTRAINT messages_status_check CHECK (status = ANY ('{PENDING,QUEUED,PROCESSING,SENT,DEAD,CANCELLED}')),
    ADD CONSTRAINT messages_waiting_check CHECK (status <> ALL ('{PENDING,QUEUED}') OR (recalled_at IS NULL AND receipt IS NULL)),
    ADD CONSTRAINT messages_owner_check CHECK (status <> 'PROCESSING' OR lease_id IS NOT NULL OR receipt IS NOT NULL),
    ADD CONSTRAINT messages_reason_check CHECK (status <> ALL ('{DEAD,CANCELLED}') OR reason IS NOT NULL);

-- Claims walk one job in this order and go on where the last one ended, so that they
-- never step over the same dead entries twice. The messages of activities, whose
-- job_id is negative, are few and each of another: they go by time.
DROP INDEX belfry.messages_due_idx;
CREATE INDEX messages_due_idx ON belfry.messages (job_id, next_attempt_at, channel_id) WHERE status = 'PENDING' AND job_id > 0;
CREATE INDEX messages_activity_idx ON belfry.messages (next_attempt_at, job_id, channel_id) WHERE status = 'PENDING' AND job_id < 0;
CREATE INDEX messages_receipt_idx ON belfry.messages (next_attempt_at) WHERE status = 'PROCESSING' AND receipt IS NOT NULL;
CREATE INDEX messages_queued_idx ON belfry.messages (job_id) WHERE status = 'QUEUED';
CREATE INDEX messages_dead_idx ON belfry.messages (job_id, channel_id) WHERE status = 'DEAD';

-- One claim of one relay, for as long as any message of it is in the relay's hands.
-- An expired one is taken back: its messages are found by their keys. The relay draws
-- the id at random: a claim is not durable by itself, and a sequence might give its
-- number to another after a crash.
CREATE TABLE belfry.leases (
    id          bigint CONSTRAINT leases_pkey PRIMARY KEY,
    relay       text        NOT NULL,
    claimed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL,
    job_ids     bigint[]    NOT NULL,
    channel_ids bigint[]    NOT NULL,
    CONSTRAINT leases_keys_check CHECK (cardinality(job_ids) = cardinality(channel_ids) AND cardinality(job_ids) > 0)
) WITH (fillfactor = 70); -- room for renewals
-- Keys do not compress, and trying costs a microsecond each.
ALTER TABLE belfry.leases ALTER COLUMN job_ids SET STORAGE EXTERNAL, ALTER COLUMN channel_ids SET STORAGE EXTERNAL;
CREATE INDEX leases_expiry_idx ON belfry.leases (expires_at);

-- What was about to be handed to a provider under a lease, and by which step of its
-- route. Of the messages of an expired lease these have an unknown outcome, the others
-- were never sent.
CREATE TABLE belfry.handovers (
    lease_id    bigint     NOT NULL,
    job_ids     bigint[]   NOT NULL,
    channel_ids bigint[]   NOT NULL,
    steps       smallint[] NOT NULL
);
ALTER TABLE belfry.handovers
    ALTER COLUMN job_ids SET STORAGE EXTERNAL, ALTER COLUMN channel_ids SET STORAGE EXTERNAL, ALTER COLUMN steps SET STORAGE EXTERNAL;
CREATE INDEX handovers_lease_idx ON belfry.handovers (lease_id);

-- Every attempt that was not accepted at once, and every step that was passed over:
-- who failed, how, and when. A message that is SENT without a row
-- here went out with its first call.
CREATE TABLE belfry.attempts (
    id         bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT attempts_pkey PRIMARY KEY,
    job_id     bigint      NOT NULL,
    channel_id bigint      NOT NULL,
    step       smallint    NOT NULL,
    attempt    smallint    NOT NULL, -- of the step, from 1; 0: no call was made
    medium     text        NOT NULL,
    sender     text        NOT NULL DEFAULT '',
    outcome    text        NOT NULL,
    reason     text        NOT NULL DEFAULT '',
    code       text        NOT NULL DEFAULT '', -- the provider's
    error      text        NOT NULL DEFAULT '',
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT attempts_outcome_check CHECK (outcome IN ('retryable', 'permanent', 'invalid_address', 'unknown', 'crashed', 'refused', 'accepted', 'unconfirmed')),
    CONSTRAINT attempts_error_check CHECK (length(error) <= 1000 AND length(code) <= 100)
);
CREATE INDEX attempts_message_idx ON belfry.attempts (job_id, channel_id, id);

-- The relays that live, by their heartbeat: they share each sender's rate.
CREATE TABLE belfry.relays (
    name         text        CONSTRAINT relays_pkey PRIMARY KEY,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    senders      text[]      NOT NULL DEFAULT '{}',
    media        text[]      NOT NULL DEFAULT '{}', -- that it has senders for
    in_hand      integer     NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

-- What operators set about a sender while relays run; NULL: the configuration's.
CREATE TABLE belfry.senders (
    name            text CONSTRAINT senders_pkey PRIMARY KEY,
    rate_per_second double precision,
    concurrency     integer,
    paused_at       timestamptz, -- NULL: open
    paused_by       text,
    pause_reason    text NOT NULL DEFAULT '',
    CONSTRAINT senders_paused_check CHECK ((paused_at IS NULL) = (paused_by IS NULL))
);

-- The name of this database among others that use the same provider: part of every
-- idempotency key.
CREATE TABLE belfry.installation (
    one boolean CONSTRAINT installation_pkey PRIMARY KEY DEFAULT true,
    id   uuid NOT NULL DEFAULT gen_random_uuid(),
    CONSTRAINT installation_one_check CHECK (one)
);
INSERT INTO belfry.installation DEFAULT VALUES;

-- delivered_at: the job is at rest and no message of it is left to send. Relays look
-- for work among the others.
ALTER TABLE belfry.jobs ADD COLUMN delivered_at timestamptz;
-- Jobs of before that are at rest are delivered, but those with a message left to send.
UPDATE belfry.jobs j
   SET delivered_at = greatest(k.finished_at, m.sent_at)
  FROM belfry.jobs k
  LEFT JOIN (SELECT job_id, max(sent_at) AS sent_at, bool_or(status = 'PENDING') AS unsent FROM belfry.messages GROUP BY job_id) m ON m.job_id = k.id
 WHERE j.id = k.id AND k.finished_at IS NOT NULL AND m.unsent IS NOT TRUE;
CREATE INDEX jobs_undelivered_idx ON belfry.jobs (id) WHERE delivered_at IS NULL AND started_at IS NOT NULL;

-- A job that goes on has messages to deliver again.
CREATE FUNCTION belfry.jobs_undeliver() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.delivered_at := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER jobs_undeliver BEFORE UPDATE OF status, abort_requested ON belfry.jobs -- after jobs_transition, by name
    FOR EACH ROW WHEN (OLD.delivered_at IS NOT NULL AND NEW.status IN ('PENDING', 'RUNNING'))
    EXECUTE FUNCTION belfry.jobs_undeliver();

-- The one rule of what may be sent: not finished, not recalled, no receipt awaited, and
-- its job is not ABORTED (I6). What a relay claims, and looks at again right before it
-- calls a provider, is of these (MessageClaim and MessageLook in outbox/ledger.sql repeat
-- the rule; a test compares). Locking its rows locks messages only.
CREATE VIEW belfry.sendable_messages AS
SELECT m.job_id, m.channel_id, m.status, m.next_attempt_at, m.attempts, m.step, m.crashes, m.lease_id
  FROM belfry.messages m
 WHERE m.status IN ('PENDING', 'QUEUED', 'PROCESSING') AND m.recalled_at IS NULL AND m.receipt IS NULL
   AND (m.job_id < 0 OR coalesce((SELECT j.status <> 'ABORTED' FROM belfry.jobs j WHERE j.id = m.job_id), false));

-- The jobs that may have messages to send, most urgent first.
CREATE VIEW belfry.sendable_jobs AS
SELECT j.id AS job_id, j.lane, j.priority
  FROM belfry.jobs j
 WHERE j.delivered_at IS NULL AND j.started_at IS NOT NULL AND j.status <> 'ABORTED'
 ORDER BY j.priority DESC, j.id;

ALTER TABLE belfry.events
    DROP CONSTRAINT events_subject_check,
    ADD CONSTRAINT events_subject_check CHECK (subject IN ('lane', 'schedule', 'retention', 'sender', 'category', 'dead_letter', 'channel'));

-- Checks what operators set about a sender, and records it, whoever writes.
CREATE FUNCTION belfry.senders_validate() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.name IS NULL OR NEW.name !~ '^[a-z0-9][a-z0-9_-]{0,62}$' THEN
        PERFORM belfry.reject('senders', 'name', format('%L is not a sender''s name', left(coalesce(NEW.name, 'null'), 70)) || '; allowed values: 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit');
    END IF;
    IF NOT (NEW.rate_per_second > 0 AND NEW.rate_per_second <= 1000000) THEN
        PERFORM belfry.reject('senders', 'rate_per_second', format('%s is not allowed; allowed values: null (the configuration''s), or above 0 to 1000000', NEW.rate_per_second));
    END IF;
    IF NEW.concurrency NOT BETWEEN 1 AND 10000 THEN
        PERFORM belfry.reject('senders', 'concurrency', format('%s is not allowed; allowed values: null (the configuration''s), 1 to 10000', NEW.concurrency));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER senders_validate BEFORE INSERT OR UPDATE ON belfry.senders
    FOR EACH ROW EXECUTE FUNCTION belfry.senders_validate();

CREATE FUNCTION belfry.senders_record() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was    jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - 'name' ELSE '{"rate_per_second": null, "concurrency": null, "paused_at": null, "paused_by": null, "pause_reason": ""}' END;
    is_now jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - 'name' ELSE '{"rate_per_second": null, "concurrency": null, "paused_at": null, "paused_by": null, "pause_reason": ""}' END;
BEGIN
    IF was IS DISTINCT FROM is_now THEN
        INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
        VALUES ('sender', CASE WHEN TG_OP = 'DELETE' THEN OLD.name ELSE NEW.name END,
            CASE WHEN was ->> 'paused_at' IS NULL AND is_now ->> 'paused_at' IS NOT NULL THEN 'paused'
                 WHEN was ->> 'paused_at' IS NOT NULL AND is_now ->> 'paused_at' IS NULL THEN 'resumed' ELSE 'changed' END,
            coalesce(nullif(current_setting('belfry.actor', true), ''), session_user), coalesce(current_setting('belfry.reason', true), ''),
            jsonb_build_object('session_user', session_user, 'before', was, 'after', is_now));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER senders_record AFTER INSERT OR UPDATE OR DELETE ON belfry.senders
    FOR EACH ROW EXECUTE FUNCTION belfry.senders_record();
REVOKE EXECUTE ON FUNCTION belfry.senders_record() FROM PUBLIC;
