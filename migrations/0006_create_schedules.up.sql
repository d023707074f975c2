-- Schedules: one row is one named timetable and a template of jobs. Plain SQL is an
-- API here as for jobs: the triggers make a bad definition fail with the column and
-- the allowed values, derive belfry's own columns, and record every act and every
-- firing in belfry.events in the same transaction.

-- Expressions that are bound at creation must not resolve to functions of other roles.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Whether an interval is a whole number of seconds, 1 to most, without months.
CREATE FUNCTION belfry.whole_seconds(i interval, most integer) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN extract(year FROM i) = 0 AND extract(month FROM i) = 0 AND extract(epoch FROM i) BETWEEN 1 AND most AND extract(epoch FROM i) % 1 = 0;

CREATE TABLE belfry.schedules (
    name          text CONSTRAINT schedules_pkey PRIMARY KEY,
    source        text        NOT NULL DEFAULT 'database',
    -- The times: either cron or every.
    cron          text,
    every         interval,
    time_zone     text        NOT NULL DEFAULT 'UTC',
    -- The job, or the jobs of a group, and a query that returns one row for each job.
    template      jsonb       NOT NULL,
    query         text,
    query_timeout interval    NOT NULL DEFAULT '10 seconds',
    query_role    text, -- that the query runs as; NULL: the node's
    query_by      name, -- the role that stored query and query_role, set by schedules_check_role
    -- Occurrences that are older than missed_after when a node checks are missed.
    missed        text        NOT NULL DEFAULT 'once',
    missed_after  interval    NOT NULL DEFAULT '10 minutes',
    paused_at     timestamptz, -- NULL: not paused
    paused_by     text,
    pause_reason  text        NOT NULL DEFAULT '',
    -- How it goes: set by belfry.
    armed_at      timestamptz NOT NULL DEFAULT now(), -- occurrences after this instant count
    next_at       timestamptz, -- the next occurrence to decide about; NULL: compute it from armed_at
    retry_at      timestamptz, -- it failed: not before this instant again
    failing_since timestamptz, -- since when the occurrence at next_at fails
    last_at       timestamptz, -- the last occurrence that fired
    last_fired_at timestamptz,
    last_jobs     bigint[]    NOT NULL DEFAULT '{}',
    last_error    text,
    failures      integer     NOT NULL DEFAULT 0, -- since the last firing
    fired         bigint      NOT NULL DEFAULT 0,
    skipped       bigint      NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL DEFAULT now(), -- intervals count from here
    updated_at    timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT schedules_times_check CHECK (
        least(paused_at, armed_at, next_at, retry_at, failing_since, last_at, last_fired_at, created_at, updated_at) >= '1970-01-01 00:00:00+00'
        AND greatest(paused_at, armed_at, next_at, retry_at, failing_since, last_at, last_fired_at, created_at, updated_at) < '9999-12-31 00:00:00+00'),
    CONSTRAINT schedules_name_check CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'
        OR belfry.reject('schedules', 'name', format('%L is not a schedule name; allowed values: 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit', left(name, 70)))),
    CONSTRAINT schedules_source_check CHECK (source IN ('config', 'database')
        OR belfry.reject('schedules', 'source', format('%L is not allowed; allowed values: config, database', left(source, 60)))),
    CONSTRAINT schedules_every_check CHECK (every IS NULL OR belfry.whole_seconds(every, 366 * 86400)
        OR belfry.reject('schedules', 'every', every || ' is not allowed; allowed values: intervals of whole seconds, 1 second to 366 days, without months', 'Calendar months are for cron.')),
    CONSTRAINT schedules_query_check CHECK (query IS NULL OR query ~* '^[[:space:]]*(select|with|values|table)[[:>:]]' AND length(query) <= 10000
        OR belfry.reject('schedules', 'query', CASE WHEN length(query) > 10000 THEN format('has %s characters', length(query))
                ELSE format('begins with %L', left(regexp_replace(query, '[[:space:]]+', ' ', 'g'), 20)) END
            || '; allowed values: null, or one statement of up to 10000 characters that begins with SELECT, WITH, VALUES or TABLE')),
    CONSTRAINT schedules_query_timeout_check CHECK (belfry.whole_seconds(query_timeout, 300)
        OR belfry.reject('schedules', 'query_timeout', query_timeout || ' is not allowed; allowed values: intervals of whole seconds, 1 second to 5 minutes')),
    CONSTRAINT schedules_missed_check CHECK (missed IN ('skip', 'once', 'all')
        OR belfry.reject('schedules', 'missed', format('%L is not allowed; allowed values: skip, once, all', left(missed, 60)))),
    CONSTRAINT schedules_missed_after_check CHECK (belfry.whole_seconds(missed_after, 31 * 86400)
        OR belfry.reject('schedules', 'missed_after', missed_after || ' is not allowed; allowed values: intervals of whole seconds, 1 second to 31 days, without months')),
    CONSTRAINT schedules_when_check CHECK ((cron IS NULL) <> (every IS NULL)),
    CONSTRAINT schedules_paused_check CHECK ((paused_at IS NULL) = (paused_by IS NULL)),
    CONSTRAINT schedules_paused_next_check CHECK (paused_at IS NULL OR next_at IS NULL AND retry_at IS NULL),
    CONSTRAINT schedules_counts_check CHECK (failures >= 0 AND fired >= 0 AND skipped >= 0),
    CONSTRAINT schedules_last_jobs_check CHECK (array_position(last_jobs, NULL) IS NULL AND cardinality(last_jobs) <= 10000),
    CONSTRAINT schedules_lengths_check CHECK (length(paused_by) <= 255 AND length(last_error) <= 4000),
    CONSTRAINT schedules_pause_reason_check CHECK (length(pause_reason) <= 4000
        OR belfry.reject('schedules', 'pause_reason', format('has %s characters; allowed values: texts of 0 to 4000 characters', length(pause_reason))))
);

