-- Control: what an operator and a runner need on a bad day. The runner's server
-- connection (take-over at once), settings of the load that change while a job
-- runs, late-start guard, skipped recipients and revisions of a job's content.

ALTER TABLE belfry.jobs
    ADD COLUMN expires_at          timestamptz, -- not started by then: EXPIRED
    -- Settings of the walk. NULL: the runner's own. They count from the next chunk on.
    ADD COLUMN max_rows_per_second integer,
    ADD COLUMN duty_cycle          double precision,
    ADD COLUMN chunk_target_ms     integer,
    ADD COLUMN max_chunk_rows      integer,
    ADD COLUMN health_checks       boolean,
    ADD COLUMN max_skips           integer,
    -- The server connection that the run holds as long as it lives; NULL where that
    -- cannot be known (a pooler between), and then only the heartbeat tells.
    ADD COLUMN backend_pid         integer,
    ADD COLUMN backend_start       timestamptz,
    ADD COLUMN takeovers           integer NOT NULL DEFAULT 0, -- since the last committed chunk
    -- The accounts: channels_read = out of audience + channels_matched, and
    -- channels_matched = rows_written + declined + skipped.
    ADD COLUMN channels_matched    bigint  NOT NULL DEFAULT 0,
    ADD COLUMN declined            bigint  NOT NULL DEFAULT 0,
    ADD COLUMN skipped             bigint  NOT NULL DEFAULT 0,
    -- Why the walk is not at full speed now, and how long it has been held in all.
    ADD COLUMN throttle            text,
    ADD COLUMN throttle_detail     text,
    ADD COLUMN throttled_ms        bigint  NOT NULL DEFAULT 0,
    -- Rows that were taken back after they were written.
    ADD COLUMN recalled            bigint  NOT NULL DEFAULT 0,
    ADD COLUMN recalled_at         timestamptz;

-- Jobs of before knew one number for what matched and what was written.
UPDATE belfry.jobs SET channels_matched = rows_written WHERE rows_written > 0;

ALTER TABLE belfry.jobs
    DROP CONSTRAINT jobs_status_check,
    DROP CONSTRAINT jobs_finished_check,
    ADD CONSTRAINT jobs_status_check CHECK (status IN ('PENDING', 'RUNNING', 'PROCESSED', 'ABORTED', 'FAILED', 'EXPIRED')),
    ADD CONSTRAINT jobs_finished_check CHECK ((status IN ('PROCESSED', 'ABORTED', 'FAILED', 'EXPIRED')) = (finished_at IS NOT NULL)),
    ADD CONSTRAINT jobs_backend_check CHECK (backend_pid IS NULL OR status = 'RUNNING' AND backend_start IS NOT NULL),
    ADD CONSTRAINT jobs_throttle_check CHECK (throttle IS NULL OR status = 'RUNNING'),
    ADD CONSTRAINT jobs_accounts_check CHECK (takeovers >= 0 AND channels_matched >= 0 AND declined >= 0 AND skipped >= 0 AND throttled_ms >= 0 AND recalled >= 0);

-- Serves the check for a more urgent job before each chunk.
CREATE INDEX jobs_lane_due_idx ON belfry.jobs (lane, priority DESC) WHERE status = 'PENDING';
-- Serves the late-start guard.
CREATE INDEX jobs_expiry_idx ON belfry.jobs (expires_at) WHERE status = 'PENDING' AND expires_at IS NOT NULL;

ALTER TABLE belfry.job_events
    DROP CONSTRAINT job_events_kind_check,
    ADD CONSTRAINT job_events_kind_check CHECK (kind IN ('enqueued', 'claimed', 'resumed', 'interrupted', 'preempted', 'lane_paused',
        'aborted', 'finished', 'failed', 'expired', 'resume_requested', 'retry_requested', 'retry_skipped_requested',
        'changed', 'throttled', 'released', 'recalled'));

