-- What was written can be taken back, is held while its job is aborted, and is
-- deleted when it is old: withdrawn notifications, recalled messages, the one rule
-- of what may be sent, and retention.

-- Withdrawn notifications stay, marked, so that an audit can tell who had one. An
-- inbox lists those whose withdrawn_at is NULL. A NULL costs no space.
ALTER TABLE belfry.notifications ADD COLUMN withdrawn_at timestamptz;

-- Set by a recall on a message that it found PROCESSING: the attempt in progress is
-- the last. When it fails the message becomes CANCELLED; the constraint keeps it from
-- becoming due again.
ALTER TABLE belfry.messages
    ADD COLUMN recalled_at timestamptz,
    ADD CONSTRAINT messages_recalled_check CHECK (recalled_at IS NULL OR status NOT IN ('PENDING', 'QUEUED'));

-- By job first: a relay steps over a job whose messages are held in one look at the
-- index, however many they are.
DROP INDEX belfry.messages_due_idx;
CREATE INDEX messages_due_idx ON belfry.messages (job_id, next_attempt_at) WHERE status = 'PENDING';

-- The one rule of what may be sent: not finished, not recalled, and its job is not
-- ABORTED (I6). A relay claims from here, and looks here again right before it calls
-- a provider. Locking its rows locks messages only.
CREATE VIEW belfry.sendable_messages AS
SELECT m.job_id, m.channel_id, m.status, m.next_attempt_at, m.attempts, m.owner, m.lease_expires_at
  FROM belfry.messages m
 WHERE m.status IN ('PENDING', 'QUEUED', 'PROCESSING') AND m.recalled_at IS NULL
   AND EXISTS (SELECT FROM belfry.jobs j WHERE j.id = m.job_id AND j.status <> 'ABORTED');

-- The jobs that have PENDING messages which are not held, by one step through
-- messages_due_idx per job. A relay starts here.
CREATE VIEW belfry.sendable_jobs AS
WITH RECURSIVE waiting (job_id) AS (
    (SELECT m.job_id FROM belfry.messages m WHERE m.status = 'PENDING' ORDER BY m.job_id LIMIT 1)
    UNION ALL
    SELECT n.job_id
      FROM waiting w
     CROSS JOIN LATERAL (SELECT m.job_id FROM belfry.messages m
                          WHERE m.status = 'PENDING' AND m.job_id > w.job_id ORDER BY m.job_id LIMIT 1) n
)
SELECT w.job_id
  FROM waiting w
 WHERE (SELECT j.status <> 'ABORTED' FROM belfry.jobs j WHERE j.id = w.job_id);

-- Retention: retention_at says that a job's rows are being deleted and is final, so
-- the job cannot go on; pruned_at that none of them is left.
ALTER TABLE belfry.jobs
    ADD COLUMN retention_at timestamptz,
    ADD COLUMN pruned_at    timestamptz,
    ADD CONSTRAINT jobs_retention_check CHECK (retention_at IS NULL OR finished_at IS NOT NULL),
    ADD CONSTRAINT jobs_pruned_check CHECK (pruned_at IS NULL OR retention_at IS NOT NULL);
-- Serve retention's search for what is old.
CREATE INDEX jobs_unpruned_idx ON belfry.jobs (finished_at, id) WHERE finished_at IS NOT NULL AND pruned_at IS NULL;
CREATE INDEX jobs_pruned_idx ON belfry.jobs (finished_at, id) WHERE pruned_at IS NOT NULL;

CREATE FUNCTION belfry.jobs_stay_pruned() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM belfry.reject('jobs', 'status', format('job %s is %s and retention deletes its rows since %s; allowed changes: none',
        OLD.id, OLD.status, OLD.retention_at), 'Enqueue another.');
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_unpruned BEFORE UPDATE OF status, abort_requested ON belfry.jobs -- after jobs_transition, by name
    FOR EACH ROW WHEN (OLD.retention_at IS NOT NULL AND NEW.status IS DISTINCT FROM OLD.status)
    EXECUTE FUNCTION belfry.jobs_stay_pruned();

-- The walk of retention through the notifications, whose key does not begin with the
-- job: which jobs it is about, and the channel up to which theirs are deleted. Every
-- node moves the same one, and the next goes on where one died.
CREATE TABLE belfry.retention_walks (
    name        text        CONSTRAINT retention_walks_pkey PRIMARY KEY,
    job_ids     bigint[]    NOT NULL,
    channel_id  bigint      NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT retention_walks_name_check CHECK (name = 'notifications')
);

-- When a channel of belfry's own table last changed in what an audience looks at,
-- whoever writes: an audit tells by it who joined an audience later.
CREATE FUNCTION belfry.channels_touch() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;
CREATE TRIGGER channels_touch BEFORE UPDATE OF external_id, platform, active, location ON belfry.channels
    FOR EACH ROW WHEN (NEW.updated_at = OLD.updated_at
        AND (OLD.external_id, OLD.platform, OLD.active, OLD.location::text) IS DISTINCT FROM (NEW.external_id, NEW.platform, NEW.active, NEW.location::text))
    EXECUTE FUNCTION belfry.channels_touch();

-- As in 0004. Its chunks add to recalled; recalled_at is set when a recall begins,
-- and again when one that took something back ends. So before is what the event
-- before said, and a recall that died in the middle is in the next one's numbers.
CREATE OR REPLACE FUNCTION belfry.jobs_record_recall() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO belfry.job_events (job_id, kind, actor, reason, detail)
    VALUES (NEW.id, 'recalled', coalesce(nullif(current_setting('belfry.actor', true), ''), session_user), coalesce(current_setting('belfry.reason', true), ''),
        jsonb_build_object('session_user', session_user,
            'before', jsonb_build_object('recalled', coalesce((SELECT (e.detail #>> '{after,recalled}')::bigint FROM belfry.job_events e
                WHERE e.job_id = NEW.id AND e.kind = 'recalled' ORDER BY e.id DESC LIMIT 1), 0)),
            'after', jsonb_build_object('recalled', NEW.recalled)));
    RETURN NULL;
END $$;
