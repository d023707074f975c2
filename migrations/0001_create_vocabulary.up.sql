-- The vocabulary: platforms, job types, media and categories, each a table that a service extends by a plain
-- INSERT; the common form of errors; the record of operators' acts; and the checks that jobs, activities,
-- schedules and categories share.

-- Each table bounds the instants that another role than the owner can write (…_times_check): Go and JSON know
-- neither infinity nor years of five digits, and one such row would make a list fail for all readers. Likewise each
-- text, array and JSON value that such a role can write has a greatest length: a text of hundreds of megabytes,
-- compressed, costs its writer nothing and each of its readers gigabytes. pg_column_size reads no value, and counts
-- a new one before its compression.

-- Expressions that are bound at creation must not resolve to functions of other roles.
SET LOCAL search_path = pg_catalog, pg_temp;

-- The oldest version of belfry, by its newest migration, that may use this schema. Only a migration that removes
-- something that a version uses replaces it.
CREATE FUNCTION belfry.usable_from() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 7;

-- Raises the common form of error of every rule below. The message itself contains the column and the
-- allowed values, for drivers that show only the message. A rule has the same form in a CHECK and in a
-- function: rule OR belfry.reject(…). The server reports a null column before any CHECK. Functions assign
-- the result, and compute its arguments in an earlier assignment, because psql shows the whole text of a
-- PERFORM or a SELECT in the error's CONTEXT. tab may be a JSON column, such as table.column.
CREATE FUNCTION belfry.reject(tab text, col text, problem text, hint text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    path    constant text[] := string_to_array(tab || '.' || col, '.');
    message constant text := format('belfry.%s.%s: %s', tab, col, problem);
BEGIN
    IF hint IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'check_violation', SCHEMA = 'belfry', TABLE = path[1], COLUMN = path[2], MESSAGE = message;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'check_violation', SCHEMA = 'belfry', TABLE = path[1], COLUMN = path[2], MESSAGE = message, HINT = hint;
END $$;

-- Sets the actor and the reason for the events that follow in this transaction. The acts below call it
-- before and, with nulls, after their changes.
CREATE FUNCTION belfry.act(actor text, reason text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT set_config('belfry.actor', coalesce(actor, ''), true), set_config('belfry.reason', coalesce(reason, ''), true) $$;

-- The actor and the reason set by belfry.act, or else the login. Longer texts are cut, so that no act fails for them.
CREATE FUNCTION belfry.actor() RETURNS text
LANGUAGE sql STABLE RETURN coalesce(nullif(left(current_setting('belfry.actor', true), 255), ''), session_user);

CREATE FUNCTION belfry.reason() RETURNS text
LANGUAGE sql STABLE RETURN left(coalesce(current_setting('belfry.reason', true), ''), 4000);

-- Whether belfry.ring notifies. All databases of a server share one notification queue, and any login can fill
-- it: a listening session with an open transaction stops its cleanup. When the queue is full, PostgreSQL
-- rejects the COMMIT of each transaction that notifies (SQLSTATE 54000), a halt included.
CREATE FUNCTION belfry.rings() RETURNS boolean
LANGUAGE sql VOLATILE RETURN pg_catalog.pg_notification_queue_usage() <= 0.5;

-- Notifies listeners when the transaction commits. A notification is a hint that there may be work; polling
-- finds the work later without it. The setting belfry.bell = off, of the session, its role or the database,
-- switches notifications off: a transaction that has notified cannot be prepared for two-phase commit, and
-- the commits of such transactions wait for each other. A notification queue that is more than half full
-- switches them off for all sessions.
CREATE FUNCTION belfry.ring(bell text, payload text DEFAULT '') RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    setting text := coalesce(current_setting('belfry.bell', true), '');
BEGIN
    IF setting IN ('on', '') THEN
        IF belfry.rings() THEN
            PERFORM pg_catalog.pg_notify(bell, payload);
        END IF;
    ELSIF setting <> 'off' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = pg_catalog.format('belfry.bell: %L is not allowed; allowed values: on, off', pg_catalog."left"(setting, 60)),
            HINT = 'SET, ALTER ROLE … SET and ALTER DATABASE … SET change it.';
    END IF;
END $$;

-- The permanent event log of objects other than jobs: actor, time, reason, values before and after. subject
-- is the kind of the object, name its name.
CREATE TABLE belfry.events (
    id      bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT events_pkey PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    subject text        NOT NULL,
    name    text        NOT NULL DEFAULT '',
    kind    text        NOT NULL,
    actor   text        NOT NULL,
    reason  text        NOT NULL DEFAULT '',
    detail  jsonb       NOT NULL DEFAULT '{}',
    CONSTRAINT events_times_check CHECK (at >= '1970-01-01 00:00:00+00' AND at < '9999-12-31 00:00:00+00'),
    CONSTRAINT events_lengths_check CHECK (greatest(octet_length(name), octet_length(kind), octet_length(actor)) <= 1100 AND pg_column_size(detail) <= 4194304),
    CONSTRAINT events_reason_check CHECK (length(reason) <= 4000
        OR belfry.reject('events', 'reason', format('has %s characters; allowed values: texts of 0 to 4000 characters', length(reason)))),
    CONSTRAINT events_subject_check CHECK (subject IN ('lane', 'schedule', 'retention', 'sender', 'category', 'dead_letter', 'channel', 'limits', 'installation', 'transport', 'token', 'user', 'segment', 'attachment'))
);

CREATE INDEX events_subject_idx ON belfry.events (subject, name, id);

-- Whether an event is an act on the object itself. A scheduled firing is not an act, and is most of its
-- events.
CREATE FUNCTION belfry.is_act(kind text, detail jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN kind IN ('created', 'changed', 'removed', 'paused', 'resumed') OR kind = 'fired' AND detail -> 'occurrence' = 'null';

CREATE INDEX events_acts_idx ON belfry.events (subject, name, id) WHERE belfry.is_act(kind, detail);

-- Events are permanent. Roles that may not UPDATE their actor, as operators may not, change them in two ways: an
-- act in steps raises the counts of its event, and an erasure takes its channel out of a channel's events.
CREATE FUNCTION belfry.events_keep() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    counts constant text[] := '{before,after,messages,deleted}';
    open   constant text[] := '{name,reason,detail}';
    ok     boolean := has_column_privilege('belfry.events', 'actor', 'UPDATE');
BEGIN
    ok := ok OR to_jsonb(NEW) - open = to_jsonb(OLD) - open AND CASE
        WHEN OLD.subject = 'channel' AND NEW.detail = OLD.detail THEN NEW.name = '' AND NEW.reason = ''
        WHEN OLD.subject IN ('dead_letter', 'transport', 'retention') OR OLD.subject = 'channel' AND OLD.kind = 'forgotten' THEN
            (NEW.name, NEW.reason, NEW.detail - counts) = (OLD.name, OLD.reason, OLD.detail - counts)
            AND NOT EXISTS (SELECT FROM unnest(counts) k
                CROSS JOIN LATERAL (SELECT CASE jsonb_typeof(OLD.detail -> k) WHEN 'object' THEN OLD.detail -> k ELSE jsonb_build_object('', OLD.detail -> k) END AS was,
                                           CASE jsonb_typeof(NEW.detail -> k) WHEN 'object' THEN NEW.detail -> k ELSE jsonb_build_object('', NEW.detail -> k) END AS is_now) d
                CROSS JOIN LATERAL jsonb_object_keys(d.was || d.is_now) n
                 WHERE (OLD.detail ? k) <> (NEW.detail ? k)
                    OR NEW.detail ? k AND NOT coalesce(jsonb_typeof(d.is_now -> n) = 'number' AND (d.is_now -> n >= d.was -> n OR NOT d.was ? n), false))
        ELSE false END;
    ok := ok OR belfry.reject('events', 'detail', format('event %s is permanent for %s; allowed changes: none', OLD.id, current_user));
    RETURN NEW;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.events_keep() FROM PUBLIC;

CREATE TRIGGER events_keep BEFORE UPDATE ON belfry.events
    FOR EACH ROW EXECUTE FUNCTION belfry.events_keep();

-- The version of a named object: the id of the newest act on it, or 0. Only operators' changes change it. It
-- runs with its owner's rights, so that a role that can read an object can read its version without reading
-- events. For subjects that belfry.lock_version does not have, it is 0 for roles that cannot read events: it
-- would reveal which users and tokens exist.
CREATE FUNCTION belfry.version(subject text, name text) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN coalesce((SELECT e.id FROM belfry.events e
    WHERE e.subject = $1 AND e.name = $2 AND belfry.is_act(e.kind, e.detail)
      AND ($1 IN ('lane', 'sender', 'category', 'limits', 'schedule') OR has_table_privilege(session_user, 'belfry.events', 'SELECT'))
    ORDER BY e.id DESC LIMIT 1), 0);

-- Records every change of a row as one event with the changed values before and after. Arguments: the subject,
-- then the recorded columns, or no columns to record all. A missing row has no values. Lanes and senders exist
-- without a row, so no event reports that they were created or removed.
CREATE FUNCTION belfry.record() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    subject constant text := TG_ARGV[0];
    was     constant jsonb := CASE WHEN TG_OP = 'INSERT' THEN '{}' ELSE to_jsonb(OLD) END;
    is_now  constant jsonb := CASE WHEN TG_OP = 'DELETE' THEN '{}' ELSE to_jsonb(NEW) END;
    before  jsonb;
    after   jsonb;
    kind    text;
BEGIN
    SELECT jsonb_object_agg(k, was -> k), jsonb_object_agg(k, is_now -> k) INTO before, after
      FROM jsonb_object_keys(was || is_now) k
     WHERE k <> 'name' AND (TG_NARGS = 1 OR k = ANY (TG_ARGV[1:]))
       AND coalesce(nullif(was -> k, '""'), 'null') <> coalesce(nullif(is_now -> k, '""'), 'null');
    IF before IS NULL THEN
        RETURN NULL;
    END IF;
    kind := CASE
        WHEN TG_OP = 'INSERT' AND subject NOT IN ('lane', 'sender') THEN 'created'
        WHEN TG_OP = 'DELETE' AND subject NOT IN ('lane', 'sender') THEN 'removed'
        WHEN before ->> 'paused_at' IS NULL AND after ->> 'paused_at' IS NOT NULL THEN 'paused'
        WHEN before ->> 'paused_at' IS NOT NULL AND after ->> 'paused_at' IS NULL THEN 'resumed'
        ELSE 'changed' END;
    INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
    VALUES (subject, coalesce(is_now ->> 'name', was ->> 'name', ''), kind,
        coalesce(CASE kind WHEN 'paused' THEN is_now ->> 'paused_by' END, belfry.actor()),
        coalesce(CASE kind WHEN 'paused' THEN nullif(is_now ->> 'pause_reason', '') END, belfry.reason()),
        jsonb_build_object('session_user', session_user, 'before', before, 'after', after));
    PERFORM belfry.ring(bell) FROM (VALUES ('sender', 'belfry_messages'), ('lane', 'belfry_messages'), ('lane', 'belfry_jobs')) v (rung_by, bell)
     WHERE rung_by = subject AND (subject = 'sender' OR kind = 'resumed');
    RETURN NULL;
END $$;

-- It and the triggers' functions below run with their owner's rights, so that a role that may only write a
-- table can. No role may attach it to a table of its own.
REVOKE EXECUTE ON FUNCTION belfry.record() FROM PUBLIC;

-- Pauses or resumes the row with a name in a table. It does nothing if the row is in that state already.
CREATE FUNCTION belfry.pause(tab text, name text, paused boolean, actor text, reason text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM belfry.act(actor, reason);
    EXECUTE format('UPDATE belfry.%I SET paused_at = $2, paused_by = $3, pause_reason = $4 WHERE name = $1 AND (paused_at IS NULL) = ($2 IS NOT NULL)', tab)
      USING name, CASE WHEN paused THEN clock_timestamp() END, CASE WHEN paused THEN belfry.actor() END, CASE WHEN paused THEN belfry.reason() ELSE '' END;
    PERFORM belfry.act(NULL, NULL);
END $$;

-- Who may use the HTTP API, each by a secret of which only the SHA-256 is kept. A token is
-- good until it expires or is revoked; it is never deleted, so that the events' actors are
-- known by it. last_used_at is right to a minute.
CREATE TABLE belfry.tokens (
    id           bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT tokens_pkey PRIMARY KEY,
    name         text        NOT NULL CONSTRAINT tokens_name_key UNIQUE,
    role         text        NOT NULL,
    sha256       bytea       NOT NULL CONSTRAINT tokens_sha256_key UNIQUE,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by   text        NOT NULL,
    expires_at   timestamptz NOT NULL,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    CONSTRAINT tokens_times_check CHECK (
        least(created_at, expires_at, revoked_at, last_used_at) >= '1970-01-01 00:00:00+00'
        AND greatest(created_at, expires_at, revoked_at, last_used_at) < '9999-12-31 00:00:00+00'),
    CONSTRAINT tokens_name_check CHECK (name ~ '^[a-z0-9][a-z0-9_.@-]{0,62}$'
        OR belfry.reject('tokens', 'name', format('%L is not the name of a token; allowed values: 1 to 63 of a-z, 0-9, _, -, . and @, starting with a letter or digit', left(name, 70)))),
    CONSTRAINT tokens_role_check CHECK (role IN ('viewer', 'author', 'operator', 'admin')
        OR belfry.reject('tokens', 'role', format('%L is not a role; allowed values: viewer, author, operator, admin', left(role, 60)))),
    CONSTRAINT tokens_sha256_check CHECK (octet_length(sha256) = 32),
    CONSTRAINT tokens_created_by_check CHECK (length(created_by) <= 255),
    CONSTRAINT tokens_expires_at_check CHECK (expires_at > created_at AND expires_at <= created_at + interval '366 days'
        OR belfry.reject('tokens', 'expires_at', 'is not allowed; allowed values: after now, and within 366 days'))
);

CREATE TRIGGER tokens_record AFTER INSERT OR DELETE OR UPDATE OF role, expires_at, revoked_at ON belfry.tokens
    FOR EACH ROW EXECUTE FUNCTION belfry.record('token', 'role', 'expires_at', 'revoked_at');

-- Only who may change tokens sees any: roles that read every table have no use for the
-- hashes.
ALTER TABLE belfry.tokens ENABLE ROW LEVEL SECURITY;
CREATE POLICY tokens_operate ON belfry.tokens USING ((SELECT pg_catalog.has_table_privilege('belfry.tokens', 'UPDATE')));

-- HTTP operations that may be repeated with their key (Idempotency-Key) for 24 hours, with their responses. A key
-- belongs to one identity. status is NULL until the response; if it is NULL after ends_at, the outcome is unknown.
-- answer is NULL if the response is not stored, because it is long or contains a secret. For a sign-in through a
-- provider, who is 'oidc:' and key is its state, which opens one session.
CREATE TABLE belfry.requests (
    who         text        NOT NULL,
    key         text        NOT NULL,
    fingerprint bytea       NOT NULL, -- SHA-256 of method, path and body
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    ends_at     timestamptz NOT NULL,
    status      smallint,
    answer      bytea,
    CONSTRAINT requests_times_check CHECK (
        least(at, ends_at) >= '1970-01-01 00:00:00+00'
        AND greatest(at, ends_at) < '9999-12-31 00:00:00+00'),
    CONSTRAINT requests_pkey PRIMARY KEY (who, key),
    CONSTRAINT requests_key_check CHECK (length(key) BETWEEN 1 AND 255 AND length(who) <= 255),
    CONSTRAINT requests_fingerprint_check CHECK (octet_length(fingerprint) = 32),
    CONSTRAINT requests_answer_check CHECK (answer IS NULL OR status IS NOT NULL AND octet_length(answer) <= 65536)
);

CREATE INDEX requests_at_idx ON belfry.requests (at); -- for those that are over

-- Only the serving role can read them: responses contain data that roles of the API hide from each other.
ALTER TABLE belfry.requests ENABLE ROW LEVEL SECURITY;
CREATE POLICY requests_operate ON belfry.requests USING ((SELECT pg_catalog.has_table_privilege('belfry.requests', 'UPDATE')));

-- Users who may sign in to the HTTP API. password is an argon2id hash in PHC form. A user of an OpenID Connect
-- provider has an identity instead of a password: the provider's issuer and subject, which the provider does not
-- reassign, unlike names. The events of a removed user remain.
CREATE TABLE belfry.users (
    name         text        CONSTRAINT users_pkey PRIMARY KEY,
    role         text        NOT NULL,
    password     text,
    identity     text        CONSTRAINT users_identity_key UNIQUE,
    password_at  timestamptz DEFAULT clock_timestamp(),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by   text        NOT NULL,
    disabled_at  timestamptz,
    signed_in_at timestamptz,
    CONSTRAINT users_times_check CHECK (
        least(password_at, created_at, disabled_at, signed_in_at) >= '1970-01-01 00:00:00+00'
        AND greatest(password_at, created_at, disabled_at, signed_in_at) < '9999-12-31 00:00:00+00'),
    CONSTRAINT users_name_check CHECK (CASE WHEN identity IS NULL THEN name ~ '^[a-z0-9][a-z0-9_.@-]{0,62}$' ELSE name ~ '^oidc:[!-~]([ -~]{0,98}[!-~])?$' END
        OR belfry.reject('users', 'name', format('%L is not the name of a user; allowed values: 1 to 63 of a-z, 0-9, _, -, . and @, starting with a letter or digit', left(name, 70)))),
    CONSTRAINT users_lengths_check CHECK (greatest(length(created_by), length(password)) <= 255 AND length(identity) <= 2000),
    CONSTRAINT users_role_check CHECK (role IN ('viewer', 'author', 'operator', 'admin')
        OR belfry.reject('users', 'role', format('%L is not a role; allowed values: viewer, author, operator, admin', left(role, 60)))),
    CONSTRAINT users_identity_check CHECK ((identity IS NULL) = (password IS NOT NULL) AND (identity IS NULL) = (password_at IS NOT NULL)
        OR belfry.reject('users', 'password', format('%L cannot have this; allowed values: a password, or the identity that a provider signs in, and not both', left(name, 110)))),
    CONSTRAINT users_password_check CHECK (password IS NULL OR password ~ '^\$argon2id\$v=19\$m=[0-9]+,t=[0-9]+,p=[0-9]+\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+$'
        OR belfry.reject('users', 'password', 'is no hash; allowed values: argon2id in PHC form, as belfry users set-password writes it'))
);

CREATE TRIGGER users_record AFTER INSERT OR DELETE OR UPDATE OF role, password_at, disabled_at ON belfry.users
    FOR EACH ROW EXECUTE FUNCTION belfry.record('user', 'role', 'password_at', 'disabled_at');

-- Who is signed in: a session, by the SHA-256 of its cookie, or a link that becomes one,
-- once. role is the user's at that moment; used_at is right to a minute.
CREATE TABLE belfry.sessions (
    id         bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT sessions_pkey PRIMARY KEY,
    kind       text        NOT NULL,
    sha256     bytea       NOT NULL CONSTRAINT sessions_sha256_key UNIQUE,
    name       text        NOT NULL CONSTRAINT sessions_name_fkey REFERENCES belfry.users ON DELETE CASCADE,
    role       text        NOT NULL,
    via        text        NOT NULL,
    address    text        NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    used_at    timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    CONSTRAINT sessions_times_check CHECK (
        least(created_at, used_at, expires_at) >= '1970-01-01 00:00:00+00'
        AND greatest(created_at, used_at, expires_at) < '9999-12-31 00:00:00+00'),
    CONSTRAINT sessions_kind_check CHECK (kind IN ('session', 'link')),
    CONSTRAINT sessions_role_check CHECK (role IN ('viewer', 'author', 'operator', 'admin')),
    CONSTRAINT sessions_address_check CHECK (length(address) <= 255),
    CONSTRAINT sessions_via_check CHECK (via IN ('password', 'link', 'oidc')),
    CONSTRAINT sessions_sha256_check CHECK (octet_length(sha256) = 32)
);

CREATE INDEX sessions_name_idx ON belfry.sessions (name, id);
CREATE INDEX sessions_expires_at_idx ON belfry.sessions (expires_at);

-- Ends the sessions and links of a user who has another password or role now, or is disabled, for all
-- clients. A sign-in locks the user's row: it ends before, and its session is seen here, or it finds the row
-- changed.
CREATE FUNCTION belfry.users_end_sessions() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM belfry.sessions s WHERE s.name = OLD.name;
    RETURN NULL;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.users_end_sessions() FROM PUBLIC;

CREATE TRIGGER users_end_sessions AFTER UPDATE OF role, password_at, disabled_at ON belfry.users
    FOR EACH ROW EXECUTE FUNCTION belfry.users_end_sessions();

-- As with tokens: hashes are for who may change them.
ALTER TABLE belfry.users ENABLE ROW LEVEL SECURITY;
CREATE POLICY users_operate ON belfry.users USING ((SELECT pg_catalog.has_table_privilege('belfry.users', 'UPDATE')));
ALTER TABLE belfry.sessions ENABLE ROW LEVEL SECURITY;
CREATE POLICY sessions_operate ON belfry.sessions USING ((SELECT pg_catalog.has_table_privilege('belfry.sessions', 'UPDATE')));

-- The names that operators gave to processes, each held by one that lives: it beats. rival
-- is the last other one that was refused the name, as host:pid.
CREATE TABLE belfry.names (
    kind     text        NOT NULL,
    name     text        NOT NULL,
    instance uuid        NOT NULL, -- of the process: another at each start
    host     text        NOT NULL,
    pid      integer     NOT NULL,
    since    timestamptz NOT NULL DEFAULT clock_timestamp(),
    beat_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    rival    text,
    rival_at timestamptz,
    CONSTRAINT names_times_check CHECK (
        least(since, beat_at, rival_at) >= '1970-01-01 00:00:00+00'
        AND greatest(since, beat_at, rival_at) < '9999-12-31 00:00:00+00'),
    CONSTRAINT names_pkey PRIMARY KEY (kind, name),
    CONSTRAINT names_kind_check CHECK (kind IN ('runner', 'relay')),
    CONSTRAINT names_rival_check CHECK ((rival IS NULL) = (rival_at IS NULL)),
    CONSTRAINT names_name_check CHECK (octet_length(name) <= 255
        OR belfry.reject('names', 'name', format('has %s bytes; allowed values: texts of up to 255 bytes', octet_length(name)))),
    CONSTRAINT names_host_check CHECK (octet_length(host) <= 255
        OR belfry.reject('names', 'host', format('has %s bytes; allowed values: texts of up to 255 bytes', octet_length(host)))),
    CONSTRAINT names_rival_length_check CHECK (rival IS NULL OR octet_length(rival) <= 270
        OR belfry.reject('names', 'rival', format('has %s bytes; allowed values: a host of up to 255 bytes, a colon and a process', octet_length(rival))))
);

-- An audience may only name platforms listed here.
CREATE TABLE belfry.platforms (
    name        text CONSTRAINT platforms_pkey PRIMARY KEY,
    description text NOT NULL DEFAULT '',
    CONSTRAINT platforms_description_check CHECK (length(description) <= 1000
        OR belfry.reject('platforms', 'description', format('has %s characters; allowed values: texts of 0 to 1000 characters', length(description)))),
    CONSTRAINT platforms_name_check CHECK (name ~ '^[A-Za-z][A-Za-z0-9_-]{0,31}$'
        OR belfry.reject('platforms', 'name', format('%L is not allowed; allowed values: 1 to 32 letters, digits, _ and -, starting with a letter', left(name, 70))))
);

INSERT INTO belfry.platforms (name, description) VALUES
    ('ios', 'Apple phones and tablets'),
    ('android', 'Android phones and tablets'),
    ('web', 'browsers');

-- Runners add the types they were built with.
CREATE TABLE belfry.job_types (
    name        text CONSTRAINT job_types_pkey PRIMARY KEY,
    description text NOT NULL DEFAULT '',
    CONSTRAINT job_types_description_check CHECK (length(description) <= 1000
        OR belfry.reject('job_types', 'description', format('has %s characters; allowed values: texts of 0 to 1000 characters', length(description)))),
    CONSTRAINT job_types_name_check CHECK (name ~ '^[a-z][a-z0-9_]{0,62}$'
        OR belfry.reject('job_types', 'name', format('%L is not allowed; allowed values: 1 to 63 of a-z, 0-9 and _, starting with a letter', left(name, 70))))
);

INSERT INTO belfry.job_types (name, description) VALUES
    ('inbox', 'a notification in each channel''s notification centre'),
    ('push', 'a message to deliver to each channel');

-- The vocabulary of media. A service adds its own with a plain INSERT.
CREATE TABLE belfry.media (
    name        text CONSTRAINT media_pkey PRIMARY KEY,
    description text NOT NULL DEFAULT '',
    CONSTRAINT media_description_check CHECK (length(description) <= 1000
        OR belfry.reject('media', 'description', format('has %s characters; allowed values: texts of 0 to 1000 characters', length(description)))),
    CONSTRAINT media_name_check CHECK (name ~ '^[a-z][a-z0-9_]{0,30}$'
        OR belfry.reject('media', 'name', format('%L is not allowed; allowed values: 1 to 31 of a-z, 0-9 and _, starting with a letter', left(name, 70))))
);

INSERT INTO belfry.media (name, description) VALUES
    ('push', 'to the app or the browser: FCM, APNs, Web Push'),
    ('sms', 'a text message'),
    ('alimtalk', 'a Kakao AlimTalk message'),
    ('email', 'an email'),
    ('webhook', 'a signed HTTP call');

-- Settings of all jobs and activities of a category. route is the list of its media, in order. No message is sent
-- from quiet_start to quiet_end in the channel's time zone, across midnight if the start is later. At most cap
-- messages are sent to a channel within cap_window. max_recipients is the ceiling of jobs
-- that are enqueued without one; NULL: none. Jobs that may reach more than approval_above wait for
-- the approval of a second person (jobs_approve); NULL: none does, 0: each. Where it is set, a
-- requester may send activities_per_hour activities in each clock hour without one
-- (activities_limit); NULL: 10, and none for roles that may not approve.
CREATE TABLE belfry.categories (
    name        text CONSTRAINT categories_pkey PRIMARY KEY,
    description text   NOT NULL DEFAULT '',
    route       text[] NOT NULL DEFAULT '{push}',
    quiet_start time,
    quiet_end   time,
    cap         integer,
    cap_window  interval,
    max_recipients integer,
    approval_above integer,
    activities_per_hour integer,
    CONSTRAINT categories_description_check CHECK (length(description) <= 1000
        OR belfry.reject('categories', 'description', format('has %s characters; allowed values: texts of 0 to 1000 characters', length(description)))),
    CONSTRAINT categories_name_check CHECK (name ~ '^[a-z][a-z0-9_]{0,62}$'
        OR belfry.reject('categories', 'name', format('%L is not a category''s name; allowed values: 1 to 63 of a-z, 0-9 and _, starting with a letter', left(name, 70)))),
    CONSTRAINT categories_quiet_check CHECK (num_nulls(quiet_start, quiet_end) = 2 OR quiet_start <> quiet_end
        OR belfry.reject('categories', CASE WHEN quiet_start IS NULL THEN 'quiet_start' ELSE 'quiet_end' END,
            CASE WHEN quiet_start = quiet_end THEN quiet_end || ' is quiet_start too' ELSE 'is null' END
            || '; allowed values: two different times of day, quiet_start and quiet_end, or null for both')),
    CONSTRAINT categories_cap_check CHECK (num_nulls(cap, cap_window) = 2 OR cap BETWEEN 1 AND 10000 AND cap_window IS NOT NULL
        OR belfry.reject('categories', CASE WHEN cap IS NOT NULL AND cap_window IS NULL THEN 'cap_window' ELSE 'cap' END,
            coalesce(CASE WHEN cap_window IS NOT NULL THEN cap::text END, 'null') || ' is not allowed; allowed values: cap 1 to 10000 with a cap_window, or null for both')),
    CONSTRAINT categories_cap_window_check CHECK (cap_window IS NULL OR cap_window BETWEEN interval '1 minute' AND interval '366 days'
        OR belfry.reject('categories', 'cap_window', cap_window || ' is not allowed; allowed values: null, or intervals from 1 minute to 366 days')),
    CONSTRAINT categories_max_recipients_check CHECK (max_recipients IS NULL OR max_recipients BETWEEN 1 AND 2000000000
        OR belfry.reject('categories', 'max_recipients', max_recipients || ' is not allowed; allowed values: null (no ceiling), 1 to 2000000000')),
    CONSTRAINT categories_activities_per_hour_check CHECK (activities_per_hour IS NULL OR activities_per_hour BETWEEN 0 AND 2000000000
        OR belfry.reject('categories', 'activities_per_hour', activities_per_hour || ' is not allowed; allowed values: null (10, and 0 for roles that may not approve), 0 to 2000000000')),
    CONSTRAINT categories_approval_above_check CHECK (approval_above IS NULL OR approval_above BETWEEN 0 AND 2000000000
        OR belfry.reject('categories', 'approval_above', approval_above || ' is not allowed; allowed values: null (no job needs approval), 0 (each does) to 2000000000'))
);

INSERT INTO belfry.categories (name, description) VALUES
    ('popular_content', 'popular content on a timetable'),
    ('question_content', 'question content to everybody near a place'),
    ('operator_notice', 'operator notices to all or some platforms'),
    ('activity', 'a like, a comment, a follow: at once, to one channel');

CREATE TRIGGER categories_record AFTER INSERT OR UPDATE OR DELETE ON belfry.categories
    FOR EACH ROW EXECUTE FUNCTION belfry.record('category');

-- Every word that jobs, activities, schedules and audiences may use.
CREATE VIEW belfry.vocabulary AS
SELECT 'job type' AS kind, name FROM belfry.job_types
 UNION ALL
SELECT 'category', name FROM belfry.categories
 UNION ALL
SELECT 'platform', name FROM belfry.platforms
 UNION ALL
SELECT 'medium', name FROM belfry.media;

-- The allowed values of a kind, as errors list them. It runs with its owner's rights, so that it also works
-- for roles that may only INSERT.
CREATE FUNCTION belfry.known(kind text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(string_agg(v.name, ', ' ORDER BY v.name), 'none') FROM belfry.vocabulary v WHERE v.kind = $1
$$;

-- Raises through belfry.reject unless a value is allowed for its kind.
CREATE FUNCTION belfry.check_word(tab text, col text, kind text, word text, OUT ok boolean)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    ok := EXISTS (SELECT FROM belfry.vocabulary v WHERE v.kind = $3 AND v.name = word);
    ok := ok OR belfry.reject(tab, col, CASE WHEN word IS NULL THEN 'is required' ELSE format('%L is not a %s', left(word, 60), $3) END || '; allowed values: ' || belfry.known($3),
            CASE $3 WHEN 'job type' THEN 'A runner built with a type of its own registers it when it starts.'
                ELSE format('INSERT INTO belfry.%s adds one.', CASE $3 WHEN 'category' THEN 'categories' WHEN 'medium' THEN 'media' ELSE 'platforms' END) END);
END $$;

-- Raises through belfry.reject if a new row sets belfry's own columns: they must be NULL or have their initial
-- values.
CREATE FUNCTION belfry.check_new(tab text, fresh jsonb, asked text[], begins jsonb, OUT ok boolean)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    col text;
BEGIN
    ok := jsonb_strip_nulls(fresh - asked) <@ begins; -- fast path: belfry's columns are scalars
    IF NOT ok THEN
        col := (SELECT min(k) FROM jsonb_each(fresh) e(k, v) WHERE k <> ALL (asked) AND v <> 'null' AND v IS DISTINCT FROM begins -> k);
        ok := belfry.reject(tab, col, format('belongs to belfry; allowed values for a new %s: none, leave it out', rtrim(tab, 's')));
    END IF;
END $$;

-- The grammar of an action of a template, the same in outbox/compose: {{value | function …}}, and
-- {{"{{"}} for two braces.
CREATE FUNCTION belfry.template_action() RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '\{\{[ \t]*("\{\{"|(locale|platform|external_id|time_zone|count|(attributes|value)\.[A-Za-z_][A-Za-z0-9_]{0,62})([ \t]*\|[ \t]*(upper|lower|trim|default[ \t]+"[^"{}]{0,200}"|truncate[ \t]+(200|1[0-9][0-9]|[1-9][0-9]?)))*)[ \t]*\}\}';

-- The actions of a text without template_problem. It costs a fiftieth of template_action, which bounds names and texts.
CREATE FUNCTION belfry.template_part() RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '[{][{](?:[[:blank:]]*"[{][{]"[[:blank:]]*|[^{}]*)[}][}]';

-- What is wrong with a template, or NULL. Texts without {{ are not templates. A text has up to 100 actions and functions
-- together, and an action up to 8 functions: the notification centre renders 100 texts for each page of each reader. The
-- counts of characters spare most texts the exact count.
CREATE FUNCTION belfry.template_problem(template text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce((
    SELECT format('%L is not allowed; allowed values: {{locale}}, {{platform}}, {{external_id}}, {{time_zone}}, {{count}}, {{attributes.NAME}}, {{value.NAME}}, each with | upper, | lower, | trim, | default "text", | truncate 1 to 200, and {{"{{"}} for two braces',
               left(substring(rest FROM position('{{' IN rest)), 60))
      FROM (SELECT regexp_replace(template, belfry.template_action(), ' ', 'g') AS rest) t
     WHERE position('{{' IN rest) > 0),
    CASE WHEN length(template) - length(replace(template, '{{', '-')) + length(template) - length(replace(template, '|', '')) > 100
         THEN (SELECT format('has %s values and functions in braces; allowed values: up to 100', m.parts)
                 FROM (SELECT count(*) + sum(regexp_count(regexp_replace(m[1], '"[^"]*"', '', 'g'), '[|]')) AS parts FROM regexp_matches(template, belfry.template_part(), 'g') m) m
                WHERE m.parts > 100) END,
    CASE
         WHEN template ~ '[{][{](?:(?:[^"{}|]|"[^"{}]*")*[|]){9}'
         THEN 'has a value with more than 8 functions; allowed values: up to 8' END);

-- Renders a template in which template_problem finds nothing, as outbox/compose does. The values are {"locale": "ko",
-- "count": 1, "attributes": {…}, "value": {…}}. Unlike there, upper and lower follow the database's collation, and a cut may part a letter from its marks.
CREATE FUNCTION belfry.rendered(template text, max_length integer, known jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- Of a value: controls and ends of lines become blanks, and characters that turn the text are removed.
    controls constant text := '[' || chr(1) || '-' || chr(31) || chr(127) || '-' || chr(159) || chr(8232) || chr(8233) || ']';
    turns    constant text := '[' || chr(8234) || '-' || chr(8238) || chr(8294) || '-' || chr(8297) || ']';
    blanks   constant text := ' ' || chr(9) || chr(10) || chr(11) || chr(12) || chr(13) || chr(133) || chr(160) || chr(5760) || chr(8192) || chr(8193) || chr(8194) || chr(8195) || chr(8196) || chr(8197) || chr(8198) || chr(8199) || chr(8200) || chr(8201) || chr(8202) || chr(8232) || chr(8233) || chr(8239) || chr(8287) || chr(12288);
    literals constant text[] := regexp_split_to_array(template, belfry.template_part()); -- one pass, however many actions
    pieces   text[] := ARRAY[literals[1]];
    room     integer := max_length - length(literals[1]);
    n        integer := 1;
    action   text;
    name     text;
    last     text := '';
    raw      jsonb;
    value    text; -- of the name
    said     text;
    call     text[];
    done     text;
BEGIN
    IF position('{{' IN template) > 0 THEN
        FOR action IN SELECT m[1] FROM regexp_matches(template, belfry.template_part(), 'g') m LOOP
            EXIT WHEN room < 0; -- the rest is cut
            n := n + 1;
            name := substring(action FROM '^[{][{][[:blank:]]*([a-z_]+([.][A-Za-z0-9_]+)?)');
            IF name IS NULL THEN
                said := '{{';
            ELSE
                IF name <> last THEN
                    raw := known #> string_to_array(name, '.');
                    value := CASE WHEN jsonb_typeof(raw) IN ('string', 'number', 'boolean') THEN left(raw #>> '{}', 1000) ELSE '' END;
                    value := regexp_replace(regexp_replace(value, controls, ' ', 'g'), turns, '', 'g');
                    value := CASE WHEN length(value) > 200 THEN left(value, 199) || '…' ELSE value END;
                    last := name;
                END IF;
                said := value;
                IF position('|' IN action) > 0 THEN
                    FOR call IN SELECT regexp_matches(action, '[|][[:blank:]]*(upper|lower|trim|default|truncate)(?:[[:blank:]]+(?:"([^"{}]*)"|([0-9]+)))?', 'g') LOOP
                        said := CASE call[1]
                            WHEN 'upper' THEN upper(said)
                            WHEN 'lower' THEN lower(said)
                            WHEN 'trim' THEN btrim(said, blanks)
                            WHEN 'default' THEN CASE WHEN btrim(said, blanks) = '' THEN regexp_replace(regexp_replace(call[2], controls, ' ', 'g'), turns, '', 'g') ELSE said END
                            ELSE CASE WHEN length(said) > call[3]::integer THEN left(said, call[3]::integer - 1) || '…' ELSE said END END;
                    END LOOP;
                END IF;
            END IF;
            pieces := array_append(pieces, said || literals[n]);
            room := room - length(said) - length(literals[n]);
        END LOOP;
    END IF;
    done := array_to_string(pieces, '');
    RETURN CASE WHEN length(done) > max_length THEN left(done, max_length - 1) || '…' ELSE done END;
END $$;

-- Raises through belfry.reject unless route is a list of different media.
CREATE FUNCTION belfry.check_route(tab text, route text[], OUT ok boolean)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    ok := cardinality(route) BETWEEN 1 AND 10 AND array_ndims(route) = 1 AND array_lower(route, 1) = 1
        AND cardinality(route) = (SELECT count(DISTINCT k.name) FROM unnest((SELECT check_route.route)) m JOIN belfry.media k ON k.name = m);
    ok := ok OR belfry.reject(tab, 'route', format('%s is not allowed; allowed values: 1 to 10 different media of %s, in the order in which they are tried',
                coalesce(left(route::text, 120), 'null'), belfry.known('medium')),
            'INSERT INTO belfry.media adds one.');
END $$;

-- Checks the content of a job, an activity or a schedule's template; raises through belfry.reject. Locales are
-- equal if they differ only in case or in - and _.
CREATE FUNCTION belfry.check_content(tab text, title text, body text, data jsonb, variants jsonb, OUT ok boolean)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- A character that a reader sees: neither a blank nor one without width, as U+200B and U+3164.
    shown   constant text := '[^[:space:]' || chr(133) || chr(160) || chr(173) || chr(847) || chr(1564) || chr(4447) || '-' || chr(4448) || chr(5760) || chr(6068) || '-' || chr(6069) || chr(6155) || '-' || chr(6159) || chr(8192) || '-' || chr(8207) || chr(8232) || '-' || chr(8239) || chr(8287) || '-' || chr(8303) || chr(10240) || chr(12288) || chr(12644) || chr(65024) || '-' || chr(65039) || chr(65279) || chr(65440) || ']';
    allowed constant text[] := CASE tab WHEN 'activities' THEN '{title,body,collapsed_title}' ELSE '{title,body}' END;
    locale  text;
    variant jsonb;
    twins   text[];
    key     text;
    said    text;
BEGIN
    ok := title ~ shown AND length(title) <= 200
        OR belfry.reject(tab, 'title', CASE WHEN title IS NULL THEN 'is required' WHEN length(title) > 200 THEN format('has %s characters', length(title)) ELSE 'is blank' END || '; allowed values: texts of 1 to 200 characters');
    ok := length(body) <= 10000
        OR belfry.reject(tab, 'body', CASE WHEN body IS NULL THEN 'is null' ELSE format('has %s characters', length(body)) END || '; allowed values: texts of 0 to 10000 characters');
    ok := jsonb_typeof(data) = 'object' AND octet_length(data::text) <= 16384
        OR belfry.reject(tab, 'data', CASE WHEN data IS NULL THEN 'is null' WHEN jsonb_typeof(data) <> 'object' THEN 'is a JSON ' || jsonb_typeof(data) ELSE format('has %s bytes', octet_length(data::text)) END || '; allowed values: JSON objects of up to 16384 bytes');
    -- position spares most texts the parser, which costs a tenth of a millisecond.
    ok := position('{{' IN title) = 0 OR belfry.template_problem(title) IS NULL OR belfry.reject(tab, 'title', belfry.template_problem(title));
    ok := position('{{' IN body) = 0 OR belfry.template_problem(body) IS NULL OR belfry.reject(tab, 'body', belfry.template_problem(body));
    ok := variants = '{}' OR jsonb_typeof(variants) = 'object' AND octet_length(variants::text) <= 131072
        OR belfry.reject(tab, 'variants', CASE WHEN variants IS NULL THEN 'is null' WHEN jsonb_typeof(variants) <> 'object' THEN 'is a JSON ' || jsonb_typeof(variants) ELSE format('has %s bytes', octet_length(variants::text)) END
            || '; allowed values: JSON objects of up to 131072 bytes, as {"ko": {"title": "…", "body": "…"}}');
    -- One grouping: to compare each locale with each would keep a processor busy for seconds.
    ok := (SELECT count(*) FROM jsonb_object_keys(variants)) <= 200
        OR belfry.reject(tab, 'variants', format('has %s locales; allowed values: up to 200', (SELECT count(*) FROM jsonb_object_keys(variants))));
    twins := (SELECT array_agg(k ORDER BY k COLLATE "C") FROM jsonb_object_keys(variants) k GROUP BY lower(replace(k, '_', '-')) HAVING count(*) > 1 ORDER BY min(k COLLATE "C") LIMIT 1);
    ok := twins IS NULL OR belfry.reject(tab, 'variants.' || left(twins[1], 60), format('is the same locale as %s; allowed values: each locale once', left(twins[2], 60)));
    FOR locale, variant IN SELECT k, v FROM jsonb_each(variants) e(k, v) ORDER BY k COLLATE "C" LOOP
        ok := locale ~ '^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}$'
            OR belfry.reject(tab, 'variants', format('%L is not a locale; allowed values: as ko, en-GB or zh_Hant_TW', left(locale, 60)));
        ok := jsonb_typeof(variant) = 'object' AND variant <> '{}'
            OR belfry.reject(tab, 'variants.' || locale, 'must be a JSON object; allowed keys: ' || array_to_string(allowed, ', '));
        key := (SELECT min(k) FROM jsonb_object_keys(variant) k WHERE k <> ALL (allowed));
        ok := key IS NULL OR belfry.reject(tab, format('variants.%s.%s', locale, left(key, 60)), 'is not allowed; allowed keys: ' || array_to_string(allowed, ', '));
        FOR key, said IN SELECT k, v FROM jsonb_each_text(variant) e(k, v) ORDER BY k LOOP
            ok := jsonb_typeof(variant -> key) = 'string' AND CASE key WHEN 'body' THEN length(said) <= 10000 ELSE said ~ shown AND length(said) <= 200 END
                OR belfry.reject(tab, format('variants.%s.%s', locale, key),
                    CASE key WHEN 'body' THEN 'is not allowed; allowed values: texts of 0 to 10000 characters' ELSE 'is not allowed; allowed values: texts of 1 to 200 characters, not blank' END);
            ok := belfry.template_problem(said) IS NULL OR belfry.reject(tab, format('variants.%s.%s', locale, key), belfry.template_problem(said));
        END LOOP;
    END LOOP;
END $$;

-- Raises through belfry.reject if nothing of a text can ever be sent as it is meant: AlimTalk has a content of 1 to
-- 1000 characters and no title. type is NULL for an activity.
CREATE FUNCTION belfry.check_deliverable(tab text, type text, route text[], title text, body text, variants jsonb, OUT ok boolean)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    ok := type <> 'push' OR 'alimtalk' <> ALL (route) OR EXISTS (
            SELECT FROM (SELECT body UNION ALL SELECT v ->> 'body' FROM jsonb_each(variants) e(k, v)) texts(text)
             WHERE length(texts.text) BETWEEN 1 AND 1000 OR position('{{' IN texts.text) > 0);
    ok := ok OR belfry.reject(tab, 'body', CASE body WHEN '' THEN 'is empty' ELSE format('has %s characters', length(body)) END
                || ', and AlimTalk sends a body alone; allowed values with alimtalk in the route: texts of 1 to 1000 characters',
            'Give a body, or a route without alimtalk.');
END $$;

-- Checks a category's route; 24:00 is midnight, and a time of its own to PostgreSQL.
CREATE FUNCTION belfry.categories_validate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM belfry.check_route('categories', NEW.route);
    NEW.quiet_start := CASE WHEN NEW.quiet_start = '24:00' THEN '00:00' ELSE NEW.quiet_start END;
    NEW.quiet_end := CASE WHEN NEW.quiet_end = '24:00' THEN '00:00' ELSE NEW.quiet_end END;
    RETURN NEW;
END $$;

CREATE TRIGGER categories_validate BEFORE INSERT OR UPDATE OF route, quiet_start, quiet_end ON belfry.categories
    FOR EACH ROW EXECUTE FUNCTION belfry.categories_validate();

REVOKE EXECUTE ON FUNCTION belfry.categories_validate() FROM PUBLIC;
