-- Functions and settings that gave a role more than its rights, and locations that broke their index.
-- Locks: belfry.channels ACCESS EXCLUSIVE (instant)

-- Whoever called it held the sum of a category and kept its schedules from firing. Triggers with their owner's rights call it.
REVOKE EXECUTE ON FUNCTION belfry.approval_exceeded(text, bigint, text) FROM PUBLIC;

-- Any login can set belfry.forget, so that who may correct an audience took people out of an approved or RUNNING job as an
-- erasure does. Only an erasure may: the role of the session has the right to call forget_listed.
CREATE OR REPLACE FUNCTION belfry.jobs_forget(was jsonb, is_now jsonb) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
RETURN is_now <> was AND is_now = belfry.audience_without(was, current_setting('belfry.forget', true))
    AND has_function_privilege(coalesce(nullif(current_setting('role'), 'none'), session_user), 'belfry.forget_listed(text, text[], integer, interval, boolean)', 'EXECUTE');

-- The tests of a job that waits for approval are counted by requester: a role that may insert activities used up those of
-- all others.
DO $$
BEGIN
    EXECUTE replace(replace(replace(pg_get_functiondef('belfry.activities_limit()'::regprocedure),
        $old$    ok       boolean;$old$,
        $new$    ok       boolean;
    sender   constant text := session_user || CASE WHEN approves THEN ' for ' || lower(btrim(NEW.requested_by)) ELSE '' END;$new$),
        $old$'test of ' || NEW.test_of, 5)$old$, $new$'test of ' || NEW.test_of || ' by ' || sender, 5)$new$),
        $old$format('5 tests of job %s were sent in this hour; allowed values now: null', NEW.test_of)$old$,
        $new$format('%s sent 5 tests of job %s in this hour; allowed values now: null', CASE WHEN approves THEN left(NEW.requested_by, 110) ELSE session_user END, NEW.test_of)$new$);
    -- localtime is the zone of a machine, and the others are names of files, which runners may not have.
    EXECUTE replace(pg_get_functiondef('belfry.schedules_validate()'::regprocedure),
        $old$WHERE z.name = NEW.time_zone)$old$,
        $new$WHERE z.name = NEW.time_zone AND z.name !~ '^(localtime|posixrules|Factory|posix/.*|right/.*)$')$new$);
END $$;

-- The index of locations multiplies differences: two places below 1e-154 degrees apart made every write to their page fail
-- with "value out of range: underflow". Less than 1e-12 degrees, which is 0.1 micrometres, is 0.
UPDATE belfry.channels SET location = point(CASE WHEN abs(location[0]) >= 1e-12 THEN location[0] ELSE 0 END, CASE WHEN abs(location[1]) >= 1e-12 THEN location[1] ELSE 0 END)
 WHERE (location <@ box '((-180,-1e-12),(180,1e-12))' AND location[1] <> 0) OR (location <@ box '((-1e-12,-90),(1e-12,90))' AND location[0] <> 0);
ALTER TABLE belfry.channels ADD CONSTRAINT channels_location_tiny_check
    CHECK (location IS NULL OR (location[0] = 0 OR abs(location[0]) >= 1e-12) AND (location[1] = 0 OR abs(location[1]) >= 1e-12)) NOT VALID;

CREATE OR REPLACE FUNCTION belfry.attached_channel(r jsonb, m jsonb) RETURNS TABLE (
    external_id text, platform text, active boolean, location point, locale text, time_zone text, attributes jsonb, addresses jsonb)
LANGUAGE sql IMMUTABLE ROWS 1
BEGIN ATOMIC
SELECT CASE WHEN length(v.id) BETWEEN 1 AND 200 THEN v.id END,
       CASE WHEN v.platform ~ '^[A-Za-z][A-Za-z0-9_-]{0,31}$' THEN v.platform ELSE 'unknown' END,
       CASE WHEN m -> 'active' ? 'not' THEN coalesce(r -> (m #>> '{active,not}'), 'null') IN ('null'::jsonb, 'false'::jsonb)
            WHEN m -> 'active' ? 'column' THEN coalesce(r -> (m #>> '{active,column}') = 'true'::jsonb, false)
            ELSE coalesce(m #> '{active,value}' = 'true'::jsonb, true) END,
       CASE WHEN v.place ~ '^[(]-?[0-9.]+(e[-+]?[0-9]+)?,-?[0-9.]+(e[-+]?[0-9]+)?[)]$' AND v.place::point <@ box '((-180,-90),(180,90))'
            THEN point(CASE WHEN abs((v.place::point)[0]) >= 1e-12 THEN (v.place::point)[0] ELSE 0 END, CASE WHEN abs((v.place::point)[1]) >= 1e-12 THEN (v.place::point)[1] ELSE 0 END)
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
