-- Jobs: one row is one bulk-notification request. Plain SQL is an API here: an
-- INSERT enqueues inside the caller's transaction, UPDATE … SET abort_requested
-- stops. The triggers below make bad input fail with the column and the allowed
-- values, keep the status machine legal whoever writes, and record every
-- transition in job_events in the same transaction.

-- The vocabulary of job types. Runners add the types they were built with.
CREATE TABLE belfry.job_types (
    name        text CONSTRAINT job_types_pkey PRIMARY KEY,
    description text NOT NULL DEFAULT '',
    CONSTRAINT job_types_name_check CHECK (name ~ '^[a-z][a-z0-9_]{0,62}$')
);
INSERT INTO belfry.job_types (name, description) VALUES
    ('inbox', 'a notification in each channel''s notification centre'),
    ('push', 'a message to deliver to each channel');

CREATE TABLE belfry.categories (
    name        text CONSTRAINT categories_pkey PRIMARY KEY,
    description text NOT NULL DEFAULT '',
    CONSTRAINT categories_name_check CHECK (name ~ '^[a-z][a-z0-9_]{0,62}$')
);
INSERT INTO belfry.categories (name, description) VALUES
    ('popular_content', 'popular content on a timetable'),
    ('question_content', 'question content to everybody near a place'),
    ('operator_notice', 'operator notices to all or some platforms');

CREATE TABLE belfry.jobs (
    id              bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT jobs_pkey PRIMARY KEY,
    group_id        uuid,
    -- What to send, to whom, when: set by whoever enqueues.
    type            text        NOT NULL,
    category        text        NOT NULL,
    title           text        NOT NULL,
    body            text        NOT NULL DEFAULT '',
    data            jsonb       NOT NULL DEFAULT '{}',
    audience        jsonb       NOT NULL DEFAULT '{"kind": "everyone"}',
    lane            text        NOT NULL DEFAULT 'default',
    priority        integer     NOT NULL DEFAULT 0,
    schedule_at     timestamptz NOT NULL DEFAULT now(),
    deliver_at      timestamptz,
    idempotency_key text,
    requested_by    text        NOT NULL DEFAULT session_user,
    -- How it goes: set by belfry. abort_requested is the operator's switch.
    status          text        NOT NULL DEFAULT 'PENDING',
    abort_requested boolean     NOT NULL DEFAULT false,
    "cursor"        text,
    bound           text,
    fence           bigint      NOT NULL DEFAULT 0,
    runner          text,
    heartbeat_at    timestamptz,
    attempts        integer     NOT NULL DEFAULT 0,
    last_error      text,
    chunks          bigint      NOT NULL DEFAULT 0,
    channels_read   bigint      NOT NULL DEFAULT 0,
    channels_total  bigint,
    rows_written    bigint      NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now(),
    started_at      timestamptz,
    finished_at     timestamptz,
    CONSTRAINT jobs_idempotency_key UNIQUE (idempotency_key, type),
    CONSTRAINT jobs_status_check CHECK (status IN ('PENDING', 'RUNNING', 'PROCESSED', 'ABORTED', 'FAILED')),
    CONSTRAINT jobs_abort_check CHECK (abort_requested = (status = 'ABORTED')),
    CONSTRAINT jobs_running_check CHECK ((status = 'RUNNING') = (runner IS NOT NULL AND heartbeat_at IS NOT NULL)),
    CONSTRAINT jobs_finished_check CHECK ((status IN ('PROCESSED', 'ABORTED', 'FAILED')) = (finished_at IS NOT NULL)),
    CONSTRAINT jobs_cursor_check CHECK ("cursor" IS NULL OR bound IS NOT NULL),
    CONSTRAINT jobs_counts_check CHECK (fence >= 0 AND attempts >= 0 AND chunks >= 0 AND rows_written >= 0 AND channels_read >= 0)
) WITH (fillfactor = 70); -- room for HOT updates: every chunk moves the cursor

