-- Removes belfry.attached_json. belfry.attachment_strays stays as it is, because it takes the same arguments.
SELECT set_config('belfry.object', coalesce((SELECT belfry.attached_object(a.shape, 'NEW') FROM belfry.attachments a), ''), true);

CREATE OR REPLACE FUNCTION belfry.attached_object(shape jsonb, r text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('(SELECT to_jsonb(x) FROM (SELECT %s) x)', string_agg(format(
               CASE WHEN starts_with(s.value ->> 'type', 'pg_catalog.') THEN '%1$s.%2$I AS %2$I'
                    ELSE 'CASE WHEN %1$s.%2$I IS NULL THEN NULL ELSE format(''%%s'', %1$s.%2$I)::%3$s END AS %2$I' END,
               r, s.key, coalesce(y.builtin, 'pg_catalog.text')), ', ' ORDER BY s.key))
      FROM jsonb_each(shape) s
      LEFT JOIN (SELECT format('%I.%I', n.nspname, t.typname) AS name, belfry.attached_type(t.oid) AS builtin
                   FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace OFFSET 0) y ON y.name = s.value ->> 'type'
$$;

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

DROP FUNCTION belfry.attached_json;