-- Recipients that a run passed over because their rows cannot be written, by the
-- text of their key in the job's keyset (a channel's id). after is the key that the
-- chunk began from: the skipped one is the first that follows it. retry marks those
-- that the next run is to try again; a success removes the row.
CREATE TABLE belfry.job_skips (
    job_id     bigint      NOT NULL CONSTRAINT job_skips_job_fkey REFERENCES belfry.jobs (id) ON DELETE CASCADE,
    key        text        NOT NULL,
    after      text        NOT NULL,
    sqlstate   text        NOT NULL DEFAULT '',
    error      text        NOT NULL,
    attempts   integer     NOT NULL DEFAULT 1,
    retry      boolean     NOT NULL DEFAULT false,
    skipped_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tried_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT job_skips_pkey PRIMARY KEY (job_id, key),
    CONSTRAINT job_skips_attempts_check CHECK (attempts >= 1)
);
CREATE INDEX job_skips_retry_idx ON belfry.job_skips (job_id, key) WHERE retry;

-- What a job said, and to whom, before it was corrected in mid-walk: the rows up
-- to and including "cursor", and above the revision before, were written under it.
CREATE TABLE belfry.job_revisions (
    job_id    bigint      NOT NULL CONSTRAINT job_revisions_job_fkey REFERENCES belfry.jobs (id) ON DELETE CASCADE,
    revision  integer     NOT NULL,
    "cursor"  text        NOT NULL,
    title     text        NOT NULL,
    body      text        NOT NULL,
    data      jsonb       NOT NULL,
    audience  jsonb       NOT NULL,
    edited_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    edited_by text        NOT NULL,
    reason    text        NOT NULL DEFAULT '',
    CONSTRAINT job_revisions_pkey PRIMARY KEY (job_id, revision),
    CONSTRAINT job_revisions_cursor_key UNIQUE (job_id, "cursor")
);