-- I4: at most one RUNNING job per lane, kept by the database.
CREATE UNIQUE INDEX jobs_one_running_per_lane ON belfry.jobs (lane) WHERE status = 'RUNNING';
-- Serves the claim: due jobs by urgency.
CREATE INDEX jobs_due_idx ON belfry.jobs (priority DESC, schedule_at, id) WHERE status = 'PENDING';
-- Keeps the claim cheap while many jobs wait for a later time.
CREATE INDEX jobs_schedule_idx ON belfry.jobs (schedule_at) WHERE status = 'PENDING';
CREATE INDEX jobs_group_idx ON belfry.jobs (group_id) WHERE group_id IS NOT NULL;

-- The timeline of each job.
CREATE TABLE belfry.job_events (
    id     bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT job_events_pkey PRIMARY KEY,
    job_id bigint      NOT NULL CONSTRAINT job_events_job_fkey REFERENCES belfry.jobs (id) ON DELETE CASCADE,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind   text        NOT NULL,
    actor  text        NOT NULL,
    reason text        NOT NULL DEFAULT '',
    detail jsonb       NOT NULL DEFAULT '{}',
    CONSTRAINT job_events_kind_check CHECK (kind IN ('enqueued', 'claimed', 'resumed', 'interrupted',
        'aborted', 'finished', 'failed', 'resume_requested', 'retry_requested'))
);
CREATE INDEX job_events_job_idx ON belfry.job_events (job_id, id);

