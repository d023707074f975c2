-- Back to 0003. Jobs that EXPIRED become ABORTED, the nearest that 0002 knows.
DROP FUNCTION belfry.job_content(bigint, bigint);
DROP FUNCTION belfry.retry_skipped(bigint, text, text);
DROP FUNCTION belfry.resume_edited(bigint, jsonb, text, text);
DROP FUNCTION belfry.set(bigint, jsonb, text, text);
DROP FUNCTION belfry.enqueue(text, text, text, text, jsonb, jsonb, timestamptz, timestamptz, text, integer, text, uuid, text, timestamptz);
DROP FUNCTION belfry.enqueue_group(text[], text, text, text, jsonb, jsonb, timestamptz, timestamptz, text, integer, text, text, timestamptz);
DROP TRIGGER jobs_record_recall ON belfry.jobs;
DROP TRIGGER jobs_record_throttle ON belfry.jobs;
DROP TRIGGER jobs_record_edit ON belfry.jobs;
DROP TRIGGER jobs_validate ON belfry.jobs;
DROP TABLE belfry.job_revisions, belfry.job_skips;
DROP FUNCTION belfry.jobs_record_edit();
DROP FUNCTION belfry.jobs_record_throttle();
DROP FUNCTION belfry.jobs_record_recall();
DELETE FROM belfry.job_events WHERE kind IN ('preempted', 'lane_paused', 'expired', 'retry_skipped_requested', 'changed', 'throttled', 'released', 'recalled');
ALTER TABLE belfry.job_events
    DROP CONSTRAINT job_events_kind_check,
    ADD CONSTRAINT job_events_kind_check CHECK (kind IN ('enqueued', 'claimed', 'resumed', 'interrupted',
        'aborted', 'finished', 'failed', 'resume_requested', 'retry_requested'));

-- As in 0002.
CREATE OR REPLACE FUNCTION belfry.jobs_validate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    earliest constant timestamptz := '0001-01-02 00:00:00+00';
    latest   constant timestamptz := '9999-12-30 00:00:00+00';
    known    text;