-- As in 0002, with the columns and statuses above.
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
            WHEN NEW.backend_pid IS NOT NULL THEN 'backend_pid'
            WHEN NEW.backend_start IS NOT NULL THEN 'backend_start'
            WHEN NEW.takeovers IS DISTINCT FROM 0 THEN 'takeovers'
            WHEN NEW.channels_matched IS DISTINCT FROM 0 THEN 'channels_matched'
            WHEN NEW.declined IS DISTINCT FROM 0 THEN 'declined'
            WHEN NEW.skipped IS DISTINCT FROM 0 THEN 'skipped'
            WHEN NEW.throttle IS NOT NULL THEN 'throttle'
            WHEN NEW.throttle_detail IS NOT NULL THEN 'throttle_detail'
            WHEN NEW.throttled_ms IS DISTINCT FROM 0 THEN 'throttled_ms'
            WHEN NEW.recalled IS DISTINCT FROM 0 THEN 'recalled'
            WHEN NEW.recalled_at IS NOT NULL THEN 'recalled_at'
        END;
        IF known IS NOT NULL THEN
            PERFORM belfry.reject('jobs', known, 'belongs to belfry; allowed values for a new job: none, leave it out');
        END IF;
    ELSE
        -- What a job asks for stands still while it runs, and once it has begun only its
        -- content and its audience may change, for what is still to come.
        known := CASE
            WHEN NEW.type IS DISTINCT FROM OLD.type THEN 'type'
            WHEN NEW.group_id IS DISTINCT FROM OLD.group_id THEN 'group_id'
            WHEN NEW.deliver_at IS DISTINCT FROM OLD.deliver_at THEN 'deliver_at'
        END;
        IF known IS NOT NULL AND (OLD.bound IS NOT NULL OR OLD.status = 'RUNNING') THEN
            PERFORM belfry.reject('jobs', known, format('job %s has started; allowed changes: none', OLD.id), 'Abort it and enqueue another.');
        END IF;
        known := CASE
            WHEN NEW.title IS DISTINCT FROM OLD.title THEN 'title'
            WHEN NEW.body IS DISTINCT FROM OLD.body THEN 'body'
            WHEN NEW.data IS DISTINCT FROM OLD.data THEN 'data'
            WHEN NEW.audience IS DISTINCT FROM OLD.audience THEN 'audience'
            WHEN NEW.category IS DISTINCT FROM OLD.category THEN 'category'
            WHEN NEW.lane IS DISTINCT FROM OLD.lane THEN 'lane'
        END;
        IF known IS NOT NULL AND OLD.status = 'RUNNING' THEN
            PERFORM belfry.reject('jobs', known, format('job %s is RUNNING; allowed changes: none', OLD.id),
                'Abort it, correct it, resume it: belfry.resume_edited(id, changes).');
        END IF;
        IF known IN ('title', 'body', 'data', 'audience') AND OLD.status = 'PROCESSED' THEN
            PERFORM belfry.reject('jobs', known, format('job %s is PROCESSED; allowed changes: none', OLD.id), 'Recall it and enqueue another.');
        END IF;
        IF NEW.audience IS DISTINCT FROM OLD.audience THEN
            NEW.channels_total := NULL; -- the next run estimates again
        END IF;
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
    IF NEW.expires_at <= NEW.schedule_at OR NEW.expires_at > latest THEN
        PERFORM belfry.reject('jobs', 'expires_at', format('%s is not allowed; allowed values: null, or timestamps up to the year 9999 after schedule_at (%s)', NEW.expires_at, NEW.schedule_at));
    END IF;
    IF NEW.max_rows_per_second NOT BETWEEN 0 AND 10000000 THEN
        PERFORM belfry.reject('jobs', 'max_rows_per_second', format('%s is not allowed; allowed values: null (the runner''s setting), 0 (no limit) to 10000000', NEW.max_rows_per_second));
    END IF;
    IF NOT (NEW.duty_cycle BETWEEN 0.01 AND 1) THEN
        PERFORM belfry.reject('jobs', 'duty_cycle', format('%s is not allowed; allowed values: null (the runner''s setting), 0.01 to 1, the share of time spent in chunks', NEW.duty_cycle));
    END IF;
    IF NEW.chunk_target_ms NOT BETWEEN 1 AND 60000 THEN
        PERFORM belfry.reject('jobs', 'chunk_target_ms', format('%s is not allowed; allowed values: null (the runner''s setting), 1 to 60000 milliseconds', NEW.chunk_target_ms));
    END IF;
    IF NEW.max_chunk_rows NOT BETWEEN 1 AND 1000000 THEN
        PERFORM belfry.reject('jobs', 'max_chunk_rows', format('%s is not allowed; allowed values: null (the runner''s setting), 1 to 1000000', NEW.max_chunk_rows));
    END IF;
    IF NEW.max_skips NOT BETWEEN 0 AND 10000000 THEN
        PERFORM belfry.reject('jobs', 'max_skips', format('%s is not allowed; allowed values: null (the runner''s setting), 0 (skip nobody) to 10000000', NEW.max_skips));
    END IF;
    IF length(NEW.idempotency_key) NOT BETWEEN 1 AND 200 THEN
        PERFORM belfry.reject('jobs', 'idempotency_key', format('has %s characters; allowed values: null, or texts of 1 to 200 characters', length(NEW.idempotency_key)));
    END IF;
    IF NEW.requested_by IS NULL OR NEW.requested_by !~ '\S' OR length(NEW.requested_by) > 200 THEN
        PERFORM belfry.reject('jobs', 'requested_by', 'is null, blank or too long; allowed values: texts of 1 to 200 characters');
    END IF;
    RETURN NEW;