-- Raises the one form of error that every validation below uses: the message
-- itself names the column and what is allowed, for drivers that show no more.
CREATE FUNCTION belfry.reject(tab text, col text, problem text, hint text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF hint IS NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation', SCHEMA = 'belfry', TABLE = tab, COLUMN = split_part(col, '.', 1),
            MESSAGE = format('belfry.%s.%s: %s', tab, col, problem);
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation', SCHEMA = 'belfry', TABLE = tab, COLUMN = split_part(col, '.', 1),
        MESSAGE = format('belfry.%s.%s: %s', tab, col, problem),
        HINT = hint;
END $$;

-- Constructors of audiences, for plain SQL.
CREATE FUNCTION belfry.audience_everyone() RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN '{"kind": "everyone"}'::jsonb;
CREATE FUNCTION belfry.audience_platforms(VARIADIC platforms text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_build_object('kind', 'platforms', 'platforms', to_jsonb(platforms));
CREATE FUNCTION belfry.audience_radius(latitude double precision, longitude double precision, radius_m double precision) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_build_object('kind', 'radius', 'latitude', latitude, 'longitude', longitude, 'radius_m', radius_m);
CREATE FUNCTION belfry.audience_channels(VARIADIC ids bigint[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_build_object('kind', 'channels', 'ids', to_jsonb(ids));
CREATE FUNCTION belfry.audience_external_ids(VARIADIC external_ids text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_build_object('kind', 'channels', 'external_ids', to_jsonb(external_ids));
CREATE FUNCTION belfry.audience_segment(segment text) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_build_object('kind', 'segment', 'segment', segment);

-- Checks one audience; raises through belfry.reject. Shapes:
--   {"kind": "everyone"}
--   {"kind": "platforms", "platforms": ["ios", …]}
--   {"kind": "radius", "latitude": 37.57, "longitude": 126.98, "radius_m": 30000 [, "platforms": […]]}
--   {"kind": "channels", "ids": [1, …]} or {"kind": "channels", "external_ids": ["u-1", …]}, up to 10,000
--   {"kind": "segment", "segment": "name" [, "platforms": […]]}
CREATE FUNCTION belfry.check_audience(a jsonb) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    kinds   constant text := 'everyone, platforms, radius, channels, segment';
    kind    text;
    allowed text[];
    needed  text[];
    bad     text;
    known   text;
    list    jsonb;
    n       integer;
BEGIN
    IF a IS NULL OR jsonb_typeof(a) <> 'object' THEN
        PERFORM belfry.reject('jobs', 'audience', 'must be a JSON object with "kind"; allowed kinds: ' || kinds);
    END IF;
    IF NOT a ? 'kind' THEN
        PERFORM belfry.reject('jobs', 'audience.kind', 'is required; allowed values: ' || kinds);
    END IF;
    kind := CASE WHEN jsonb_typeof(a -> 'kind') = 'string' THEN a ->> 'kind' END;
    CASE kind
        WHEN 'everyone' THEN needed := '{}'; allowed := '{kind}';
        WHEN 'platforms' THEN needed := '{platforms}'; allowed := '{kind,platforms}';
        WHEN 'radius' THEN needed := '{latitude,longitude,radius_m}'; allowed := '{kind,latitude,longitude,radius_m,platforms}';
        WHEN 'channels' THEN needed := '{}'; allowed := '{kind,ids,external_ids}';
        WHEN 'segment' THEN needed := '{segment}'; allowed := '{kind,segment,platforms}';
        ELSE PERFORM belfry.reject('jobs', 'audience.kind', format('%s is not allowed; allowed values: %s', left((a -> 'kind')::text, 60), kinds));
    END CASE;
    SELECT k INTO bad FROM jsonb_object_keys(a) k WHERE k <> ALL (allowed) ORDER BY k LIMIT 1;
    IF FOUND THEN
        PERFORM belfry.reject('jobs', 'audience.' || bad, format('is not allowed with kind %s; allowed keys: %s', kind, array_to_string(allowed, ', ')));
    END IF;
    SELECT k INTO bad FROM unnest(needed) WITH ORDINALITY u(k, o) WHERE NOT a ? k ORDER BY o LIMIT 1;
    IF FOUND THEN
        SELECT coalesce(string_agg(name, ', ' ORDER BY name), 'none') INTO known FROM belfry.platforms;
        PERFORM belfry.reject('jobs', 'audience.' || bad, format('is required with kind %s; allowed values: %s', kind,
            CASE bad WHEN 'platforms' THEN 'a list of ' || known
                     WHEN 'segment' THEN 'the name of a segment'
                     WHEN 'latitude' THEN '-90 to 90 degrees'
                     WHEN 'longitude' THEN '-180 to 180 degrees'
                     ELSE '1 to 20037509 metres' END));
    END IF;

    IF a ? 'platforms' THEN
        list := a -> 'platforms';
        SELECT coalesce(string_agg(name, ', ' ORDER BY name), 'none') INTO known FROM belfry.platforms;
        IF jsonb_typeof(list) <> 'array' OR jsonb_array_length(list) = 0 THEN
            PERFORM belfry.reject('jobs', 'audience.platforms', 'must be a list of at least one platform; allowed values: ' || known);
        END IF;
        SELECT e #>> '{}' INTO bad FROM jsonb_array_elements(list) e
         WHERE jsonb_typeof(e) <> 'string' OR NOT EXISTS (SELECT FROM belfry.platforms p WHERE p.name = e #>> '{}') LIMIT 1;
        IF FOUND THEN
            PERFORM belfry.reject('jobs', 'audience.platforms', format('%L is not a platform; allowed values: %s', coalesce(bad, 'null'), known),
                'INSERT INTO belfry.platforms adds one.');
        END IF;
    END IF;

    IF kind = 'radius' THEN
        PERFORM belfry.check_number(a, 'latitude', -90, 90, 'degrees');
        PERFORM belfry.check_number(a, 'longitude', -180, 180, 'degrees');
        PERFORM belfry.check_number(a, 'radius_m', 1, 20037509, 'metres');
    ELSIF kind = 'segment' THEN
        IF jsonb_typeof(a -> 'segment') <> 'string' OR NOT EXISTS (SELECT FROM belfry.segments s WHERE s.name = a ->> 'segment') THEN
            SELECT string_agg(s.name, ', ' ORDER BY s.name) INTO known
              FROM (SELECT name FROM belfry.segments ORDER BY name LIMIT 20) s;
            PERFORM belfry.reject('jobs', 'audience.segment', format('%s does not exist; existing segments: %s',
                left((a -> 'segment')::text, 70), coalesce(known, 'none')));
        END IF;
    ELSIF kind = 'channels' THEN
        IF (a ? 'ids') = (a ? 'external_ids') THEN
            PERFORM belfry.reject('jobs', 'audience', 'kind channels takes exactly one of: ids, external_ids');
        END IF;
        bad := CASE WHEN a ? 'ids' THEN 'ids' ELSE 'external_ids' END;
        list := a -> bad;
        n := CASE WHEN jsonb_typeof(list) = 'array' THEN jsonb_array_length(list) ELSE 0 END;
        IF n NOT BETWEEN 1 AND 10000 THEN
            PERFORM belfry.reject('jobs', 'audience.' || bad, 'must be a list of 1 to 10000 entries', 'Longer lists: fill a segment and use kind segment.');
        END IF;
        IF bad = 'ids' THEN
            SELECT e #>> '{}' INTO known FROM jsonb_array_elements(list) e
             WHERE jsonb_typeof(e) <> 'number' OR e #>> '{}' !~ '^-?[0-9]{1,18}$' LIMIT 1;
            IF FOUND THEN
                PERFORM belfry.reject('jobs', 'audience.ids', format('%L is not a channel id; allowed values: whole numbers of up to 18 digits', coalesce(known, 'null')));
            END IF;
        ELSE
            SELECT e #>> '{}' INTO known FROM jsonb_array_elements(list) e
             WHERE jsonb_typeof(e) <> 'string' OR length(e #>> '{}') NOT BETWEEN 1 AND 200 LIMIT 1;
            IF FOUND THEN
                PERFORM belfry.reject('jobs', 'audience.external_ids', format('%L is not an external id; allowed values: texts of 1 to 200 characters', left(coalesce(known, 'null'), 60)));
            END IF;
        END IF;
    END IF;
END $$;

CREATE FUNCTION belfry.check_number(a jsonb, key text, low numeric, high numeric, unit text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    fits boolean := false;
BEGIN
    IF jsonb_typeof(a -> key) = 'number' THEN
        fits := (a ->> key)::numeric BETWEEN low AND high;
    END IF;
    IF NOT fits THEN
        PERFORM belfry.reject('jobs', 'audience.' || key,
            format('%s is not allowed; allowed values: numbers from %s to %s, in %s', left((a -> key)::text, 40), low, high, unit));
    END IF;
END $$;

-- Validates what the requester sets, on INSERT and on later corrections.
CREATE FUNCTION belfry.jobs_validate() RETURNS trigger
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

-- The status machine, for whoever writes. Derived columns follow the status.
-- Setting abort_requested IS the abort: PENDING or RUNNING becomes ABORTED in the
-- same statement, so no runner has to be alive to acknowledge it, and the guard
-- of the chunk's last statement (job/queries.sql, ChunkCommit) does the rest (I6).
-- Clearing it on an ABORTED job resumes. On any other job both are a NOTICE, not
-- an error: aborting a whole group must not fail because one member is done.
CREATE FUNCTION belfry.jobs_transition() RETURNS trigger
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
CREATE TRIGGER jobs_transition BEFORE UPDATE OF status, abort_requested, fence
    ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION belfry.jobs_transition();

-- Writes the timeline and rings the bell. The bell (NOTIFY belfry_jobs) is only a
-- hint to poll now; the payload is the job's id. The actor is who is said to act;
-- detail.session_user is who was logged in.
CREATE FUNCTION belfry.jobs_record() RETURNS trigger
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
CREATE TRIGGER jobs_record_enqueue AFTER INSERT ON belfry.jobs
    FOR EACH ROW EXECUTE FUNCTION belfry.jobs_record();
CREATE TRIGGER jobs_record_change AFTER UPDATE OF status, abort_requested, fence ON belfry.jobs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.fence IS DISTINCT FROM NEW.fence)
    EXECUTE FUNCTION belfry.jobs_record();

-- A RUNNING job is not deleted under its runner; its timeline goes with a job.
CREATE FUNCTION belfry.jobs_keep_running() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM belfry.reject('jobs', 'status', format('job %s is RUNNING and cannot be deleted', OLD.id), 'Abort it first.');
    RETURN NULL;
END $$;
CREATE TRIGGER jobs_keep_running BEFORE DELETE ON belfry.jobs
    FOR EACH ROW WHEN (OLD.status = 'RUNNING') EXECUTE FUNCTION belfry.jobs_keep_running();

-- These run with their owner's rights, so that a role that may only INSERT jobs
-- can enqueue. Nobody may attach them to a table of his own.
REVOKE EXECUTE ON FUNCTION belfry.jobs_validate(), belfry.jobs_record() FROM PUBLIC;

-- enqueue inserts one job in the caller's transaction and returns its id. With an
-- idempotency key that this type has seen, it returns the first job's id instead.
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

-- enqueue_group inserts one job per type under one group_id: shown, aborted and
-- resumed together. A repeated idempotency key returns the first group.
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

-- The operator's acts, with actor and reason. Each returns the job as it is now;
-- no row means there is no such job. On a job in another status nothing changes.
CREATE FUNCTION belfry.act(actor text, reason text) RETURNS void
LANGUAGE sql AS $$ SELECT set_config('belfry.actor', coalesce(actor, ''), true), set_config('belfry.reason', coalesce(reason, ''), true) $$;

CREATE FUNCTION belfry.abort(id bigint, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.jobs
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM belfry.act(actor, reason);
    UPDATE belfry.jobs j SET abort_requested = true WHERE j.id = $1 AND j.status IN ('PENDING', 'RUNNING');
    PERFORM belfry.act(NULL, NULL);
    RETURN QUERY SELECT * FROM belfry.jobs j WHERE j.id = $1;
END $$;

-- Aborts every PENDING or RUNNING job of a group, in id order.
CREATE FUNCTION belfry.abort_group(group_id uuid, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.jobs
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT a.* FROM (SELECT j.id FROM belfry.jobs j WHERE j.group_id = $1 ORDER BY j.id) g, belfry.abort(g.id, $2, $3) a;
END $$;

CREATE FUNCTION belfry.resume(id bigint, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.jobs
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM belfry.act(actor, reason);
    UPDATE belfry.jobs j SET abort_requested = false WHERE j.id = $1 AND j.status = 'ABORTED';
    PERFORM belfry.act(NULL, NULL);
    RETURN QUERY SELECT * FROM belfry.jobs j WHERE j.id = $1;
END $$;

CREATE FUNCTION belfry.resume_group(group_id uuid, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.jobs
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT a.* FROM (SELECT j.id FROM belfry.jobs j WHERE j.group_id = $1 ORDER BY j.id) g, belfry.resume(g.id, $2, $3) a;
END $$;

CREATE FUNCTION belfry.retry(id bigint, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.jobs
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM belfry.act(actor, reason);
    UPDATE belfry.jobs j SET status = 'PENDING' WHERE j.id = $1 AND j.status = 'FAILED';
    PERFORM belfry.act(NULL, NULL);
    RETURN QUERY SELECT * FROM belfry.jobs j WHERE j.id = $1;
END $$;

CREATE FUNCTION belfry.retry_group(group_id uuid, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.jobs
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT a.* FROM (SELECT j.id FROM belfry.jobs j WHERE j.group_id = $1 ORDER BY j.id) g, belfry.retry(g.id, $2, $3) a;
END $$;
