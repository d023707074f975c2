-- What a message says and by which media it goes: routes by category, variants by
-- locale, templates that are checked when they are enqueued, and activities, the
-- messages to one channel that wait behind no bulk job.

-- The vocabulary of media. A service adds its own with a plain INSERT.
CREATE TABLE belfry.media (
    name        text CONSTRAINT media_pkey PRIMARY KEY,
    description text NOT NULL DEFAULT '',
    CONSTRAINT media_name_check CHECK (name ~ '^[a-z][a-z0-9_]{0,30}$')
);
INSERT INTO belfry.media (name, description) VALUES
    ('push', 'to the app or the browser: FCM, APNs, Web Push'),
    ('sms', 'a text message'),
    ('alimtalk', 'a Kakao AlimTalk message'),
    ('email', 'an email'),
    ('webhook', 'a signed HTTP call');

-- What holds for every message of a category. quiet_start to quiet_end is a time of
-- day in the channel's time zone, over midnight when it starts later than it ends, in
-- which nothing is sent. At most cap messages are sent to a channel within cap_window.
ALTER TABLE belfry.categories
    ADD COLUMN route       text[] NOT NULL DEFAULT '{push}',
    ADD COLUMN quiet_start time,
    ADD COLUMN quiet_end   time,
    ADD COLUMN cap         integer,
    ADD COLUMN cap_window  interval,
    ADD CONSTRAINT categories_quiet_check CHECK ((quiet_start IS NULL) = (quiet_end IS NULL) AND quiet_start <> quiet_end),
    ADD CONSTRAINT categories_cap_check CHECK ((cap IS NULL) = (cap_window IS NULL) AND cap > 0
        AND cap_window BETWEEN interval '1 minute' AND interval '366 days');
INSERT INTO belfry.categories (name, description) VALUES
    ('activity', 'a like, a comment, a follow: at once, to one channel')
    ON CONFLICT DO NOTHING;

-- route is the category's unless the job has its own, and stands once the job has
-- started. variants are titles and bodies by locale: {"ko": {"title": "…", "body": "…"}}.
ALTER TABLE belfry.jobs
    ADD COLUMN route    text[],
    ADD COLUMN variants jsonb NOT NULL DEFAULT '{}';
-- Texts of before were no templates: two braces in what is sent are written as templates
-- write them. A text that would be too long stays as it is. Nobody edits here.
ALTER TABLE belfry.jobs DISABLE TRIGGER jobs_validate, DISABLE TRIGGER jobs_record_edit;
UPDATE belfry.jobs j
   SET route = coalesce((SELECT c.route FROM belfry.categories c WHERE c.name = j.category), '{push}'),
       title = CASE WHEN j.type <> 'inbox' AND length(replace(j.title, '{{', '{{"{{"}}')) <= 200 THEN replace(j.title, '{{', '{{"{{"}}') ELSE j.title END,
       body = CASE WHEN j.type <> 'inbox' AND length(replace(j.body, '{{', '{{"{{"}}')) <= 10000 THEN replace(j.body, '{{', '{{"{{"}}') ELSE j.body END;
ALTER TABLE belfry.jobs ENABLE TRIGGER jobs_validate, ENABLE TRIGGER jobs_record_edit;
UPDATE belfry.job_revisions r
   SET title = CASE WHEN length(replace(r.title, '{{', '{{"{{"}}')) <= 200 THEN replace(r.title, '{{', '{{"{{"}}') ELSE r.title END,
       body = CASE WHEN length(replace(r.body, '{{', '{{"{{"}}')) <= 10000 THEN replace(r.body, '{{', '{{"{{"}}') ELSE r.body END
 WHERE (r.title LIKE '%{{%' OR r.body LIKE '%{{%')
   AND (SELECT j.type <> 'inbox' FROM belfry.jobs j WHERE j.id = r.job_id);
