-- Back to jobs with one content and no route, whose texts are no templates: two braces
-- are written as such again, and what else is a template stays as it stands. Activities
-- are gone.
DROP FUNCTION belfry.send_external(text, text, text, text, jsonb, jsonb, text[], timestamptz, text, text);
DROP FUNCTION belfry.send(bigint, text, text, text, jsonb, jsonb, text[], timestamptz, text, text);
DROP TABLE belfry.activities;
-- Their messages have nothing left to say, and another -1 may come.
DELETE FROM belfry.attempts WHERE job_id < 0;
DELETE FROM belfry.messages WHERE job_id < 0;
DROP FUNCTION belfry.activities_enqueue(), belfry.activities_validate();
DROP TRIGGER categories_record ON belfry.categories;
DROP TRIGGER categories_validate ON belfry.categories;
DROP FUNCTION belfry.categories_record(), belfry.categories_validate();
DROP INDEX belfry.messages_channel_idx, belfry.jobs_category_idx;
DROP TRIGGER jobs_validate_content ON belfry.jobs;
DROP FUNCTION belfry.jobs_validate_content(), belfry.check_content(text, text, text, jsonb), belfry.check_route(text, text[]), belfry.template_problem(text);
DROP FUNCTION belfry.enqueue_group(text[], text, text, text, jsonb, jsonb, timestamptz, timestamptz, text, integer, text, text, timestamptz, text[], jsonb);
DROP FUNCTION belfry.enqueue(text, text, text, text, jsonb, jsonb, timestamptz, timestamptz, text, integer, text, uuid, text, timestamptz, text[], jsonb);
DROP TRIGGER jobs_record_edit ON belfry.jobs;
ALTER TABLE belfry.jobs DISABLE TRIGGER jobs_validate;
UPDATE belfry.jobs j SET title = replace(j.title, '{{"{{"}}', '{{'), body = replace(j.body, '{{"{{"}}', '{{')
 WHERE j.type <> 'inbox' AND (j.title LIKE '%{{"{{"}}%' OR j.body LIKE '%{{"{{"}}%');
ALTER TABLE belfry.jobs ENABLE TRIGGER jobs_validate;
UPDATE belfry.job_revisions r SET title = replace(r.title, '{{"{{"}}', '{{'), body = replace(r.body, '{{"{{"}}', '{{')
 WHERE (r.title LIKE '%{{"{{"}}%' OR r.body LIKE '%{{"{{"}}%')
   AND (SELECT j.type <> 'inbox' FROM belfry.jobs j WHERE j.id = r.job_id);

-- As in 0004.
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

CREATE OR REPLACE FUNCTION belfry.set(id bigint, changes jsonb, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS SETOF belfry.jobs
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

CREATE OR REPLACE FUNCTION belfry.jobs_record_edit() RETURNS trigger
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

ALTER TABLE belfry.job_revisions DROP COLUMN variants;
ALTER TABLE belfry.jobs DROP COLUMN variants, DROP COLUMN route;
ALTER TABLE belfry.categories
    DROP CONSTRAINT categories_cap_check,
    DROP CONSTRAINT categories_quiet_check,
    DROP COLUMN cap_window, DROP COLUMN cap, DROP COLUMN quiet_end, DROP COLUMN quiet_start, DROP COLUMN route;
DELETE FROM belfry.categories c WHERE c.name = 'activity' AND NOT EXISTS (SELECT FROM belfry.jobs j WHERE j.category = 'activity');
DROP TABLE belfry.media;
