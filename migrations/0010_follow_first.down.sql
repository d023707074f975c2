-- Restores the names of the triggers.
DO $$
DECLARE
    t record;
BEGIN
    EXECUTE replace(replace(pg_get_functiondef('belfry.attachment_follow()'::regprocedure),
        'TRIGGER "!belfry_follow_rows" ', 'TRIGGER belfry_follow_rows '), 'TRIGGER "!belfry_follow_truncate" ', 'TRIGGER belfry_follow_truncate ');
    FOR t IN SELECT g.tgname AS name, g.tgrelid::regclass AS relation FROM pg_trigger g WHERE g.tgfoid = 'belfry.channels_follow'::regproc LOOP
        EXECUTE format('ALTER TRIGGER %I ON %s RENAME TO %I', t.name, t.relation, ltrim(t.name, '!'));
    END LOOP;
END $$;
