-- What a function stores does not depend on the settings of the session that calls it.
--
-- An attached table's trigger wrote times in the TimeZone of the writer, and numbers, intervals and bytes in its forms, so that
-- verify in another session found these channels different. belfry.audience_radius rounded its numbers. A channel that was
-- written in another form keeps it until its row changes or `belfry channels verify` repairs it.
DO $$
DECLARE
    form record;
BEGIN
    FOR form IN SELECT * FROM (VALUES ('timezone', 'UTC'), ('datestyle', 'ISO, MDY'), ('intervalstyle', 'postgres'), ('extra_float_digits', '1'),
            ('bytea_output', 'hex'), ('lc_monetary', 'C'), ('array_nulls', 'on'), ('quote_all_identifiers', 'off')) v (name, value) LOOP
        EXECUTE replace(pg_get_functiondef('belfry.attachment_follow()'::regprocedure),
            ' SET lock_timeout = ', format(' SET %s = ''%L'' SET lock_timeout = ', form.name, form.value));
        EXECUTE format('ALTER FUNCTION belfry.channels_follow() SET %s = %L', form.name, form.value);
        EXECUTE format('ALTER FUNCTION belfry.attachment_step(text, integer, boolean) SET %s = %L', form.name, form.value);
    END LOOP;
END $$;

ALTER FUNCTION belfry.audience_radius(double precision, double precision, double precision) SET extra_float_digits = 1;
ALTER FUNCTION belfry.jobs_limit() SET extra_float_digits = 1;