BEGIN
    IF TG_OP = 'INSERT' THEN
        known := CASE
            WHEN NEW.status IS DISTINCT FROM 'PENDING' THEN 'status'
            WHEN NEW.abort_requested IS DISTINCT FROM false THEN 'abort_requested'
            WHEN NEW."cursor" IS NOT NULL THEN 'cursor'
            WHEN NEW.bound IS NOT NULL THEN 'bound'
            WHEN NEW.fence IS DISTINCT FROM 0 THEN 'fence'
            WHEN NEW.runner IS NOT NULL THEN 'runner'
            WHEN NEW.heartbeat_at IS NOT NULL THEN 'heartbeat_at'
            WHEN NEW.attempts IS DISTINCT FROM 0 THEN 'attempts'
            WHEN NEW.last_error IS NOT NULL THEN 'last_error'
            WHEN NEW.chunks IS DISTINCT FROM 0 THEN 'chunks'
            WHEN NEW.channels_read IS DISTINCT FROM 0 THEN 'channels_read'
            WHEN NEW.channels_total IS NOT NULL THEN 'channels_total'
            WHEN NEW.rows_written IS DISTINCT FROM 0 THEN 'rows_written'
            WHEN NEW.started_at IS NOT NULL THEN 'started_at'
            WHEN NEW.finished_at IS NOT NULL THEN 'finished_at'
            WHEN NEW.created_at IS DISTINCT FROM now() THEN 'created_at'
        END;
        IF known IS NOT NULL THEN
            PERFORM belfry.reject('jobs', known, 'belongs to belfry; allowed values for a new job: none, leave it out');
        END IF;
    ELSIF (OLD.bound IS NOT NULL OR OLD.status = 'RUNNING') AND (NEW.type, NEW.audience, NEW.group_id, NEW.deliver_at) IS DISTINCT FROM (OLD.type, OLD.audience, OLD.group_id, OLD.deliver_at) THEN
        PERFORM belfry.reject('jobs', CASE WHEN NEW.type <> OLD.type THEN 'type' WHEN NEW.audience <> OLD.audience THEN 'audience' WHEN NEW.deliver_at IS DISTINCT FROM OLD.deliver_at THEN 'deliver_at' ELSE 'group_id' END,
            format('job %s has started; allowed changes: none', OLD.id), 'Abort it and enqueue another.');
    END IF;

    IF NEW.type IS NULL OR NOT EXISTS (SELECT FROM belfry.job_types t WHERE t.name = NEW.type) THEN
        SELECT coalesce(string_agg(t.name, ', ' ORDER BY t.name), 'none') INTO known FROM belfry.job_types t;
        PERFORM belfry.reject('jobs', 'type', CASE WHEN NEW.type IS NULL THEN 'is required' ELSE format('%L is not a job type', left(NEW.type, 60)) END || '; allowed values: ' || known,
            'A runner built with a type of its own registers it when it starts.');
    END IF;
    IF NEW.category IS NULL OR NOT EXISTS (SELECT FROM belfry.categories c WHERE c.name = NEW.category) THEN
        SELECT coalesce(string_agg(c.name, ', ' ORDER BY c.name), 'none') INTO known FROM belfry.categories c;
        PERFORM belfry.reject('jobs', 'category', CASE WHEN NEW.category IS NULL THEN 'is required' ELSE format('%L is not a category', left(NEW.category, 60)) END || '; allowed values: ' || known,
            'INSERT INTO belfry.categories adds one.');
    END IF;
    IF NEW.title IS NULL OR NEW.title !~ '\S' OR length(NEW.title) > 200 THEN
        PERFORM belfry.reject('jobs', 'title', CASE WHEN NEW.title IS NULL THEN 'is required' WHEN length(NEW.title) > 200 THEN format('has %s characters', length(NEW.title)) ELSE 'is blank' END || '; allowed values: texts of 1 to 200 characters');
    END IF;
    IF NEW.body IS NULL OR length(NEW.body) > 10000 THEN
        PERFORM belfry.reject('jobs', 'body', CASE WHEN NEW.body IS NULL THEN 'is null' ELSE format('has %s characters', length(NEW.body)) END || '; allowed values: texts of 0 to 10000 characters');
    END IF;
    IF NEW.data IS NULL OR jsonb_typeof(NEW.data) <> 'object' OR octet_length(NEW.data::text) > 16384 THEN
        PERFORM belfry.reject('jobs', 'data', CASE WHEN NEW.data IS NULL THEN 'is null' WHEN jsonb_typeof(NEW.data) <> 'object' THEN 'is a JSON ' || jsonb_typeof(NEW.data) ELSE format('has %s bytes', octet_length(NEW.data::text)) END || '; allowed values: JSON objects of up to 16384 bytes');
    END IF;
    IF TG_OP = 'INSERT' OR NEW.audience IS DISTINCT FROM OLD.audience THEN
        PERFORM belfry.check_audience(NEW.audience);
    END IF;
    IF NEW.lane IS NULL OR NEW.lane !~ '^[a-z0-9][a-z0-9_-]{0,62}$' THEN
        PERFORM belfry.reject('jobs', 'lane', format('%L is not a lane name', left(coalesce(NEW.lane, 'null'), 70)) || '; allowed values: 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit');
    END IF;
    IF NEW.priority IS NULL OR NEW.priority NOT BETWEEN -1000 AND 1000 THEN
        PERFORM belfry.reject('jobs', 'priority', format('%s is not allowed; allowed values: -1000 to 1000, higher is more urgent', coalesce(NEW.priority::text, 'null')));
    END IF;
    IF NEW.schedule_at IS NULL OR NEW.schedule_at < earliest OR NEW.schedule_at > latest THEN
        PERFORM belfry.reject('jobs', 'schedule_at', format('%s is not allowed; allowed values: timestamps of the years 1 to 9999', coalesce(NEW.schedule_at::text, 'null')));
    END IF;
    IF NEW.deliver_at < NEW.schedule_at OR NEW.deliver_at > latest THEN
        PERFORM belfry.reject('jobs', 'deliver_at', format('%s is not allowed; allowed values: null, or timestamps up to the year 9999 not before schedule_at (%s)', NEW.deliver_at, NEW.schedule_at));
    END IF;
    IF length(NEW.idempotency_key) NOT BETWEEN 1 AND 200 THEN
        PERFORM belfry.reject('jobs', 'idempotency_key', format('has %s characters; allowed values: null, or texts of 1 to 200 characters', length(NEW.idempotency_key)));
    END IF;
    IF NEW.requested_by IS NULL OR NEW.requested_by !~ '\S' OR length(NEW.requested_by) > 200 THEN
        PERFORM belfry.reject('jobs', 'requested_by', 'is null, blank or too long; allowed values: texts of 1 to 200 characters');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER jobs_validate BEFORE INSERT OR UPDATE OF
    type, category, title, body, data, audience, lane, priority, schedule_at, deliver_at, idempotency_key, requested_by, group_id
    ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION belfry.jobs_validate();