ALTER TABLE belfry.jobs ALTER COLUMN route SET NOT NULL;
ALTER TABLE belfry.job_revisions ADD COLUMN variants jsonb NOT NULL DEFAULT '{}';

-- One message to one channel, enqueued by a plain INSERT; its row in belfry.messages
-- comes by a trigger. Ids are negative, those of jobs positive: one number says what
-- a message's content is.
CREATE TABLE belfry.activities (
    id              bigint GENERATED ALWAYS AS IDENTITY (START WITH -1 INCREMENT BY -1) CONSTRAINT activities_pkey PRIMARY KEY,
    channel_id      bigint      NOT NULL,
    category        text        NOT NULL DEFAULT 'activity',
    title           text        NOT NULL,
    body            text        NOT NULL DEFAULT '',
    data            jsonb       NOT NULL DEFAULT '{}',
    variants        jsonb       NOT NULL DEFAULT '{}',
    route           text[]      NOT NULL, -- by default the category's
    deliver_at      timestamptz,
    idempotency_key text        CONSTRAINT activities_idempotency_key UNIQUE,
    requested_by    text        NOT NULL DEFAULT session_user,
    created_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT activities_id_check CHECK (id < 0)
);
CREATE INDEX activities_channel_idx ON belfry.activities (channel_id, created_at);

-- Serve the frequency cap: the jobs of a category that may have sent something since,
-- and a channel's activities that were sent or are in a relay's hands.
CREATE INDEX jobs_category_idx ON belfry.jobs (category, (coalesce(delivered_at, 'infinity'::timestamptz))) WHERE started_at IS NOT NULL;
CREATE INDEX messages_channel_idx ON belfry.messages (channel_id, status, sent_at) WHERE job_id < 0 AND status IN ('PROCESSING', 'SENT');

