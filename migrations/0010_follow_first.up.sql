-- The triggers of an attached table fire before its other triggers: PostgreSQL fires them in the order of their names, and
-- ! sorts before letters and digits. Before, a trigger of the application that fired first and changed or deleted the same
-- row was followed first, and the row as it had been after it: its channel got the old values, and that of a deleted row
-- became active again.
--
-- The attached table is locked for a moment.
DO $$
DECLARE
    t record;
BEGIN
    EXECUTE replace(replace(pg_get_functiondef('belfry.attachment_follow()'::regprocedure),
        'TRIGGER belfry_follow_rows ', 'TRIGGER "!belfry_follow_rows" '), 'TRIGGER belfry_follow_truncate ', 'TRIGGER "!belfry_follow_truncate" ');
    FOR t IN SELECT g.tgname AS name, g.tgrelid::regclass AS relation FROM pg_trigger g WHERE g.tgfoid = 'belfry.channels_follow'::regproc LOOP
        EXECUTE format('ALTER TRIGGER %I ON %s RENAME TO %I', t.name, t.relation, '!' || t.name);
    END LOOP;
END $$;