ALTER TABLE belfry.jobs DISABLE TRIGGER USER;
UPDATE belfry.jobs SET status = 'ABORTED', abort_requested = true WHERE status = 'EXPIRED';
ALTER TABLE belfry.jobs ENABLE TRIGGER USER;
CREATE OR REPLACE FUNCTION belfry.jobs_transition() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.abort_requested AND NOT OLD.abort_requested THEN
        IF OLD.status IN ('PENDING', 'RUNNING') THEN
            NEW.status := 'ABORTED';
        ELSE
            RAISE NOTICE 'belfry: job % is % already; nothing to abort', OLD.id, OLD.status;
            NEW.abort_requested := false;
        END IF;
    ELSIF OLD.abort_requested AND NOT NEW.abort_requested AND NEW.status = 'ABORTED' THEN
        NEW.status := 'PENDING';
    END IF;

    IF NEW.status <> OLD.status THEN
        IF (OLD.status, NEW.status) NOT IN (
            ('PENDING', 'RUNNING'), ('PENDING', 'ABORTED'),
            ('RUNNING', 'PENDING'), ('RUNNING', 'PROCESSED'), ('RUNNING', 'ABORTED'), ('RUNNING', 'FAILED'),
            ('ABORTED', 'PENDING'), ('FAILED', 'PENDING')) THEN
            PERFORM belfry.reject('jobs', 'status', format('job %s cannot go from %s to %s; allowed values now: %s',
                    OLD.id, OLD.status, NEW.status, CASE OLD.status
                        WHEN 'PENDING' THEN 'RUNNING, ABORTED'
                        WHEN 'RUNNING' THEN 'PENDING, PROCESSED, ABORTED, FAILED'
                        WHEN 'PROCESSED' THEN 'none' ELSE 'PENDING' END),
                'Stop a job with abort_requested = true, resume it with belfry.resume(id), retry it with belfry.retry(id).');
        END IF;
        NEW.abort_requested := NEW.status = 'ABORTED';
        NEW.finished_at := CASE WHEN NEW.status IN ('PROCESSED', 'ABORTED', 'FAILED') THEN clock_timestamp() END;
        IF NEW.status <> 'RUNNING' THEN
            NEW.runner := NULL;
            NEW.heartbeat_at := NULL;
        END IF;
        IF OLD.status IN ('ABORTED', 'FAILED') THEN
            NEW.attempts := 0;
        END IF;
    END IF;
    IF NEW.fence < OLD.fence OR (NEW.status = 'RUNNING' AND OLD.status <> 'RUNNING' AND NEW.fence <= OLD.fence) THEN
        PERFORM belfry.reject('jobs', 'fence', format('job %s: the fencing token must rise with each claim (%s to %s)', OLD.id, OLD.fence, NEW.fence));
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION belfry.jobs_record() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kind   text;
    actor  text := coalesce(nullif(current_setting('belfry.actor', true), ''), session_user);
    reason text := coalesce(current_setting('belfry.reason', true), '');