-- The grammar of templates, the same in outbox/template: {{value | function …}}, and
-- {{"{{"}} for two braces. Texts without {{ are no templates. Returns what is wrong,
-- NULL: nothing.
CREATE FUNCTION belfry.template_problem(template text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
    SELECT format('%L is not allowed; allowed values: {{locale}}, {{platform}}, {{external_id}}, {{time_zone}}, {{attributes.NAME}}, each with | upper, | lower, | trim, | default "text", | truncate 1 to 200, and {{"{{"}} for two braces',
               left(substring(rest FROM position('{{' IN rest)), 60))
      FROM (SELECT regexp_replace(template, '\{\{[ \t]*("\{\{"|(locale|platform|external_id|time_zone|attributes\.[A-Za-z_][A-Za-z0-9_]{0,62})([ \t]*\|[ \t]*(upper|lower|trim|default[ \t]+"[^"{}]{0,200}"|truncate[ \t]+(200|1[0-9][0-9]|[1-9][0-9]?)))*)[ \t]*\}\}', ' ', 'g') AS rest) t
     WHERE position('{{' IN rest) > 0);

-- Raises through belfry.reject unless route is a list of different media.
CREATE FUNCTION belfry.check_route(tab text, route text[]) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(cardinality(route), 0) NOT BETWEEN 1 AND 10 OR array_ndims(route) <> 1
       OR EXISTS (SELECT FROM unnest(route) m WHERE m IS NULL OR NOT EXISTS (SELECT FROM belfry.media k WHERE k.name = m))
       OR (SELECT count(DISTINCT m) FROM unnest(route) m) <> cardinality(route) THEN
        PERFORM belfry.reject(tab, 'route', format('%s is not allowed; allowed values: 1 to 10 different media of %s, in the order in which they are tried',
                coalesce(left(route::text, 120), 'null'), (SELECT coalesce(string_agg(name, ', ' ORDER BY name), 'none') FROM belfry.media)),
            'INSERT INTO belfry.media adds one.');
    END IF;
END $$;

-- Checks the templates of what a job or an activity says: raises through belfry.reject.
-- Locales are the same when they differ in case or in - and _ only.
CREATE FUNCTION belfry.check_content(tab text, title text, body text, variants jsonb) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
    locale  text;
    variant jsonb;
    key     text;
BEGIN
    IF position('{{' IN title) > 0 THEN -- the parser costs a tenth of a millisecond
        problem := belfry.template_problem(title);
        IF problem IS NOT NULL THEN
            PERFORM belfry.reject(tab, 'title', problem);
        END IF;
    END IF;
    IF position('{{' IN body) > 0 THEN
        problem := belfry.template_problem(body);
        IF problem IS NOT NULL THEN
            PERFORM belfry.reject(tab, 'body', problem);
        END IF;
    END IF;
    IF variants = '{}' THEN
        RETURN;
    END IF;
    IF variants IS NULL OR jsonb_typeof(variants) <> 'object' OR octet_length(variants::text) > 131072 THEN
        PERFORM belfry.reject(tab, 'variants', CASE WHEN variants IS NULL THEN 'is null' WHEN jsonb_typeof(variants) <> 'object' THEN 'is a JSON ' || jsonb_typeof(variants) ELSE format('has %s bytes', octet_length(variants::text)) END
            || '; allowed values: JSON objects of up to 131072 bytes, as {"ko": {"title": "…", "body": "…"}}');
    END IF;
    FOR locale, variant IN SELECT k, v FROM jsonb_each(variants) e(k, v) ORDER BY k COLLATE "C" LOOP
        IF locale !~ '^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}$' THEN
            PERFORM belfry.reject(tab, 'variants', format('%L is not a locale; allowed values: as ko, en-GB or zh_Hant_TW', left(locale, 60)));
        END IF;
        SELECT k INTO key FROM jsonb_object_keys(variants) k WHERE k <> locale AND lower(replace(k, '_', '-')) = lower(replace(locale, '_', '-')) LIMIT 1;
        IF FOUND THEN
            PERFORM belfry.reject(tab, 'variants.' || locale, format('is the same locale as %s; allowed values: each locale once', key));
        END IF;
        IF jsonb_typeof(variant) <> 'object' OR variant = '{}' THEN
            PERFORM belfry.reject(tab, 'variants.' || locale, 'must be a JSON object; allowed keys: title, body');
        END IF;
        SELECT k INTO key FROM jsonb_object_keys(variant) k WHERE k NOT IN ('title', 'body') ORDER BY k LIMIT 1;
        IF FOUND THEN
            PERFORM belfry.reject(tab, format('variants.%s.%s', locale, left(key, 60)), 'is not allowed; allowed keys: title, body');
        END IF;
        FOR key IN SELECT k FROM jsonb_object_keys(variant) k ORDER BY k LOOP
            IF jsonb_typeof(variant -> key) <> 'string' OR (key = 'title' AND (variant ->> key !~ '\S' OR length(variant ->> key) > 200)) OR length(variant ->> key) > 10000 THEN
                PERFORM belfry.reject(tab, format('variants.%s.%s', locale, key),
                    CASE key WHEN 'title' THEN 'is not allowed; allowed values: texts of 1 to 200 characters, not blank' ELSE 'is not allowed; allowed values: texts of 0 to 10000 characters' END);
            END IF;
            problem := belfry.template_problem(variant ->> key);
            IF problem IS NOT NULL THEN
                PERFORM belfry.reject(tab, format('variants.%s.%s', locale, key), problem);
            END IF;
        END LOOP;
    END LOOP;
END $$;

-- A job without a route of its own takes its category's as it is when it is enqueued.
CREATE FUNCTION belfry.jobs_validate_content() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.route := coalesce(NEW.route, (SELECT c.route FROM belfry.categories c WHERE c.name = NEW.category));
    IF TG_OP = 'INSERT' THEN
        IF NEW.delivered_at IS NOT NULL THEN
            PERFORM belfry.reject('jobs', 'delivered_at', 'belongs to belfry; allowed values for a new job: none, leave it out');
        END IF;
    ELSE
        IF NEW.route IS DISTINCT FROM OLD.route AND (OLD.bound IS NOT NULL OR OLD.status = 'RUNNING') THEN
            PERFORM belfry.reject('jobs', 'route', format('job %s has started; allowed changes: none', OLD.id), 'Abort it and enqueue another.');
        END IF;
        IF NEW.variants IS DISTINCT FROM OLD.variants AND OLD.status IN ('RUNNING', 'PROCESSED') THEN
            PERFORM belfry.reject('jobs', 'variants', format('job %s is %s; allowed changes: none', OLD.id, OLD.status),
                CASE OLD.status WHEN 'RUNNING' THEN 'Abort it, correct it, resume it: belfry.resume_edited(id, changes).' ELSE 'Recall it and enqueue another.' END);
        END IF;
    END IF;
    IF TG_OP = 'INSERT' OR (NEW.title, NEW.body, NEW.variants) IS DISTINCT FROM (OLD.title, OLD.body, OLD.variants) THEN
        PERFORM belfry.check_content('jobs', NEW.title, NEW.body, NEW.variants);
    END IF;
    IF TG_OP = 'INSERT' OR NEW.route IS DISTINCT FROM OLD.route THEN
        PERFORM belfry.check_route('jobs', NEW.route);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER jobs_validate_content BEFORE INSERT OR UPDATE OF title, body, variants, route ON belfry.jobs -- after jobs_validate, by name
    FOR EACH ROW EXECUTE FUNCTION belfry.jobs_validate_content();

-- As in 0004, with route and variants.
CREATE OR REPLACE FUNCTION belfry.jobs_record_edit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    watched constant text[] := '{type,category,title,body,data,variants,route,audience,lane,priority,schedule_at,deliver_at,expires_at,idempotency_key,requested_by,group_id,max_rows_per_second,duty_cycle,chunk_target_ms,max_chunk_rows,health_checks,max_skips}';
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
    IF OLD."cursor" IS NOT NULL AND was ?| '{title,body,data,variants,audience}' THEN
        INSERT INTO belfry.job_revisions (job_id, revision, "cursor", title, body, data, variants, audience, edited_by, reason)
        SELECT OLD.id, 1 + count(*), OLD."cursor", OLD.title, OLD.body, OLD.data, OLD.variants, OLD.audience, who, why
          FROM belfry.job_revisions r WHERE r.job_id = OLD.id
            ON CONFLICT ON CONSTRAINT job_revisions_cursor_key DO NOTHING; -- nothing was written since the last edit
    END IF;
    IF NEW.status = 'PENDING' AND NEW.schedule_at <= clock_timestamp() THEN
        PERFORM pg_notify('belfry_jobs', NEW.id::text);
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER jobs_record_edit ON belfry.jobs;
CREATE TRIGGER jobs_record_edit AFTER UPDATE OF
    type, category, title, body, data, variants, route, audience, lane, priority, schedule_at, deliver_at, expires_at, idempotency_key, requested_by, group_id,
    max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows, health_checks, max_skips
    ON belfry.jobs FOR EACH ROW EXECUTE FUNCTION belfry.jobs_record_edit();

-- enqueue and enqueue_group, as in 0004, with route and variants.
DROP FUNCTION belfry.enqueue(text, text, text, text, jsonb, jsonb, timestamptz, timestamptz, text, integer, text, uuid, text, timestamptz);
CREATE FUNCTION belfry.enqueue(
    type text, category text, title text, body text DEFAULT '',
    audience jsonb DEFAULT '{"kind": "everyone"}', data jsonb DEFAULT '{}',
    schedule_at timestamptz DEFAULT now(), deliver_at timestamptz DEFAULT NULL,
    lane text DEFAULT 'default', priority integer DEFAULT 0,
    idempotency_key text DEFAULT NULL, group_id uuid DEFAULT NULL, requested_by text DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, route text[] DEFAULT NULL, variants jsonb DEFAULT '{}'
) RETURNS bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    job_id bigint;
BEGIN
    INSERT INTO belfry.jobs (type, category, title, body, audience, data, schedule_at, deliver_at, lane, priority,
                             idempotency_key, group_id, requested_by, expires_at, route, variants)
    VALUES (enqueue.type, enqueue.category, enqueue.title, enqueue.body, enqueue.audience, enqueue.data, enqueue.schedule_at,
            enqueue.deliver_at, enqueue.lane, enqueue.priority, enqueue.idempotency_key, enqueue.group_id,
            coalesce(enqueue.requested_by, session_user), enqueue.expires_at, enqueue.route, enqueue.variants)
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

DROP FUNCTION belfry.enqueue_group(text[], text, text, text, jsonb, jsonb, timestamptz, timestamptz, text, integer, text, text, timestamptz);
CREATE FUNCTION belfry.enqueue_group(
    types text[], category text, title text, body text DEFAULT '',
    audience jsonb DEFAULT '{"kind": "everyone"}', data jsonb DEFAULT '{}',
    schedule_at timestamptz DEFAULT now(), deliver_at timestamptz DEFAULT NULL,
    lane text DEFAULT 'default', priority integer DEFAULT 0,
    idempotency_key text DEFAULT NULL, requested_by text DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, route text[] DEFAULT NULL, variants jsonb DEFAULT '{}'
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
            enqueue_group.idempotency_key, one, enqueue_group.requested_by, enqueue_group.expires_at, enqueue_group.route, enqueue_group.variants);
    END LOOP;
    RETURN QUERY SELECT j.id, j.type, j.group_id FROM unnest(types) WITH ORDINALITY u(type, o)
        JOIN belfry.jobs j ON j.id = ANY (ids) AND j.type = u.type ORDER BY u.o;
END $$;

-- As in 0004, with route and variants. A route of null takes the category's.
CREATE OR REPLACE FUNCTION belfry.set(id bigint, changes jsonb, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.jobs
LANGUAGE plpgsql AS $$
DECLARE
    allowed constant text[] := '{category,title,body,data,variants,route,audience,lane,priority,schedule_at,deliver_at,expires_at,max_rows_per_second,duty_cycle,chunk_target_ms,max_chunk_rows,health_checks,max_skips}';
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
                     WHEN bad = 'route' THEN 'null, or lists of media such as ["push", "sms"]'
                     ELSE 'null, or whole numbers' END));
        END;
    END LOOP;
    PERFORM belfry.act(actor, reason);
    UPDATE belfry.jobs j
       SET (category, title, body, data, variants, route, audience, lane, priority, schedule_at, deliver_at, expires_at,
            max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows, health_checks, max_skips) =
           (SELECT n.category, n.title, n.body, n.data, n.variants, n.route, n.audience, n.lane, n.priority, n.schedule_at, n.deliver_at, n.expires_at,
                   n.max_rows_per_second, n.duty_cycle, n.chunk_target_ms, n.max_chunk_rows, n.health_checks, n.max_skips
              FROM jsonb_populate_record(j, changes) n)
     WHERE j.id = $1;
    PERFORM belfry.act(NULL, NULL);
    RETURN QUERY SELECT * FROM belfry.jobs j WHERE j.id = $1;
END $$;

-- Checks what operators set about a category.
CREATE FUNCTION belfry.categories_validate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.name IS NULL OR NEW.name !~ '^[a-z][a-z0-9_]{0,62}$' THEN
        PERFORM belfry.reject('categories', 'name', format('%L is not a category''s name', left(coalesce(NEW.name, 'null'), 70)) || '; allowed values: 1 to 63 of a-z, 0-9 and _, starting with a letter');
    END IF;
    IF TG_OP = 'INSERT' OR NEW.route IS DISTINCT FROM OLD.route THEN
        PERFORM belfry.check_route('categories', NEW.route);
    END IF;
    -- 24:00 is midnight, and a time of its own to PostgreSQL.
    NEW.quiet_start := CASE WHEN NEW.quiet_start = '24:00' THEN '00:00' ELSE NEW.quiet_start END;
    NEW.quiet_end := CASE WHEN NEW.quiet_end = '24:00' THEN '00:00' ELSE NEW.quiet_end END;
    IF (NEW.quiet_start IS NULL) <> (NEW.quiet_end IS NULL) OR NEW.quiet_start = NEW.quiet_end THEN
        PERFORM belfry.reject('categories', CASE WHEN NEW.quiet_start IS NULL THEN 'quiet_start' ELSE 'quiet_end' END, CASE
            WHEN NEW.quiet_start IS NULL THEN 'is null'
            WHEN NEW.quiet_end IS NULL THEN 'is null'
            ELSE format('%s is quiet_start too', NEW.quiet_end) END
            || '; allowed values: two different times of day, quiet_start and quiet_end, or null for both');
    END IF;
    IF (NEW.cap IS NULL) <> (NEW.cap_window IS NULL) OR NOT (NEW.cap BETWEEN 1 AND 10000) THEN
        PERFORM belfry.reject('categories', CASE WHEN NEW.cap IS NOT NULL AND NEW.cap_window IS NULL THEN 'cap_window' ELSE 'cap' END,
            coalesce(CASE WHEN NEW.cap_window IS NULL THEN NULL ELSE NEW.cap::text END, 'null') || ' is not allowed; allowed values: cap 1 to 10000 with a cap_window, or null for both');
    END IF;
    IF NOT (NEW.cap_window BETWEEN interval '1 minute' AND interval '366 days') THEN
        PERFORM belfry.reject('categories', 'cap_window', format('%s is not allowed; allowed values: null, or intervals from 1 minute to 366 days', NEW.cap_window));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER categories_validate BEFORE INSERT OR UPDATE ON belfry.categories
    FOR EACH ROW EXECUTE FUNCTION belfry.categories_validate();

-- Records what changed in a category, only what differs, whoever writes.
CREATE FUNCTION belfry.categories_record() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was    jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - 'name' ELSE '{}' END;
    is_now jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - 'name' ELSE '{}' END;
BEGIN
    IF was IS DISTINCT FROM is_now THEN
        INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
        SELECT 'category', CASE WHEN TG_OP = 'DELETE' THEN OLD.name ELSE NEW.name END,
               CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'DELETE' THEN 'removed' ELSE 'changed' END,
               coalesce(nullif(current_setting('belfry.actor', true), ''), session_user), coalesce(current_setting('belfry.reason', true), ''),
               jsonb_build_object('session_user', session_user, 'before', jsonb_object_agg(k, was -> k), 'after', jsonb_object_agg(k, is_now -> k))
          FROM (SELECT jsonb_object_keys(was || is_now) AS k) keys
         WHERE was -> k IS DISTINCT FROM is_now -> k;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER categories_record AFTER INSERT OR UPDATE OR DELETE ON belfry.categories
    FOR EACH ROW EXECUTE FUNCTION belfry.categories_record();

-- Validates an activity, and lets nobody change one: its message may be on its way.
CREATE FUNCTION belfry.activities_validate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    usual text[];
    known text;
BEGIN
    -- One statement finds that all is in order. PL/pgSQL prepares every expression anew in
    -- every transaction: what follows costs three times as much, and says what is wrong.
    SELECT c.route INTO usual FROM belfry.categories c
     WHERE c.name = NEW.category AND TG_OP = 'INSERT' AND NEW.route IS NULL AND NEW.variants = '{}'
       AND NEW.id < 0 AND NEW.created_at = now() AND NEW.channel_id IS NOT NULL
       AND NEW.title ~ '\S' AND length(NEW.title) <= 200 AND position('{{' IN NEW.title) = 0
       AND length(NEW.body) <= 10000 AND position('{{' IN NEW.body) = 0
       AND jsonb_typeof(NEW.data) = 'object' AND octet_length(NEW.data::text) <= 16384
       AND (NEW.deliver_at IS NULL OR NEW.deliver_at BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00')
       AND (NEW.idempotency_key IS NULL OR length(NEW.idempotency_key) BETWEEN 1 AND 200)
       AND NEW.requested_by ~ '\S' AND length(NEW.requested_by) <= 200;
    IF usual IS NOT NULL THEN
        NEW.route := usual; -- it was checked when it was set
        RETURN NEW;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        PERFORM belfry.reject('activities', 'id', format('activity %s was sent on its way when it was inserted; allowed changes: none', OLD.id), 'Insert another.');
    END IF;
    IF NEW.id >= 0 THEN
        PERFORM belfry.reject('activities', 'id', format('%s belongs to a job; allowed values for a new activity: none, leave it out', NEW.id));
    END IF;
    IF NEW.created_at IS DISTINCT FROM now() THEN
        PERFORM belfry.reject('activities', 'created_at', 'belongs to belfry; allowed values for a new activity: none, leave it out');
    END IF;
    IF NEW.channel_id IS NULL THEN
        PERFORM belfry.reject('activities', 'channel_id', 'is required; allowed values: the id of a channel');
    END IF;
    IF NEW.category IS NULL OR NOT EXISTS (SELECT FROM belfry.categories c WHERE c.name = NEW.category) THEN
        SELECT coalesce(string_agg(c.name, ', ' ORDER BY c.name), 'none') INTO known FROM belfry.categories c;
        PERFORM belfry.reject('activities', 'category', CASE WHEN NEW.category IS NULL THEN 'is null' ELSE format('%L is not a category', left(NEW.category, 60)) END || '; allowed values: ' || known,
            'INSERT INTO belfry.categories adds one.');
    END IF;
    IF NEW.title IS NULL OR NEW.title !~ '\S' OR length(NEW.title) > 200 THEN
        PERFORM belfry.reject('activities', 'title', CASE WHEN NEW.title IS NULL THEN 'is required' WHEN length(NEW.title) > 200 THEN format('has %s characters', length(NEW.title)) ELSE 'is blank' END || '; allowed values: texts of 1 to 200 characters');
    END IF;
    IF NEW.body IS NULL OR length(NEW.body) > 10000 THEN
        PERFORM belfry.reject('activities', 'body', CASE WHEN NEW.body IS NULL THEN 'is null' ELSE format('has %s characters', length(NEW.body)) END || '; allowed values: texts of 0 to 10000 characters');
    END IF;
    IF NEW.data IS NULL OR jsonb_typeof(NEW.data) <> 'object' OR octet_length(NEW.data::text) > 16384 THEN
        PERFORM belfry.reject('activities', 'data', CASE WHEN NEW.data IS NULL THEN 'is null' WHEN jsonb_typeof(NEW.data) <> 'object' THEN 'is a JSON ' || jsonb_typeof(NEW.data) ELSE format('has %s bytes', octet_length(NEW.data::text)) END || '; allowed values: JSON objects of up to 16384 bytes');
    END IF;
    IF NEW.deliver_at < '0001-01-02 00:00:00+00' OR NEW.deliver_at > '9999-12-30 00:00:00+00' THEN
        PERFORM belfry.reject('activities', 'deliver_at', format('%s is not allowed; allowed values: null (at once), or timestamps of the years 1 to 9999', NEW.deliver_at));
    END IF;
    IF length(NEW.idempotency_key) NOT BETWEEN 1 AND 200 THEN
        PERFORM belfry.reject('activities', 'idempotency_key', format('has %s characters; allowed values: null, or texts of 1 to 200 characters', length(NEW.idempotency_key)));
    END IF;
    IF NEW.requested_by IS NULL OR NEW.requested_by !~ '\S' OR length(NEW.requested_by) > 200 THEN
        PERFORM belfry.reject('activities', 'requested_by', 'is null, blank or too long; allowed values: texts of 1 to 200 characters');
    END IF;
    PERFORM belfry.check_content('activities', NEW.title, NEW.body, NEW.variants);
    IF NEW.route IS NULL THEN
        NEW.route := (SELECT c.route FROM belfry.categories c WHERE c.name = NEW.category);
    ELSE
        PERFORM belfry.check_route('activities', NEW.route);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER activities_validate BEFORE INSERT OR UPDATE ON belfry.activities
    FOR EACH ROW EXECUTE FUNCTION belfry.activities_validate();

-- The message of an activity, in the same transaction, due when that commits.
CREATE FUNCTION belfry.activities_enqueue() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO belfry.messages (job_id, channel_id, next_attempt_at)
    VALUES (NEW.id, NEW.channel_id, coalesce(NEW.deliver_at, NEW.created_at));
    RETURN NULL;
END $$;
CREATE TRIGGER activities_enqueue AFTER INSERT ON belfry.activities
    FOR EACH ROW EXECUTE FUNCTION belfry.activities_enqueue();

-- These run with their owner's rights, so that a role that may only INSERT jobs or
-- activities can enqueue. Nobody may attach them to a table of his own.
REVOKE EXECUTE ON FUNCTION belfry.jobs_validate_content(), belfry.categories_validate(), belfry.categories_record(),
    belfry.activities_validate(), belfry.activities_enqueue() FROM PUBLIC;

-- send inserts one activity in the caller's transaction and returns its id, which is
-- negative. With an idempotency key that was seen, it returns the first one's id.
CREATE FUNCTION belfry.send(
    channel_id bigint, category text, title text, body text DEFAULT '', data jsonb DEFAULT '{}',
    variants jsonb DEFAULT '{}', route text[] DEFAULT NULL, deliver_at timestamptz DEFAULT NULL,
    idempotency_key text DEFAULT NULL, requested_by text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    activity_id bigint;
BEGIN
    INSERT INTO belfry.activities (channel_id, category, title, body, data, variants, route, deliver_at, idempotency_key, requested_by)
    VALUES (send.channel_id, send.category, send.title, send.body, send.data, send.variants, send.route, send.deliver_at,
            send.idempotency_key, coalesce(send.requested_by, session_user))
    ON CONFLICT ON CONSTRAINT activities_idempotency_key DO NOTHING
    RETURNING id INTO activity_id;
    IF activity_id IS NULL THEN
        SELECT a.id INTO activity_id FROM belfry.activities a WHERE a.idempotency_key = send.idempotency_key;
        IF activity_id IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
                MESSAGE = format('belfry.activities.idempotency_key: %L was sent by a transaction this one cannot see', send.idempotency_key),
                HINT = 'Repeat the transaction.';
        END IF;
    END IF;
    RETURN activity_id;
END $$;

-- As send, to the channel of belfry.channels with an external id.
CREATE FUNCTION belfry.send_external(
    external_id text, category text, title text, body text DEFAULT '', data jsonb DEFAULT '{}',
    variants jsonb DEFAULT '{}', route text[] DEFAULT NULL, deliver_at timestamptz DEFAULT NULL,
    idempotency_key text DEFAULT NULL, requested_by text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    found_id bigint;
BEGIN
    SELECT c.id INTO found_id FROM belfry.channels c WHERE c.external_id = $1;
    IF found_id IS NULL THEN
        PERFORM belfry.reject('activities', 'external_id', format('%L is no channel''s; allowed values: the external ids of belfry.channels', left(coalesce($1, 'null'), 60)));
    END IF;
    RETURN belfry.send(found_id, $2, $3, $4, $5, $6, $7, $8, $9, $10);
END $$;