END $$;
DROP TRIGGER jobs_validate ON belfry.jobs;
CREATE TRIGGER jobs_validate BEFORE INSERT OR UPDATE OF
    type, category, title, body, data, audience, lane, priority, schedule_at, deliver_at, expires_at, idempotency_key, requested_by, group_id,
    max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows, max_skips
    ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION belfry.jobs_validate();

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
            ('PENDING', 'RUNNING'), ('PENDING', 'ABORTED'), ('PENDING', 'EXPIRED'),
            ('RUNNING', 'PENDING'), ('RUNNING', 'PROCESSED'), ('RUNNING', 'ABORTED'), ('RUNNING', 'FAILED'),
            ('ABORTED', 'PENDING'), ('FAILED', 'PENDING'),
            ('EXPIRED', 'PENDING'), ('PROCESSED', 'PENDING')) THEN
            PERFORM belfry.reject('jobs', 'status', format('job %s cannot go from %s to %s; allowed values now: %s',
                    OLD.id, OLD.status, NEW.status, CASE OLD.status
                        WHEN 'PENDING' THEN 'RUNNING, ABORTED, EXPIRED'
                        WHEN 'RUNNING' THEN 'PENDING, PROCESSED, ABORTED, FAILED'
                        ELSE 'PENDING' END),
                'Stop a job with abort_requested = true, resume it with belfry.resume(id), retry it with belfry.retry(id).');
        END IF;
        IF OLD.status = 'PROCESSED' THEN -- alone: not everybody who may abort may read job_skips
            IF NOT EXISTS (SELECT FROM belfry.job_skips s WHERE s.job_id = OLD.id AND s.retry) THEN
                PERFORM belfry.reject('jobs', 'status', format('job %s is PROCESSED and has no skipped recipient to retry; allowed values now: none', OLD.id),
                    'belfry.retry_skipped(id) runs the skipped recipients again.');
            END IF;
        END IF;
        IF OLD.status = 'EXPIRED' AND NEW.expires_at <= clock_timestamp() THEN
            PERFORM belfry.reject('jobs', 'expires_at', format('job %s expired at %s; allowed values now: null, or a time to come', OLD.id, NEW.expires_at),
                'belfry.set(id, ''{"expires_at": null}'') lifts it.');
        END IF;
        NEW.abort_requested := NEW.status = 'ABORTED';
        NEW.finished_at := CASE WHEN NEW.status IN ('PROCESSED', 'ABORTED', 'FAILED', 'EXPIRED') THEN clock_timestamp() END;
        IF NEW.status <> 'RUNNING' THEN
            NEW.runner := NULL;
            NEW.heartbeat_at := NULL;
            NEW.backend_pid := NULL;
            NEW.backend_start := NULL;
            NEW.throttle := NULL;
            NEW.throttle_detail := NULL;
        END IF;
        IF OLD.status NOT IN ('PENDING', 'RUNNING') THEN
            NEW.attempts := 0;
            NEW.takeovers := 0;
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
                reason := format('the run of %s %s; last heartbeat %s', OLD.runner,
                    CASE WHEN OLD.backend_pid IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = OLD.backend_pid AND coalesce(a.backend_start = OLD.backend_start, true))
                        THEN 'lost its server connection' ELSE 'ended without a word' END, OLD.heartbeat_at);
            WHEN NEW.status = 'RUNNING' THEN kind := 'claimed'; actor := NEW.runner; reason := '';
            WHEN OLD.status = 'RUNNING' AND NEW.status = 'PENDING' THEN
                kind := CASE WHEN current_setting('belfry.kind', true) IN ('preempted', 'lane_paused') THEN current_setting('belfry.kind', true) ELSE 'interrupted' END;
                actor := OLD.runner;
            WHEN NEW.status = 'EXPIRED' THEN
                kind := 'expired';
                reason := format('did not start before %s', NEW.expires_at);
            WHEN NEW.status = 'ABORTED' THEN kind := 'aborted';
            WHEN NEW.status = 'PROCESSED' THEN kind := 'finished'; actor := OLD.runner; reason := '';
            WHEN NEW.status = 'FAILED' THEN
                kind := 'failed'; actor := coalesce(nullif(current_setting('belfry.actor', true), ''), OLD.runner); reason := coalesce(NEW.last_error, '');
            WHEN OLD.status = 'ABORTED' THEN kind := 'resume_requested';
            WHEN OLD.status = 'PROCESSED' THEN kind := 'retry_skipped_requested';
            ELSE kind := 'retry_requested';
        END CASE;
        INSERT INTO belfry.job_events (job_id, kind, actor, reason, detail)
        VALUES (NEW.id, kind, actor, reason, jsonb_build_object(
            'session_user', session_user,
            'before', jsonb_build_object('status', OLD.status, 'fence', OLD.fence),
            'after', jsonb_build_object('status', NEW.status, 'fence', NEW.fence),
            'cursor', NEW."cursor", 'rows_written', NEW.rows_written, 'chunks', NEW.chunks, 'skipped', NEW.skipped));
    END IF;
    -- Nobody is called for a job that made room: whom it made room for comes first.
    IF NEW.status = 'PENDING' AND NEW.schedule_at <= clock_timestamp() AND kind NOT IN ('preempted', 'lane_paused') THEN
        PERFORM pg_notify('belfry_jobs', NEW.id::text);
    END IF;
    RETURN NULL;