BEGIN
    IF TG_OP = 'INSERT' THEN
        kind := 'enqueued';
        actor := NEW.requested_by;
        INSERT INTO belfry.job_events (job_id, kind, actor, detail)
        VALUES (NEW.id, kind, actor, jsonb_build_object('session_user', session_user, 'after', jsonb_build_object('status', NEW.status)));
    ELSE
        CASE
            WHEN OLD.status = 'RUNNING' AND NEW.status = 'RUNNING' THEN
                kind := 'resumed'; actor := NEW.runner;
                reason := format('the run of %s ended without a word; last heartbeat %s', OLD.runner, OLD.heartbeat_at);
            WHEN NEW.status = 'RUNNING' THEN kind := 'claimed'; actor := NEW.runner; reason := '';
            WHEN OLD.status = 'RUNNING' AND NEW.status = 'PENDING' THEN kind := 'interrupted'; actor := OLD.runner;
            WHEN NEW.status = 'ABORTED' THEN kind := 'aborted';
            WHEN NEW.status = 'PROCESSED' THEN kind := 'finished'; actor := OLD.runner; reason := '';
            WHEN NEW.status = 'FAILED' THEN kind := 'failed'; actor := OLD.runner; reason := coalesce(NEW.last_error, '');
            WHEN OLD.status = 'ABORTED' THEN kind := 'resume_requested';
            ELSE kind := 'retry_requested';
        END CASE;
        INSERT INTO belfry.job_events (job_id, kind, actor, reason, detail)
        VALUES (NEW.id, kind, actor, reason, jsonb_build_object(
            'session_user', session_user,
            'before', jsonb_build_object('status', OLD.status, 'fence', OLD.fence),
            'after', jsonb_build_object('status', NEW.status, 'fence', NEW.fence),
            'cursor', NEW."cursor", 'rows_written', NEW.rows_written, 'chunks', NEW.chunks));
    END IF;
    IF NEW.status = 'PENDING' AND NEW.schedule_at <= clock_timestamp() THEN
        PERFORM pg_notify('belfry_jobs', NEW.id::text);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION belfry.enqueue(
    type text, category text, title text, body text DEFAULT '',
    audience jsonb DEFAULT '{"kind": "everyone"}', data jsonb DEFAULT '{}',
    schedule_at timestamptz DEFAULT now(), deliver_at timestamptz DEFAULT NULL,
    lane text DEFAULT 'default', priority integer DEFAULT 0,
    idempotency_key text DEFAULT NULL, group_id uuid DEFAULT NULL, requested_by text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    job_id bigint;
BEGIN
    INSERT INTO belfry.jobs (type, category, title, body, audience, data, schedule_at, deliver_at, lane, priority,
                             idempotency_key, group_id, requested_by)
    VALUES (enqueue.type, enqueue.category, enqueue.title, enqueue.body, enqueue.audience, enqueue.data, enqueue.schedule_at,
            enqueue.deliver_at, enqueue.lane, enqueue.priority, enqueue.idempotency_key, enqueue.group_id,
            coalesce(enqueue.requested_by, session_user))
    ON CONFLICT ON CONSTRAINT jobs_idempotency_key DO NOTHING
    RETURNING id INTO job_id;
    IF job_id IS NULL THEN
        SELECT j.id INTO job_id FROM belfry.jobs j
         WHERE j.idempotency_key = enqueue.idempotency_key AND j.type = enqueue.type;
        IF job_id IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
                MESSAGE = format('belfry.jobs.idempotency_key: %L was enqueued by a transaction this one cannot see', enqueue.idempotency_key),
                HINT = 'Repeat the transaction.';
        END IF;
    END IF;
    RETURN job_id;
END $$;

CREATE FUNCTION belfry.enqueue_group(
    types text[], category text, title text, body text DEFAULT '',
    audience jsonb DEFAULT '{"kind": "everyone"}', data jsonb DEFAULT '{}',
    schedule_at timestamptz DEFAULT now(), deliver_at timestamptz DEFAULT NULL,
    lane text DEFAULT 'default', priority integer DEFAULT 0,
    idempotency_key text DEFAULT NULL, requested_by text DEFAULT NULL
) RETURNS TABLE (id bigint, type text, group_id uuid)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    one uuid;
    t   text;
    ids bigint[] := '{}';
BEGIN
    IF coalesce(cardinality(types), 0) = 0 OR (SELECT count(DISTINCT u) <> count(*) FROM unnest(types) u) THEN
        PERFORM belfry.reject('jobs', 'type', format('a group takes different job types; allowed values: %s',
            (SELECT coalesce(string_agg(name, ', ' ORDER BY name), 'none') FROM belfry.job_types)));
    END IF;
    SELECT j.group_id INTO one FROM belfry.jobs j
     WHERE j.idempotency_key = enqueue_group.idempotency_key AND j.type = ANY (types) AND j.group_id IS NOT NULL
     ORDER BY j.id LIMIT 1;
    one := coalesce(one, gen_random_uuid());
    -- In the order of their names: two callers with one key never deadlock.
    FOR t IN SELECT u FROM unnest(types) u ORDER BY u COLLATE "C" LOOP
        ids := ids || belfry.enqueue(t, enqueue_group.category, enqueue_group.title, enqueue_group.body, enqueue_group.audience,
            enqueue_group.data, enqueue_group.schedule_at, enqueue_group.deliver_at, enqueue_group.lane, enqueue_group.priority,
            enqueue_group.idempotency_key, one, enqueue_group.requested_by);
    END LOOP;
    RETURN QUERY SELECT j.id, j.type, j.group_id FROM unnest(types) WITH ORDINALITY u(type, o)
        JOIN belfry.jobs j ON j.id = ANY (ids) AND j.type = u.type ORDER BY u.o;
END $$;

CREATE OR REPLACE FUNCTION belfry.retry(id bigint, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.jobs
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM belfry.act(actor, reason);
    UPDATE belfry.jobs j SET status = 'PENDING' WHERE j.id = $1 AND j.status = 'FAILED';
    PERFORM belfry.act(NULL, NULL);
    RETURN QUERY SELECT * FROM belfry.jobs j WHERE j.id = $1;
END $$;

ALTER TABLE belfry.jobs
    DROP CONSTRAINT jobs_status_check,
    DROP CONSTRAINT jobs_finished_check,
    DROP CONSTRAINT jobs_backend_check,
    DROP CONSTRAINT jobs_throttle_check,
    DROP CONSTRAINT jobs_accounts_check;
DROP INDEX belfry.jobs_lane_due_idx, belfry.jobs_expiry_idx;
ALTER TABLE belfry.jobs
    ADD CONSTRAINT jobs_status_check CHECK (status IN ('PENDING', 'RUNNING', 'PROCESSED', 'ABORTED', 'FAILED')),
    ADD CONSTRAINT jobs_finished_check CHECK ((status IN ('PROCESSED', 'ABORTED', 'FAILED')) = (finished_at IS NOT NULL)),
    DROP COLUMN expires_at,
    DROP COLUMN max_rows_per_second,
    DROP COLUMN duty_cycle,
    DROP COLUMN chunk_target_ms,
    DROP COLUMN max_chunk_rows,
    DROP COLUMN health_checks,
    DROP COLUMN max_skips,
    DROP COLUMN backend_pid,
    DROP COLUMN backend_start,
    DROP COLUMN takeovers,
    DROP COLUMN channels_matched,
    DROP COLUMN declined,
    DROP COLUMN skipped,
    DROP COLUMN throttle,
    DROP COLUMN throttle_detail,
    DROP COLUMN throttled_ms,
    DROP COLUMN recalled,
    DROP COLUMN recalled_at;