-- Serves the query of due schedules at each tick.
CREATE INDEX schedules_due_idx ON belfry.schedules ((coalesce(retry_at, next_at, '-infinity'::timestamptz))) WHERE paused_at IS NULL;

-- Checks one template, so that a job that would be rejected is reported when the schedule is written and not when it
-- fires. With a query, category and title may come from its rows, unless these are values of recipients. deliver_after and
-- expires_after are durations from the occurrence on.
CREATE FUNCTION belfry.check_schedule_template(t jsonb, has_query boolean, OUT ok boolean)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tab     constant text := 'schedules.template';
    allowed constant text[] := '{type,types,category,title,body,data,variants,route,audience,lane,priority,deliver_after,expires_after,max_recipients,needs_approval,values}';
    from_rows constant boolean := has_query AND NOT t @> '{"values": true}';
    types   constant jsonb := CASE WHEN t ? 'types' THEN t -> 'types' ELSE jsonb_build_array(t -> 'type') END;
    route   text[];
    col     text;
BEGIN
    ok := jsonb_typeof(t) = 'object'
        OR belfry.reject('schedules', 'template', 'must be a JSON object; allowed keys: ' || array_to_string(allowed, ', '));
    col := (SELECT min(k) FROM jsonb_object_keys(t) k WHERE k <> ALL (allowed));
    ok := col IS NULL OR belfry.reject(tab, left(col, 60), 'is not allowed; allowed keys: ' || array_to_string(allowed, ', '));
    ok := (t ? 'type') <> (t ? 'types')
        OR belfry.reject(tab, 'types', CASE WHEN t ? 'type' THEN 'and type are both given' ELSE 'is required' END
            || '; allowed values: a list of different job types, or type with one: ' || belfry.known('job type'));
    ok := jsonb_typeof(types) = 'array' AND (SELECT count(*) > 0 AND count(DISTINCT e) = count(*) FROM jsonb_array_elements(types) e);
    ok := ok OR belfry.reject(tab, 'types', 'must be a list of different job types; allowed values: ' || belfry.known('job type'));
    PERFORM belfry.check_word(tab, 'types', 'job type', CASE jsonb_typeof(e) WHEN 'string' THEN e #>> '{}' ELSE 'JSON ' || jsonb_typeof(e) END) FROM jsonb_array_elements(types) e;
    col := (SELECT min(k) FROM unnest('{category,title,body,lane}'::text[]) k WHERE jsonb_typeof(t -> k) <> 'string');
    ok := col IS NULL OR belfry.reject(tab, col, format('is a JSON %s; allowed values: texts', jsonb_typeof(t -> col)));
    ok := NOT t ? 'values' OR jsonb_typeof(t -> 'values') = 'boolean' AND (has_query OR t -> 'values' = 'false')
        OR belfry.reject(tab, 'values', format('%s is not allowed%s; allowed values: true, false', left((t -> 'values')::text, 40), CASE WHEN has_query THEN '' ELSE ' without a query' END));
    ok := t ? 'category' OR from_rows
        OR belfry.reject(tab, 'category', 'is required without a query of jobs; allowed values: ' || belfry.known('category'));
    ok := NOT t ? 'category' OR belfry.check_word(tab, 'category', 'category', t ->> 'category');
    ok := t ? 'title' OR from_rows
        OR belfry.reject(tab, 'title', 'is required without a query of jobs; allowed values: texts of 1 to 200 characters');
    ok := NOT t ? 'lane' OR t ->> 'lane' ~ '^[a-z0-9][a-z0-9_-]{0,62}$'
        OR belfry.reject(tab, 'lane', format('%L is not a lane name', left(t ->> 'lane', 70)) || '; allowed values: 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit');
    ok := NOT t ? 'priority' OR t -> 'priority' BETWEEN '-1000' AND '1000' AND t ->> 'priority' ~ '^-?[0-9]+$'
        OR belfry.reject(tab, 'priority', format('%s is not allowed; allowed values: whole numbers from -1000 to 1000, higher is more urgent', left((t -> 'priority')::text, 40)));
    ok := NOT t ? 'max_recipients' OR t -> 'max_recipients' BETWEEN '1' AND '2000000000' AND t ->> 'max_recipients' ~ '^[0-9]+$'
        OR belfry.reject(tab, 'max_recipients', format('%s is not allowed; allowed values: whole numbers from 1 to 2000000000', left((t -> 'max_recipients')::text, 40)));
    ok := NOT t ? 'needs_approval' OR jsonb_typeof(t -> 'needs_approval') = 'boolean'
        OR belfry.reject(tab, 'needs_approval', format('%s is not allowed; allowed values: true, false', left((t -> 'needs_approval')::text, 40)));
    col := (SELECT min(k) FROM unnest('{deliver_after,expires_after}'::text[]) k
             WHERE jsonb_typeof(t -> k) <> 'string' OR t ->> k !~ '^(?=.)([0-9]{1,4}h)?([0-9]{1,5}m)?([0-9]{1,6}s)?$');
    ok := col IS NULL OR belfry.reject(tab, col, format('%s is not a duration; allowed values: texts such as 45s, 15m, 1h30m', left((t -> col)::text, 40)));
    ok := NOT t ? 'expires_after' OR t ->> 'expires_after' ~ '[1-9]'
        OR belfry.reject(tab, 'expires_after', 'is 0; allowed values: texts such as 45s, 15m, 1h30m, above 0');
    ok := NOT t ? 'route' OR jsonb_typeof(t -> 'route') = 'array' AND NOT t -> 'route' @? 'strict $[*] ? (@.type() != "string")'
        OR belfry.reject(tab, 'route', format('%s is not a list of texts; allowed values: 1 to 10 different media of %s, in the order in which they are tried',
            left((t -> 'route')::text, 120), belfry.known('medium')));
    -- For a title that is left to the query's rows stands one that is none.
    ok := belfry.check_content(tab, coalesce(t ->> 'title', '-'), coalesce(t ->> 'body', ''), coalesce(t -> 'data', '{}'), coalesce(t -> 'variants', '{}'));
    route := CASE WHEN t ? 'route' THEN ARRAY(SELECT m FROM jsonb_array_elements_text(t -> 'route') WITH ORDINALITY u(m, o) ORDER BY o)
        ELSE (SELECT c.route FROM belfry.categories c WHERE c.name = t ->> 'category') END;
    ok := NOT t ? 'route' OR belfry.check_route(tab, route);
    IF NOT from_rows THEN -- whose columns may take the place of the texts
        PERFORM belfry.check_deliverable(tab, k, route, t ->> 'title', coalesce(t ->> 'body', ''), coalesce(t -> 'variants', '{}')) FROM jsonb_array_elements_text(types) k;
    END IF;
    ok := NOT t ? 'audience' OR belfry.check_audience(tab, t -> 'audience');
END $$;

-- The grammar of cron expressions, the same in job/schedule: five fields of values, ranges
-- and lists, with steps, names in the last two; 7 is Sunday, like 0. Returns the error, or NULL.
CREATE FUNCTION belfry.cron_problem(cron text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fields CONSTANT text[] := regexp_split_to_array(btrim(cron, ' ' || chr(9)), '[ ' || chr(9) || ']+');
    names  CONSTANT text[] := '{minute,hour,day of month,month,day of week}';
    lows   CONSTANT int[]  := '{0,0,1,1,0}';
    highs  CONSTANT int[]  := '{59,23,31,12,6}';
    words  text[];
    part   text;
    m      text[];
    ends   int[];
    days   int   := 99;    -- the first day of the month that is asked for
    longest int  := 0;     -- the days of the longest month that is asked for
BEGIN
    IF fields[1] ~* '^@(hourly|daily|midnight|weekly|monthly|yearly|annually)$' AND cardinality(fields) = 1 THEN
        RETURN NULL;
    END IF;
    IF cardinality(fields) <> 5 OR length(cron) > 200 THEN
        RETURN 'is not a cron expression';
    END IF;
    FOR i IN 1..5 LOOP
        words := CASE i WHEN 4 THEN '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}'::text[] WHEN 5 THEN '{sun,mon,tue,wed,thu,fri,sat}'::text[] ELSE '{}'::text[] END;
        FOREACH part IN ARRAY regexp_split_to_array(fields[i], ',') LOOP
            m := regexp_match(part, '^(?:[*]|([0-9]{1,4}|[A-Za-z]{3})(?:-([0-9]{1,4}|[A-Za-z]{3}))?)(?:/([0-9]{1,4}))?$');
            IF m IS NULL THEN
                RETURN format('is not a cron expression: %L in the %s', left(part, 20), names[i]);
            END IF;
            ends := ARRAY(SELECT CASE WHEN w ~ '^[0-9]' THEN w::int ELSE array_position(words, lower(w)) - 1 + lows[i] END
                            FROM unnest(ARRAY[coalesce(m[1], lows[i]::text), coalesce(m[2], CASE WHEN m[1] IS NULL OR m[3] IS NOT NULL THEN highs[i]::text END, m[1])]) WITH ORDINALITY u(w, n) ORDER BY n);
            IF array_position(ends, NULL) IS NOT NULL OR ends[1] < lows[i] OR ends[2] > highs[i] + (i = 5)::int OR ends[1] > ends[2] OR m[3]::int = 0 THEN
                RETURN format('is not a cron expression: %L in the %s, which is %s to %s', left(part, 20), names[i], lows[i], highs[i]);
            END IF;
            IF m[3]::int > greatest(ends[2] - ends[1], 1) THEN
                RETURN format('is not a cron expression: the step of %L in the %s is longer than its range, %s to %s', left(part, 20), names[i], ends[1], ends[2]);
            END IF;
            IF i = 3 THEN
                days := least(days, ends[1]);
            ELSIF i = 4 THEN
                longest := greatest(longest, (SELECT max(CASE g WHEN 2 THEN 29 WHEN 4 THEN 30 WHEN 6 THEN 30 WHEN 9 THEN 30 WHEN 11 THEN 30 ELSE 31 END) FROM generate_series(ends[1], ends[2], coalesce(m[3]::int, 1)) g));
            END IF;
        END LOOP;
    END LOOP;
    RETURN CASE WHEN days > longest AND fields[5] ~ '(^|,)[*](/0*1)?(,|$)' THEN 'never comes: no such day of the month' END;
END $$;

-- Validates the operator's columns beyond CHECK constraints, and sets the derived columns. A new timetable applies from
-- now on. Occurrences during a pause never fire.
CREATE FUNCTION belfry.schedules_validate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fields constant text := 'five fields: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly';
    ok     boolean;
BEGIN
    IF TG_OP = 'INSERT' THEN
        ok := belfry.check_new('schedules', to_jsonb(NEW), '{name,source,cron,every,time_zone,template,query,query_timeout,query_role,query_by,missed,missed_after,paused_at,paused_by,pause_reason}',
            jsonb_build_object('armed_at', now(), 'created_at', now(), 'updated_at', now()) || '{"last_jobs": [], "failures": 0, "fired": 0, "skipped": 0}');
    ELSE
        ok := NEW.name = OLD.name OR belfry.reject('schedules', 'name', format('%L cannot be renamed; allowed changes: none', OLD.name), 'Insert another and delete this one.');
    END IF;
    ok := (NEW.cron IS NULL) <> (NEW.every IS NULL)
        OR belfry.reject('schedules', 'cron', CASE WHEN NEW.cron IS NULL THEN 'or every is required' ELSE 'and every are both given' END || '; allowed values: exactly one of cron (' || fields || ') and every (an interval)');
    ok := belfry.cron_problem(NEW.cron) IS NULL
        OR belfry.reject('schedules', 'cron', format('%L %s; allowed values: %s', left(NEW.cron, 60), belfry.cron_problem(NEW.cron), fields));
    ok := TG_OP = 'UPDATE' AND NEW.time_zone IS NOT DISTINCT FROM OLD.time_zone OR NEW.time_zone = 'UTC' OR EXISTS (SELECT FROM pg_timezone_names z WHERE z.name = NEW.time_zone);
    ok := ok OR belfry.reject('schedules', 'time_zone', format('%L is not a time zone; allowed values: names of the IANA database such as UTC, Asia/Seoul, Europe/Berlin', left(coalesce(NEW.time_zone, 'null'), 60)),
            'SELECT name FROM pg_timezone_names lists them.');
    ok := TG_OP = 'UPDATE' AND (NEW.template, NEW.query) IS NOT DISTINCT FROM (OLD.template, OLD.query)
        OR belfry.check_schedule_template(NEW.template, NEW.query IS NOT NULL);

    IF NEW.paused_at IS NULL THEN
        NEW.paused_by := NULL;
        NEW.pause_reason := '';
    ELSE
        NEW.paused_by := coalesce(NEW.paused_by, belfry.actor());
        NEW.pause_reason := coalesce(nullif(NEW.pause_reason, ''), belfry.reason());
        NEW.next_at := NULL;
        NEW.retry_at := NULL;
        NEW.failing_since := NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        IF (NEW.source, NEW.cron, NEW.every, NEW.time_zone, NEW.template, NEW.query, NEW.query_timeout, NEW.query_role, NEW.missed, NEW.missed_after)
            IS DISTINCT FROM (OLD.source, OLD.cron, OLD.every, OLD.time_zone, OLD.template, OLD.query, OLD.query_timeout, OLD.query_role, OLD.missed, OLD.missed_after) THEN
            NEW.updated_at := clock_timestamp();
            NEW.retry_at := NULL; -- the cure of a failure is tried at once
        END IF;
        IF (NEW.cron, NEW.every, NEW.time_zone) IS DISTINCT FROM (OLD.cron, OLD.every, OLD.time_zone)
            OR OLD.paused_at IS NOT NULL AND NEW.paused_at IS NULL THEN
            NEW.armed_at := clock_timestamp();
            NEW.next_at := NULL;
            NEW.failing_since := NULL;
        END IF;
    END IF;
    PERFORM belfry.ring('belfry_jobs'); -- daemons read the time of the next occurrence
    RETURN NEW;
END $$;

CREATE TRIGGER schedules_validate BEFORE INSERT OR UPDATE OF
    name, source, cron, every, time_zone, template, query, query_timeout, query_role, missed, missed_after, paused_at, paused_by, pause_reason
    ON belfry.schedules FOR EACH ROW EXECUTE FUNCTION belfry.schedules_validate();

-- A writer of a schedule with query_role must be able to become that role, because the node can become many roles. This
-- also applies to changes of its query.
-- It runs with the rights of the writer, which it checks and records: a node runs a query
-- without query_role only if the role that stored it could become the node's role.
CREATE FUNCTION belfry.schedules_check_role() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ok boolean;
BEGIN
    IF TG_OP = 'UPDATE' AND (NEW.query_role, NEW.query) IS NOT DISTINCT FROM (OLD.query_role, OLD.query) AND (NEW.query_by IS NOT DISTINCT FROM OLD.query_by) THEN
        RETURN NEW;
    END IF;
    NEW.query_by := CASE WHEN NEW.query IS NOT NULL THEN current_user END;
    IF NEW.query_role IS NULL THEN
        RETURN NEW;
    END IF;
    ok := NEW.query IS NOT NULL OR belfry.reject('schedules', 'query_role', 'is for a schedule with a query; allowed values without one: null');
    ok := EXISTS (SELECT FROM pg_roles r WHERE r.rolname = NEW.query_role);
    ok := ok OR belfry.reject('schedules', 'query_role', format('%L is not a role; allowed values: null, or a role that %I may become by SET ROLE', left(NEW.query_role, 63), current_user));
    ok := pg_has_role(NEW.query_role, CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END)
        OR belfry.reject('schedules', 'query_role', format('%I may not become %L; allowed values: null, or a role that %1$I may become by SET ROLE', current_user, NEW.query_role),
            format('GRANT %I TO %I allows it.', NEW.query_role, current_user));
    RETURN NEW;
END $$;

CREATE TRIGGER schedules_check_role BEFORE INSERT OR UPDATE OF query, query_role, query_by
    ON belfry.schedules FOR EACH ROW EXECUTE FUNCTION belfry.schedules_check_role();

CREATE TRIGGER schedules_record AFTER INSERT OR DELETE OR UPDATE OF
    source, cron, every, time_zone, template, query, query_timeout, query_role, missed, missed_after, paused_at
    ON belfry.schedules FOR EACH ROW EXECUTE FUNCTION belfry.record('schedule',
    'source', 'cron', 'every', 'time_zone', 'template', 'query', 'query_timeout', 'query_role', 'missed', 'missed_after', 'paused_at', 'paused_by', 'pause_reason');

-- Records the outcome of occurrences: fired, skipped or failed. A failure with the same text is recorded once.
CREATE FUNCTION belfry.schedules_record_firing() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO belfry.events (subject, name, kind, actor, reason, detail)
    SELECT 'schedule', NEW.name, v.kind, belfry.actor(), v.reason, jsonb_build_object('session_user', session_user) || v.detail
      FROM (VALUES
        ('skipped', NEW.skipped > OLD.skipped, belfry.reason(), jsonb_build_object('count', NEW.skipped - OLD.skipped,
            'before', jsonb_build_object('next_at', OLD.next_at), 'after', jsonb_build_object('next_at', NEW.next_at))),
        ('fired', NEW.fired > OLD.fired, belfry.reason(), jsonb_build_object('jobs', NEW.last_jobs,
            'occurrence', CASE WHEN NEW.last_at IS DISTINCT FROM OLD.last_at THEN NEW.last_at END,
            'before', jsonb_build_object('next_at', OLD.next_at), 'after', jsonb_build_object('next_at', NEW.next_at))),
        ('failed', NEW.failures > OLD.failures AND (OLD.failures = 0 OR NEW.last_error IS DISTINCT FROM OLD.last_error), coalesce(NEW.last_error, ''),
            jsonb_build_object('occurrence', NEW.next_at,
            'before', jsonb_build_object('failures', OLD.failures), 'after', jsonb_build_object('failures', NEW.failures)))
        ) v (kind, happened, reason, detail)
     WHERE v.happened;
    RETURN NULL;
END $$;

CREATE TRIGGER schedules_record_firing AFTER UPDATE OF skipped, fired, failures ON belfry.schedules
    FOR EACH ROW EXECUTE FUNCTION belfry.schedules_record_firing();

REVOKE EXECUTE ON FUNCTION belfry.schedules_validate(), belfry.schedules_record_firing() FROM PUBLIC;

-- Holds a schedule: none of its occurrences fires until it is resumed. Pausing a
-- paused schedule changes nothing. No row: there is no such schedule.
CREATE FUNCTION belfry.pause_schedule(name text, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.schedules
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT belfry.pause('schedules', $1, true, $2, $3);
    SELECT * FROM belfry.schedules s WHERE s.name = $1
$$;

-- Lets a paused schedule go on with the first occurrence after now.
CREATE FUNCTION belfry.resume_schedule(name text, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.schedules
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT belfry.pause('schedules', $1, false, $2, $3);
    SELECT * FROM belfry.schedules s WHERE s.name = $1
$$;

-- The detail of an event without an external id in the lists before and after a change: at is
-- where an audience stands in either.
CREATE FUNCTION belfry.detail_without(detail jsonb, at text[], external_id text) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT coalesce(jsonb_object_agg(d.key, CASE WHEN d.key IN ('before', 'after') AND d.value #> at IS NOT NULL
            THEN jsonb_set(d.value, at, belfry.audience_without(d.value #> at, external_id)) ELSE d.value END), '{}') FROM jsonb_each(detail) d);

-- One step of an erasure: takes an external id out of the lists of schedules, of their events, and of jobs with their
-- revisions and events, or with dry_run counts. after is the position after which it begins ({}: the first), next the last
-- one that it examined; NULL means the end. It examines up to max_rows schedules, events or jobs, and ends after the first
-- list that it examined when patience has passed: a job's audience, revision or event may have megabytes, and one job any
-- number of these. changed is the count of jobs and schedules that listed the id. It changes nothing else, and the event of
-- a job has not the id; that of a schedule has it until the events follow. It reads lists one by one, in the order of
-- indexes.
CREATE FUNCTION belfry.forget_listed(external_id text, after text[], max_rows integer, patience interval, dry_run boolean, OUT next text[], OUT changed bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    one     constant text := external_id;
    ends    constant timestamptz := clock_timestamp() + patience;
    place   constant text := coalesce(after[1], 'schedules');
    job     constant bigint := CASE place WHEN 'jobs' THEN after[2] END;
    at_part integer := CASE place WHEN 'jobs' THEN after[3] END; -- of the job: 0 its audience, 1 revisions, 2 events
    at_key  bigint := CASE place WHEN 'jobs' THEN after[4] END;
    counted boolean := CASE place WHEN 'jobs' THEN after[5] END;
    left_over boolean := false;
    rows    integer := 0;
    r       record;
    p       record;
BEGIN
    changed := 0;
    next := after;
    PERFORM set_config('belfry.forget', CASE WHEN dry_run THEN '' ELSE one END, true);
    IF place = 'schedules' THEN
        FOR r IN SELECT s.name, s.template #> '{audience,external_ids}' ? one AS listed FROM belfry.schedules s
                  WHERE s.name > coalesce(after[2], '') ORDER BY s.name LIMIT max_rows LOOP
            rows := rows + 1;
            next := ARRAY[place, r.name];
            IF r.listed THEN
                changed := changed + 1;
                UPDATE belfry.schedules s SET template = jsonb_set(s.template, '{audience}', belfry.audience_without(s.template -> 'audience', one))
                 WHERE s.name = r.name AND NOT dry_run;
            END IF;
            left_over := clock_timestamp() >= ends;
            EXIT WHEN left_over;
        END LOOP;
        next := CASE WHEN left_over OR rows = max_rows THEN next ELSE '{events}' END;
    ELSIF place = 'events' THEN
        FOR r IN SELECT e.name, e.id, e.detail #> '{before,template,audience,external_ids}' ? one OR e.detail #> '{after,template,audience,external_ids}' ? one AS listed
                   FROM belfry.events e WHERE e.subject = 'schedule' AND belfry.is_act(e.kind, e.detail) AND (e.name, e.id) > (coalesce(after[2], ''), coalesce(after[3]::bigint, 0))
                  ORDER BY e.name, e.id LIMIT max_rows LOOP
            rows := rows + 1;
            next := ARRAY[place, r.name, r.id::text];
            IF r.listed AND NOT dry_run THEN
                UPDATE belfry.events e SET detail = belfry.detail_without(e.detail, '{template,audience}', one) WHERE e.id = r.id;
            END IF;
            left_over := clock_timestamp() >= ends;
            EXIT WHEN left_over;
        END LOOP;
        next := CASE WHEN left_over OR rows = max_rows THEN next ELSE '{jobs}' END;
    ELSE
        <<jobs>>
        FOR r IN SELECT j.id, j.audience -> 'external_ids' ? one AS listed
                   FROM belfry.jobs j WHERE j.id >= coalesce(job, 1) ORDER BY j.id LIMIT max_rows + 1 LOOP -- the first may be the last step's
            rows := rows + 1;
            IF r.id IS DISTINCT FROM job THEN
                at_part := 0;
                at_key := 0;
                counted := coalesce(r.listed, false);
                changed := changed + counted::integer;
                IF r.listed AND NOT dry_run THEN
                    UPDATE belfry.jobs j SET audience = belfry.audience_without(j.audience, one) WHERE j.id = r.id AND j.audience -> 'external_ids' ? one;
                END IF;
                next := ARRAY[place, r.id::text, '0', '0', counted::text];
                left_over := clock_timestamp() >= ends;
                EXIT WHEN left_over;
            END IF;
            -- This reads what an operator's act, for which the UPDATE waited, has written.
            FOR p IN SELECT k.part, k.key
                       FROM (SELECT 1 AS part, v.revision::bigint AS key FROM belfry.job_revisions v WHERE v.job_id = r.id
                             UNION ALL
                             SELECT 2, e.id FROM belfry.job_events e WHERE e.job_id = r.id AND e.kind = 'changed') k
                      WHERE (k.part, k.key) > (at_part, at_key) ORDER BY k.part, k.key LOOP
                IF (CASE p.part WHEN 1 THEN (SELECT v.audience -> 'external_ids' ? one FROM belfry.job_revisions v WHERE v.job_id = r.id AND v.revision = p.key)
                        ELSE (SELECT e.detail #> '{before,audience,external_ids}' ? one OR e.detail #> '{after,audience,external_ids}' ? one FROM belfry.job_events e WHERE e.id = p.key) END) THEN
                    changed := changed + (NOT counted)::integer;
                    counted := true;
                    UPDATE belfry.job_revisions v SET audience = belfry.audience_without(v.audience, one) WHERE p.part = 1 AND v.job_id = r.id AND v.revision = p.key AND NOT dry_run;
                    UPDATE belfry.job_events e SET detail = belfry.detail_without(e.detail, '{audience}', one) WHERE p.part = 2 AND e.id = p.key AND NOT dry_run;
                END IF;
                next := ARRAY[place, r.id::text, p.part::text, p.key::text, counted::text];
                left_over := clock_timestamp() >= ends;
                EXIT jobs WHEN left_over;
            END LOOP;
        END LOOP;
        next := CASE WHEN left_over OR rows > max_rows THEN next END;
    END IF;
    PERFORM set_config('belfry.forget', '', true);
END $$;

REVOKE EXECUTE ON FUNCTION belfry.forget_listed(text, text[], integer, interval, boolean) FROM PUBLIC;
