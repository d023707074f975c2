-- Back to messages that nobody delivers. Messages in a relay's hands become due again,
-- those whose receipt is awaited too: whoever delivers them next sends them again. Why a
-- message is DEAD or CANCELLED is forgotten: going up again calls the CANCELLED ones
-- recalled, whether they were refused, capped or discarded, and the DEAD ones unknown.
DELETE FROM belfry.events WHERE subject IN ('sender', 'category', 'dead_letter', 'channel');
ALTER TABLE belfry.events
    DROP CONSTRAINT events_subject_check,
    ADD CONSTRAINT events_subject_check CHECK (subject IN ('lane', 'schedule', 'retention'));

DROP VIEW belfry.sendable_jobs, belfry.sendable_messages;
DROP TRIGGER jobs_undeliver ON belfry.jobs;
DROP FUNCTION belfry.jobs_undeliver();
DROP INDEX belfry.jobs_undelivered_idx;
ALTER TABLE belfry.jobs DROP COLUMN delivered_at;
DROP TABLE belfry.installation;
DROP TABLE belfry.senders;
DROP FUNCTION belfry.senders_record();
DROP FUNCTION belfry.senders_validate();
DROP TABLE belfry.relays;
DROP TABLE belfry.attempts;
DROP TABLE belfry.handovers;
DROP TABLE belfry.leases;

DROP INDEX belfry.messages_queued_idx, belfry.messages_dead_idx, belfry.messages_receipt_idx, belfry.messages_activity_idx, belfry.messages_due_idx;
ALTER TABLE belfry.messages
    DROP CONSTRAINT messages_reason_check,
    DROP CONSTRAINT messages_owner_check,
    DROP CONSTRAINT messages_waiting_check,
    DROP CONSTRAINT messages_status_check,
    ADD CONSTRAINT messages_status_check CHECK (status IN ('PENDING', 'QUEUED', 'PROCESSING', 'SENT', 'DEAD', 'CANCELLED')),
    ADD CONSTRAINT messages_recalled_check CHECK (recalled_at IS NULL OR status NOT IN ('PENDING', 'QUEUED'));
-- The messages of activities have nothing left to say.
DELETE FROM belfry.messages WHERE job_id < 0;
UPDATE belfry.messages SET status = CASE WHEN recalled_at IS NULL THEN 'PENDING' ELSE 'CANCELLED' END WHERE status = 'PROCESSING';
ALTER TABLE belfry.messages
    DROP COLUMN reason,
    DROP COLUMN receipt,
    DROP COLUMN lease_id,
    DROP COLUMN crashes,
    DROP COLUMN step,
    ADD COLUMN owner            text,
    ADD COLUMN lease_expires_at timestamptz;
CREATE INDEX messages_due_idx ON belfry.messages (job_id, next_attempt_at) WHERE status = 'PENDING';

CREATE VIEW belfry.sendable_messages AS
SELECT m.job_id, m.channel_id, m.status, m.next_attempt_at, m.attempts, m.owner, m.lease_expires_at
  FROM belfry.messages m
 WHERE m.status IN ('PENDING', 'QUEUED', 'PROCESSING') AND m.recalled_at IS NULL
   AND EXISTS (SELECT FROM belfry.jobs j WHERE j.id = m.job_id AND j.status <> 'ABORTED');

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
