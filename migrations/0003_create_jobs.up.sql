-- Jobs: one row is one bulk-notification request. Plain SQL is an API here: an INSERT enqueues inside the
-- caller's transaction, UPDATE … SET abort_requested stops. The triggers below make bad input fail with the
-- column and the allowed values, enforce the status machine for all clients, and record every transition in
-- job_events in the same transaction. No trigger needs to come before another.

-- Expressions that are bound at creation must not resolve to functions of other roles.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Lanes that have been paused. A lane can be used without a row.
CREATE TABLE belfry.lanes (
    name         text CONSTRAINT lanes_pkey PRIMARY KEY,
    paused_at    timestamptz, -- NULL: open
    paused_by    text,
    pause_reason text NOT NULL DEFAULT '',
    CONSTRAINT lanes_times_check CHECK (paused_at >= '1970-01-01 00:00:00+00' AND paused_at < '9999-12-31 00:00:00+00'),
    CONSTRAINT lanes_name_check CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'
        OR belfry.reject('lanes', 'name', format('%L is not a lane name; allowed values: 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit', left(name, 70)))),
    CONSTRAINT lanes_paused_by_check CHECK (length(paused_by) <= 255),
    CONSTRAINT lanes_pause_reason_check CHECK (length(pause_reason) <= 4000
        OR belfry.reject('lanes', 'pause_reason', format('has %s characters; allowed values: texts of 0 to 4000 characters', length(pause_reason)))),
    CONSTRAINT lanes_paused_check CHECK ((paused_at IS NULL) = (paused_by IS NULL))
);

CREATE TRIGGER lanes_record AFTER INSERT OR UPDATE OR DELETE ON belfry.lanes
    FOR EACH ROW EXECUTE FUNCTION belfry.record('lane');