END $$;

-- Records what an operator changed in a job, only what differs, before and after,
-- and keeps the content that a job in mid-walk has already written.
CREATE FUNCTION belfry.jobs_record_edit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    watched constant text[] := '{type,category,title,body,data,audience,lane,priority,schedule_at,deliver_at,expires_at,idempotency_key,requested_by,group_id,max_rows_per_second,duty_cycle,chunk_target_ms,max_chunk_rows,health_checks,max_skips}';
    who     text := coalesce(nullif(current_setting('belfry.actor', true), ''), session_user);
    why     text := coalesce(current_setting('belfry.reason', true), '');
    was     jsonb;
    is_now  jsonb;
BEGIN
    SELECT jsonb_object_agg(k, to_jsonb(OLD) -> k), jsonb_object_agg(k, to_jsonb(NEW) -> k) INTO was, is_now
      FROM unnest(watched) k WHERE to_jsonb(OLD) -> k IS DISTINCT FROM to_jsonb(NEW) -> k;
    IF was IS NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO belfry.job_events (job_id, kind, actor, reason, detail)
    VALUES (NEW.id, 'changed', who, why, jsonb_build_object('session_user', session_user, 'before', was, 'after', is_now, 'cursor', NEW."cursor"));
    IF OLD."cursor" IS NOT NULL AND was ?| '{title,body,data,audience}' THEN
        INSERT INTO belfry.job_revisions (job_id, revision, "cursor", title, body, data, audience, edited_by, reason)
        SELECT OLD.id, 1 + count(*), OLD."cursor", OLD.title, OLD.body, OLD.data, OLD.audience, who, why
          FROM belfry.job_revisions r WHERE r.job_id = OLD.id
            ON CONFLICT ON CONSTRAINT job_revisions_cursor_key DO NOTHING; -- nothing was written since the last edit
    END IF;
    IF NEW.status = 'PENDING' AND NEW.schedule_at <= clock_timestamp() THEN
        PERFORM pg_notify('belfry_jobs', NEW.id::text);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_record_edit AFTER UPDATE OF
    type, category, title, body, data, audience, lane, priority, schedule_at, deliver_at, expires_at, idempotency_key, requested_by, group_id,
    max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows, health_checks, max_skips
    ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION belfry.jobs_record_edit();

-- Records when a run slows down or goes on, by rule: details change without events.
CREATE FUNCTION belfry.jobs_record_throttle() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO belfry.job_events (job_id, kind, actor, reason, detail)
    VALUES (NEW.id, CASE WHEN NEW.throttle IS NULL THEN 'released' ELSE 'throttled' END, NEW.runner,
        coalesce(NEW.throttle || coalesce(': ' || NEW.throttle_detail, ''), ''),
        jsonb_build_object('session_user', session_user, 'before', jsonb_build_object('throttle', OLD.throttle),
            'after', jsonb_build_object('throttle', NEW.throttle), 'cursor', NEW."cursor", 'throttled_ms', NEW.throttled_ms));
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_record_throttle AFTER UPDATE OF throttle ON belfry.jobs
    FOR EACH ROW WHEN (OLD.throttle IS DISTINCT FROM NEW.throttle AND NEW.status = 'RUNNING')
    EXECUTE FUNCTION belfry.jobs_record_throttle();

-- Records a recall: each call adds what it took back.
CREATE FUNCTION belfry.jobs_record_recall() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO belfry.job_events (job_id, kind, actor, reason, detail)
    VALUES (NEW.id, 'recalled', coalesce(nullif(current_setting('belfry.actor', true), ''), session_user), coalesce(current_setting('belfry.reason', true), ''),
        jsonb_build_object('session_user', session_user, 'before', jsonb_build_object('recalled', OLD.recalled),
            'after', jsonb_build_object('recalled', NEW.recalled)));
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_record_recall AFTER UPDATE OF recalled_at ON belfry.jobs
    FOR EACH ROW WHEN (OLD.recalled_at IS DISTINCT FROM NEW.recalled_at) EXECUTE FUNCTION belfry.jobs_record_recall();

