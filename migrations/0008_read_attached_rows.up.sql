-- Attached tables may have columns of any name, and json values that are no jsonb.
--
-- A column k of the table made belfry.attachment_strays take each channel for one without a row, a column x made
-- belfry.attached_object return that column, and a json value that jsonb rejects made a step fail for all rows.

-- Remembered to replace it in the trigger function below.
SELECT set_config('belfry.object', coalesce((SELECT belfry.attached_object(a.shape, 'NEW') FROM belfry.attachments a), ''), true);

-- A json value as jsonb, or NULL for one that jsonb cannot have: the character U+0000, half of a surrogate pair,
-- a number out of range, nesting that exceeds the stack.
CREATE FUNCTION belfry.attached_json(value text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN value::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

REVOKE EXECUTE ON FUNCTION belfry.attached_json(text) FROM PUBLIC;

-- The mapped columns of a row of the attached relation, as an object. x.* is the row, also if it has a column x. The owner of
-- a type can define a cast that to_jsonb and :: execute with the rights of their caller. So a value of a type outside of
-- pg_catalog is converted by its output function, which format executes and only superusers define, and then to the built-in
-- type. From PostgreSQL 16 on the name json is quoted.
CREATE OR REPLACE FUNCTION belfry.attached_object(shape jsonb, r text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('(SELECT to_jsonb(x.*) FROM (SELECT %s) x)', string_agg(format(
               CASE WHEN replace(v.builtin, '"', '') IN ('pg_catalog.json', 'pg_catalog._json', 'pg_catalog.json[]') THEN 'belfry.attached_json(to_json(%s)::text) AS %I' ELSE '%s AS %I' END,
               v.value, v.key), ', ' ORDER BY v.key))
      FROM (SELECT s.key, coalesce(y.builtin, s.value ->> 'type') AS builtin,
                   format(CASE WHEN starts_with(s.value ->> 'type', 'pg_catalog.') THEN '%1$s.%2$I'
                               ELSE 'CASE WHEN %1$s.%2$I IS NULL THEN NULL ELSE format(''%%s'', %1$s.%2$I)::%3$s END' END,
                          r, s.key, coalesce(y.builtin, 'pg_catalog.text')) AS value
              FROM jsonb_each(shape) s
              LEFT JOIN (SELECT format('%I.%I', n.nspname, t.typname) AS name, belfry.attached_type(t.oid) AS builtin
                           FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace OFFSET 0) y ON y.name = s.value ->> 'type') v
$$;

-- The triggers of the table execute this function, so that they take no new lock on it.
DO $$
DECLARE
    now_is text;
BEGIN
    SELECT belfry.attached_object(a.shape, 'NEW') INTO now_is FROM belfry.attachments a;
    IF FOUND THEN
        EXECUTE 'CREATE OR REPLACE FUNCTION belfry.channels_follow() RETURNS trigger
            LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = ''5s'' AS '
            || (SELECT quote_literal(replace(p.prosrc, current_setting('belfry.object'), now_is)) FROM pg_proc p WHERE p.oid = 'belfry.channels_follow'::regproc);
    END IF;
END $$;

-- One step over the channels, in the order of their id: how many active ones have no row
-- in the attached relation. With repair they are deactivated: locked first, and by the indexes,
-- as in belfry.attachment_step.
CREATE OR REPLACE FUNCTION belfry.attachment_strays(after bigint, max_rows integer, repair boolean, OUT looked bigint, OUT strays bigint, OUT next bigint)
LANGUAGE plpgsql SET row_security = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a     belfry.attachments;
    stray text;
    list  text[];
BEGIN
    SELECT * INTO STRICT a FROM belfry.attachments;
    SELECT count(*), max(p.id), array_agg(p.external_id) FILTER (WHERE p.active) INTO looked, next, list
      FROM (SELECT c.id, c.external_id, c.active FROM belfry.channels c WHERE c.id > after ORDER BY c.id LIMIT max_rows) p;
    -- A text that is no key of the relation's type has no row. k.id is never a column of the relation, as k may be.
    stray := format('SELECT ARRAY(SELECT k.id FROM unnest($1) k(id) WHERE NOT EXISTS (SELECT FROM ONLY %2$s u WHERE u.%1$I = %3$s AND u.%1$I::text = k.id) ORDER BY k.id)',
        a.key_column, belfry.attached_relation(a),
        CASE a.key_type WHEN 'uuid' THEN 'CASE WHEN k.id ~ ''^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'' THEN k.id::uuid END'
             WHEN 'text' THEN 'k.id' WHEN 'character varying' THEN 'k.id'
             ELSE 'CASE WHEN k.id ~ ''^-?[0-9]{1,19}$'' AND k.id::numeric BETWEEN -9223372036854775808 AND 9223372036854775807 THEN k.id::bigint END' END);
    EXECUTE stray INTO list USING coalesce(list, '{}');
    strays := cardinality(list);
    IF strays = 0 OR NOT repair THEN
        RETURN;
    END IF;
    PERFORM FROM belfry.channels c WHERE c.external_id = ANY (list) ORDER BY c.external_id FOR NO KEY UPDATE;
    EXECUTE stray INTO list USING list;
    UPDATE belfry.channels c SET active = false, location = NULL, attributes = '{}', addresses = '{}' WHERE c.external_id = ANY (list) AND c.active;
    GET DIAGNOSTICS strays = ROW_COUNT;
END $$;