-- Pauses a lane: no job of it is claimed, and the one that runs goes back to
-- PENDING after its chunk. Pausing a paused lane changes nothing.
CREATE FUNCTION belfry.pause_lane(name text, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.lanes
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO belfry.lanes (name) VALUES (coalesce($1, '')) ON CONFLICT ON CONSTRAINT lanes_pkey DO NOTHING;
    SELECT belfry.pause('lanes', $1, true, $2, $3);
    SELECT * FROM belfry.lanes l WHERE l.name = $1
$$;

-- Opens a paused lane again. No row: the lane was never paused.
CREATE FUNCTION belfry.resume_lane(name text, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.lanes
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT belfry.pause('lanes', $1, false, $2, $3);
    SELECT * FROM belfry.lanes l WHERE l.name = $1
$$;

-- Ids of jobs, drawn only by jobs_validate. Every role that may INSERT could override an identity column and
-- use the numbers of future or deleted jobs.
CREATE SEQUENCE belfry.jobs_id_seq;

-- The order in which notifications arrive at people, of jobs and activities together. A job draws its number at
-- its first claim: one that was enqueued earlier and runs later arrives later.
CREATE SEQUENCE belfry.arrivals_seq;

CREATE TABLE belfry.jobs (
    id              bigint CONSTRAINT jobs_pkey PRIMARY KEY, -- from jobs_id_seq, for all clients
    group_id        uuid,
    -- Content, audience and time, set by the client that enqueues. route is the category's unless the job
    -- has its own, and is fixed once the job has started. variants are titles and bodies by locale: {"ko":
    -- {"title": "…", "body": "…"}}.
    type            text        NOT NULL,
    category        text        NOT NULL,
    title           text        NOT NULL,
    body            text        NOT NULL DEFAULT '',
    data            jsonb       NOT NULL DEFAULT '{}',
    variants        jsonb       NOT NULL DEFAULT '{}',
    route           text[]      NOT NULL,
    audience        jsonb       NOT NULL DEFAULT '{"kind": "everyone"}',
    lane            text        NOT NULL DEFAULT 'default',
    priority        integer     NOT NULL DEFAULT 0,
    schedule_at     timestamptz NOT NULL DEFAULT now(),
    deliver_at      timestamptz,
    expires_at      timestamptz, -- not started by then: EXPIRED
    idempotency_key text,
    requested_by    text        NOT NULL DEFAULT session_user,
    needs_approval  boolean     NOT NULL DEFAULT false, -- by a second person; jobs_limit sets it if the category requires it
    -- The most rows that the walk may write, decided by jobs_limit when the job is enqueued;
    -- NULL: no ceiling. The statement that moves the cursor refuses more.
    max_recipients  integer,
    -- Settings of the walk. NULL: the runner's own. They take effect with the next chunk.
    max_rows_per_second integer,
    duty_cycle          double precision,
    chunk_target_ms     integer,
    max_chunk_rows      integer,
    health_checks       boolean,
    max_skips           integer,
    -- How it goes: set by belfry. abort_requested is the operator's switch.
    status          text        NOT NULL DEFAULT 'PENDING',
    abort_requested boolean     NOT NULL DEFAULT false,
    "cursor"        text,
    bound           text,
    fence           bigint      NOT NULL DEFAULT 0,
    runner          text,
    heartbeat_at    timestamptz,
    -- The server connection that the run holds. NULL if it is unknown because of a pooler; then only the
    -- heartbeat shows whether the run is alive.
    backend_pid     integer,
    backend_start   timestamptz,
    attempts        integer     NOT NULL DEFAULT 0,
    takeovers       integer     NOT NULL DEFAULT 0, -- since the last committed chunk
    last_error      text,
    -- The accounts: channels_read = out of audience + channels_matched, and channels_matched = rows_written
    -- + declined + skipped. recalled counts rows that a recall withdrew, erased the rows of erased channels.
    chunks           bigint     NOT NULL DEFAULT 0,
    channels_read    bigint     NOT NULL DEFAULT 0,
    channels_total   bigint,
    channels_matched bigint     NOT NULL DEFAULT 0,
    rows_written     bigint     NOT NULL DEFAULT 0,
    declined         bigint     NOT NULL DEFAULT 0,
    skipped          bigint     NOT NULL DEFAULT 0,
    recalled         bigint     NOT NULL DEFAULT 0,
    erased           bigint     NOT NULL DEFAULT 0,
    recalled_at      timestamptz,
    -- Why the walk is not at full speed now, and how long it has been held in all.
    throttle        text,
    throttle_detail text,
    throttled_ms    bigint      NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now(),
    started_at      timestamptz,
    arrival         bigint, -- from arrivals_seq, at the first claim: the number of its notifications
    finished_at     timestamptz,
    walked_at       timestamptz, -- the walk was completed, and no other one was asked for since
    -- How often the content or the audience was corrected after the walk had begun.
    revision        integer     NOT NULL DEFAULT 0,
    -- The approval in force (belfry.jobs_approve): for so many, of whom the walk writes rows
    -- for approved_recipients at most. unapproved_at: the one before was voided then.
    approved_count      integer,
    approved_recipients integer,
    approved_at         timestamptz,
    approved_by         text,
    unapproved_at       timestamptz,
    -- The job waits for a second person: it is not claimed, and no message of it is sent.
    awaits_approval     boolean GENERATED ALWAYS AS (needs_approval AND approved_count IS NULL AND status NOT IN ('ABORTED', 'EXPIRED')) STORED,
    -- delivered_at is set when the job is finished and no message of it is left to send. Relays only check
    -- the other jobs.
    delivered_at    timestamptz,
    -- Retention: retention_at is set while a job's rows are being deleted; the job then cannot be walked
    -- again or, if it was ABORTED before, be resumed. pruned_at is set when all rows are deleted.
    retention_at    timestamptz,
    pruned_at       timestamptz,
    CONSTRAINT jobs_times_check CHECK (
        least(heartbeat_at, backend_start, recalled_at, created_at, started_at, finished_at, walked_at, approved_at, unapproved_at, delivered_at, retention_at, pruned_at) >= '1970-01-01 00:00:00+00'
        AND greatest(heartbeat_at, backend_start, recalled_at, created_at, started_at, finished_at, walked_at, approved_at, unapproved_at, delivered_at, retention_at, pruned_at) < '9999-12-31 00:00:00+00'),
    CONSTRAINT jobs_lengths_check CHECK (greatest(octet_length("cursor"), octet_length(bound), octet_length(last_error)) <= 8000
        AND greatest(octet_length(runner), octet_length(throttle), octet_length(throttle_detail), octet_length(approved_by)) <= 4000),
    CONSTRAINT jobs_id_check CHECK (id > 0), -- ids of activities are negative
    CONSTRAINT jobs_arrival_check CHECK (arrival > 0),
    CONSTRAINT jobs_idempotency_key UNIQUE (idempotency_key, type),
    CONSTRAINT jobs_status_check CHECK (status IN ('PENDING', 'RUNNING', 'PROCESSED', 'ABORTED', 'FAILED', 'EXPIRED')),
    CONSTRAINT jobs_abort_check CHECK (abort_requested = (status = 'ABORTED')),
    CONSTRAINT jobs_running_check CHECK ((status = 'RUNNING') = (runner IS NOT NULL AND heartbeat_at IS NOT NULL)),
    CONSTRAINT jobs_backend_check CHECK (backend_pid IS NULL OR status = 'RUNNING' AND backend_start IS NOT NULL),
    CONSTRAINT jobs_throttle_check CHECK (throttle IS NULL OR status = 'RUNNING'),
    CONSTRAINT jobs_finished_check CHECK ((status IN ('PROCESSED', 'ABORTED', 'FAILED', 'EXPIRED')) = (finished_at IS NOT NULL)),
    CONSTRAINT jobs_walked_check CHECK (walked_at IS NULL OR status IN ('PROCESSED', 'ABORTED')),
    CONSTRAINT jobs_retention_check CHECK (retention_at IS NULL OR finished_at IS NOT NULL),
    CONSTRAINT jobs_pruned_check CHECK (pruned_at IS NULL OR retention_at IS NOT NULL),
    CONSTRAINT jobs_cursor_check CHECK ("cursor" IS NULL OR bound IS NOT NULL),
    -- Types of belfry walk the channels by their ids, which audits, recalls and erasures read here. bound is '' if
    -- there was no channel.
    CONSTRAINT jobs_keys_check CHECK (CASE WHEN type = ANY ('{inbox,push}')
        THEN coalesce("cursor"::bigint::text = "cursor", true) AND coalesce(nullif(bound, '')::bigint::text = bound, true) ELSE true END),
    CONSTRAINT jobs_counts_check CHECK (fence >= 0 AND attempts >= 0 AND chunks >= 0 AND rows_written >= 0 AND channels_read >= 0),
    CONSTRAINT jobs_accounts_check CHECK (takeovers >= 0 AND channels_matched >= 0 AND declined >= 0 AND skipped >= 0 AND throttled_ms >= 0 AND recalled >= 0 AND erased >= 0)
) WITH (fillfactor = 70); -- room for HOT updates: every chunk moves the cursor

ALTER SEQUENCE belfry.jobs_id_seq OWNED BY belfry.jobs.id;

-- I4: at most one RUNNING job per lane, kept by the database.
CREATE UNIQUE INDEX jobs_one_running_per_lane ON belfry.jobs (lane) WHERE status = 'RUNNING';
-- For the claim and the check for a more urgent job before each chunk: the waiting jobs of a lane and type
-- by urgency. Lanes, types and priorities are few, so each is found by one probe, however many jobs wait. It
-- excludes jobs that wait for approval.
CREATE INDEX jobs_waiting_idx ON belfry.jobs (lane, type, priority DESC, schedule_at, id) WHERE status = 'PENDING' AND NOT awaits_approval;
CREATE INDEX jobs_approval_idx ON belfry.jobs (id) WHERE awaits_approval;
-- Serves the late-start guard: PENDING and never started, which the CHECKs above make
-- the same as these columns being NULL. Its condition does not name the status, so that
-- no planner takes jobs_waiting_idx for it.
CREATE INDEX jobs_expiry_idx ON belfry.jobs (expires_at)
    WHERE expires_at IS NOT NULL AND started_at IS NULL AND finished_at IS NULL AND runner IS NULL;
CREATE INDEX jobs_group_idx ON belfry.jobs (group_id) WHERE group_id IS NOT NULL;
-- For retention's queries of old rows.
CREATE INDEX jobs_unpruned_idx ON belfry.jobs (finished_at, id) WHERE finished_at IS NOT NULL AND pruned_at IS NULL;
CREATE INDEX jobs_pruned_idx ON belfry.jobs (finished_at, id) WHERE pruned_at IS NOT NULL;
CREATE INDEX jobs_undelivered_idx ON belfry.jobs (id) WHERE delivered_at IS NULL AND started_at IS NOT NULL;
-- Serves the frequency cap: the jobs of a category that may have sent something since.
CREATE INDEX jobs_category_idx ON belfry.jobs (category, (coalesce(delivered_at, 'infinity'::timestamptz))) WHERE started_at IS NOT NULL;
-- Serve lists of jobs, newest first: of a status, and of a lane, a category or a type in it.
-- Each index has an order expression of its own, so that only the lane's index can order a list by
-- lane. With a common expression the planner may scan another index through all jobs: it knows the
-- share of jobs in a lane, and not that they are the oldest.
CREATE INDEX jobs_status_idx ON belfry.jobs (status, (-id));
CREATE INDEX jobs_lane_idx ON belfry.jobs (lane, status, (0 - id));
CREATE INDEX jobs_kind_idx ON belfry.jobs (category, status, (-1 * id));
CREATE INDEX jobs_type_idx ON belfry.jobs (type, status, (id * -1));
-- For lists of the jobs of a period, which it translates into a range of ids.
CREATE INDEX jobs_created_idx ON belfry.jobs (created_at);
CREATE UNIQUE INDEX jobs_arrival_idx ON belfry.jobs (arrival) WHERE arrival IS NOT NULL;

-- The timeline of each job.
CREATE TABLE belfry.job_events (
    id     bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT job_events_pkey PRIMARY KEY,
    job_id bigint      NOT NULL CONSTRAINT job_events_job_fkey REFERENCES belfry.jobs (id) ON DELETE CASCADE,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind   text        NOT NULL,
    actor  text        NOT NULL,
    reason text        NOT NULL DEFAULT '',
    detail jsonb       NOT NULL DEFAULT '{}',
    CONSTRAINT job_events_kind_check CHECK (kind IN ('enqueued', 'claimed', 'resumed', 'interrupted', 'preempted', 'lane_paused', 'halted',
        'aborted', 'finished', 'failed', 'expired', 'resume_requested', 'retry_requested', 'retry_skipped_requested',
        'changed', 'approved', 'throttled', 'released', 'recalled'))
);
CREATE INDEX job_events_job_idx ON belfry.job_events (job_id, id);

-- Whether a job's event is an act on it. Events of runs, which are the majority, are not, nor is that the
-- job was enqueued.
CREATE FUNCTION belfry.is_job_act(kind text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN kind IN ('aborted', 'resume_requested', 'retry_requested', 'retry_skipped_requested', 'changed', 'approved', 'recalled');

CREATE INDEX job_events_acts_idx ON belfry.job_events (job_id, id) WHERE belfry.is_job_act(kind);

-- A job's version, as belfry.version has it: the id of the newest act on it, 0 when there was none.
CREATE FUNCTION belfry.job_version(id bigint) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN coalesce((SELECT e.id FROM belfry.job_events e
    WHERE e.job_id = $1 AND belfry.is_job_act(e.kind)
    ORDER BY e.id DESC LIMIT 1), 0);

-- Recipients that a run skipped because their rows cannot be written, by the
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
    CONSTRAINT job_skips_times_check CHECK (
        least(skipped_at, tried_at) >= '1970-01-01 00:00:00+00'
        AND greatest(skipped_at, tried_at) < '9999-12-31 00:00:00+00'),
    CONSTRAINT job_skips_pkey PRIMARY KEY (job_id, key),
    CONSTRAINT job_skips_attempts_check CHECK (attempts >= 1),
    CONSTRAINT job_skips_keys_check CHECK (greatest(octet_length(key), octet_length(after)) <= 8000 -- as jobs.cursor
        OR belfry.reject('job_skips', 'key', 'or after has more than 8000 bytes; allowed values: keys of up to 8000 bytes')),
    CONSTRAINT job_skips_error_check CHECK (octet_length(error) <= 4000 AND octet_length(sqlstate) <= 5
        OR belfry.reject('job_skips', 'error', 'has more than 4000 bytes, or sqlstate more than 5; allowed values: shorter texts'))
);

-- Content of a job for single recipients, which its templates name {{value.NAME}}. The transaction that enqueues the
-- job writes them, by INSERT or COPY, before it commits. If a template of the job has such a value, recipients without
-- a row are declined. No foreign key: it would cost as much as the row.
CREATE TABLE belfry.job_values (
    job_id     bigint NOT NULL,
    channel_id bigint NOT NULL,
    value      jsonb  NOT NULL,
    CONSTRAINT job_values_pkey PRIMARY KEY (job_id, channel_id),
    CONSTRAINT job_values_value_check CHECK (jsonb_typeof(value) = 'object' AND octet_length(value::text) <= 4096
        OR belfry.reject('job_values', 'value', CASE jsonb_typeof(value) WHEN 'object' THEN format('of job %s, channel %s has %s bytes', job_id, channel_id, octet_length(value::text)) ELSE 'is a JSON ' || jsonb_typeof(value) END
            || '; allowed values: JSON objects of up to 4096 bytes, as {"score": 9}'))
);

-- Rejects values of jobs that this transaction did not enqueue: nobody changes the content of another's job. A visible
-- row whose transaction is in progress is this transaction's own; xmin has the low half of that transaction's number.
CREATE FUNCTION belfry.job_values_validate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    current constant bigint := pg_current_xact_id()::text::bigint;
    other   bigint;
    ok      boolean;
BEGIN
    SELECT v.job_id INTO other
      FROM (SELECT DISTINCT f.job_id FROM fresh f) v LEFT JOIN belfry.jobs j ON j.id = v.job_id
     WHERE CASE WHEN j.created_at = now()
                THEN pg_xact_status((current - 2147483648 + (j.xmin::text::bigint - current + 2147483648 & 4294967295))::text::xid8) <> 'in progress' ELSE true END LIMIT 1;
    ok := other IS NULL
        OR belfry.reject('job_values', 'job_id', format('job %s was not enqueued by this transaction; allowed values: ids of jobs that it enqueued', other));
    RETURN NULL;
END $$;

CREATE TRIGGER job_values_validate AFTER INSERT ON belfry.job_values REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION belfry.job_values_validate();

REVOKE EXECUTE ON FUNCTION belfry.job_values_validate() FROM PUBLIC;

CREATE INDEX job_skips_retry_idx ON belfry.job_skips (job_id, key) WHERE retry;

-- The content and audience of a job before its correction number "revision". The rows above the previous
-- revision's cursor, up to and including "cursor", were written under it. Messages that were sent under it, and
-- notifications of skipped recipients that were written under it, have this number less one as their revision;
-- for messages NULL is 0.
CREATE TABLE belfry.job_revisions (
    job_id    bigint      NOT NULL CONSTRAINT job_revisions_job_fkey REFERENCES belfry.jobs (id) ON DELETE CASCADE,
    revision  integer     NOT NULL,
    "cursor"  text        NOT NULL,
    title     text        NOT NULL,
    body      text        NOT NULL,
    data      jsonb       NOT NULL,
    variants  jsonb       NOT NULL DEFAULT '{}',
    audience  jsonb       NOT NULL,
    edited_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    edited_by text        NOT NULL,
    reason    text        NOT NULL DEFAULT '',
    CONSTRAINT job_revisions_pkey PRIMARY KEY (job_id, revision)
);

-- Counters of a job's messages by state. Every transaction that changes messages adds to a row of its own in
-- the same transaction, so that the sums are exact in every committed state and no two relays wait for each
-- other: chunks and operators to the row with the relay '', each relay to the row with its name, or while that is
-- locked to one with '/2', '/3', … after its name. dead is lowered
-- by a redrive, so that a single row's may be below zero. Messages that retention deletes stay counted. The
-- rows come last in a transaction, in the order of their jobs, and before the job's own.
CREATE TABLE belfry.job_deliveries (
    job_id    bigint NOT NULL,
    relay     text   NOT NULL,
    written   bigint NOT NULL DEFAULT 0,
    sent      bigint NOT NULL DEFAULT 0,
    dead      bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    CONSTRAINT job_deliveries_pkey PRIMARY KEY (job_id, relay),
    CONSTRAINT job_deliveries_counts_check CHECK (written BETWEEN 0 AND 1000000000000 AND sent BETWEEN 0 AND 1000000000000 AND dead BETWEEN -1000000000000 AND 1000000000000 AND cancelled BETWEEN 0 AND 1000000000000),
    CONSTRAINT job_deliveries_relay_check CHECK (octet_length(relay) <= 1000)
) WITH (fillfactor = 50); -- room for HOT updates: every settlement changes one

-- Bounds the rows of a job, so that whatever a role that delivers writes, their sum can be read: the relays after the
-- first 1,000 share the row ''. Rows keep their job and relay.
CREATE FUNCTION belfry.job_deliveries_fold() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ok constant boolean := TG_OP = 'INSERT' OR (NEW.job_id, NEW.relay) = (OLD.job_id, OLD.relay)
        OR belfry.reject('job_deliveries', 'relay', format('the row of job %s and relay %L keeps both; allowed changes: its counts', OLD.job_id, left(OLD.relay, 60)));
BEGIN
    IF TG_OP = 'INSERT' AND NOT EXISTS (SELECT FROM belfry.job_deliveries d WHERE d.job_id = NEW.job_id AND d.relay = NEW.relay)
        AND 1000 <= (SELECT count(*) FROM (SELECT FROM belfry.job_deliveries d WHERE d.job_id = NEW.job_id LIMIT 1000) l) THEN
        NEW.relay := '';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER job_deliveries_fold BEFORE INSERT OR UPDATE OF job_id, relay ON belfry.job_deliveries
    FOR EACH ROW WHEN (NEW.relay <> '') EXECUTE FUNCTION belfry.job_deliveries_fold();

REVOKE EXECUTE ON FUNCTION belfry.job_deliveries_fold() FROM PUBLIC;

-- One row per job: its messages, what became of them, and how many are not final yet. The sums end
-- at 10^12: whatever rows a role that delivers has written, the view can be read.
CREATE VIEW belfry.job_progress AS
SELECT j.id AS job_id, d.messages, d.sent, d.dead, d.cancelled, d.messages - d.sent - d.dead - d.cancelled AS waiting
  FROM belfry.jobs j
 CROSS JOIN LATERAL (SELECT least(coalesce(sum(r.written), 0), 1e12)::bigint AS messages, least(coalesce(sum(r.sent), 0), 1e12)::bigint AS sent,
                            greatest(-1e12, least(coalesce(sum(r.dead), 0), 1e12))::bigint AS dead, least(coalesce(sum(r.cancelled), 0), 1e12)::bigint AS cancelled
                       FROM belfry.job_deliveries r WHERE r.job_id = j.id) d;

-- The columns that clients set when they enqueue. The others belong to belfry.
CREATE FUNCTION belfry.jobs_asked() RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '{type,category,title,body,data,variants,route,audience,lane,priority,schedule_at,deliver_at,expires_at,idempotency_key,requested_by,group_id,needs_approval,max_recipients,max_rows_per_second,duty_cycle,chunk_target_ms,max_chunk_rows,health_checks,max_skips}'::text[];

-- Whether an audience only lost the external id that belfry.forget_listed takes out of lists in this
-- transaction. That is allowed for jobs in every status, because it adds no recipient.
CREATE FUNCTION belfry.jobs_forget(was jsonb, is_now jsonb) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
RETURN is_now <> was AND is_now = belfry.audience_without(was, current_setting('belfry.forget', true));

-- Validates a job when it is enqueued and when it is corrected, assigns its id for all clients, and
-- restricts changes. A RUNNING job cannot be corrected, and after its first claim only its content and its
-- audience can change, for the remaining recipients. A job without a route of its own takes its category's.
CREATE FUNCTION belfry.jobs_validate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    edit    constant text := 'Abort it, correct it, resume it: belfry.resume_edited(id, changes).';
    latest  constant timestamptz := '9999-12-30 00:00:00+00';
    changed text[] := belfry.jobs_asked();
    col     text;
    problem text;
    ok      boolean;
BEGIN
    NEW.route := coalesce(NEW.route, (SELECT c.route FROM belfry.categories c WHERE c.name = NEW.category));
    IF TG_OP = 'INSERT' THEN
        ok := belfry.check_new('jobs', to_jsonb(NEW), changed, jsonb_build_object('status', 'PENDING', 'abort_requested', false, 'created_at', now())
            || '{"fence": 0, "attempts": 0, "takeovers": 0, "chunks": 0, "channels_read": 0, "channels_matched": 0, "rows_written": 0, "declined": 0, "skipped": 0, "recalled": 0, "erased": 0, "throttled_ms": 0, "revision": 0}');
        NEW.id := nextval('belfry.jobs_id_seq');
    ELSE
        ok := NEW.id = OLD.id OR belfry.reject('jobs', 'id', format('job %s keeps its id; allowed changes: none', OLD.id));
        changed := ARRAY(SELECT k FROM unnest(changed) k, to_jsonb(OLD) was, to_jsonb(NEW) is_now WHERE is_now -> k <> was -> k);
        IF belfry.jobs_forget(OLD.audience, NEW.audience) THEN
            changed := array_remove(changed, 'audience'); -- it is no correction, and has no revision
        END IF;
        col := (SELECT min(k) FROM unnest(changed) k WHERE k IN ('type', 'group_id')
                   OR k IN ('deliver_at', 'route') AND NOT (OLD.status = 'FAILED' AND OLD.rows_written = 0)); -- nothing of it went out
        ok := col IS NULL OR OLD.bound IS NULL AND OLD.status <> 'RUNNING'
            OR belfry.reject('jobs', col, format('job %s has started; allowed changes: none', OLD.id), 'Abort it and enqueue another.');
        col := (SELECT min(k) FROM unnest(changed) k WHERE k IN ('title', 'body', 'data', 'variants', 'audience') OR k IN ('category', 'lane') AND OLD.status = 'RUNNING');
        ok := col IS NULL OR OLD.status NOT IN ('RUNNING', 'PROCESSED')
            OR belfry.reject('jobs', col, format('job %s is %s; allowed changes: none', OLD.id, OLD.status),
                CASE OLD.status WHEN 'RUNNING' THEN edit ELSE 'While messages are left: a' || substr(edit, 2) || ' Otherwise enqueue another.' END);
        IF 'audience' = ANY (changed) THEN
            ok := OLD.walked_at IS NULL
                OR belfry.reject('jobs', 'audience', format('job %s has been walked to the end; allowed changes: none', OLD.id), 'Enqueue another for those who are to be added.');
            NEW.channels_total := NULL; -- the next run estimates again
        END IF;
        IF OLD."cursor" IS NOT NULL AND changed && '{title,body,data,variants,audience}' THEN
            NEW.revision := OLD.revision + 1;
        END IF;
    END IF;

    -- These are not CHECKs, because every chunk would evaluate them for its job (ADR 0028).
    SELECT v.col, v.problem INTO col, problem
      FROM (VALUES
        ('lane', NEW.lane ~ '^[a-z0-9][a-z0-9_-]{0,62}$',
            format('%L is not a lane name; allowed values: 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit', left(coalesce(NEW.lane, 'null'), 70))),
        ('priority', NEW.priority BETWEEN -1000 AND 1000,
            coalesce(NEW.priority::text, 'null') || ' is not allowed; allowed values: -1000 to 1000, higher is more urgent'),
        ('schedule_at', NEW.schedule_at BETWEEN '1970-01-01 00:00:00+00' AND latest,
            coalesce(NEW.schedule_at::text, 'null') || ' is not allowed; allowed values: timestamps of the years 1970 to 9999'),
        ('deliver_at', NEW.deliver_at IS NULL OR NEW.deliver_at BETWEEN NEW.schedule_at AND latest,
            format('%s is not allowed; allowed values: null, or timestamps up to the year 9999 not before schedule_at (%s)', NEW.deliver_at, NEW.schedule_at)),
        ('expires_at', NEW.expires_at IS NULL OR NEW.expires_at > NEW.schedule_at AND NEW.expires_at <= latest,
            format('%s is not allowed; allowed values: null, or timestamps up to the year 9999 after schedule_at (%s)', NEW.expires_at, NEW.schedule_at)),
        ('max_recipients', NEW.max_recipients IS NULL OR NEW.max_recipients BETWEEN 1 AND 2000000000,
            NEW.max_recipients || ' is not allowed; allowed values: null (the category''s ceiling, and in a change no ceiling), 1 to 2000000000'),
        ('max_rows_per_second', NEW.max_rows_per_second IS NULL OR NEW.max_rows_per_second BETWEEN 0 AND 10000000,
            NEW.max_rows_per_second || ' is not allowed; allowed values: null (the runner''s setting), 0 (no limit) to 10000000'),
        ('duty_cycle', NEW.duty_cycle IS NULL OR NEW.duty_cycle BETWEEN 0.01 AND 1,
            NEW.duty_cycle || ' is not allowed; allowed values: null (the runner''s setting), 0.01 to 1, the share of time spent in chunks'),
        ('chunk_target_ms', NEW.chunk_target_ms IS NULL OR NEW.chunk_target_ms BETWEEN 1 AND 60000,
            NEW.chunk_target_ms || ' is not allowed; allowed values: null (the runner''s setting), 1 to 60000 milliseconds'),
        ('max_chunk_rows', NEW.max_chunk_rows IS NULL OR NEW.max_chunk_rows BETWEEN 1 AND 1000000,
            NEW.max_chunk_rows || ' is not allowed; allowed values: null (the runner''s setting), 1 to 1000000'),
        ('max_skips', NEW.max_skips IS NULL OR NEW.max_skips BETWEEN 0 AND 10000000,
            NEW.max_skips || ' is not allowed; allowed values: null (the runner''s setting), 0 (skip nobody) to 10000000'),
        ('idempotency_key', NEW.idempotency_key IS NULL OR length(NEW.idempotency_key) BETWEEN 1 AND 200,
            format('has %s characters; allowed values: null, or texts of 1 to 200 characters', length(NEW.idempotency_key))),
        ('idempotency_key', coalesce(NEW.idempotency_key NOT LIKE 'schedule:%', true) OR NEW.requested_by LIKE 'schedule %' AND has_table_privilege(session_user, 'belfry.schedules', 'UPDATE'),
            'begins with schedule:, as the keys of schedules do; allowed values: other texts'),
        ('requested_by', NEW.requested_by ~ '[^[:space:]]' AND length(NEW.requested_by) <= 200,
            'is null, blank or too long; allowed values: texts of 1 to 200 characters')
        ) v (col, fits, problem)
     WHERE v.fits IS NOT TRUE LIMIT 1;
    ok := NOT FOUND OR belfry.reject('jobs', col, problem);
    ok := NOT changed && '{type,category}' OR belfry.check_word('jobs', 'type', 'job type', NEW.type) AND belfry.check_word('jobs', 'category', 'category', NEW.category);
    ok := NOT changed && '{title,body,data,variants}' OR belfry.check_content('jobs', NEW.title, NEW.body, NEW.data, NEW.variants);
    ok := 'audience' <> ALL (changed) OR belfry.check_audience('jobs', NEW.audience);
    ok := 'route' <> ALL (changed) OR belfry.check_route('jobs', NEW.route);
    ok := NOT changed && '{title,body,variants,route}' OR belfry.check_deliverable('jobs', NEW.type, NEW.route, NEW.title, NEW.body, NEW.variants);
    IF TG_OP = 'UPDATE' THEN
        NEW := belfry.jobs_approve(OLD, NEW);
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER jobs_validate BEFORE INSERT OR UPDATE OF
    id, type, category, title, body, data, variants, route, audience, lane, priority, schedule_at, deliver_at, expires_at, idempotency_key, requested_by, group_id,
    max_recipients, max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows, max_skips,
    needs_approval, approved_count, approved_recipients, approved_at, approved_by, unapproved_at
    ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION belfry.jobs_validate();

-- The status machine, for all clients. Derived columns follow the status. Setting abort_requested IS the
-- abort: PENDING or RUNNING becomes ABORTED in the same statement, so no runner has to be alive to
-- acknowledge it, and the guard of the chunk's last statement (job/queries.sql, ChunkCommit) does the rest
-- (I6). A PROCESSED or FAILED job is aborted too as long as a message of it is not final: the relays'
-- recheck before each call holds the remaining messages. The messages decide (belfry.has_unsent) and not the
-- counts alone, which roles that deliver write. Clearing it on an ABORTED job resumes: a job whose
-- walk is complete is PROCESSED again, and its delivery continues without a runner or the lane; any other
-- job is PENDING and continues from its cursor. In other states a request to abort or resume is a NOTICE,
-- not an error: aborting a whole group must not fail because one member has finished. A job of which
-- retention has deleted rows cannot be walked again, whole or in part. Its delivery can still be aborted,
-- and resumed until retention deletes the held messages. A RUNNING job is not deleted under its runner, and neither is a job
-- with messages, attempts or values: an erasure finds these by their job. Each takes one descent of an index (ORDER BY: a
-- plan for a job with most of the rows would read the table).
-- While belfry is halted no job is claimed or taken over. A claim takes a shared lock on the row claims of
-- belfry.locks, and a halt waits for that lock: either the halt finds the job, or the claim finds the halt.
-- The claim does not wait for the lock, because it has locked the job's row, which the halt may need; it
-- then changes no row. While belfry is halted a chunk changes no row either and is rolled back: this check
-- runs under the row's lock, with a snapshot that is younger than the lock. A halt hands back RUNNING jobs,
-- except jobs whose rows another session has locked (belfry.installation_halt). The function runs with its
-- owner's rights: a role that may abort need not read deliveries or skips.
CREATE FUNCTION belfry.jobs_transition() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ok        boolean := TG_OP = 'UPDATE' OR OLD.status <> 'RUNNING'
        OR belfry.reject('jobs', 'status', format('job %s is RUNNING and cannot be deleted', OLD.id), 'Abort it first.');
    allowed   constant text := CASE OLD.status WHEN 'PENDING' THEN 'RUNNING, ABORTED, EXPIRED' WHEN 'RUNNING' THEN 'PENDING, PROCESSED, ABORTED, FAILED'
        WHEN 'EXPIRED' THEN 'PENDING' WHEN 'ABORTED' THEN 'PENDING, PROCESSED' ELSE 'PENDING, ABORTED' END;
    left_over boolean := false;
    kept      text;
BEGIN
    IF TG_OP = 'DELETE' THEN
        kept := CASE WHEN (SELECT m.channel_id FROM belfry.messages m WHERE m.job_id = OLD.id ORDER BY m.channel_id LIMIT 1) IS NOT NULL THEN 'messages'
            WHEN (SELECT v.channel_id FROM belfry.job_values v WHERE v.job_id = OLD.id ORDER BY v.channel_id LIMIT 1) IS NOT NULL THEN 'values'
            WHEN (SELECT a.channel_id FROM belfry.attempts a WHERE a.job_id = OLD.id ORDER BY a.channel_id, a.id LIMIT 1) IS NOT NULL THEN 'attempts' END;
        ok := kept IS NULL
            OR belfry.reject('jobs', 'id', format('job %s has %s and cannot be deleted', OLD.id, kept), 'Abort it. retention.messages and retention.jobs delete it with its rows.');
        RETURN OLD;
    END IF;
    NEW.arrival := OLD.arrival;
    IF (OLD.status, OLD.fence) = ('RUNNING', NEW.fence) AND NEW.status = 'RUNNING' AND NOT NEW.abort_requested THEN
        IF (SELECT i.halted_at FROM belfry.installation i WHERE i.one) IS NOT NULL THEN
            RETURN NULL;
        END IF;
        RETURN NEW; -- not by an expression, which would read the audience and write it again
    END IF;
    IF NEW.status = 'RUNNING' AND NEW.fence > OLD.fence THEN
        PERFORM FROM belfry.locks l WHERE l.name = 'claims' FOR SHARE SKIP LOCKED;
        IF NOT FOUND OR NOT EXISTS (SELECT FROM belfry.installation i WHERE i.one AND i.halted_at IS NULL) THEN
            RETURN NULL;
        END IF;
        NEW.arrival := coalesce(OLD.arrival, belfry.next_arrival(NEW.type <> 'push'));
    END IF;
    IF OLD.status IN ('PROCESSED', 'FAILED') AND (NEW.abort_requested OR NEW.status = 'ABORTED') THEN
        left_over := belfry.has_unsent(OLD.id);
    END IF;
    IF NEW.abort_requested AND NOT OLD.abort_requested THEN
        IF OLD.status IN ('PENDING', 'RUNNING') OR left_over THEN
            NEW.status := 'ABORTED';
        ELSE
            RAISE NOTICE 'belfry: job % is % already; nothing to abort', OLD.id, OLD.status;
            NEW.abort_requested := false;
        END IF;
    ELSIF OLD.abort_requested AND NOT NEW.abort_requested AND NEW.status = 'ABORTED' THEN
        NEW.status := CASE WHEN OLD.walked_at IS NOT NULL THEN 'PROCESSED' ELSE 'PENDING' END;
    END IF;

    IF NEW.status <> OLD.status THEN
        ok := NEW.status = ANY (string_to_array(allowed, ', '))
            OR belfry.reject('jobs', 'status', format('job %s cannot go from %s to %s; allowed values now: %s', OLD.id, OLD.status, left(NEW.status, 60), allowed),
                'Stop a job with abort_requested = true, resume it with belfry.resume(id), retry it with belfry.retry(id).');
        ok := NEW.status <> 'RUNNING' OR NOT NEW.needs_approval OR NEW.approved_count IS NOT NULL
            OR belfry.reject('jobs', 'status', format('job %s waits for approval; allowed values now: PENDING, ABORTED', OLD.id), 'belfry.approve(id, count) gives it.');
        IF OLD.status = 'PROCESSED' AND NEW.status = 'PENDING' THEN
            ok := EXISTS (SELECT FROM belfry.job_skips s WHERE s.job_id = OLD.id AND s.retry);
            ok := ok OR belfry.reject('jobs', 'status', format('job %s is PROCESSED and has no skipped recipient to retry; allowed values now: none', OLD.id),
                'belfry.retry_skipped(id) runs the skipped recipients again.');
        END IF;
        ok := NEW.status <> 'ABORTED' OR OLD.status NOT IN ('PROCESSED', 'FAILED') OR left_over
            OR belfry.reject('jobs', 'status', format('job %s is %s and has no message left to send; allowed values now: PENDING', OLD.id, OLD.status));
        ok := NEW.status <> 'PROCESSED' OR OLD.status <> 'ABORTED' OR OLD.walked_at IS NOT NULL
            OR belfry.reject('jobs', 'status', format('job %s is ABORTED and has not been walked to the end; allowed values now: PENDING', OLD.id),
                'Resume it with belfry.resume(id).');
        ok := OLD.status <> 'EXPIRED' OR NEW.expires_at IS NULL OR NEW.expires_at > clock_timestamp()
            OR belfry.reject('jobs', 'expires_at', format('job %s expired at %s; allowed values now: null, or a time to come', OLD.id, NEW.expires_at),
                'belfry.set(id, ''{"expires_at": null}'') lifts it.');
        ok := OLD.retention_at IS NULL
            OR OLD.pruned_at IS NULL AND (NEW.status = 'ABORTED' OR OLD.status = 'ABORTED' AND NEW.status = 'PROCESSED' AND OLD.retention_at < OLD.finished_at)
            OR belfry.reject('jobs', 'status', format('job %s is %s and retention deletes its rows since %s; allowed changes: none',
                OLD.id, OLD.status, OLD.retention_at), 'Enqueue another.');
        NEW.abort_requested := NEW.status = 'ABORTED';
        NEW.walked_at := CASE WHEN NEW.status IN ('PROCESSED', 'ABORTED') THEN CASE OLD.status WHEN 'RUNNING' THEN CASE NEW.status WHEN 'PROCESSED' THEN clock_timestamp() END ELSE OLD.walked_at END END;
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
        IF NEW.status IN ('PENDING', 'RUNNING') THEN
            NEW.delivered_at := NULL; -- it has messages to deliver again
        END IF;
    END IF;
    -- A larger step could reach the end of bigint, where every claim fails.
    ok := NEW.fence - 1 = OLD.fence OR NEW.fence = OLD.fence AND (NEW.status IS DISTINCT FROM 'RUNNING' OR OLD.status = 'RUNNING')
        OR belfry.reject('jobs', 'fence', format('job %s: the fencing token must rise by 1 with each claim (%s to %s)', OLD.id, OLD.fence, NEW.fence));
    RETURN NEW;
END $$;

CREATE TRIGGER jobs_transition BEFORE DELETE OR UPDATE OF status, abort_requested, fence, "cursor", rows_written, arrival
    ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION belfry.jobs_transition();

-- Writes the timeline and wakes runners (NOTIFY belfry_jobs), which then poll: the job is due now or later,
-- or it runs and its runner may die. Relays are woken when held messages may be sent again. The actor is the
-- value of belfry.actor(); detail.session_user is the login. The event of an operator's change contains only
-- fields that differ, before and after, and the content that a job in mid-walk has already written. The
-- chunks of a recall add to recalled; recalled_at is set when a recall begins, and again when it ends and has
-- cancelled messages. The value before is the previous event's value after, so that the messages of an
-- interrupted recall are in the next event. An inserted job that exceeds the requester's sum without approval
-- (approval_exceeded) comes to need it here.
CREATE FUNCTION belfry.jobs_record() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kind   text;
    actor  text := belfry.actor();
    reason text := belfry.reason();
    said   constant jsonb := jsonb_build_object('session_user', session_user);
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO belfry.job_events (job_id, kind, actor, detail)
        VALUES (NEW.id, 'enqueued', NEW.requested_by, said || jsonb_build_object('after', jsonb_build_object('status', NEW.status)));
        PERFORM belfry.ring('belfry_jobs');
        IF NEW.max_recipients IS NOT NULL AND NOT NEW.needs_approval AND belfry.approval_exceeded(NEW.category, NEW.max_recipients, NEW.requested_by) THEN
            UPDATE belfry.jobs j SET needs_approval = true WHERE j.id = NEW.id;
        END IF;
        RETURN NULL;
    END IF;

    IF (NEW.status, NEW.fence) IS DISTINCT FROM (OLD.status, OLD.fence) THEN
        CASE
            WHEN OLD.status = 'RUNNING' AND NEW.status = 'RUNNING' THEN
                kind := 'resumed'; actor := NEW.runner;
                reason := format('the run of %s %s; last heartbeat %s', OLD.runner,
                    CASE WHEN OLD.backend_pid IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = OLD.backend_pid AND coalesce(a.backend_start = OLD.backend_start, true))
                        THEN 'lost its server connection' ELSE 'ended without a word' END, OLD.heartbeat_at);
            WHEN NEW.status = 'RUNNING' THEN kind := 'claimed'; actor := NEW.runner; reason := '';
            WHEN OLD.status = 'RUNNING' AND NEW.status = 'PENDING' THEN
                kind := CASE WHEN current_setting('belfry.kind', true) IN ('preempted', 'lane_paused', 'halted') THEN current_setting('belfry.kind', true) ELSE 'interrupted' END;
                actor := CASE kind WHEN 'halted' THEN actor ELSE OLD.runner END;
            WHEN NEW.status = 'EXPIRED' THEN
                kind := 'expired';
                reason := format('did not start before %s', NEW.expires_at);
            WHEN NEW.status = 'ABORTED' THEN kind := 'aborted';
            WHEN OLD.status = 'ABORTED' THEN kind := 'resume_requested';
            WHEN NEW.status = 'PROCESSED' THEN kind := 'finished'; actor := OLD.runner; reason := '';
            WHEN NEW.status = 'FAILED' THEN
                kind := 'failed'; actor := coalesce(nullif(current_setting('belfry.actor', true), ''), OLD.runner); reason := coalesce(NEW.last_error, '');
            WHEN OLD.status = 'PROCESSED' THEN kind := 'retry_skipped_requested';
            ELSE kind := 'retry_requested';
        END CASE;
        INSERT INTO belfry.job_events (job_id, kind, actor, reason, detail)
        VALUES (NEW.id, kind, actor, reason, said || jsonb_build_object(
            'before', jsonb_build_object('status', OLD.status, 'fence', OLD.fence),
            'after', jsonb_build_object('status', NEW.status, 'fence', NEW.fence),
            'cursor', NEW."cursor", 'rows_written', NEW.rows_written, 'chunks', NEW.chunks, 'skipped', NEW.skipped));
        -- No runner is woken for a preempted job, because the more urgent job comes first.
        IF NEW.status = 'RUNNING' OR NEW.status = 'PENDING' AND kind NOT IN ('preempted', 'lane_paused', 'halted') THEN
            PERFORM belfry.ring('belfry_jobs');
        END IF;
        IF OLD.status = 'ABORTED' AND NEW.started_at IS NOT NULL THEN
            PERFORM belfry.ring('belfry_messages');
        END IF;
        actor := belfry.actor();
        reason := belfry.reason();
    END IF;

    IF NEW.recalled_at IS DISTINCT FROM OLD.recalled_at THEN
        INSERT INTO belfry.job_events (job_id, kind, actor, reason, detail)
        VALUES (NEW.id, 'recalled', actor, reason, said || jsonb_build_object(
            'before', jsonb_build_object('recalled', coalesce((SELECT (e.detail #>> '{after,recalled}')::bigint FROM belfry.job_events e
                WHERE e.job_id = NEW.id AND e.kind = 'recalled' ORDER BY e.id DESC LIMIT 1), 0)),
            'after', jsonb_build_object('recalled', NEW.recalled)));
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_record AFTER INSERT OR UPDATE OF status, abort_requested, fence, recalled_at
    ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION belfry.jobs_record();

-- Records a correction, as jobs_record does its part. It is a trigger of its own because it compares the content and the
-- audience, which may have a megabyte: an act that only changes the status reads neither.
CREATE FUNCTION belfry.jobs_record_changes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    actor  constant text := belfry.actor();
    reason constant text := belfry.reason();
    said   constant jsonb := jsonb_build_object('session_user', session_user);
    was    jsonb;
    is_now jsonb;
BEGIN
    IF belfry.jobs_forget(OLD.audience, NEW.audience) THEN -- the record of it has not whom
        INSERT INTO belfry.job_events (job_id, kind, actor, reason, detail)
        VALUES (NEW.id, 'changed', actor, reason, said || '{"erased": "audience.external_ids"}');
    END IF;

    was := to_jsonb(OLD);
    is_now := to_jsonb(NEW);
    SELECT jsonb_object_agg(k, was -> k), jsonb_object_agg(k, is_now -> k) INTO was, is_now
      FROM unnest(belfry.jobs_asked() || '{approved_count,approved_recipients,approved_by}') k WHERE was -> k <> is_now -> k AND NOT (k = 'audience' AND belfry.jobs_forget(OLD.audience, NEW.audience));
    IF was IS NOT NULL THEN
        INSERT INTO belfry.job_events (job_id, kind, actor, reason, detail)
        VALUES (NEW.id, CASE WHEN NEW.approved_count IS NOT NULL AND OLD.approved_count IS NULL THEN 'approved' ELSE 'changed' END,
            actor, reason, said || jsonb_build_object('before', was, 'after', is_now, 'cursor', NEW."cursor"));
        IF OLD."cursor" IS NOT NULL AND was ?| '{title,body,data,variants,audience}' THEN
            INSERT INTO belfry.job_revisions (job_id, revision, "cursor", title, body, data, variants, audience, edited_by, reason)
            VALUES (OLD.id, NEW.revision, OLD."cursor", OLD.title, OLD.body, OLD.data, OLD.variants, OLD.audience, actor, reason);
        END IF;
        IF NEW.status = 'PENDING' THEN
            PERFORM belfry.ring('belfry_jobs');
        END IF;
        IF OLD.awaits_approval AND NOT NEW.awaits_approval AND NEW.started_at IS NOT NULL THEN
            PERFORM belfry.ring('belfry_messages');
        END IF;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_record_changes AFTER UPDATE OF
    type, category, title, body, data, variants, route, audience, lane, priority, schedule_at, deliver_at, expires_at, idempotency_key, requested_by, group_id,
    max_recipients, max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows, health_checks, max_skips, needs_approval, approved_count
    ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION belfry.jobs_record_changes();

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

REVOKE EXECUTE ON FUNCTION belfry.jobs_validate(), belfry.jobs_transition(), belfry.jobs_record(), belfry.jobs_record_changes(), belfry.jobs_record_throttle() FROM PUBLIC;
