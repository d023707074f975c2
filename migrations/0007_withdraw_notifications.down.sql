-- Back to notifications and messages that stay as they were written: no recall, no
-- rule of what may be sent, no retention.

CREATE OR REPLACE FUNCTION belfry.jobs_record_recall() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO belfry.job_events (job_id, kind, actor, reason, detail)
    VALUES (NEW.id, 'recalled', coalesce(nullif(current_setting('belfry.actor', true), ''), session_user), coalesce(current_setting('belfry.reason', true), ''),
        jsonb_build_object('session_user', session_user, 'before', jsonb_build_object('recalled', OLD.recalled),
            'after', jsonb_build_object('recalled', NEW.recalled)));
    RETURN NULL;
END $$;

DROP TRIGGER channels_touch ON belfry.channels;
DROP FUNCTION belfry.channels_touch();

DROP TABLE belfry.retention_walks;
DROP TRIGGER jobs_unpruned ON belfry.jobs;
DROP FUNCTION belfry.jobs_stay_pruned();
DROP INDEX belfry.jobs_pruned_idx, belfry.jobs_unpruned_idx;
ALTER TABLE belfry.jobs
    DROP CONSTRAINT jobs_pruned_check,
    DROP CONSTRAINT jobs_retention_check,
    DROP COLUMN pruned_at,
    DROP COLUMN retention_at;

DROP VIEW belfry.sendable_jobs, belfry.sendable_messages;
DROP INDEX belfry.messages_due_idx;
CREATE INDEX messages_due_idx ON belfry.messages (next_attempt_at) WHERE status = 'PENDING';
ALTER TABLE belfry.messages
    DROP CONSTRAINT messages_recalled_check,
    DROP COLUMN recalled_at;

-- Notifications that were withdrawn must not come back.
DELETE FROM belfry.notifications WHERE withdrawn_at IS NOT NULL;
ALTER TABLE belfry.notifications DROP COLUMN withdrawn_at;
