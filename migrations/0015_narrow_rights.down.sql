-- Restores the functions and rights of the migrations before.
ALTER TABLE belfry.channels DROP CONSTRAINT channels_location_tiny_check;

GRANT EXECUTE ON FUNCTION belfry.approval_exceeded(text, bigint, text) TO PUBLIC;

CREATE OR REPLACE FUNCTION belfry.jobs_forget(was jsonb, is_now jsonb) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
RETURN is_now <> was AND is_now = belfry.audience_without(was, current_setting('belfry.forget', true));

DO $$
BEGIN
    EXECUTE replace(replace(replace(pg_get_functiondef('belfry.activities_limit()'::regprocedure),
        $new$
    sender   constant text := session_user || CASE WHEN approves THEN ' for ' || lower(btrim(NEW.requested_by)) ELSE '' END;$new$, ''),
        $new$'test of ' || NEW.test_of || ' by ' || sender, 5)$new$, $old$'test of ' || NEW.test_of, 5)$old$),
        $new$format('%s sent 5 tests of job %s in this hour; allowed values now: null', CASE WHEN approves THEN left(NEW.requested_by, 110) ELSE session_user END, NEW.test_of)$new$,
        $old$format('5 tests of job %s were sent in this hour; allowed values now: null', NEW.test_of)$old$);
    EXECUTE replace(pg_get_functiondef('belfry.schedules_validate()'::regprocedure),
        $new$ AND z.name !~ '^(localtime|posixrules|Factory|posix/.*|right/.*)$')$new$, ')');
END $$;

CREATE OR REPLACE FUNCTION belfry.attached_channel(r jsonb, m jsonb) RETURNS TABLE (
    external_id text, platform text, active boolean, location point, locale text, time_zone text, attributes jsonb, addresses jsonb)
LANGUAGE sql IMMUTABLE ROWS 1
BEGIN ATOMIC
SELECT CASE WHEN length(v.id) BETWEEN 1 AND 200 THEN v.id END,
       CASE WHEN v.platform ~ '^[A-Za-z][A-Za-z0-9_-]{0,31}$' THEN v.platform ELSE 'unknown' END,
       CASE WHEN m -> 'active' ? 'not' THEN coalesce(r -> (m #>> '{active,not}'), 'null') IN ('null'::jsonb, 'false'::jsonb)
            WHEN m -> 'active' ? 'column' THEN coalesce(r -> (m #>> '{active,column}') = 'true'::jsonb, false)
            ELSE coalesce(m #> '{active,value}' = 'true'::jsonb, true) END,
       CASE WHEN v.place ~ '^[(]-?[0-9.]+(e[-+]?[0-9]+)?,-?[0-9.]+(e[-+]?[0-9]+)?[)]$' AND v.place::point <@ box '((-180,-90),(180,90))' THEN v.place::point
            WHEN jsonb_typeof(v.lat) = 'number' AND jsonb_typeof(v.lon) = 'number'
             AND (v.lat #>> '{}')::numeric BETWEEN -90 AND 90 AND (v.lon #>> '{}')::numeric BETWEEN -180 AND 180
            THEN point(round((v.lon #>> '{}')::numeric, 12)::float8, round((v.lat #>> '{}')::numeric, 12)::float8) END,
       CASE WHEN length(v.locale) <= 35 THEN v.locale ELSE '' END,
       CASE WHEN length(v.time_zone) <= 64 THEN v.time_zone ELSE '' END,
       CASE WHEN m -> 'attributes' ? 'columns'
            THEN (SELECT coalesce(jsonb_object_agg(a.key, r -> a.value), '{}') FROM jsonb_each_text(m #> '{attributes,columns}') a WHERE r -> a.value <> 'null')
            WHEN jsonb_typeof(v.attributes) = 'object' THEN v.attributes ELSE '{}' END,
       CASE WHEN m -> 'addresses' ? 'columns'
            THEN (SELECT coalesce(jsonb_object_agg(a.key, r -> a.value), '{}') FROM jsonb_each_text(m #> '{addresses,columns}') a WHERE r -> a.value NOT IN ('null', '""'))
            WHEN jsonb_typeof(v.addresses) = 'object' THEN v.addresses ELSE '{}' END
FROM (SELECT r ->> (m ->> 'external_id') AS id,
             coalesce(m #>> '{platform,value}', r ->> (m #>> '{platform,column}')) AS platform,
             r ->> (m #>> '{location,column}') AS place,
             r -> (m #>> '{location,latitude}') AS lat, r -> (m #>> '{location,longitude}') AS lon,
             coalesce(m #>> '{locale,value}', r ->> (m #>> '{locale,column}'), '') AS locale,
             coalesce(m #>> '{time_zone,value}', r ->> (m #>> '{time_zone,column}'), '') AS time_zone,
             r -> (m #>> '{attributes,column}') AS attributes, r -> (m #>> '{addresses,column}') AS addresses) v;
END;