REVOKE EXECUTE ON FUNCTION belfry.jobs_record_edit(), belfry.jobs_record_throttle(), belfry.jobs_record_recall() FROM PUBLIC;

-- enqueue and enqueue_group, as in 0002, with expires_at.
DROP FUNCTION belfry.enqueue(text, text, text, text, jsonb, jsonb, timestamptz, timestamptz, text, integer, text, uuid, text);
CREATE FUNCTION belfry.enqueue(
    type text, category text, title text, body text DEFAULT '',
    audience jsonb DEFAULT '{"kind": "everyone"}', data jsonb DEFAULT '{}',
    schedule_at timestamptz DEFAULT now(), deliver_at timestamptz DEFAULT NULL,
    lane text DEFAULT 'default', priority integer DEFAULT 0,
    idempotency_key text DEFAULT NULL, group_id uuid DEFAULT NULL, requested_by text DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    job_id bigint;
BEGIN
    INSERT INTO belfry.jobs (type, category, title, body, audience, data, schedule_at, deliver_at, lane, priority,
                             idempotency_key, group_id, requested_by, expires_at)
    VALUES (enqueue.type, enqueue.category, enqueue.title, enqueue.body, enqueue.audience, enqueue.data, enqueue.schedule_at,
            enqueue.deliver_at, enqueue.lane, enqueue.priority, enqueue.idempotency_key, enqueue.group_id,
            coalesce(enqueue.requested_by, session_user), enqueue.expires_at)
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

DROP FUNCTION belfry.enqueue_group(text[], text, text, text, jsonb, jsonb, timestamptz, timestamptz, text, integer, text, text);
CREATE FUNCTION belfry.enqueue_group(
    types text[], category text, title text, body text DEFAULT '',
    audience jsonb DEFAULT '{"kind": "everyone"}', data jsonb DEFAULT '{}',
    schedule_at timestamptz DEFAULT now(), deliver_at timestamptz DEFAULT NULL,
    lane text DEFAULT 'default', priority integer DEFAULT 0,
    idempotency_key text DEFAULT NULL, requested_by text DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL
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
            enqueue_group.idempotency_key, one, enqueue_group.requested_by, enqueue_group.expires_at);
    END LOOP;
    RETURN QUERY SELECT j.id, j.type, j.group_id FROM unnest(types) WITH ORDINALITY u(type, o)
        JOIN belfry.jobs j ON j.id = ANY (ids) AND j.type = u.type ORDER BY u.o;
END $$;

-- An EXPIRED job is retried too, when its expires_at is lifted or lies ahead again.
CREATE OR REPLACE FUNCTION belfry.retry(id bigint, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.jobs
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM belfry.act(actor, reason);
    UPDATE belfry.jobs j SET status = 'PENDING' WHERE j.id = $1 AND j.status IN ('FAILED', 'EXPIRED');
    PERFORM belfry.act(NULL, NULL);
    RETURN QUERY SELECT * FROM belfry.jobs j WHERE j.id = $1;
END $$;

-- Changes what may change of one job: its place in the queue at any time, its load
-- while it runs, its content while it does not. NULL takes a setting back to the
-- runner's. Returns the job as it is now; no row means there is no such job.
CREATE FUNCTION belfry.set(id bigint, changes jsonb, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.jobs
LANGUAGE plpgsql AS $$
DECLARE
    allowed constant text[] := '{category,title,body,data,audience,lane,priority,schedule_at,deliver_at,expires_at,max_rows_per_second,duty_cycle,chunk_target_ms,max_chunk_rows,health_checks,max_skips}';
    bad     text;
BEGIN
    IF changes IS NULL OR jsonb_typeof(changes) <> 'object' THEN
        PERFORM belfry.reject('jobs', 'changes', 'must be a JSON object; allowed keys: ' || array_to_string(allowed, ', '));
    END IF;
    SELECT k INTO bad FROM jsonb_object_keys(changes) k WHERE k <> ALL (allowed) ORDER BY k LIMIT 1;
    IF FOUND THEN
        PERFORM belfry.reject('jobs', left(bad, 60), 'cannot be set; allowed keys: ' || array_to_string(allowed, ', '));
    END IF;
    FOR bad IN SELECT k FROM jsonb_object_keys(changes) k ORDER BY k LOOP
        IF bad IN ('category', 'title', 'body', 'lane') AND jsonb_typeof(changes -> bad) NOT IN ('string', 'null') THEN
            PERFORM belfry.reject('jobs', bad, format('%s is not allowed; allowed values: texts', left((changes -> bad)::text, 60)));
        END IF;
        BEGIN
            PERFORM jsonb_populate_record(NULL::belfry.jobs, jsonb_build_object(bad, changes -> bad));
        EXCEPTION WHEN data_exception THEN
            PERFORM belfry.reject('jobs', bad, format('%s is not allowed; allowed values: %s', left((changes -> bad)::text, 60),
                CASE WHEN bad LIKE '%\_at' THEN 'null, or timestamps such as "2026-01-02T15:04:05Z"'
                     WHEN bad = 'health_checks' THEN 'null, true, false'
                     WHEN bad = 'duty_cycle' THEN 'null, or numbers from 0.01 to 1'
                     ELSE 'null, or whole numbers' END));
        END;
    END LOOP;
    PERFORM belfry.act(actor, reason);
    UPDATE belfry.jobs j
       SET (category, title, body, data, audience, lane, priority, schedule_at, deliver_at, expires_at,
            max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows, health_checks, max_skips) =
           (SELECT n.category, n.title, n.body, n.data, n.audience, n.lane, n.priority, n.schedule_at, n.deliver_at, n.expires_at,
                   n.max_rows_per_second, n.duty_cycle, n.chunk_target_ms, n.max_chunk_rows, n.health_checks, n.max_skips
              FROM jsonb_populate_record(j, changes) n)
     WHERE j.id = $1;
    PERFORM belfry.act(NULL, NULL);
    RETURN QUERY SELECT * FROM belfry.jobs j WHERE j.id = $1;
END $$;

-- Corrects what an ABORTED or FAILED job still has to say, and to whom, and lets
-- it go on from its cursor: one act. changes as for belfry.set.
CREATE FUNCTION belfry.resume_edited(id bigint, changes jsonb, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.jobs
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM belfry.jobs j WHERE j.id = $1 AND j.status IN ('ABORTED', 'FAILED') FOR UPDATE;
    IF FOUND THEN
        PERFORM FROM belfry.set($1, $2, $3, $4);
        PERFORM belfry.act(actor, reason);
        UPDATE belfry.jobs j SET status = 'PENDING' WHERE j.id = $1;
        PERFORM belfry.act(NULL, NULL);
    END IF;
    RETURN QUERY SELECT * FROM belfry.jobs j WHERE j.id = $1;
END $$;

-- Marks every skipped recipient of a PROCESSED or FAILED job to be tried again and
-- makes the job PENDING. A job without any stays as it is.
CREATE FUNCTION belfry.retry_skipped(id bigint, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.jobs
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM belfry.jobs j WHERE j.id = $1 AND j.status IN ('PROCESSED', 'FAILED') FOR UPDATE;
    IF FOUND THEN
        UPDATE belfry.job_skips s SET retry = true WHERE s.job_id = $1;
        IF FOUND THEN
            PERFORM belfry.act(actor, reason);
            UPDATE belfry.jobs j SET status = 'PENDING' WHERE j.id = $1;
            PERFORM belfry.act(NULL, NULL);
        END IF;
    END IF;
    RETURN QUERY SELECT * FROM belfry.jobs j WHERE j.id = $1;
END $$;

-- What a channel was told by a job of belfry's own types: the revision under which
-- its row was written, or the job's present content. Show a notification with it.
CREATE FUNCTION belfry.job_content(job_id bigint, channel_id bigint) RETURNS TABLE (title text, body text, data jsonb)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(r.title, j.title), coalesce(r.body, j.body), coalesce(r.data, j.data)
      FROM belfry.jobs j
      LEFT JOIN LATERAL (SELECT v.title, v.body, v.data FROM belfry.job_revisions v
                          WHERE v.job_id = j.id AND v."cursor"::bigint >= $2
                          ORDER BY v.revision LIMIT 1) r ON true
     WHERE j.id = $1
$$;
