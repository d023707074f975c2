-- Back to schedules whose templates have neither route nor variants: those they have
-- are dropped, and two braces are written as such again.
CREATE OR REPLACE FUNCTION belfry.check_schedule_template(t jsonb, has_query boolean) RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
    allowed constant text[] := '{type,types,category,title,body,data,audience,lane,priority,deliver_after,expires_after}';
    span    constant text := '^([0-9]{1,4}h)?([0-9]{1,5}m)?([0-9]{1,6}s)?$';
    bad     text;
    known   text;
    types   jsonb;
    message text;
BEGIN
    IF t IS NULL OR jsonb_typeof(t) <> 'object' THEN
        PERFORM belfry.reject('schedules', 'template', 'must be a JSON object; allowed keys: ' || array_to_string(allowed, ', '));
    END IF;
    SELECT k INTO bad FROM jsonb_object_keys(t) k WHERE k <> ALL (allowed) ORDER BY k LIMIT 1;
    IF FOUND THEN
        PERFORM belfry.reject('schedules', 'template.' || left(bad, 60), 'is not allowed; allowed keys: ' || array_to_string(allowed, ', '));
    END IF;
    SELECT coalesce(string_agg(j.name, ', ' ORDER BY j.name), 'none') INTO known FROM belfry.job_types j;
    IF (t ? 'type') = (t ? 'types') THEN
        PERFORM belfry.reject('schedules', 'template.types', CASE WHEN t ? 'type' THEN 'and type are both given' ELSE 'is required' END
            || '; allowed values: a list of different job types, or type with one: ' || known);
    END IF;
    types := CASE WHEN t ? 'types' THEN t -> 'types' ELSE jsonb_build_array(t -> 'type') END;
    IF jsonb_typeof(types) <> 'array' OR jsonb_array_length(types) = 0
        OR (SELECT count(DISTINCT e) <> count(*) FROM jsonb_array_elements(types) e) THEN
        PERFORM belfry.reject('schedules', 'template.types', 'must be a list of different job types; allowed values: ' || known);
    END IF;
    SELECT coalesce(e #>> '{}', 'null') INTO bad FROM jsonb_array_elements(types) e
     WHERE jsonb_typeof(e) <> 'string' OR NOT EXISTS (SELECT FROM belfry.job_types j WHERE j.name = e #>> '{}') LIMIT 1;
    IF FOUND THEN
        PERFORM belfry.reject('schedules', 'template.types', format('%L is not a job type; allowed values: %s', left(bad, 60), known),
            'A runner built with a type of its own registers it when it starts.');
    END IF;
    SELECT k INTO bad FROM unnest('{category,title,body,lane}'::text[]) WITH ORDINALITY u(k, o)
     WHERE t ? k AND jsonb_typeof(t -> k) <> 'string' ORDER BY o LIMIT 1;
    IF FOUND THEN
        PERFORM belfry.reject('schedules', 'template.' || bad, format('is a JSON %s; allowed values: texts', jsonb_typeof(t -> bad)));
    END IF;
    SELECT coalesce(string_agg(c.name, ', ' ORDER BY c.name), 'none') INTO known FROM belfry.categories c;
    IF t ? 'category' AND NOT EXISTS (SELECT FROM belfry.categories c WHERE c.name = t ->> 'category') THEN
        PERFORM belfry.reject('schedules', 'template.category', format('%L is not a category; allowed values: %s', left(t ->> 'category', 60), known),
            'INSERT INTO belfry.categories adds one.');
    END IF;
    IF NOT t ? 'category' AND NOT has_query THEN
        PERFORM belfry.reject('schedules', 'template.category', 'is required without a query; allowed values: ' || known);
    END IF;
    IF t ? 'title' AND (t ->> 'title' !~ '\S' OR length(t ->> 'title') > 200) OR NOT t ? 'title' AND NOT has_query THEN
        PERFORM belfry.reject('schedules', 'template.title', CASE WHEN NOT t ? 'title' THEN 'is required without a query'
            WHEN length(t ->> 'title') > 200 THEN format('has %s characters', length(t ->> 'title')) ELSE 'is blank' END || '; allowed values: texts of 1 to 200 characters');
    END IF;
    IF length(t ->> 'body') > 10000 THEN
        PERFORM belfry.reject('schedules', 'template.body', format('has %s characters; allowed values: texts of 0 to 10000 characters', length(t ->> 'body')));
    END IF;
    IF t ? 'data' AND (jsonb_typeof(t -> 'data') <> 'object' OR octet_length((t -> 'data')::text) > 16384) THEN
        PERFORM belfry.reject('schedules', 'template.data', CASE WHEN jsonb_typeof(t -> 'data') <> 'object' THEN 'is a JSON ' || jsonb_typeof(t -> 'data')
            ELSE format('has %s bytes', octet_length((t -> 'data')::text)) END || '; allowed values: JSON objects of up to 16384 bytes');
    END IF;
    IF t ->> 'lane' !~ '^[a-z0-9][a-z0-9_-]{0,62}$' THEN
        PERFORM belfry.reject('schedules', 'template.lane', format('%L is not a lane name', left(t ->> 'lane', 70)) || '; allowed values: 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit');
    END IF;
    IF t ? 'priority' AND (jsonb_typeof(t -> 'priority') <> 'number' OR t ->> 'priority' !~ '^-?[0-9]{1,4}$' OR (t ->> 'priority')::integer NOT BETWEEN -1000 AND 1000) THEN
        PERFORM belfry.reject('schedules', 'template.priority', format('%s is not allowed; allowed values: whole numbers from -1000 to 1000, higher is more urgent', left((t -> 'priority')::text, 40)));
    END IF;
    SELECT k INTO bad FROM unnest('{deliver_after,expires_after}'::text[]) WITH ORDINALITY u(k, o)
     WHERE t ? k AND (jsonb_typeof(t -> k) <> 'string' OR t ->> k = '' OR t ->> k !~ span) ORDER BY o LIMIT 1;
    IF FOUND THEN
        PERFORM belfry.reject('schedules', 'template.' || bad, format('%s is not a duration; allowed values: texts such as 45s, 15m, 1h30m', left((t -> bad)::text, 40)));
    END IF;
    IF t ->> 'expires_after' ~ '^[0hms]*$' THEN
        PERFORM belfry.reject('schedules', 'template.expires_after', 'is 0; allowed values: texts such as 45s, 15m, 1h30m, above 0');
    END IF;
    IF t ? 'audience' THEN
        BEGIN
            PERFORM belfry.check_audience(t -> 'audience');
        EXCEPTION WHEN check_violation THEN
            GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, known = PG_EXCEPTION_HINT;
            message := substr(message, length('belfry.jobs.') + 1); -- audience[.key]: problem
            PERFORM belfry.reject('schedules', 'template.' || split_part(message, ': ', 1),
                substr(message, length(split_part(message, ': ', 1)) + 3), nullif(known, ''));
        END;
    END IF;
END $$;
-- What else a template says was checked when it was written.
ALTER TABLE belfry.schedules DISABLE TRIGGER schedules_validate;
UPDATE belfry.schedules SET template = template - '{route,variants}'::text[] WHERE template ?| '{route,variants}';
ALTER TABLE belfry.schedules DISABLE TRIGGER schedules_derive, DISABLE TRIGGER schedules_record;
UPDATE belfry.schedules s SET template = s.template || e.texts
  FROM (SELECT b.name, jsonb_object_agg(k, replace(b.template ->> k, '{{"{{"}}', '{{')) AS texts
          FROM belfry.schedules b, unnest('{title,body}'::text[]) k
         WHERE b.template ->> k LIKE '%{{"{{"}}%'
           AND coalesce(b.template -> 'types', jsonb_build_array(b.template -> 'type')) <> '["inbox"]'
         GROUP BY b.name) e
 WHERE s.name = e.name;
ALTER TABLE belfry.schedules ENABLE TRIGGER schedules_validate, ENABLE TRIGGER schedules_derive, ENABLE TRIGGER schedules_record;
