-- The SQL interface to jobs: limits of requests and approval by a second person; functions that enqueue a
-- job or a group, abort, resume, retry, correct and approve jobs, and return a job's content for a channel.
--
-- Locks: belfry.jobs SHARE ROW EXCLUSIVE (instant)

-- Expressions that are bound at creation must not resolve to functions of other roles.
SET LOCAL search_path = pg_catalog, pg_temp;

-- One row of limits for jobs of roles that may only INSERT, on their load and number of recipients:
-- ceilings, and floors (min_…), because a job that writes one row per second occupies its lane for days.
-- NULL means no limit. Roles that may UPDATE a column of jobs are not bound by its limits; authors over HTTP
-- are.
CREATE TABLE belfry.limits (
    only_row            boolean NOT NULL DEFAULT true CONSTRAINT limits_pkey PRIMARY KEY CONSTRAINT limits_only_row_check CHECK (only_row),
    priority            integer DEFAULT 0     CONSTRAINT limits_priority_check CHECK (priority BETWEEN 0 AND 1000),
    max_rows_per_second integer               CONSTRAINT limits_max_rows_per_second_check CHECK (max_rows_per_second BETWEEN 1 AND 10000000),
    duty_cycle          double precision      CONSTRAINT limits_duty_cycle_check CHECK (duty_cycle >= 0.01 AND duty_cycle <= 1),
    chunk_target_ms     integer DEFAULT 1000  CONSTRAINT limits_chunk_target_ms_check CHECK (chunk_target_ms BETWEEN 1 AND 60000),
    max_chunk_rows      integer DEFAULT 50000 CONSTRAINT limits_max_chunk_rows_check CHECK (max_chunk_rows BETWEEN 1 AND 1000000),
    max_skips           integer DEFAULT 10000 CONSTRAINT limits_max_skips_check CHECK (max_skips BETWEEN 0 AND 10000000),
    max_recipients      integer               CONSTRAINT limits_max_recipients_check CHECK (max_recipients BETWEEN 1 AND 2000000000),
    health_checks       boolean NOT NULL DEFAULT true, -- they may not be switched off
    min_priority        integer DEFAULT -10   CONSTRAINT limits_min_priority_check CHECK (min_priority BETWEEN -1000 AND 0), -- a claim reads each priority in each lane
    min_rows_per_second integer DEFAULT 100   CONSTRAINT limits_min_rows_per_second_check CHECK (min_rows_per_second BETWEEN 1 AND 10000000), -- of max_rows_per_second
    min_duty_cycle      double precision DEFAULT 0.1 CONSTRAINT limits_min_duty_cycle_check CHECK (min_duty_cycle >= 0.01 AND min_duty_cycle <= 1),
    min_chunk_target_ms integer DEFAULT 20    CONSTRAINT limits_min_chunk_target_ms_check CHECK (min_chunk_target_ms BETWEEN 1 AND 60000),
    min_chunk_rows      integer DEFAULT 100   CONSTRAINT limits_min_chunk_rows_check CHECK (min_chunk_rows BETWEEN 1 AND 1000000), -- of max_chunk_rows
    CONSTRAINT limits_rows_per_second_check CHECK (coalesce(min_rows_per_second <= max_rows_per_second, true)
        OR belfry.reject('limits', 'min_rows_per_second', format('%s is above max_rows_per_second; allowed values: null (no floor), 1 to %s', min_rows_per_second, max_rows_per_second))),
    CONSTRAINT limits_duty_cycles_check CHECK (coalesce(min_duty_cycle <= duty_cycle, true)
        OR belfry.reject('limits', 'min_duty_cycle', format('%s is above duty_cycle; allowed values: null (no floor), 0.01 to %s', min_duty_cycle, duty_cycle))),
    CONSTRAINT limits_chunk_targets_check CHECK (coalesce(min_chunk_target_ms <= chunk_target_ms, true)
        OR belfry.reject('limits', 'min_chunk_target_ms', format('%s is above chunk_target_ms; allowed values: null (no floor), 1 to %s', min_chunk_target_ms, chunk_target_ms))),
    CONSTRAINT limits_chunk_rows_check CHECK (coalesce(min_chunk_rows <= max_chunk_rows, true)
        OR belfry.reject('limits', 'min_chunk_rows', format('%s is above max_chunk_rows; allowed values: null (no floor), 1 to %s', min_chunk_rows, max_chunk_rows)))
);

INSERT INTO belfry.limits DEFAULT VALUES;

-- They apply to every request.
GRANT SELECT ON belfry.limits TO PUBLIC;

CREATE TRIGGER limits_record AFTER UPDATE ON belfry.limits
    FOR EACH ROW EXECUTE FUNCTION belfry.record('limits');

-- The ceiling of a job of this category without max_recipients. NULL means no ceiling. It runs with its
-- owner's rights, because roles that may only INSERT cannot read categories.
CREATE FUNCTION belfry.most_recipients(category text) RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN (SELECT c.max_recipients FROM belfry.categories c WHERE c.name = $1);

-- Whether jobs of this category with at most max_recipients recipients (NULL means no maximum) need the
-- approval of a second person. Recipients are not counted: the walk stops a job at its max_recipients. Rights as for
-- most_recipients.
CREATE FUNCTION belfry.approval_needed(category text, max_recipients integer) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN coalesce((SELECT coalesce($2 > c.approval_above, c.approval_above IS NOT NULL) FROM belfry.categories c WHERE c.name = $1), false);

-- Whether a job with this number of recipients exceeds approval_above together with the requester's other
-- jobs of the category in this clock hour that had no approval: otherwise many small jobs would need none.
-- A job within the limit is counted. Transactions of one requester wait for each other here. The hour is in
-- UTC, because a caller's TimeZone of +00:01 would begin another hour. Requesters are distinguished as in
-- activities_limit. All schedules count as one requester: any operator can create another schedule. A
-- category without approval_above is not counted. jobs_record calls it for inserted jobs only, as activities_limit
-- counts: a check before the INSERT would have to skip repeated idempotency keys, and its snapshot may contain
-- the job of a key that is being deleted.
CREATE FUNCTION belfry.approval_exceeded(category text, recipients bigint, requested_by text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most   constant integer := (SELECT c.approval_above FROM belfry.categories c WHERE c.name = $1);
    sender constant text := 'jobs of ' || CASE WHEN NOT has_column_privilege(session_user, 'belfry.jobs', 'approved_count', 'UPDATE') THEN session_user
        WHEN lower(btrim($3)) LIKE 'schedule %' THEN 'schedules' ELSE session_user || ' for ' || lower(btrim($3)) END;
BEGIN
    IF most IS NULL THEN
        RETURN false;
    END IF;
    DELETE FROM belfry.activity_counts c WHERE c.category = $1 AND c.requester = sender AND c.hour < clock_timestamp() - interval '2 hours';
    INSERT INTO belfry.activity_counts AS c VALUES ($1, sender, date_trunc('hour', clock_timestamp(), 'UTC'), greatest($2, 0))
        ON CONFLICT ON CONSTRAINT activity_counts_pkey DO UPDATE SET sent = c.sent + excluded.sent WHERE c.sent + excluded.sent::bigint <= most;
    RETURN NOT FOUND;
END $$;

-- Whether an inserted job opens one lane too many: each claim probes every lane with a waiting job. A lane is
-- open if an older job waits in it or belfry.lanes has it, and so is default. Transactions that are open at
-- once do not see each other's lanes, so that each may open as many; none waits for another.
CREATE FUNCTION belfry.lanes_exceeded(lane text, id bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF $1 = 'default' OR EXISTS (SELECT FROM belfry.lanes l WHERE l.name = $1)
        OR EXISTS (SELECT FROM belfry.jobs j WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane = $1 AND j.id < $2) THEN
        RETURN false;
    END IF;
    RETURN (WITH RECURSIVE waiting (lane, n) AS (
                (SELECT j.lane, 1 FROM belfry.jobs j WHERE j.status = 'PENDING' AND NOT j.awaits_approval ORDER BY j.lane LIMIT 1)
                 UNION ALL
                SELECT x.lane, w.n + 1
                  FROM waiting w
                 CROSS JOIN LATERAL (SELECT j.lane FROM belfry.jobs j WHERE j.status = 'PENDING' AND NOT j.awaits_approval AND j.lane > w.lane ORDER BY j.lane LIMIT 1) x
                 WHERE w.n <= 100)
            SELECT count(*) >= 100 FROM waiting w WHERE w.lane <> $1);
END $$;

-- Whether a group has more than 100 jobs. Transactions that are open at once do not see each other's jobs.
CREATE FUNCTION belfry.group_exceeded(group_id uuid) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT count(*) > 100 FROM (SELECT FROM belfry.jobs j WHERE j.group_id = $1 LIMIT 101) g $$;

-- Rejects a job in one lane too many, or in a group with 100 jobs, after the INSERT like
-- approval_exceeded, and with the rights of jobs_limit.
CREATE FUNCTION belfry.jobs_count() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    limited constant text := nullif(current_setting('belfry.limited', true), '');
    ok      boolean;
BEGIN
    ok := limited IS NULL AND has_column_privilege('belfry.jobs', 'lane', 'UPDATE') OR NOT belfry.lanes_exceeded(NEW.lane, NEW.id)
        OR belfry.reject('jobs', 'lane', format('%L would be one more lane with a waiting job, and 100 are the limit for %s; allowed values now: default, lanes with a waiting job, and those of belfry.lanes', left(NEW.lane, 70), coalesce(limited, current_user)),
            format('An operator adds it: INSERT INTO belfry.lanes (name) VALUES (%L);', left(NEW.lane, 70)));
    ok := NEW.group_id IS NULL OR limited IS NULL AND has_column_privilege('belfry.jobs', 'group_id', 'UPDATE') OR NOT belfry.group_exceeded(NEW.group_id)
        OR belfry.reject('jobs', 'group_id', format('group %s has 100 jobs, the limit for %s; allowed values: null, and groups with fewer jobs', NEW.group_id, coalesce(limited, current_user)),
            'Enqueue the job under another group_id, or by a role that may UPDATE belfry.jobs (group_id).');
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_count AFTER INSERT ON belfry.jobs
    FOR EACH ROW WHEN (NEW.lane <> 'default' OR NEW.group_id IS NOT NULL) EXECUTE FUNCTION belfry.jobs_count();

-- Rejects values above a ceiling or below a floor, and NULL if there is a ceiling. It runs with the rights
-- of the role that executes the INSERT, for example the owner of a SECURITY DEFINER function. Columns that
-- this role may UPDATE are not limited, unless the transaction enqueues for the requester in belfry.limited.
-- max_recipients has two ceilings: the category's and the ceiling in belfry.limits. A job without a value
-- gets the lower one; for roles that may UPDATE the column, only the category's ceiling applies. The rule of
-- approval of the category is then applied to the result, for all roles.
-- It also refuses to resume an aborted job to a role that may not UPDATE its status: one that delivers may
-- abort, and must not undo an operator's abort. Only a role that may UPDATE the cursor ends a walk or lets
-- a job expire: another could mark a RUNNING job as PROCESSED, and the rest of its recipients would be left out.
CREATE FUNCTION belfry.jobs_limit() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked   jsonb;
    limited constant text := nullif(current_setting('belfry.limited', true), '');
    usual   constant text := 'null (the runner''s setting), ';
    col     text;
    most    integer := belfry.most_recipients(NEW.category);
    problem text;
    allowed text;
    ok      boolean;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        ok := NEW.abort_requested OR NOT OLD.abort_requested OR has_column_privilege('belfry.jobs', 'status', 'UPDATE')
            OR belfry.reject('jobs', 'abort_requested', format('job %s is ABORTED, and %s may abort jobs and not resume them; allowed values: true', OLD.id, current_user),
                'Roles that may UPDATE belfry.jobs (status) resume.');
        ok := NOT (OLD.status = 'RUNNING' AND NEW.status IN ('PROCESSED', 'FAILED') OR OLD.status = 'PENDING' AND NEW.status = 'EXPIRED')
            OR has_column_privilege('belfry.jobs', 'cursor', 'UPDATE')
            OR belfry.reject('jobs', 'status', format('job %s is %s, and only a runner makes it %s; allowed values for %s: ABORTED', OLD.id, OLD.status, NEW.status, current_user),
                'Roles that may UPDATE belfry.jobs (cursor) run jobs.');
        RETURN NEW;
    END IF;
    -- A lane runs its jobs by priority, then schedule_at: a past time would precede all other jobs. Times that
    -- were allowed remain allowed, since a request may be repeated later: deliver_at moves along, and a job
    -- that has expired is not run.
    IF NEW.schedule_at < now() AND coalesce(NEW.expires_at > now(), true) AND (limited IS NOT NULL OR NOT has_column_privilege('belfry.jobs', 'schedule_at', 'UPDATE')) THEN
        IF NEW.deliver_at >= NEW.schedule_at THEN
            NEW.deliver_at := greatest(NEW.deliver_at, now());
        END IF;
        NEW.schedule_at := now();
    END IF;
    IF limited IS NOT NULL OR NOT has_column_privilege('belfry.jobs', 'max_recipients', 'UPDATE') THEN
        most := least(most, (SELECT l.max_recipients FROM belfry.limits l));
    END IF;
    IF NEW.max_recipients IS NULL THEN
        NEW.max_recipients := most;
    END IF;
    NEW.needs_approval := NEW.needs_approval OR belfry.approval_needed(NEW.category, NEW.max_recipients);
    IF NEW.priority = 0 AND num_nonnulls(NEW.max_rows_per_second, NEW.duty_cycle, NEW.chunk_target_ms, NEW.max_chunk_rows, NEW.max_skips, NEW.health_checks, most) = 0 THEN
        RETURN NEW; -- as most
    END IF;
    asked := to_jsonb(NEW);
    FOR col, problem, allowed IN
        SELECT v.col, CASE WHEN c.over THEN 'beyond the ceiling' ELSE 'below the floor' END,
               v.usual || CASE WHEN v.boundless = '0' AND l.of ->> v.col IS NULL THEN '0 (no limit), ' ELSE '' END
                   || concat_ws(' to ', coalesce(l.of ->> v.floor, v.lowest), coalesce(l.of ->> v.col, v.highest))
          FROM (SELECT to_jsonb(l) || jsonb_build_object('max_recipients', most) FROM belfry.limits l) l (of)
         CROSS JOIN (VALUES ('priority', 'min_priority', NULL::jsonb, '', '-1000', '1000'), ('max_rows_per_second', 'min_rows_per_second', '0', usual, '1', '10000000'),
            ('duty_cycle', 'min_duty_cycle', NULL, usual, '0.01', '1'), ('chunk_target_ms', 'min_chunk_target_ms', NULL, usual, '1', '60000'),
            ('max_chunk_rows', 'min_chunk_rows', NULL, usual, '1', '1000000'), ('max_skips', NULL, NULL, usual, '0', '10000000'),
            ('health_checks', NULL, 'false', usual, NULL, NULL), ('max_recipients', NULL, NULL, 'null (the ceiling), ', '1', NULL)) v (col, floor, boundless, usual, lowest, highest)
         CROSS JOIN LATERAL (SELECT l.of -> v.col NOT IN ('null', 'false') AND (asked -> v.col > l.of -> v.col OR asked -> v.col IS NOT DISTINCT FROM v.boundless) AS over,
            l.of ->> v.floor IS NOT NULL AND asked ->> v.col IS NOT NULL AND asked -> v.col < l.of -> v.floor AND asked -> v.col IS DISTINCT FROM v.boundless AS under) c
         WHERE c.over OR c.under
    LOOP
        ok := limited IS NULL AND has_column_privilege('belfry.jobs', col, 'UPDATE')
            OR belfry.reject('jobs', col, format('%s is %s for %s; allowed values: %s', asked ->> col, problem, coalesce(limited, current_user), allowed),
                format('%s go further. An %s moves the %s: belfry limits set %s=…',
                    CASE WHEN limited IS NULL THEN format('Roles that may UPDATE belfry.jobs (%s)', col) ELSE 'Operators' END, CASE WHEN limited IS NULL THEN 'operator' ELSE 'admin' END,
                    CASE problem WHEN 'below the floor' THEN 'floor' ELSE 'ceiling' END, CASE WHEN problem <> 'below the floor' THEN replace(col, '_ms', '') ELSE 'min_' || replace(replace(col, 'max_', ''), '_ms', '') END)
                    || CASE col WHEN 'max_recipients' THEN format(', or belfry categories set %s max_recipients=…', NEW.category) ELSE '' END);
    END LOOP;
    RETURN NEW;
END $$;

CREATE TRIGGER jobs_limit BEFORE INSERT OR UPDATE OF abort_requested, status ON belfry.jobs
    FOR EACH ROW EXECUTE FUNCTION belfry.jobs_limit();

-- The content that an approval covers in addition to the count: a change voids the approval.
CREATE FUNCTION belfry.approval_binds() RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '{type,category,title,body,data,variants,route,audience,schedule_at,deliver_at,requested_by}'::text[];

-- The authors of a job, by actor and by login: the persons who enqueued it, changed the content that an
-- approval covers, or wrote its schedule. None of them may approve it.
CREATE FUNCTION belfry.job_hands(id bigint) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH hands(name) AS (
        SELECT j.requested_by FROM belfry.jobs j WHERE j.id = $1
         UNION
        SELECT n.name
          FROM belfry.job_events e
         CROSS JOIN LATERAL (VALUES (e.actor), (e.detail ->> 'session_user')) n(name)
         WHERE e.job_id = $1 AND (e.kind = 'enqueued' OR e.kind = 'changed' AND e.detail -> 'after' ?| belfry.approval_binds())
    )
    SELECT h.name FROM hands h WHERE h.name IS NOT NULL
     UNION
    SELECT n.name
      FROM hands h
      JOIN belfry.events v ON v.subject = 'schedule' AND v.name = substr(h.name, 10) AND belfry.is_act(v.kind, v.detail) AND v.kind IN ('created', 'changed')
     CROSS JOIN LATERAL (VALUES (v.actor), (v.detail ->> 'session_user')) n(name)
     WHERE h.name LIKE 'schedule %' AND n.name IS NOT NULL
$$;

REVOKE EXECUTE ON FUNCTION belfry.job_hands(bigint) FROM PUBLIC;

-- The part of jobs_validate for the approval by a second person, for all clients. Setting approved_count IS
-- the approval by belfry.actor() of the job's present content for that number of recipients: the walk writes
-- at most 5 % more rows in addition to the written ones, because an audience can grow between the preview
-- and the walk. NULL revokes it, and so does every change of the covered content. A job without approval
-- waits (awaits_approval) unless it is ABORTED or EXPIRED: it is not claimed and no message of it is sent,
-- but it can be aborted and expires like any other job. A RUNNING job never starts to need approval; after
-- abort, correction and resume it waits. A job that needs approval keeps needing it when its category
-- changes. A job with a higher ceiling or another category is evaluated again.
CREATE FUNCTION belfry.jobs_approve(was belfry.jobs, is_now belfry.jobs) RETURNS belfry.jobs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    approver constant text := belfry.actor();
    -- NULL if the role administers users and declares that it acts for the approver, as belfry's
    -- programs do: many people share its login.
    login    constant text := CASE WHEN current_setting('belfry.acts_for', true) IS DISTINCT FROM approver OR NOT has_table_privilege(session_user, 'belfry.users', 'UPDATE') THEN session_user END;
    changed  text[] := '{}';
    ok       boolean;
BEGIN
    ok := (is_now.approved_recipients, is_now.approved_at, is_now.approved_by, is_now.unapproved_at) IS NOT DISTINCT FROM (was.approved_recipients, was.approved_at, was.approved_by, was.unapproved_at)
        OR belfry.reject('jobs', 'approved_count', format('decides about the approval of job %s alone; allowed changes of approved_recipients, approved_at, approved_by and unapproved_at: none', was.id));
    ok := is_now.needs_approval OR NOT was.needs_approval
        OR belfry.reject('jobs', 'needs_approval', format('job %s needs approval; allowed values: true', was.id), 'belfry.approve(id, count) gives it.');
    is_now.needs_approval := is_now.needs_approval
        OR (is_now.category, is_now.max_recipients) IS DISTINCT FROM (was.category, was.max_recipients) AND belfry.approval_needed(is_now.category, is_now.max_recipients);
    IF NOT is_now.needs_approval AND is_now.max_recipients IS NOT NULL AND (is_now.category <> was.category OR is_now.max_recipients > coalesce(was.max_recipients, 0)) THEN
        is_now.needs_approval := belfry.approval_exceeded(is_now.category, is_now.max_recipients - CASE WHEN is_now.category = was.category THEN coalesce(was.max_recipients, 0) ELSE 0 END, approver); -- not the job's requester, of which there are many
    END IF;
    IF num_nonnulls(was.approved_count, is_now.approved_count) > 0 THEN
        changed := ARRAY(SELECT k FROM unnest(belfry.approval_binds()) k, to_jsonb(was) o, to_jsonb(is_now) n
            WHERE n -> k <> o -> k AND NOT (k = 'schedule_at' AND was.started_at IS NOT NULL)
              AND NOT (k = 'audience' AND belfry.jobs_forget(was.audience, is_now.audience)));
    END IF;

    IF is_now.approved_count IS NOT NULL AND was.approved_count IS NULL THEN
        ok := was.awaits_approval
            OR belfry.reject('jobs', 'approved_count', CASE WHEN was.needs_approval THEN format('job %s is %s and waits for no approval', was.id, was.status)
                    ELSE format('job %s needs no approval', was.id) END || '; allowed values now: null',
                CASE WHEN was.needs_approval THEN 'Resume or retry it first: it waits for approval then.' END);
        ok := cardinality(changed) = 0 AND is_now.status = was.status AND is_now.abort_requested = was.abort_requested
            OR belfry.reject('jobs', 'approved_count', format('job %s would be changed and approved at once; allowed values now: null', was.id), 'Change it first; then somebody else approves it.');
        ok := is_now.approved_count BETWEEN 1 AND 2000000000
            OR belfry.reject('jobs', 'approved_count', is_now.approved_count || ' is not allowed; allowed values: 1 to 2000000000, how many the job is to reach');
        ok := NOT EXISTS (SELECT FROM belfry.job_hands(was.id) h WHERE lower(btrim(h)) IN (lower(btrim(approver)), lower(login)));
        ok := ok OR belfry.reject('jobs', 'approved_by', format('%L enqueued or changed job %s; allowed values: who did neither',
                left(CASE WHEN EXISTS (SELECT FROM belfry.job_hands(was.id) h WHERE lower(btrim(h)) = lower(btrim(approver))) THEN approver ELSE login END, 110), was.id), 'A second person approves it.');
        is_now.approved_at := clock_timestamp();
        is_now.approved_by := approver;
        is_now.approved_recipients := least(2000000000, is_now.rows_written + ceil(is_now.approved_count * 1.05));
    ELSIF is_now.approved_count <> was.approved_count THEN
        ok := belfry.reject('jobs', 'approved_count', format('job %s is approved for %s; allowed values now: null', was.id, was.approved_count));
    ELSIF cardinality(changed) > 0 THEN
        is_now.approved_count := NULL;
    END IF;
    IF is_now.approved_count IS NULL AND was.approved_count IS NOT NULL THEN
        is_now.approved_recipients := NULL;
        is_now.approved_at := NULL;
        is_now.approved_by := NULL;
        is_now.unapproved_at := clock_timestamp();
    END IF;
    ok := is_now.status <> 'RUNNING' OR is_now.abort_requested OR NOT is_now.needs_approval OR is_now.approved_count IS NOT NULL
        OR belfry.reject('jobs', CASE WHEN was.status <> 'RUNNING' THEN 'status' WHEN cardinality(changed) > 0 THEN changed[1]
                WHEN was.approved_count IS NOT NULL THEN 'approved_count' WHEN is_now.max_recipients IS DISTINCT FROM was.max_recipients THEN 'max_recipients' ELSE 'needs_approval' END,
            CASE WHEN was.status <> 'RUNNING' THEN format('job %s waits for approval; allowed values now: %s, ABORTED', was.id, was.status)
                ELSE format('job %s is RUNNING and would need approval; allowed changes: none', was.id) END,
            CASE WHEN was.status = 'RUNNING' THEN 'Abort it, correct it, resume it: it waits for approval then.' END);
    RETURN is_now;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.jobs_approve(belfry.jobs, belfry.jobs) FROM PUBLIC;

-- Whether the job that was enqueued under a key has this content, for clients that repeat the key and may
-- not read jobs: it runs with its owner's rights and returns only a boolean. It confirms a guess of the content, so
-- the profiles that enqueue have EXECUTE.
CREATE FUNCTION belfry.says(idempotency_key text, type text, category text, title text, body text, audience jsonb, data jsonb, variants jsonb) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(bool_and((j.category, j.title, j.body, j.audience, j.data, j.variants) IS NOT DISTINCT FROM ($3, $4, $5, $6, $7, $8)), true)
      FROM belfry.jobs j WHERE j.idempotency_key = $1 AND j.type = $2
$$;

REVOKE EXECUTE ON FUNCTION belfry.says(text, text, text, text, text, jsonb, jsonb, jsonb) FROM PUBLIC;

-- How many of the channels that an audience lists are not in channels.relation
-- (belfry.recipients), and up to five of them. Other audiences list none. The caller
-- needs SELECT on the relation, and a policy that hides rows of it is an error. Its search_path is handled
-- as in belfry.channel_id.
CREATE FUNCTION belfry.audience_missing(audience jsonb, OUT missing bigint, OUT sample text[])
LANGUAGE plpgsql STABLE SET row_security = off AS $$
BEGIN
    EXECUTE (SELECT pg_catalog.format('SELECT pg_catalog.count(*), coalesce((pg_catalog.array_agg(l.key ORDER BY l.key))[1:5], ''{}'')
                              FROM (SELECT DISTINCT e.key FROM pg_catalog.jsonb_array_elements_text($1) e(key)) l
                             WHERE NOT EXISTS (SELECT FROM %s c WHERE %s)', belfry.trusted_relation('recipients', r.relation_schema, r.relation_name, r.relation_owner),
                           CASE WHEN audience OPERATOR(pg_catalog.?) 'ids' THEN 'c.id OPERATOR(pg_catalog.=) l.key::bigint' ELSE 'c.external_id OPERATOR(pg_catalog.=) l.key' END)
               FROM belfry.recipients r)
       INTO missing, sample
      USING CASE WHEN (audience OPERATOR(pg_catalog.->>) 'kind') OPERATOR(pg_catalog.=) 'channels'
                 THEN coalesce(audience OPERATOR(pg_catalog.->) 'ids', audience OPERATOR(pg_catalog.->) 'external_ids') ELSE '[]' END;
END $$;

-- enqueue inserts one job in the caller's transaction and returns its id. With an
-- idempotency key that this type has seen, it returns the first job's id instead. A warning
-- names listed channels that there are not, to callers who may read all of channels.relation.
CREATE FUNCTION belfry.enqueue(
    type text, category text, title text, body text DEFAULT '',
    audience jsonb DEFAULT '{"kind": "everyone"}', data jsonb DEFAULT '{}',
    schedule_at timestamptz DEFAULT now(), deliver_at timestamptz DEFAULT NULL,
    lane text DEFAULT 'default', priority integer DEFAULT 0,
    idempotency_key text DEFAULT NULL, group_id uuid DEFAULT NULL, requested_by text DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, route text[] DEFAULT NULL, variants jsonb DEFAULT '{}', max_recipients integer DEFAULT NULL, needs_approval boolean DEFAULT false,
    max_rows_per_second integer DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    job_id bigint;
    listed record;
BEGIN
    INSERT INTO belfry.jobs (type, category, title, body, audience, data, schedule_at, deliver_at, lane, priority,
                             idempotency_key, group_id, requested_by, expires_at, route, variants, max_recipients, needs_approval, max_rows_per_second)
    VALUES (enqueue.type, enqueue.category, enqueue.title, enqueue.body, enqueue.audience, enqueue.data, enqueue.schedule_at,
            enqueue.deliver_at, enqueue.lane, enqueue.priority, enqueue.idempotency_key, enqueue.group_id,
            coalesce(enqueue.requested_by, session_user), enqueue.expires_at, enqueue.route, enqueue.variants, enqueue.max_recipients, enqueue.needs_approval,
            enqueue.max_rows_per_second)
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
        -- A warning and no error: an operator may have corrected the job meanwhile.
        IF NOT belfry.says(enqueue.idempotency_key, enqueue.type, enqueue.category, enqueue.title, enqueue.body, enqueue.audience, enqueue.data, enqueue.variants) THEN
            RAISE WARNING USING MESSAGE = format('belfry.jobs.idempotency_key: %L enqueued job %s before, which says something else; this request changes nothing', enqueue.idempotency_key, job_id),
                HINT = 'Another request needs another key.';
        END IF;
    END IF;
    IF audience ->> 'kind' = 'channels' THEN
        BEGIN
            SELECT * INTO listed FROM belfry.audience_missing(audience);
            IF listed.missing > 0 THEN
                RAISE WARNING USING MESSAGE = format('belfry.jobs.audience: %s of the listed channels do not exist now, as %s', listed.missing, array_to_string(listed.sample, ', '));
            END IF;
        EXCEPTION WHEN insufficient_privilege OR check_violation THEN -- the caller may not read the relation or not all of it, or it is not trusted
        END;
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
    idempotency_key text DEFAULT NULL, requested_by text DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL, route text[] DEFAULT NULL, variants jsonb DEFAULT '{}', max_recipients integer DEFAULT NULL, needs_approval boolean DEFAULT false,
    max_rows_per_second integer DEFAULT NULL
) RETURNS TABLE (id bigint, type text, group_id uuid)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    one constant uuid := coalesce((SELECT j.group_id FROM belfry.jobs j
        WHERE j.idempotency_key = enqueue_group.idempotency_key AND j.type = ANY (types) AND j.group_id IS NOT NULL ORDER BY j.id LIMIT 1), gen_random_uuid());
    ok  boolean := cardinality(types) > 0 AND (SELECT count(DISTINCT u) = count(*) FROM unnest(types) u);
    t   text;
    ids bigint[] := '{}';
BEGIN
    ok := ok OR belfry.reject('jobs', 'type', 'a group takes different job types; allowed values: ' || belfry.known('job type'));
    -- In the order of their names: two callers with one key never deadlock.
    FOR t IN SELECT u FROM unnest(types) u ORDER BY u COLLATE "C" LOOP
        ids := ids || belfry.enqueue(t, enqueue_group.category, enqueue_group.title, enqueue_group.body, enqueue_group.audience,
            enqueue_group.data, enqueue_group.schedule_at, enqueue_group.deliver_at, enqueue_group.lane, enqueue_group.priority,
            enqueue_group.idempotency_key, one, enqueue_group.requested_by, enqueue_group.expires_at, enqueue_group.route, enqueue_group.variants, enqueue_group.max_recipients, enqueue_group.needs_approval,
            enqueue_group.max_rows_per_second);
    END LOOP;
    RETURN QUERY SELECT j.id, j.type, j.group_id FROM unnest(types) WITH ORDINALITY u(type, o)
        JOIN belfry.jobs j ON j.id = ANY (ids) AND j.type = u.type ORDER BY u.o;
END $$;

-- The result of an act on a job, for operators in psql. note contains the changes, or the reason why nothing
-- changed.
CREATE TYPE belfry.job_act AS (id bigint, type text, was text, status text, note text);

-- Changes one job: its place in the queue at any time, its load settings while it runs, its content while it
-- does not. NULL resets a setting to the runner's. Returns the job and the changes. No row: the job does not
-- exist. A route of null takes the category's, and max_recipients of null lifts the ceiling.
CREATE FUNCTION belfry.set(id bigint, changes jsonb, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.job_act
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    allowed constant text[] := '{category,title,body,data,variants,route,audience,lane,priority,schedule_at,deliver_at,expires_at,max_recipients,max_rows_per_second,duty_cycle,chunk_target_ms,max_chunk_rows,health_checks,max_skips}';
    ok      boolean := jsonb_typeof(changes) = 'object'
        OR belfry.reject('jobs', 'changes', 'must be a JSON object; allowed keys: ' || array_to_string(allowed, ', '));
    col     text := (SELECT min(k) FROM jsonb_object_keys(changes) k WHERE k <> ALL (allowed));
    before  jsonb;
BEGIN
    ok := col IS NULL OR belfry.reject('jobs', left(col, 60), 'cannot be set; allowed keys: ' || array_to_string(allowed, ', '));
    FOR col IN SELECT k FROM jsonb_object_keys(changes) k ORDER BY k LOOP
        ok := col NOT IN ('category', 'title', 'body', 'lane') OR jsonb_typeof(changes -> col) IN ('string', 'null')
            OR belfry.reject('jobs', col, format('%s is not allowed; allowed values: texts', left((changes -> col)::text, 60)));
        BEGIN
            PERFORM jsonb_populate_record(NULL::belfry.jobs, jsonb_build_object(col, changes -> col));
        EXCEPTION WHEN data_exception THEN
            ok := belfry.reject('jobs', col, format('%s is not allowed; allowed values: %s', left((changes -> col)::text, 60),
                CASE WHEN col ~ '_at$' THEN 'null, or timestamps such as "2026-01-02T15:04:05Z"'
                     WHEN col = 'health_checks' THEN 'null, true, false'
                     WHEN col = 'duty_cycle' THEN 'null, or numbers from 0.01 to 1'
                     WHEN col = 'route' THEN 'null, or lists of media such as ["push", "sms"]'
                     ELSE 'null, or whole numbers' END));
        END;
    END LOOP;
    PERFORM belfry.act(actor, reason);
    before := (SELECT to_jsonb(j) FROM belfry.jobs j WHERE j.id = $1);
    EXECUTE format('UPDATE belfry.jobs j SET (%1$s) = (SELECT %1$s FROM jsonb_populate_record(j, $2)) WHERE j.id = $1', array_to_string(allowed, ', ')) USING id, changes;
    PERFORM belfry.act(NULL, NULL);
    RETURN QUERY SELECT j.id, j.type, before ->> 'status', j.status,
            coalesce('changed: ' || (SELECT string_agg(k, ', ' ORDER BY k) FROM jsonb_object_keys(changes) k WHERE before -> k IS DISTINCT FROM to_jsonb(j) -> k),
                     'it is so already')
      FROM belfry.jobs j WHERE j.id = $1;
END $$;

-- Locks an object until the transaction ends, and returns its version (belfry.version, belfry.job_version).
-- The caller can thus check that it has not changed since it was read, and no other transaction changes it
-- before the act ends. NULL means that the object does not exist. For jobs, name is the id. A lane or sender
-- without a row gets one to lock.
CREATE FUNCTION belfry.lock_version(subject text, name text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CASE subject
        WHEN 'job' THEN PERFORM FROM belfry.jobs j WHERE j.id = $2::bigint FOR UPDATE;
        WHEN 'lane' THEN
            INSERT INTO belfry.lanes (name) VALUES ($2) ON CONFLICT ON CONSTRAINT lanes_pkey DO NOTHING;
            PERFORM FROM belfry.lanes l WHERE l.name = $2 FOR UPDATE;
        WHEN 'sender' THEN
            INSERT INTO belfry.senders (name) VALUES ($2) ON CONFLICT ON CONSTRAINT senders_pkey DO NOTHING;
            PERFORM FROM belfry.senders s WHERE s.name = $2 FOR UPDATE;
        WHEN 'schedule' THEN PERFORM FROM belfry.schedules s WHERE s.name = $2 FOR UPDATE;
        WHEN 'category' THEN PERFORM FROM belfry.categories c WHERE c.name = $2 FOR UPDATE;
        WHEN 'limits' THEN PERFORM FROM belfry.limits FOR UPDATE;
    END CASE;
    RETURN CASE WHEN NOT FOUND THEN NULL WHEN subject = 'job' THEN belfry.job_version($2::bigint) ELSE belfry.version(subject, $2) END;
END $$;

-- Deletes the row that lock_version inserted in the same transaction, unless the act has changed it:
-- resuming a lane that was never paused leaves no row.
CREATE FUNCTION belfry.unlock_version(subject text, name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CASE subject
        WHEN 'lane' THEN DELETE FROM belfry.lanes l WHERE l.name = $2 AND l.xmin = pg_current_xact_id()::xid AND belfry.version($1, $2) = 0;
        WHEN 'sender' THEN DELETE FROM belfry.senders s WHERE s.name = $2 AND s.xmin = pg_current_xact_id()::xid AND belfry.version($1, $2) = 0;
        ELSE NULL; -- other subjects have a permanent row, or do not exist
    END CASE;
END $$;

-- Implements the acts below, one job after the other in the order of the ids. A role that may only UPDATE
-- abort_requested may abort and resume.
CREATE FUNCTION belfry.act_on(act text, ids bigint[], actor text, reason text, changes jsonb DEFAULT NULL) RETURNS SETOF belfry.job_act
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one  bigint;
    was  text;
BEGIN
    FOREACH one IN ARRAY ids LOOP
        was := (SELECT j.status FROM belfry.jobs j WHERE j.id = one);
        PERFORM belfry.act(actor, reason);
        CASE act
            WHEN 'abort' THEN
                UPDATE belfry.jobs j SET abort_requested = true WHERE j.id = one AND j.status IN ('PENDING', 'RUNNING', 'PROCESSED', 'FAILED');
            WHEN 'resume' THEN
                UPDATE belfry.jobs j SET abort_requested = false WHERE j.id = one AND j.status = 'ABORTED';
            WHEN 'retry' THEN
                UPDATE belfry.jobs j SET status = 'PENDING' WHERE j.id = one AND j.status IN ('FAILED', 'EXPIRED');
            WHEN 'resume_edited' THEN
                PERFORM FROM belfry.jobs j WHERE j.id = one AND j.status IN ('ABORTED', 'FAILED') FOR UPDATE;
                IF FOUND THEN
                    PERFORM FROM belfry.set(one, changes, actor, reason);
                    PERFORM belfry.act(actor, reason); -- which set took back
                    UPDATE belfry.jobs j SET abort_requested = false, status = CASE j.status WHEN 'FAILED' THEN 'PENDING' ELSE j.status END WHERE j.id = one;
                END IF;
            WHEN 'retry_skipped' THEN
                PERFORM FROM belfry.jobs j WHERE j.id = one AND j.status IN ('PROCESSED', 'FAILED') FOR UPDATE;
                IF FOUND THEN
                    UPDATE belfry.job_skips s SET retry = true WHERE s.job_id = one;
                    UPDATE belfry.jobs j SET status = 'PENDING' WHERE j.id = one AND FOUND;
                END IF;
        END CASE;
        PERFORM belfry.act(NULL, NULL);
        RETURN QUERY SELECT j.id, j.type, was, j.status, CASE WHEN j.status <> was THEN '' ELSE CASE act
                WHEN 'abort' THEN CASE was WHEN 'ABORTED' THEN 'it was ABORTED already' WHEN 'EXPIRED' THEN 'an EXPIRED job sends nothing' ELSE 'no message of it is left to hold' END
                WHEN 'resume' THEN CASE WHEN was IN ('FAILED', 'EXPIRED') THEN 'belfry.retry is for FAILED and EXPIRED jobs' ELSE 'only an ABORTED job is resumed' END
                WHEN 'retry' THEN CASE was WHEN 'ABORTED' THEN 'belfry.resume is for ABORTED jobs' ELSE 'only a FAILED or EXPIRED job is retried' END
                WHEN 'resume_edited' THEN 'only an ABORTED or FAILED job is corrected and goes on'
                WHEN 'retry_skipped' THEN CASE WHEN was IN ('PROCESSED', 'FAILED') THEN 'no recipient of it was skipped' ELSE 'only a PROCESSED or FAILED job tries skipped recipients again' END
            END END FROM belfry.jobs j WHERE j.id = one;
    END LOOP;
END $$;

-- The operator's acts, with actor and reason, on one job or on all of a group. Each returns its result; no
-- row means that the job does not exist. If the status does not allow the act, nothing changes and note
-- contains the reason. abort stops a job that is PENDING or RUNNING, and one that is PROCESSED or FAILED as
-- long as messages are left: they are held. resume goes on: with them, if the walk is complete, otherwise
-- from the cursor. retry runs a FAILED job again, and an EXPIRED one when its expires_at is lifted or lies
-- ahead again.
CREATE FUNCTION belfry.abort(id bigint, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.job_act
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT * FROM belfry.act_on('abort', ARRAY[$1], $2, $3) $$;

CREATE FUNCTION belfry.resume(id bigint, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.job_act
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT * FROM belfry.act_on('resume', ARRAY[$1], $2, $3) $$;

CREATE FUNCTION belfry.retry(id bigint, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.job_act
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT * FROM belfry.act_on('retry', ARRAY[$1], $2, $3) $$;

CREATE FUNCTION belfry.abort_group(group_id uuid, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.job_act
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT * FROM belfry.act_on('abort', ARRAY(SELECT j.id FROM belfry.jobs j WHERE j.group_id = $1 ORDER BY j.id), $2, $3) $$;

CREATE FUNCTION belfry.resume_group(group_id uuid, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.job_act
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT * FROM belfry.act_on('resume', ARRAY(SELECT j.id FROM belfry.jobs j WHERE j.group_id = $1 ORDER BY j.id), $2, $3) $$;

CREATE FUNCTION belfry.retry_group(group_id uuid, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.job_act
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT * FROM belfry.act_on('retry', ARRAY(SELECT j.id FROM belfry.jobs j WHERE j.group_id = $1 ORDER BY j.id), $2, $3) $$;

-- Corrects the content or audience of an ABORTED or FAILED job and lets it continue as resume or retry do,
-- in one act. changes as for belfry.set. Messages that are not sent yet get the new content, also those that
-- were composed with the old one.
CREATE FUNCTION belfry.resume_edited(id bigint, changes jsonb, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.job_act
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT * FROM belfry.act_on('resume_edited', ARRAY[$1], $3, $4, $2) $$;

-- Marks every skipped recipient of a PROCESSED or FAILED job to be tried again and
-- makes the job PENDING. A job without any stays as it is.
CREATE FUNCTION belfry.retry_skipped(id bigint, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.job_act
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT * FROM belfry.act_on('retry_skipped', ARRAY[$1], $2, $3) $$;

-- Approves a job that waits for it (jobs_approve), for the number of recipients that the approver has
-- counted. version, unless NULL, is the version that the approver has read (belfry.lock_version). No row:
-- the job does not exist. If it is approved for that number already, nothing changes.
CREATE FUNCTION belfry.approve(id bigint, count integer, actor text DEFAULT NULL, reason text DEFAULT NULL, version bigint DEFAULT NULL) RETURNS SETOF belfry.job_act
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_now constant bigint := belfry.lock_version('job', $1::text);
    ok     boolean := count IS NOT NULL
        OR belfry.reject('jobs', 'approved_count', 'is required; allowed values: 1 to 2000000000, how many the job is to reach');
    before timestamptz := (SELECT j.approved_at FROM belfry.jobs j WHERE j.id = $1);
BEGIN
    ok := is_now = version OR num_nulls(is_now, version) > 0
        OR belfry.reject('jobs', 'version', format('job %s has version %s and was changed since %s; allowed values: that of what was looked at', id, is_now, version), 'Look at it again.');
    PERFORM belfry.act(actor, reason);
    UPDATE belfry.jobs j SET approved_count = $2 WHERE j.id = $1;
    PERFORM belfry.act(NULL, NULL);
    RETURN QUERY SELECT j.id, j.type, j.status, j.status, CASE WHEN before IS NOT NULL THEN 'it is approved already, by ' || j.approved_by
            ELSE format('approved for %s; no more than %s rows are written', j.approved_count, j.approved_recipients) END
      FROM belfry.jobs j WHERE j.id = $1;
END $$;
